"""A transport of tensors through files: each object is a file in a folder of the process that made it.

Good for processes of one user on one machine, and for showing how a package of its own is judged.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata


@dataclass
class SpoolMetadata(TensorTransportMetadata):
    """Where the file lies."""

    path: str = ""


class SpoolTransport(TensorTransportManager):
    """One-sided: the receiver reads the file that the source has written."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._numbers = itertools.count()
        self._files: dict[str, Path] = {}

    def tensor_transport_backend(self) -> str:
        """The name to register."""
        return "SPOOL"

    @staticmethod
    def is_one_sided() -> bool:
        """True: the source does nothing during a transfer."""
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        """False: nothing waits for anybody."""
        return False

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """True: any process of this user can read the files."""
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> SpoolMetadata:
        """Write the tensors into a file.

        Raises:
            ValueError: a tensor is not plain memory of the CPU.
        """
        metadata = SpoolMetadata(
            tensor_meta=[_described(tensor) for tensor in rdt_object],
            tensor_device="cpu" if rdt_object else None,
        )
        path = self._files.get(obj_id) or self._new_path()
        try:
            torch.save([_plain(tensor) for tensor in rdt_object], path)
        except BaseException:
            path.unlink(missing_ok=True)  # nobody will free an object that was refused
            raise
        metadata.path = str(path)
        self._files[obj_id] = path
        return metadata

    def _new_path(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="spool-"))  # for this user's eyes only
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder / str(next(self._numbers))

    def get_communicator_metadata(
        self, src_actor: Any, dst_actor: Any, backend: str | None = None
    ) -> CommunicatorMetadata:
        """Nothing: the metadata say where the file is."""
        return CommunicatorMetadata()

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        """Read the file.

        Raises:
            ValueError: the metadata are those of another transport.
            NotImplementedError: there are target buffers; the known deviation, see deviations.toml.
        """
        if target_buffers is not None:
            raise NotImplementedError("SPOOL cannot fill target buffers yet")
        if not isinstance(tensor_transport_metadata, SpoolMetadata):
            raise ValueError(f"SPOOL cannot read a {type(tensor_transport_metadata).__name__}")
        tensors = torch.load(tensor_transport_metadata.path, weights_only=True)
        described = [(tensor.shape, tensor.dtype) for tensor in tensors]
        if described != tensor_transport_metadata.tensor_meta:
            raise ValueError(f"the file of object {obj_id} does not hold what its metadata say")
        return tensors

    def send_multiple_tensors(
        self,
        tensors: list[Any],
        tensor_transport_metadata: TensorTransportMetadata,
        communicator_metadata: CommunicatorMetadata,
    ) -> None:
        """Never called: the transport is one-sided."""
        raise NotImplementedError

    def garbage_collect(self, obj_id: str, tensor_transport_meta: TensorTransportMetadata, tensors: list[Any]) -> None:
        """Delete the file."""
        path = self._files.pop(obj_id, None)
        if path is not None:
            path.unlink()

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """Never called: `can_abort_transport` is False."""
        raise NotImplementedError


def _described(tensor: Any) -> tuple[torch.Size, torch.dtype]:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise ValueError(f"SPOOL carries plain tensors, not a {type(tensor).__name__}")
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized or tensor.device.type != "cpu":
        raise ValueError(f"SPOOL carries dense tensors of the CPU, not one that is {tensor.layout} on {tensor.device}")
    return tensor.shape, tensor.dtype


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of the values alone, whatever larger memory the tensor is a view of."""
    return tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
