"""Which versions of Ray could call a class's methods."""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray._private import worker
from ray.experimental import TensorTransportManager, TensorTransportMetadata
from ray.experimental.rdt.rdt_manager import RDTMeta

from rdt_conformance.capabilities import Capabilities
from rdt_conformance.contract import CLAUSES, Clause
from rdt_conformance.engines.ray.early_word import await_owner
from rdt_conformance.ray_interface import (
    INTERFACES,
    OLDEST,
    calls,
    fitting_versions,
    installed_interface,
    installed_version,
    refusal,
)
from reference_transports.inline import InlineTransport
from reference_transports.nixl import NixlTransport
from reference_transports.tcp import TcpTransport

CLAIMS = Capabilities(one_sided=True, can_abort=True, own_fetch=False, takes_buffers=True, devices=("cpu",), nodes=1)


def test_the_table_is_without_gaps_and_knows_the_ray_that_this_is_tested_with() -> None:
    versions = [version for interface in INTERFACES for version in interface.versions]
    assert versions == [f"2.{minor}" for minor in range(54, 61)]
    assert installed_version() == importlib.metadata.version("ray").rpartition(".")[0]
    assert installed_version() in installed_interface().versions
    assert Clause.since == OLDEST


def test_every_version_that_a_clause_names_is_one_that_the_suite_works_on() -> None:
    supported = [version for interface in INTERFACES for version in interface.versions if version >= OLDEST]
    assert {clause.since for clause in CLAUSES.values()} <= {*supported}


def test_a_clause_of_a_later_ray_does_not_bind() -> None:
    later = replace(CLAUSES["L1"], since="2.58")
    assert not replace(CLAIMS, ray="2.57").applies(later)
    assert all(replace(CLAIMS, ray=ray).applies(later) for ray in ("2.58", "2.60", "3.0", ""))


def test_the_page_tells_what_the_table_says() -> None:
    page = (Path(__file__).parent.parent / "docs" / "ray-versions.md").read_text()
    for interface in INTERFACES:
        versions = interface.versions[0] if len(interface.versions) == 1 else " to ".join(interface.versions)
        assert re.search(rf"^\| {re.escape(versions)} \|.*{interface.source}", page, re.MULTILINE), versions


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


class OfRay254(InlineTransport):
    """Written before there were target buffers, and before garbage_collect had the tensors."""

    def recv_multiple_tensors(self, obj_id: Any, metadata: Any, communicator: Any) -> Any: ...

    def garbage_collect(self, obj_id: Any, metadata: Any) -> Any: ...


class OfRay255(InlineTransport):
    """Written before ray.get fetched and waited; it names what the documentation of that time did."""

    def recv_multiple_tensors(
        self, obj_id: Any, tensor_transport_metadata: Any, communicator_metadata: Any, target_buffers: Any = None
    ) -> Any: ...


class Old(InlineTransport):
    """Half of it was adapted."""

    def recv_multiple_tensors(self, obj_id: Any, metadata: Any, communicator: Any) -> Any: ...


class OfAllTimes(InlineTransport):
    def recv_multiple_tensors(self, obj_id: Any, metadata: Any, communicator: Any, buffers: Any = None) -> Any: ...

    def garbage_collect(self, obj_id: Any, metadata: Any, tensors: Any = ()) -> Any: ...


class WaitsWithoutTimeout(NixlTransport):
    """Its wait was written for a call that no version makes."""

    def wait_fetch_complete(self, fetch_request: Any) -> Any: ...


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
COLLECTS = "which calls garbage_collect(obj_id, tensor_transport_meta, tensors)"
NOT_254 = "not 2.54, which calls garbage_collect(obj_id, tensor_transport_meta)"


@pytest.mark.parametrize(
    ("transport", "changes", "fits"),
    [
        (InlineTransport, {}, f"2.55 to 2.60; {NOT_254}"),
        (TcpTransport, {"one_sided": False}, f"2.55 to 2.60; {NOT_254}"),
        (
            NixlTransport,
            {"own_fetch": True},
            "2.56 to 2.60; not 2.54 to 2.55, which has no FetchRequest for its fetch_multiple_tensors to return",
        ),
        (OfRay254, {}, f"2.54; not 2.55 to 2.57, {WITH_BUFFERS}; not 2.58 to 2.60, {COLLECTS}"),
        (OfRay255, {}, f"2.55 to 2.60; {NOT_254}"),
        (Old, {}, f"none; {NOT_254}; not 2.55 to 2.60, {WITH_BUFFERS}"),
        (OfAllTimes, {}, "2.54 to 2.60"),
        (
            WaitsWithoutTimeout,
            {"own_fetch": True},
            "none; not 2.54 to 2.55, which has no FetchRequest for its fetch_multiple_tensors to return; "
            "not 2.56 to 2.60, which calls wait_fetch_complete(request, timeout=…)",
        ),
        (OldSender, {"one_sided": False}, f"2.58 to 2.60; {NOT_254}; not 2.55 to 2.57, {WITH_BUFFERS}"),
        (
            Demanding,
            {},
            "2.55 to 2.57; not 2.54, 2.58 to 2.60, which calls recv_multiple_tensors(obj_id, "
            "tensor_transport_metadata, communicator_metadata)",
        ),
        (ByName, {}, f"none; {NOT_254}; not 2.55 to 2.60, {COLLECTS}"),
        (Wrapped, {}, f"2.55 to 2.60; {NOT_254}"),
        (NotEvenMethods, {}, "2.54 to 2.60"),
    ],
)
def test_the_versions_that_a_class_fits(transport: type, changes: dict[str, Any], fits: str) -> None:
    assert fitting_versions(transport, replace(CLAIMS, **changes)) == fits


def test_word_of_an_object_waits_for_its_owner() -> None:
    manager: Any = worker.global_worker.rdt_manager
    metadata = TensorTransportMetadata([], None)
    undo = await_owner()
    told = manager.set_tensor_transport_metadata_and_trigger_queued_operations
    telling = threading.Thread(target=told, args=("early", metadata), daemon=True)
    try:
        telling.start()
        telling.join(0.05)
        assert telling.is_alive()
        fields = dict.fromkeys(RDTMeta._fields) | {"sent_dest_actors": set()}
        manager.set_rdt_metadata("early", RDTMeta(**fields))
        telling.join(10)
        assert manager.get_rdt_metadata("early").tensor_transport_meta is metadata
    finally:
        undo()
        manager._managed_rdt_metadata.pop("early", None)
    assert "set_tensor_transport_metadata_and_trigger_queued_operations" not in vars(manager)
