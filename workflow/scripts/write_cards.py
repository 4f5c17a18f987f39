"""Write the model card and the data card of a run."""

from pathlib import Path

from glint.config.tree import Config
from glint.report import data_card, model_card
from pipeline.job import arguments, job
from pipeline.plan import Plan


def main() -> None:
    """Read the folder `tables`, `claims` (CSV), `manifest` (JSON), hashes and corpora of the plan; write `model` and `data` (Markdown)."""
    given = arguments(__doc__, "tables claims manifest model data")
    with job(given):
        config = Config.model_validate_json(given.job)
        plan = Plan(config)
        corpora = [Path(plan.folder(one.id)) for one in plan.stage("corpus")]
        model_card.render(config, given.tables, given.claims, given.manifest, given.model)
        data_card.render(config, corpora, given.tables / "example.json", given.data)


if __name__ == "__main__":
    main()
