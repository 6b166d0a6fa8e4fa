"""What the NCCL transport is built on: communicators of two that can be aborted, and the bytes that go through them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from reference_transports._layout import bytes_of, in_one_piece, lies_in_one_piece
from reference_transports._nccl import UNIQUE_ID_BYTES, Communicator, NcclError, unique_id
from reference_transports._pairs import SOURCE, GroupLost
from reference_transports._wire import Channel

_SMALL = 64 << 10
"""Tensors of fewer bytes travel together: they are copied to one place and from there."""
_EAGER_SECONDS = 0.002
_PAUSES_SECONDS = (0.00002, 0.001)
"""How long to pause before asking again whether something is done, at first and at last, after a time without any."""


class PairGroup:
    """A communicator of one source and one destination, each of which makes it at its end of a channel.

    The channel stays open. There, each side says what transfer it is about to begin, and begins when the other has said
    the same: NCCL does not know one transfer from another, and its kernels, once started, keep a GPU busy while they
    wait. And when one side gives up or dies, the channel closes, by which the other knows.

    Args:
        channel: is this group's from now on.
        rank: which of the two this is.
        device: the GPU.

    Raises:
        GroupLost: the other side has given up, or this one was made to.
        ValueError: both are on the same GPU.
        ConnectionError: NCCL cannot do it.
    """

    def __init__(self, channel: Channel, rank: int, device: torch.device) -> None:
        self._channel = channel
        self._communicator: Communicator | None = None
        self._turn = threading.Lock()
        self.device = device
        self._done = torch.cuda.Event()
        with self._ending_if_it_fails(), torch.cuda.device(device):
            self._communicator = Communicator(self._agree(rank), rank, device)
            self._until(self._communicator.is_ready)

    def _agree(self, rank: int) -> bytes:
        """An id for the communicator."""
        unique = b""
        if rank == SOURCE:
            unique = unique_id()
            self._channel.say(unique)
        else:
            unique = self._channel.hear()
        gpu = str(torch.cuda.get_device_properties(self.device).uuid)
        self._channel.say(gpu.encode())
        if self._channel.hear() == gpu.encode():
            raise ValueError(f"source and destination are both on GPU {gpu}: NCCL needs two, try CUDA IPC")
        if len(unique) != UNIQUE_ID_BYTES:
            raise ConnectionError("what the other side says makes no sense")
        return unique

    def send(self, tensors: Sequence[torch.Tensor], ready: torch.cuda.Event | None, digest: bytes) -> None:
        """Send tensors of this device.

        Args:
            tensors: to send.
            ready: happens when they are complete; None if they are.
            digest: of the transfer, the same at both sides.
        """
        with self._moving(tensors, ready) as communicator:
            self._channel.say(digest)  # first, since it takes a while to get there
            pieces = _Pieces(tensors, communicator.stream)
            pieces.pack()
            self._await(digest)
            communicator.move(pieces.buffers)
            self._until_done(communicator)

    def receive(self, tensors: Sequence[torch.Tensor], ready: torch.cuda.Event | None, digest: bytes) -> None:
        """Fill contiguous tensors of this device; likewise."""
        with self._moving(tensors, ready) as communicator:
            self._channel.say(digest)
            pieces = _Pieces(tensors, communicator.stream)
            self._await(digest)
            communicator.move(pieces.buffers)
            self._until_done(communicator)
            pieces.unpack()

    @contextmanager
    def _moving(self, tensors: Sequence[torch.Tensor], ready: torch.cuda.Event | None) -> Iterator[Communicator]:
        with self._turn, self._ending_if_it_fails():
            if tensors[0].device != self.device:
                raise GroupLost("it is for another GPU")
            if ready is not None:  # not to be waited for on the stream: an abort would have to wait for it, too
                self._until(ready.query)
            if self._communicator is None:
                raise GroupLost("it has ended")
            yield self._communicator

    def _await(self, digest: bytes) -> None:
        """Wait until the other side is about to do the same."""
        eager = time.monotonic() + _EAGER_SECONDS
        while self._channel.peek() is None and time.monotonic() < eager:
            pass  # to be woken up would take longer
        while self._channel.hear() != digest:
            pass  # it is in another transfer, and leaves that, if at all, by closing the channel

    def _until_done(self, communicator: Communicator) -> None:
        self._done.record(communicator.stream)
        self._until(self._done.query)

    def _until(self, condition: Callable[[], bool]) -> None:
        """Ask, again and again: there is nothing to wait in that an abort could end."""
        eager, pause = time.monotonic() + _EAGER_SECONDS, _PAUSES_SECONDS[0]
        while not condition():
            if self._channel.aborted:
                raise GroupLost("it was aborted")
            if time.monotonic() > eager:
                if self._channel.other_side_is_gone():
                    raise GroupLost("the other side is gone")
                if self._communicator is not None:
                    self._communicator.is_ready()
                time.sleep(pause)
                pause = min(1.04 * pause, _PAUSES_SECONDS[1])  # of all the time, a twenty-fifth

    def abort(self) -> None:
        """Make whoever is in the group end it. Returns at once; harmless at any time."""
        self._channel.abort()

    def other_side_is_gone(self) -> bool:
        """Whether it has ended the group, or died. A communicator takes memory of the GPU for as long as it is kept."""
        return self._channel.other_side_is_gone()

    @contextmanager
    def _ending_if_it_fails(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            is_over = self._channel.aborted or self._channel.other_side_is_gone()
            self._end()
            if isinstance(error, NcclError) and not error.is_remote and not is_over:
                raise ConnectionError(f"NCCL cannot connect the two GPUs: {error}") from error
            if isinstance(error, (NcclError, ConnectionError)):
                raise GroupLost(str(error)) from error
            raise

    def _end(self) -> None:
        """Nothing is written any more when this returns."""
        self._channel.abort()
        self._channel.close()
        communicator, self._communicator = self._communicator, None
        if communicator is not None:
            communicator.abort()

    def __del__(self) -> None:
        if not sys.is_finalizing():  # else the kernel does it all
            self._end()


class _Pieces:
    """The bytes of tensors, in few pieces; what has to be copied is copied on the stream.

    `buffers` are the pieces, each of which lies in one piece.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._packed: list[torch.Tensor] = []
        self.buffers = [tensor for tensor in tensors if tensor.nbytes]
        few = len(self.buffers) == 1
        if not all(lies_in_one_piece(tensor) and (few or tensor.nbytes >= _SMALL) for tensor in self.buffers):
            with torch.cuda.stream(stream):
                pieces = [bytes_of(in_one_piece(tensor)) for tensor in self.buffers]
                self._packed = [piece for piece in pieces if piece.nbytes < _SMALL]
                size = sum(piece.nbytes for piece in self._packed)
                self._pack = torch.empty(size, dtype=torch.uint8, device=stream.device)
            self.buffers = [piece for piece in pieces if piece.nbytes >= _SMALL]
            if self._packed:
                self.buffers.append(self._pack)

    def pack(self) -> None:
        """Put the bytes of the small tensors where they are sent from."""
        if self._packed:
            with torch.cuda.stream(self._stream):
                torch.cat(self._packed, out=self._pack)

    def unpack(self) -> None:
        """Give the small tensors their bytes, which have come, and wait until they have them."""
        if self._packed:
            with torch.cuda.stream(self._stream):
                torch.split_with_sizes_copy(self._pack, [piece.nbytes for piece in self._packed], out=self._packed)
            self._stream.synchronize()
