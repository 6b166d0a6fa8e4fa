"""What can be sent, and the oracle that judges what arrived.

A payload is a recipe: plain data that pickles. The source's process builds it, the receiver's process compares what it
got with what the recipe says, so no transport is ever asked whether it was right. Importing this package imports no
array library; `kind_for` imports the one it is asked for.
"""

from __future__ import annotations

import importlib

from rdt_conformance.payloads.base import Payload, PayloadKind

__all__ = ["Payload", "PayloadKind", "kind_for"]

_MODULES = {"torch.Tensor": "torch_payloads", "numpy.ndarray": "numpy_payloads"}


def kind_for(data_type: type) -> PayloadKind:
    """The payload kind for what a transport was registered to carry.

    Args:
        data_type: as in ``register_tensor_transport(data_type=...)``: ``torch.Tensor`` or ``numpy.ndarray``.

    Raises:
        ValueError: there is no payload kind for this type.
    """
    name = f"{data_type.__module__}.{data_type.__qualname__}"
    if name not in _MODULES:
        raise ValueError(f"no payloads are known for {name}, only for {' and '.join(_MODULES)}")
    return importlib.import_module(f"{__name__}.{_MODULES[name]}").KIND
