"""Fetches that are not what they are taken for, and waits that wait too long or not long enough."""

from __future__ import annotations

import contextlib
from typing import Any

from ray.experimental.rdt.tensor_transport_manager import FetchRequest

from reference_transports.faulty import breaks
from reference_transports.socket_pull import SocketFetchRequest, SocketPullTransport


@breaks("F1")
class RequestHasShortId(SocketPullTransport):
    """Names the request by the part of the object's id that looked unique."""

    def fetch_multiple_tensors(self, obj_id: str, *args: Any) -> FetchRequest:
        request = super().fetch_multiple_tensors(obj_id, *args)
        request.obj_id = obj_id[:20]
        return request


@breaks("F1")
class RequestIsATuple(SocketPullTransport):
    """Returns whatever its own wait understands."""

    def fetch_multiple_tensors(self, *args: Any) -> Any:
        return (super().fetch_multiple_tensors(*args),)

    def wait_fetch_complete(self, fetch_request: Any, timeout: float = -1) -> list[Any]:
        return super().wait_fetch_complete(fetch_request[0], timeout)


@breaks("F2")
class ZeroMeansForever(SocketPullTransport):
    """Takes a timeout of zero for no timeout."""

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        return super().wait_fetch_complete(fetch_request, timeout or -1)


@breaks("F2")
class ReturnsWhatIsThere(SocketPullTransport):
    """Returns the tensors at the timeout, full or not."""

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        try:
            return super().wait_fetch_complete(fetch_request, timeout)
        except TimeoutError:
            return fetch_request.tensors


@breaks("F3")
class TimeoutInMilliseconds(SocketPullTransport):
    """Is wrong by a factor of a thousand."""

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        return super().wait_fetch_complete(fetch_request, timeout / 1000)


@breaks("F3")
class TimeoutInWholeSeconds(SocketPullTransport):
    """Waits for whole seconds only, as it hands them to a library that knows no others."""

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        return super().wait_fetch_complete(fetch_request, int(timeout))


@breaks("F3", across_processes=True)
class WaitsAsLongForEachTensor(SocketPullTransport):
    """Waits for the tensors one after the other, as it would for transfers of their own."""

    def wait_fetch_complete(self, fetch_request: Any, timeout: float = -1) -> list[Any]:
        for _ in fetch_request.tensors[1:]:
            with contextlib.suppress(TimeoutError):
                super().wait_fetch_complete(fetch_request, timeout)
        return super().wait_fetch_complete(fetch_request, timeout)


@breaks("F3")
class OnlyZeroTimesOut(SocketPullTransport):
    """Looks whether the tensors are there, or waits for them, but not for a while."""

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        return super().wait_fetch_complete(fetch_request, 0 if timeout == 0 else -1)


@breaks("F3")
class RaisesItsOwnTimeout(SocketPullTransport):
    """Reports a timeout by an exception that Ray does not know."""

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        try:
            return super().wait_fetch_complete(fetch_request, timeout)
        except TimeoutError as error:
            raise RuntimeError(str(error)) from None


@breaks("F4")
class GivesUpAfterTimeout(SocketPullTransport):
    """Ends the transfer at the first timeout."""

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        assert isinstance(fetch_request, SocketFetchRequest)
        try:
            return super().wait_fetch_complete(fetch_request, timeout)
        except TimeoutError:
            fetch_request.transfer.stop()
            raise


@breaks("F5")
class CleansUpInWait(SocketPullTransport):
    """Keeps requests until they have been waited for, which nobody promises."""

    def __init__(self) -> None:
        super().__init__()
        self._requests: dict[int, FetchRequest] = {}

    def fetch_multiple_tensors(self, *args: Any) -> FetchRequest:
        request = super().fetch_multiple_tensors(*args)
        self._requests[id(request)] = request
        return request

    def wait_fetch_complete(self, fetch_request: FetchRequest, timeout: float = -1) -> list[Any]:
        tensors = super().wait_fetch_complete(fetch_request, timeout)
        self._requests.pop(id(fetch_request), None)
        return tensors


class _CarelessRequest(SocketFetchRequest):
    def __del__(self) -> None:
        pass


@breaks("F5")
class DroppedFetchGoesOn(SocketPullTransport):
    """Has no `__del__` in its request, so the thread fills buffers that the user has taken back."""

    def fetch_multiple_tensors(self, *args: Any) -> FetchRequest:
        request = super().fetch_multiple_tensors(*args)
        request.__class__ = _CarelessRequest
        return request


@breaks("F6")
class FailureEndsEveryFetch(SocketPullTransport):
    """Cleans up too much when a fetch fails."""

    def fetch_multiple_tensors(self, *args: Any) -> FetchRequest:
        try:
            return super().fetch_multiple_tensors(*args)
        except ValueError:
            for transfer in list(self._fetching):
                transfer.end.abort()
            raise


@breaks("F7")
class FetchesOneAtATime(SocketPullTransport):
    """Begins a fetch when the one before has ended."""

    def __init__(self) -> None:
        super().__init__()
        self._latest: Any = None

    def fetch_multiple_tensors(self, *args: Any) -> FetchRequest:
        if self._latest is not None:
            self._latest.done.wait()
        request = super().fetch_multiple_tensors(*args)
        assert isinstance(request, SocketFetchRequest)
        self._latest = request.transfer
        return request


@breaks("F8")
class ReceiveForgetsShapes(SocketPullTransport):
    """Has a second way of receiving, for arguments of tasks, that nobody tested with more than one dimension."""

    def recv_multiple_tensors(self, *args: Any) -> list[Any]:
        return [tensor.reshape(-1) for tensor in super().recv_multiple_tensors(*args)]
