"""Which versions of Ray could call a class's methods."""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from ray.experimental import TensorTransportManager

from rdt_conformance.capabilities import Capabilities
from rdt_conformance.ray_interface import INTERFACES, calls, fitting_versions, installed_interface, refusal
from reference_transports.inline import InlineTransport
from reference_transports.nixl import NixlTransport
from reference_transports.tcp import TcpTransport

CLAIMS = Capabilities(one_sided=True, can_abort=True, own_fetch=False, takes_buffers=True, devices=("cpu",), nodes=1)


def test_the_table_is_without_gaps_and_knows_the_ray_that_this_is_tested_with() -> None:
    versions = [version for interface in INTERFACES for version in interface.versions]
    assert versions == [f"2.{minor}" for minor in range(55, 61)]
    assert importlib.metadata.version("ray").rpartition(".")[0] in versions
    assert installed_interface() is INTERFACES[-1]


@pytest.mark.parametrize("one_sided", [True, False])
@pytest.mark.parametrize("own_fetch", [True, False])
def test_rays_own_interface_takes_the_calls_that_the_table_says_it_makes(one_sided: bool, own_fetch: bool) -> None:
    claims = replace(CLAIMS, one_sided=one_sided, own_fetch=own_fetch)
    for call in calls(installed_interface(), claims):
        method = getattr(TensorTransportManager, call.method)
        given = call if call.method == "can_abort_transport" else call._replace(arguments=("self", *call.arguments))
        assert not refusal(method, given)
        documented = [name for name in inspect.signature(method).parameters if name != "self"]
        named = [name for name in documented if name not in call.keywords][: len(call.arguments)]
        assert call.method == "wait_fetch_complete" or named == list(call.arguments)


class Old(InlineTransport):
    """Written for Ray before there were target buffers."""

    def recv_multiple_tensors(self, obj_id: Any, metadata: Any, communicator: Any) -> Any: ...


class Demanding(InlineTransport):
    def recv_multiple_tensors(self, obj_id: Any, metadata: Any, communicator: Any, target_buffers: Any) -> Any: ...


class OldSender(TcpTransport):
    def recv_multiple_tensors(self, obj_id: Any, metadata: Any, communicator: Any) -> Any: ...


class ByName(InlineTransport):
    def garbage_collect(self, *, obj_id: Any, tensor_transport_meta: Any, tensors: Any) -> Any: ...


def wrapped(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    return inner


class Wrapped(InlineTransport):
    recv_multiple_tensors = wrapped(Old.recv_multiple_tensors)


class NotEvenMethods(InlineTransport):
    garbage_collect = property(lambda self: 1 / 0)  # type: ignore[assignment]


WITH_BUFFERS = (
    "which calls recv_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, target_buffers)"
)


@pytest.mark.parametrize(
    ("transport", "changes", "fits"),
    [
        (InlineTransport, {}, "2.55 to 2.60"),
        (TcpTransport, {"one_sided": False}, "2.55 to 2.60"),
        (
            NixlTransport,
            {"own_fetch": True},
            "2.56 to 2.60; not 2.55, which has no FetchRequest for its fetch_multiple_tensors to return",
        ),
        (Old, {}, f"none; not 2.55 to 2.60, {WITH_BUFFERS}"),
        (OldSender, {"one_sided": False}, f"2.58 to 2.60; not 2.55 to 2.57, {WITH_BUFFERS}"),
        (
            Demanding,
            {},
            "2.55 to 2.57; not 2.58 to 2.60, which calls recv_multiple_tensors(obj_id, tensor_transport_metadata, "
            "communicator_metadata)",
        ),
        (ByName, {}, "none; not 2.55 to 2.60, which calls garbage_collect(obj_id, tensor_transport_meta, tensors)"),
        (Wrapped, {}, "2.55 to 2.60"),
        (NotEvenMethods, {}, "2.55 to 2.60"),
    ],
)
def test_the_versions_that_a_class_fits(transport: type, changes: dict[str, Any], fits: str) -> None:
    assert fitting_versions(transport, replace(CLAIMS, **changes)) == fits
