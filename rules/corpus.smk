"""Examples and token ids of each training seed."""

DRAW_CORPUS = Command(
    "draw_corpus",
    "--job {params.job:q} --out {output.examples:q} --recipe {output.recipe:q}",
    "corpus",
    shared=True,
)
TOKENISE_CORPUS = Command(
    "tokenise_corpus",
    "--examples {input.examples:q} --tokens {output.tokens:q} --card {output.card:q}",
    "corpus",
    shared=True,
)


rule draw_corpus:
    """Draw the examples of one training seed, all splits."""
    output:
        examples=result("corpus", "examples.parquet"),
        recipe=result("corpus", "recipe.json"),
    log:
        log_of("draw_corpus"),
    benchmark:
        benchmark_of("draw_corpus")
    # All corpora come first, so that the longest training can start first.
    priority: 2
    threads: 1
    resources:
        mem_mb=memory_of("corpus"),
        runtime=runtime_of("corpus"),
    params:
        code=DRAW_CORPUS.code,
        job=recipe("corpus"),
    message:
        "Drawing the corpus of seed {wildcards.seed}"
    shell:
        DRAW_CORPUS.line


rule tokenise_corpus:
    """Turn pretraining examples into token ids, and describe the corpus."""
    input:
        examples=result("corpus", "examples.parquet"),
    output:
        tokens=result("corpus", "tokens.safetensors"),
        card=result("corpus", "data_card.json"),
    log:
        log_of("tokenise_corpus"),
    benchmark:
        benchmark_of("tokenise_corpus")
    priority: 2
    threads: 1
    resources:
        mem_mb=memory_of("corpus"),
        runtime=runtime_of("corpus"),
    params:
        code=TOKENISE_CORPUS.code,
    message:
        "Tokenising the corpus of seed {wildcards.seed}"
    shell:
        TOKENISE_CORPUS.line
