"""The rollout explorer: every row is its Parquet row, nothing breaks out of the page, and what is left out is counted."""

import base64
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from glint.config.load import load
from glint.manifest import Entry, Manifest
from glint.report import frames
from glint.report.explorer import COUNTED, LISTED, PHASES, SCALE, content, render
from glint.report.rl_runs import finished
from tests.report.test_page import Outline

HOSTILE = "</script><img src=x onerror=\"alert('x')\"><!-- <script> \u2028 é\\xff\n"
FAMILIES = ("double", "even")
SEEDS = (1, 2)
SHUFFLED = {"rl": {"shuffle_rewards": True}}
CONFIG = load(
    {
        "run": "trial",
        "studies": {
            "main": {
                "question": "Does it help?",
                "arms": {"plain": {}, "shuffled": {"rl": {"shuffle_rewards": True}}},
                "seeds": list(SEEDS),
            },
            "aside": {"question": "Which?", "arms": {"plain": {"rl": {"lr": 1.0e-4}}}, "seeds": [1], "curve": False},
        },
    }
)
TEXTS = ("    return x * 2\n", "    return x\n", "    return (\n", HOSTILE)
STEPS = ("step-0100", "step-0050", "step-0150")
GROUPS = ("groups-000", "groups-048", "groups-096")


def name_of(family, split, place):
    return f"{family}_{split}{chr(97 + place)}"


def judged(rng, size):
    """Return the columns of judged answers, one of them hostile."""
    which = rng.integers(0, len(TEXTS), size)
    which[0] = len(TEXTS) - 1
    verdict = np.array(["passed", "failed", "invalid", "invalid"])[which]
    return {
        "completion": np.array(TEXTS, dtype=object)[which],
        "tokens": rng.integers(1, 49, size),
        "ended": rng.choice(["parses", "eos", "length"], size),
        "verdict": verdict,
        "reason": [HOSTILE if v == "invalid" else f"case {n}" for n, v in zip(rng.integers(1, 4, size), verdict, strict=True)],
        "cases_passed": rng.integers(0, 4, size),
        "cases_total": 3,
    }


def completions(rng, checkpoints, split, tasks, samples=2, families=FAMILIES):
    """Return judged completions of an evaluation, under both stop rules."""
    keys = [
        (checkpoint, family, name_of(family, split, task), mode, stop, sample)
        for checkpoint in checkpoints
        for family in families
        for task in range(tasks)
        for mode, drawn in (("greedy", 1), ("sampled", samples))
        for stop in ("parses", "eos")
        for sample in range(drawn)
    ]
    table = pd.DataFrame(keys, columns=["checkpoint", "family", "identity", "mode", "stop", "sample"]).assign(split=split, seed=1)
    suite = {"property": rng.choice(["passed", "failed", "invalid"], len(table)), "property_passed": 7, "property_total": 128}
    return table.assign(**judged(rng, len(table)), **suite)


def rollouts(rng, groups):
    keys = [
        (group, FAMILIES[group % 2], name_of(FAMILIES[group % 2], "rl", group), sample) for group in range(groups) for sample in range(4)
    ]
    table = pd.DataFrame(keys, columns=["group", "family", "identity", "sample"])
    rewards = rng.choice([1.0, 0.0, -0.1], len(table))
    return table.assign(**judged(rng, len(table)), reward=rewards, credited_reward=rewards[::-1], advantage=0.0, log_prob=-1.0)


def examples():
    rows = [
        {"family": family, "identity": name_of(family, split, place), "split": split, "prompt": f"# {split} {place} <b>\ndef f(x):\n"}
        for split in ("dev", "confirm", "rl")
        for family in FAMILIES
        for place in range(26)
    ]
    return pd.DataFrame(rows).assign(completion="    return x\n")


def next_bytes(rng):
    rows = [
        (
            family,
            name_of(family, "confirm", 0),
            answer,
            position,
            36 + position,
            0.25,
            policy,
            rank,
            40 + rank,
            (5 - rank) / 16 + position / SCALE,
        )
        for family in FAMILIES
        for answer in ("before", "after")
        for position in range(6)
        for policy in ("before", "after")
        for rank in range(5)
    ]
    columns = ["family", "identity", "answer", "position", "given", "given_probability", "policy", "rank", "token", "probability"]
    return pd.DataFrame(rows, columns=columns).sample(frac=1, random_state=3)


def write(root: Path, tasks=3, samples=2, groups=6) -> Manifest:
    """Write the files of a run below `root`; arms share what precedes RL; return the manifest."""
    entries = []
    for study, plan in CONFIG.studies.items():
        for arm in plan.arms:
            for seed in plan.seeds:
                rng, own, start = np.random.default_rng(seed), root / study / arm / str(seed), root / f"start-{seed}"
                tables = {
                    "before": (start, completions(rng, ["step-0100"], "confirm", tasks, samples)),
                    "examples": (start, examples()),
                    "pretrain_dev": (start, completions(rng, STEPS, "dev", 2)),
                    "after": (own, completions(rng, ["groups-096"], "confirm", tasks, samples)),
                    "rollouts": (own, rollouts(rng, groups)),
                    "trace_next_bytes": (own, next_bytes(rng)),
                    "trace_random": (own, completions(rng, ["step-0000"], "dev", 1, 0)),
                } | ({"rl_dev": (own, completions(rng, GROUPS, "dev", 2, families=FAMILIES[:1]))} if plan.curve else {})
                for role, (folder, table) in tables.items():
                    folder.mkdir(parents=True, exist_ok=True)
                    table.to_parquet(folder / f"{role}.parquet", index=False)
                    path = str(folder / f"{role}.parquet")
                    entries.append(Entry.model_validate({"study": study, "arm": arm, "seed": seed, "role": role, "path": path}))
    return Manifest(entries)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return write(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def page(manifest, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "explorer.html"
    render(CONFIG, manifest, out)
    return out.read_text(encoding="utf-8")


def inside(pattern, page):
    """Return the group of `pattern` in the page."""
    found = re.search(pattern, page, re.DOTALL)
    assert found, pattern
    return found[1]


def element(page, identity):
    """Return the JSON value that an element of the page holds."""
    return json.loads(inside(rf'<script type="application/json" id="{identity}">(.*?)</script>', page))


def rows_of(data):
    """Return the rows of the page with their values written out."""
    columns = {name: data["columns"][name] for name in COUNTED}
    columns |= {name: [data["values"][name][code] for code in data["columns"][name]] for name in LISTED}
    return pd.DataFrame(columns)


def file_rows(manifest, run, phase):
    """Return the rows that the page should show of one file of a run, with the columns of the page that the file has."""
    table = pd.read_parquet(manifest.path(run["study"], run["arm"], run["seed"], phase))
    return table[table["stop"] == "parses"].reset_index(drop=True) if "stop" in table else table


KEYS = ["identity", "group", "mode", "sample"]


def test_every_row_of_the_page_is_its_parquet_row(page, manifest):
    data = element(page, "explorer-data")
    rows = rows_of(data).assign(identity=lambda rows: [task[0] for task in rows["task"]])
    seen = set()
    for run in data["runs"]:
        for phase in PHASES:
            expected = file_rows(manifest, run, phase)
            own = rows[rows["source"] == run[phase]]
            shared = [name for name in (*LISTED, *COUNTED, "identity") if name in expected]
            by = [name for name in KEYS if name in expected]
            left, right = (table[shared].sort_values(by).reset_index(drop=True) for table in (own, expected))
            pd.testing.assert_frame_equal(left, right, check_dtype=False)
            seen.add(run[phase])
    assert len(rows) == data["counts"]["rows"] == data["counts"]["all"]
    assert seen == set(rows["source"]) == set(range(len(data["sources"])))
    assert f"All {len(rows)} rows of 5 RL runs" in page


def test_what_arms_share_stands_once(page):
    runs = element(page, "explorer-data")["runs"]
    assert [(run["study"], run["arm"], run["seed"]) for run in runs[:4]] == [
        ("main", arm, seed) for arm in ("plain", "shuffled") for seed in SEEDS
    ]
    assert (runs[0]["before"], runs[1]["before"]) == (runs[2]["before"], runs[3]["before"])
    assert len({run["after"] for run in runs}) == 5


def test_tasks_have_their_prompt_and_reference(page):
    known = examples().set_index("identity")
    tasks = element(page, "explorer-data")["values"]["task"]
    assert len(tasks) == 2 * 3 + 6
    for identity, prompt, reference in tasks:
        assert (prompt, reference) == (known.loc[identity, "prompt"], known.loc[identity, "completion"])


def test_what_a_file_lacks_is_absent(page):
    data = element(page, "explorer-data")
    rows = rows_of(data)
    rl = rows["source"].map(lambda source: data["sources"][source] == "rollouts")
    assert (set(rows.loc[rl, "property"]), set(rows.loc[rl, "mode"])) == ({""}, {"sampled"})
    assert rows.loc[~rl, "reward"].isna().all()
    assert (rows.loc[~rl, "group"] == -1).all()


def test_model_text_cannot_break_out_of_the_page(page):
    outline = Outline(page)
    assert "img" not in outline.tags
    assert outline.tags.count("script") == 3
    assert "<" not in inside(r'id="explorer-data">(.*?)</script>', page)
    assert HOSTILE in element(page, "explorer-data")["values"]["completion"]
    assert HOSTILE in {frame[1] for one in element(page, "training-frames")["runs"][0]["families"] for frame in one["frames"]}


def test_the_page_runs_its_own_script_alone_and_makes_no_markup_of_texts(page):
    script = inside(r"<script>(.*?)</script>", page)
    allowed = inside(r"script-src 'sha256-([^']+)'", page)
    assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() == allowed
    assert "default-src 'none'" in page
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", script)


def test_the_page_needs_no_network(page):
    outline = Outline(page)
    assert {link for link in outline.links if not link.startswith(("#", "data:"))} == {"report.html"}
    assert not re.search(r"https?://|@import|url\(", page)
    assert {link[1:] for link in outline.links if link.startswith("#")} <= set(outline.ids)
    assert len(outline.ids) == len(set(outline.ids))
    assert "noscript" in outline.tags


def test_twenty_thousand_rows_fit(tmp_path):
    manifest = write(tmp_path / "run", tasks=26, samples=56, groups=26)
    render(CONFIG, manifest, tmp_path / "explorer.html")
    page = (tmp_path / "explorer.html").read_text(encoding="utf-8")
    counts = element(page, "explorer-data")["counts"]
    completions, starts = 2 * 26 * (1 + 56), 2
    assert counts["rows"] == counts["all"] == (5 + starts) * completions + 5 * 26 * 4 > 20_000
    assert len(page.encode()) < 15_000_000


@pytest.mark.parametrize(("limits", "each"), [({"most_rows": 170}, 2), ({"most_rows": 10}, 1), ({"most_bytes": 10}, 1)])
def test_of_too_many_rows_the_first_tasks_are_kept_whole_and_the_rest_counted(manifest, limits, each):
    runs = list(finished(CONFIG, manifest))
    data = content(runs, **limits)
    rows = rows_of(data)
    assert data["counts"] == {"rows": len(rows), "all": len(content(runs)["columns"]["source"]), "each": each, "most": 3}
    for source, phase in enumerate(data["sources"]):
        own = rows[rows["source"] == source]
        tasks = {task[0] for task in own["task"]}
        split = "rl" if phase == "rollouts" else "confirm"
        # of rollouts, family after family, every second group
        places = [(i, range(i, 2 * each, 2) if split == "rl" else range(each)) for i in range(len(FAMILIES))]
        assert tasks == {name_of(FAMILIES[i], split, place) for i, taken in places for place in taken}
        assert (own.groupby(own["task"].map(str)).size() == (4 if split == "rl" else 3)).all()


def test_a_page_that_leaves_rows_out_says_so(manifest, tmp_path, monkeypatch):
    monkeypatch.setattr("glint.report.explorer.content", lambda runs: content(runs, most_rows=170))
    render(CONFIG, manifest, tmp_path / "explorer.html")
    words = " ".join(Outline((tmp_path / "explorer.html").read_text(encoding="utf-8")).words)
    assert re.search(r"(\d+) of \d+ rows of 5 RL runs", words)
    assert "of every run and family the first 2 tasks are here (of 3 at most)" in words


def test_next_bytes_are_those_of_the_trace(page, manifest):
    run = element(page, "explorer-data")["runs"][0]
    table = pd.read_parquet(manifest.path("main", "plain", 1, "trace_next_bytes"))
    for (identity, answer, policy), rows in table.groupby(["identity", "answer", "policy"]):
        own = run["next"][identity][answer]
        ordered = rows.sort_values(["position", "rank"])
        assert own[policy]["tokens"] == ordered["token"].tolist()
        assert np.allclose(np.array(own[policy]["q"]) / SCALE, ordered["probability"], atol=0.5 / SCALE)
        assert own["given"] == ordered.loc[ordered["rank"] == 0, "given"].tolist()
        assert own[policy]["p"] == [SCALE // 4] * 6


def test_frames_go_from_random_weights_over_the_start_to_the_end_of_rl(page, manifest):
    shown = element(page, "training-frames")
    assert [(run["study"], run["arm"], run["seed"]) for run in shown["runs"]] == [
        ("main", arm, seed) for arm in ("plain", "shuffled") for seed in SEEDS
    ]  # the other study asks for no curve
    trained, untouched = shown["runs"][0]["families"]
    place = shown["columns"].index("checkpoint")
    start = ["step-0000", "step-0050", "step-0100"]
    assert [frame[place] for frame in trained["frames"]] == [*start, "groups-048", "groups-096"]
    assert [frame[place] for frame in untouched["frames"]] == start
    assert [trained["family"], untouched["family"]] == list(FAMILIES)


def test_a_frame_is_the_greedy_row_of_its_checkpoint(page, manifest):
    shown = element(page, "training-frames")
    roles = {"step-0000": "trace_random", "step-0100": "pretrain_dev", "groups-096": "rl_dev"}
    for checkpoint, role in roles.items():
        table = pd.read_parquet(manifest.path("main", "shuffled", 2, role))
        keys = (table["checkpoint"] == checkpoint) & (table["mode"] == "greedy") & (table["stop"] == "parses")
        row = table[keys & (table["identity"] == name_of("double", "dev", 0))].iloc[0]
        family = shown["runs"][3]["families"][0]
        frame = next(frame for frame in family["frames"] if frame[0] == checkpoint)
        assert frame == [row[name] for name in frames.COLUMNS]
        assert family["prompt"] == "# dev 0 <b>\ndef f(x):\n"


def test_a_run_without_results_is_left_out(manifest):
    entries = [entry if entry.seed == 2 else entry.model_copy(update={"path": None}) for entry in manifest.entries]
    assert {run.seed for run in finished(CONFIG, Manifest(entries))} == {2}
