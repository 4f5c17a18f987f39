"""The command to try a model: what it shows is what `generate` gives, nothing a terminal would obey, and it ends quietly."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from glint import sample
from glint.checkpoints import layers
from glint.config.corpus import CorpusRecipe
from glint.config.model import ModelRecipe
from glint.generate import Completion, draw_uniforms, generate
from glint.manifest import Entry
from glint.model import checkpoint
from glint.model.decoder import Decoder
from glint.randomness import torch_generator
from glint.sample import Printable, listing, load, main, stream, tasks_of
from glint.tasks.corpus import draw_examples
from glint.tasks.tokenizer import decode, encode
from tests.mechanisms.weights import RECIPE as FAITHFUL
from tests.pipeline.checkout import ROOT
from tests.train.tiny import School

SMALL = {"width": 12, "layers": 4, "heads": 3, "experts": 3, "top_k": 2, "expert_hidden": 6, "streams": 2, "window": 3, "stride": 4}
HYBRID = ModelRecipe(**SMALL, context=160)  # type: ignore[arg-type]
DENSE = ModelRecipe(linear="none", sparse="dense", residual="single", ffn="dense", width=12, layers=2, heads=3, ffn_hidden=16, context=160)


def random_model(recipe: ModelRecipe = HYBRID, seed: int = 5) -> Decoder:
    """Return a small model that has learned nothing, so that its bytes are of every kind."""
    return Decoder(recipe).initialise(torch_generator(seed, "weights")).freeze()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run with two pretraining checkpoints and one of RL, laid over the second."""
    folder = tmp_path_factory.mktemp("sampled") / "results" / "small"
    models = [random_model(), random_model(seed=6)]
    for step, model in enumerate(models):
        checkpoint.save(model, folder / f"pretrain/0a/seed-1/checkpoints/step-{step:04d}")
    trained = models[1].freeze("last_block")
    with torch.no_grad():
        for parameter in trained.trainable().values():
            parameter.add_(0.3)
    base = folder / "pretrain/0a/seed-1/checkpoints/step-0001"
    checkpoint.save(trained, folder / "rl/1b/seed-1/checkpoints/groups-002", base=base)
    entry = Entry(study="main", arm="bold", seed=1, role="rl_receipt", path="results/small/rl/1b/seed-1/receipt.json")
    (folder / "manifest.json").write_text(f"[{entry.model_dump_json()}]")
    return folder


@pytest.mark.parametrize("recipe", [HYBRID, FAITHFUL, DENSE], ids=["hybrid", "faithful", "dense"])
def test_the_greedy_stream_is_the_text_of_generate(recipe: ModelRecipe) -> None:
    model, prompt, shown = random_model(recipe), "def f(x):\n", io.StringIO()
    completion = stream(model, prompt, None, 60, shown.write)
    ((whole,),) = generate(model, [encode(prompt)], None, 60)
    assert completion == whole
    assert shown.getvalue() == Printable().text(decode(whole.ids), last=True)


def test_bytes_are_shown_as_soon_as_they_are_decoded() -> None:
    pieces: list[str] = []
    completion = stream(random_model(), "x", None, 8, pieces.append)
    assert len(pieces) == len(completion.ids) + 1


def test_the_stop_rule_ends_a_stream_where_it_ends_generate() -> None:
    completion = stream(random_model(), "x", None, 30, io.StringIO().write, is_complete=lambda ids: len(ids) == 7)
    assert (len(completion.ids), completion.ended) == (7, "parses")


def test_the_same_seed_gives_the_same_sample_and_another_seed_another(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(run / "pretrain/0a/seed-1/checkpoints/step-0000")
    texts = []
    for seed in ("7", "7", "8"):
        main([folder, "--prompt", r"a\n", "--seed", seed, "--max-new-tokens", "20", "--count", "2", "--temperature", "1"])
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]
    numbers = draw_uniforms(2, 20, torch_generator(7, "sample", "a\n"))
    model = load(Path(folder), None)
    for row in numbers.split(1):
        ((completion,),) = generate(model, [encode("a\n")], [row], 20)
        assert Printable().text(decode(completion.ids), last=True) in texts[0]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (b"\x1b[31mred\x07", r"\x1b[31mred\x07"),
        (b"a\r\nb\tc", "a\\x0d\nb\tc"),
        ("\u009b31m".encode(), r"\xc2\x9b31m"),
        ("\u202eabc\u200b".encode(), r"\xe2\x80\xaeabc\xe2\x80\x8b"),
        ("é漢 ✓".encode(), "é漢 ✓"),
        (b"\xff\xe6\xbc", r"\xff\xe6\xbc"),
        (b"\xe6\xbcx\x00", r"\xe6\xbcx\x00"),
    ],
)
def test_what_is_shown_is_text_that_no_terminal_obeys(given: bytes, shown: str) -> None:
    whole, piecewise = Printable(), Printable()
    assert whole.text(given, last=True) == shown
    assert "".join(piecewise.text(bytes([byte])) for byte in given) + piecewise.text(b"", last=True) == shown


def test_tasks_are_the_dev_tasks_of_every_run() -> None:
    corpus = draw_examples(CorpusRecipe(pretrain_examples=8), seed=77)
    dev = corpus[(corpus["split"] == "dev") & (corpus["family"] == "even")]
    asked = tasks_of("even", 3)
    assert [(task.prompt, task.cases) for task in asked] == list(zip(dev["prompt"][:3], dev["cases"][:3], strict=True))


def test_a_family_is_asked_as_evaluation_does_and_judged(school: School, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(school.start), "--family", "increment", "--greedy", "--count", "2"])
    text = capsys.readouterr().out
    first, second = tasks_of("increment", 2)
    assert text.count("=> ") == 2
    assert first.prompt in text
    ((answer,),) = generate(load(school.start, None), [encode(second.prompt)], None, 48, is_complete=lambda _, ids: second.is_complete(ids))
    assert second.prompt + Printable().text(decode(answer.ids), last=True) in text
    assert text.splitlines()[-1] == f"{text.count('=> passed')} of 2 passed"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("    return x + 1\n", "=> passed, 3 of 3 hidden cases"),
        ("    return x\n", "not"),
        ("    return eval(x)\n", "=> invalid: "),
    ],
)
def test_verdicts_say_what_went_wrong(body: str, told: str, monkeypatch: pytest.MonkeyPatch, school: School, capsys) -> None:
    monkeypatch.setattr(sample, "stream", lambda *_, **__: Completion(encode(body, bos=False), "parses"))
    main([str(school.start), "--family", "increment"])
    assert told in capsys.readouterr().out


def test_a_checkpoint_of_rl_finds_its_base_by_its_hash(run: Path) -> None:
    trained = run / "rl/1b/seed-1/checkpoints/groups-002"
    base = run / "pretrain/0a/seed-1/checkpoints/step-0001"
    assert layers(trained) == [base.absolute(), trained]
    assert layers(trained, base) == [base, trained]
    assert layers(base) == [base]
    with pytest.raises(ValueError, match="holds a whole model"):
        layers(base, base)


def test_a_checkpoint_of_rl_without_its_base_says_what_it_needs(run: Path, tmp_path: Path) -> None:
    trained = run / "rl/1b/seed-1/checkpoints/groups-002"
    alone = tmp_path / "groups-002"
    alone.mkdir()
    for name in ("config.json", "model.safetensors"):
        (alone / name).write_bytes((trained / name).read_bytes())
    with pytest.raises(SystemExit, match="name theirs with --base"):
        main([str(alone), "--prompt", "x"])
    with pytest.raises(SystemExit, match="trained from other weights"):
        main([str(alone), "--prompt", "x", "--base", str(run / "pretrain/0a/seed-1/checkpoints/step-0000")])


def test_checkpoints_are_listed_with_the_study_they_belong_to(run: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(run.parents[1])
    lines = listing(Path("results"))
    assert lines[-1] == "results/small/rl/1b/seed-1/checkpoints/groups-002  study main, arm bold, seed 1"
    assert len(lines) == 3
    for arguments in ([], ["small"]):
        main(arguments)
        assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "nowhere is neither a checkpoint, nor a folder with some, nor a run"),
        (["CHECKPOINT", "--family", "evne"], "family evne is unknown; did you mean even?"),
        (["CHECKPOINT", "--prompt", "x", "--max-new-tokens", "0"], "--max-new-tokens 0 is less than 1"),
        (
            ["CHECKPOINT", "--prompt", "x", "--max-new-tokens", "160"],
            "2 tokens (its start token included) and --max-new-tokens 160 exceed",
        ),
        (["CHECKPOINT", "--family", "even", "--max-new-tokens", "500"], "--max-new-tokens 500 exceed the model's context of 160"),
        (["CHECKPOINT", "--prompt", "x" * 400], "a prompt of 401 tokens (its start token included) exceeds the model's context of 160"),
        (["CHECKPOINT", "--prompt", "x", "--max-new-tokens", "1000000000000"], "exceed the model's context of 160"),
        (["CHECKPOINT", "--prompt", "x", "--temperature", "0"], "--temperature 0 must be 0.001 or more"),
        (["CHECKPOINT", "--prompt", "x", "--temperature", "1e-320"], "must be 0.001 or more"),
        (["CHECKPOINT", "--prompt", "x", "--seed", "-1"], "--seed -1 is less than 0"),
        (["CHECKPOINT", "--prompt", "x", "--greedy", "--count", "2"], "the same completion 2 times"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_else(run: Path, arguments: list[str], sentence: str, capsys) -> None:
    folder = str(run / "pretrain/0a/seed-1/checkpoints/step-0000")
    with pytest.raises(SystemExit) as ended:
        main([folder if one == "CHECKPOINT" else one for one in arguments])
    assert sentence in str(ended.value)
    assert "\n" not in str(ended.value)
    assert capsys.readouterr().out == ""


def test_without_checkpoints_the_way_to_some_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="no checkpoints in results/; `make quick` trains some"):
        main([])


def test_prompts_are_read_until_the_input_ends(run: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"one\n{'x' * 400}\ntwo\n"))
    main([str(run / "pretrain/0a/seed-1/checkpoints/step-0000"), "--greedy", "--max-new-tokens", "4"])
    printed = capsys.readouterr()
    assert "one" in printed.out
    assert "two" in printed.out
    assert "exceeds the model's context of 160" in printed.err


def test_ctrl_c_ends_it_quietly(run: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("glint.sample.stream", interrupted)
    with pytest.raises(SystemExit) as ended:
        main([str(run / "pretrain/0a/seed-1/checkpoints/step-0000"), "--prompt", "x"])
    assert ended.value.code == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["-m", "glint.sample", "RUN"],
        ["-m", "glint.power", str(ROOT / "reports/reference/published")],
        ["-m", "glint.compare", *(str(ROOT / "reports/reference" / name) for name in ("published", "architecture"))],
        ["-m", "glint.check", "--model", "dense"],
        [str(ROOT / "workflow/scripts/watch.py"), "small", "--once"],
    ],
    ids=["sample", "power", "compare", "check", "watch"],
)
def test_a_reader_that_has_gone_ends_it_quietly(run: Path, words: list[str]) -> None:
    command = [sys.executable, *(str(run) if word == "RUN" else word for word in words)]
    reading, writing = os.pipe()
    os.close(reading)
    paths = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'workflow'}"}
    ended = subprocess.run(command, cwd=run.parents[1], env=paths, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert ended.returncode == 141
    assert ended.stderr == ""
