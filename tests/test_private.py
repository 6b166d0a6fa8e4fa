"""A report tells nobody where this machine keeps things, or what it is called."""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

import pytest

from rdt_conformance import private
from rdt_conformance.private import without_places

PROJECT, HOME, INSTALLED = Path(__file__).parent.parent, Path.home(), sysconfig.get_paths()["purelib"]


@pytest.fixture(autouse=True)
def known_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "builder-17")
    private._places.cache_clear()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f'File "{PROJECT}/reference_transports/tcp.py", line 3', 'File "reference_transports/tcp.py", line 3'),
        (f"{INSTALLED}/ray/actor.py:7", "ray/actor.py:7"),
        (f"{sys.prefix}/bin/python -c 1", "python/bin/python -c 1"),
        (f"cannot open {HOME}/.cache/x", "cannot open ~/.cache/x"),
        (f"{HOME}ling and /opt{HOME}/x stay", f"{HOME}ling and /opt{HOME}/x stay"),
        ("builder-17 said: builder-17.local is not builder-170", "this-host said: this-host.local is not builder-170"),
        ("/dev/shm/rdt and /tmp/ray are everywhere", "/dev/shm/rdt and /tmp/ray are everywhere"),
    ],
)
def test_paths_are_told_from_where_everybody_knows_them(text: str, told: str) -> None:
    assert without_places(text) == told
    assert without_places({text: [text, 1, None]}) == {told: [told, 1, None]}


def test_what_lies_in_the_current_folder_is_told_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert without_places(f'File "{tmp_path}/mine.py"') == 'File "mine.py"'


def test_what_is_told_already_stays_as_it_is() -> None:
    told = without_places([f"{PROJECT}/a", f"{HOME}/b", "builder-17"])
    assert without_places(told) == told == json.loads(json.dumps(told))
