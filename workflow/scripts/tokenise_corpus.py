"""Turn the pretraining examples of one seed into token ids, and describe the corpus in a data card."""

from safetensors.numpy import save_file

from glint.files import read_parquet, replacing, write_json
from glint.tasks.corpus import data_card, tokenise
from pipeline.job import arguments, job


def main() -> None:
    """Read `examples` (Parquet), write `tokens` (safetensors) and `card` (JSON)."""
    given = arguments(__doc__, "examples tokens card")
    with job(given):
        examples = read_parquet(given.examples)
        tokens = tokenise(examples)
        with replacing(given.tokens) as path:
            save_file(tokens, path)
        write_json(given.card, data_card(examples, tokens))


if __name__ == "__main__":
    main()
