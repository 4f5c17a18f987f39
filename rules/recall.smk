"""Recall studies: which model recalls a name that it has read so many bytes ago, one job a seed and arm."""

TRAIN_RECALL = Command(
    "train_recall",
    "--job {params.job:q} --out {params.folder:q} --recipe {output.recipe:q}",
    "recall",
    on_device=True,
)
ANALYSE_RECALL = Command("analyse_recall", "--job {params.config:q} --out {params.folder:q}")
RECALL = ["recall.csv", "recall_contrasts.csv"]


rule train_recall:
    """Train one seed of one arm to recall names, and score it on the way; a killed run starts anew."""
    output:
        recipe=result("recall", "recipe.json"),
        predictions=result("recall", "predictions.parquet"),
        metrics=result("recall", "metrics.jsonl"),
        receipt=result("recall", "receipt.json"),
    log:
        log_of("recall"),
    benchmark:
        benchmark_of("recall")
    threads: threads_of("recall")
    resources:
        mem_mb=memory_of("recall"),
        runtime=runtime_of("recall"),
        gpu=gpu_of("recall"),
    params:
        code=TRAIN_RECALL.code_of("recall"),
        job=recipe("recall"),
        folder=folder_of,
    message:
        "Training on recall, arm {ARMS:{wildcards.key}/{wildcards.seed}}, seed {wildcards.seed}"
    shell:
        TRAIN_RECALL.line


rule analyse_recall:
    """Compare the arms of the recall studies seed by seed and text by text."""
    input:
        every("recall", "predictions.parquet", "receipt.json"),
    output:
        tables=[reported(f"{REPORTS}/{name}", "Tables") for name in RECALL],
    log:
        f"{RESULTS}/logs/analyse_recall.log",
    benchmark:
        f"{RESULTS}/benchmarks/analyse_recall.tsv"
    threads: 1
    resources:
        mem_mb=memory_of_all,
        runtime=runtime_of_all,
    params:
        code=ANALYSE_RECALL.code,
        config=canonical_json(CONFIG),
        folder=folder_of,
    message:
        "Analysing the recall studies of {RUN}"
    shell:
        ANALYSE_RECALL.line
