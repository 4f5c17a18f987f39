"""The data card of a run: what the corpora hold, how they were made, their hashes, and that no split shares a task with another."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from glint.config.base import digest
from glint.config.corpus import CorpusJob
from glint.config.tree import Config
from glint.files import read_json, write_text
from glint.report import markdown
from glint.report.tables import Table
from glint.report.wording import whole
from glint.tasks.corpus import SPLITS
from glint.tasks.families import family_named

SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
"""Numbers of examples below which data hubs use these words."""


def render(config: Config, folders: Sequence[Path], example: Path, out: Path) -> None:
    """Write the card to `out`, from `data_card.json` and `recipe.json` in the folder of each corpus, and the task in `example`."""
    corpora: dict[str, dict[int, dict[str, Any]]] = {}
    for folder in folders:
        job = CorpusJob.model_validate_json((folder / "recipe.json").read_bytes())
        corpora.setdefault(digest(job.corpus), {})[job.seed] = {"job": job, "card": read_json(folder / "data_card.json")}
    content = {
        "config": config,
        "digest": digest(config),
        "metadata": _metadata(config, corpora),
        "corpora": [_corpus(seeds) for seeds in corpora.values()],
        "example": read_json(example),
        "reported": sorted({f"`{config.studies[study].split}`" for study in config.rl_studies()}),
        "kinds": {kind: _recipes(config, kind) for kind in ("pretraining", "vision", "recall")},
    }
    write_text(out, markdown.render("data_card.md", content))


def _metadata(config: Config, corpora: dict[str, dict[int, dict[str, Any]]]) -> dict[str, Any]:
    largest = max(_examples(one["card"]) for seeds in corpora.values() for one in seeds.values())
    return {
        "pretty_name": f"Glint tasks, run {config.run}",
        "license": "mit",
        "language": ["en", "code"],
        "task_categories": ["text-generation"],
        "size_categories": [next((words for limit, words in SIZES if largest < limit), "n>1M")],
        "tags": ["synthetic", "code", "byte-level", "executable-rewards"],
    }


def _examples(card: dict[str, Any]) -> int:
    return sum(count for families in card["tasks"].values() for count in families.values())


def _corpus(seeds: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Return one corpus, which each seed draws anew after the same recipe."""
    first = next(iter(seeds.values()))
    recipe = first["job"].corpus
    return {
        "recipe": recipe,
        "seeds": sorted(seeds),
        "families": _families(recipe.families),
        "counts": _counts([one["card"]["tasks"] for one in seeds.values()]),
        "hashes": _hashes(seeds),
        "shared": sum(count for one in seeds.values() for count in one["card"]["shared_identities"].values()),
        "pairs": len(first["card"]["shared_identities"]),
    }


def _families(names: Sequence[str]) -> Table:
    known = [family_named(name) for name in names]
    rows = [(one.name, *(f"`{phrasing}`" for phrasing in one.phrasings), f"`{one.expression}`", f"`{one.argument}`") for one in known]
    return Table("Families", ("family", "phrasing", "other phrasing", "reference answer", "argument"), rows)


def _counts(seeds: list[dict[str, dict[str, int]]]) -> Table:
    """Return the tasks of each family in each split; a range where seeds differ."""
    splits = [split for split in SPLITS if split in seeds[0]]
    families = dict.fromkeys(family for tasks in seeds for split in tasks.values() for family in split)
    rows = [(family, *(_range([tasks[split].get(family, 0) for tasks in seeds]) for split in splits)) for family in families]
    totals = (_range([sum(tasks[split].values()) for tasks in seeds]) for split in splits)
    return Table("Tasks", ("family", *splits), [*sorted(rows), ("all", *totals)])


def _range(counts: list[int]) -> str:
    return whole(counts[0]) if len(set(counts)) == 1 else f"{whole(min(counts))} to {whole(max(counts))}"


def _hashes(seeds: dict[int, dict[str, Any]]) -> Table:
    rows = []
    for seed, one in sorted(seeds.items()):
        tokens, hashes = one["card"]["tokens"], one["card"]["sha256"]
        lengths = (whole(tokens["total"]), f"{tokens['mean']:.1f}", f"{tokens['shortest']} to {tokens['longest']}")
        rows.append((str(seed), *lengths, f"`{hashes['examples']}`", f"`{hashes['ids']}`"))
    header = ("seed", "pretraining tokens", "mean length", "lengths", "SHA-256 of the examples", "SHA-256 of the token ids")
    return Table("Seeds", header, rows)


def _recipes(config: Config, kind: str) -> dict[str, Any]:
    """Return the base recipes of the studies of one kind, each once, by the first study that has it."""
    found: dict[str, str] = {}
    for study, plan in config.studies.items():
        if plan.kind == kind:
            found.setdefault(plan.recipe, study)
    return {study: config.recipes[recipe] for recipe, study in found.items()}
