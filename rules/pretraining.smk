"""From random weights to a choice of checkpoints."""

PRETRAIN = Command(
    "pretrain",
    "--job {params.job:q} --tokens {input.tokens:q} --out {params.folder:q} --recipe {output.recipe:q} --state {params.state:q}",
    "pretrain",
    on_device=True,
    shared=True,
)
SELECT_START = Command(
    "select_start",
    "--job {params.job:q} --completions {input.completions:q} --out {output.selection:q} --recipe {output.recipe:q}",
    "select",
)
LONGEST = max(job.slice.steps for job in PLAN.stage("pretrain"))


rule pretrain_seed:
    """Pretrain one seed, keeping checkpoints; a killed run resumes."""
    input:
        tokens=source("pretrain", "corpus", "tokens.safetensors"),
    output:
        recipe=result("pretrain", "recipe.json"),
        checkpoints=directory(result("pretrain", "checkpoints")),
        weights=result("pretrain", "weights.json"),
        metrics=result("pretrain", "metrics.jsonl"),
        receipt=result("pretrain", "receipt.json"),
    log:
        log_of("pretrain"),
    benchmark:
        benchmark_of("pretrain")
    threads: threads_of("pretrain")
    resources:
        mem_mb=memory_of("pretrain"),
        runtime=runtime_of("pretrain"),
        gpu=gpu_of("pretrain"),
    params:
        code=PRETRAIN.code_of("pretrain"),
        job=recipe("pretrain"),
        folder=folder_of,
        state=state_of("pretrain"),
    message:
        "Pretraining seed {wildcards.seed} ({ARMS:{wildcards.key}/{wildcards.seed}})"
    shell:
        PRETRAIN.line


use rule pretrain_seed as pretrain_longest_seed with:
    """Pretrain the seed with the most steps, which starts first: the run waits for it last."""
    wildcard_constraints:
        seed="|".join(sorted({str(job.id.seed) for job in PLAN.stage("pretrain") if job.slice.steps == LONGEST})),
    priority: 1


ruleorder: pretrain_longest_seed > pretrain_seed


rule select_start:
    """Select the checkpoint from which RL starts, on dev tasks alone."""
    input:
        completions=source("select", "evaluate/pretraining", "completions.parquet"),
    output:
        selection=result("select", "selection.json"),
        recipe=result("select", "recipe.json"),
    log:
        log_of("select"),
    benchmark:
        benchmark_of("select")
    threads: 1
    resources:
        mem_mb=memory_of("select"),
        runtime=runtime_of("select"),
    params:
        code=SELECT_START.code,
        job=recipe("select"),
    message:
        "Selecting where RL starts, seed {wildcards.seed} ({ARMS:{wildcards.key}/{wildcards.seed}})"
    shell:
        SELECT_START.line
