"""A token shows one failure again, elsewhere too, and says so when it does not."""

from __future__ import annotations

import base64
import contextlib
import re
import shlex
import zlib
from pathlib import Path

import pytest
import torch
from check_run import bench_of
from suite_run import SuiteRun, run_suite_forked

from rdt_conformance.checks.bench import Bench
from rdt_conformance.checks.check import whole_check
from rdt_conformance.environment import versions
from rdt_conformance.replay import Replay, ReplayProblem
from rdt_conformance.results import CheckResult
from reference_transports.inline import InlineTransport

RACE = "reference_transports.faulty.races:NumbersInTwoSteps"
CHECK = "test_a_call_is_interrupted_by_another"
PLAIN = Replay(CHECK, "local", 1, "quick", 1, "AA==", versions())


def replayed(folder: Path, run: SuiteRun) -> tuple[str, SuiteRun]:
    """The command that a run printed with its failure, and what it does."""
    (command,) = set(re.findall(r"^ *(?:replay: +)?(pytest --transport=\S.*)$", run.printed, re.M))
    program, transport, *options = shlex.split(command)
    assert program == "pytest"
    return command, run_suite_forked(folder, transport.removeprefix("--transport="), *options)


@pytest.mark.parametrize(
    ("transport", "check"),
    [
        (RACE, CHECK),
        ("reference_transports.faulty.ordering:StartsAnewWithEveryFree", "test_freeing_another_object"),
        ("reference_transports.faulty.static:SendsALock", "test_metadata_travel"),
    ],
)
def test_the_printed_command_fails_again_the_same_way(transport: str, check: str, tmp_path: Path) -> None:
    run = run_suite_forked(tmp_path, transport, "--rdt-profile=quick", "--rdt-engine=local", "-k", check)
    assert run.status == 1, run.printed
    command, again = replayed(tmp_path, run)
    assert (again.status, again.broken()) == (1, run.broken()), again.printed
    assert len(command) < 500
    assert "1 check, " in again.printed
    assert "rdt replay: one example of test_" in again.printed


def test_a_broken_should_clause_is_shown_again_and_no_more_is_said(tmp_path: Path) -> None:
    advised = "reference_transports.faulty.gc:ComplainsAboutTheSecondFree"
    run = run_suite_forked(tmp_path, advised, "--rdt-profile=quick", "--rdt-engine=local", "--rdt-clause=G3b")
    _, again = replayed(tmp_path, run)
    assert "G3b SHOULD broken" in again.printed
    assert "History:" in again.printed and "History:" not in run.printed, "the whole story, once it is asked for"
    assert "did not come back" not in again.printed


def test_a_failure_that_does_not_come_back_is_no_pass(tmp_path: Path) -> None:
    run = run_suite_forked(tmp_path, "inline", f"--rdt-replay={PLAIN.encode()}")
    assert run.status == 8, run.printed
    head, unknown, _ = run.printed.partition("unknown:")
    assert ": the failure did not come back in 20 tries\n" in head
    assert not unknown, "what the other clauses are goes without saying"


@pytest.mark.parametrize(
    ("name", "here"), [("ray", versions()["ray"]), ("transport", "reference_transports.inline.InlineTransport")]
)
def test_what_is_another_is_said(name: str, here: str, tmp_path: Path) -> None:
    token = Replay(CHECK, "local", 1, "quick", 1, "AA==", versions() | {name: "1.0"}).encode()
    assert f"NOT the same as when it was recorded: {name} 1.0 then, {here} now" in (
        run_suite_forked(tmp_path, "inline", f"--rdt-replay={token}").printed
    )


def test_a_check_that_is_not_there(tmp_path: Path) -> None:
    token = Replay("test_of_tomorrow", "local", 1, "quick", 1, "AA==", {}).encode()
    run = run_suite_forked(tmp_path, "inline", f"--rdt-replay={token}")
    assert (run.status, run.report) == (4, {})
    assert "--rdt-replay: there is no check test_of_tomorrow in this version" in run.printed


def test_what_the_token_says_is_not_said_twice(tmp_path: Path) -> None:
    run = run_suite_forked(tmp_path, "inline", f"--rdt-replay={PLAIN.encode()}", "--rdt-seed=1", "--rdt-engine=local")
    assert run.status == 4
    assert "--rdt-engine, --rdt-seed: the token of --rdt-replay says that already; leave it out" in run.printed


def test_a_token_holds_what_was_put_into_it() -> None:
    token = PLAIN.encode()
    assert re.fullmatch(r"[A-Za-z0-9_-]+", token)
    assert Replay.decode(token) == PLAIN


@pytest.mark.parametrize(
    ("token", "problem"),
    [
        ("", "'' is no token"),
        ("pytest -k " + "x" * 100, "… is no token|'pytest -k x+…' is no token"),
        ("r1", "damaged"),
        ("r1////", "damaged"),
        ("r1é", "damaged"),
        (PLAIN.encode()[:-20], "damaged"),
        ("r1" + "A" * 30_000, "no token is as long"),
    ],
)
def test_garbage_is_one_line(token: str, problem: str) -> None:
    with pytest.raises(ReplayProblem, match=problem) as told:
        Replay.decode(token)
    assert "\n" not in str(told.value)


def test_what_was_changed_is_not_read_as_something_else() -> None:
    token = PLAIN.encode()
    for place in range(2, len(token), 7):
        changed = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        with contextlib.suppress(ReplayProblem):
            assert Replay.decode(changed) == PLAIN


def test_a_bomb_is_not_unpacked() -> None:
    packed = zlib.compress(b'["' + b"a" * 10_000_000 + b'"]', 9)
    with pytest.raises(ReplayProblem):
        Replay.decode("r1" + base64.urlsafe_b64encode(packed).decode().rstrip("="))


def test_a_whole_check_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    @whole_check("L1", engine="local", profiles=("quick",))
    def body(bench: Bench) -> CheckResult:
        return CheckResult("body", bench.engine, ("L1",), "passed")

    bench, recorded = bench_of(InlineTransport, torch.Tensor), list[CheckResult]()
    monkeypatch.setattr(bench, "record", recorded.append)
    body(bench)
    bench.replay = PLAIN
    with pytest.raises(pytest.skip.Exception, match="did not come back"):
        body(bench)
    assert [result.outcome for result in recorded] == ["passed", "not run"]
