"""Conformance suite for Ray Direct Transport: judges any `TensorTransportManager`.

Importing this package imports nothing else, because pytest does it in every run of every project where it is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rdt_conformance.payloads.base import ANYTHING
    from rdt_conformance.payloads.value_kind import ValueKind
    from rdt_conformance.profile import TransportProfile

    __version__: str

__all__ = ["ANYTHING", "TransportProfile", "ValueKind", "__version__"]

_PLACES = {
    "ANYTHING": "rdt_conformance.payloads.base",
    "TransportProfile": "rdt_conformance.profile",
    "ValueKind": "rdt_conformance.payloads.value_kind",
}


def __getattr__(name: str) -> object:
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(_PLACES[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("rdt-conformance")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
