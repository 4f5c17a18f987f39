"""The lines that a finished run prints."""

from glint.config.load import load
from glint.statistics.intervals import FAMILIES_TOO, IMAGES_TOO, OVER_SEEDS, STRUCTURES_TOO, TASKS_WITHIN_FAMILIES
from pipeline.headline import text
from tests.studies import ORDER

MAIN = {"question": "Does it help?", "arms": {"published": {}}, "seeds": [1, 2]}
RECIPES = {"main": {}, "mini": {"pretraining": {"steps": 200, "batch": 24}}}
CONFIG = load({"run": "trial", "recipes": RECIPES, "studies": {"main": MAIN, "order": ORDER}})
CONTRASTS = f"""study,contrast,arm,against,step,split,metric,arm_mean,against_mean,estimate,low,high,n_seeds,method
order,order,diverse,blocked,200,held_out,byte_accuracy,0.6,0.5,0.1,0.08,0.12,2,{OVER_SEEDS}
order,order,diverse,blocked,200,held_out,byte_accuracy,0.6,0.5,0.1,0.03,0.17,2,{STRUCTURES_TOO}
order,order,diverse,blocked,200,trained,byte_accuracy,0.9,0.5,0.4,0.38,0.42,2,{OVER_SEEDS}
order,order,diverse,blocked,200,held_out,executed,0,0,0,,,2,{OVER_SEEDS}
"""
IMAGES = f"""study,contrast,arm,against,step,metric,arm_mean,against_mean,estimate,low,high,n_seeds,method
digits,path,faithful,direct_patch,120,accuracy,0.25,0.5,-0.25,-0.3,-0.2,2,{OVER_SEEDS}
digits,path,faithful,direct_patch,120,accuracy,0.25,0.5,-0.25,-0.35,-0.15,2,{IMAGES_TOO}
digits,path,faithful,direct_patch,120,log_prob,-2,-1,-1,-1.5,-0.5,2,{IMAGES_TOO}
"""
HEADER = "study,arm,split,stop,scope,metric,phase,estimate,low,high,n_seeds,method\n"


def row(phase, numbers, stop="parses", metric="greedy_pass1", method=TASKS_WITHIN_FAMILIES):
    return f"main,published,confirm,{stop},targets,{metric},{phase},{numbers},2,{method}\n"


def test_lines_give_the_primary_outcome_with_its_interval(tmp_path):
    rows = [row("before", "0.125,,"), row("after", "0.5,,"), row("gain", "0.375,-0.05,0.6"), row("gain", "0.9,,", stop="eos")]
    rows.append(row("gain", "0.375,-0.2,0.9", method=FAMILIES_TOO))
    (tmp_path / "estimates.csv").write_text(HEADER + "".join(rows))
    (tmp_path / "contrasts.csv").write_text(CONTRASTS)
    (tmp_path / "vision_contrasts.csv").write_text(IMAGES)
    lines = text(CONFIG, tmp_path).splitlines()
    assert lines[0] == "main, published: greedy_pass1 on the target families 12.5% -> 50.0%, gain +37.5 points [-5.0, +60.0], 2 seeds"
    assert lines[1:-1] == [
        "order, order at step 200: byte_accuracy on held-out structures, diverse 60.0% against blocked 50.0%, "
        "difference +10.0 points [+8.0, +12.0], 2 seeds",
        "digits, path at step 120: digits named on held-out images, faithful 25.0% against direct_patch 50.0%, "
        "difference -25.0 points [-35.0, -15.0], 2 seeds",
    ]
    assert lines[-1] == f"Report: {tmp_path}/report.html"


def test_hidden_cases_stand_in_the_tables_under_their_own_name(tmp_path):
    config = load({"run": "trial", "studies": {"main": MAIN | {"analysis": {"metric": "cases"}}}})
    rows = [row(phase, "0.5,,", metric="cases_greedy") for phase in ("before", "after", "gain")]
    (tmp_path / "estimates.csv").write_text(HEADER + "".join(rows))
    for name, text_of in (("contrasts", CONTRASTS), ("vision_contrasts", IMAGES)):
        (tmp_path / f"{name}.csv").write_text(text_of.splitlines()[0] + "\n")
    assert text(config, tmp_path).startswith("main, published: cases_greedy on the target families 50.0% -> 50.0%")


def test_before_there_are_tables_there_is_nothing_to_say(tmp_path):
    assert text(CONFIG, tmp_path) == ""


def test_one_seed_has_no_interval(tmp_path):
    rows = [row(phase, "0.5,,").replace(",2,crossed", ",1,crossed") for phase in ("before", "after", "gain")]
    (tmp_path / "estimates.csv").write_text(HEADER + "".join(rows))
    for name, text_of in (("contrasts", CONTRASTS), ("vision_contrasts", IMAGES)):
        (tmp_path / f"{name}.csv").write_text(text_of.splitlines()[0] + "\n")
    assert text(CONFIG, tmp_path).startswith(
        "main, published: greedy_pass1 on the target families 50.0% -> 50.0%, gain +50.0 points, no interval from 1 seed"
    )
