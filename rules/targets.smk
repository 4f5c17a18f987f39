"""The targets that people name."""

TRAINED = ["pretrain", "rl", "expressions", "vision", "recall"]
# What says what is to do, for the rules that plan: this Snakefile with this config.
ASK = shlex.join([sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")])
ASK += "".join(f" {shlex.join([flag, *given])}" for flag, given in CONFIG_FLAGS.items() if given)
PLANNING = Command(
    "plan_run",
    "--job {params.config:q} --cores {params.cores} --snakemake {params.ask:q} --priorities {params.priorities:q}",
)
PRIORITIES = json.dumps({rule.name: rule.priority for rule in workflow.rules if rule.priority}, sort_keys=True)
PLANNING_REFERENCE = Command("plan_run", f"{PLANNING.flags} --reference")
TENSORBOARD = Command("write_tensorboard", "--job {params.config:q} --out {params.folder:q}")


rule data:
    """Examples, token ids and data cards of every seed."""
    input:
        every("corpus", "examples.parquet", "tokens.safetensors", "data_card.json"),
    message:
        "The data are ready: run {RUN}"


rule pretrain:
    """Pretrained checkpoints of every seed, and the choice where RL starts."""
    input:
        every("pretrain", "weights.json"),
        every("select", "selection.json"),
    message:
        "Pretraining is done: run {RUN}"


rule rl:
    """RL checkpoints and rollouts of every seed and arm."""
    input:
        every("rl", "weights.json", "rollouts.parquet"),
    message:
        "RL is done: run {RUN}"


rule evaluate:
    """Judged completions of every checkpoint that is reported."""
    input:
        every("evaluate/pretraining", "completions.parquet"),
        every("evaluate/before", "completions.parquet", "canary.parquet"),
        every("evaluate/curve", "completions.parquet"),
        every("evaluate/after", "completions.parquet", "canary.parquet"),
    message:
        "The evaluations are done: run {RUN}"


rule expressions:
    """Scores of every pretraining study, and its tables."""
    input:
        every("expressions", "scores.parquet", "completions.parquet"),
        rules.analyse_expressions.output,
    message:
        "The pretraining studies are done: run {RUN}"


rule vision:
    """Predictions of every vision study, and its tables."""
    input:
        every("vision", "predictions.parquet"),
        rules.analyse_vision.output,
    message:
        "The vision studies are done: run {RUN}"


rule recall:
    """Predictions of every recall study, and its tables."""
    input:
        every("recall", "predictions.parquet"),
        rules.analyse_recall.output,
    message:
        "The recall studies are done: run {RUN}"


rule architecture:
    """Held-out losses and costs of every architecture study, and its tables."""
    input:
        every("loss", "loss.parquet"),
        every("costs", "costs.json"),
        rules.analyse_architecture.output,
    message:
        "The architecture studies are done: run {RUN}"


rule statistics:
    """Tables of estimates with intervals, the claims table, and the checks on rewards."""
    input:
        rules.analyse_studies.output,
        rules.analyse_expressions.output,
        rules.analyse_vision.output,
        rules.analyse_recall.output,
        rules.analyse_architecture.output,
        rules.audit_rewards.output,
        rules.score_mutants.output,
        rules.compare_claims.output,
    message:
        "The tables are ready: run {RUN}"


rule figures:
    """Every figure (SVG)."""
    input:
        rules.draw_figures.output,
    message:
        "The figures are ready: run {RUN}"


rule report:
    """The report, one page, and the rollout explorer beside it."""
    input:
        rules.render_report.output,
        rules.render_explorer.output,
    message:
        "The report is ready: run {RUN}"


rule explorer:
    """The rollout explorer: every completion before and after RL, in one page beside the report."""
    input:
        rules.render_explorer.output,
    message:
        "The rollout explorer is ready: run {RUN}"


rule cards:
    """Model card, data card, and a picture and a summary of every study."""
    input:
        rules.write_cards.output,
        rules.share_studies.output,
    message:
        "The cards are ready: run {RUN}"


rule tensorboard:
    """Write the training metrics of every job as TensorBoard logs into results/<run>/tensorboard/ (not part of the default target)."""
    input:
        [path for stage in TRAINED for path in every(stage, "metrics.jsonl")],
    log:
        f"{RESULTS}/logs/tensorboard.log",
    resources:
        mem_mb=memory_of_all,
        runtime=runtime_of_all,
    params:
        config=canonical_json(CONFIG),
        folder=f"{RESULTS}/tensorboard",
    message:
        "Writing TensorBoard logs to {params.folder}"
    shell:
        TENSORBOARD.line


rule plan:
    """Say what the run will take on these cores: jobs, CPU hours, memory, time; rates are measured first, in a minute, or at most a day old."""
    log:
        f"{RESULTS}/logs/plan.log",
    localrule: True
    params:
        config=canonical_json(CONFIG),
        cores=all_cores,
        ask=ASK,
        priorities=PRIORITIES,
    message:
        "Planning run {RUN}"
    shell:
        PLANNING.shown


rule plan_reference:
    """Say the same with the rates of the reference machine, which needs no measurement."""
    log:
        f"{RESULTS}/logs/plan_reference.log",
    localrule: True
    params:
        config=canonical_json(CONFIG),
        cores=all_cores,
        ask=ASK,
        priorities=PRIORITIES,
    message:
        "Planning run {RUN} as on the reference machine"
    shell:
        PLANNING_REFERENCE.shown


rule slides:
    """The slides: the study as a lesson, one file."""
    input:
        rules.render_slides.output,
    message:
        "The slides are ready: run {RUN}"


rule dag:
    """Draw the rules and their order into docs/pipeline.mmd (Mermaid), the picture in the README."""
    log:
        f"{RESULTS}/logs/dag.log",
    localrule: True
    params:
        snakefile=str(ROOT / "Snakefile"),
        picture=str(ROOT / "docs/pipeline.mmd"),
        python=sys.executable,
    shell:
        "PYTHONHASHSEED=0 {params.python:q} -m snakemake --snakefile {params.snakefile:q} --rulegraph mermaid-js report > {params.picture:q} 2> {log}"


rule clean_intermediates:
    """Remove the checkpoints, which no report needs; what needs them again makes them again."""
    log:
        f"{RESULTS}/logs/clean_intermediates.log",
    localrule: True
    params:
        folders=every("pretrain", "checkpoints") + every("rl", "checkpoints"),
    shell:
        "rm -rfv {params.folders:q} > {log} 2>&1"
