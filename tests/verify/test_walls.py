"""What happens behind the allow-list: programs that reach the operating system all the same, run without the policy's consent."""

import marshal
import secrets
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from glint.verify import Verifier, policy, worker
from glint.verify.judge import Candidate, Case, _request, _verdict
from glint.verify.pool import Limits, Pool, Request

REACH = "m = [c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'BuiltinImporter'][0].load_module"
CANDIDATE = Candidate(b"", "f", "x", (Case(9, 10), Case(-2, -1)))


@pytest.fixture(scope="module")
def pool():
    opened = Pool(2, Limits(cpu_seconds=0.2, wall_seconds=1.0, output_bytes=50_000))
    yield opened
    opened.close()


def judge(pool, *lines):
    """Run a program past the policy and return its verdict."""
    source = "\n".join(["def f(x):", *(f"    {line}" for line in (REACH, *lines))]) + "\n"
    request = Request(source, "f", [marshal.dumps(case.argument) for case in CANDIDATE.cases])
    return _verdict(CANDIDATE, pool.run([request])[0])


def needs(pool, *names):
    missing = [name for name in names if pool.walls[name]]
    if missing:
        pytest.skip(f"this platform has no {', '.join(missing)}")


def test_the_way_out_works_without_the_policy(pool):
    assert judge(pool, "m('posix').getpid()", "return x + 1").verdict == "passed"


@pytest.mark.parametrize("status", [0, 1, 3, 77])
def test_leaving_early_is_no_answer(pool, status):
    assert judge(pool, f"m('posix')._exit({status})").reason == f"ended without an answer (status {status})"


@pytest.mark.parametrize("end", ["m('posix').abort()", "m('posix').kill(m('posix').getpid(), 11)", "m('faulthandler')._sigsegv()"])
def test_a_crash_is_a_failure(pool, end):
    verdict = judge(pool, end)
    assert verdict.verdict == "failed"
    assert verdict.passed == 0


@pytest.mark.parametrize("text", ["b''", "b'=10\\t9\\n=-1\\t-2'", "b'x\\n=10\\t9\\n=-1\\t-2\\nx'", "b'\\xff\\xfe\\n' * 9"])
def test_a_forged_answer_without_the_nonce_is_none(pool, text):
    assert judge(pool, f"m('posix').write(3, {text})", "m('posix')._exit(0)").verdict == "failed"


def test_a_flood_of_output_is_cut_off(pool):
    assert judge(pool, "while True: m('posix').write(3, b'a' * 4096)").reason in ("output limit", "time limit")


def test_waiting_without_computing_meets_the_wall_limit(pool):
    verdict = judge(pool, "m('time').sleep(60)")
    assert (verdict.verdict, verdict.reason) == ("failed", "time limit")


def test_closing_the_pipe_and_going_on_is_ended(pool):
    assert judge(pool, "m('posix').close(3)", "while True: pass").verdict in ("failed", "error")


def test_ignoring_the_timer_meets_a_harder_limit(pool):
    verdict = judge(pool, "m('_signal').signal(m('_signal').SIGPROF, m('_signal').SIG_IGN)", "while True: pass")
    assert (verdict.verdict, verdict.reason) == ("failed", "time limit")


@pytest.mark.parametrize(
    ("wall", "attempt"),
    [
        ("process limit", "m('posix').fork()"),
        ("file limit", "m('posix').open('/etc/passwd', 0)"),
        ("file limit", "m('posix').open('new', m('posix').O_CREAT | m('posix').O_WRONLY)"),
        ("file limit", "m('posix').pipe()"),
        ("empty root directory", "m('posix').mkdir('/new')"),
        ("empty root directory", "m('posix').execv('/bin/true', ['true'])"),
        ("empty root directory", "m('posix').stat('/etc')"),
        ("no privileges", "m('posix').setuid(0)"),
        ("no privileges", "m('posix').chroot('..')"),
        ("process namespace", "m('posix').kill(2**22 - 1, 9)"),
    ],
)
def test_the_operating_system_refuses(pool, wall, attempt):
    needs(pool, wall)
    assert judge(pool, attempt, "return x + 1").reason.startswith("case 1: raised ")


def test_no_descriptor_but_its_own_pipe_is_open(pool):
    look = [
        "for number in range(64):",
        "    try: m('posix').fstat(number)",
        "    except m('builtins').OSError: continue",
        "    found.append(number)",
    ]
    verdict = judge(pool, "found = []", *look, "return x + 1 if found == [0, 1, 2, 3] else found")
    assert verdict.verdict == "passed"


def test_the_zygote_and_its_siblings_survive_a_killer(pool):
    needs(pool, "process namespace")
    assert judge(pool, "m('posix').kill(1, 9)", "return x + 1").verdict == "passed"
    assert judge(pool, "m('posix').kill(-1, 9)").reason == "case 1: raised ProcessLookupError"
    assert judge(pool, "return x + 1").verdict == "passed"


def test_siblings_that_a_killer_ends_are_judged_again(monkeypatch):
    monkeypatch.setattr(policy, "admit", lambda *parts: None)
    slow = replace(CANDIDATE, source=b"def f(x):\n    for _ in range(10**6): pass\n    return x + 1\n")
    killer = replace(CANDIDATE, source=f"def f(x):\n    {REACH}\n    return m('posix').kill(-1, 9)\n".encode())
    with Verifier(workers=4, limits=Limits(cpu_seconds=2.0)) as verifier:
        needs(verifier, "process namespace")
        verdicts = verifier.judge([slow, slow, killer, slow])
    assert [verdict.verdict for verdict in verdicts] == ["passed", "passed", "failed", "passed"]


def test_expected_values_are_not_part_of_a_request():
    secret = 10**12 + secrets.randbelow(10**12)
    sent = worker.frame(tuple(_request(Candidate(b"", "f", "x", (Case(1, secret), Case("a", [str(secret)]))))))
    assert marshal.dumps(1) in sent
    assert not any(text in sent for text in (marshal.dumps(secret)[1:], str(secret).encode()))


def test_a_string_hash_is_the_same_in_every_pool(pool):
    source = "def f(x):\n    return ''.join({'a', 'b', 'c', 'd', 'e', 'f', 'g'})\n"
    other = Pool(1, Limits())
    endings = [one.run([Request(source, "f", [marshal.dumps(0)])])[0] for one in (pool, other)]
    other.close()
    first, second = (ending.lines for ending in endings if ending and ending.lines)
    assert first == second


def test_without_namespaces_candidates_run_and_what_is_missing_is_named():
    bare = ["unshare", "--user"]
    if shutil.which("unshare") is None or subprocess.run([*bare, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this platform cannot enter a namespace in which no other can be made")
    script = (
        "import logging; logging.basicConfig(format='%(message)s')\n"
        "from glint.verify import Candidate, Case, Verifier\n"
        "sources = [b'def f(x):\\n    return x + 1\\n', b'def f(x):\\n    return 9**9**9\\n', b'def f(x):\\n    return [x]*10**10\\n']\n"
        "with Verifier() as verifier:\n"
        "    print([verdict.verdict for verdict in verifier.judge([Candidate(source, 'f', 'x', (Case(1, 2),)) for source in sources])])\n"
    )
    done = subprocess.run([*bare, sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == "['passed', 'failed', 'failed']\n"
    assert done.stderr.startswith("sandbox walls missing: user namespace (")
    assert "network namespace (" in done.stderr
