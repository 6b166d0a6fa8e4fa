"""The oracle: it notices every planted fault and never cries wolf."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import find, given, settings, strategies as st
from payload_tools import KINDS, both_kinds, flip, honest_copy, quick

from rdt_conformance.payloads import kind_for
from rdt_conformance.payloads.contents import Memory
from rdt_conformance.payloads.layouts import contiguous
from rdt_conformance.payloads.recipes import ArrayRecipe


@pytest.fixture(params=KINDS, scope="module")
def kind(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


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


def test_another_process_builds_the_same():
    payload = KINDS["numpy"].simple(5000, count=3, seed=7)
    script = (
        "import pickle, sys; payload = pickle.loads(sys.stdin.buffer.read()); "
        "sys.stdout.buffer.write(pickle.dumps([bytes(tensor.tolist()) for tensor in payload.build()]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=pickle.dumps(payload), stdout=subprocess.PIPE, timeout=60, check=True
    )
    for kind in KINDS.values():
        tensors = kind.simple(5000, count=3, seed=7).build()
        assert pickle.loads(done.stdout) == [bytes(tensor.tolist()) for tensor in tensors]


@quick
@given(both_kinds(min_tensors=1), st.data())
def test_one_flipped_bit_anywhere_is_noticed(drawn, data):
    _, payload = drawn
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
    first, second = payload.differences([other, one, last])
    assert first.startswith("tensor 0: byte 0 is") and first.endswith("; these are the bytes of tensor 1")
    assert second.startswith("tensor 1: byte 0 is") and second.endswith("; these are the bytes of tensor 0")


@quick
@given(both_kinds(min_tensors=1))
def test_lost_and_added_tensors_are_noticed(drawn):
    _, payload = drawn
    received, count = payload.build(), payload.count
    assert payload.differences(received[:-1]) == [f"{count - 1} tensors arrived, sent {count}"]
    assert payload.differences([*received, received[0]]) == [f"{count + 1} tensors arrived, sent {count}"]


@pytest.mark.parametrize("received", [None, 7, "tensor", torch.zeros(1), iter(())])
def test_what_is_no_list_is_a_difference(kind, received):
    assert kind.simple(1).differences(received) == [f"a {type(received).__name__} arrived instead of a list of tensors"]


@quick
@given(both_kinds(min_tensors=1))
def test_the_bytes_of_an_earlier_payload_are_noticed(drawn):
    _, payload = drawn
    stale = payload.inverse()
    assert bool(payload.differences(stale.build())) is bool(payload.nbytes)


def test_payloads_of_other_seeds_differ(kind):
    payloads = [kind.simple(64, seed=seed) for seed in range(50)]
    assert len({bytes(payload.build()[0].tolist()) for payload in payloads}) == 50
    assert all(a.differences(b.build()) for a, b in itertools.pairwise(payloads))


def test_wrong_dtype_and_shape_with_the_right_bytes_are_noticed():
    payload = dataclasses.replace(
        KINDS["torch"].simple(0), recipes=(ArrayRecipe(Memory("float32", 4, 12, 1), contiguous((3, 4))),)
    )
    (tensor,) = payload.build()
    assert payload.differences([tensor.view(torch.int32)]) == ["tensor 0: has dtype int32, sent float32"]
    assert payload.differences([tensor.view(4, 3)]) == ["tensor 0: has shape [4, 3], sent [3, 4]"]
    assert payload.differences([tensor.numpy()]) == ["tensor 0: is a ndarray, not a torch.Tensor"]


@pytest.mark.parametrize(("sent", "received"), [(">i4", "<i4"), ("int32", ">i4")])
def test_the_same_numbers_in_another_byte_order_are_no_difference(sent: str, received: str):
    recipe = ArrayRecipe(Memory(sent, 4, 3, 1), contiguous((3,)))
    payload = dataclasses.replace(KINDS["numpy"].simple(0), recipes=(recipe,))
    (array,) = payload.build()
    assert not payload.differences([array.astype(received)])
    other = array.astype(received)
    other[1] += 1
    assert "of 12 bytes differ" in payload.differences([other])[0]
    assert payload.differences([array.view(received)])
    assert payload.differences([array.astype("int64")]) == [f"tensor 0: has dtype int64, sent {sent}"]


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


@pytest.mark.parametrize("payload", [odd for kind in KINDS.values() for odd in kind.refusable_payloads()], ids=str)
def test_refusable_payloads_judge_themselves(payload):
    assert payload.differences(payload.build()) == []
    assert payload.differences([]) == ["0 tensors arrived, sent 1"]
    assert pickle.loads(pickle.dumps(payload)) == payload
    wrong = [torch.zeros(2, 3), np.zeros((2, 2)), None]
    assert all(payload.differences([each]) for each in wrong)


def test_a_dense_tensor_passes_for_a_sparse_one():
    sparse = next(odd for odd in KINDS["torch"].refusable_payloads() if odd.name == "sparse CSR tensor")
    assert sparse.differences([sparse.build()[0].to_dense()]) == []


def test_a_quantized_tensor_that_lost_its_scale_is_no_bug_of_torch():
    quantized = next(odd for odd in KINDS["torch"].refusable_payloads() if odd.name == "quantized tensor")
    (difference,) = quantized.differences([torch.empty(2, 3, dtype=torch.quint8)])
    assert difference.endswith("sent quantized tensor (its scale and zero point are lost)")


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

    @settings(quick, max_examples=1000, derandomize=True)
    @given(KINDS["torch"].payloads(max_bytes=1000))
    def collect(payload):
        for recipe in payload.recipes:
            seen.update((recipe.memory.dtype, recipe.memory.origin, recipe.layout.name, recipe.wrap))

    collect()
    assert seen >= {
        "float8_e4m3fn", "uint64", "complex32", "float4_e2m1fn_x2", "bool",
        "transposed", "channels last", "every second element", "expanded", "overlapping windows",
        "small view of a large memory", "at an offset",
        "requiring grad", "computed from a leaf",
        "lazily conjugated", "lazily negated", "numpy memory", "inference mode",
    }  # fmt: skip


def test_what_wraps_promise_holds():
    kind = KINDS["torch"]
    holds: dict[str, Callable[[torch.Tensor], bool]] = {
        "requiring grad": lambda tensor: tensor.is_leaf and tensor.requires_grad,
        "computed from a leaf": lambda tensor: not tensor.is_leaf,
        "lazily conjugated": lambda tensor: tensor.is_conj(),
        "lazily negated": lambda tensor: tensor.is_neg(),
        "inference mode": lambda tensor: tensor.is_inference(),
    }

    @settings(quick, max_examples=200)
    @given(kind.payloads(max_bytes=256))
    def check(payload):
        for recipe, tensor in zip(payload.recipes, payload.build(), strict=True):
            layout = recipe.layout
            assert tuple(tensor.shape) == layout.shape and tensor.stride() == layout.strides
            assert tensor.storage_offset() == layout.offset
            assert all(holds[word](tensor) for word in (recipe.wrap, recipe.memory.origin) if word in holds)

    check()


def test_hypothesis_shows_payloads_in_words(kind):
    @settings(quick, print_blob=False)
    @given(payload=kind.payloads(min_tensors=1))
    def fail(payload):
        raise AssertionError("as asked")

    with pytest.raises(AssertionError) as raised:
        fail()
    assert any("payload=1 tensor: float32[1]" in note for note in getattr(raised.value, "__notes__", ()))


@quick
@given(KINDS["torch"].payloads(plain=True, min_tensors=1))
def test_a_plain_tensor_is_no_view(payload):
    assert all(tensor._base is None for tensor in payload.build())


def test_an_unknown_type_is_named():
    with pytest.raises(ValueError, match=r"no payload kind is known for builtins\.list"):
        kind_for(list)


def test_the_package_imports_no_array_library():
    script = (
        "import sys, rdt_conformance.payloads; "
        "print([name for name in ('torch', 'numpy', 'hypothesis') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]", done.stdout
