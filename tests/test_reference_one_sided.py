"""The one-sided reference transports, driven directly: two instances in one process, metadata pickled in between."""

from __future__ import annotations

import dataclasses
import gc
import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from ray.experimental import CommunicatorMetadata, TensorTransportMetadata

from reference_transports.cross_memory import CrossMemoryTransport
from reference_transports.inline import InlineTransport
from reference_transports.shared_memory import SharedMemoryTransport

pytestmark = pytest.mark.timeout(60)

COMMUNICATOR = CommunicatorMetadata()
# Fails a test of its own if torch gains a dtype that the transports turn out not to carry.
DTYPES = sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str)
QUANTIZED = [dtype for dtype in DTYPES if str(dtype).startswith(("torch.qint", "torch.quint"))]
PLAIN = [dtype for dtype in DTYPES if dtype not in QUANTIZED]


SNAPSHOTS = [InlineTransport, SharedMemoryTransport]


@pytest.fixture(params=[*SNAPSHOTS, CrossMemoryTransport])
def kind(request: pytest.FixtureRequest) -> type:
    return request.param


@pytest.fixture(scope="module", autouse=True)
def _without_what_other_tests_left() -> None:
    gc.collect()


@pytest.fixture(autouse=True)
def _no_leaks() -> Iterator[None]:
    before = _open_files()
    yield
    if _open_files() > before:
        gc.collect()  # slow, and needed only where an error's traceback holds a transport
    assert _open_files() <= before  # there may be fewer: a thread of an earlier test has ended meanwhile


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _segments() -> int:
    """How many of this process's descriptors are in shared memory."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue
    return sum(link.startswith("/dev/shm/") for link in links)


def _extract(source: Any, tensors: list[Any], obj_id: str = "object") -> Any:
    """The metadata as a receiver gets it."""
    return pickle.loads(pickle.dumps(source.extract_tensor_transport_metadata(obj_id, tensors)))


def _carry(kind: type, tensors: list[Any], buffers: list[Any] | None = None) -> list[Any]:
    source = kind()
    metadata = _extract(source, tensors)
    received = kind().recv_multiple_tensors("object", metadata, COMMUNICATOR, buffers)
    source.garbage_collect("object", metadata, tensors)
    return received


def _bits(tensor: Any) -> tuple[Any, ...]:
    if isinstance(tensor, np.ndarray):
        return tensor.shape, tensor.dtype, tensor.tobytes()
    plain = tensor.detach().resolve_conj().resolve_neg()
    return tensor.shape, tensor.dtype, plain.contiguous().view(-1).view(torch.uint8).tolist()


def _assert_delivered(received: list[Any], sent: list[Any]) -> None:
    assert [_bits(tensor) for tensor in received] == [_bits(tensor) for tensor in sent]
    for tensor in received:
        if isinstance(tensor, np.ndarray):
            assert tensor.flags.c_contiguous and tensor.flags.writeable and tensor.flags.owndata
        else:
            assert tensor.is_contiguous() and not tensor.requires_grad and not tensor.is_conj() and not tensor.is_neg()


def _random(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    count = int(np.prod(shape))
    data = np.random.default_rng(7).integers(0, 2 if dtype is torch.bool else 256, count * dtype.itemsize, np.uint8)
    return torch.from_numpy(data).view(dtype).view(shape)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", PLAIN, ids=str)
def test_every_dtype_arrives_bit_by_bit(kind: type, dtype: torch.dtype) -> None:
    sent = [_random(dtype, 3, 5), torch.empty((), dtype=dtype), torch.empty((0, 3), dtype=dtype)]
    _assert_delivered(_carry(kind, sent), sent)


def _views() -> dict[str, torch.Tensor]:
    base = torch.arange(24.0).view(4, 6)
    waves = torch.complex(torch.arange(6.0), torch.arange(6.0) + 10).view(2, 3)
    return {
        "transposed": base.t(),
        "strided": base[::2, 1::3],
        "offset": base[2:],
        "expanded": base[:1].expand(5, 6),
        "overlapping": base.view(-1).as_strided((5, 4), (2, 1)),
        "channels last": torch.arange(48.0).view(1, 3, 4, 4).to(memory_format=torch.channels_last),
        "conjugated": waves.conj(),
        "conjugated and strided": waves.conj().t(),
        "negated": waves.conj().imag,
        "requires grad": base.clone().requires_grad_(),
        "in a graph": base.clone().requires_grad_() * 2,
        "parameter": torch.nn.Parameter(base.clone()),
        "scalar": torch.tensor(3.5),
        "signalling NaN": torch.tensor([0x7F800001], dtype=torch.int32).view(torch.float32),
    }


@pytest.mark.parametrize("name", _views())
def test_every_view_arrives(kind: type, name: str) -> None:
    sent = [_views()[name]] * 2
    _assert_delivered(_carry(kind, sent), sent)


def _arrays() -> dict[str, np.ndarray]:
    base = np.arange(24.0).reshape(4, 6)
    record = np.dtype([("id", "i4"), ("x", "f8", 2)])
    return {
        "plain": base,
        "Fortran": np.asfortranarray(base),
        "backwards": base[::-1, ::-2],
        "foreign byte order": base.astype(">f4"),
        "broadcast": np.broadcast_to(np.float32(3), (4, 5)),
        "scalar": np.array(7, np.int16),
        "empty": np.empty((0, 4), np.float16),
        "records": np.zeros(5, record)[::2],
        "dates": np.array(["2024-02-29", "NaT"], "M8[D]"),
        "text": np.array(["a", "bc"]),
        "empty text": np.ndarray((3,), np.dtype("S0")),
        "long double": np.arange(3, dtype=np.longdouble),
    }


@pytest.mark.parametrize("name", _arrays())
def test_every_array_arrives(kind: type, name: str) -> None:
    sent = [_arrays()[name]] * 2
    _assert_delivered(_carry(kind, sent), sent)


def test_many_small_and_one_large(kind: type) -> None:
    sent = [torch.full((1 + i % 5,), i) for i in range(3000)] + [_random(torch.uint8, (3 << 20) + 1)]
    _assert_delivered(_carry(kind, sent), sent)


def test_an_object_without_tensors(kind: type) -> None:
    source = kind()
    metadata = _extract(source, [])
    assert metadata.tensor_meta == [] and metadata.tensor_device is None
    assert kind().recv_multiple_tensors("object", metadata, COMMUNICATOR) == []
    source.garbage_collect("object", metadata, [])


def _freed() -> torch.Tensor:
    tensor = torch.ones(3)
    tensor.untyped_storage().resize_(0)
    return tensor


ONES = torch.ones(3)
REFUSED: dict[str, tuple[Callable[[], list[Any]], str]] = {
    "sparse": (lambda: [ONES, ONES.to_sparse()], r"tensor 1.*sparse"),
    "nested": (lambda: [torch.nested.nested_tensor([ONES, ONES[:2]])], r"nested"),
    "jagged": (lambda: [torch.nested.nested_tensor([ONES, ONES[:2]], layout=torch.jagged)], r"NestedTensor"),
    "quantized": (lambda: [torch.quantize_per_tensor(ONES, 0.1, 0, torch.qint8)], r"quantized"),
    "meta": (lambda: [ONES.to("meta")], r"device meta"),
    "mixed devices": (lambda: [ONES, ONES.to("meta")], r"device type.*cpu and meta"),
    "subclass": (lambda: [ONES.as_subclass(type("Tagged", (torch.Tensor,), {}))], r"Tagged"),
    "freed storage": (lambda: [_freed()], r"no memory"),
    "not a tensor": (lambda: [ONES, "text"], r"tensor 1.*str"),
    "objects": (lambda: [np.array([object()])], r"Python objects"),
    "record with objects": (lambda: [np.zeros(2, [("a", "O")])], r"Python objects"),
    "variable-width text": (lambda: [np.array(["a"], np.dtypes.StringDType())], r"Python objects"),
    "masked": (lambda: [np.ma.masked_array([1, 2], [True, False])], r"MaskedArray"),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_carried_is_refused_and_leaves_nothing(kind: type, name: str) -> None:
    make, message = REFUSED[name]
    tensors, source = make(), kind()
    before = _open_files()
    with pytest.raises(ValueError, match=message):
        source.extract_tensor_transport_metadata("object", tensors)
    assert _open_files() <= before
    _assert_delivered(_carry(kind, [torch.ones(2)]), [torch.ones(2)])


def test_the_source_tensors_stay_untouched_and_unreferenced(kind: type) -> None:
    tensors = [torch.arange(6.0), torch.arange(6.0).view(2, 3).t()]
    versions, bits = [tensor._version for tensor in tensors], [_bits(tensor) for tensor in tensors]
    source = kind()
    metadata = source.extract_tensor_transport_metadata("object", tensors)
    assert [tensor._version for tensor in tensors] == versions
    assert [_bits(tensor) for tensor in tensors] == bits
    tensors[0].resize_(100)  # numpy() would have forbidden it
    ghosts = [weakref.ref(tensor) for tensor in tensors]
    tensors.clear()
    assert [ghost() for ghost in ghosts] == [None, None]
    source.garbage_collect("object", metadata, [])


@pytest.mark.parametrize("kind", SNAPSHOTS)
def test_receivers_get_independent_snapshots(kind: type) -> None:
    tensor = torch.arange(4)
    source, receiver = kind(), kind()
    metadata = _extract(source, [tensor])
    tensor.zero_()
    first = receiver.recv_multiple_tensors("object", metadata, COMMUNICATOR)
    first[0].fill_(9)
    second = receiver.recv_multiple_tensors("object", metadata, COMMUNICATOR)
    source.garbage_collect("object", metadata, [tensor])
    _extract(source, [torch.full((4,), 5)], "another")
    assert first[0].tolist() == [9] * 4 and second[0].tolist() == [0, 1, 2, 3]


def test_target_buffers_are_filled_and_returned(kind: type) -> None:
    sent = [torch.arange(6.0).view(2, 3), np.arange(4, dtype=">i2"), torch.empty(0)]
    around = torch.zeros(10)
    buffers = [around[2:8].view(2, 3), np.zeros(4, ">i2"), torch.empty(0)]
    for _ in range(2):
        version = around._version
        received = _carry(kind, sent, buffers)
        assert all(given is buffer for given, buffer in zip(received, buffers, strict=True))
        _assert_delivered(received, sent)
        assert around.tolist() == [0, 0, 0, 1, 2, 3, 4, 5, 0, 0]
        assert around._version > version  # autograd is told
    assert _carry(kind, [], []) == []


@pytest.mark.parametrize(
    "second",
    [
        torch.zeros(4),
        torch.zeros(3, dtype=torch.int32),
        torch.zeros(6)[::2],
        torch.zeros(3, device="meta"),
        np.zeros(3, np.float32),
        torch.zeros(3, dtype=torch.complex64).conj().imag,
        None,
    ],
    ids=["shape", "dtype", "strided", "device", "library", "lazily negated", "missing"],
)
def test_buffers_that_do_not_fit_are_refused_before_anything_is_written(kind: type, second: Any) -> None:
    first = torch.zeros(3)
    buffers = [first] if second is None else [first, second]
    with pytest.raises(ValueError, match=r"buffer|device"):
        _carry(kind, [torch.ones(3), torch.ones(3)], buffers)
    assert first.tolist() == [0, 0, 0] and first._version == 0


def test_a_read_only_buffer_is_refused(kind: type) -> None:
    buffer = np.zeros(3)
    buffer.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        _carry(kind, [np.ones(3)], [buffer])


def test_garbled_metadata_is_an_error(kind: type) -> None:
    source, receiver = kind(), kind()
    metadata = _extract(source, [torch.ones(3), torch.ones(2)])
    garbled: list[Any] = [
        TensorTransportMetadata(metadata.tensor_meta, "cpu"),
        None,
        dataclasses.replace(metadata, tensor_meta=metadata.tensor_meta[:1]),
        dataclasses.replace(metadata, tensor_meta=[((1 << 40,), torch.float32)] * 2),
        dataclasses.replace(metadata, tensor_meta=["shape", "dtype"]),
        dataclasses.replace(metadata, tensor_meta=None),
    ]
    if kind is InlineTransport:
        garbled += [
            dataclasses.replace(metadata, payload=payload) for payload in ([], [b"", b""], [metadata.payload[0]])
        ]
    if kind is SharedMemoryTransport:
        with open("/proc/self/status") as other:
            changes: list[dict[str, Any]] = [
                {"token": metadata.token[:-1]},
                {"token": b""},
                {"token": bytes(16)},
                {"pid": 1 << 30},
                {"pid": "../self"},
                {"fd": -1},
                {"fd": other.fileno()},
            ]
            pipe = os.pipe()
            changes.append({"fd": pipe[0]})
            for change in changes:
                with pytest.raises((RuntimeError, ValueError)):
                    receiver.recv_multiple_tensors("object", dataclasses.replace(metadata, **change), COMMUNICATOR)
            for end in pipe:
                os.close(end)
    for wrong in garbled:
        with pytest.raises((RuntimeError, ValueError)):
            receiver.recv_multiple_tensors("object", wrong, COMMUNICATOR)
    _assert_delivered(receiver.recv_multiple_tensors("object", metadata, COMMUNICATOR), [torch.ones(3), torch.ones(2)])


@pytest.mark.parametrize("kind", SNAPSHOTS)
def test_extract_again_gives_the_same_and_one_free_frees_all(kind: type) -> None:
    tensors = [torch.arange(100)]
    source = kind()
    first, again = _extract(source, tensors), _extract(source, tensors)
    assert first == again
    assert _segments() <= 1
    source.garbage_collect("object", first, tensors)
    source.garbage_collect("object", again, tensors)
    source.garbage_collect("never seen", again, tensors)


def test_four_threads_at_once(kind: type) -> None:
    source, receiver = kind(), kind()
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(60):
                sent = [torch.full((257,), number * 1000 + turn), torch.full((turn,), number)]
                obj_id = f"{'f' * 40}{number}-{turn}"
                metadata = _extract(source, sent, obj_id)
                received = receiver.recv_multiple_tensors(obj_id, metadata, COMMUNICATOR)
                assert all(torch.equal(a, b) for a, b in zip(received, sent, strict=True))
                source.garbage_collect(obj_id, metadata, sent)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failures and not any(thread.is_alive() for thread in threads)


def test_metadata_is_small() -> None:
    source = SharedMemoryTransport()
    tensors = [torch.ones(64, 3 + i) for i in range(1000)]
    assert len(pickle.dumps(source.extract_tensor_transport_metadata("object", tensors))) < 50_000


_OTHER_PROCESS = """
import pickle, sys, numpy, torch
from reference_transports.shared_memory import SharedMemoryTransport

def put(value):
    pickle.dump(value, sys.stdout.buffer)
    sys.stdout.buffer.flush()

transport = SharedMemoryTransport()
put(transport.extract_tensor_transport_metadata("theirs", [torch.arange(1000), numpy.arange(5.0)[::-1]]))
(tensor,) = transport.recv_multiple_tensors("ours", pickle.load(sys.stdin.buffer), None)
put(transport.extract_tensor_transport_metadata("doubled", [tensor * 2]))
sys.stdin.buffer.read()  # until killed
"""


def test_between_processes_and_after_a_kill() -> None:
    transport = SharedMemoryTransport()
    ours, theirs = torch.arange(6).view(2, 3).t(), [torch.arange(1000), np.arange(5.0)[::-1]]
    with subprocess.Popen(
        [sys.executable, "-c", _OTHER_PROCESS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as other:
        assert other.stdin and other.stdout
        try:
            metadata = pickle.load(other.stdout)
            received = transport.recv_multiple_tensors("theirs", metadata, COMMUNICATOR)
            _assert_delivered(received, theirs)
            pickle.dump(transport.extract_tensor_transport_metadata("ours", [ours]), other.stdin)
            other.stdin.flush()
            doubled = transport.recv_multiple_tensors("doubled", pickle.load(other.stdout), COMMUNICATOR)
            _assert_delivered(doubled, [ours * 2])
        finally:
            other.kill()
    with pytest.raises(RuntimeError, match="is gone"):
        transport.recv_multiple_tensors("theirs", metadata, COMMUNICATOR)
    _assert_delivered(received, theirs)
