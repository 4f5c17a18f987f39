"""What is posted of a study: the picture fits whatever the question and the names, the summary is short, both say what the tables say."""

import io
import itertools
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread

from glint.config.load import load
from glint.report import share_image
from glint.report.findings import Comparison, find
from glint.report.lettering import Canvas
from glint.report.results import Results
from glint.report.summary import MOST_WORDS, summarise
from glint.report.wording import interval, nats, points

ROOT = Path(__file__).parents[2]
REFERENCES = {"published": ROOT / "reports/reference/published", "architecture": ROOT / "reports/reference/architecture"}
COMMAND = "snakemake --cores all --configfile config/quick.yaml config/mine.yaml"


@pytest.fixture(scope="module")
def found():
    """What every study of the two reference runs found, by run and study."""
    findings: dict[tuple[str, str], Any] = {}
    for run, folder in REFERENCES.items():
        config, results = load(ROOT / f"config/{run}.yaml"), Results(folder, folder / "claims.csv")
        findings |= {(run, study): (config, find(config, results, study)) for study in config.studies}
    return findings


def the(found, run, study):
    return found[run, study][1]


def table(run, name, **values):
    frame = pd.read_csv(REFERENCES[run] / f"{name}.csv")
    for column, value in values.items():
        frame = frame[frame[column] == value]
    return frame


def test_every_kind_of_study_has_a_finding(found):
    assert {finding.plan.kind for _, finding in found.values()} == {"rl", "pretraining", "vision", "architecture", "recall"}
    assert all(finding.comparisons for _, finding in found.values())


def test_a_study_with_a_control_shows_gains_and_rests_on_the_base_arm(found):
    finding = the(found, "published", "main")
    rows = table("published", "estimates", study="main", scope="targets", stop="parses", metric="greedy_pass1", phase="gain")
    rows = rows[rows["method"].str.endswith("tasks within families")].set_index("arm")
    for one in finding.comparisons:
        assert (one.estimate, one.low, one.high) == tuple(rows.loc[one.label, ["estimate", "low", "high"]])
    assert [one.label for one in finding.comparisons] == ["published", "shuffled"]
    assert finding.primary is finding.comparisons[0]
    assert finding.outcome == "published gains"
    assert finding.seeds == "5 training seeds"


def test_arms_without_a_control_are_set_against_the_base(found):
    finding = the(found, "published", "screen")
    rows = table("published", "estimates", study="screen", scope="targets", stop="parses", metric="greedy_pass1", phase="gain_over_base")
    rows = rows[rows["method"].str.endswith("tasks within families")].set_index("arm")
    assert {one.label: one.estimate for one in finding.comparisons} == rows["estimate"].to_dict()
    assert {one.verdict for one in finding.decided} == {
        f"{arm} gains {'more' if row['low'] > 0 else 'less'}" for arm, row in rows.iterrows() if row["low"] > 0 or row["high"] < 0
    }
    assert finding.limit.endswith("All seeds share one pretraining.")


def test_verdicts_of_an_architecture_study_are_those_of_its_table(found):
    finding = the(found, "architecture", "structure")
    rows = table("architecture", "architecture_contrasts", source="all", outcome="loss")
    assert [one.estimate for one in finding.comparisons] == rows["estimate"].tolist()
    expected = [verdict for verdict in rows["verdict"] if verdict != "undecided"]
    assert [one.verdict.split()[1] for one in finding.decided] == expected
    assert finding.outcome == f"{len(expected)} of {len(rows)} comparisons decided, uncorrected for their number"
    assert finding.difference(finding.comparisons[0]) == f"{nats(rows['estimate'].iloc[0], signed=True)} nats"


def test_a_pair_that_is_compared_twice_says_at_which_steps(found):
    labels = [one.label for one in the(found, "architecture", "structure").comparisons]
    assert {"hybrid vs dense (200 steps)", "hybrid vs dense (200 vs 76 steps)", "kda vs hybrid"} < set(labels)
    assert len(labels) == len(set(labels))


def test_recall_is_decided_where_both_intervals_agree(found):
    finding = the(found, "architecture", "recall")
    rows = table("architecture", "recall_contrasts", distance="all")
    for one, (_, both) in zip(finding.comparisons, rows.groupby("contrast", sort=False), strict=True):
        assert (one.side == "undecided") == (not ((both["low"] > 0).all() or (both["high"] < 0).all()))
        assert one.low == both.loc[both["method"].str.startswith("Student"), "low"].item()


def test_the_better_arm_is_the_subject_of_a_verdict(found):
    finding = the(found, "published", "vision")
    assert all(one.estimate < 0 for one in finding.comparisons)
    assert finding.decided
    assert all(re.fullmatch(r"direct_patch beats faithful \(\d+ steps\)", one.verdict) for one in finding.decided)


def test_one_seed_decides_nothing(found):
    finding = the(found, "published", "vision_large")
    one = replace(finding.comparisons[0], low=float("nan"), high=float("nan"), side="undecided", seeds=1, verdict="")
    alone = replace(finding, comparisons=(one,), primary=one)
    assert alone.outcome == "undecided"
    assert alone.ends(one) == "no interval"
    assert alone.seeds == "1 training seed"
    said = "1 training seed, no interval: one seed decides nothing"
    assert said in [text.get_text() for text in composed(alone).texts]
    text = summarise(found["published", "vision_large"][0], alone, COMMAND)
    assert said in text
    assert " points, no interval" in text
    assert "intervals" not in text.replace(alone.limit, "")


def test_a_summary_holds_question_result_interval_seeds_verdict_limit_and_command(found):
    config, finding = found["published", "main"]
    text = summarise(config, finding, COMMAND)
    gain = finding.comparisons[0]
    parts = (points(gain.estimate), interval(gain.low, gain.high, signed=True), "5 training seeds", "published gains", COMMAND)
    for part in (finding.plan.question, "shuffled (rl.shuffle_rewards: true)", finding.limit, *parts):
        assert part in text


def long(finding, words, name):
    """Return `finding` with a question of so many words, and more comparisons of arms with long names."""
    question = " ".join(["Which", *["incomprehensibilities"] * (words - 2), "pays?"])
    many = tuple(
        replace(one, label=f"{name * 64} vs {name * 63}{place}", verdict=one.verdict and f"{name * 64} beats {name * 64}")
        for place, one in enumerate(finding.comparisons * 4)
    )
    return replace(finding, plan=finding.plan.model_copy(update={"question": question}), comparisons=many, primary=None)


@pytest.mark.parametrize("words", [3, 400])
def test_a_summary_is_short_whatever_the_study(found, words):
    for config, finding in found.values():
        assert len(summarise(config, finding, COMMAND).split()) <= MOST_WORDS
        assert len(summarise(config, long(finding, words, "w"), COMMAND).split()) <= MOST_WORDS


def composed(finding):
    """Return the figure of the picture, drawn."""
    with mpl.rc_context(share_image.STYLE):
        canvas = Canvas(share_image.WIDTH, share_image.HEIGHT)
        share_image.compose(canvas, finding, "run")
        canvas.figure.canvas.draw()
    return canvas.figure


def boxes(finding):
    """Return all texts of the picture with their extents, in pixels from the lower left corner, and their sizes in points."""
    figure = composed(finding)
    (axes,) = figure.axes
    low, high = axes.get_xlim()
    ticks = [text for text in axes.get_xticklabels() if text.get_text() and low <= text.get_position()[0] <= high]
    return [(text.get_text(), text.get_window_extent(), text.get_fontsize()) for text in (*figure.texts, *ticks)]


@pytest.mark.parametrize(
    ("run", "study", "words", "name"),
    [
        ("published", "main", None, ""),
        ("architecture", "structure", None, ""),
        ("published", "vision_large", 40, "w"),
        ("architecture", "structure", 400, "W"),
    ],
)
def test_no_text_is_clipped_or_lies_over_another_or_is_too_small(found, run, study, words, name):
    finding = the(found, run, study)
    written = boxes(finding if words is None else long(finding, words, name))
    assert len(written) > 6
    for text, box, size in written:
        assert box.x0 >= 0, text
        assert box.x1 <= share_image.WIDTH, text
        assert box.y0 >= 0, text
        assert box.y1 <= share_image.HEIGHT, text
        assert size * 100 / 72 >= share_image.SMALLEST - 0.01, text
    for (one, first, _), (other, second, _) in itertools.combinations(written, 2):
        height = min(first.y1, second.y1) - max(first.y0, second.y0)
        width = min(first.x1, second.x1) - max(first.x0, second.x0)
        assert not (height > 3 and width > 1), f"{one!r} and {other!r}"  # the boxes of lines hold some air


def test_rows_that_find_no_room_are_counted(found):
    finding = long(the(found, "architecture", "structure"), 3, "a")
    figure = composed(finding)
    (more,) = [text.get_text() for text in figure.texts if text.get_text().startswith("and ")]
    drawn = sum(line.get_marker() in ("o", "s") for line in figure.axes[0].lines)
    assert 10 < drawn < len(finding.comparisons)
    assert more == f"and {len(finding.comparisons) - drawn} more"


def test_the_picture_has_the_size_of_a_preview_and_the_same_bytes_each_time(found):
    picture = share_image.draw(the(found, "published", "main"), "published")
    pixels = imread(io.BytesIO(picture), format="png")
    assert pixels.shape[:2] == (630, 1200)
    assert np.ptp(pixels[..., :3]) > 0.8
    assert picture == share_image.draw(the(found, "published", "main"), "published")
    assert b"Software" not in picture
    assert b"Creation" not in picture


def test_blue_speaks_for_the_arm_that_is_named_first_in_either_unit(found):
    decided = Comparison("a vs b", -0.1, -0.2, -0.05, "below", 3, "", "a pays")
    loss, share = (the(found, *key) for key in (("architecture", "structure"), ("published", "vision")))
    assert share_image._colour(loss, decided) == share_image.BETTER
    assert share_image._colour(share, decided) == share_image.WORSE


def test_a_failed_control_is_part_of_the_verdict(found, tmp_path):
    folder = REFERENCES["published"]
    table = pd.read_csv(folder / "estimates.csv")
    gain = (table["study"] == "main") & (table["arm"] == "shuffled") & (table["phase"] == "gain")
    table.loc[gain, ["estimate", "low", "high"]] = [0.15, 0.02, 0.3]
    table.to_csv(tmp_path / "estimates.csv", index=False)
    for name in ("selection.csv", "rl.csv"):
        shutil.copy(folder / name, tmp_path)
    config = found["published", "main"][0]
    finding = find(config, Results(tmp_path, folder / "claims.csv"), "main")
    assert "Verdict: published gains, in doubt: the control failed." in summarise(config, finding, COMMAND)
    assert "in doubt" not in summarise(config, the(found, "published", "main"), COMMAND)


@pytest.mark.parametrize("space", ["\n", "\u00a0", "\t", "  "])
def test_a_summary_is_short_whatever_parts_the_words(found, space):
    config, finding = found["published", "main"]
    asked = replace(finding, plan=finding.plan.model_copy(update={"question": space.join(["why"] * 200)}))
    text = summarise(config, asked, COMMAND)
    assert len(text.split()) <= MOST_WORDS
    assert text.splitlines()[0].endswith("**")


def test_a_command_longer_than_a_summary_is_given_whole(found):
    config, finding = found["published", "main"]
    command = " ".join(["snakemake", *["file.yaml"] * 200])
    assert command in summarise(config, finding, command)
