"""The tables of the recall studies, against made-up predictions averaged plainly."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from glint.analysis.recall import COLUMNS, QUESTION, analyse
from glint.analysis.training import constant_rows, timing_rows
from glint.config.load import load
from glint.files import write_parquet, write_text
from glint.manifest import Entry, Manifest
from glint.statistics.intervals import OVER_SEEDS, TEXTS_TOO
from glint.tasks.recall import held_out
from tests.report import synthetic
from tests.report.rows import table, the
from tests.studies import NAMES, RECALL

SEEDS = (42, 43, 44, 45)
STUDY = RECALL | {"seeds": list(SEEDS), "analysis": RECALL["analysis"] | {"resamples": 2000}}
PARAMETERS = {"hybrid": 25730592, "single": 25730496}
SHARES = {"hybrid": {8: 0.9, 16: 0.7}, "single": {8: 0.8, 16: 0.2}}
"""How often each arm recalls a name at the last step, by its distance."""


def config(**studies):
    main = {"question": "Does it help?", "arms": {"published": {}}, "seeds": [42]}
    return load({"run": "synthetic", "recipes": {"main": {}, "names": {"recall": NAMES}}, "studies": {"main": main} | studies})


def predictions(arm, seed):
    """Return what one run would have written: rows of questions as they are asked, answers by chance."""
    rng = np.random.default_rng([seed, list(SHARES).index(arm)])
    recipe = config().recipes["names"].recall
    rows = [
        {"step": step, "text": text, "position": question.answer, "distance": question.distance, "candidates": question.candidates}
        | {"right": bool(rng.random() < SHARES[arm][question.distance] * step / 6), "log_prob": -rng.exponential()}
        for step in recipe.checkpoints
        for text, own in enumerate(held_out(recipe))
        for question in own.questions
    ]
    return pd.DataFrame(rows).assign(seed=seed)


def write(root, missing=()):
    """Write the results of every seed and arm into `root`; those in `missing` stand in the manifest without a path."""
    entries = []
    for arm, parameters in PARAMETERS.items():
        for seed in SEEDS:
            folder = root / arm / f"seed-{seed}"
            write_parquet(folder / "predictions.parquet", predictions(arm, seed))
            counts = {"total": parameters, "active": 9805344}
            write_text(folder / "receipt.json", synthetic._receipt(seconds=60.0 + seed, parameters=counts, updates=6, bytes=768))
            for role, name in {"recall_predictions": "predictions.parquet", "recall_receipt": "receipt.json"}.items():
                path = None if (arm, seed) in missing else str(folder / name)
                entries.append(Entry.model_validate({"study": "names", "arm": arm, "seed": seed, "role": role, "path": path}))
    return Manifest(entries)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with the results, and their tables in `report`, of a study in which one seed of one arm is missing."""
    root = tmp_path_factory.mktemp("names")
    analyse(config(names=STUDY), write(root / "results", missing=[("single", 45)]), root / "report")
    return root


def shares(run, arm, step, distance, seeds=SEEDS[:3]):
    """Return the seeds' shares of names recalled, straight from the files."""
    found = []
    for seed in seeds:
        rows = pd.read_parquet(run / f"results/{arm}/seed-{seed}/predictions.parquet")
        rows = rows[(rows["step"] == step) & (distance == "all" or rows["distance"] == distance)]
        found.append(rows["right"].sum() / len(rows))
    return np.array(found)


@pytest.mark.parametrize(("step", "distance"), [(4, 16), (6, 8), (6, "all")])
def test_a_comparison_is_the_paired_difference_with_scipys_interval_and_test(run, step, distance):
    row = the(table(run, "recall_contrasts", step=step, distance=str(distance), method=OVER_SEEDS))
    ours, theirs = (shares(run, arm, step, distance) for arm in PARAMETERS)
    interval = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    p = stats.permutation_test((ours - theirs,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    values = (ours.mean(), theirs.mean(), (ours - theirs).mean(), interval.low, interval.high, p)
    assert row[["arm_mean", "against_mean", "estimate", "low", "high", "p"]].tolist() == pytest.approx(values, rel=1e-4)
    assert (row["n_seeds"], row["n_texts"], row["p_floor"], row["seeds_won"]) == (3, 12, 2 / 2**3, (ours > theirs).sum())
    assert row[["study", "contrast", "arm", "against"]].tolist() == ["names", "streams", "hybrid", "single"]
    assert (row["arm_parameters"], row["against_parameters"]) == tuple(PARAMETERS.values())


def test_every_step_of_the_plan_is_compared_over_all_distances_and_at_each(run):
    rows = table(run, "recall_contrasts", method=OVER_SEEDS)
    assert rows[["step", "distance"]].values.tolist() == [[step, distance] for step in (4, 6) for distance in ("all", "8", "16")]


def test_drawing_texts_too_keeps_the_estimate_and_moves_the_ends(run):
    narrow, wide = (the(table(run, "recall_contrasts", step=6, distance="all", method=method)) for method in (OVER_SEEDS, TEXTS_TOO))
    assert narrow["estimate"] == wide["estimate"]
    assert wide["low"] < wide["estimate"] < wide["high"]
    assert wide["low"] != narrow["low"]


def test_a_seed_has_a_row_a_checkpoint_and_distance(run):
    rows = table(run, "recall", arm="single", seed=43)
    assert rows[["step", "distance"]].values.tolist() == [[step, distance] for step in (0, 4, 6) for distance in (8, 16)]
    row = the(rows[(rows["step"] == 6) & (rows["distance"] == 16)])
    found = predictions("single", 43).query("step == 6 and distance == 16")
    assert (row["right"], row["of"]) == (found["right"].sum(), len(found)) == (found["right"].sum(), 12 * 2)
    guessed = np.mean([1 / candidates for candidates in found["candidates"]])
    assert row[["chance", "log_prob"]].tolist() == pytest.approx([guessed, found["log_prob"].mean()], rel=1e-5)
    assert rows.loc[rows["step"] == 0, "right"].tolist() == [0, 0]


def test_a_missing_seed_is_a_row_and_leaves_whole_numbers_whole(run):
    assert table(run, "recall", status="missing")[["arm", "seed"]].values.tolist() == [["single", 45]]
    text = pd.read_csv(run / "report/recall.csv", dtype=str)
    assert set(text["distance"].dropna()) == {"8", "16"}
    assert set(text["step"].dropna()) == {"0", "4", "6"}
    assert table(run, "recall", arm="hybrid")["seed"].unique().tolist() == list(SEEDS)


def test_seeds_that_were_asked_other_questions_are_not_compared(tmp_path):
    manifest = write(tmp_path / "results")
    path = tmp_path / "results/single/seed-44/predictions.parquet"
    found = pd.read_parquet(path)
    for column in QUESTION:
        write_parquet(path, found.assign(**{column: found[column].where(found.index != 5, found[column] + 1)}))
        with pytest.raises(ValueError, match="study names, arm single: its seeds were asked other questions, so they cannot be compared"):
            analyse(config(names=STUDY), manifest, tmp_path / "report")
    write_parquet(path, found.drop(index=5))
    with pytest.raises(ValueError, match="arm single: its seeds were asked other questions"):
        analyse(config(names=STUDY), manifest, tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_an_arm_without_seeds_or_without_a_pair_is_an_error(tmp_path):
    every = write(tmp_path / "none", missing=[("hybrid", seed) for seed in SEEDS])
    with pytest.raises(ValueError, match="study names, arm hybrid: no seed has results"):
        analyse(config(names=STUDY), every, tmp_path / "report")
    split = write(tmp_path / "split", missing=[("hybrid", 42), ("hybrid", 43), ("single", 44), ("single", 45)])
    with pytest.raises(ValueError, match="study names: arms hybrid and single have no complete seed in common"):
        analyse(config(names=STUDY), split, tmp_path / "report")
    assert not (tmp_path / "report").exists()


def test_without_a_recall_study_the_tables_are_headers(tmp_path):
    analyse(config(), Manifest([]), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"recall.csv", "recall_contrasts.csv"}
    for name, columns in COLUMNS.items():
        assert (tmp_path / f"{name}.csv").read_text() == ",".join(columns) + "\n"


def test_sizes_and_seconds_stand_with_those_of_the_other_studies(run, tmp_path):
    manifest = write(tmp_path, missing=[("single", 45)])
    sizes = {row["arm"]: row["value"] for row in constant_rows(manifest) if row["name"] == "parameters_total"}
    assert sizes == PARAMETERS
    timings = [(row["stage"], row["arm"], row["seed"], row["seconds"]) for row in timing_rows(manifest)]
    assert sorted(timings) == [("recall", arm, seed, 60.0 + seed) for arm in PARAMETERS for seed in SEEDS if (arm, seed) != ("single", 45)]
