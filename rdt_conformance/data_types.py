"""Which type of data a transport is sent, and what the suite knows about it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING

from rdt_conformance import author
from rdt_conformance.facts import Fact, type_name
from rdt_conformance.locate import TargetProblem, problem
from rdt_conformance.options import DATA_TYPES

if TYPE_CHECKING:
    from rdt_conformance.payloads import ValueKind
    from rdt_conformance.profile import TransportProfile

_EXTRAS = {"jax": "jax", "pyarrow": "arrow"}
"""The packages that are not installed along, and what brings them."""


def data_type_of(
    spec: str, chosen: str | None, profile: TransportProfile | None, registered: Fact[type] | None
) -> tuple[Fact[type], ValueKind | None]:
    """The type of what is sent, and the author's payload kind for it, if that is needed.

    Args:
        spec: the target, for messages.
        chosen: the user's choice out of `DATA_TYPES`, which comes first.
        profile: the author's.
        registered: what Ray was told.

    Raises:
        TargetProblem: the suite cannot send values of that type.
    """
    if chosen:
        return Fact(_known_type(spec, chosen), "--rdt-data-type"), None
    if profile and profile.payload_kind is not None:
        return _of_own_kind(spec, profile), profile.payload_kind
    if profile and profile.data_type is not None:
        found = Fact(profile.data_type, "profile")
    else:
        found = registered or Fact(_known_type(spec, "torch.Tensor"), "default")
    _check_known(spec, found)
    return found, None


def _known_type(spec: str, name: str) -> type:
    """The class that a name of `DATA_TYPES` stands for: the one that Ray has to be told."""
    package = name.partition(".")[0]
    if name not in DATA_TYPES:
        raise TargetProblem(f"data type {name!r} is not known; choose from {', '.join(DATA_TYPES)}")
    if package in _EXTRAS and importlib.util.find_spec(package) is None:
        extra = f"pip install 'rdt-conformance[{_EXTRAS[package]}]'"
        raise TargetProblem(f"{spec}: data type {name} needs the package {package}, which is not installed: {extra}")
    if package == "jax":
        return type(importlib.import_module("jax.numpy").zeros(()))  # no array is of class jax.Array itself
    return getattr(importlib.import_module(package), name.partition(".")[2])


def _check_known(spec: str, found: Fact[type]) -> None:
    from rdt_conformance.payloads import kind_for

    if not isinstance(found.value, type):
        raise TargetProblem(f"{spec}: data_type is {found.value!r} [{found.learnt}], which is no class")
    if "jax" in sys.modules and found.value is sys.modules["jax"].Array:
        raise TargetProblem(
            f"{spec}: data_type is jax.Array [{found.learnt}], and no array is of exactly that class: Ray takes only "
            "values of exactly the registered class out of what a task returns, so none would ever come to the "
            "transport; register type(jax.numpy.zeros(())) instead"
        )
    try:
        kind_for(found.value)
    except ValueError:
        raise TargetProblem(
            f"{spec} carries {type_name(found.value)} [{found.learnt}], which this suite cannot make by itself; it can "
            f"make {', '.join(DATA_TYPES)}, and whatever a payload_kind in a profile describes"
        ) from None


def _of_own_kind(spec: str, profile: TransportProfile) -> Fact[type]:
    """The data type of an author's payload kind, after a look at whether that can be worked with."""
    from rdt_conformance.payloads import ValueKind

    kind = profile.payload_kind
    if isinstance(kind, type):
        raise TargetProblem(f"{spec}: payload_kind is the class {kind.__name__}; give an instance of it")
    if not isinstance(kind, ValueKind):
        raise TargetProblem(f"{spec}: payload_kind is a {type(kind).__name__}, which does not derive from ValueKind")
    what = f"{spec}: payload_kind {type(kind).__name__}"
    if not isinstance(getattr(kind, "data_type", None), type):
        raise TargetProblem(f"{what} has no data_type that is a class")
    if profile.data_type not in (None, kind.data_type):
        raise TargetProblem(
            f"{what} is of {type_name(kind.data_type)}, and data_type of {type_name(profile.data_type)}"
        )
    try:
        obstacle = author.call(lambda: _obstacle(kind))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise problem(f"{what} failed", error) from None
    if obstacle:
        raise TargetProblem(f"{what}: {obstacle}")
    return Fact(kind.data_type, "payload_kind in the profile")


def _obstacle(kind: ValueKind) -> str:
    """Why the suite cannot work with a kind, found by making one value of every form; empty if it can."""
    import weakref

    from rdt_conformance.payloads.value_payloads import ValuePayloads

    payloads = ValuePayloads(kind)
    every = payloads.every_contiguous()
    if not every:
        return "forms() names none"
    for payload in [*every, payloads.simple(256)]:
        (value,) = payload.build()
        if type(value) is not kind.data_type:
            return f"build() made a {type_name(type(value))} of {payload!r}, not a {type_name(kind.data_type)}"
        try:
            weakref.ref(value)
        except TypeError:
            return f"a {type_name(kind.data_type)} cannot be referred to weakly, so leaks could not be found"
        if difference := payload.differences(payload.build()):
            return f"two values of {payload!r}, built alike, differ: {difference[0]}"
    first, second = payloads.simple(256, seed=1), payloads.simple(256, seed=2)
    if not first.differences(second.build()):
        return "difference() sees none between two values of 256 bytes of different seeds"
    return ""
