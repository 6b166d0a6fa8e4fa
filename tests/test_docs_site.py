"""The docs as they are built: pages made of the code tell all of it, and what is not right is an error."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ray.experimental import TensorTransportManager
from suite_run import ROOT

from rdt_conformance.cli import make_parser
from rdt_conformance.contract import CLAUSES, Level
from rdt_conformance.faults_known import known_faults
from rdt_conformance.options import OPTIONS


@pytest.fixture(scope="module")
def pages() -> Any:
    """What mkdocs calls; found as mkdocs finds it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs" / "hooks"))
        return importlib.import_module("pages")


def test_the_page_of_a_clause_tells_all_of_it(pages: Any) -> None:
    faults = known_faults()
    for entry in CLAUSES.values():
        own = [fault for fault in faults if fault.clause == entry.id]
        page = pages.clause_page(entry, own).replace("\\", "")
        for text in (entry.sentence, entry.why, entry.suffers, entry.fix, *entry.source.split("; ")):
            assert text in page
        assert own or entry.level is Level.REPORT, "whatever can be broken has an example"
        assert all(fault.mistake.replace('"', "'") in page and fault.target in page for fault in own)
        assert f"]({entry.id}.md)" in pages.clause_index()


def test_the_page_of_the_command_line_tells_all_of_it(pages: Any) -> None:
    page = pages.command_line()
    rows = [line for line in page.splitlines() if line.startswith("| `--")]
    assert [row.split("`")[1].partition("=")[0] for row in rows] == [option.name for option in OPTIONS]
    plain = page.replace("\\", "")
    for option in OPTIONS:
        assert option.help in plain and all(f"`{choice}`" in plain for choice in option.choices)
    for command in make_parser()[1].values():
        assert command.format_help().strip() in page


def test_recorded_sequences_show_what_the_page_says(pages: Any) -> None:
    drawn = pages.on_page_content("<p>{{ sequence two_sided }}</p>")
    assert drawn.startswith("<figure><svg") and all(
        call in drawn for call in ("extract", "send", "recv", "_ray_system")
    )
    with pytest.raises(KeyError):
        pages.on_page_content("<p>{{ sequence nonsense }}</p>")


def test_the_methods_of_a_transport_are_shown_as_ray_has_them() -> None:
    page = (ROOT / "docs" / "internals.md").read_text()
    *imports, shown = ast.parse(page.partition("```python\n")[2].partition("```")[0]).body
    exec(compile(ast.Module(imports, []), "internals.md", "exec"))
    assert isinstance(shown, ast.ClassDef)
    methods = {method.name: method for method in shown.body if isinstance(method, ast.FunctionDef)}
    of_ray = {name for name, value in vars(TensorTransportManager).items() if name[0] != "_" and callable(value)}
    assert set(methods) == of_ray
    for name, method in methods.items():
        function = vars(TensorTransportManager)[name]
        assert bool(method.decorator_list) == isinstance(function, staticmethod)
        signature = inspect.signature(getattr(function, "__func__", function))
        assert [argument.arg for argument in method.args.args] == list(signature.parameters), name
        defaults = [each.default for each in signature.parameters.values() if each.default is not each.empty]
        assert [ast.literal_eval(default) for default in method.args.defaults] == defaults, name
    with_a_body = set(methods) - TensorTransportManager.__abstractmethods__
    assert with_a_body == {"fetch_multiple_tensors", "wait_fetch_complete"}


LINKS = "[a](nowhere.md) [b](#nowhere) [c](/index.md)"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (LINKS, ("'nowhere.md'", "#nowhere", "absolute link '/index.md'")),
        ('<script src="https://example.com/x.js"></script>', ("index.md loads something from elsewhere",)),
    ],
    ids=["links", "script"],
)
def test_what_is_not_right_ends_the_build(tmp_path: Path, wrong: str, told: tuple[str, ...]) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Home\n\n{wrong}\n")
    (tmp_path / "docs" / "sequence.css").touch()
    (tmp_path / "hooks.py").write_text(
        "import sys, types\nsys.modules['sequences'] = types.SimpleNamespace(drawn=None)\n"  # takes no part here
        f"sys.path.insert(0, {str(ROOT / 'docs' / 'hooks')!r})\nfrom pages import on_post_page\n"
    )
    (tmp_path / "mkdocs.yml").write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\nnav: [index.md]\nnot_in_nav: ''\nhooks: [hooks.py]\n"
    )
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert built.returncode == 1
    assert all(text in built.stderr for text in told)
