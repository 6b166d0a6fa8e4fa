"""Other data than tensors: what is right passes, what is wrong is caught by name, and what cannot be sent is said."""

from __future__ import annotations

import gc
import importlib.util
import pickle
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from check_run import bench_on, run_check
from subjects import ragged
from subjects.arrow_ipc import ArrowIpcTransport
from subjects.jax_bytes import ARRAY
from subjects.ragged import Ragged, RaggedKind, RaggedTransport
from suite_run import ROOT

from rdt_conformance import ANYTHING, TransportProfile, ValueKind
from rdt_conformance.bench.contents import Contents, Load, read_first
from rdt_conformance.bench.local import LocalPair
from rdt_conformance.contract import CLAUSES
from rdt_conformance.data_types import data_type_of
from rdt_conformance.locate import TargetProblem
from rdt_conformance.payloads import kind_for
from rdt_conformance.target import resolve, type_name

KINDS: dict[str, Any] = {"arrow": kind_for(pa.Table), "jax": kind_for(ARRAY), "own": kind_for(Ragged, RaggedKind())}
EVERY_FORM = "test_every_dtype_and_number_of_dimensions_arrives"
AGAIN = "test_memory_that_is_allocated_again_in_another_size"
CHECKS = {
    EVERY_FORM: "D1",
    "test_any_tensors_arrive_or_are_refused": "D3",
    "test_metadata_describe_every_tensor": "M1",
    "test_extract_leaves_the_tensors_as_they_were": "M5",
    "test_freeing_one_object_keeps_those_that_share_its_memory": "G4",
}
WRONG = {
    "arrow_ipc:FIRST_BATCH": (EVERY_FORM, "D1", "several chunks arrived changed: tensor 0: has 25 rows, sent 100"),
    "arrow_ipc:FORGETS": (
        EVERY_FORM,
        "D1",
        "column of double with nulls arrived changed: tensor 0: column c0 (",
    ),
    "arrow_ipc:WHOLE": ("test_a_small_view_moves_its_own_bytes_only", "D7", "to move a view of"),
    "arrow_ipc:REMEMBERS": (AGAIN, "G8", "what arrived at actor2 differs: tensor 0: has "),
    "jax_bytes:BFLOAT16": (EVERY_FORM, "D1", "bfloat16 arrived changed: tensor 0: byte "),
    "jax_bytes:SCALARS": (EVERY_FORM, "D1", "float32[] arrived changed: tensor 0: has shape [1], sent []"),
    "numpy_npy:SCALARS": (EVERY_FORM, "D1", "float32[] arrived changed: tensor 0: has shape [1], sent []"),
    "ragged:EMPTY_ROWS": (EVERY_FORM, "D1", "rows without elements arrived changed: tensor 0: has rows of [2, 3]"),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


@pytest.mark.parametrize("module", ["arrow_ipc", "jax_bytes", "numpy_npy", "ragged"])
def test_what_is_right_passes(module: str) -> None:
    bench = bench_on(resolve(f"subjects.{module}:PROFILE"))
    checks = CHECKS | ({AGAIN: "G8"} if bench.target.payload_kind.in_chosen_memory else {})
    try:
        for name, clause in checks.items():
            result = run_check(bench, name)
            assert (result.outcome, result.reason, result.failures) == ("passed", "", ()), name
            assert clause in result.seen, name
    finally:
        bench.close()


@pytest.mark.parametrize("target", WRONG)
def test_what_is_wrong_is_caught(target: str) -> None:
    name, clause, happened = WRONG[target]
    bench = bench_on(resolve(f"subjects.{target}"))
    try:
        (failure,) = run_check(bench, name).failures
    finally:
        bench.close()
    assert (failure.clause, failure.happened[: len(happened)]) == (clause, happened)


def test_what_cannot_be_asked_of_a_data_type_is_not_applicable() -> None:
    targets = {name: resolve(f"subjects.{name}:PROFILE") for name in ("arrow_ipc", "jax_bytes", "numpy_npy", "ragged")}
    bound = {name: {id for id in CLAUSES if target.applies(CLAUSES[id])} for name, target in targets.items()}
    missing = {name: sorted(bound["numpy_npy"] - clauses) for name, clauses in bound.items()}
    written = ["D5", "D5r", "D8b", "O5", "O6"]
    parts = sorted([*written, "D7"])
    assert missing == {"numpy_npy": [], "arrow_ipc": written, "jax_bytes": parts, "ragged": parts}


def test_values_are_judged_by_their_kind(kind: Any) -> None:
    for payload in [*kind.every_contiguous(), *kind.every_view(), kind.simple(1000, count=3)]:
        assert payload.differences(payload.build()) == []
        assert payload.differences([*payload.build(), None]) == [
            f"{payload.count + 1} tensors arrived, sent {payload.count}"
        ]
        assert "is a int, not a" in payload.differences([7] * payload.count)[0]
        same = pickle.loads(pickle.dumps(payload))
        assert (same, hash(same)) == (payload, hash(payload)) and not same.differences(payload.build())
    assert all(kind.simple(64, seed=1).differences(kind.simple(64, seed=seed).build()) for seed in range(2, 30))
    assert all(each.differences(each.inverse().build()) for each in (kind.simple(size) for size in (1, 2, 1000)))
    assert [kind.simple(size, count=3).nbytes for size in (0, 1, 1000)] == [0, 1, 1000]


def test_whoever_keeps_a_values_memory_is_noticed(kind: Any) -> None:
    held: dict[str, Callable[[Any], Any]] = {
        "pyarrow.lib": lambda table: table.column(0).chunk(0).buffers()[1],
        "jaxlib._jax": np.asarray,
        "subjects.ragged": lambda value: value.values[3:],
    }
    values, lifetimes = kind.tracked(kind.simple(1000))
    kept = held[kind.data_type.__module__](values[0])
    values.clear()
    assert lifetimes.alive()
    del kept
    gc.collect()
    assert not lifetimes.alive()


def test_tables_are_equal_whatever_a_user_cannot_see() -> None:
    arrow = KINDS["arrow"]
    for payload in arrow.every_contiguous():
        (table,) = payload.build()
        assert payload.differences([table.combine_chunks()]) == []
        assert payload.differences([pa.concat_tables([table.slice(0, 1), table.slice(1)])]) == []


def _without_row_70(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(0, 70), table.slice(71), table.slice(0, 1)])


def _without_nulls(table: pa.Table) -> pa.Table:
    return table.set_column(2, table.field(2), table.column(2).fill_null(0.0))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: table.slice(1), "has 99 rows, sent 100"),
        (lambda table: table.rename_columns(["c0", "c1", "other"]), "has schema c0: int64, c1: string, other: double"),
        (lambda table: table.replace_schema_metadata({"more": "than sent"}), "has other metadata in its schema"),
        (
            _without_row_70,
            "column c0 (int64) differs, first in row 7",
        ),
        (
            _without_nulls,
            "column c2 (double) differs",
        ),
    ],
    ids=["rows", "names", "metadata", "one row", "nulls"],
)
def test_what_differs_in_a_table_is_named(change: Callable[[pa.Table], pa.Table], words: str) -> None:
    payload = next(each for each in KINDS["arrow"].every_contiguous() if "several chunks" in repr(each))
    (difference,) = payload.differences([change(*payload.build())])
    assert words in difference


def test_a_nan_is_as_good_as_another_only_if_its_bits_are() -> None:
    arrow, (one, other) = KINDS["arrow"].kind, np.array([0x7FF8 << 48, (0x7FF8 << 48) + 1], np.uint64).view(np.float64)
    tables = [pa.table({"c0": pa.array([number], from_pandas=False)}) for number in (one, other)]
    assert arrow.difference(tables[0], tables[0]) == ""
    assert arrow.difference(*tables) == "column c0 (double) differs, first in row 0"


def test_arrays_of_64_bits_are_sent_only_where_jax_makes_them() -> None:
    def dtypes() -> set[str]:
        return {name for name in KINDS["jax"].kind.forms() if "64" in name}

    assert dtypes() == {"complex64"}
    with jax.enable_x64(True):
        assert dtypes() == {"complex64", "float64", "int64", "uint64"}


# --- what cannot be sent ------------------------------------------------------------------------------------------


class _MakesOthers(RaggedKind):
    def build(self, form: Any, seed: int, memory: Any) -> Any:
        return np.zeros(3)


class _Forgets(RaggedKind):
    def difference(self, sent: Any, received: Any) -> str:
        return ""


class _Restless(RaggedKind):
    def difference(self, sent: Any, received: Any) -> str:
        return "is never the same"


class _Fails(RaggedKind):
    def forms(self) -> Any:
        raise RuntimeError("not today")


class _Slotted:
    __slots__ = ()


class _OfSlots(RaggedKind):
    data_type: ClassVar[type] = _Slotted

    def build(self, form: Any, seed: int, memory: Any) -> Any:
        return _Slotted()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "jax.Array": ({"data_type": jax.Array}, "data_type is jax.Array [profile], and no array is of exactly that class"),
    "unknown": ({"data_type": Ragged}, "carries subjects.ragged.Ragged [profile], which this suite cannot make by"),
    "no class": ({"data_type": "torch.Tensor"}, "data_type is 'torch.Tensor' [profile], which is no class"),
    "kind as class": ({"payload_kind": RaggedKind}, "payload_kind is the class RaggedKind; give an instance of it"),
    "no kind": ({"payload_kind": Ragged(*[np.zeros(1)] * 2)}, "payload_kind is a Ragged, which does not derive from"),
    "other type": ({"payload_kind": RaggedKind(), "data_type": pa.Table}, "payload_kind RaggedKind is of subjects."),
    "makes others": ({"payload_kind": _MakesOthers()}, "build() made a numpy.ndarray of 1 tensor: one row, not a "),
    "forgets": ({"payload_kind": _Forgets()}, "difference() sees none between two values of 256 bytes of different"),
    "restless": ({"payload_kind": _Restless()}, "two values of 1 tensor: one row, built alike, differ: tensor 0: is "),
    "fails": ({"payload_kind": _Fails()}, "payload_kind _Fails failed: RuntimeError: not today"),
    "no weak references": ({"payload_kind": _OfSlots()}, "_Slotted cannot be referred to weakly, so leaks could not"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_sent_is_said_in_one_line(name: str) -> None:
    given, said = REFUSED[name]
    with pytest.raises(TargetProblem) as raised:
        data_type_of("there:P", None, TransportProfile(RaggedTransport, **given), None)
    line, *frames = str(raised.value).splitlines()
    assert line.startswith("there:P") and said in line
    assert all(frame.startswith("  ") for frame in frames)


@pytest.mark.parametrize(("name", "package"), [("jax.Array", "jax"), ("pyarrow.Table", "pyarrow")])
def test_a_package_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, name: str, package: str) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda wanted: None if wanted == package else found(wanted))
    with pytest.raises(TargetProblem, match=rf"there: data type {name} needs the package {package}, .*pip install"):
        data_type_of("there", name, None, None)


def test_an_option_names_the_class_that_ray_must_be_told() -> None:
    assert data_type_of("there", "jax.Array", None, None)[0].value is ARRAY is type(jnp.arange(3))
    assert data_type_of("there", "pyarrow.Table", None, None)[0].value is pa.Table
    # and overrules a profile with a kind of its own
    assert data_type_of("there", "numpy.ndarray", ragged.PROFILE, None)[1] is None


def test_an_own_kind_may_be_of_a_type_that_is_known() -> None:
    class Whole(type(KINDS["arrow"].kind)):
        def meta(self, value: Any) -> tuple[Any, Any]:
            return ANYTHING, ANYTHING

    profile = TransportProfile(ArrowIpcTransport, payload_kind=Whole())
    fact, own = data_type_of("there", None, profile, None)
    assert (fact.value, own) == (pa.Table, profile.payload_kind)
    assert isinstance(own, ValueKind) and own != KINDS["arrow"].kind


def test_the_kind_in_the_docs_works(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parent.parent / "docs" / "data-types.md").read_text()
    source = text.partition("```python\n")[2].partition("```")[0]
    package = types.ModuleType("mypackage")
    package.MyTransport = RaggedTransport  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mypackage", package)
    module = types.ModuleType("docs_example")
    monkeypatch.setitem(sys.modules, "docs_example", module)
    exec(source, vars(module))
    fact, own = data_type_of("there", None, module.PROFILE, None)
    assert (fact.value, own) == (module.Polyline, module.PROFILE.payload_kind)


def test_benchmarks_send_arrays_of_jax_and_read_every_byte() -> None:
    dtypes = ("bfloat16", "int32", "float16", "uint8")
    load = Load(((3, 5), (), (0,), (1000,)), dtypes).adapted(type_name(ARRAY), "cpu", seed=3)
    contents, arrays = Contents(load), load.empty()
    contents.fill(arrays, 5)
    assert [type(array) for array in arrays] == [ARRAY] * 4
    assert contents.wrong(arrays, 5) == ""
    assert (
        contents.wrong(arrays, 6).startswith("byte ")
        and contents.wrong(arrays[:3], 5) == "3 tensors came where 4 were sent"
    )
    assert contents.wrong([*arrays[:3], np.asarray(arrays[3])], 5) == "tensor 3 is a ndarray"
    assert contents.wrong([*arrays[:3], arrays[3].view(jnp.int8)], 5) == "tensor 3 is int8[1000]"
    assert contents.wrong([*arrays[:3], arrays[3].at[999].add(1)], 5).startswith("byte 999 of tensor 3 is 0x")
    read_first(arrays)
    with pytest.raises(ValueError, match="JAX makes int32 of int64"):
        Load(((3,),), ("int64",), data_type=type_name(ARRAY)).empty()
    with pytest.raises(ValueError, match="999 bytes of a ArrayImpl, where 1000 are to be sent"):
        contents.fill([*arrays[:3], arrays[3][:999]], 5)


@pytest.mark.parametrize(
    ("name", "wrong"), [("JaxBytesTransport", ""), ("GivesScalarsADimension", "tensor 1 is float16[1]")]
)
def test_a_transport_of_jax_is_measured(name: str, wrong: str) -> None:
    load = Load(((100_000,), ()), ("uint8", "float16"), data_type=type_name(ARRAY))
    pair = LocalPair()
    try:
        contender = pair.contender("transport", f"{ROOT}/tests/subjects/jax_bytes.py:{name}", load)
        for turn in range(1, 4):
            contender.cycle(turn)
            assert contender.wrong(turn) == wrong
    finally:
        pair.close()
