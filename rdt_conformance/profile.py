"""What an author may say about a transport that its class cannot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ray.experimental import TensorTransportManager

    from rdt_conformance.payloads.value_kind import ValueKind


@dataclass(frozen=True)
class TransportProfile:
    """Names a transport class together with what the suite needs to know to exercise it.

    Point ``--transport=module:PROFILE`` at an instance of this class. Every field but the first has a default, and an
    option on the command line overrules the profile.

    Args:
        transport: the class, as it would be given to ``register_tensor_transport``.
        name: the name to register; None asks the class (``tensor_transport_backend()``).
        devices: device types, as given to ``register_tensor_transport``.
        data_type: what it carries: ``torch.Tensor``, ``numpy.ndarray``, the class of JAX's arrays
            (``type(jax.numpy.zeros(()))``), ``pyarrow.Table``, or any other with a `payload_kind`. None means that of
            the payload kind, or ``torch.Tensor`` if there is none.
        payload_kind: how to make, compare and describe values of any other type; an instance of a class of the author's
            that derives from `rdt_conformance.ValueKind`.
        needs_process: True if two instances cannot live in one process; such a transport is not run on the local
            engine.
        gives_up_after: seconds after which it fails by itself what cannot succeed any more, if that is late: its own
            timeouts and retries. The suite waits for it so much longer before it speaks of a hang.
        note: one line for the report.
    """

    transport: type[TensorTransportManager]
    name: str | None = None
    devices: tuple[str, ...] = field(default=("cpu",))
    data_type: type | None = None
    payload_kind: ValueKind | None = None
    needs_process: bool = False
    gives_up_after: float = 0.0
    note: str = ""
