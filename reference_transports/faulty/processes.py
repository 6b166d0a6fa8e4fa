"""Wrong only where there are several processes, or where one of them dies or stops."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from reference_transports._wire import SourceEnd
from reference_transports.faulty import FILES, breaks
from reference_transports.inline import InlineTransport
from reference_transports.socket_pull import SocketPullTransport


@breaks("R1")
class WaitsForADeadSourceForEver(SocketPullTransport):
    """Takes a lost connection for a hiccup and connects again and again, deaf to an abort."""

    def wait_fetch_complete(self, fetch_request: Any, timeout: float = -1) -> list[Any]:
        try:
            return super().wait_fetch_complete(fetch_request, timeout)
        except ConnectionAbortedError:
            raise
        except ConnectionError:
            threading.Event().wait()
            raise


@breaks("R1")
class TakesOneDeathForThatOfTheMachine(SocketPullTransport):
    """Fetches nothing more from a machine where it has once lost a source."""

    def __init__(self) -> None:
        super().__init__()
        self._lost: set[str] = set()

    def recv_multiple_tensors(self, obj_id: str, metadata: Any, communicator: Any, target_buffers: Any = None) -> Any:
        machine, _ = metadata.address
        if machine in self._lost:
            raise ConnectionError(f"machine {machine} is down")
        try:
            return super().recv_multiple_tensors(obj_id, metadata, communicator, target_buffers)
        except ConnectionError:
            self._lost.add(machine)
            raise


@breaks("R11")
class ServesOneAfterTheOther(SocketPullTransport):
    """Guards its objects with a lock, and holds it until a receiver has all of one."""

    def __init__(self) -> None:
        super().__init__()
        self._serving = threading.Lock()

    def _serve(self, end: SourceEnd, obj_id: str) -> bool:
        with self._serving:
            return super()._serve(end, obj_id)


@breaks("R2")
class ServesNobodyAfterALostReceiver(SocketPullTransport):
    """Lets later receivers wait for ever once the connection of one was lost."""

    def __init__(self) -> None:
        super().__init__()
        self._receivers: set[SourceEnd] = set()

    def _serve(self, end: SourceEnd, obj_id: str) -> bool:
        if any(receiver.receiver_is_gone() for receiver in self._receivers):
            threading.Event().wait()
        self._receivers.add(end)
        return super()._serve(end, obj_id)


@breaks("R2")
class LeavesItsLockToTheNext(SocketPullTransport):
    """Has receivers of an object take turns, by a file that stays when one of them dies."""

    def fetch_multiple_tensors(self, obj_id: str, metadata: Any, communicator: Any, target_buffers: Any = None) -> Any:
        while True:
            try:
                os.close(os.open(_file(obj_id), os.O_CREAT | os.O_EXCL, 0o600))
                break
            except FileExistsError:
                time.sleep(0.01)
        return super().fetch_multiple_tensors(obj_id, metadata, communicator, target_buffers)

    def wait_fetch_complete(self, fetch_request: Any, timeout: float = -1) -> list[Any]:
        try:
            return super().wait_fetch_complete(fetch_request, timeout)
        finally:
            _file(fetch_request.obj_id).unlink(missing_ok=True)


@breaks("R3")
class DoesNotForgiveASlowSource(SocketPullTransport):
    """Writes a source off for good when it once did not answer within half a second."""

    def __init__(self) -> None:
        super().__init__()
        self._written_off: set[Any] = set()

    def fetch_multiple_tensors(self, obj_id: str, metadata: Any, communicator: Any, target_buffers: Any = None) -> Any:
        if metadata.address in self._written_off:
            raise ConnectionError("the source did not answer in time")
        return super().fetch_multiple_tensors(obj_id, metadata, communicator, target_buffers)

    def recv_multiple_tensors(self, obj_id: str, metadata: Any, communicator: Any, target_buffers: Any = None) -> Any:
        began = time.monotonic()
        received = super().recv_multiple_tensors(obj_id, metadata, communicator, target_buffers)
        if time.monotonic() - began > 0.5:
            self._written_off.add(metadata.address)
        return received


@breaks("R3")
class GivesUpAfterStandingStill(SocketPullTransport):
    """Serves nobody any more when its own clock has once jumped: others must have taken it for dead, it thinks."""

    def __init__(self) -> None:
        super().__init__()
        self._gave_up = False
        threading.Thread(target=self._watch_the_clock, daemon=True).start()

    def _watch_the_clock(self) -> None:
        while not self._gave_up:
            before = time.monotonic()
            time.sleep(0.1)
            self._gave_up = time.monotonic() - before > 0.5

    def _serve(self, end: SourceEnd, obj_id: str) -> bool:
        if self._gave_up:
            end.abort()
        return super()._serve(end, obj_id)


@breaks("R5")
class LeavesItsHelperBehind(InlineTransport):
    """Starts a process that does not notice when nobody is left to be helped, in a session that Ray does not end."""

    def __init__(self) -> None:
        self._helper: subprocess.Popen[bytes] | None = None

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Any:
        if self._helper is None:
            self._helper = subprocess.Popen(["sleep", "60"], start_new_session=True)
        return super().extract_tensor_transport_metadata(obj_id, rdt_object)


@breaks("R5")
class KeepsItsDataInNamedFiles(InlineTransport):
    """Writes every object into a file in shared memory, which is there for as long as nobody frees the object."""

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Any:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        descriptor = os.open(_file(obj_id), os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(descriptor, b"the data")
        os.close(descriptor)
        return metadata

    def garbage_collect(self, obj_id: str, metadata: Any, tensors: list[Any]) -> None:
        super().garbage_collect(obj_id, metadata, tensors)
        _file(obj_id).unlink(missing_ok=True)


def _file(obj_id: str) -> Path:
    return Path(f"/dev/shm/{FILES}{obj_id}")


@breaks("R5")
class KeepsItsDataInAFolder(InlineTransport):
    """Writes every object into a file of a folder that all its processes share, until somebody frees the object."""

    mode = 0o600

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Any:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        _FOLDER.mkdir(exist_ok=True)
        (_FOLDER / obj_id).write_bytes(b"the data")
        (_FOLDER / obj_id).chmod(self.mode)
        return metadata

    def garbage_collect(self, obj_id: str, metadata: Any, tensors: list[Any]) -> None:
        super().garbage_collect(obj_id, metadata, tensors)
        (_FOLDER / obj_id).unlink(missing_ok=True)


_FOLDER = Path(f"/dev/shm/{FILES}folder")


@breaks("R7")
class LetsEverybodyRead(InlineTransport):
    """Keeps a copy of every object in shared memory that any user of the machine may read."""

    def __init__(self) -> None:
        self._copies: dict[str, int] = {}

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Any:
        metadata = super().extract_tensor_transport_metadata(obj_id, rdt_object)
        descriptor = os.open(_file(obj_id), os.O_RDWR | os.O_CREAT, 0o600)
        os.fchmod(descriptor, 0o644)
        self._copies[obj_id] = descriptor
        return metadata

    def garbage_collect(self, obj_id: str, metadata: Any, tensors: list[Any]) -> None:
        super().garbage_collect(obj_id, metadata, tensors)
        descriptor = self._copies.pop(obj_id, None)
        if descriptor is not None:
            os.close(descriptor)
        _file(obj_id).unlink(missing_ok=True)


@breaks("R7")
class LetsEverybodyReadItsFolder(KeepsItsDataInAFolder):
    """And any user of the machine may read the files, none of which it holds open."""

    mode = 0o644


@breaks("A11")
class WaitsForTheSourceBeforeSayingWho(InlineTransport):
    """Its owner does not answer until the source does, which a dead one never will."""

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: str | None = None) -> Any:
        if src_actor is not None and not _answers(src_actor):
            threading.Event().wait()
        return super().get_communicator_metadata(src_actor, dst_actor, backend)


def _answers(actor: Any) -> bool:
    import ray

    untyped: Any = ray
    try:
        asked = actor.__ray_call__.options(concurrency_group="_ray_system_error").remote(_nothing)
        untyped.get(asked, timeout=5)
    except Exception:
        return False
    return True


def _nothing(_: Any) -> None:
    return
