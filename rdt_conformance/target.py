"""``--transport`` -> `Target`: which class, under which name, with what, what it claims, and where each was learnt."""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rdt_conformance import author, locate
from rdt_conformance.capabilities import Capabilities
from rdt_conformance.contract import Clause
from rdt_conformance.data_types import data_type_of
from rdt_conformance.environment import versions
from rdt_conformance.facts import Fact, type_name
from rdt_conformance.locate import TargetProblem
from rdt_conformance.options import DEVICES
from rdt_conformance.profile import TransportProfile
from rdt_conformance.ray_interface import OLDEST, fitting_versions, installed_version
from rdt_conformance.ray_quiet import no_auto_connect

if TYPE_CHECKING:
    from ray.experimental import TensorTransportManager

    from rdt_conformance.payloads import PayloadKind, ValueKind

__all__ = ["Fact", "Target", "TargetProblem", "ToldFact", "resolve", "type_name"]

T = TypeVar("T")
_LATEST = 60
"""Seconds after which Ray itself gives up, unless it is told otherwise (RAY_rdt_fetch_fail_timeout_milliseconds)."""


class ToldFact(NamedTuple):
    """A fact in words."""

    name: str
    value: str
    learnt_from: str


_ON_NIXL = ("reference_transports.nixl.transport", "ray.experimental.rdt.nixl_tensor_transport")
"""Modules whose transports need NIXL."""


@dataclass(frozen=True)
class Target:
    """The transport under test."""

    spec: str
    """As given on the command line."""
    transport_class: type[TensorTransportManager]
    name: Fact[str]
    """As Ray registers it: upper case."""
    devices: Fact[tuple[str, ...]]
    """The device types that are registered and whose memory is sent."""
    data_type: Fact[type]
    one_sided: Fact[bool]
    can_abort: Fact[bool]
    own_fetch: Fact[bool]
    """Whether it brings its own fetch and wait, instead of the interface's, which receive at once."""
    needs_process: Fact[bool]
    note: Fact[str]
    gives_up_after: float = 0.0
    """Seconds; see `TransportProfile`."""
    nodes: int = 1
    """Over how many nodes the run spreads its actors."""
    own_kind: ValueKind | None = None
    """What its author tells about the data type."""

    def depends_on(self) -> dict[str, str]:
        """What has to be the same for an example to be the same again: the class and the packages' versions."""
        return {"transport": type_name(self.transport_class)} | versions()

    @functools.cached_property
    def payload_kind(self) -> PayloadKind:
        """What it is sent."""
        from rdt_conformance.payloads import kind_for

        return kind_for(self.data_type.value, self.own_kind)

    @property
    def capabilities(self) -> Capabilities:
        """What decides which clauses speak of this transport."""
        return Capabilities(
            one_sided=self.one_sided.value,
            can_abort=self.can_abort.value,
            own_fetch=self.own_fetch.value,
            takes_buffers=self.takes_buffers,
            devices=self.devices.value,
            nodes=self.nodes,
            ray=installed_version(),
            writable=self.payload_kind.writable,
            has_parts=self.payload_kind.has_parts,
            in_chosen_memory=self.payload_kind.in_chosen_memory,
        )

    def applies(self, clause: Clause) -> bool:
        """Whether the clause speaks of this transport at all."""
        return self.capabilities.applies(clause)

    @property
    def takes_buffers(self) -> bool:
        """Whether Ray lets target buffers come to it: it first asks each whether it is contiguous, as torch has it."""
        return self.own_kind is None and hasattr(self.data_type.value, "is_contiguous")

    @property
    def facts(self) -> tuple[ToldFact, ...]:
        """Everything known of the transport, in words, for headers and reports."""
        kind = "one-sided" if self.one_sided.value else "two-sided"
        abort = "can abort" if self.can_abort.value else "cannot abort"
        fetch = "its own" if self.own_fetch.value else "the interface's"
        process = "needs one of its own" if self.needs_process.value else "may be shared"
        buffers = "" if self.takes_buffers else "never: Ray's own check refuses target buffers of this type"
        told = (
            ToldFact("class", type_name(self.transport_class), "--transport"),
            ToldFact("name", self.name.value, self.name.learnt),
            ToldFact("kind", kind, self.one_sided.learnt),
            ToldFact("abort", abort, self.can_abort.learnt),
            ToldFact("fetch", fetch, self.own_fetch.learnt),
            ToldFact("devices", ", ".join(self.devices.value), self.devices.learnt),
            ToldFact("data type", type_name(self.data_type.value), self.data_type.learnt),
            ToldFact("buffers", buffers, self.data_type.learnt),
            ToldFact(
                "fits Ray", fitting_versions(self.transport_class, self.capabilities), "signatures of its methods"
            ),
            ToldFact("process", process, self.needs_process.learnt),
            ToldFact("gives up", f"after {late:g} s by itself" if (late := self.gives_up_after) else "", "profile"),
            ToldFact("note", self.note.value, self.note.learnt),
        )
        return tuple(fact for fact in told if fact.value)

    def header_lines(self) -> list[str]:
        """What is known of the transport and how, for the head of the run."""
        return [
            f"rdt transport: {self.spec}",
            *(f"  {fact.name:<10} {fact.value}  [{fact.learnt_from}]" for fact in self.facts),
        ]


def resolve(spec: str, *, devices: Sequence[str] | None = None, data_type: str | None = None, nodes: int = 1) -> Target:
    """Find the transport that `spec` names, look at it, and make sure that it can be run.

    One instance is built and dropped, unless that takes a running Ray. Imports Ray, torch and the author's module.

    Args:
        spec: the target, in any form of `rdt_conformance.locate.FORMS`.
        devices: the user's choice of device types; overrules a profile.
        data_type: the user's choice out of `rdt_conformance.options.DATA_TYPES`; overrules a profile and its payload
            kind.
        nodes: over how many nodes the run spreads its actors.

    Raises:
        TargetProblem: it cannot be run at all.
    """
    no_auto_connect()
    _check_ray()
    transport, profile = _transport_and_profile(spec, locate.locate(spec))
    if (package := needed_package(transport)) and not importlib.util.find_spec(package):
        raise TargetProblem(f"{spec} needs the package {package}, which is not installed")
    instance, needs_ray = _build(spec, transport)
    registration = _registration(transport, spec)
    registered = Fact(registration.data_type, registration.learnt) if registration else None
    carried, own_kind = data_type_of(spec, data_type, profile, registered)
    return Target(
        spec=spec,
        transport_class=transport,
        name=_name(instance, profile, registration),
        devices=_devices(spec, devices, profile, registration),
        data_type=carried,
        one_sided=_claim(spec, transport, "is_one_sided"),
        can_abort=_claim(spec, instance, "can_abort_transport"),
        own_fetch=_own_fetch(transport),
        needs_process=_needs_process(transport, profile, needs_ray),
        note=Fact(profile.note, "profile") if profile else Fact("", "default"),
        gives_up_after=_gives_up_after(spec, profile),
        nodes=nodes,
        own_kind=own_kind,
    )


@dataclass(frozen=True)
class _Registration:
    """What ``register_tensor_transport`` was told about the class, by Ray or by the author's own module."""

    name: str
    devices: tuple[str, ...]
    data_type: type
    learnt: str


def needed_package(transport: type[TensorTransportManager]) -> str | None:
    """What one of ours or of Ray's imports only when it is used, so that its class alone does not tell."""
    return "nixl" if transport.__module__ in _ON_NIXL else None


def _check_ray() -> None:
    try:
        import ray
        from ray.experimental import TensorTransportManager

        new_enough = hasattr(TensorTransportManager, "wait_fetch_complete")
    except ImportError as error:
        raise TargetProblem(f"Ray {OLDEST} or newer is needed: {error}") from None
    if not new_enough:
        raise TargetProblem(f"Ray {ray.__version__} is too old: {OLDEST} or newer is needed")


def _transport_and_profile(spec: str, found: object) -> tuple[type[TensorTransportManager], TransportProfile | None]:
    from ray.experimental import TensorTransportManager

    profile = found if isinstance(found, TransportProfile) else None
    transport = profile.transport if profile else found
    what = f"{spec}: its transport" if profile else spec
    if isinstance(transport, TensorTransportManager):
        raise TargetProblem(f"{what} is an instance; Ray builds its own, so name the class {type(transport).__name__}")
    if not isinstance(transport, type):
        raise TargetProblem(f"{what} is of type {type(transport).__name__}, neither a class nor a TransportProfile")
    if transport is TransportProfile:
        raise TargetProblem(f"{what} is TransportProfile itself; name an instance of it")
    if not issubclass(transport, TensorTransportManager):
        bases = ", ".join(base.__name__ for base in transport.__bases__)
        raise TargetProblem(
            f"{what} is a class, but no transport: {transport.__name__}({bases}) does not derive from "
            "ray.experimental.TensorTransportManager"
        )
    if missing := sorted(transport.__abstractmethods__):
        raise TargetProblem(f"{what} cannot be built: it does not implement {', '.join(missing)}")
    return transport, profile


def _build(spec: str, transport: type[TensorTransportManager]) -> tuple[TensorTransportManager, bool]:
    """An instance, and whether its constructor calls into Ray. If so, it has not run: no claim depends on it."""
    from rdt_conformance.engines.reference.errors import is_for_lack_of_ray

    try:
        inspect.signature(transport).bind()
    except TypeError as error:
        raise TargetProblem(f"{spec}: {error}, but Ray builds a transport without arguments") from None
    except ValueError:  # a constructor without a signature, as extension types have it
        pass
    try:
        return author.call(transport), False
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if is_for_lack_of_ray(error):
            return object.__new__(transport), True
        raise locate.problem(f"{spec}: {transport.__name__}() failed", error) from None


def _ask(what: str, function: Callable[[], T]) -> T:
    """What the author's `function` returns; a problem if it raises or does not return."""
    try:
        return author.call(function)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise locate.problem(f"{what} failed", error) from None


def _claim(spec: str, asked: Any, method: str) -> Fact[bool]:
    """What the class or instance answers to a yes-or-no question of the interface."""
    what = f"{spec}: {method}()"
    answer = _ask(what, lambda: getattr(asked, method)())
    if not isinstance(answer, bool):
        raise TargetProblem(f"{what} must return a bool, but returned {answer!r}")
    return Fact(answer, f"class: {method}()")


def _registration(transport: type[TensorTransportManager], spec: str) -> _Registration | None:
    from ray.experimental.rdt import util

    for name, info in util.transport_manager_info.items():
        if info.transport_manager_class is transport:
            by = "Ray" if spec.startswith("ray:") else "its module"
            return _Registration(name, tuple(info.devices), info.data_type, f"register_tensor_transport() in {by}")
    return None


def _name(
    instance: TensorTransportManager, profile: TransportProfile | None, registration: _Registration | None
) -> Fact[str]:
    """A class that cannot tell its name can still be run, under a stand-in; S3 is the clause that minds."""
    if profile and profile.name:
        return Fact(profile.name.upper(), "profile")
    if registration:
        return Fact(registration.name, registration.learnt)
    method = "tensor_transport_backend"
    try:
        said = author.call(lambda: getattr(instance, method)())
        if isinstance(said, str) and said:
            return Fact(said.upper(), f"class: {method}()")
        why = f"{method}() returned {said!r}"
    except Exception as error:
        why = f"{method}() failed: {author.describe(error)}"
    return Fact(type(instance).__name__.upper(), f"name of the class, because {why}")


def _devices(
    spec: str, chosen: Sequence[str] | None, profile: TransportProfile | None, registration: _Registration | None
) -> Fact[tuple[str, ...]]:
    offered: Fact[tuple[str, ...]]
    registered = False
    if chosen:
        offered = Fact(tuple(chosen), "--rdt-devices")
    elif profile:
        offered = Fact(tuple(profile.devices), "profile")
    elif registration and "cpu" not in registration.devices:
        offered, registered = Fact(registration.devices, registration.learnt), True
    else:
        offered = Fact(("cpu",), "default")
    if not offered.value or not set(offered.value) <= set(DEVICES):
        raise TargetProblem(f"{spec}: devices {offered.value!r} [{offered.learnt}] are not all of {', '.join(DEVICES)}")
    if registration and not profile and not registered:
        common = tuple(device for device in offered.value if device in registration.devices)
        if not common:
            raise TargetProblem(
                f"{spec} is registered for {', '.join(registration.devices)}, and this run offers only "
                f"{', '.join(offered.value)}; see --rdt-devices"
            )
        offered = Fact(common, f"{registration.learnt}, and {offered.learnt}")
    if "cuda" in offered.value and not _has_cuda():
        raise TargetProblem(f"{spec}: torch finds no CUDA device here, but devices name cuda [{offered.learnt}]")
    return offered


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _needs_process(
    transport: type[TensorTransportManager], profile: TransportProfile | None, needs_ray: bool
) -> Fact[bool]:
    """Whether actors must be processes. The groups that Ray makes for its collective transports consist of such."""
    from ray.experimental.rdt.collective_tensor_transport import CollectiveTensorTransport

    if needs_ray:
        return Fact(True, f"class: {transport.__name__}() calls into Ray")
    if profile:
        return Fact(profile.needs_process, "profile")
    if issubclass(transport, CollectiveTensorTransport):
        return Fact(True, "class: derives from Ray's CollectiveTensorTransport")
    return Fact(False, "default")


def _gives_up_after(spec: str, profile: TransportProfile | None) -> float:
    seconds = profile.gives_up_after if profile else 0.0
    if not isinstance(seconds, int | float) or not 0 <= seconds <= _LATEST:
        raise TargetProblem(f"{spec}: gives_up_after={seconds!r} [profile] is not a number of seconds up to {_LATEST}")
    return float(seconds)


def _own_fetch(transport: type[TensorTransportManager]) -> Fact[bool]:
    from ray.experimental import TensorTransportManager

    methods = ("fetch_multiple_tensors", "wait_fetch_complete")
    own = [name for name in methods if getattr(transport, name) is not getattr(TensorTransportManager, name)]
    return Fact(len(own) == len(methods), f"class: overrides {' and '.join(own) or 'neither ' + ' nor '.join(methods)}")
