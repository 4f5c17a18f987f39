"""What the Snakefile needs beside Snakemake: the plan of jobs, fingerprints of their code, and guards. No torch, no pandas."""
