"""Write the numbers and the picture of README.md: from the tables of the reference runs, this machine's bench rows and the drawn DAG.

`python workflow/scripts/quote_results.py` replaces what stands between the markers `<!-- begin NAME -->` and `<!-- end NAME -->`.
"""

import json
from pathlib import Path

import pandas as pd

from glint.config.tree import Config, resolve
from glint.files import read_json, write_text
from glint.report.wording import mechanisms

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "reports/reference/published"
ARCHITECTURE = ROOT / "reports/reference/architecture"
LONGEST = 4096
"""Context, in tokens, at which the README says what decoding costs."""
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


def architecture(folder: Path) -> str:
    """Return what each arm of the comparison of architectures reaches and costs, and every planned difference of the held-out loss."""
    config = Config.model_validate_json((folder / "config.json").read_text(encoding="utf-8"))
    arms = pd.read_csv(folder / "architecture_arms.csv")
    at_end = pd.read_csv(folder / "costs.csv").query("context == @LONGEST")
    speed = pd.read_csv(folder / "costs_speed.csv").pivot(index="arm", columns="what", values="tokens_per_second")
    recalled = pd.read_csv(folder / "recall.csv").dropna(subset=["step"])
    last = recalled[recalled["step"] == recalled["step"].max()].groupby("arm")[["right", "of"]].sum()
    lines = [
        "| arm | what differs from the hybrid | parameters, used by a token | held-out loss, nats a token | dev tasks solved "
        f"| training, decoding: tokens a CPU second | decoding at {LONGEST:,} tokens, ms a token | growth of the cache there, kB a token "
        "| names recalled, small model |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in arms.merge(at_end, on=["study", "arm"]).to_dict("records"):
        names = percent(last.loc[row["arm"], "right"] / last.loc[row["arm"], "of"]) if row["arm"] in last.index else "not asked"
        model = resolve(config, row["study"], row["arm"]).model
        lines.append(
            f"| {row['arm']} | {mechanisms(model)} | {row['parameters'] / 1e6:.1f}M, {row['active'] / 1e6:.1f}M "
            f"| {row['final_loss']:.3f} | {row['final_dev']:.0f} % "
            f"| {speed.loc[row['arm'], 'pretrain_step']:.0f}, {speed.loc[row['arm'], 'decode']:.0f} | {1000 * row['decode_seconds']:.1f} "
            f"| {row['cache_bytes_per_token'] / 1000:.2f} | {names} |"
        )
    return "\n".join([*lines, "", f"Names recalled, seed by seed: {by_seed(recalled)}.", "", *differences(folder)])


def by_seed(recalled: pd.DataFrame) -> str:
    """Return the share of names that each arm recalls at the end of its training, a seed after the other."""
    last = recalled[recalled["step"] == recalled["step"].max()]
    sums = last.groupby(["arm", "seed"])[["right", "of"]].sum()
    shares = (sums["right"] / sums["of"]).unstack("seed")
    return "; ".join(
        f"{arm} {', '.join(percent(share) for share in row)}" for arm, row in zip(shares.index, shares.to_numpy(), strict=True)
    )


def differences(folder: Path) -> list[str]:
    """Return the planned comparisons of an architecture study as a table, and what so many seeds cannot show."""
    rows = pd.read_csv(folder / "architecture_contrasts.csv").query("outcome == 'loss' and source == 'all'")
    lines = ["| arm, steps | against, steps | difference of the loss, 95 % | verdict |", "|---|---|---|---|"]
    for row in rows.to_dict("records"):
        lines.append(
            f"| {row['arm']}, {row['step']} | {row['against']}, {row['against_step']} "
            f"| {row['estimate']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}] | {row['verdict']} |"
        )
    limits = (
        f"{rows['n_seeds'].min()} seeds; verdicts rest on Student's t over paired seeds, each interval for its comparison alone. "
        f"No sign-flip p can lie below {rows['p_floor'].max():.3g}, so Holm's p, corrected for all {len(rows)}, lies below 0.05 "
        f"in {(rows['p_holm'] < 0.05).sum()} of them."
    )
    return [*lines, "", limits]


def dag() -> str:
    """Return the picture that `snakemake dag` draws."""
    return f"```mermaid\n{(ROOT / 'docs/pipeline.mmd').read_text().strip()}\n```"


def quoted(text: str) -> str:
    """Return the README `text` with every marked block made anew."""
    blocks = {
        **{"headline": headline(REFERENCE), "costs": costs(REFERENCE), "bench": bench(REFERENCE)},
        **{"architecture": architecture(ARCHITECTURE), "dag": dag()},
    }
    for name, block in blocks.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{block}\n{end}{rest.split(end)[1]}"
    return text


if __name__ == "__main__":
    readme = ROOT / "README.md"
    write_text(readme, quoted(readme.read_text(encoding="utf-8")))
