"""Measure what one model costs as its context grows."""

import os
from functools import partial

from glint.config.costs import CostsJob
from glint.costs import measure
from glint.files import write_json
from pipeline.job import arguments, follow, job


def main() -> None:
    """Write `out` (JSON) and `receipt` (JSON); the processes that measure a context end with this one."""
    given = arguments(__doc__, "out receipt recipe")
    with job(given, given.recipe):
        write_json(given.receipt, measure(CostsJob.model_validate_json(given.job), given.out, partial(follow, os.getpid())))


if __name__ == "__main__":
    main()
