"""The tables, figures, claims and section of the vision studies, against the synthetic predictions averaged plainly."""

import base64
import json
import re
import shutil
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from glint.analysis.vision import COLUMNS, analyse
from glint.config.vision import VisionRecipe
from glint.manifest import Manifest
from glint.replication import COLUMNS as CLAIM_COLUMNS
from glint.report.results import Results
from glint.report.vision import planned, verdict
from glint.report.vision_figures import images
from glint.statistics.intervals import IMAGES_TOO, OVER_SEEDS
from glint.tasks.digits import held_out
from tests.report import synthetic
from tests.report.rows import table, the

SEEDS = synthetic.VISION_SEEDS


def predictions(root, arm, step, study="vision"):
    """Return the seeds' predictions at one step, straight from the files."""
    frames = [pd.read_parquet(root / f"results/{study}/{arm}/seed-{seed}/predictions.parquet") for seed in SEEDS]
    return [frame[frame["step"] == step] for frame in frames]


def test_a_comparison_is_the_paired_difference_with_scipys_interval_and_test(analysed):
    row = the(table(analysed, "vision_contrasts", study="vision", step=120, metric="accuracy", method=OVER_SEEDS))
    ours, theirs = (
        np.array([(frame["predicted"] == frame["answer"]).mean() for frame in predictions(analysed, arm, 120)])
        for arm in ("faithful", "direct_patch")
    )
    interval = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    p = stats.permutation_test((ours - theirs,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    values = (ours.mean(), theirs.mean(), (ours - theirs).mean(), interval.low, interval.high, p)
    assert row[["arm_mean", "against_mean", "estimate", "low", "high", "p"]].tolist() == pytest.approx(values, rel=1e-4)
    assert (row["n_seeds"], row["n_images"], row["p_floor"], row["seeds_won"]) == (4, 40, 2 / 2**4, (ours > theirs).sum())
    assert (row["images"], row["arm_parameters"], row["against_parameters"]) == (4800, 60924, 42500)


def test_drawing_images_too_keeps_the_estimate_and_moves_the_ends(analysed):
    keys = {"study": "vision", "metric": "accuracy"}
    narrow, wide = (the(table(analysed, "vision_contrasts", **keys, method=method)) for method in (OVER_SEEDS, IMAGES_TOO))
    assert narrow["estimate"] == wide["estimate"]
    assert wide["low"] < wide["estimate"] < wide["high"]
    assert wide["low"] != narrow["low"]


def test_log_probabilities_are_compared_so_that_more_is_better(analysed):
    row = the(table(analysed, "vision_contrasts", study="vision", metric="log_prob", method=OVER_SEEDS))
    means = [np.mean([frame["log_prob"].mean() for frame in predictions(analysed, arm, 120)]) for arm in ("faithful", "direct_patch")]
    assert row[["arm_mean", "against_mean"]].tolist() == pytest.approx(means, rel=1e-5)
    assert row["estimate"] < 0


def test_a_seed_has_a_row_a_checkpoint(analysed):
    rows = table(analysed, "vision", study="vision", arm="faithful", seed=43)
    assert rows["step"].tolist() == [0, 60, 120]
    assert rows["images"].tolist() == [0, 2400, 4800]
    row, frame = rows.iloc[-1], predictions(analysed, "faithful", 120)[SEEDS.index(43)]
    losses = -frame["log_prob"]
    assert (row["right"], row["of"]) == ((frame["predicted"] == frame["answer"]).sum(), 40)
    assert row[["loss", "loss_error"]].tolist() == pytest.approx([losses.mean(), losses.std(ddof=1) / 40**0.5], rel=1e-5)


def test_the_images_shown_follow_the_rule_and_are_those_of_the_recipe(analysed):
    found = json.loads((analysed / "report/vision_images.json").read_text())
    shown = found["shown"]
    assert (found["study"], found["seed"], found["step"]) == ("vision", 42, 120)
    assert [one["digit"] for one in shown] == [digit for digit in range(10) for _ in range(2)]
    images = held_out(VisionRecipe(held_out=40))
    frame = predictions(analysed, "direct_patch", 120)[0].set_index("image").to_dict("index")
    for one in shown:
        assert (images.digits_N[: one["image"]] == one["digit"]).sum() < 2
        pixels = np.frombuffer(base64.b64decode(one["pixels"]), np.uint8).reshape(32, 32, 3)
        assert np.abs(pixels / 255 - images.pixels_NHWC[one["image"]]).max() < 1 / 255
        answer, row = one["answers"]["direct_patch"], frame[one["image"]]
        assert answer["right"] == (row["predicted"] == row["answer"])
        assert answer["says"] == (chr(row["predicted"] - 4) if 4 <= row["predicted"] < 260 else "")
        assert answer["probability"] == pytest.approx(np.exp(row["log_prob"]), abs=1e-4)


def test_a_missing_seed_is_a_row_and_leaves_its_pair(analysed, tmp_path):
    again = synthetic.analysed_again(analyse, analysed, tmp_path, synthetic.drop("vision", "faithful", 42))
    assert table(again, "vision", status="missing")[["arm", "seed"]].values.tolist() == [["faithful", 42]]
    assert set(table(again, "vision_contrasts", study="vision")["n_seeds"]) == {3}
    assert json.loads((again / "report/vision_images.json").read_text())["seed"] == 43


def test_an_arm_without_seeds_or_without_a_pair_is_an_error(analysed, tmp_path):
    with pytest.raises(ValueError, match="study vision, arm faithful: no seed has results"):
        synthetic.analysed_again(analyse, analysed, tmp_path, synthetic.drop("vision", "faithful", *SEEDS))

    def split(entries):
        synthetic.drop("vision", "faithful", 42, 43)(entries)
        synthetic.drop("vision", "direct_patch", 44, 45)(entries)

    with pytest.raises(ValueError, match="arms faithful and direct_patch have no complete seed in common"):
        synthetic.analysed_again(analyse, analysed, tmp_path, split)
    assert not (tmp_path / "report").exists()


def replaced(role, path, seed=44):
    def change(entries):
        for entry in entries:
            if (entry["study"], entry["arm"], entry["seed"], entry["role"]) == ("vision", "faithful", seed, role):
                entry["path"] = str(path)

    return change


@pytest.mark.parametrize("name", ["updates", "images"])
def test_unequal_budgets_are_refused(analysed, tmp_path, name):
    for seed in SEEDS:
        receipt = json.loads((analysed / f"results/vision/faithful/seed-{seed}/receipt.json").read_text())
        (tmp_path / f"{seed}.json").write_text(json.dumps(receipt | {name: receipt[name] * 2}))
    with pytest.raises(ValueError, match="arm faithful: its seeds were trained for unequal numbers of updates or images"):
        synthetic.analysed_again(analyse, analysed, tmp_path, replaced("vision_receipt", tmp_path / "44.json"))

    def all_seeds(entries):
        for seed in SEEDS:
            replaced("vision_receipt", tmp_path / f"{seed}.json", seed)(entries)

    with pytest.raises(ValueError, match=r"arm faithful took .* updates on .* at unequal budgets they cannot be compared"):
        synthetic.analysed_again(analyse, analysed, tmp_path, all_seeds)


def with_arms(entries, *names):
    """Add arms of these names that answer as arm faithful does."""
    entries += [entry | {"arm": name} for name in names for entry in entries if (entry["study"], entry["arm"]) == ("vision", "faithful")]


def config_with_arms(*names):
    plan = json.loads(synthetic.config(resamples=10).model_dump_json())
    plan["studies"]["vision"]["arms"] |= {name: {"vision": {"lr": 0.1 * place}} for place, name in enumerate(names, start=1)}
    return type(synthetic.config()).model_validate_json(json.dumps(plan))


def drawn(analysed, tmp_path, config, change):
    """Return the figure of the images shown, after `change` to the manifest's entries."""
    entries = json.loads((analysed / "results/manifest.json").read_text())
    change(entries)
    (tmp_path / "manifest.json").write_text(json.dumps(entries))
    folder = shutil.copytree(analysed / "report", tmp_path / "report")
    analyse(config, Manifest.load(tmp_path / "manifest.json"), folder)
    (folder / "claims.csv").write_text(",".join(CLAIM_COLUMNS) + "\n")
    return images(Results(folder, folder / "claims.csv"))


def test_without_a_seed_that_all_arms_have_the_images_show_those_that_have_it(analysed, tmp_path):
    def change(entries):
        with_arms(entries, "third")
        synthetic.drop("vision", "faithful", 42)(entries)
        synthetic.drop("vision", "third", 43, 44, 45)(entries)

    picture = drawn(analysed, tmp_path, config_with_arms("third"), change)
    found = json.loads((tmp_path / "report/vision_images.json").read_text())
    assert (found["seed"], set(found["shown"][0]["answers"])) == (43, {"faithful", "direct_patch"})
    assert "arm faithful says" in picture
    assert "arm third" not in picture


def test_every_arm_answers_in_the_figure_of_images(analysed, tmp_path):
    names = ("third", "fourth", "fifth")
    picture = drawn(analysed, tmp_path, config_with_arms(*names), lambda entries: with_arms(entries, *names))
    assert [picture.count(f"arm {name} says") for name in names] == [1, 1, 1]
    assert len(re.findall("[✓✗]</text>", picture)) == 20 * 5


def test_bytes_that_cannot_be_printed_are_shown_escaped(analysed, tmp_path):
    path = tmp_path / "predictions.parquet"
    frame = pd.read_parquet(analysed / "results/vision/faithful/seed-42/predictions.parquet")
    frame.assign(predicted=frame["image"].map(lambda image: 4 + (0, 7, 10, 27, 60, 127, 128, 255)[image % 8])).to_parquet(path)
    picture = drawn(analysed, tmp_path, synthetic.config(resamples=10), replaced("vision_predictions", path, seed=42))
    ElementTree.fromstring(picture)
    said = {one["answers"]["faithful"]["says"] for one in json.loads((tmp_path / "report/vision_images.json").read_text())["shown"]}
    assert said <= {"\\x00", "\\x07", "\\n", "\\x1b", "<", "\\x7f", "\\x80", "\\xff"}
    assert len(said) > 4


def test_seeds_scored_on_other_images_are_refused_though_the_arms_agree(analysed, tmp_path):
    def change(entries):
        for entry in entries:
            if (entry["study"], entry["seed"], entry["role"]) == ("vision", 44, "vision_predictions"):
                frame = pd.read_parquet(entry["path"])
                entry["path"] = str(tmp_path / f"{entry['arm']}.parquet")
                frame.assign(digit=(frame["digit"] + 1) % 10).to_parquet(entry["path"])

    with pytest.raises(ValueError, match="were scored on other images"):
        synthetic.analysed_again(analyse, analysed, tmp_path, change)


def test_scores_of_other_images_are_refused(analysed, tmp_path):
    path = shutil.copy(analysed / "results/vision/faithful/seed-44/predictions.parquet", tmp_path / "predictions.parquet")
    frame = pd.read_parquet(path)
    frame.assign(digit=(frame["digit"] + 1) % 10).to_parquet(path)
    with pytest.raises(ValueError, match="arms faithful and direct_patch were scored on other images"):
        synthetic.analysed_again(analyse, analysed, tmp_path, replaced("vision_predictions", path))


def test_without_a_vision_study_the_tables_hold_nothing(tmp_path):
    config = synthetic.config()
    analyse(config.model_copy(update={"studies": {"main": config.studies["main"]}}), Manifest([]), tmp_path)
    for name, columns in COLUMNS.items():
        assert (tmp_path / f"{name}.csv").read_text() == ",".join(columns) + "\n"
    assert json.loads((tmp_path / "vision_images.json").read_text()) is None


@pytest.mark.parametrize(
    ("low", "high", "said"), [(0.1, 0.2, "a is better"), (-0.2, -0.1, "b is better"), (-0.1, 0.2, "a and b cannot be told apart")]
)
def test_the_verdict_is_the_side_of_zero_on_which_the_interval_lies(low, high, said):
    assert verdict(pd.Series({"low": low, "high": high, "arm": "a", "against": "b"})) == said


def test_claims_compare_counts_losses_and_the_difference(analysed, reported):
    claims = pd.read_csv(reported / "claims.csv").set_index("id")
    assert set(claims.loc[[f"vision.mini.{arm}.parameters" for arm in synthetic.ACCURACIES], "verdict"]) == {"replicated"}
    difference = claims.loc["vision.mini.difference"]
    assert (difference["published"], difference["verdict"]) == (-0.35, "replicated")
    loss = claims.loc["vision.mini.faithful.loss_after"]
    losses = [-frame["log_prob"].to_numpy() for frame in predictions(analysed, "faithful", 120)]
    means, errors = np.mean(losses, axis=1), np.std(losses, axis=1, ddof=1) / 40**0.5
    half = max(stats.t.ppf(0.975, 3) * means.std(ddof=1), 1.959964 * np.mean(errors)) * (1 + 1 / 4) ** 0.5
    assert [loss[name] for name in ("ours", "low", "high")] == pytest.approx(
        [means.mean(), means.mean() - half, means.mean() + half], rel=1e-4
    )
    assert (loss["unit"], loss["n"]) == ("nats", 4)


def test_the_page_shows_every_study_with_its_verdict_and_budget(analysed, reported):
    page = (reported / "report.html").read_text()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    results = Results(analysed / "report", reported / "claims.csv")
    for study in synthetic.VISION_RECIPES:
        assert len(planned(results, study)) == 2
    assert "faithful less direct_patch, step 120" in text
    assert "After 120 updates on 4,800 images, direct_patch is better: faithful" in text
    assert "60,924" in text
    assert "1.162" in text  # a published loss keeps its digits


def test_the_figures_say_what_they_show(analysed, reported):
    shares = [np.mean([(frame["predicted"] == frame["answer"]).mean() for frame in predictions(analysed, "faithful", 120)])]
    assert f"vision, arm faithful: {shares[0]:.1%} at step 120" in (reported / "figures/vision.svg").read_text()
    shown = json.loads((analysed / "report/vision_images.json").read_text())["shown"]
    right = sum(one["answers"]["faithful"]["right"] for one in shown)
    picture = (reported / "figures/images.svg").read_text()
    assert f"arm faithful names {right} of these 20" in picture
    assert picture.count("data:image/png;base64") == 20
