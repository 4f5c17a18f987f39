"""Reinforcement learning, one job a seed and arm."""

TRAIN_RL = Command(
    "train_rl",
    "--job {params.job:q} --pretrained {input.pretrained:q} --selection {input.selection:q} --examples {input.examples:q} "
    "--tokens {input.tokens:q} --out {params.folder:q} --recipe {output.recipe:q} --state {params.state:q}",
    "rl",
    on_device=True,
    shared=True,
)


rule train_rl:
    """Teach one seed of one arm by RL; a killed run resumes."""
    input:
        weights=source("rl", "pretrain", "weights.json"),
        pretrained=ancient(source("rl", "pretrain", "checkpoints")),
        selection=source("rl", "select", "selection.json"),
        examples=source("rl", "corpus", "examples.parquet"),
        tokens=source("rl", "corpus", "tokens.safetensors"),
    output:
        recipe=result("rl", "recipe.json"),
        checkpoints=directory(result("rl", "checkpoints")),
        weights=result("rl", "weights.json"),
        rollouts=result("rl", "rollouts.parquet"),
        metrics=result("rl", "metrics.jsonl"),
        receipt=result("rl", "receipt.json"),
    log:
        log_of("rl"),
    benchmark:
        benchmark_of("rl")
    threads: threads_of("rl")
    resources:
        mem_mb=memory_of("rl"),
        runtime=runtime_of("rl"),
        gpu=gpu_of("rl"),
    params:
        code=TRAIN_RL.code_of("rl"),
        job=recipe("rl"),
        folder=folder_of,
        state=state_of("rl"),
    message:
        "RL of arm {ARMS:{wildcards.key}/{wildcards.seed}}, seed {wildcards.seed}"
    shell:
        TRAIN_RL.line
