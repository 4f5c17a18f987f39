"""From the results of every run to tables, claims, figures and one page."""

TABLES = ["estimates.csv", "seeds.csv", "comparisons.csv", "rl.csv", "curves.csv", "selection.csv", "constants.csv", "example.json"]
CHECKS = ["honesty.csv", "mutation.csv"]
# Facts of this machine and this run; no figure is drawn from them.
CIRCUMSTANCES = ["timings.csv", "config.json", "provenance.json"]
FIGURES = ["pretraining", "rl", "before_after", "families", "arms", "contrasts", "forgetting", "vision", "images", "claims"]
# Of the structures of the decoder; the last is drawn from times of this machine.
FIGURES += ["losses", "forest", "sources", "recall", "costs"]
# Those that the slides show.
SHOWN = ["pretraining", "rl", "before_after", "families"]
# What figures are drawn from.
DRAWN = [*TABLES, *CONTRASTS, *VISION, *ARCHITECTURE, *ARCHITECTURE_COSTS, *RECALL]
# From npm, by `make install`.
REVEAL = os.path.relpath(ROOT / "node_modules/reveal.js")
CLAIMS = [os.path.relpath(ROOT / CONFIG.claims)] if CONFIG.claims else []

ANALYSE = Command("analyse", "--job {params.config:q} --manifest {output.manifest:q} --out {params.folder:q}")
AUDIT = Command("audit_rewards", "--job {params.config:q} --out {output.counts:q}")
SCORE = Command("score_mutants", "--job {params.job:q} --out {output.scores:q}")
COMPARE = Command("compare_claims", "--job {params.config:q} --tables {params.tables:q} {params.claims} --out {output.claims:q}")
DRAW = Command("draw_figures", "--tables {params.tables:q} --claims {input.claims:q} --out {params.folder:q}")
CHOOSE = Command("choose_lesson", "--job {params.config:q} --out {output.lesson:q}")
SLIDES = Command(
    "render_slides",
    "--job {params.config:q} --tables {params.tables:q} --claims {input.claims:q} --figures {params.figures:q} "
    "--reveal {params.reveal:q} --out {output.slides:q}",
)
RENDER = Command(
    "render_report",
    "--job {params.config:q} --tables {params.tables:q} --claims {input.claims:q} --figures {params.figures:q} --out {output.page:q}",
)


rule analyse_studies:
    """Turn the results of all seeds and arms into tables."""
    input:
        every("corpus", "examples.parquet"),
        every("pretrain", "metrics.jsonl", "receipt.json"),
        every("evaluate/pretraining", "completions.parquet", "receipt.json"),
        every("select", "selection.json"),
        every("rl", "metrics.jsonl", "receipt.json", "rollouts.parquet"),
        every("evaluate/curve", "completions.parquet", "receipt.json"),
        every("evaluate/before", "completions.parquet", "receipt.json"),
        every("evaluate/after", "completions.parquet", "receipt.json"),
        every("expressions", "receipt.json"),
        every("vision", "receipt.json"),
        every("loss", "receipt.json"),
        every("costs", "receipt.json"),
        every("recall", "receipt.json"),
    output:
        tables=[reported(f"{REPORTS}/{name}", "Tables") for name in TABLES],
        circumstances=[reported(f"{REPORTS}/{name}", "Tables") for name in CIRCUMSTANCES],
        manifest=f"{RESULTS}/manifest.json",
    log:
        f"{RESULTS}/logs/analyse.log",
    benchmark:
        f"{RESULTS}/benchmarks/analyse.tsv"
    threads: 1
    resources:
        mem_mb=memory_of_all,
        runtime=runtime_of_all,
    params:
        code=ANALYSE.code,
        config=canonical_json(CONFIG),
        folder=folder_of,
    message:
        "Analysing the studies of {RUN}"
    shell:
        ANALYSE.line


rule audit_rewards:
    """Ask whether the rewards of all seeds and arms were earned: the second judge on RL's samples, suspicious programs, the canary."""
    input:
        every("corpus", "examples.parquet"),
        every("rl", "rollouts.parquet"),
        every("evaluate/before", "completions.parquet", "canary.parquet"),
        every("evaluate/after", "completions.parquet", "canary.parquet"),
    output:
        counts=reported(f"{REPORTS}/honesty.csv", "Tables"),
    log:
        f"{RESULTS}/logs/audit.log",
    benchmark:
        f"{RESULTS}/benchmarks/audit.tsv"
    threads: 1
    resources:
        mem_mb=memory_of_all,
        runtime=runtime_of_all,
    params:
        code=AUDIT.code,
        config=canonical_json(CONFIG),
    message:
        "Auditing the rewards of {RUN}"
    shell:
        AUDIT.line


rule score_mutants:
    """Try the property suite on programs that are known to be wrong: it must reject them all."""
    output:
        scores=reported(f"{REPORTS}/mutation.csv", "Tables"),
    log:
        f"{RESULTS}/logs/mutation.log",
    benchmark:
        f"{RESULTS}/benchmarks/mutation.tsv"
    threads: 1
    resources:
        mem_mb=memory_of_all,
        runtime=runtime_of_all,
    params:
        code=SCORE.code,
        job=canonical_json(PLAN.mutation()),
    message:
        "Trying the property suite on wrong programs"
    shell:
        SCORE.line


rule compare_claims:
    """Set the run's estimates beside the published claims."""
    input:
        tables=[f"{REPORTS}/{name}" for name in [*TABLES, *CONTRASTS, *VISION]],
        published=CLAIMS,
    output:
        claims=reported(f"{REPORTS}/claims.csv", "Tables"),
    log:
        f"{RESULTS}/logs/claims.log",
    benchmark:
        f"{RESULTS}/benchmarks/claims.tsv"
    threads: 1
    resources:
        mem_mb=memory_of_all,
        runtime=runtime_of_all,
    params:
        code=COMPARE.code,
        config=canonical_json(CONFIG),
        tables=folder_of_input("tables"),
        claims=f"--claims {shlex.quote(CLAIMS[0])}" if CLAIMS else "",
    message:
        "Comparing with the published claims"
    shell:
        COMPARE.line


rule draw_figures:
    """Draw the figures of the report."""
    input:
        tables=[f"{REPORTS}/{name}" for name in DRAWN],
        claims=f"{REPORTS}/claims.csv",
    output:
        figures=[reported(f"{REPORTS}/figures/{name}.svg", "Figures") for name in FIGURES],
    log:
        f"{RESULTS}/logs/figures.log",
    benchmark:
        f"{RESULTS}/benchmarks/figures.tsv"
    threads: 1
    resources:
        mem_mb=memory_of_all,
        runtime=runtime_of_all,
    params:
        code=DRAW.code,
        tables=folder_of_input("tables"),
        folder=folder_of,
    message:
        "Drawing the figures"
    shell:
        DRAW.line


rule render_report:
    """Write the report, one page that needs no network."""
    input:
        tables=[f"{REPORTS}/{name}" for name in [*DRAWN, *CHECKS, *CIRCUMSTANCES]],
        claims=f"{REPORTS}/claims.csv",
        figures=[f"{REPORTS}/figures/{name}.svg" for name in FIGURES],
    output:
        page=reported(f"{REPORTS}/report.html", "Page"),
    log:
        f"{RESULTS}/logs/report.log",
    benchmark:
        f"{RESULTS}/benchmarks/report.tsv"
    threads: 1
    resources:
        mem_mb=memory_of_all,
        runtime=runtime_of_all,
    params:
        code=RENDER.code,
        config=canonical_json(CONFIG),
        tables=folder_of_input("tables"),
        figures=folder_of_input("figures"),
    message:
        "Writing the report"
    shell:
        RENDER.line


rule choose_lesson:
    """Choose the task, the group and the text with which the slides teach."""
    input:
        front("corpus", "examples.parquet"),
        front("rl", "rollouts.parquet"),
        front("trace", "next_bytes.parquet", "routing.parquet"),
    output:
        lesson=reported(f"{REPORTS}/lesson.json", "Tables"),
    log:
        f"{RESULTS}/logs/lesson.log",
    benchmark:
        f"{RESULTS}/benchmarks/lesson.tsv"
    threads: 1
    resources:
        mem_mb=memory_of_all,
        runtime=runtime_of_all,
    params:
        code=CHOOSE.code,
        config=canonical_json(CONFIG),
    message:
        "Choosing what the slides show"
    shell:
        CHOOSE.line


rule render_slides:
    """Write the slides, one file that needs no network."""
    input:
        tables=[f"{REPORTS}/{name}" for name in TABLES],
        lesson=f"{REPORTS}/lesson.json",
        claims=f"{REPORTS}/claims.csv",
        figures=[f"{REPORTS}/figures/{name}.svg" for name in SHOWN],
    output:
        slides=reported(f"{REPORTS}/slides.html", "Page"),
    log:
        f"{RESULTS}/logs/slides.log",
    benchmark:
        f"{RESULTS}/benchmarks/slides.tsv"
    threads: 1
    resources:
        mem_mb=memory_of_all,
        runtime=runtime_of_all,
    params:
        code=SLIDES.code + command_hash((ROOT / "package-lock.json").read_text()),
        config=canonical_json(CONFIG),
        tables=folder_of_input("tables"),
        figures=folder_of_input("figures"),
        reveal=REVEAL,
    message:
        "Writing the slides"
    shell:
        SLIDES.line
