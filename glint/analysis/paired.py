"""Two arms compared seed by seed, on the same items: the difference, its interval over seeds, and the one that draws items as well.

Shape suffixes: S seeds, T items (structures, images).
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glint.config.study import Study
from glint.randomness import rng
from glint.statistics.intervals import OVER_SEEDS, CrossedBootstrap, student
from glint.statistics.significance import sign_flip

Row = dict[str, Any]


def compared(ours_ST: NDArray[np.float64], theirs_ST: NDArray[np.float64], study: Study, label: str, crossed: str) -> Iterator[Row]:
    """Yield the difference with its interval over seeds, then with the crossed bootstrap, whose method is called `crossed`.

    `label` names the draws, so that no comparison depends on another.
    """
    differences_ST = ours_ST - theirs_ST
    row = difference(differences_ST.mean(axis=1), study, label)
    row |= {"arm_mean": ours_ST.mean(), "against_mean": theirs_ST.mean()}
    yield row
    plan = study.analysis
    one_family = np.zeros(ours_ST.shape[1], dtype=str)
    draws = CrossedBootstrap(len(differences_ST), one_family, rng(study.seeds[0], "bootstrap", label), resamples=plan.resamples)
    yield row | asdict(draws.interval(differences_ST, confidence=plan.confidence)) | {"method": crossed}


def difference(differences_S: NDArray[np.float64], study: Study, label: str) -> Row:
    """Return the mean of paired differences with its interval over seeds, its sign-flip p and the seeds above 0."""
    test = sign_flip(differences_S, rng(study.seeds[0], "sign_flip", label))
    row: Row = {"n_seeds": len(differences_S), "p": test.p, "p_floor": test.floor, "seeds_won": int((differences_S > 0).sum())}
    return row | asdict(student(differences_S, study.analysis.confidence)) | {"method": OVER_SEEDS}
