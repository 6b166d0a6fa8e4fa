"""``rdt-conformance clause`` explains a clause, and says where it is written."""

from __future__ import annotations

import subprocess
import sys

import pytest
from suite_run import ROOT
from test_contract import each_clause, ray_root

from rdt_conformance import cli
from rdt_conformance.contract import Clause
from rdt_conformance.sources import sources


def test_all_that_is_known_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["clause", "M4", "g3B"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("M4 MUST (metadata)\n") and "\n\nG3b SHOULD (gc)\n" in told
    assert "\nwhat to do  Do not look at rdt_object[0]" in told
    assert "  pytest --transport=reference_transports.faulty.metadata:" in told
    assert "  class " in told, "the code of a transport that breaks it"


def test_a_clause_that_does_not_exist_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["clause", "G1", "g3a"]) == 4
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "no clause has the id 'g3a'; did you mean G3, G3b?\n"


def test_whoever_stops_reading_sees_no_traceback() -> None:
    told = subprocess.run(
        f"{sys.executable} -m rdt_conformance.cli clause G1 G2 D1 L1 | head -1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
    )
    assert told.stdout == "G1 MUST (gc)\n" and told.stderr == ""


@each_clause
def test_each_source_has_an_address(entry: Clause) -> None:
    for _, address in sources(entry.source):
        folder, _, file = address.partition("/python/ray/")
        assert folder.startswith("https://")
        assert not file or (ray_root() / file).is_file(), address


@pytest.mark.parametrize(
    "written",
    [
        "",
        "by word of mouth",
        "javascript:alert(1)",
        "ray#",
        "ray#1/../x",
        "<b>#3",
        "doc new-page.md#x",
        "src ../../../../../../evil/repo",
        "src a/../../b.py",
    ],
)
def test_what_is_no_source_has_no_address(written: str) -> None:
    assert sources(written) == [(written, "")]
