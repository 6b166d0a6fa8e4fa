"""How two plays of one program differ, in plain sentences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from rdt_conformance.fidelity.play import Play


def differences(reference: Play, ray: Play) -> list[str]:
    """What came out differently; empty if nothing did."""
    found = list(_outcomes(reference, ray))
    for process, obj in sorted({*reference.calls, *ray.calls}):
        ours, rays = (play.calls.get((process, obj), []) for play in (reference, ray))
        found += _sequences(f"{obj} in {process}", ours, rays)
    for process in sorted({*reference.others, *ray.others}):
        ours, rays = (play.others.get(process, []) for play in (reference, ray))
        found += _sequences(f"calls in {process} that name no object", ours, rays)
    for process in sorted({*reference.order, *ray.order}):
        ours, rays = (play.order.get(process, []) for play in (reference, ray))
        found += _sequences(f"the order of what {process} sends and receives", ours, rays)
    return found


def _outcomes(reference: Play, ray: Play) -> list[str]:
    return [
        f"{what}: {_or_nothing(ours)} on the reference, {_or_nothing(rays)} on Ray"
        for what in dict.fromkeys([*dict(reference.outcomes), *dict(ray.outcomes)])
        if (ours := dict(reference.outcomes).get(what)) != (rays := dict(ray.outcomes).get(what))
    ]


def _sequences(what: str, ours: Sequence[str], rays: Sequence[str]) -> list[str]:
    """The first call that differs."""
    for number, (one, other) in enumerate(zip_longest(ours, rays), 1):
        if one != other:
            return [f"{what}, call {number}: {_or_nothing(one)} on the reference, {_or_nothing(other)} on Ray"]
    return []


def _or_nothing(text: str | None) -> str:
    return "nothing" if text is None else text
