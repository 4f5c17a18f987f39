"""Claims against tables: the shipped claims on the synthetic run, and each rule on a made-up table."""

import re
from pathlib import Path

import pandas as pd
import pytest

from glint.replication import COLUMNS, Claim, compare, judge, load_claims
from tests.report import synthetic

CLAIMS = Path(__file__).parents[2] / "config" / "claims.yaml"
KEY = {"study": "main", "arm": "published"}


def claim(rule, published, **fields):
    source = {"table": "seeds", "column": "value"} | fields.pop("source", {})
    return Claim.model_validate({"id": "a.b", "section": "s", "says": "a", "rule": rule, "published": published, "source": source} | fields)


def judged(one, rows):
    return judge(one, pd.DataFrame([KEY | row for row in rows]), synthetic.config())


def test_every_shipped_claim_finds_its_result(analysed, tmp_path):
    compare(synthetic.config(), CLAIMS, analysed / "report", tmp_path / "claims.csv")
    table = pd.read_csv(tmp_path / "claims.csv")
    assert table.columns.tolist() == COLUMNS
    assert table["id"].tolist() == [one.id for one in load_claims(CLAIMS).claims]
    assert set(table["verdict"]) <= {"replicated", "not replicated", "undecided"}
    gain = table.set_index("id").loc["confirm.greedy.targets.gain"]
    assert (gain["published"], gain["n"], gain["verdict"]) == (pytest.approx(16 / 24), 5, "replicated")
    assert gain["note"] == "p 0.0625, smallest possible 0.0625"


def test_a_run_that_replicates_nothing_has_a_header_alone(tmp_path):
    compare(synthetic.config(), None, tmp_path, tmp_path / "claims.csv")
    assert (tmp_path / "claims.csv").read_text() == ",".join(COLUMNS) + "\n"


def test_a_claim_without_a_result_is_an_error():
    one = claim("constant", 1, source={"where": {"scope": "targets"}})
    with pytest.raises(ValueError, match=r"claim a.b has no result: seeds.csv has no row for {'scope': 'targets'}"):
        judged(one, [{"scope": "all", "value": 1}])
    with pytest.raises(ValueError, match=r"claim a.b has no result"):
        judged(one, [{"scope": "targets", "value": None}])


def test_a_count_is_compared_as_a_share_with_the_prediction_for_one_more_seed():
    rows = [{"passed": passed, "of": 64} for passed in (40, 44, 48)]
    one = claim("count", 16, of=24, units=24, source={"column": "passed", "per": "of"})
    ours = judged(one, rows)
    assert (ours.ours, ours.n, ours.verdict) == (pytest.approx(44 / 64), 3, "replicated")
    assert ours.low < 16 / 24 < ours.high
    assert judged(one.model_copy(update={"published": 3}), rows).verdict == "not replicated"


def test_a_count_from_one_seed_is_undecided_and_says_why():
    ours = judged(claim("count", 16, of=24, units=24), [{"value": 0.7}])
    assert (ours.verdict, ours.note) == ("undecided", "one seed shows no spread between seeds")


def test_a_measure_is_predicted_from_the_spread_of_seeds_and_of_items():
    rows = [{"loss": loss, "error": error} for loss, error in ((1.0, 0.5), (1.1, 0.5), (1.2, 0.5))]
    one = claim("measure", 1.9, source={"column": "loss", "error": "error"})
    ours = judged(one, rows)
    assert (ours.ours, ours.n, ours.verdict) == (pytest.approx(1.1), 3, "replicated")
    assert ours.high == pytest.approx(1.1 + 1.959964 * 0.5 * (4 / 3) ** 0.5)
    calm = [row | {"error": 0.01} for row in rows]
    assert judged(one, calm).high == pytest.approx(1.1 + 4.302653 * 0.1 * (4 / 3) ** 0.5)
    assert judged(one, calm).verdict == "not replicated"
    assert judged(one, rows[:1]).verdict == "undecided"


def estimated(low, high):
    return [{"estimate": (low + high) / 2, "low": low, "high": high, "n_seeds": 5, "p": 0.0625, "p_floor": 0.0625}]


def test_an_effect_with_the_published_sign_but_much_smaller_says_so():
    one = claim("effect", 16, of=24, source={"table": "estimates", "column": "estimate"})
    assert judged(one, estimated(0.05, 0.2)).note.endswith("; less than half the published size")
    assert judged(one, estimated(0.05, 0.2)).verdict == "replicated"
    assert not judged(one, estimated(0.5, 0.8)).note.endswith("size")
    assert judged(one, estimated(-0.1, 0.2)).verdict == "not replicated"


def test_no_difference_uses_the_margin_of_the_study():
    one = claim("no_difference", 0, source={"table": "estimates", "column": "estimate"})
    assert judged(one, estimated(-0.09, 0.09)).verdict == "replicated"
    assert judged(one, estimated(-0.09, 0.11)).verdict == "undecided"


def test_a_majority_of_seeds_is_an_effect_from_one_half():
    one = claim("majority", 10, of=10, source={"table": "contrasts", "column": "seeds_won", "per": "n_seeds"})
    verdicts = {won: judged(one, [{"seeds_won": won, "n_seeds": 10}]).verdict for won in (10, 9, 6, 1)}
    assert verdicts == {10: "replicated", 9: "replicated", 6: "undecided", 1: "not replicated"}
    ours = judged(one, [{"seeds_won": 10, "n_seeds": 10}])
    assert (ours.ours, ours.high, ours.n) == (1.0, pytest.approx(1.0), 10)
    assert ours.low == pytest.approx(1 / (1 + 1.959964**2 / 10), rel=1e-5)  # Wilson's lower end where all succeed


def test_an_estimate_must_be_one_row():
    one = claim("effect", 1, source={"table": "estimates", "column": "estimate"})
    with pytest.raises(ValueError, match=r"must name one row of estimates.csv, not 2"):
        judged(one, estimated(0, 1) * 2)


def test_constants_must_agree_in_every_seed():
    assert judged(claim("constant", 7), [{"value": 7}, {"value": 7}]).verdict == "replicated"
    ours = judged(claim("constant", 7), [{"value": 7}, {"value": 8}])
    assert (ours.ours, ours.verdict) == (8, "not replicated")


def test_a_design_value_may_be_five_percent_off():
    assert judged(claim("design", 100), [{"value": 104}]).verdict == "replicated"
    assert judged(claim("design", 100), [{"value": 106}]).verdict == "not replicated"


def test_bad_claims_are_refused_in_one_sentence(tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text(
        "source: s\nclaims:\n  - {id: a, section: s, says: a, rule: count, published: 1, source: {table: rl, column: updates}}\n"
    )
    with pytest.raises(ValueError, match="claim a: the rule count needs units"):
        load_claims(path)
    path.write_text(path.read_text().replace("rule: count", "rule: measure"))
    with pytest.raises(ValueError, match=r"claim a: the rule measure needs source\.error"):
        load_claims(path)
    row = "  - {id: a, section: s, says: a, rule: constant, published: 1, source: {table: rl, column: updates}}\n"
    path.write_text(f"source: s\nclaims:\n{row}{row}")
    with pytest.raises(ValueError, match="claims a are given twice"):
        load_claims(path)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"source": {"column": "valeu"}}, "claim a.b needs column valeu of seeds.csv, which has none; did you mean value?"),
        ({"source": {"where": {"scop": "targets"}}}, "needs column scop of seeds.csv, which has none; did you mean scope?"),
        ({"source": {"per": "off"}}, "needs column off of seeds.csv, which has none; did you mean of?"),
        ({"rule": "effect"}, "needs column estimate of seeds.csv, which has none"),
        ({"rule": "majority"}, "needs column n_seeds of seeds.csv, which has none"),
        ({"source": {"column": "scope"}}, "claim a.b: column scope of seeds.csv holds no numbers"),
    ],
)
def test_a_column_that_is_not_there_is_one_sentence(fields, said):
    one = claim(fields.pop("rule", "constant"), 1, **fields)
    with pytest.raises(ValueError, match=re.escape(said)):
        judged(one, [{"scope": "targets", "value": 1, "of": 2}])


@pytest.mark.parametrize("text", ["claims: [", "source: 2026-01-01\nclaims: {2026-01-01: []}", "", "[1]", "\x00"])
def test_a_file_that_holds_no_claims_is_one_sentence(tmp_path, text):
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"claims\.yaml") as error:
        load_claims(path)
    assert "\n" not in str(error.value)


def test_rules_refuse_what_they_would_not_read():
    with pytest.raises(ValueError, match="the rule no_significance reads p or p_holm of the table comparisons"):
        claim("no_significance", 1.0, source={"table": "estimates", "column": "p"})
    with pytest.raises(ValueError, match=r"the rule measure compares a mean as it is; leave out of and source\.per"):
        claim("measure", 1.0, of=10, source={"error": "error"})


def test_a_test_that_found_nothing_carries_what_it_could_have_found():
    one = claim("no_significance", 1.0, source={"table": "comparisons", "column": "p_holm"})
    ours = judged(one, [{"p_holm": p, "needed": 9} for p in (1.0, 0.4, 0.8)])
    assert (ours.ours, ours.n, ours.verdict) == (0.4, 3, "replicated")
    assert ours.note == "significant only from 9 tasks on that one arm alone solves"
    raw = judged(claim("no_significance", 1.0, source={"table": "comparisons", "column": "p"}), [{"p": 0.04, "needed": 9}])
    assert (raw.verdict, raw.note) == ("not replicated", "significant only from 6 tasks on that one arm alone solves")
