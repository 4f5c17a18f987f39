"""The figures of a run, drawn from its tables."""

from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from glint.files import write_text
from glint.report.architecture_figures import forest, losses, sources
from glint.report.contrast_figures import contrasts, forgetting
from glint.report.costs import costs
from glint.report.marks import interval, rows, seed_lines, styles_of
from glint.report.recall import recall
from glint.report.results import HEADLINE, Results
from glint.report.rivals import arms
from glint.report.svg import FIRST, INK, PUBLISHED, SECOND, THIRD, drawing, to_svg
from glint.report.vision_figures import images, vision
from glint.report.wording import metric_name

VERDICTS = {"replicated": ("o", FIRST), "not replicated": ("X", SECOND), "undecided": ("s", THIRD)}
OTHERS = ((THIRD, "s"), (INK, "^"), (INK, "v"), (THIRD, "D"), (INK, "P"), (THIRD, "X"), (INK, "*"), (THIRD, "p"))
"""Colour and marker of the arms beside the one in front."""


def draw(tables: Path, claims: Path, out: Path) -> None:
    """Write every figure as SVG into the folder `out`, from the folder `tables` and the table `claims`."""
    results = Results(tables, claims)
    for name, figure in FIGURES.items():
        write_text(out / f"{name}.svg", figure(results))


def pretraining(results: Results) -> str:
    """Draw loss and dev pass rate of the front arm over the steps of pretraining, a line a seed, the selected checkpoints ringed."""
    loss, solved = (results.curve(name).query("arm == @results.arm") for name in ("pretrain_loss", "pretrain_dev_pass1"))
    chosen = results.of_study("selection").query("arm == @results.arm")
    title = "Pretraining: loss and dev pass rate"
    with drawing("pretraining", 4.6, rows=2) as (figure, (top, bottom)):
        seed_lines(top, _by_seed(loss), "mean of seeds", color=FIRST)
        top.set(ylabel="loss, nats a token", ylim=(0, None))
        seed_lines(bottom, _by_seed(solved), "mean of seeds", color=FIRST, marker="o")
        bottom.plot(chosen["step"], chosen["pass_rate"], "o", ms=11, mfc="none", mec=SECOND, mew=1.6, label="start of RL")
        _published_points(bottom, results.published("pretrain.dev_pass1.step_"))
        bottom.set(xlabel="optimiser step", ylabel="dev tasks solved, greedy")
        _shares(bottom)
        _legend(bottom)
        steps = ", ".join(f"{seed}: {step}" for seed, step in zip(chosen["seed"], chosen["step"], strict=True))
        return to_svg(figure, "pretraining", title, f"One thin line a seed, the thick line their mean. Selected step by seed: {steps}.")


def rl(results: Results) -> str:
    """Draw the sampled exact rate on dev over the groups of RL, every seed and the mean, the control beside."""
    solved = results.curve("rl_dev_exact")
    with drawing("rl", 3.4) as (figure, (axes,)):
        for arm, style in styles_of(results.arms).items():
            seed_lines(axes, _by_seed(solved[solved["arm"] == arm]), _arm(arm), **style)
        _published_points(axes, results.published("rl.dev_exact.group_"))
        axes.set(xlabel="RL groups", ylabel="dev samples that pass")
        axes.set_xticks(sorted(solved["x"].unique()))
        _shares(axes)
        _legend(axes)
        last = solved[solved["x"] == solved["x"].max()].groupby("arm", sort=False)["value"].mean()
        ends = "; ".join(f"{_arm(str(arm))} ends at {share:.1%}" for arm, share in last.items())
        title = "RL: dev samples of the trained families that pass"
        return to_svg(figure, "rl", title, f"One thin line a seed, the thick line their mean. {ends}.")


def before_after(results: Results) -> str:
    """Draw the outcomes on the target families before and after RL, with intervals, the control and the published figures."""
    metrics, others = results.headline, results.arms[1:]
    with drawing("before_after", 1.1 + (0.6 + 0.25 * max(1, len(others))) * len(metrics)) as (figure, (axes,)):
        for row, metric in enumerate(metrics):
            _pair(axes, row, results, "targets", metric)
            for place, (arm, (colour, marker)) in enumerate(zip(others, cycle(OTHERS), strict=False), start=1):
                after = results.estimate("targets", metric, "after", arm=arm)
                interval(axes, row + 0.08 + 0.36 * place / len(others), after, colour, marker, mew=1.6)
        _rows(axes, [metric_name(metric) for metric in metrics])
        _pair_legend(figure, axes, [f"after, {_arm(arm)}" for arm in others], bool(len(results.claims)))
        ours = results.estimate("targets", metrics[0], "after")
        text = f"{metric_name(metrics[0])}: {_change(results, 'targets', metrics[0])}, over {int(ours['n_seeds'])} seeds."
        return to_svg(figure, "before_after", "Target families before and after RL", text)


def families(results: Results) -> str:
    """Draw the sampled exact rate of each family before and after RL."""
    with drawing("families", 1.1 + 0.5 * len(results.families)) as (figure, (axes,)):
        for row, family in enumerate(results.families):
            _pair(axes, row, results, family, "sampled_exact")
        _rows(axes, results.families)
        _pair_legend(figure, axes, [], bool(len(results.claims)))
        text = "; ".join(f"{family} {_change(results, family, 'sampled_exact')}" for family in results.families)
        return to_svg(figure, "families", "Each family before and after RL: sampled answers that pass", f"{text}.")


def claims(results: Results) -> str:
    """Draw our gains and differences with their intervals beside the published ones, marked by the verdict."""
    gains = results.claims[results.claims["rule"].isin(["effect", "no_difference"])]
    with drawing("claims", 1.3 + 0.3 * len(gains)) as (figure, (axes,)):
        for row, (_, claim) in enumerate(gains.iterrows()):
            marker, colour = VERDICTS[claim["verdict"]]
            interval(axes, row, claim.rename({"ours": "estimate"}), colour, marker)
            axes.plot(claim["published"], row, **PUBLISHED)
        _rows(axes, gains["id"].str.removeprefix("confirm.").str.removesuffix(".gain").tolist())
        axes.set_xlabel("gain or difference, points")
        axes.xaxis.set_major_formatter(PercentFormatter(1, symbol=""))
        axes.autoscale(axis="x")
        handles = [axes.plot([], [], marker, color=colour, label=name)[0] for name, (marker, colour) in VERDICTS.items()]
        figure.legend(handles=[*handles, _published_handle(axes)], loc="outside upper center", ncols=2)
        counts = gains["verdict"].value_counts()
        text = ", ".join(f"{count} {name}" for name, count in counts.items()) or "This run compares itself with no published figure"
        return to_svg(figure, "claims", "Published gains and differences, and ours", f"{text}.")


FIGURES: dict[str, Callable[[Results], str]] = {
    "pretraining": pretraining,
    "rl": rl,
    "before_after": before_after,
    "families": families,
    "arms": arms,
    "contrasts": contrasts,
    "forgetting": forgetting,
    "vision": vision,
    "images": images,
    "losses": losses,
    "forest": forest,
    "sources": sources,
    "recall": recall,
    "costs": costs,
    "claims": claims,
}
NAMES = tuple(FIGURES)


def _arm(name: str) -> str:
    return f"arm {name}"


def _change(results: Results, scope: str, metric: str) -> str:
    before, after = (results.estimate(scope, metric, phase)["estimate"] for phase in ("before", "after"))
    return f"{before:.1%} before, {after:.1%} after"


def _by_seed(points: pd.DataFrame) -> pd.DataFrame:
    """Return the points of a curve, a row an x and a column a seed."""
    return points.pivot(index="x", columns="seed", values="value")


def _published_points(axes: Axes, values: dict[str, float]) -> None:
    if values:
        axes.plot([int(x) for x in values], list(values.values()), **PUBLISHED, label="published figure")


def _published_handle(axes: Axes) -> Line2D:
    return axes.plot([], [], **PUBLISHED, label="published figure")[0]


def _pair(axes: Axes, row: int, results: Results, scope: str, metric: str) -> None:
    """Draw before above after, each with its interval and the published figure."""
    published = results.published(f"confirm.{HEADLINE.get(metric, metric)}.targets." if scope == "targets" else f"confirm.family.{scope}.")
    for phase, offset, marker, colour in (("before", -0.14, "o", SECOND), ("after", 0.08, "o", FIRST)):
        face = "none" if phase == "before" else colour
        interval(axes, row + offset, results.estimate(scope, metric, phase), colour, marker, mfc=face, mew=1.6)
        if phase in published:
            axes.plot(published[phase], row + offset, **PUBLISHED)


def _pair_legend(figure: Figure, axes: Axes, others: list[str], with_published: bool) -> None:
    handles = [
        axes.plot([], [], "o-", color=SECOND, mfc="none", mew=1.6, label="before RL")[0],
        axes.plot([], [], "o-", color=FIRST, label="after RL")[0],
        *(
            axes.plot([], [], f"{marker}-", color=colour, label=label)[0]
            for label, (colour, marker) in zip(others, cycle(OTHERS), strict=False)
        ),
    ]
    if with_published:
        handles.append(_published_handle(axes))
    figure.legend(handles=handles, loc="outside upper center", ncols=2)


def _rows(axes: Axes, labels: list[str]) -> None:
    """Label one row a category, the first on top, with shares along x."""
    rows(axes, labels)
    axes.set_xlim(-0.03, 1.03)
    axes.axvline(0, color=INK, lw=0.8)
    axes.xaxis.set_major_formatter(PercentFormatter(1))


def _shares(axes: Axes) -> None:
    axes.set_ylim(-0.04, 1.04)
    axes.yaxis.set_major_formatter(PercentFormatter(1))


def _legend(axes: Axes) -> None:
    axes.legend(loc="best", fontsize=9)
