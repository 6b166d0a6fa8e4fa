"""A history as a sequence diagram: where everything lies, in characters and as SVG."""

from __future__ import annotations

import pytest
from made_reports import STEPS

from rdt_conformance.report import diagram
from rdt_conformance.report.diagram_svg import as_svg
from rdt_conformance.results import Failure, Step

TEXT = """\
               source (source)            driver (owner)        sink (destination)
               ┌─── main                  ┌─ main               ┌─── main
               │ ┌─ _ray_system           │                     │ ┌─ _ray_system
   1      0.0  ┏ │ task produce           │                     │ │
   2      1.2  ■ │ extract obj1           │                     │ │
   3      3.8  ┃ │                        ■ communicator obj1   │ │
               ┗ │ task produce ends      │                     │ │
   4      4.2  │ │                        │                     │ ┏ recv obj1
   5      5.0  │ ■ garbage_collect obj1   │                     │ ┃
   6      6.5  │ │                        │                     ┏ ┃ wait obj2 … never ended
▶              │ │                        │                     ┃ ┗ recv obj1 ends ✗ KeyError"""


def test_as_text() -> None:
    assert "\n".join(diagram.as_text(diagram.draw(STEPS, 4))) == TEXT


def test_nothing_happened() -> None:
    empty = diagram.draw(())
    assert diagram.as_text(empty) == []
    assert as_svg(empty, "nothing") == ""


def test_an_object_is_brought_from_where_it_was_sent_or_else_extracted() -> None:
    steps = [
        Step(1, 0.1, "a", "main", "extract_tensor_transport_metadata(1 tensor)", "x", 0.2, "Meta"),
        Step(2, 0.3, "b", "_ray_system", "recv_multiple_tensors()", "x", 0.4, "1 tensor"),
        Step(3, 0.5, "a", "_ray_system", "send_multiple_tensors(1 tensor)", "x", 0.6, "ok"),
        Step(4, 0.5, "b", "_ray_system", "recv_multiple_tensors()", "x", 0.7, "1 tensor"),
        Step(5, 0.8, "b", "_ray_system", "recv_multiple_tensors()", "unheard of", 0.9, "1 tensor"),
        Step(6, 0.8, "a", "main", "recv_multiple_tensors()", "x", 0.9, "1 tensor"),
    ]
    drawn = diagram.draw(steps)
    assert [(arrow.source, arrow.destination) for arrow in drawn.arrows] == [((0, 0), (1, 0)), ((0, 1), (1, 0))]
    assert drawn.columns[0].roles == ("source", "destination")


def test_calls_within_calls_lie_deeper() -> None:
    steps = [
        Step(1, 0.0, "a", "main", "outer", ended=0.9),
        Step(2, 0.1, "a", "main", "inner", ended=0.8),
        Step(3, 0.2, "a", "main", "innermost", ended=0.3),
        Step(4, 0.85, "a", "main", "beside", ended=0.87),
    ]
    assert [bar.depth for bar in diagram.draw(steps).bars] == [0, 1, 2, 1]


def test_the_middle_of_a_long_history_is_left_out() -> None:
    steps = [Step(n, n, "a", "main", "call", ended=n + 0.5) for n in range(1, 101)]
    drawn = diagram.draw(steps)
    lines = diagram.as_text(drawn)
    assert [line.split()[0] for line in lines[2:]] == [*map(str, range(1, 11)), "…", *map(str, range(71, 101))]
    assert "… 60 steps left out …" in as_svg(drawn, "long")


def test_of_a_long_history_what_became_of_the_object_is_shown_wherever_it_was() -> None:
    names = {number: "x" if number in (3, 50, 97) else f"o{number}" for number in range(1, 101)}
    steps = [Step(number, number, "a", "main", "call", name, ended=number + 0.5) for number, name in names.items()]
    drawn = diagram.draw(steps, 97)
    shown = [row.step.number if row.step else f"{row.left_out} left out" for row in drawn.rows]
    assert shown == ["2 left out", 3, "46 left out", 50, "34 left out", *range(85, 98), "3 left out"]
    assert "… 46 steps left out" in "\n".join(diagram.as_text(drawn))


def test_of_a_long_history_what_went_on_when_it_failed_is_shown() -> None:
    stuck = Step(1, 1, "b", "main", "send_multiple_tensors()", "x")
    steps = [stuck, *(Step(n, n, "a", "main", "call", f"o{n}", ended=n + 0.5) for n in range(2, 101))]
    assert [row.step.number for row in diagram.draw(steps, 100).rows if row.step] == [1, *range(88, 101)]


def test_a_step_that_came_to_be_known_late_does_not_upset_the_order() -> None:
    steps = [Step(9, 0.1, "a", "main", "first", ended=0.1), Step(3, 0.2, "b", "main", "second", ended=0.1)]
    assert [row.step.what for row in diagram.draw(steps).rows if row.step] == ["first", "second"]


RAISED = Step(3, 0.3, "sink", "main", "recv_multiple_tensors()", "x", 0.4, "raised KeyError: 1")
STUCK = Step(4, 0.4, "sink", "main", "wait_fetch_complete()", "x")
OTHER = Step(5, 0.5, "source", "main", "send_multiple_tensors()", "x")
LAST = Step(6, 0.6, "driver", "main", "garbage_collect", "x", 0.7, "ok")


@pytest.mark.parametrize(
    ("happened", "stacks", "marked"),
    [
        ("recv on sink raised KeyError: 1", "", 3),
        ("wait on sink did not come back within 2 s", "stack", 4),
        ("send on source did not come back within 2 s", "stack", 5),
        ("consume on sink did not come back within 2 s", "stack", 4),
        ("x arrived changed: byte 4", "", 4),
        ("50 files were left", "", None),
    ],
)
def test_the_step_that_the_failure_speaks_of_is_marked(happened: str, stacks: str, marked: int | None) -> None:
    failure = Failure("D1", happened, history=(RAISED, STUCK, OTHER, LAST), stacks=stacks)
    assert diagram.failing_step(failure) == marked


def test_of_many_waits_the_one_is_marked_that_the_failure_speaks_of() -> None:
    """It speaks of tensors that have arrived as well."""
    waits = [
        Step(n, n, "sink", "main", f"wait_fetch_complete(timeout={seconds})", f"o{n}", n + 0.5)
        for n, seconds in enumerate(("0", "0.01", "-1"))
    ]
    for seconds, number in (("0", 0), ("0.01", 1)):
        told = f"a wait with a timeout of {seconds} s brought the tensors late; once they have arrived, it is quick"
        assert diagram.failing_step(Failure("F2", told, history=tuple(waits))) == number


def test_without_a_history_nothing_is_marked() -> None:
    assert diagram.failing_step(Failure("D1", "It broke.")) is None


def test_as_svg() -> None:
    svg = as_svg(diagram.draw(STEPS, 4), "six <steps>")
    assert svg.startswith('<svg class="sequence" role="img" aria-label="six &lt;steps&gt;" viewBox="0 0 ')
    assert svg.count('<rect class="bar') == len(STEPS)
    assert svg.count('class="bar failed"') == svg.count('class="mark"') == 1
    assert svg.count('class="arrow"') == 1
    assert "<title>4. recv_multiple_tensors obj1 on sink (_ray_system), 26.8 ms: raised KeyError: &#39;obj1&#39;" in svg


def test_long_names_are_cut_in_the_picture_only() -> None:
    svg = as_svg(diagram.draw([Step(1, 0.0, "p" * 500, "l" * 500, "c" * 500, "o" * 500, 0.1, "r" * 500)]), "long")
    texts = svg.split("</title>")[1]
    assert "ppp…" in texts and "p" * 100 not in texts and "c" * 500 not in texts
    assert "c" * 500 in svg
