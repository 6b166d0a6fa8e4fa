"""Tokens that stand for one example of one check: everything that was chosen in it, and on what it was chosen.

Imported in every run that has the plugin, hence light.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from dataclasses import dataclass
from typing import Any

_FORMAT = "r1"
"""What a token begins with; another one once tokens of this kind can no longer be read."""
_LONGEST = 20_000
"""Characters of a token, and bytes of what it holds."""


class ReplayProblem(Exception):
    """A token that cannot be used; one line says why."""


@dataclass(frozen=True)
class Replay:
    """What a token holds.

    Args:
        check: the name of the check.
        engine: where it ran.
        nodes: over how many nodes.
        profile: how much it might try.
        seed: of the run.
        choices: what Hypothesis chose, as it encodes a failure; empty if there was nothing to choose.
        depends_on: the transport, and the packages on whose versions the meaning of the choices depends.
    """

    check: str
    engine: str
    nodes: int
    profile: str
    seed: int
    choices: str
    depends_on: dict[str, str]

    def encode(self) -> str:
        """The token: letters, digits, ``-`` and ``_`` only."""
        told = [self.check, self.engine, self.nodes, self.profile, self.seed, self.choices, self.depends_on]
        packed = zlib.compress(json.dumps(told, separators=(",", ":")).encode(), 9)
        return _FORMAT + base64.urlsafe_b64encode(packed).decode().rstrip("=")

    @classmethod
    def decode(cls, token: str) -> Replay:
        """What a token holds.

        Raises:
            ReplayProblem: it is no token, was cut off, or comes from another version.
        """
        if not token.startswith(_FORMAT):
            raise ReplayProblem(f"{_shortened(token)!r} is no token of this version: those begin with {_FORMAT}")
        if len(token) > _LONGEST:
            raise ReplayProblem("no token is as long as this")
        told = _unpack(token[len(_FORMAT) :])
        match told:
            case [str(check), str(engine), int(nodes), str(profile), int(seed), str(choices), dict(depends_on)] if all(
                isinstance(said, str) for said in depends_on.values()
            ):
                return cls(check, engine, nodes, profile, seed, choices, depends_on)
        raise ReplayProblem("the token was damaged on its way: copy all of it")

    def differing(self, here: dict[str, str]) -> list[str]:
        """What it depends on and is another here, in words."""
        return [
            f"{name} {then} then, {here.get(name, 'none')} now"
            for name, then in self.depends_on.items()
            if here.get(name) != then
        ]


def _unpack(text: str) -> Any:
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return json.loads(zlib.decompressobj().decompress(packed, _LONGEST))
    except (binascii.Error, zlib.error, ValueError):
        return None


def _shortened(text: str, limit: int = 40) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
