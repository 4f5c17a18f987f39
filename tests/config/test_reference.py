"""The schema and the documented table say what the classes say."""

import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from glint.config.load import load
from glint.config.model import PRESETS, ModelRecipe
from glint.config.reference import SECTIONS, schema, table
from glint.config.tree import merge

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "config"


def test_generated_files_are_up_to_date():
    assert (CONFIGS / "schema.json").read_text() == schema(), "run `make schema`"
    assert (CONFIGS / "README.md").read_text().endswith(table()), "run `make schema`"


def test_every_key_is_described():
    for section, node in SECTIONS.items():
        for name, field in node.model_fields.items():
            assert field.description, f"{section}.{name} has no docstring"


def test_the_dense_model_in_the_readme_is_the_preset():
    line = re.search(r"^ +model: (\{linear: none.*\})$", (CONFIGS / "README.md").read_text(), re.MULTILINE)
    assert line is not None
    assert ModelRecipe.model_validate(yaml.safe_load(line[1])) == PRESETS["dense"]


def test_schema_accepts_shipped_configs_and_sees_a_typo_in_an_arm():
    validator = jsonschema.Draft202012Validator(yaml.safe_load(schema()))
    data = yaml.safe_load((CONFIGS / "published.yaml").read_text())
    assert list(validator.iter_errors(data)) == []
    data["studies"]["main"]["arms"]["shuffled"] = {"rl": {"shufle_rewards": True}}
    assert [list(error.path)[-2:] for error in validator.iter_errors(data)] == [["shuffled", "rl"]]


@pytest.mark.parametrize("page", ["docs/your-own-experiment.md", "config/README.md"])
def test_every_example_runs_over_the_published_study(page):
    examples = re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert examples
    published = yaml.safe_load((CONFIGS / "published.yaml").read_text())
    for example in map(yaml.safe_load, examples):
        # An example asks its own question: what the published study of the same name asks is left out.
        asked = set(example.get("studies", {}))
        published["studies"] |= dict.fromkeys(set(published["studies"]) & asked)
        assert asked <= set(load(merge(published, example)).studies)
