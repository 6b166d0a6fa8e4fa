"""Every bug in ``docs/past-bugs.md`` has a faulty transport that breaks the clause which is named beside it."""

from __future__ import annotations

import re
from pathlib import Path

from faulty_runs import TARGETS, broken_by, engine_of

TABLE = (Path(__file__).parent.parent / "docs" / "past-bugs.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| (?P<where>[^|]+) \| [^|]+ \| (?P<clause>\w+) \| `(?P<target>[\w.:]+)(?P<engine> .*)?` \|$", TABLE, re.M
)


def test_each_row_names_what_breaks_its_clause() -> None:
    assert len(ROWS) == TABLE.count("\n| ") - 2
    for _, clause, target, options in ROWS:
        engine = engine_of(target)
        assert clause == broken_by(target).id
        assert options == ("" if engine == "local" else f" --rdt-engine={engine}")


def test_whoever_cites_a_bug_is_in_the_table() -> None:
    cited = {target: set(re.findall(r"\w+#\d+", kind.__doc__ or "")) for target, kind in TARGETS.items()}
    missing = {
        target: bugs
        for target, bugs in cited.items()
        if bugs and not any(target == row and bugs <= set(re.findall(r"\w+#\d+", where)) for where, _, row, _ in ROWS)
    }
    assert not missing
