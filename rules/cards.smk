"""What leaves the run: model card and data card, and a picture and a summary of every study for those who post it."""

SHARE_FOLDER = f"{REPORTS}/share"
CONFIG_FILES = [os.path.relpath(path) for path in workflow.overwrite_configfiles]
CONFIG_VALUES = [
    f"{name}={value if isinstance(value, str) else json.dumps(value)}"
    for name, value in workflow.config_settings.config.items()
    if not Config.model_fields[name].exclude  # a reader's machine is another
]
CONFIG_FLAGS = {"--configfile": CONFIG_FILES, "--config": CONFIG_VALUES}
COMMAND = " ".join(["snakemake --cores all", *(shlex.join([flag, *given]) for flag, given in CONFIG_FLAGS.items() if given)])

CARDS = Command(
    "write_cards",
    "--job {params.config:q} --tables {params.tables:q} --claims {input.claims:q} --manifest {input.manifest:q} "
    "--model {output.model:q} --data {output.data:q}",
)
SHARE = Command("share_studies", "--job {params.job:q} --tables {params.tables:q} --claims {input.claims:q} --out {params.folder:q}")


rule write_cards:
    """Write the model card and the data card from the tables, the hashes of the checkpoints and the counts of the corpora."""
    input:
        every("corpus", "data_card.json", "recipe.json"),
        every("pretrain", "weights.json"),
        every("rl", "weights.json"),
        every("select", "selection.json"),
        tables=[f"{REPORTS}/{name}" for name in [*DRAWN, *CHECKS, "provenance.json"]],
        claims=f"{REPORTS}/claims.csv",
        manifest=f"{RESULTS}/manifest.json",
    output:
        model=reported(f"{REPORTS}/model_card.md", "Cards"),
        data=reported(f"{REPORTS}/data_card.md", "Cards"),
    log:
        f"{RESULTS}/logs/cards.log",
    benchmark:
        f"{RESULTS}/benchmarks/cards.tsv"
    threads: 1
    resources:
        mem_mb=memory_of_all,
        runtime=runtime_of_all,
    params:
        code=CARDS.code,
        config=canonical_json(CONFIG),
        tables=folder_of_input("tables"),
    message:
        "Writing the model card and the data card"
    shell:
        CARDS.line


rule share_studies:
    """Draw the picture and write the summary of every study for those who post it."""
    input:
        tables=[f"{REPORTS}/{name}" for name in DRAWN],
        claims=f"{REPORTS}/claims.csv",
    output:
        pictures=[reported(f"{SHARE_FOLDER}/{name}.png", "Share", "picture", study=name, what="picture") for name in CONFIG.studies],
        summaries=[reported(f"{SHARE_FOLDER}/{name}.md", "Share", "summary", study=name, what="summary") for name in CONFIG.studies],
    log:
        f"{RESULTS}/logs/share.log",
    benchmark:
        f"{RESULTS}/benchmarks/share.tsv"
    threads: 1
    resources:
        mem_mb=memory_of_all,
        runtime=runtime_of_all,
    params:
        code=SHARE.code,
        job=canonical_json(ShareJob(config=CONFIG, command=COMMAND)),
        tables=folder_of_input("tables"),
        folder=folder_of,
    message:
        "Drawing a picture and writing a summary of every study"
    shell:
        SHARE.line
