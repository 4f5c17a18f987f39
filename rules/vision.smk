"""Vision studies: by which path images should reach a language model, one job a seed and arm."""

TRAIN_VISION = Command(
    "train_vision",
    "--job {params.job:q} {params.start} --out {params.folder:q} --recipe {output.recipe:q}",
    "vision",
    on_device=True,
)
ANALYSE_VISION = Command("analyse_vision", "--job {params.config:q} --out {params.folder:q}")
VISION = ["vision.csv", "vision_contrasts.csv", "vision_images.json"]


rule train_vision:
    """Train one seed of one arm to read digits in images, and score it on the way; a killed run starts anew."""
    input:
        weights=source_if("vision", "pretrain", "weights.json"),
        pretrained=ancient(source_if("vision", "pretrain", "checkpoints")),
        selection=source_if("vision", "select", "selection.json"),
    output:
        recipe=result("vision", "recipe.json"),
        predictions=result("vision", "predictions.parquet"),
        metrics=result("vision", "metrics.jsonl"),
        receipt=result("vision", "receipt.json"),
    log:
        log_of("vision"),
    benchmark:
        benchmark_of("vision")
    threads: threads_of("vision")
    resources:
        mem_mb=memory_of("vision"),
        runtime=runtime_of("vision"),
        gpu=gpu_of("vision"),
    params:
        code=TRAIN_VISION.code_of("vision"),
        job=recipe("vision"),
        start=start_of,
        folder=folder_of,
    message:
        "Training on images, arm {ARMS:{wildcards.key}/{wildcards.seed}}, seed {wildcards.seed}"
    shell:
        TRAIN_VISION.line


rule analyse_vision:
    """Compare the arms of the vision studies seed by seed and image by image."""
    input:
        every("vision", "predictions.parquet", "receipt.json"),
    output:
        tables=[reported(f"{REPORTS}/{name}", "Tables") for name in VISION],
    log:
        f"{RESULTS}/logs/analyse_vision.log",
    benchmark:
        f"{RESULTS}/benchmarks/analyse_vision.tsv"
    threads: 1
    resources:
        mem_mb=memory_of_all,
        runtime=runtime_of_all,
    params:
        code=ANALYSE_VISION.code,
        config=canonical_json(CONFIG),
        folder=folder_of,
    message:
        "Analysing the vision studies of {RUN}"
    shell:
        ANALYSE_VISION.line
