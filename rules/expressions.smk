"""Pretraining studies: what the choice and the order of examples change, one job a seed and arm."""

TRAIN_EXPRESSIONS = Command(
    "train_expressions",
    "--job {params.job:q} --out {params.folder:q} --recipe {output.recipe:q}",
    "expressions",
    on_device=True,
)
ANALYSE_EXPRESSIONS = Command("analyse_expressions", "--job {params.config:q} --out {params.folder:q}")
CONTRASTS = ["contrasts.csv", "expressions.csv", "trajectories.csv", "baselines.csv", "written.csv", "forgetting.csv"]


rule train_expressions:
    """Draw the expressions of one seed and arm, train a mini model on them, score it on the way; a killed run starts anew."""
    output:
        recipe=result("expressions", "recipe.json"),
        examples=result("expressions", "examples.parquet"),
        tokens=result("expressions", "tokens.safetensors"),
        scores=result("expressions", "scores.parquet"),
        completions=result("expressions", "completions.parquet"),
        metrics=result("expressions", "metrics.jsonl"),
        receipt=result("expressions", "receipt.json"),
    log:
        log_of("expressions"),
    benchmark:
        benchmark_of("expressions")
    threads: threads_of("expressions")
    resources:
        mem_mb=memory_of("expressions"),
        runtime=runtime_of("expressions"),
        gpu=gpu_of("expressions"),
    params:
        code=TRAIN_EXPRESSIONS.code_of("expressions"),
        job=recipe("expressions"),
        folder=folder_of,
    message:
        "Training on expressions, arm {ARMS:{wildcards.key}/{wildcards.seed}}, seed {wildcards.seed}"
    shell:
        TRAIN_EXPRESSIONS.line


rule analyse_expressions:
    """Compare the arms of the pretraining studies seed by seed."""
    input:
        every("expressions", "scores.parquet", "completions.parquet"),
    output:
        tables=[reported(f"{REPORTS}/{name}", "Tables") for name in CONTRASTS],
    log:
        f"{RESULTS}/logs/analyse_expressions.log",
    benchmark:
        f"{RESULTS}/benchmarks/analyse_expressions.tsv"
    threads: 1
    resources:
        mem_mb=memory_of_all,
        runtime=runtime_of_all,
    params:
        code=ANALYSE_EXPRESSIONS.code,
        config=canonical_json(CONFIG),
        folder=folder_of,
    message:
        "Analysing the pretraining studies of {RUN}"
    shell:
        ANALYSE_EXPRESSIONS.line
