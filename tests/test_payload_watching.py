"""Buffers, guards, fingerprints, lifetimes, families and traits: what is watched besides the tensors that arrive."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from payload_tools import KINDS, both_kinds, flip, honest_copy, quick

from rdt_conformance.payloads.torch_memory import ReadOnlyMemory
from rdt_conformance.payloads.watching import MARGIN


@pytest.fixture(params=KINDS, scope="module")
def kind(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


@quick
@given(both_kinds(min_tensors=1))
def test_buffers_hold_other_bytes_until_they_are_filled(drawn):
    kind, payload = drawn
    for buffers in (kind.buffers(payload), kind.guarded_buffers(payload)[0]):
        assert payload.inverse().differences(buffers) == []
        assert bool(payload.differences(buffers)) is bool(payload.nbytes)
        assert kind.metas(buffers) == kind.metas(payload.build())
        assert kind.traits(buffers) == []
        kind.overwrite(buffers, payload)
        assert payload.differences(buffers) == []


@quick
@given(both_kinds(min_tensors=1))
def test_filling_guarded_buffers_is_no_damage(drawn):
    kind, payload = drawn
    buffers, guard = kind.guarded_buffers(payload)
    kind.overwrite(buffers, payload)
    assert guard.damage() == []


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (-1, "1 byte outside the buffers changed, the first 4159 bytes"),
        (100, "1 byte outside the buffers changed, the first 0 bytes after buffer 1 ends"),
    ],
)
def test_guards_notice_one_byte_before_and_after(kind, place, words):
    buffers, guard = kind.guarded_buffers(kind.simple(200, count=2))
    flip(buffers[1], place)
    (damage,) = guard.damage()
    assert damage.startswith(words[:30])
    assert ("before buffer 1 begins" in damage) is (place < 0)
    assert ("after buffer 1 ends" in damage) is (place > 0)


def test_guards_notice_a_byte_a_page_away(kind):
    buffers, guard = kind.guarded_buffers(kind.simple(10))
    flip(buffers[0], 10 + MARGIN - 1)
    assert guard.damage() == [f"1 byte outside the buffers changed, the first {MARGIN - 1} bytes after buffer 0 ends"]


@quick
@given(both_kinds(min_tensors=1, plain=True))
def test_overwriting_a_source_makes_it_the_other_payload(drawn):
    kind, payload = drawn
    tensors = payload.build()
    fingerprint = kind.fingerprint(tensors)
    kind.overwrite(tensors, payload.inverse())
    assert payload.inverse().differences(tensors) == []
    assert bool(fingerprint.changes(tensors)) or not payload.nbytes


TORCH_CHANGES: dict[str, Callable[[list[torch.Tensor]], object]] = {
    "byte 3 of its memory": lambda tensors: flip(tensors[0], 3),
    "version counter was 0, is 1": lambda tensors: torch.autograd.graph.increment_version(tensors[0]),
    "requires_grad was False": lambda tensors: tensors[0].requires_grad_(),
    "shape was [8], is [4, 2]": lambda tensors: tensors[0].resize_(4, 2),
    "strides was (1,), is (2,)": lambda tensors: tensors[0].set_(tensors[0].untyped_storage(), 0, (8,), (2,)),
    "storage offset was 0, is 1": lambda tensors: tensors[0].set_(tensors[0].untyped_storage(), 1, (8,), (1,)),
    "data pointer was": lambda tensors: tensors[0].share_memory_(),
}


@pytest.mark.parametrize("words", TORCH_CHANGES)
def test_fingerprints_notice_what_is_done_to_a_source(words):
    kind = KINDS["torch"]
    tensors = [torch.zeros(16)[:8]]
    fingerprint = kind.fingerprint(tensors)
    TORCH_CHANGES[words](tensors)
    assert any(words in change for change in fingerprint.changes(tensors))


def test_fingerprints_notice_bytes_beside_a_view(kind):
    base = torch.zeros(16, dtype=torch.uint8) if kind is KINDS["torch"] else np.zeros(16, np.uint8)
    fingerprint = kind.fingerprint([base[4:6], base[6:8]])
    flip(base, 15)
    assert fingerprint.changes([base[4:6], base[6:8]]) == [
        "tensor 0: byte 15 of its memory was 0x00, is 0x01; 1 bytes of it changed"
    ]


def test_fingerprints_notice_a_numpy_array_made_read_only():
    kind, array = KINDS["numpy"], np.zeros(3)
    fingerprint = kind.fingerprint([array])
    array.setflags(write=False)
    assert fingerprint.changes([array]) == ["tensor 0: writeable was True, is False"]


@quick
@given(both_kinds())
def test_memories_die_with_their_tensors(drawn):
    kind, payload = drawn
    tensors, lifetimes = kind.tracked(payload)
    del tensors
    assert lifetimes.alive() == 0


def test_memories_live_as_long_as_a_tensor_does(kind):
    tensors, lifetimes = kind.tracked(kind.simple(100, count=5))
    assert lifetimes.alive() == 5
    del tensors[1:4]
    assert lifetimes.alive() == 2


KEPT_OF_TORCH: dict[str, Callable[[Any], object]] = {
    "storage": lambda tensor: tensor.untyped_storage(),
    "detached": lambda tensor: tensor.detach(),
    "view": lambda tensor: tensor[5:6],
    "numpy view": lambda tensor: tensor.numpy()[3:],
    "memoryview": lambda tensor: memoryview(tensor.numpy()),
    "DLPack capsule": lambda tensor: tensor.__dlpack__(),
    "ctypes": lambda tensor: (ctypes.c_char * 4).from_buffer(tensor.numpy()),
    "closure": lambda tensor: lambda: tensor,
}
KEPT_OF_NUMPY: dict[str, Callable[[Any], object]] = {
    "view": lambda array: array[5:6],
    "memoryview": lambda array: memoryview(array),
    "torch tensor": lambda array: torch.from_numpy(array),
    "ctypes": lambda array: (ctypes.c_char * 4).from_buffer(array),
    "cast memoryview": lambda array: memoryview(array).cast("B")[4:],
}


@pytest.mark.parametrize(
    ("kind", "keep"),
    [
        *[pytest.param("torch", keep, id=f"torch, {name}") for name, keep in KEPT_OF_TORCH.items()],
        *[pytest.param("numpy", keep, id=f"numpy, {name}") for name, keep in KEPT_OF_NUMPY.items()],
    ],
    indirect=["kind"],
)
def test_whatever_keeps_memory_is_noticed(kind, keep):
    tensors, lifetimes = kind.tracked(kind.simple(100, count=2))
    kept = keep(tensors[1])
    del tensors
    assert lifetimes.alive() == 1
    del kept
    assert lifetimes.alive() == 0


def test_garbage_in_a_cycle_is_not_alive(kind):
    tensors, lifetimes = kind.tracked(kind.simple(10))
    cycle: list[Any] = [tensors]
    cycle.append(cycle)
    del tensors, cycle
    assert lifetimes.alive() == 0


def test_sharing_memory_is_about_bytes_not_extents(kind):
    base = torch.zeros(4, 6) if kind is KINDS["torch"] else np.zeros((4, 6))
    assert kind.share_memory(base, base[1:])
    assert kind.share_memory(base[:3], base[2:])
    assert not kind.share_memory(base[:2], base[2:])
    assert not kind.share_memory(base[:, :3], base[:, 3:])
    assert not kind.share_memory(base[:0], base)


@quick
@given(st.one_of([st.tuples(st.just(kind), kind.families(max_bytes=3000)) for kind in KINDS.values()]))
def test_members_of_a_family_share_memory_and_are_judged_each_by_its_own_recipe(drawn):
    kind, family = drawn
    members = family.build()
    for payload, tensors in zip(family.payloads, members, strict=True):
        assert payload.differences([honest_copy(tensor) for tensor in tensors]) == []
    first, second = members[0][0], members[1][0]
    assert kind.share_memory(first, second) is (family.name != "neighbouring views")
    assert (first is second) is family.name.startswith("the same")
    assert str(family).startswith(family.name)


def test_traits_name_every_deviation():
    kind = KINDS["torch"]
    with torch.inference_mode():
        inference = torch.zeros(2)
    complex_tensor = torch.zeros(2, dtype=torch.complex64)
    tensors = [
        torch.zeros(2, 3).t(),
        torch.zeros(1, requires_grad=True),
        inference,
        complex_tensor.conj(),
        torch.nn.Parameter(torch.zeros(1)),
        torch.zeros(1, device="meta"),
        torch.zeros(3).to_sparse(),
    ]
    assert kind.traits(tensors) == [
        "tensor 0: is not contiguous (shape [3, 2], strides [1, 3])",
        "tensor 1: requires grad",
        "tensor 2: is an inference tensor, which cannot be written outside of inference mode",
        "tensor 3: is lazily conjugated",
        "tensor 4: is a Parameter",
        "tensor 4: requires grad",
        "tensor 5: is on device meta, not cpu",
        "tensor 6: is a tensor of layout torch.sparse_coo",
    ]
    assert kind.traits([torch.zeros(3)]) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the memory of a process")
def test_memory_mapped_read_only_is_noticed(tmp_path):
    (tmp_path / "data").write_bytes(bytes(8192))
    array = np.memmap(tmp_path / "data", mode="r")
    tensor = torch.empty(0, dtype=torch.uint8)
    assert array.ctypes.data in ReadOnlyMemory()
    assert tensor.data_ptr() not in ReadOnlyMemory()
    assert KINDS["numpy"].traits([array, array[::2]])[1:] == [
        "tensor 0: is not writeable",
        "tensor 1: is a memmap",
        "tensor 1: is not contiguous (shape [4096], strides (2,))",
        "tensor 1: is not writeable",
    ]


@quick
@given(st.sampled_from(list(KINDS)), st.lists(st.integers(0, 300), min_size=1, max_size=3), st.integers(1, 300))
def test_a_room_is_allocated_again_at_the_same_address(name, sizes, largest):
    kind = KINDS[name]
    room = kind.room(kind.simple(max(largest, *sizes)))
    addresses = set()
    for seed, size in enumerate(sizes):
        payload = kind.simple(size, seed=seed)
        tensors = kind.build_in(room, payload)
        assert payload.differences(tensors) == [] and kind.traits(tensors) == []
        seen = kind.fingerprint(tensors)
        assert seen.memories[0].size == size, "each is alone in its memory"
        if size:
            addresses.add(seen.facts[0]["data pointer"])
    assert len(addresses) <= 1
