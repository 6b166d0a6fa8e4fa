"""How much a run may try: the difference between the profiles."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rdt_conformance.options import SOAK


@dataclass(frozen=True)
class Budget:
    """What one check may spend on one engine.

    Args:
        examples: inputs to try at most.
        seconds: after this no new example begins. A check tries at least `least` all the same.
        shrink_seconds: how long a failure may be made smaller.
        cycles: create-transfer-free cycles per round of a leak check.
        most_cycles: cycles until something that still grows is called a leak.
        suspicion_seconds: how long a leak may be suspected until all cycles have been run: after fewer of them a large
            cache looks like a leak.
        big_bytes: the largest object.
        many_tensors: the largest number of tensors in one object.
        most_actors: the largest number of actors in one example.
        least: inputs to try at least.
        all_seconds: what all checks of a run on one engine should take together; see `Pace`.
    """

    examples: int
    seconds: float
    shrink_seconds: float
    cycles: int
    most_cycles: int
    suspicion_seconds: float
    big_bytes: int
    many_tensors: int
    all_seconds: float
    most_actors: int = 7
    least: int = 2

    def for_processes(self) -> Budget:
        """The same on an engine with real processes, where everything takes ten times as long or more."""
        return replace(
            self,
            seconds=self.seconds / 4,
            shrink_seconds=self.shrink_seconds * 2,
            all_seconds=max(self.all_seconds * 1.2, 36),
            cycles=max(3, self.cycles // 5),
            most_cycles=self.most_cycles // 4,
            most_actors=4,
        )


PROFILES = {
    "quick": Budget(
        examples=25,
        seconds=0.2,
        shrink_seconds=2,
        cycles=10,
        most_cycles=1_000,
        suspicion_seconds=20,
        big_bytes=8 << 20,
        many_tensors=1_000,
        all_seconds=30,
    ),
    "standard": Budget(
        examples=300,
        seconds=0.8,
        shrink_seconds=5,
        cycles=25,
        most_cycles=5_000,
        suspicion_seconds=60,
        big_bytes=64 << 20,
        many_tensors=10_000,
        all_seconds=24,
    ),
    "thorough": Budget(
        examples=5_000,
        seconds=8,
        shrink_seconds=60,
        cycles=200,
        most_cycles=50_000,
        suspicion_seconds=300,
        big_bytes=(4 << 30) + (1 << 20),
        many_tensors=10_000,
        all_seconds=750,
    ),
}
PROFILES[SOAK] = PROFILES["standard"]
"""A soak has its own bound in time, and needs no other."""
