"""The register is complete, well-formed, honest about its sources, and cheap to import."""

from __future__ import annotations

import ast
import dataclasses
import importlib.metadata
import importlib.util
import io
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from rdt_conformance import contract
from rdt_conformance.clause_table import PLAIN_WIDTH, print_clauses
from rdt_conformance.contract import CLAUSES, Applies, Area, Clause, Level

LETTERS = {
    Area.STATIC: "S",
    Area.METADATA: "M",
    Area.INTEGRITY: "D",
    Area.LIFECYCLE: "L",
    Area.ORDERING: "O",
    Area.FETCH: "F",
    Area.BUFFERS: "B",
    Area.CONCURRENCY: "X",
    Area.GC: "G",
    Area.ABORT: "A",
    Area.FAULTS: "R",
}
LAST = {"S": 9, "M": 8, "D": 9, "L": 14, "O": 6, "F": 8, "B": 7, "X": 3, "G": 11, "A": 11, "R": 11}
"""The numbers of each area are frozen: reports and lists of deviations name clauses by id."""
SECOND_HALVES = {"A4b", "D5r", "D8b", "G3b", "M4b"}
SHOULD = {
    "S7",
    "S9",
    "D7",
    "D8b",
    "L10",
    "F4",
    "F7",
    "B6",
    "B7",
    "X2",
    "G3b",
    "G9",
    "G10",
    "G11",
    "A4b",
    "M4b",
    "R5",
    "R7",
    "R11",
}
REPORT = {"D5r", "O6"}

PAGES = {"custom-tensor-transport.md", "direct-transport.md"}
RAY_FOLDERS = ("experimental/rdt", "_private", ".")

each_clause = pytest.mark.parametrize("entry", CLAUSES.values(), ids=list(CLAUSES))


def test_every_clause_is_there() -> None:
    frozen = {f"{letter}{number}" for letter, last in LAST.items() for number in range(1, last + 1)}
    assert set(CLAUSES) == frozen | SECOND_HALVES


def test_levels() -> None:
    assert {entry.id for entry in CLAUSES.values() if entry.level is Level.SHOULD} == SHOULD
    assert {entry.id for entry in CLAUSES.values() if entry.level is Level.REPORT} == REPORT


@each_clause
def test_id_is_well_formed(entry: Clause) -> None:
    match = re.fullmatch(r"([A-Z])[1-9]\d?([br]?)", entry.id)
    assert match, entry.id
    assert match[1] == LETTERS[entry.area]
    assert match[2] != "b" or entry.level is Level.SHOULD
    assert match[2] != "r" or entry.level is Level.REPORT


@each_clause
def test_texts_are_sentences(entry: Clause) -> None:
    for text, longest in ((entry.sentence, 220), (entry.suffers, 220), (entry.why, 260), (entry.fix, 260)):
        assert text.endswith(".") and len(text) <= longest
        assert text == " ".join(text.split()) and ".." not in text
    assert not entry.untested or len(entry.untested) > 20, "an untested clause says why"


@each_clause
def test_engines_exist_and_a_capability_is_named(entry: Clause) -> None:
    assert entry.engines and entry.engines <= contract.EVERYWHERE
    assert isinstance(entry.applies, Applies)


def test_areas_are_in_order_and_hold_every_clause_once() -> None:
    grouped = contract.by_area()
    assert list(grouped) == list(Area)
    assert [entry.id for entries in grouped.values() for entry in entries] == list(CLAUSES)


def test_same_id_twice_is_refused() -> None:
    twin = dataclasses.replace(contract.clause("G3"), sentence="Another one.")
    with pytest.raises(ValueError, match="two clauses have the id 'G3'"):
        contract.register([*CLAUSES.values(), twin])


def test_unknown_id_names_near_ones() -> None:
    assert contract.clause("G3") is CLAUSES["G3"]
    with pytest.raises(KeyError) as caught:
        contract.clause("g3a")
    assert str(caught.value) == "no clause has the id 'g3a'; did you mean G3, G3b?"
    with pytest.raises(contract.UnknownClauseError, match=r"^no clause has the id 'nonsense'; --rdt-clauses"):
        contract.clause("nonsense")


@each_clause
def test_sources_are_well_formed(entry: Clause) -> None:
    for source in entry.source.split("; "):
        assert re.fullmatch(r"(doc \S+|src \w+\.py \w+|(ray|nixl)#\d+)", source), source


@pytest.mark.skipif(
    not importlib.metadata.version("ray").startswith("2.60."), reason="the sources are written down for Ray 2.60"
)
@each_clause
def test_sources_are_where_the_register_says(entry: Clause) -> None:
    for source in entry.source.split("; "):
        kind, _, where = source.partition(" ")
        if kind == "src":
            file, _, name = where.partition(" ")
            assert name in words_of(file), source
        elif kind == "doc" and where.partition("#")[0] not in PAGES:
            assert where in interface(), source


@cache
def words_of(file: str) -> frozenset[str]:
    """Every word in one of Ray's source files, found without importing Ray."""
    found = [path for folder in RAY_FOLDERS if (path := ray_root() / folder / file).exists()]
    assert len(found) == 1, f"{file} is in {found}"
    return frozenset(re.findall(r"\w+", found[0].read_text()))


@cache
def interface() -> frozenset[str]:
    """Classes of the documented interface, and their methods as ``Class.method``."""
    tree = ast.parse((ray_root() / "experimental/rdt/tensor_transport_manager.py").read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    methods = [
        f"{node.name}.{item.name}" for node in classes for item in node.body if isinstance(item, ast.FunctionDef)
    ]
    return frozenset([node.name for node in classes] + methods)


def ray_root() -> Path:
    spec = importlib.util.find_spec("ray")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def test_import_is_light() -> None:
    code = """
import json, sys, time
start = time.process_time()
import rdt_conformance.contract
spent = time.process_time() - start
print(json.dumps([spent, sorted({name.partition(".")[0] for name in sys.modules})]))
"""
    # -I keeps PYTHON* variables and start-up hooks of a coverage run out; the path is given by hand.
    code = f"import sys; sys.path.insert(0, {str(Path(contract.__file__).parents[1])!r})\n{code}"
    run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    spent, modules = json.loads(run.stdout)
    assert not {"ray", "torch", "numpy", "hypothesis", "pytest", "rich"} & set(modules)
    assert spent < 0.1, f"importing the register took {spent:.3f} s of processor time"


def test_listing_shows_every_clause_and_its_checks_as_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    for forces_colour in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(forces_colour, raising=False)
    file = io.StringIO()
    print_clauses({"G3": ["test_free_twice", "test_free_late"]}, file)
    text = file.getvalue()
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= PLAIN_WIDTH
    assert [line for line in text.splitlines() if line.strip() == "STATIC"]
    shown = re.findall(r"^([A-Z]\d+[br]?) +(?:MUST|SHOULD|REPORT) ", text, flags=re.MULTILINE)
    assert shown == list(CLAUSES)
    assert "test_free_twice" in text and "test_free_late" in text
    assert text.count("no check") == len(CLAUSES) - 1
    must = sum(entry.level is Level.MUST for entry in CLAUSES.values())
    assert text.rstrip().endswith(f"{len(CLAUSES)} clauses: {must} MUST, {len(SHOULD)} SHOULD, {len(REPORT)} REPORT")


def test_listing_gives_the_reason_of_an_untested_clause(monkeypatch: pytest.MonkeyPatch) -> None:
    untested = dataclasses.replace(CLAUSES["G3"], untested="Nobody has found a way to see it from outside.")
    monkeypatch.setitem(CLAUSES, "G3", untested)
    file = io.StringIO()
    print_clauses({}, file)
    words = " ".join(file.getvalue().split())
    assert "not tested:" in words
