"""Two versions of a package in one process."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from rdt_conformance.bench.versions import other_version

SHARED = "NUMBER = {number}\n\n\nclass Metadata:\n    number = {number}\n"
TRANSPORT = """
import versioned
import versioned.shared
import versioned.shared as renamed
from versioned.shared import NUMBER, Metadata
from .shared import NUMBER as RELATIVE

ALL = (NUMBER, RELATIVE, Metadata.number, versioned.shared.NUMBER, renamed.NUMBER)


def later():
    from versioned import shared
    return shared.NUMBER
"""


def _write(folder: Path, number: int) -> Path:
    package = folder / "versioned"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "shared.py").write_text(SHARED.format(number=number))
    (package / "transport.py").write_text(TRANSPORT)
    return package / "transport.py"


def test_each_sees_its_own_modules_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path / "new", 1)
    old = _write(tmp_path / "old", 2)
    monkeypatch.syspath_prepend(str(tmp_path / "new"))
    before = set(sys.modules)
    try:
        import versioned.transport as new  # type: ignore[import-not-found] # pyright: ignore[reportMissingImports]

        other = other_version(old)
        assert new.ALL == (1,) * 5 and new.later() == 1
        assert other.ALL == (2,) * 5 and other.later() == 2
        assert other is other_version(old)
        assert pickle.loads(pickle.dumps(other.Metadata())).number == 2
        assert pickle.loads(pickle.dumps(new.Metadata())).number == 1
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]
        sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "_Finder"]


def test_an_error_in_it_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "does_not_import.py"
    path.write_text("import versioned_nowhere")
    with pytest.raises(ModuleNotFoundError, match="versioned_nowhere"):
        other_version(path)
