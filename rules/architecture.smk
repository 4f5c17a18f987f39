"""Architecture studies: which structure of the decoder pays, on held-out loss and on dev tasks, and what it costs."""

MEASURE_LOSS = Command(
    "measure_loss",
    "--job {params.job:q} --examples {input.examples:q} --pretrained {input.pretrained:q} "
    "--out {output.loss:q} --receipt {output.receipt:q} --recipe {output.recipe:q}",
    "loss",
    on_device=True,
)
MEASURE_COSTS = Command(
    "measure_costs",
    "--job {params.job:q} --out {output.costs:q} --receipt {output.receipt:q} --recipe {output.recipe:q}",
    "costs",
)
ANALYSE_ARCHITECTURE = Command("analyse_architecture", "--job {params.config:q} --out {params.folder:q}")
ARCHITECTURE = ["architecture.csv", "architecture_contrasts.csv"]
# With times of this machine; no two runs have the same.
ARCHITECTURE_COSTS = ["architecture_arms.csv", "costs.csv", "costs_speed.csv"]


rule measure_loss:
    """Measure the loss of every pretraining checkpoint of a seed on held-out examples."""
    input:
        examples=source("loss", "corpus", "examples.parquet"),
        weights=source("loss", "pretrain", "weights.json"),
        pretrained=ancient(source("loss", "pretrain", "checkpoints")),
    output:
        loss=result("loss", "loss.parquet"),
        receipt=result("loss", "receipt.json"),
        recipe=result("loss", "recipe.json"),
    log:
        log_of("loss"),
    benchmark:
        benchmark_of("loss")
    threads: threads_of("loss")
    resources:
        mem_mb=memory_of("loss"),
        runtime=runtime_of("loss"),
        gpu=gpu_of("loss"),
    params:
        code=MEASURE_LOSS.code_of("loss"),
        job=recipe("loss"),
    message:
        "Measuring the held-out loss of arm {ARMS:{wildcards.key}/{wildcards.seed}}, seed {wildcards.seed}"
    shell:
        MEASURE_LOSS.line


rule measure_costs:
    """Measure on one thread what the model of an arm costs as its context grows, with nothing of this run beside it."""
    output:
        costs=result("costs", "costs.json"),
        receipt=result("costs", "receipt.json"),
        recipe=result("costs", "recipe.json"),
    log:
        log_of("costs"),
    benchmark:
        benchmark_of("costs")
    threads: all_cores
    resources:
        mem_mb=memory_of("costs"),
        runtime=runtime_of("costs"),
        slurm_extra="--exclusive",
    params:
        code=MEASURE_COSTS.code_of("costs"),
        job=recipe("costs"),
    message:
        "Measuring what the model of arm {ARMS:{wildcards.key}/{wildcards.seed}} costs"
    shell:
        MEASURE_COSTS.line


rule analyse_architecture:
    """Compare the arms of the architecture studies seed by seed, and set what they cost beside it."""
    input:
        every_of("architecture", "pretrain", "metrics.jsonl", "receipt.json"),
        every_of("architecture", "evaluate/pretraining", "completions.parquet"),
        every("loss", "loss.parquet"),
        every("costs", "costs.json"),
    output:
        tables=[reported(f"{REPORTS}/{name}", "Tables") for name in ARCHITECTURE],
        costs=[reported(f"{REPORTS}/{name}", "Tables") for name in ARCHITECTURE_COSTS],
    log:
        f"{RESULTS}/logs/analyse_architecture.log",
    benchmark:
        f"{RESULTS}/benchmarks/analyse_architecture.tsv"
    threads: 1
    resources:
        mem_mb=memory_of_all,
        runtime=runtime_of_all,
    params:
        code=ANALYSE_ARCHITECTURE.code,
        config=canonical_json(CONFIG),
        folder=folder_of,
    message:
        "Analysing the architecture studies of {RUN}"
    shell:
        ANALYSE_ARCHITECTURE.line
