"""Completions of checkpoints, judged: one job a training and split, whatever the number of checkpoints."""

EVALUATE = Command(
    "evaluate",
    "--job {params.job:q} --examples {input.examples:q} --pretrained {input.pretrained:q} {params.layers} "
    "--out {output.completions:q} --receipt {output.receipt:q} --recipe {output.recipe:q}",
    "evaluate",
    on_device=True,
    shared=True,
)
EVALUATE_REPORTED = Command(
    "evaluate_reported",
    "--job {params.job:q} --examples {input.examples:q} --pretrained {input.pretrained:q} {params.layers} "
    "--out {output.completions:q} --canary {output.canary:q} --receipt {output.receipt:q} --recipe {output.recipe:q}",
    on_device=True,
)


rule evaluate_pretraining:
    """Ask every pretraining checkpoint of a seed for dev tasks, greedily."""
    input:
        examples=source("evaluate/pretraining", "corpus", "examples.parquet"),
        weights=source("evaluate/pretraining", "pretrain", "weights.json"),
        pretrained=ancient(source("evaluate/pretraining", "pretrain", "checkpoints")),
    output:
        completions=result("evaluate/pretraining", "completions.parquet"),
        receipt=result("evaluate/pretraining", "receipt.json"),
        recipe=result("evaluate/pretraining", "recipe.json"),
    log:
        log_of("evaluate/pretraining"),
    benchmark:
        benchmark_of("evaluate/pretraining")
    threads: threads_of("evaluate/pretraining")
    resources:
        mem_mb=memory_of("evaluate/pretraining"),
        runtime=runtime_of("evaluate/pretraining"),
        gpu=gpu_of("evaluate/pretraining"),
    params:
        code=EVALUATE.code_of("evaluate/pretraining"),
        job=recipe("evaluate/pretraining"),
        layers=layers_of,
    message:
        "Evaluating the pretraining checkpoints of seed {wildcards.seed} on dev ({ARMS:{wildcards.key}/{wildcards.seed}})"
    shell:
        EVALUATE.line


rule evaluate_before:
    """Ask the start of RL for the reported tasks and the canary; arms share it."""
    input:
        examples=source("evaluate/before", "corpus", "examples.parquet"),
        weights=source("evaluate/before", "pretrain", "weights.json"),
        pretrained=ancient(source("evaluate/before", "pretrain", "checkpoints")),
        selection=source("evaluate/before", "select", "selection.json"),
    output:
        completions=result("evaluate/before", "completions.parquet"),
        canary=result("evaluate/before", "canary.parquet"),
        receipt=result("evaluate/before", "receipt.json"),
        recipe=result("evaluate/before", "recipe.json"),
    log:
        log_of("evaluate/before"),
    benchmark:
        benchmark_of("evaluate/before")
    threads: threads_of("evaluate/before")
    resources:
        mem_mb=memory_of("evaluate/before"),
        runtime=runtime_of("evaluate/before"),
        gpu=gpu_of("evaluate/before"),
    params:
        code=EVALUATE_REPORTED.code_of("evaluate/before"),
        job=recipe("evaluate/before"),
        layers=layers_of,
    message:
        "Evaluating the start of RL, seed {wildcards.seed} ({ARMS:{wildcards.key}/{wildcards.seed}})"
    shell:
        EVALUATE_REPORTED.line


use rule evaluate_pretraining as evaluate_curve with:
    """Ask every RL checkpoint of a seed and arm for dev tasks of the trained families."""
    input:
        examples=source("evaluate/curve", "corpus", "examples.parquet"),
        weights=source("evaluate/curve", "rl", "weights.json"),
        pretrained=ancient(source("evaluate/curve", "pretrain", "checkpoints")),
        selection=source("evaluate/curve", "select", "selection.json"),
        trained=ancient(source("evaluate/curve", "rl", "checkpoints")),
    output:
        completions=result("evaluate/curve", "completions.parquet"),
        receipt=result("evaluate/curve", "receipt.json"),
        recipe=result("evaluate/curve", "recipe.json"),
    log:
        log_of("evaluate/curve"),
    benchmark:
        benchmark_of("evaluate/curve")
    threads: threads_of("evaluate/curve")
    resources:
        mem_mb=memory_of("evaluate/curve"),
        runtime=runtime_of("evaluate/curve"),
        gpu=gpu_of("evaluate/curve"),
    params:
        code=EVALUATE.code_of("evaluate/curve"),
        job=recipe("evaluate/curve"),
        layers=layers_of,
    message:
        "Evaluating the RL checkpoints of arm {ARMS:{wildcards.key}/{wildcards.seed}}, seed {wildcards.seed}, on dev"


use rule evaluate_before as evaluate_after with:
    """Ask the last RL checkpoint of a seed and arm for the reported tasks and the canary."""
    input:
        examples=source("evaluate/after", "corpus", "examples.parquet"),
        weights=source("evaluate/after", "rl", "weights.json"),
        pretrained=ancient(source("evaluate/after", "pretrain", "checkpoints")),
        selection=source("evaluate/after", "select", "selection.json"),
        trained=ancient(source("evaluate/after", "rl", "checkpoints")),
    output:
        completions=result("evaluate/after", "completions.parquet"),
        canary=result("evaluate/after", "canary.parquet"),
        receipt=result("evaluate/after", "receipt.json"),
        recipe=result("evaluate/after", "recipe.json"),
    log:
        log_of("evaluate/after"),
    benchmark:
        benchmark_of("evaluate/after")
    threads: threads_of("evaluate/after")
    resources:
        mem_mb=memory_of("evaluate/after"),
        runtime=runtime_of("evaluate/after"),
        gpu=gpu_of("evaluate/after"),
    params:
        code=EVALUATE_REPORTED.code_of("evaluate/after"),
        job=recipe("evaluate/after"),
        layers=layers_of,
    message:
        "Evaluating the last RL checkpoint of arm {ARMS:{wildcards.key}/{wildcards.seed}}, seed {wildcards.seed}"
