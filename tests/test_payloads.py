"""The oracle: it notices every planted fault and never cries wolf."""

from __future__ import annotations

import ctypes
import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import find, given, settings, strategies as st

from rdt_conformance.payloads import kind_for
from rdt_conformance.payloads.contents import Memory
from rdt_conformance.payloads.layouts import contiguous
from rdt_conformance.payloads.recipes import ArrayPayload, ArrayRecipe
from rdt_conformance.payloads.torch_memory import ReadOnlyMemory
from rdt_conformance.payloads.watching import MARGIN

KINDS: dict[str, Any] = {"torch": kind_for(torch.Tensor), "numpy": kind_for(np.ndarray)}
quick = settings(max_examples=60, deadline=None, database=None)


@pytest.fixture(params=KINDS, scope="module")
def kind(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


def honest_copy(tensor: Any) -> Any:
    """A contiguous copy made by the array library, without the oracle's help."""
    if isinstance(tensor, np.ndarray):
        return tensor.copy()
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())


def both_kinds(**limits: Any) -> st.SearchStrategy[tuple[Any, ArrayPayload]]:
    """A kind, and one of its payloads."""
    return st.one_of([st.tuples(st.just(kind), kind.payloads(**limits)) for kind in KINDS.values()])


def flip(tensor: Any, place: int) -> None:
    """Turn over the lowest bit of one byte of a contiguous tensor."""
    address = tensor.ctypes.data if isinstance(tensor, np.ndarray) else tensor.data_ptr()
    (ctypes.c_ubyte * 1).from_address(address + place)[0] ^= 1


@quick
@given(both_kinds())
def test_an_honest_copy_never_differs(drawn):
    _, payload = drawn
    assert payload.differences([honest_copy(tensor) for tensor in payload.build()]) == []


@quick
@given(both_kinds())
def test_what_was_built_never_differs_and_is_new_every_time(drawn):
    kind, payload = drawn
    one, other = payload.build(), payload.build()
    assert payload.differences(one) == payload.differences(other) == []
    assert not any(kind.share_memory(a, b) for a in one for b in other)


@quick
@given(both_kinds())
def test_a_recipe_survives_pickling(drawn):
    _, payload = drawn
    same = pickle.loads(pickle.dumps(payload))
    assert same == payload and hash(same) == hash(payload) and same.differences(payload.build()) == []


def test_another_process_builds_the_same(kind):
    payload = kind.simple(5000, count=3, seed=7)
    script = (
        "import pickle, sys; payload = pickle.loads(sys.stdin.buffer.read()); "
        "sys.stdout.buffer.write(pickle.dumps([bytes(tensor.tolist()) for tensor in payload.build()]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=pickle.dumps(payload), stdout=subprocess.PIPE, timeout=60, check=True
    )
    assert pickle.loads(done.stdout) == [bytes(tensor.tolist()) for tensor in payload.build()]


@quick
@given(both_kinds(min_tensors=1), st.data())
def test_one_flipped_bit_anywhere_is_noticed(drawn, data):
    kind, payload = drawn
    index = data.draw(st.integers(0, payload.count - 1))
    received = [honest_copy(tensor) for tensor in payload.build()]
    nbytes = payload.recipes[index].nbytes
    if not nbytes:
        return
    place = data.draw(st.integers(0, nbytes - 1))
    flip(received[index], place)
    (difference,) = payload.differences(received)
    assert difference.startswith(f"tensor {index}: byte {place} is 0x")
    assert f"1 of {nbytes} bytes differ" in difference


@quick
@given(both_kinds(min_tensors=2, plain=True), st.data())
def test_swapped_tensors_are_noticed(drawn, data):
    _, payload = drawn
    received = payload.build()
    received[0], received[1] = received[1], received[0]
    first, second = payload.recipes[:2]
    same = (first.memory.dtype, first.layout, bytes(first.values())) == (
        second.memory.dtype, second.layout, bytes(second.values()))  # fmt: skip
    assert bool(payload.differences(received)) is not same


def test_a_swap_is_named(kind):
    payload = kind.simple(300, count=3)
    one, other, last = payload.build()
    assert [words.partition("; 100 of 100")[2] or words for words in payload.differences([other, one, last])] != []
    assert all(
        words.endswith(f"these are the bytes of tensor {1 - index}")
        for index, words in enumerate(payload.differences([other, one, last]))
    )


@quick
@given(both_kinds(min_tensors=1))
def test_lost_and_added_tensors_are_noticed(drawn):
    _, payload = drawn
    received, count = payload.build(), payload.count
    assert payload.differences(received[:-1]) == [f"{count - 1} tensors arrived, sent {count}"]
    assert payload.differences([*received, received[0]]) == [f"{count + 1} tensors arrived, sent {count}"]


@pytest.mark.parametrize("received", [None, 7, "tensor", torch.zeros(1), iter(())])
def test_what_is_no_list_is_a_difference(kind, received):
    assert kind.simple(1).differences(received) == [
        f"a {type(received).__name__} arrived instead of a list of tensors"
    ]


@quick
@given(both_kinds(min_tensors=1))
def test_the_bytes_of_an_earlier_payload_are_noticed(drawn):
    _, payload = drawn
    stale = payload.inverse()
    assert bool(payload.differences(stale.build())) is bool(payload.nbytes)


def test_payloads_of_other_seeds_differ(kind):
    payloads = [kind.simple(64, seed=seed) for seed in range(50)]
    assert len({bytes(payload.build()[0].tolist()) for payload in payloads}) == 50
    assert all(a.differences(b.build()) for a, b in zip(payloads, payloads[1:], strict=False))


def test_wrong_dtype_and_shape_with_the_right_bytes_are_noticed():
    payload = dataclasses.replace(
        KINDS["torch"].simple(0), recipes=(ArrayRecipe(Memory("float32", 4, 12, 1), contiguous((3, 4))),)
    )
    (tensor,) = payload.build()
    assert payload.differences([tensor.view(torch.int32)]) == ["tensor 0: has dtype int32, sent float32"]
    assert payload.differences([tensor.view(4, 3)]) == ["tensor 0: has shape [4, 3], sent [3, 4]"]
    assert payload.differences([tensor.numpy()]) == ["tensor 0: is a ndarray, not a torch.Tensor"]


def test_byte_order_is_part_of_a_numpy_dtype():
    payload = dataclasses.replace(
        KINDS["numpy"].simple(0), recipes=(ArrayRecipe(Memory(">i4", 4, 3, 1), contiguous((3,))),)
    )
    (array,) = payload.build()
    assert payload.differences([array.astype("<i4")]) == ["tensor 0: has dtype int32, sent >i4"]


def test_every_negative_zero_and_nan_counts():
    kind = KINDS["torch"]
    payload = kind.simple(8)
    zeros = torch.zeros(2)
    kind.overwrite([zeros.view(torch.uint8)], payload)
    assert payload.differences([zeros.view(torch.uint8)]) == []
    sent = dataclasses.replace(payload.recipes[0], memory=Memory("float32", 4, 1, 1, bytes(4)), layout=contiguous((1,)))
    payload = dataclasses.replace(payload, recipes=(sent,))
    assert payload.differences([torch.tensor([0.0])]) == []
    assert payload.differences([torch.tensor([-0.0])]) == [
        "tensor 0: byte 3 is 0x80, sent 0x00 (element [0]); 1 of 4 bytes differ"
    ]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.empty(4, device="meta", dtype=torch.uint8),
        torch.eye(2, dtype=torch.uint8).to_sparse(),
        torch.empty(4, dtype=torch.uint8).set_(torch.UntypedStorage(4), 0, (4,), (1,)),
    ],
    ids=["meta", "sparse", "storage too small"],
)
def test_tensors_without_bytes_are_differences_and_no_crash(tensor):
    if tensor.layout is torch.strided and not tensor.is_meta:
        tensor.untyped_storage().resize_(2)
    (difference,) = KINDS["torch"].simple(4).differences([tensor])
    assert difference.startswith("tensor 0: ")


def test_many_differences_are_counted_not_listed(kind):
    payload = kind.simple(1000, count=100)
    differences = payload.differences(payload.inverse().build())
    assert len(differences) < 12 and differences[-1] == "92 more tensors differ"


def test_a_large_tensor_is_compared_beyond_the_first_piece(kind):
    payload = kind.simple((5 << 20) + 3)
    (tensor,) = payload.build()
    assert payload.differences([tensor]) == []
    flip(tensor, (5 << 20) + 1)
    assert payload.differences([tensor])[0].startswith("tensor 0: byte 5242881 is")


@quick
@given(both_kinds())
def test_comparing_changes_nothing(drawn):
    kind, payload = drawn
    tensors = payload.build()
    fingerprint = kind.fingerprint(tensors)
    payload.differences(tensors)
    payload.inverse().differences(tensors)
    kind.traits(tensors)
    kind.metas(tensors)
    assert fingerprint.changes(tensors) == []


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
@given(both_kinds(min_tensors=1))
def test_memories_die_with_their_last_tensor(drawn):
    kind, payload = drawn
    tensors, lifetimes = kind.tracked(payload)
    memories = len({recipe.memory for recipe in payload.recipes})
    assert lifetimes.alive() == memories
    last = tensors[-1]
    del tensors
    assert lifetimes.alive() == 1
    del last
    assert lifetimes.alive() == 0


KEPT_OF_TORCH: dict[str, Callable[[torch.Tensor], object]] = {
    "storage": lambda tensor: tensor.untyped_storage(),
    "detached": lambda tensor: tensor.detach(),
    "view": lambda tensor: tensor[5:6],
    "numpy view": lambda tensor: tensor.numpy()[3:],
    "memoryview": lambda tensor: memoryview(tensor.numpy()),
    "DLPack capsule": lambda tensor: tensor.__dlpack__(),
    "ctypes": lambda tensor: (ctypes.c_char * 4).from_buffer(tensor.numpy()),
    "closure": lambda tensor: lambda: tensor,
}
KEPT_OF_NUMPY: dict[str, Callable[[np.ndarray], object]] = {
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
    tensors = [torch.zeros(2, 3).t(), torch.zeros(1, requires_grad=True), inference, complex_tensor.conj(),
               torch.nn.Parameter(torch.zeros(1)), torch.zeros(1, device="meta"), torch.zeros(3).to_sparse()]  # fmt: skip
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


@pytest.mark.parametrize("payload", [odd for kind in KINDS.values() for odd in kind.refusable_payloads()], ids=str)
def test_refusable_payloads_judge_themselves(payload):
    assert payload.differences(payload.build()) == []
    assert payload.differences([]) == ["0 tensors arrived, sent 1"]
    assert pickle.loads(pickle.dumps(payload)) == payload
    wrong = [torch.zeros(2, 3), np.zeros((2, 2)), None]
    assert all(payload.differences([each]) for each in wrong)


def test_a_dense_tensor_passes_for_a_sparse_one_but_plain_data_not_for_masked_data():
    sparse = next(odd for odd in KINDS["torch"].refusable_payloads() if odd.name == "sparse CSR tensor")
    masked = next(odd for odd in KINDS["numpy"].refusable_payloads() if odd.name == "masked array")
    assert sparse.differences([sparse.build()[0].to_dense()]) == []
    assert masked.differences([np.asarray(masked.build()[0])]) != []


def test_what_shrinks_ends_at_one_small_plain_tensor(kind):
    minimal = find(kind.payloads(), lambda payload: payload.count > 0, settings=quick)
    assert str(minimal) == "1 tensor: float32[1]"
    minimal = find(kind.payloads(min_tensors=2), lambda _: True, settings=quick)
    assert str(minimal) == "2 tensors: 2 of float32[1]"
    minimal = find(
        kind.payloads(), lambda payload: any(recipe.layout.name for recipe in payload.recipes),
        settings=settings(quick, max_examples=300),
    )  # fmt: skip
    assert str(minimal) == "1 tensor: float32[1] at an offset"


@quick
@given(both_kinds(plain=True, min_tensors=1, max_tensors=3, max_bytes=500))
def test_plain_payloads_are_plain(drawn):
    kind, payload = drawn
    assert 1 <= payload.count <= 3
    assert all(recipe.nbytes <= 500 for recipe in payload.recipes)
    assert kind.traits(payload.build()) == []


def test_all_that_is_promised_is_drawn():
    seen: set[str] = set()

    @settings(max_examples=600, deadline=None, database=None)
    @given(KINDS["torch"].payloads(max_bytes=256))
    def collect(payload):
        for recipe in payload.recipes:
            seen.update((recipe.memory.dtype, recipe.memory.origin, recipe.layout.name, recipe.wrap))

    collect()
    assert seen >= {
        "float8_e4m3fn", "uint64", "complex32", "float4_e2m1fn_x2", "bool",
        "transposed", "channels last", "every second element", "expanded", "overlapping windows",
        "small view of a large memory", "at an offset",
        "requiring grad", "computed from a leaf", "nn.Parameter", "of a subclass", "lazily conjugated", "lazily negated",
        "numpy memory", "unaligned memory", "inference mode",
    }  # fmt: skip


def test_what_wraps_promise_holds():
    kind = KINDS["torch"]
    holds: dict[str, Callable[[torch.Tensor], bool]] = {
        "requiring grad": lambda tensor: tensor.is_leaf and tensor.requires_grad,
        "computed from a leaf": lambda tensor: not tensor.is_leaf,
        "nn.Parameter": lambda tensor: isinstance(tensor, torch.nn.Parameter),
        "of a subclass": lambda tensor: type(tensor) is not torch.Tensor,
        "lazily conjugated": lambda tensor: tensor.is_conj(),
        "lazily negated": lambda tensor: tensor.is_neg(),
        "unaligned memory": lambda tensor: not tensor.nbytes or tensor.data_ptr() % 2 == 1,
        "inference mode": lambda tensor: tensor.is_inference(),
    }

    @settings(max_examples=200, deadline=None, database=None)
    @given(kind.payloads(max_bytes=256))
    def check(payload):
        for recipe, tensor in zip(payload.recipes, payload.build(), strict=True):
            layout = recipe.layout
            assert tuple(tensor.shape) == layout.shape and tensor.storage_offset() == layout.offset
            assert tensor.stride() == layout.strides
            assert all(holds[word](tensor) for word in (recipe.wrap, recipe.memory.origin) if word in holds)
            assert (tensor._base is None) or not layout.contiguous or recipe.wrap or recipe.memory.origin

    check()


def test_hypothesis_shows_payloads_in_words(kind):
    @settings(quick, derandomize=True, print_blob=False)
    @given(payload=kind.payloads(min_tensors=1))
    def fail(payload):
        raise AssertionError("as asked")

    with pytest.raises(AssertionError) as raised:
        fail()
    assert any("payload=1 tensor: float32[1]" in note for note in raised.value.__notes__)


def test_an_unknown_type_is_named():
    with pytest.raises(ValueError, match=r"no payloads are known for builtins\.list, only for torch\.Tensor and numpy"):
        kind_for(list)


def test_the_package_imports_no_array_library():
    script = (
        "import sys, rdt_conformance.payloads; "
        "print([name for name in ('torch', 'numpy', 'hypothesis') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]", done.stdout
