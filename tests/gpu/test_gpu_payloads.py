"""Payloads on a GPU: built, judged and watched as on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings

from rdt_conformance.payloads import kind_for

KIND = kind_for(torch.Tensor)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
"""The strategies ask the device for its dtypes when this file is collected, which it is everywhere."""

quick = settings(max_examples=50, deadline=None)


def honest_copy(tensor: Any) -> Any:
    return tensor.detach().resolve_conj().resolve_neg().clone()


@quick
@given(KIND.payloads(device=DEVICE))
def test_payloads_are_judged_the_same(payload: Any) -> None:
    tensors = payload.build("cuda")
    assert all(tensor.is_cuda for tensor in tensors)
    assert payload.differences([honest_copy(tensor) for tensor in tensors]) == []
    assert bool(payload.inverse().differences(tensors)) is bool(payload.nbytes)


@pytest.mark.parametrize("every", [KIND.every_contiguous, KIND.every_view])
def test_everything_that_there_is_can_be_built_and_read(every: Any) -> None:
    payloads = every("cuda")
    assert {"float8_e4m3fn", "bfloat16", "complex64", "bool"} <= {each.recipes[0].memory.dtype for each in payloads}
    for payload in payloads:
        tensors = payload.build("cuda")
        assert all(tensor.is_cuda for tensor in tensors)
        assert payload.differences(tensors) == []


@pytest.mark.parametrize("number", range(torch.cuda.device_count()))
def test_every_gpu_of_the_process_will_do(number: int) -> None:
    device = f"cuda:{number}"
    payload = KIND.simple(5_000, 3)
    tensors = payload.build(device)
    buffers, guard = KIND.guarded_buffers(payload, device)
    assert {str(tensor.device) for tensor in [*tensors, *buffers]} == {device}
    KIND.overwrite(buffers, payload)
    assert payload.differences(buffers) == guard.damage() == KIND.traits(tensors, "cuda") == []


@quick
@given(KIND.payloads(device=DEVICE, min_tensors=1))
def test_all_is_watched(payload: Any) -> None:
    tensors, lifetimes = KIND.tracked(payload, "cuda")
    fingerprint = KIND.fingerprint(tensors)
    buffers, guard = KIND.guarded_buffers(payload, "cuda")
    assert KIND.traits(buffers, "cuda") == []
    KIND.overwrite(buffers, payload)
    assert payload.differences(buffers) == guard.damage() == fingerprint.changes(tensors) == []
    del tensors
    assert lifetimes.alive() == 0


def test_damage_and_changes_are_noticed() -> None:
    payload = KIND.simple(200, count=2)
    buffers, guard = KIND.guarded_buffers(payload, "cuda")
    fingerprint = KIND.fingerprint(buffers)
    buffers[0].as_strided((101,), (1,)).bitwise_not_()
    assert len(guard.damage()) == 1
    assert fingerprint.changes(buffers) != []
    assert KIND.share_memory(buffers[0], buffers[0][1:])
    assert not KIND.share_memory(*buffers)
    assert KIND.traits(buffers) == [f"tensor {index}: is on device cuda:0, not cpu" for index in range(2)]


def test_memory_that_was_freed_is_allocated_again() -> None:
    room = KIND.room(KIND.simple(20_000), "cuda")
    addresses = set()
    for seed, size in enumerate((20_000, 300, 9_000)):
        payload = KIND.simple(size, seed=seed)
        tensors = KIND.build_in(room, payload)
        assert payload.differences(tensors) == []
        addresses.add(KIND.fingerprint(tensors).facts[0]["data pointer"])
        del tensors
    assert len(addresses) == 1


def test_a_comparison_waits_for_what_the_gpu_still_does() -> None:
    """On whatever stream: that contents are late is for the checks of D8 and D9 to find, with copies of their own."""
    payload = KIND.simple(1 << 20)
    (contents,), (tensor,) = payload.build("cuda"), payload.inverse().build("cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(1 << 28)
        tensor.copy_(contents)
    assert payload.differences([tensor]) == []
