"""Two runs in two checkouts give the same weights, completions, tables and figures, byte by byte."""

from tests.pipeline.checkout import Checkout


def test_two_checkouts_give_the_same_bytes(finished, tmp_path):
    other = Checkout.fresh(tmp_path / "elsewhere")
    other.snakemake("--cores", "1")
    ours, theirs = finished.results(), other.results()
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []
    assert (
        len([name for name in ours if name.endswith(".safetensors")]) == 1 + 2 + 3 + 2 * 2 + 2
    )  # tokens, checkpoints of two models, RL; tokens of two expression arms
