"""The lines that a finished run prints."""

from glint.config.load import load
from glint.statistics.intervals import FAMILIES_TOO, IMAGES_TOO, OVER_SEEDS, STRUCTURES_TOO, TASKS_WITHIN_FAMILIES, TEXTS_TOO
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
TEXTS = f"""study,contrast,arm,against,step,distance,arm_mean,against_mean,estimate,low,high,n_seeds,method
names,streams,hybrid,single,6,all,0.75,0.5,0.25,0.2,0.3,2,{OVER_SEEDS}
names,streams,hybrid,single,6,all,0.75,0.5,0.25,0.125,0.375,2,{TEXTS_TOO}
names,streams,hybrid,single,6,16,0.5,0.25,0.25,0.2,0.3,2,{TEXTS_TOO}
"""
STRUCTURES = """study,contrast,arm,against,step,against_step,source,outcome,arm_mean,against_mean,estimate,low,high,n_seeds,verdict
structure,flops,hybrid,dense,200,76,all,loss,0.75,1,-0.25,-0.3,-0.2,2,pays
structure,flops,hybrid,dense,200,76,even,loss,0.5,1,-0.5,-0.6,-0.4,2,pays
structure,flops,hybrid,dense,200,76,all,dev,50,40,10,-5,25,2,undecided
"""
TABLES = {"contrasts": CONTRASTS, "vision_contrasts": IMAGES, "recall_contrasts": TEXTS, "architecture_contrasts": STRUCTURES}
HEADER = "study,arm,split,stop,scope,metric,phase,estimate,low,high,n_seeds,method\n"


def finish(reports, rows, tables=None):
    """Write the tables of a finished run: estimates and, of the comparisons, `tables`, or headers alone."""
    (reports / "report.html").write_text("")
    (reports / "estimates.csv").write_text(HEADER + "".join(rows))
    for name, text_of in TABLES.items():
        (reports / f"{name}.csv").write_text((tables or {}).get(name) or text_of.splitlines()[0] + "\n")


def row(phase, numbers, stop="parses", metric="greedy_pass1", method=TASKS_WITHIN_FAMILIES):
    return f"main,published,confirm,{stop},targets,{metric},{phase},{numbers},2,{method}\n"


def test_lines_give_the_primary_outcome_with_its_interval(tmp_path):
    rows = [row("before", "0.125,,"), row("after", "0.5,,"), row("gain", "0.375,-0.05,0.6"), row("gain", "0.9,,", stop="eos")]
    rows.append(row("gain", "0.375,-0.2,0.9", method=FAMILIES_TOO))
    finish(tmp_path, rows, TABLES)
    lines = text(CONFIG, tmp_path).splitlines()
    assert lines[0] == "main, published: greedy_pass1 on the target families 12.5% -> 50.0%, gain +37.5 points [-5.0, +60.0], 2 seeds"
    assert lines[1:-1] == [
        "order, order at step 200: byte_accuracy on held-out structures, diverse 60.0% against blocked 50.0%, "
        "difference +10.0 points [+8.0, +12.0], 2 seeds",
        "digits, path at step 120: digits named on held-out images, faithful 25.0% against direct_patch 50.0%, "
        "difference -25.0 points [-35.0, -15.0], 2 seeds",
        "names, streams at step 6: names recalled over all distances, hybrid 75.0% against single 50.0%, "
        "difference +25.0 points [+12.5, +37.5], 2 seeds",
        "structure, flops: held-out loss in nats a token, hybrid at step 200 0.750 against dense at step 76 1.000, "
        "difference -0.250 [-0.300, -0.200], 2 seeds: pays",
    ]
    assert lines[-1] == f"Report: {tmp_path}/report.html"
    (tmp_path / "share").mkdir()
    (tmp_path / "explorer.html").write_text("")
    assert text(CONFIG, tmp_path).splitlines()[-2:] == [lines[-1], "Beside it: explorer.html, share/"]


def test_hidden_cases_stand_in_the_tables_under_their_own_name(tmp_path):
    config = load({"run": "trial", "studies": {"main": MAIN | {"analysis": {"metric": "cases"}}}})
    rows = [row(phase, "0.5,,", metric="cases_greedy") for phase in ("before", "after", "gain")]
    finish(tmp_path, rows)
    assert text(config, tmp_path).startswith("main, published: cases_greedy on the target families 50.0% -> 50.0%")


def test_before_there_is_a_report_there_is_nothing_to_say(tmp_path):
    assert text(CONFIG, tmp_path) == ""


def test_one_seed_has_no_interval(tmp_path):
    one = STRUCTURES.replace("-0.25,-0.3,-0.2,2,pays", "-0.25,,,1,undecided")
    rows = [row(phase, "0.5,,").replace(",2,crossed", ",1,crossed") for phase in ("before", "after", "gain")]
    finish(tmp_path, rows, {"architecture_contrasts": one})
    lines = text(CONFIG, tmp_path).splitlines()
    assert lines[0] == "main, published: greedy_pass1 on the target families 50.0% -> 50.0%, gain +50.0 points, no interval from 1 seed"
    assert lines[1].endswith("difference -0.250, no interval from 1 seed: undecided")
