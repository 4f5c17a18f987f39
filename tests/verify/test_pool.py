import logging
import marshal
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from glint.verify import Limits, Verifier, VerifierError, worker
from glint.verify.pool import Pool, Request
from tests.verify.conftest import program

RIGHT, WRONG, ENDLESS = program("x + 1"), program("x + 2"), program("9**9**9")


def test_verdicts_come_in_order_whatever_ends_first(verifier):
    candidates = [ENDLESS, RIGHT, WRONG, program("x +"), *[RIGHT, WRONG] * 20, ENDLESS]
    verdicts = [verdict.verdict for verdict in verifier.judge(candidates)]
    assert verdicts == ["failed", "passed", "failed", "invalid", *["passed", "failed"] * 20, "failed"]


def test_nothing_to_judge_gives_nothing(verifier):
    assert verifier.judge([]) == []


def test_siblings_of_a_hostile_candidate_are_judged_meanwhile():
    with Verifier(workers=2, limits=Limits(cpu_seconds=0.5)) as verifier:
        verdicts = verifier.judge([ENDLESS, *[RIGHT] * 15])
    assert [verdict.verdict for verdict in verdicts] == ["failed"] + ["passed"] * 15
    assert max(verdict.seconds for verdict in verdicts[1:]) < verdicts[0].seconds


def test_several_verifiers_work_side_by_side():
    with Verifier() as one, Verifier() as two, Verifier() as three, ThreadPoolExecutor() as threads:
        results = list(threads.map(lambda verifier: verifier.judge([RIGHT, WRONG] * 20), (one, two, three)))
    assert [[verdict.verdict for verdict in verdicts] for verdicts in results] == [["passed", "failed"] * 20] * 3


def test_messages_larger_than_a_pipe_pass_both_ways():
    numbers = list(range(30_000))
    text = "def f(values):\n    return [value for value in values][:15000]\n"
    with Verifier(workers=2) as verifier:
        endings = verifier._pool.run([Request(text, "f", [marshal.dumps(numbers[:15_000])])] * 8)
    lines = [ending.lines for ending in endings if ending and ending.lines]
    assert [len(answer) for answer in lines] == [1] * 8
    assert min(len(answer[0]) for answer in lines) > 2 * 65536


def test_a_zygote_that_dies_is_replaced(verifier):
    os.killpg(verifier._pool._process.pid, signal.SIGKILL)
    assert [verdict.verdict for verdict in verifier.judge([RIGHT, WRONG])] == ["passed", "failed"]


def test_a_zygote_that_dies_while_it_works_is_replaced():
    with Verifier(workers=2, limits=Limits(cpu_seconds=2.0)) as verifier:
        first = verifier._pool._process.pid
        killer = threading.Timer(0.3, os.killpg, (first, signal.SIGKILL))
        killer.start()
        verdicts = verifier.judge([RIGHT, program("for _ in range(2 * 10**7):\n    pass\nreturn x + 1"), RIGHT])
        killer.join()
        assert verifier._pool._process.pid != first
    assert [verdict.verdict for verdict in verdicts] == ["passed", verdicts[1].verdict, "passed"]
    assert verdicts[1].verdict in ("passed", "failed")


def test_a_sandbox_that_fails_twice_stops_the_run(monkeypatch):
    with Verifier() as verifier:
        monkeypatch.setattr(verifier._pool, "run", lambda requests: [None] * len(requests))
        with pytest.raises(VerifierError, match=r"the sandbox failed twice for f: the sandbox process broke"):
            verifier.judge([RIGHT])


def test_an_error_is_retried_once_and_forgotten(monkeypatch):
    with Verifier() as verifier:
        honest, calls = verifier._pool.run, []

        def first_call_fails(requests):
            calls.append(len(requests))
            return [None, *honest(requests)[1:]] if len(calls) == 1 else honest(requests)

        monkeypatch.setattr(verifier._pool, "run", first_call_fails)
        assert [verdict.verdict for verdict in verifier.judge([RIGHT, WRONG])] == ["passed", "failed"]
    assert calls == [2, 1]


def test_answers_to_an_interrupted_call_are_not_taken_for_others():
    pool = Pool(2, Limits())
    pool._outbox += worker.frame((-1, "nonce", "def f(x):\n    return 1\n", "f", []))
    (ending,) = pool.run([Request("def f(x):\n    return 2\n", "f", [marshal.dumps(0)])])
    pool.close()
    assert ending is not None
    assert ending.lines == ["=2\t0"]


def test_an_interpreter_that_does_not_start_is_named(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(VerifierError, match="the sandbox process of /bin/false did not start"):
        Verifier()


def test_missing_walls_are_logged(caplog, monkeypatch):
    monkeypatch.setattr(Pool, "_exchange", lambda self, seconds: [{"process limit": "", "network namespace": "no such call"}])
    with caplog.at_level(logging.INFO, logger="glint.verify"):
        Pool(1, Limits()).close()
    assert [record.getMessage() for record in caplog.records] == [
        "sandbox walls standing: process limit",
        "sandbox walls missing: network namespace (no such call)",
    ]


def test_closing_ends_the_zygote_and_a_running_candidate():
    pool = Pool(1, Limits(cpu_seconds=30.0))
    pool._outbox += worker.frame((0, "nonce", ENDLESS.source.decode(), "f", [marshal.dumps(9)]))
    pool._write()
    time.sleep(0.1)
    pool.close()
    assert pool._process.returncode is not None
    assert not _group_is_alive(pool._process.pid)


def test_the_zygote_dies_with_a_killed_parent():
    script = (
        "import sys; from glint.verify.pool import Limits, Pool, Request\n"
        "pool = Pool(1, Limits(cpu_seconds=60.0, wall_seconds=60.0))\n"
        "print(pool._process.pid, flush=True)\n"
        "pool.run([Request('def f(x):\\n    return 9**9**9\\n', 'f', [b'N'])])\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout as output:
        zygote = int(output.readline())
        parent.kill()
        parent.wait()
    until = time.monotonic() + 10
    while _group_is_alive(zygote) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _group_is_alive(zygote)


def _group_is_alive(leader):
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    return True
