"""Payloads of whatever a `ValueKind` describes."""

from __future__ import annotations

import copy
import dataclasses
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from rdt_conformance.facts import type_name
from rdt_conformance.payloads.base import DEFAULT_MAX_BYTES, DEFAULT_MAX_TENSORS
from rdt_conformance.payloads.recipes import list_differences
from rdt_conformance.payloads.strategies import SEVERAL
from rdt_conformance.payloads.value_kind import OTHER_CONTENTS, Form, GivenMemory, ValueKind
from rdt_conformance.payloads.watching import ALIGNMENT, Fingerprint, Guard, Lifetimes

if TYPE_CHECKING:
    from typing_extensions import Self

_SEEDS = st.integers(0, (1 << 16) - 1)
_SEEDS_PER_PAYLOAD = 1 << 20

_places: dict[int, int] = {}
"""Where the memory of a value begins, by the value's id, as long as it lives."""


@dataclass(frozen=True)
class ValueRecipe:
    """One value. Equal recipes within one payload are the same value."""

    name: str
    """Of its form, for people."""
    form: Form
    seed: int
    nbytes: int
    """About how many it holds; where a check wanted so many, that number."""
    part: bool = False
    """Only a part of it, in the memory of the whole."""

    def __str__(self) -> str:
        return f"part of {self.name}" if self.part else self.name


@dataclass(frozen=True, repr=False)
class ValuePayload:
    """An ordered list of values; see `rdt_conformance.payloads.base.Payload`."""

    kind: ValueKind
    recipes: tuple[ValueRecipe, ...]
    may_crash = False

    @property
    def count(self) -> int:
        """How many values there are."""
        return len(self.recipes)

    @property
    def nbytes(self) -> int:
        """About the bytes of all values."""
        return sum(recipe.nbytes for recipe in self.recipes)

    def inverse(self) -> Self:
        """Values of the same forms with other contents."""
        others = [dataclasses.replace(recipe, seed=recipe.seed ^ OTHER_CONTENTS) for recipe in self.recipes]
        return dataclasses.replace(self, recipes=tuple(others))

    def plain(self) -> Self:
        """Values of the same forms, none of them a part, each alone in its memory."""
        alone = [
            dataclasses.replace(recipe, seed=((recipe.seed << 20) + number) % (1 << 63), part=False)
            for number, recipe in enumerate(self.recipes)
        ]
        return dataclasses.replace(self, recipes=tuple(alone))

    def build(self, device: str = "cpu") -> list[Any]:
        """The values, new ones with every call."""
        return build_all([self])[0]

    def differences(self, received: Sequence[Any]) -> list[str]:
        """How what was received differs from this, one sentence a value; empty if it does not."""
        return list_differences(self.count, received, self._difference)

    def _difference(self, index: int, received: object) -> str:
        if not isinstance(received, self.kind.data_type):
            wanted = self.kind.data_type
            return f"is a {type(received).__name__}, not a {type_name(wanted)}"
        alone = dataclasses.replace(self, recipes=(self.recipes[index],))
        return self.kind.difference(alone.build()[0], received)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Show the words when Hypothesis prints an example, not every field."""
        printer.text(repr(self))

    def __repr__(self) -> str:
        words = [
            f"tensor {first} again" if (first := self.recipes.index(recipe)) < number else str(recipe)
            for number, recipe in enumerate(self.recipes)
        ]
        noun = "tensor" if self.count == 1 else "tensors"
        return f"{self.count} {noun}: {', '.join(words)}" if self.count else f"0 {noun}"


@dataclass(frozen=True)
class ValueFamily:
    """Several payloads whose values share memory; see `rdt_conformance.payloads.base.Family`."""

    name: str
    payloads: tuple[ValuePayload, ...]

    def build(self, device: str = "cpu") -> list[list[Any]]:
        """The values of each payload."""
        return build_all(self.payloads)


class Room:
    """Memory that values are built in one after the other, always from the same address on."""

    def __init__(self, nbytes: int) -> None:
        self._memory = _aligned(nbytes)

    def allocator(self) -> GivenMemory:
        """Gives this memory from its beginning; memory of its own when it is used up."""
        end = 0

        def allocate(nbytes: int) -> np.ndarray:
            nonlocal end
            begin, end = end, end - (-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
            if begin + nbytes > self._memory.size:
                return _aligned(nbytes)
            return np.frombuffer(self._memory[begin : begin + nbytes].data, np.uint8)

        return allocate


def _aligned(nbytes: int) -> np.ndarray:
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes]


class _Watched:
    """Remembers what memory was given, without keeping any of it alive."""

    def __init__(self, allocate: GivenMemory = _aligned) -> None:
        self._allocate = allocate
        self.owners: dict[int, weakref.ref[Any]] = {}
        self.first: int | None = None

    def __call__(self, nbytes: int) -> np.ndarray:
        memory = self._allocate(nbytes)
        owner = memory if memory.base is None or not isinstance(memory.base, np.ndarray) else memory.base
        self.owners[id(owner)] = weakref.ref(owner)
        if self.first is None:
            self.first = memory.ctypes.data
        return memory


def build_all(payloads: Sequence[ValuePayload], memory: GivenMemory = _aligned) -> list[list[Any]]:
    """The values of several payloads; equal recipes become one value, and parts lie in the memory of their whole."""
    wholes: dict[tuple[Form, int], Any] = {}
    values: dict[ValueRecipe, Any] = {}
    for payload in payloads:
        for recipe in payload.recipes:
            if recipe in values:
                continue
            key = (recipe.form, recipe.seed)
            if key not in wholes:
                watched = _Watched(memory)
                wholes[key] = payload.kind.build(recipe.form, recipe.seed, watched)
                _remember(wholes[key], watched.first)
            values[recipe] = payload.kind.part(wholes[key]) if recipe.part else wholes[key]
    return [[values[recipe] for recipe in payload.recipes] for payload in payloads]


def _remember(value: Any, place: int | None) -> None:
    if place is not None:
        _places[id(value)] = place
        weakref.finalize(value, _places.pop, id(value), None).atexit = False


class ValuePayloads:
    """All that the suite knows about a kind of value; see `rdt_conformance.payloads.base.PayloadKind` for every method.

    Values are told apart by what `ValueKind.difference` sees, and live in host memory.
    """

    writable = False

    def __init__(self, kind: ValueKind) -> None:
        self.kind = kind
        self.data_type = kind.data_type
        self.has_parts = type(kind).part is not ValueKind.part
        self.in_chosen_memory = kind.in_given_memory

    def _one(self, name: str, form: Form, seed: int) -> ValuePayload:
        return ValuePayload(self.kind, (self._recipe(name, form, seed),))

    def _recipe(self, name: str, form: Form, seed: int, *, part: bool = False) -> ValueRecipe:
        return ValueRecipe(name, form, seed, self.kind.nbytes(form), part)

    def payloads(
        self,
        *,
        device: str = "cpu",
        min_tensors: int = 0,
        max_tensors: int = DEFAULT_MAX_TENSORS,
        max_bytes: int = DEFAULT_MAX_BYTES,
        plain: bool = False,
        refusable: bool = True,
        avoid: frozenset[str] = frozenset(),
    ) -> st.SearchStrategy[ValuePayload]:
        """Payloads of many values; they shrink towards one of the first form."""
        if SEVERAL in avoid:
            max_tensors = min(max_tensors, max(1, min_tensors))
        names = {form: name for name, form in self.kind.forms().items()}
        allowed = {form: name for form, name in names.items() if name not in avoid}
        forms = st.sampled_from(list(allowed)) if avoid & {*names.values()} else self.kind.strategy(max_bytes)

        def payload(first_seed: int, drawn: list[tuple[Form, bool]]) -> ValuePayload:
            recipes = [
                self._recipe(names.get(form, repr(form)), form, first_seed * _SEEDS_PER_PAYLOAD + number, part=part)
                for number, (form, part) in enumerate(drawn)
            ]
            return ValuePayload(self.kind, tuple(recipes))

        parts = st.just(False) if plain or not self.has_parts else st.booleans()
        drafts = st.lists(st.tuples(forms, parts), min_size=min_tensors, max_size=max_tensors)
        return st.builds(payload, _SEEDS, drafts)

    def every_contiguous(self, device: str = "cpu") -> list[ValuePayload]:
        """Payloads of one value: every form."""
        return [self._one(name, form, seed) for seed, (name, form) in enumerate(self.kind.forms().items())]

    def every_view(self, device: str = "cpu") -> list[ValuePayload]:
        """A part of a value of every form if there are parts, and each value next to itself or to its part."""
        found = []
        for payload in self.every_contiguous():
            (whole,) = payload.recipes
            part = dataclasses.replace(whole, part=True)
            together = [(part,), (whole, part), (part, whole)] if self.has_parts else []
            found += [dataclasses.replace(payload, recipes=each) for each in [*together, (whole, whole)]]
        return found

    def families(
        self, *, device: str = "cpu", max_bytes: int = DEFAULT_MAX_BYTES, avoid: frozenset[str] = frozenset()
    ) -> st.SearchStrategy[ValueFamily]:
        """The same value in several objects; a value and a part of it, if there are parts."""
        members = {"the same value in two objects": [False, False], "the same value in three objects": [False] * 3}
        if self.has_parts:
            members |= {"a value and a part of it": [False, True], "a part of a value, and the value": [True, False]}

        def family(name: str, single: ValuePayload) -> ValueFamily:
            (recipe,) = single.recipes
            payloads = [
                dataclasses.replace(single, recipes=(dataclasses.replace(recipe, part=part),)) for part in members[name]
            ]
            return ValueFamily(name, tuple(payloads))

        singles = self.payloads(min_tensors=1, max_tensors=1, max_bytes=max_bytes, plain=True, avoid=avoid)
        return st.builds(family, st.sampled_from(list(members)), singles)

    def plain_traits(self, device: str = "cpu") -> list[tuple[str, ValuePayload]]:
        """Every form, and several values in one object."""
        forms = list(zip(self.kind.forms(), self.every_contiguous(), strict=True))
        return [*forms, (SEVERAL, self.simple(16, count=2))]

    def simple(self, nbytes: int, count: int = 1, seed: int = 0) -> ValuePayload:
        """Values of about `nbytes` together."""
        each, more = divmod(nbytes, max(count, 1))
        recipes = []
        for number in range(count):
            size = each + (number < more)
            form = self.kind.sized(max(size, 1))
            recipes.append(ValueRecipe(f"about {size} bytes", form, seed * _SEEDS_PER_PAYLOAD + number, size))
        return ValuePayload(self.kind, tuple(recipes))

    def small_view(self, nbytes: int, whole: int) -> ValuePayload:
        """A part of a value of about `whole` bytes; a value of `nbytes` if that is as much."""
        payload = self.simple(whole)
        if nbytes == whole:
            return payload
        return dataclasses.replace(payload, recipes=(dataclasses.replace(payload.recipes[0], part=True),))

    def refusable_payloads(self, device: str = "cpu") -> list[ValuePayload]:
        """What a transport may refuse but must never carry wrongly; the plainest form if nothing is odd."""
        odd = [self._one(name, form, seed) for seed, (name, form) in enumerate(self.kind.odd_forms().items())]
        return odd or self.every_contiguous()[:1]

    def on_another_device(self, device: str = "cpu") -> list[Any]:
        """None: nothing is known of other devices."""
        return []

    def room(self, payload: ValuePayload, device: str = "cpu") -> Room:
        """Memory for the values of a payload or smaller ones."""
        return Room(2 * payload.nbytes + payload.count * (64 << 10))

    def build_in(self, room: Room, payload: ValuePayload) -> list[Any]:
        """The values of a payload in a room."""
        return build_all([payload], room.allocator())[0]

    def fingerprint(self, tensors: Sequence[Any]) -> Fingerprint:
        """All that the kind can tell of values, compared with copies; where their memory is, if it was given."""
        return Fingerprint.take(tensors, self._facts)

    def _facts(self, value: Any) -> tuple[Mapping[str, object], int, np.ndarray]:
        facts = {
            "type": type(value).__name__,
            "contents": _Contents(self.kind, copy.deepcopy(value)),
            "data pointer": _places.get(id(value)),
        }
        return facts, id(value), np.empty(0, np.uint8)

    def metas(self, tensors: Sequence[Any]) -> list[tuple[Any, Any]]:
        """The shape and dtype of each value."""
        return [self.kind.meta(value) for value in tensors]

    def tracked(self, payload: ValuePayload, device: str = "cpu") -> tuple[list[Any], Lifetimes]:
        """The values of a payload, and whether anybody still refers to them or to the memory they were given."""
        watched = _Watched()
        values = build_all([payload], watched)[0]
        owners = [*watched.owners.values()] if self.kind.in_given_memory else []
        references = [*owners, *(weakref.ref(value) for value in values)]
        return values, Lifetimes([lambda reference=reference: reference() is None for reference in references])

    def share_memory(self, a: Any, b: Any) -> bool:
        """Whether two values are the same; of memory that they share beyond that nothing is known."""
        return a is b

    def traits(self, tensors: Sequence[Any], device: str = "cpu") -> list[str]:
        """None: how a value could be less than plain is not known."""
        return []

    # Ray lets no target buffers of these types come to a transport, and nothing here writes to a value.

    def buffers(self, payload: ValuePayload, device: str = "cpu") -> list[Any]:
        """Raises TypeError: values are no target buffers."""
        raise TypeError(f"no value of {self.data_type.__name__} can be a target buffer")

    def guarded_buffers(self, payload: ValuePayload, device: str = "cpu") -> tuple[list[Any], Guard]:
        """Raises TypeError: values are no target buffers."""
        raise TypeError(f"no value of {self.data_type.__name__} can be a target buffer")

    def overwrite(self, tensors: Sequence[Any], payload: ValuePayload) -> None:
        """Raises TypeError: values are never written to."""
        raise TypeError(f"no value of {self.data_type.__name__} is written to")


class _Contents:
    """What a value was like, as far as its kind sees."""

    def __init__(self, kind: ValueKind, value: Any) -> None:
        self._kind, self._value = kind, value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Contents) and not self._kind.difference(self._value, other._value)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return "something else"
