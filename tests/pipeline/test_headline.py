"""The lines that a finished run prints."""

from glint.config.load import load
from pipeline.headline import text

CONFIG = load({"run": "trial", "studies": {"main": {"question": "Does it help?", "arms": {"published": {}}, "seeds": [1, 2]}}})
HEADER = "study,arm,split,stop,scope,metric,phase,estimate,low,high,n_seeds\n"


def row(phase, numbers, stop="parses", metric="greedy_pass1"):
    return f"main,published,confirm,{stop},targets,{metric},{phase},{numbers},2\n"


def test_lines_give_the_primary_outcome_with_its_interval(tmp_path):
    rows = [row("before", "0.125,,"), row("after", "0.5,,"), row("gain", "0.375,-0.05,0.6"), row("gain", "0.9,,", stop="eos")]
    (tmp_path / "estimates.csv").write_text(HEADER + "".join(rows))
    lines = text(CONFIG, tmp_path).splitlines()
    assert lines[0] == "main, published: greedy_pass1 on the trained families 12.5% -> 50.0%, gain +37.5% [-5.0%, +60.0%], 2 seeds"
    assert lines[1] == f"Report: {tmp_path}/report.html"


def test_before_there_are_tables_there_is_nothing_to_say(tmp_path):
    assert text(CONFIG, tmp_path) == ""
