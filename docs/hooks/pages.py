"""What mkdocs calls while it builds: pages that are made of the code, and a look at what every page loads."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sequences import drawn

from rdt_conformance import contract, explain
from rdt_conformance.cli import make_parser
from rdt_conformance.contract import Clause
from rdt_conformance.faults_known import Fault, known_faults
from rdt_conformance.options import OPTIONS, Option
from rdt_conformance.sources import sources

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

_FROM_ELSEWHERE = re.compile(r"""<(?:link|script|img|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//""")
_SEQUENCE = re.compile(r"<p>\{\{ sequence (\w+) \}\}</p>")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of the register and of the parser of the command line."""
    from mkdocs.structure.files import File

    faults = known_faults()
    made = {"clauses/index.md": clause_index(), "cli.md": command_line()}
    made |= {
        f"clauses/{entry.id}.md": clause_page(entry, [fault for fault in faults if fault.clause == entry.id])
        for entry in contract.CLAUSES.values()
    }
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Put recorded sequences where a page asks for them."""
    return _SEQUENCE.sub(lambda found: drawn(found[1]), html)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse a page that would load something from elsewhere.

    Raises:
        PluginError: it does.
    """
    if found := _FROM_ELSEWHERE.search(output):
        from mkdocs.exceptions import PluginError

        raise PluginError(f"{page.file.src_uri} loads something from elsewhere: {found[0]}")
    return output


# --- the contract -----------------------------------------------------------------------------------------------------


def clause_page(entry: Clause, faults: Sequence[Fault]) -> str:
    """The page of one clause: what `rdt-conformance clause` prints, with links."""
    labels = {"why": "Why", "if broken": "What a user suffers if it is broken", "what to do": "How to fix it"}
    told = explain.facts(entry)
    prose = [f"**{title}.** {_text(told.pop(label))}" for label, title in labels.items()]
    rows = {label.capitalize(): _text(text) for label, text in told.items()}
    rows["Source"] = "<br>".join(f"[{_text(text)}]({address})" for text, address in sources(entry.source))
    rows["Its checks alone"] = f"`pytest --transport=TARGET --rdt-clause={entry.id}`"
    sections = [
        f"# {entry.id}: {entry.area.value}, {entry.level.value}",
        _text(entry.sentence),
        *prose,
        _table(("", ""), [(f"**{label}**", text) for label, text in rows.items()]),
        *(["## Transports that break it on purpose"] if faults else []),
        *[_example(entry, fault, first=fault is faults[0]) for fault in faults],
        f"In a terminal: `rdt-conformance clause {entry.id}`. [All clauses](index.md#{entry.area.value}).",
    ]
    return "\n\n".join(sections) + "\n"


def _example(entry: Clause, fault: Fault, *, first: bool) -> str:
    title = f"{fault.name}: {fault.mistake}".replace('"', "'")
    body = f"```python\n{fault.code}\n```\n\n`{explain.command(entry, fault)}`"
    return f'???{"+" if first else ""} example "{title}"\n\n' + textwrap.indent(body, "    ")


def clause_index() -> str:
    """Every clause, by area, in the order in which a transport should be made right."""
    sections = [
        "# The contract",
        f"{len(contract.CLAUSES)} clauses. MUST is what Ray relies on or documents: if one is broken, the run fails. "
        "SHOULD is what a user would suffer from: a warning. REPORT has no right or wrong. Each has a page with the "
        "reason, what to do, and a transport that breaks it.",
    ]
    for area, clauses in contract.by_area().items():
        rows = [(f"[{e.id}]({e.id}.md)", e.level.value, _text(e.sentence), e.applies.value) for e in clauses]
        sections += [
            f"## {area.value.capitalize()}",
            _table(("id", "level", "what the transport owes", "speaks of"), rows),
        ]
    return "\n\n".join(sections) + "\n"


# --- the command line -------------------------------------------------------------------------------------------------


def command_line() -> str:
    """The reference of the command line, from the very rows and parsers that read it."""
    rows = [(f"`{_spelled(option)}`", _help(option), option.default or "none") for option in OPTIONS]
    no_ini = ", ".join(f"`{option.name}`" for option in OPTIONS if not option.ini)
    parser, commands = make_parser()
    sections = [
        "# Command line",
        "## pytest",
        "`--transport=TARGET` is short for `--rdt-transport=TARGET`. If your project (a `conftest.py` or another "
        "plugin) has an option `--transport` of its own, yours keeps the name, and ours goes by its long name alone.",
        _table(("option", "meaning", "default"), rows),
        f"Every option but {no_ini} can also stand in the ini file, without the dashes in front and with underscores.",
        "## rdt-conformance",
        _usage(parser),
        *[f"### {name}\n\n{_usage(command)}" for name, command in commands.items()],
    ]
    return "\n\n".join(sections) + "\n"


def _spelled(option: Option) -> str:
    return f"{option.name}={option.metavar}" if option.metavar else option.name


def _help(option: Option) -> str:
    choices = f"; one of {', '.join(f'`{choice}`' for choice in option.choices)}" if option.choices else ""
    return _text(option.help) + choices


def _usage(parser: argparse.ArgumentParser) -> str:
    return f"```text\n{parser.format_help().rstrip()}\n```"


# --- Markdown ---------------------------------------------------------------------------------------------------------


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _text(plain: str) -> str:
    """Plain text that Markdown leaves as it is."""
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", plain)
