"""What can be sent, and the oracle that judges what arrived.

A payload is a recipe: plain data that pickles. The source's process builds it, the receiver's process compares what it
got with what the recipe says, so no transport is ever asked whether it was right. Importing this package imports no
array library; `kind_for` imports the one it is asked for.
"""

from __future__ import annotations

import importlib
from typing import Any

from rdt_conformance.facts import JAX_ARRAYS, type_name
from rdt_conformance.payloads.base import ANYTHING, Payload, PayloadKind
from rdt_conformance.payloads.value_kind import ValueKind

__all__ = ["ANYTHING", "Payload", "PayloadKind", "ValueKind", "kind_for"]

_MODULES = {
    "torch.Tensor": "torch_payloads",
    "numpy.ndarray": "numpy_payloads",
    "pyarrow.lib.Table": "arrow_payloads",
    **dict.fromkeys(JAX_ARRAYS, "jax_payloads"),
}


def kind_for(data_type: type, own: ValueKind | None = None) -> PayloadKind:
    """The payload kind for what a transport was registered to carry.

    Args:
        data_type: as in ``register_tensor_transport(data_type=...)``.
        own: what the transport's author tells about it, which comes before anything known here.

    Raises:
        ValueError: there is no payload kind for this type.
    """
    if own is not None:
        from rdt_conformance.payloads.value_payloads import ValuePayloads

        kind: Any = ValuePayloads(own)  # of a protocol whose methods take any payload, it takes its own
        return kind
    module = _MODULES.get(type_name(data_type))
    if module is None:
        raise ValueError(f"no payload kind is known for {type_name(data_type)}")
    return importlib.import_module(f"{__name__}.{module}").KIND
