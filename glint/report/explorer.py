"""The rollout explorer: what the models of a run wrote, byte by byte, in one page that needs no network.

A row of the page is a row of a result file. Texts, names and verdicts stand once in lists of values; the columns hold their places in
these lists (dictionary encoding), so that a filter looks at small integers, and a search at each distinct text once.
"""

import base64
import hashlib
import json
from collections.abc import Hashable, Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from glint.config.tree import Config
from glint.files import read_parquet, write_text
from glint.manifest import Manifest, Role
from glint.report import frames
from glint.report.rl_runs import Run, finished

MOST_ROWS = 50_000
"""Rows of a page, where the first task of every family and run does not alone have more."""
MOST_BYTES = 12_000_000
"""Length of the data in the page, with the same proviso."""
SCALE = 10_000
"""Probabilities stand in the page as whole numbers of this part."""
PHASES: tuple[Role, ...] = ("before", "after", "rollouts")
LISTED = ("family", "mode", "completion", "ended", "verdict", "reason", "property", "reward", "credited_reward", "task")
COUNTED = ("source", "sample", "group", "tokens", "cases_passed", "cases_total", "property_passed", "property_total")
ABSENT: dict[str, Any] = {
    "mode": "sampled",
    "group": -1,
    "property": "",
    "property_passed": 0,
    "property_total": 0,
    "reward": None,
    "credited_reward": None,
}
"""What stands for a column that a result file lacks: evaluations know no groups and rewards, rollouts no second judge."""
SCRIPTS = ("frames.js", "explorer.js")

Source = tuple[Role, Path]


def render(config: Config, manifest: Manifest, out: Path) -> None:
    """Write the page to `out` from the results that `manifest` names."""
    runs = list(finished(config, manifest))
    script = "\n" + "\n".join(files("glint.report").joinpath("templates", name).read_text(encoding="utf-8") for name in SCRIPTS)
    environment = Environment(loader=PackageLoader("glint.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    page = environment.get_template("explorer.html").render(
        config=config,
        data=content(runs),
        frames=frames.content(runs),
        script=Markup(script),
        # the page may run this script and nothing else, whatever a model has written
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    write_text(out, page)


def content(runs: list[Run], most_rows: int = MOST_ROWS, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """Return the data of the page: rows by column, their lists of values, sources, runs, next bytes and counts.

    Where there are more than `most_rows` rows, or more than `most_bytes` of data, only the first n tasks of every family are kept, with
    all their completions, and the first n groups of every RL run and family; n is as large as the limits allow, at least 1.
    """
    sources, rows = collect(runs)
    each = int(rows["rank"].max()) + 1
    while each > 1 and (rows["rank"] < each).sum() > most_rows:
        each -= 1
    while True:
        data = encoded(runs, sources, rows, each)
        size = len(json.dumps(data))
        if size <= most_bytes or each == 1:
            return data
        each = max(1, min(each - 1, each * most_bytes // size))


def collect(runs: list[Run]) -> tuple[dict[Source, int], pd.DataFrame]:
    """Return the files behind the page, each once, with their numbers, and their rows, task after task, of a family the rollouts last."""
    sources: dict[Source, int] = {}
    parts = []
    for run in runs:
        for phase in PHASES:
            source = (phase, run.files[phase])
            if source not in sources:
                sources[source] = len(sources)
                parts.append(shown(read_parquet(run.files[phase]), run, phase).assign(source=sources[source]))
    rows = pd.concat(parts, ignore_index=True)
    rows["family"] = pd.Categorical(rows["family"], rows["family"].unique())  # in the order in which they were asked
    rows = rows.assign(in_rl=rows["group"] >= 0).sort_values(["family", "in_rl", "identity", "source"], kind="stable", ignore_index=True)
    return sources, rows


def shown(table: pd.DataFrame, run: Run, phase: Role) -> pd.DataFrame:
    """Return the rows of one result file that the headline stop rule left, with all columns of the page, and `rank`.

    `rank` is the place of the task, or of the group of rollouts, among those of its family.
    """
    rows = table if phase == "rollouts" else table[table["stop"] == run.stop]
    rows = rows.assign(**{name: value for name, value in ABSENT.items() if name not in rows})
    counted = rows.groupby("family")["group" if phase == "rollouts" else "identity"]
    tasks = _tasks(run.files["examples"], set(rows["identity"]))
    return rows.assign(rank=counted.transform(lambda names: pd.factorize(names, sort=True)[0]), task=rows["identity"].map(tasks))


def _tasks(examples: Path, identities: set[str]) -> dict[str, tuple[str, str, str]]:
    """Return identity, prompt and reference answer of the tasks named."""
    table = read_parquet(examples)
    table = table[table["identity"].isin(identities)]
    return {row[0]: row for row in table[["identity", "prompt", "completion"]].itertuples(index=False, name=None)}


def encoded(runs: list[Run], sources: dict[Source, int], rows: pd.DataFrame, each: int) -> dict[str, Any]:
    """Return the data of a page with the first `each` tasks a family."""
    kept = rows[rows["rank"] < each]
    listed = {name: dictionary(kept[name]) for name in LISTED}
    return {
        "columns": {name: kept[name].tolist() for name in COUNTED} | {name: codes for name, (codes, _) in listed.items()},
        "values": {name: values for name, (_, values) in listed.items()},
        "sources": [phase for phase, _ in sources],
        "runs": [
            {**run.name, **{phase: sources[phase, run.files[phase]] for phase in PHASES}, "next": next_bytes(run.files["trace_next_bytes"])}
            for run in runs
        ],
        "scale": SCALE,
        "counts": {"rows": len(kept), "all": len(rows), "each": each, "most": int(rows["rank"].max()) + 1},
    }


def dictionary(column: Iterable[Hashable]) -> tuple[list[int], list[Hashable]]:
    """Return the place of each entry in the list of values, and that list in the order of first use; a value that is absent is None."""
    places: dict[Hashable, int] = {}
    codes = [places.setdefault(None if entry != entry else entry, len(places)) for entry in column]  # noqa: PLR0124 - not a number
    return codes, list(places)


def next_bytes(table: Path) -> dict[str, Any]:
    """Return by identity and answer what `next_bytes.parquet` says, position after position.

    `given`: the tokens; by policy: `p`, the probabilities of these, and of the likeliest ones `tokens` and `q`, their probabilities.
    Probabilities are whole numbers of `SCALE`.
    """
    read = read_parquet(table)
    whole = read.assign(**{name: (read[name] * SCALE).round().astype(int) for name in ("probability", "given_probability")})
    found: dict[Any, Any] = {}
    for (identity, answer, policy), rows in whole.sort_values(["position", "rank"]).groupby(["identity", "answer", "policy"]):
        first = rows[rows["rank"] == 0]
        own = found.setdefault(identity, {}).setdefault(answer, {"given": first["given"].tolist()})
        own[policy] = {"p": first["given_probability"].tolist(), "tokens": rows["token"].tolist(), "q": rows["probability"].tolist()}
    return found
