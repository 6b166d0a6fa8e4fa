"""What a process holds that others could get at, and how a report tells it."""

from __future__ import annotations

import dataclasses
import os
import shutil
import socket
import tempfile
import weakref
from collections.abc import Iterator
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import pytest
import torch
from check_run import bench_of, run_check
from made_reports import FakeTarget, passing, write

from rdt_conformance import cli
from rdt_conformance.exposures import EXPOSURE, GROUP, MACHINE, NETWORK, USER, exposures, in_a_line
from rdt_conformance.observe.exposure import Exposed, exposure, of_files
from rdt_conformance.report import folder, json_report
from rdt_conformance.results import CheckResult
from rdt_conformance.verdict import judge
from reference_transports.inline import InlineTransport


@pytest.fixture
def open_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that every user may enter, as far as that depends on this test: pytest's own are closed."""
    folder = Path("/tmp") / f"rdt-open-{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("address", "reach"), [("127.0.0.1", MACHINE), ("0.0.0.0", NETWORK), ("::1", MACHINE), ("::", NETWORK)]
)
def test_an_address_that_is_listened_on(address: str, reach: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    before = exposure()
    with socket.create_server((address, 0), family=family) as listening:
        port = listening.getsockname()[1]
        assert exposure() - before == {Exposed("listening socket", f"{address} port {port}", "", reach)}
        with socket.create_connection((address.replace("0.0.0.0", "127.0.0.1"), port), 5):
            assert len(exposure() - before) == 1, "an end of a connection is open to nobody else"
    assert exposure() == before


def test_a_datagram_socket_listens_unless_it_is_connected() -> None:
    before = exposure()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.bind(("0.0.0.0", 0))
        (found,) = exposure() - before
        assert found.reach == NETWORK
        datagrams.connect(("127.0.0.1", 9))
        assert exposure() == before


@pytest.mark.parametrize(("mode", "reach"), [(0o600, USER), (0o620, GROUP), (0o602, MACHINE), (0o644, USER)])
def test_a_unix_socket_is_open_to_those_who_may_write_to_it(open_folder: Path, mode: int, reach: str) -> None:
    path = open_folder / "socket"
    before = exposure()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        path.chmod(mode)
        assert exposure() - before == {Exposed("unix socket", str(path), f"{mode:04o}", reach)}


@pytest.mark.parametrize("padding", ["", "\0" * 20])
def test_an_abstract_socket_has_no_permissions(padding: str) -> None:
    """And its name may be as long as there is room, with zeros at its end."""
    before = exposure()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0rdt-{os.getpid()}{padding}")
        listening.listen()
        assert exposure() - before == {Exposed("unix socket", f"@rdt-{os.getpid()}", "", MACHINE)}


@pytest.mark.parametrize(("mode", "reach"), [(0o600, USER), (0o640, GROUP), (0o604, MACHINE)])
def test_a_file_that_is_held_open(open_folder: Path, mode: int, reach: str) -> None:
    path = open_folder / "file"
    before = exposure()
    with path.open("w"):
        path.chmod(mode)
        assert exposure() - before == {Exposed("file", str(path), f"{mode:04o}", reach)}
    assert exposure() == before


def test_a_closed_folder_above_closes_what_is_in_it(open_folder: Path) -> None:
    path = open_folder / "file"
    path.touch(0o644)
    path.chmod(0o644)
    assert {thing.reach for thing in of_files([str(path)])} == {MACHINE}
    open_folder.chmod(0o750)
    assert {thing.reach for thing in of_files([str(path)])} == {GROUP}
    open_folder.chmod(0o700)
    assert {thing.reach for thing in of_files([str(path), str(open_folder), "/gone"])} == {USER}


def test_of_a_folder_what_is_in_it_is_open_or_not(open_folder: Path) -> None:
    (open_folder / "closed").touch(0o600)
    assert {thing.reach for thing in of_files([str(open_folder)])} == {USER}
    (open_folder / "open").touch()
    (open_folder / "open").chmod(0o644)
    found = {os.path.basename(thing.what): thing.reach for thing in of_files([str(open_folder)])}
    assert found == {"closed": USER, "open": MACHINE}


def test_shared_memory_that_is_mapped() -> None:
    before = exposure()
    segment = shared_memory.SharedMemory(create=True, size=4096)
    try:
        name = f"/dev/shm/{segment.name.lstrip('/')}"
        assert exposure() - before == {Exposed("shared memory", name, "0600", USER)}
    finally:
        segment.close()
        segment.unlink()


# --- the report -----------------------------------------------------------------------------------------------------

PORT = ["listening socket", "0.0.0.0 port 7000", "", NETWORK]
LOOPBACK = ["listening socket", "127.0.0.1 port 7001", "", MACHINE]
OWN = ["shared memory", "/dev/shm/mine", "0600", USER]


def seen(*things: list[str]) -> list[CheckResult]:
    return [*passing()[:-1], dataclasses.replace(passing()[-1], facts={EXPOSURE: [*things]})]


def test_only_what_reaches_further_is_told_in_a_line() -> None:
    assert in_a_line(exposures(seen(PORT, LOOPBACK, OWN)) or ()) == "listening socket 0.0.0.0 port 7000 (the network)"
    assert in_a_line(exposures(seen(LOOPBACK, OWN)) or ()) == ""
    assert exposures(passing()) is None
    assert exposures(seen()) == ()


def test_it_is_no_fact_among_others() -> None:
    verdict = judge(seen(PORT), FakeTarget(), ("local",), selected_all=True)
    assert verdict.facts == ()
    assert [thing.what for thing in verdict.exposures or ()] == ["0.0.0.0 port 7000"]


def test_the_report_has_all_of_it_and_judge_agrees(tmp_path: Path) -> None:
    report = write(tmp_path, seen(PORT, OWN))
    document = json_report.read(report)
    assert [thing["reach"] for thing in document["verdict"]["exposure"]] == [NETWORK, USER]
    assert cli.main(["judge", str(report)]) == 0
    folder.write_pages(tmp_path, document)
    page = (tmp_path / "report.html").read_text()
    assert "0.0.0.0 port 7000" in page and "/dev/shm/mine" in page
    assert "Nobody looked" not in page


# --- the check ------------------------------------------------------------------------------------------------------


class Spools(InlineTransport):
    """Keeps a file of each object, which it does not hold open."""

    mode = 0o600

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Any:
        self._path(obj_id).touch()
        self._path(obj_id).chmod(self.mode)
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Any, tensors: list[Any]) -> None:
        self._path(obj_id).unlink()

    @staticmethod
    def _path(obj_id: str) -> Path:
        return Path(tempfile.gettempdir()) / f"rdt-spool-{obj_id}"


class SpoolsForEverybody(Spools):
    mode = 0o644


class SpoolsInAFolder(SpoolsForEverybody):
    """The folder was there before, and every user may enter it."""

    @staticmethod
    def _path(obj_id: str) -> Path:
        folder = Path(tempfile.gettempdir()) / "rdt-spool"
        folder.mkdir(exist_ok=True)
        return folder / obj_id


class Listens(InlineTransport):
    """Listens to everybody for as long as it lives."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Any:
        if not hasattr(self, "listening"):
            self.listening = socket.create_server(("0.0.0.0", 0))
            weakref.finalize(self, self.listening.close)
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


@pytest.mark.parametrize(
    ("transport", "reach", "broken"),
    [
        (Spools, USER, False),
        (SpoolsForEverybody, MACHINE, True),
        (SpoolsInAFolder, MACHINE, True),
        (Listens, NETWORK, False),
        (InlineTransport, "", False),
    ],
)
def test_what_a_transport_exposes_is_seen(
    transport: type, reach: str, broken: bool, monkeypatch: pytest.MonkeyPatch, open_folder: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(open_folder))
    with (open_folder / "of another program").open("w"):  # which stays when the object is freed
        result = run_check(bench_of(transport, torch.Tensor), "test_nobody_else_can_read_the_data")
    assert [thing.reach for thing in result.facts[EXPOSURE]] == ([reach] if reach else [])
    assert [failure.clause for failure in result.failures] == (["R7"] if broken else [])
