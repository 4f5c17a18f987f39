"""One run of a vision study: train a language model to name the digit in an image, from random weights or from a selected checkpoint."""

from glint.config.vision import VisionJob
from glint.files import read_json
from glint.train.vision import train
from pipeline.job import arguments, job


def main() -> None:
    """Read the recipe and, where it starts from it, the selected checkpoint; train, write every result to the folder `out`."""
    given = arguments(__doc__, "out recipe", optional="pretrained selection")
    with job(given, given.recipe):
        start = given.pretrained / read_json(given.selection)["checkpoint"] if given.selection else None
        train(VisionJob.model_validate_json(given.job), start, given.out)


if __name__ == "__main__":
    main()
