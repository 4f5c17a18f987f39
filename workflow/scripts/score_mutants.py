"""Try the property suite on programs that are known to be wrong."""

import pandas as pd

from glint.config.mutation import MutationJob
from glint.files import write_text
from glint.verify import Verifier, VerifierError
from glint.verify.mutation import mutation_scores
from pipeline.job import arguments, job


def main() -> None:
    """Write what became of the mutants of each family to `out` (CSV)."""
    given = arguments(__doc__, "out")
    with job(given, None, VerifierError):
        asked = MutationJob.model_validate_json(given.job)
        with Verifier() as verifier:
            scores = mutation_scores(verifier, asked.reward_cases, asked.property_inputs)
        table = pd.DataFrame([score._asdict() | {"survivors": "; ".join(score.survivors)} for score in scores])
        write_text(given.out, table.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    main()
