"""Write the numbers and the picture of README.md: from the reference run's tables, this machine's bench rows and the drawn DAG.

`python workflow/scripts/quote_results.py` replaces what stands between the markers `<!-- begin NAME -->` and `<!-- end NAME -->`.
"""

import json
from pathlib import Path

import pandas as pd

from glint.files import read_json, write_text

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "reports/reference/published"
OUTCOMES = {
    "confirm.greedy.targets": "greedy answer passes all hidden cases",
    "confirm.sampled_exact.targets": "sampled answers that pass",
    "confirm.pass8.targets": "solved by one of 8 samples",
}


def percent(share: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.1f} %"


def points(low: float, high: float) -> str:
    """Return an interval of a difference of shares, in percentage points."""
    return f"[{100 * low:+.1f}, {100 * high:+.1f}]"


def headline(folder: Path) -> str:
    """Return the table of the main study's outcomes on the trained families, and the control's line."""
    claims = pd.read_csv(folder / "claims.csv").set_index("id").to_dict("index")
    lines = ["| trained families, confirm tasks | published, one seed | ours | gain in points, 95 % | verdict |", "|---|---|---|---|---|"]
    for name, meaning in OUTCOMES.items():
        before, after, gain = (claims[f"{name}.{phase}"] for phase in ("before", "after", "gain"))
        published, ours = (f"{percent(before[source])} -> {percent(after[source])}" for source in ("published", "ours"))
        interval = points(gain["low"], gain["high"])
        lines.append(f"| {meaning} | {published} | {ours} | {100 * gain['ours']:+.1f} {interval} | {gain['verdict']} |")
    return "\n".join([*lines, "", control(folder)])


def control(folder: Path) -> str:
    """Return the sentence on the seeds and on the negative control."""
    table = pd.read_csv(folder / "estimates.csv")
    asked = {"arm": "shuffled", "scope": "targets", "stop": "parses", "metric": "greedy_pass1", "phase": "gain"}
    for column, value in asked.items():
        table = table[table[column] == value]
    row = table[table["method"].str.endswith("tasks within families")].iloc[0]
    return (
        f"{row['n_seeds']} seeds, each its own pretraining and its own RL; intervals resample seeds and tasks together. "
        "The negative control, the same RL with rewards shuffled within each group, changed the greedy pass rate by "
        f"{100 * row['estimate']:+.1f} points {points(row['low'], row['high'])}."
    )


def costs(folder: Path) -> str:
    """Return seconds a job and stage of the reference run, and where it ran."""
    timings = pd.read_csv(folder / "timings.csv")
    lines = ["| stage | jobs | seconds a job, median | longest |", "|---|---|---|---|"]
    for stage, group in timings.groupby("stage", sort=False):
        seconds = group["seconds"]
        lines.append(f"| {stage} | {len(group)} | {seconds.median():.0f} | {seconds.max():.0f} |")
    machines = read_json(folder / "provenance.json")["machines"]
    precisions = " or ".join(sorted({machine["precision"] for machine in machines}))
    where = f"{machines[0]['device']}, {precisions}, {machines[0]['threads']} thread a job"
    return "\n".join([*lines, "", f"The reference run: {where}, two jobs side by side on two cores."])


def bench(folder: Path) -> str:
    """Return the committed rows of `make bench`."""
    lines = ["| row, one thread | CPU seconds | efficiency | peak MiB |", "|---|---|---|---|"]
    for row in map(json.loads, (folder / "bench.jsonl").read_text().splitlines()):
        efficiency = "" if row["efficiency"] is None else f"{row['efficiency']:.2f}"
        lines.append(f"| `{row['name']}` | {row['cpu_seconds']:.3g} | {efficiency} | {row['peak_mib']:.0f} |")
    return "\n".join(lines)


def dag() -> str:
    """Return the picture that `snakemake dag` draws."""
    return f"```mermaid\n{(ROOT / 'docs/pipeline.mmd').read_text().strip()}\n```"


def quoted(text: str) -> str:
    """Return the README `text` with every marked block made anew."""
    blocks = {"headline": headline(REFERENCE), "costs": costs(REFERENCE), "bench": bench(REFERENCE), "dag": dag()}
    for name, block in blocks.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{block}\n{end}{rest.split(end)[1]}"
    return text


if __name__ == "__main__":
    readme = ROOT / "README.md"
    write_text(readme, quoted(readme.read_text(encoding="utf-8")))
