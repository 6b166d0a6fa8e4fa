"""The benchmarks' contents on a device. The host's memory stands for a GPU's: the same is done with it."""

from __future__ import annotations

import pytest
import torch

from rdt_conformance.bench import contents, device_contents
from rdt_conformance.bench.contents import Contents, Load, flat
from rdt_conformance.bench.device_contents import DevicePool, device_of

START = 8 * 1021 * 3
"""Of the third turn, in the bytes from which all turns' contents are taken."""
LOADS = (
    flat(100_007, 7),
    flat(0),
    flat(3000),
    Load(((3, 5), (), (0,), (1000,)), ("bfloat16", "int64", "float32", "uint8"), seed=3),
)


@pytest.fixture(autouse=True)
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_contents, "_AT_ONCE", 1000)  # so that a few thousand bytes come in pieces


def filled(load: Load) -> tuple[DevicePool, list[torch.Tensor]]:
    pool, tensors = DevicePool(Contents(load)._pool, torch.device("cpu")), load.empty()
    pool.fill(tensors, START)
    return pool, tensors


@pytest.mark.parametrize("load", LOADS, ids=str)
def test_a_device_has_the_bytes_that_the_host_has(load: Load) -> None:
    pool, tensors = filled(load)
    assert Contents(load).wrong(tensors, 3) == ""
    assert pool.first_wrong(tensors, START) is None
    if load.nbytes:
        assert pool.first_wrong(tensors, START + 8) is not None


@pytest.mark.parametrize("at", [0, 999, 1000, 14_286, 14_287, 60_000, 100_006])
def test_one_wrong_byte_anywhere_is_found_there_too(at: int) -> None:
    load = flat(100_007, 7)
    pool, tensors = filled(load)
    number, within = next(
        (number, at - sum(load.sizes[:number])) for number in range(7) if at < sum(load.sizes[: number + 1])
    )
    tensors[number][within] ^= 1
    assert pool.first_wrong(tensors, START) == (at, int(tensors[number][within]))
    assert Contents(load).wrong(tensors, 3).startswith(f"byte {within} of tensor {number} is 0x")


def test_what_is_not_contiguous_is_compared_in_the_order_of_its_elements() -> None:
    load = Load(((40, 50),), ("float32",))
    pool, tensors = filled(load)
    turned = tensors[0].t().contiguous().t()
    assert not turned.is_contiguous() and pool.first_wrong([turned], START) is None


@pytest.mark.parametrize("load", LOADS, ids=str)
def test_contents_are_told_from_others_where_they_are(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a GPU, of which the host takes the place."""
    monkeypatch.setattr(contents, "device_of", lambda values: torch.device("cpu"))
    monkeypatch.setattr(Contents, "_first_wrong", lambda *_: pytest.fail("not on the host"))
    there, tensors = Contents(load), load.empty()
    there.fill(tensors, 5)
    assert there.wrong(tensors, 5) == ""
    if load.nbytes:
        assert there.wrong(tensors, 6) != ""
        tensors[-1].view(-1).view(torch.uint8)[-1] ^= 1
        last = load.sizes[-1] - 1
        assert there.wrong(tensors, 5).startswith(f"byte {last} of tensor {load.count - 1} is 0x")
        with pytest.raises(ValueError, match="are to be sent"):
            there.fill(tensors[:-1], 5)


def test_only_what_is_all_on_one_device_is_compared_there() -> None:
    here, there = torch.empty(1), torch.empty(1, device="meta")
    assert device_of([there, there]) == torch.device("meta")
    for several in ([], [here], [here, there], [there, None]):
        assert device_of(several) is None
