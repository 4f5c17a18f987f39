"""What the policies before and after an RL run make of the same texts, for the pages that show a run from inside."""

TRACE = Command(
    "trace_run",
    "--job {params.job:q} --examples {input.examples:q} --pretrained {input.pretrained:q} --selection {input.selection:q} "
    "--trained {input.trained:q} --before {input.before:q} --after {input.after:q} "
    "--out {params.folder:q} --receipt {output.receipt:q} --recipe {output.recipe:q}",
    "trace",
    on_device=True,
)
EXPLORE = Command("render_explorer", "--job {params.config:q} --out {output.page:q}")


rule trace_run:
    """Ask the policies before and after RL for their next bytes on one task a family, and the last one for its routes."""
    input:
        examples=source("trace", "corpus", "examples.parquet"),
        weights=source("trace", "rl", "weights.json"),
        pretrained=ancient(source("trace", "pretrain", "checkpoints")),
        selection=source("trace", "select", "selection.json"),
        trained=ancient(source("trace", "rl", "checkpoints")),
        before=source("trace", "evaluate/before", "completions.parquet"),
        after=source("trace", "evaluate/after", "completions.parquet"),
    output:
        next_bytes=result("trace", "next_bytes.parquet"),
        routing=result("trace", "routing.parquet"),
        random=result("trace", "random.parquet"),
        receipt=result("trace", "receipt.json"),
        recipe=result("trace", "recipe.json"),
    log:
        log_of("trace"),
    benchmark:
        benchmark_of("trace")
    threads: threads_of("trace")
    resources:
        mem_mb=memory_of("trace"),
        runtime=runtime_of("trace"),
        gpu=gpu_of("trace"),
    params:
        code=TRACE.code_of("trace"),
        job=recipe("trace"),
        folder=folder_of,
    message:
        "Tracing the run of arm {ARMS:{wildcards.key}/{wildcards.seed}}, seed {wildcards.seed}"
    shell:
        TRACE.line


rule render_explorer:
    """Write the rollout explorer, one page that needs no network."""
    input:
        every("corpus", "examples.parquet"),
        every("rl", "rollouts.parquet"),
        every("evaluate/pretraining", "completions.parquet"),
        every("evaluate/curve", "completions.parquet"),
        every("evaluate/before", "completions.parquet"),
        every("evaluate/after", "completions.parquet"),
        every("trace", "next_bytes.parquet", "random.parquet"),
    output:
        page=reported(f"{REPORTS}/explorer.html", "Page"),
    log:
        f"{RESULTS}/logs/explorer.log",
    benchmark:
        f"{RESULTS}/benchmarks/explorer.tsv"
    threads: 1
    resources:
        mem_mb=memory_of_all,
        runtime=runtime_of_all,
    params:
        code=EXPLORE.code,
        config=canonical_json(CONFIG),
    message:
        "Writing the rollout explorer"
    shell:
        EXPLORE.line
