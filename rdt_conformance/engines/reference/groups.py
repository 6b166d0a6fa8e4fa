"""Collective groups: which actors may talk over a two-sided transport. As in `ray.experimental.collective`."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True)
class Group:
    """Actors in rank order."""

    name: str
    transport: str
    actors: tuple[str, ...]

    def rank(self, actor: str) -> int:
        """The actor's rank.

        Raises:
            ValueError: the actor is not in the group.
        """
        return self.actors.index(actor)


class Groups:
    """The groups that one owner created."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._lock = threading.Lock()

    def create(self, name: str, transport: str, actors: tuple[str, ...]) -> Group:
        """Make a group.

        Raises:
            ValueError: the name is taken, an actor is named twice, or there are no actors.
        """
        if not actors or len(set(actors)) != len(actors):
            raise ValueError(f"group {name} needs at least one actor, each named once")
        group = Group(name, transport.upper(), actors)
        with self._lock:
            if name in self._groups:
                raise ValueError(f"group {name} already exists")
            self._groups[name] = group
        return group

    def destroy(self, name: str) -> None:
        """Forget a group.

        Raises:
            ValueError: no such group.
        """
        with self._lock:
            if self._groups.pop(name, None) is None:
                raise ValueError(f"group {name} does not exist")

    def between(self, transport: str, source: str, destination: str) -> Group:
        """The one group that holds both actors.

        Raises:
            ValueError: there is none, or more than one.
        """
        with self._lock:
            found = [
                group
                for group in self._groups.values()
                if group.transport == transport.upper() and {source, destination} <= set(group.actors)
            ]
        if len(found) != 1:
            number = "no group" if not found else f"{len(found)} groups"
            raise ValueError(f"{number} of transport {transport} with both {source} and {destination}: one is needed")
        return found[0]
