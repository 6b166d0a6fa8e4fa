"""A run that is interrupted or killed leaves nothing behind: no files, no segments, no processes."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from suite_run import command, environment, run_suite

from rdt_conformance import cli

TRANSPORTS = ["reference_transports.shared_memory:SharedMemoryTransport", "reference_transports.tcp:TcpTransport"]


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A temporary directory for one run alone; those of pytest are too long for the paths of Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        yield Path(folder)


@contextmanager
def under_way(
    transport: str, folder: Path, temporary: Path, report: str = "--no-rdt-report"
) -> Iterator[subprocess.Popen[str]]:
    """A run that has got to its checks."""
    run = subprocess.Popen(
        command(transport, "-v", report),
        cwd=folder,
        env=environment() | {"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert run.stdout is not None
    try:
        passed = 0
        while passed < 3:
            line = run.stdout.readline()
            assert line, "the run ended before it was interrupted"
            passed += "PASSED" in line
        yield run
    finally:
        run.kill()
        run.wait()
        run.stdout.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ended_in_mid_run(transport: str, how: signal.Signals, tmp_path: Path, temporary: Path) -> None:
    before = set(os.listdir("/dev/shm"))
    with under_way(transport, tmp_path, temporary) as run:
        children = psutil.Process(run.pid).children(recursive=True)
        run.send_signal(how)
        assert run.stdout is not None
        printed = run.stdout.read()
        status = run.wait(60)
    if how is not signal.SIGKILL:
        assert status == 2, printed
        assert f"no verdict: the run was ended early by {'Ctrl-C' if how is signal.SIGINT else 'SIGTERM'}" in printed
        assert "partial run: " in printed and "its checks were not selected, or not come to" in " ".join(
            printed.split()
        )
        assert "interrupts.py" not in printed
    psutil.wait_procs(children, timeout=10)
    assert not [child for child in children if child.is_running()]
    assert set(os.listdir(tmp_path)) <= {".benchmarks"}  # pytest-benchmark's own, in every pytest run
    assert not os.listdir(temporary)
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "rdt" in name]


def test_the_report_of_an_early_end_is_judged_again(tmp_path: Path, temporary: Path) -> None:
    with under_way(TRANSPORTS[1], tmp_path, temporary, f"--rdt-report={tmp_path}/report") as run:
        run.terminate()
        run.wait(60)
    assert cli.main(["judge", f"{tmp_path}/report/report.json"]) == 8


def test_a_run_after_a_killed_one_is_undisturbed(tmp_path: Path, temporary: Path) -> None:
    transport = TRANSPORTS[0]
    with under_way(transport, tmp_path, temporary) as run:
        run.kill()
    after = run_suite(tmp_path, transport, "--rdt-profile=quick", "-k", "test_live_objects_of_one_source_keep_apart")
    assert after.broken() == set()
