"""Conformance suite for Ray Direct Transport: judges any `TensorTransportManager`.

Importing this package imports nothing else, because pytest does it in every run of every project where it is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rdt_conformance.profile import TransportProfile

    __version__: str

__all__ = ["TransportProfile", "__version__"]


def __getattr__(name: str) -> object:
    if name == "TransportProfile":
        from rdt_conformance.profile import TransportProfile

        return TransportProfile
    if name == "__version__":
        from importlib.metadata import version

        return version("rdt-conformance")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
