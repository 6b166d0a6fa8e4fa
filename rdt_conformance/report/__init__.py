"""Shows a verdict: in the terminal, as the story of one failure, and as ``report.json``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator


def paragraph(label: str, text: str, width: int, *, indent: int = 0, column: int = 0) -> Iterator[str]:
    """A labelled paragraph, wrapped under its own first word: ``label   text …``; under its label if that is long.

    Args:
        label: what stands to the left of the text.
        text: any white space in it counts as one space.
        width: the longest line, in characters; a word longer than that is not broken.
        indent: spaces before the label.
        column: where the text begins, counted from where the label does; a longer label moves it to the right.
    """
    head = " " * indent + f"{label} ".ljust(column)
    words = " ".join(text.split())
    if len(head) > width * 2 // 3:
        words, head, below = f"{label} {words}", " " * indent, " " * 2 * indent
    else:
        below = " " * len(head)
    wrapped = textwrap.wrap(
        words,
        width,
        initial_indent=head,
        subsequent_indent=below,
        break_long_words=False,
        break_on_hyphens=False,
    )
    yield from wrapped or [head.rstrip()]
