"""Metadata that the transport never made."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ray.experimental import TensorTransportMetadata

from rdt_conformance import pickling

if TYPE_CHECKING:
    from rdt_conformance.checks.case import Case
    from rdt_conformance.engines.rdt import Ref


def foreign(metadata: bytes) -> bytes:
    """The same description of the tensors, without what a transport adds to it."""
    described = pickling.loads(metadata)
    return pickling.dumps(TensorTransportMetadata(described.tensor_meta, described.tensor_device))


def damaged(metadata: bytes, other: bytes) -> Iterator[tuple[str, bytes]]:
    """Ways to damage metadata, each in words and as metadata.

    What is opaque is never changed into something that looks as valid as before: a transport cannot tell that, and does
    not have to if its contents travel there.

    Args:
        metadata: of an object with tensors.
        other: of another object of the same source, of another size.
    """
    yield "metadata of another transport", foreign(metadata)
    described, stranger = pickling.loads(metadata), pickling.loads(other)
    tensor_meta = list(described.tensor_meta)
    yield "the last tensor's description is missing", _with(described, tensor_meta=tensor_meta[:-1])
    yield "the last tensor's description is there twice", _with(described, tensor_meta=[*tensor_meta, tensor_meta[-1]])
    yield "the shapes and dtypes are another object's", _with(described, tensor_meta=stranger.tensor_meta)
    yield "the shapes and dtypes are missing", _with(described, tensor_meta=None)
    for field in dataclasses.fields(described):
        value = getattr(described, field.name)
        if field.name in ("tensor_meta", "tensor_device"):
            continue
        yield f"{field.name} is None", _with(described, **{field.name: None})
        if isinstance(value, (bytes, list)) and value:
            yield f"{field.name} is cut in half", _with(described, **{field.name: value[: len(value) // 2]})
            yield f"{field.name} is empty", _with(described, **{field.name: value[:0]})


def _with(described: Any, **changes: Any) -> bytes:
    changed = pickling.loads(pickling.dumps(described))
    for name, value in changes.items():
        setattr(changed, name, value)
    return pickling.dumps(changed)


def metadata_of(case: Case, ref: Ref) -> bytes:
    """What the driver, which owns the object, knows of it as soon as it exists."""
    return case.ok(case.driver.metadata_of(ref))


def replace_metadata(case: Case, ref: Ref, metadata: bytes) -> None:
    """Let the driver, which owns the object, hand out other metadata from now on."""
    case.ok(case.driver.replace_metadata(ref, metadata))
