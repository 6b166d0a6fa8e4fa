"""What a user reads of one failure."""

from __future__ import annotations

import pytest
from made_small_world import LEAK

from rdt_conformance.report import paragraph, story
from rdt_conformance.results import Failure, Step

pytestmark = pytest.mark.usefixtures("small_world")


@pytest.mark.parametrize(
    ("label", "text", "options", "lines"),
    [
        ("a:", "one two three", {}, ["a: one two", "   three"]),
        ("a:", "one two three", {"indent": 1, "column": 4}, [" a:  one two", "     three"]),
        ("longer:", "one two", {"column": 4}, ["longer: one", "        two"]),
        ("a:", "one\n  two", {}, ["a: one two"]),
        ("a:", "", {}, ["a:"]),
        ("a:", "unbreakable-and-long", {}, ["a: unbreakable-and-long"]),
        ("a very long:", "one two", {"indent": 2}, ["  a very", "    long:", "    one two"]),
    ],
)
def test_a_paragraph_is_wrapped_under_its_first_word(
    label: str, text: str, options: dict[str, int], lines: list[str]
) -> None:
    assert [line.rstrip() for line in paragraph(label, text, 12, **options)] == lines


STORY = """\
G1 MUST (gc) is broken

happened  50 cycles left 50 more files in /dev/shm than 5 cycles did.
contract  The transport uses no more memory after many cycles than after a few.
suffers   A job that runs for days runs out of memory.
source    ray#1
explained rdt-conformance clause G1

Example:
  cycles = 50

History:
  #  t(ms)  process  lane         call                     outcome
  1    0.0  source   main         task produce          -> returned  … ended after step 2
  2    1.2  source   main         extract obj1          -> 1 tensor
  3    4.2  sink     _ray_system  recv obj1             -> raised KeyError  … ended during step 5
  4    5.0  source   _ray_system  garbage_collect obj1  -> ok
  5    6.5  sink     main         wait obj2             -> … never ended

Replay it with:
  pytest --transport=mine:Mine --rdt-seed=7 -k test_leak"""


def test_a_story_names_the_clause_tells_what_happened_and_ends_with_the_replay() -> None:
    assert story.render(LEAK) == STORY


def test_a_story_shows_the_authors_frames_the_stacks_and_that_it_was_a_race() -> None:
    failure = Failure(
        "G2", "It hung.", error='File "mine.py"\nKeyError: 1', stacks="sink main\n  lock", flaky=True, replay="r"
    )
    told = story.render(failure)
    assert 'Raised by the transport:\n  File "mine.py"\n  KeyError: 1\n' in told
    assert "Where each thread was stuck:\n  sink main\n    lock\n" in told
    assert "flaky     It broke once and not again on the same input: a race" in told


def test_a_story_of_a_clause_without_register_entry_is_still_told() -> None:
    assert story.render(Failure("Z9", "It broke.")) == (
        "Z9 (not in the register) is broken\n\nhappened  It broke.\n\nReplay it with:\n  (no replay was recorded)"
    )


@pytest.mark.parametrize(
    ("spans", "reach"),
    [
        ([(0, 1), (2, 3)], ""),
        ([(0, 2), (2, 3)], ""),
        ([(0, 2), (1, 3)], "… ended during step 2"),
        ([(0, 4), (1, 3)], "… ended after step 2"),
        ([(0, 4), (1, 2), (3, 5)], "… ended during step 3"),
        ([(0, 4), (1, None)], "… ended during step 2"),
        ([(0, None), (1, 2)], "… never ended"),
    ],
)
def test_overlapping_steps_can_be_seen(spans: list[tuple[float, float | None]], reach: str) -> None:
    steps = [
        Step(number, at / 1000, "p", "main", "call", ended=None if ended is None else ended / 1000, outcome="ok")
        for number, (at, ended) in enumerate(spans, 1)
    ]
    assert story.history_lines(steps)[1] == f"1    0.0  p        main  call  -> ok  {reach}".rstrip()


def test_the_middle_of_a_long_history_is_left_out() -> None:
    steps = [Step(number, number, "p", "main", "call", ended=number, outcome="ok") for number in range(1, 101)]
    lines = story.history_lines(steps)
    assert [line.split()[0] for line in (lines[10], lines[12], lines[-1])] == ["10", "71", "100"]
    assert lines[11] == "… 60 steps left out; report.json holds them all"
    assert len(story.history_lines(steps[:40])) == 41
