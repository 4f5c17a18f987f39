import ast
import json

import numpy as np
import pytest

from glint.config.corpus import CorpusRecipe
from glint.tasks import corpus, tokenizer
from glint.tasks.corpus import data_card, draw_examples, tokenise
from glint.tasks.families import family_named

SMALL = CorpusRecipe(pretrain_examples=403)


@pytest.fixture(scope="module")
def examples():
    return draw_examples(CorpusRecipe(), 42)


@pytest.fixture(scope="module")
def small():
    return draw_examples(SMALL, 42)


def test_no_function_name_stands_twice(examples):
    assert examples["identity"].is_unique
    assert examples["identity"].str.fullmatch(r"[a-z_]+_[a-z]{7}").all()


def test_names_are_drawn_again_when_they_collide(monkeypatch):
    monkeypatch.setattr(corpus, "SUFFIX_LETTERS", 2)
    crowded = draw_examples(CorpusRecipe(families=("even",), pretrain_examples=500), 1)
    assert crowded["identity"].is_unique
    assert len(crowded) == 500 + 32 + 4 * 8


def test_counts_follow_the_recipe(examples):
    counts = examples.groupby(["split", "family"]).size()
    assert set(counts["pretrain"]) == {1600}
    assert set(counts["rl"]) == {32}
    assert set(counts["dev"]) == set(counts["confirm"]) == set(counts["final"]) == {8}
    assert dict(counts["canary"]) == {"canary": 8}


def test_an_uneven_number_of_examples_is_spread(small):
    assert sorted(small[small["split"] == "pretrain"].groupby("family").size()) == [50] * 5 + [51] * 3


def test_prompt_and_completion_are_the_reference_program(small):
    for row in small.itertuples():
        tree = ast.parse(row.prompt + row.completion)
        assert tree.body[0].name == row.identity
        assert [argument.arg for argument in tree.body[0].args.args] == [row.argument]
        assert row.prompt.endswith(f"def {row.identity}({row.argument}):\n")
        assert family_named(row.family).phrasings[row.phrasing] in row.prompt


def test_expectations_are_the_references_answers(small):
    for row in small[small["split"] != "canary"].itertuples():
        cases = json.loads(row.cases)
        assert len(cases) == 3
        for case in cases:
            expected = family_named(row.family).reference(case["argument"])
            assert (type(case["expected"]), case["expected"]) == (type(expected), expected)


def test_each_canary_task_has_one_wrong_expectation(small):
    reference = family_named("canary").reference
    for cases in small.loc[small["split"] == "canary", "cases"].map(json.loads):
        assert sum(case["expected"] != reference(case["argument"]) for case in cases) == 1


def test_training_seeds_share_evaluation_tasks_and_nothing_else(examples):
    other = draw_examples(SMALL, 43)
    evaluation = ["dev", "confirm", "final", "canary"]
    mine, theirs = (frame[frame["split"].isin(evaluation)].reset_index(drop=True) for frame in (examples, other))
    assert mine.equals(theirs)
    trained = set(other.loc[~other["split"].isin(evaluation), "identity"])
    assert not trained & set(examples["identity"])


def test_a_seed_gives_the_same_corpus_twice(small):
    assert small.equals(draw_examples(SMALL, 42))


def test_leaving_a_family_out_leaves_the_others_tasks(small):
    fewer = draw_examples(CorpusRecipe(families=("even", "reverse"), pretrain_examples=8), 42)
    for split in ("dev", "rl"):
        rows = small[(small["split"] == split) & small["family"].isin(["even", "reverse"])]
        assert fewer.loc[fewer["split"] == split, "prompt"].tolist() == rows["prompt"].tolist()


def test_both_phrasings_of_every_family_are_used(examples):
    pretrain = examples[examples["split"] == "pretrain"]
    assert set(pretrain.groupby("family")["phrasing"].nunique()) == {2}


def test_an_example_has_about_the_published_number_of_tokens(examples):
    tokens = tokenise(examples)
    assert tokens["offsets"][-1] / 12800 == pytest.approx(1_381_760 / 12_800, rel=0.02)
    assert np.diff(tokens["offsets"]).max() <= 128


def test_tokens_decode_to_the_pretraining_examples_in_order(small):
    tokens = tokenise(small)
    pretrain = small[small["split"] == "pretrain"]
    assert (tokens["ids"].dtype.name, tokens["offsets"].dtype.name, len(tokens["offsets"])) == ("uint16", "int64", 404)
    for place, row in enumerate(pretrain.itertuples()):
        ids = tokens["ids"][tokens["offsets"][place] : tokens["offsets"][place + 1]]
        assert (ids[0], ids[-1]) == (tokenizer.BOS, tokenizer.EOS)
        assert tokenizer.decode(ids.tolist()).decode() == row.prompt + row.completion


def test_the_card_counts_tokens_tasks_and_shared_names(small):
    tokens = tokenise(small)
    card = data_card(small, tokens)
    assert card["tokens"]["total"] == len(tokens["ids"])
    assert card["tasks"]["rl"]["even"] == 32
    assert set(card["shared_identities"].values()) == {0}
    assert len(card["shared_identities"]) == 15
    assert data_card(small, tokens) == card


def test_the_card_shows_a_name_that_two_splits_share(small):
    damaged = small.copy()
    leaked = damaged.loc[damaged["split"] == "rl", "identity"].iloc[0]
    damaged.loc[damaged["split"] == "confirm", "identity"] = leaked
    assert data_card(damaged, tokenise(damaged))["shared_identities"]["rl/confirm"] == 1


def test_an_unknown_family_is_refused():
    with pytest.raises(ValueError, match="unknown family 'cube'"):
        draw_examples(CorpusRecipe(families=("cube",)), 0)
