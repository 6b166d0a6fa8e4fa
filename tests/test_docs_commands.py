"""Every command that the README and the docs show is executed: here as it stands, or where it says below."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from faulty_runs import GPU_TARGETS, SOAK_MINUTES, SOAK_TARGETS, TARGETS, engine_of
from suite_run import ROOT, run_pytest_forked
from test_tutorial import BLOCKS

from rdt_conformance import cli, contract, explain
from rdt_conformance.faults_known import known_faults
from rdt_conformance.options import OPTIONS, SHORT_NAME

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BRIEF = ["--rdt-clause=S2", "--rdt-engine=local", "--benchmark-skip"]
"""Added to a command that would take minutes: it tries one clause then, and ends with 8 as checks were picked."""
COLLECT = ["--collect-only", "--quiet"]
"""Added where it would take a cluster of one's own, or minutes whatever is picked; the whole is done in `ELSEWHERE`."""

MINE = "pytest --transport=mymodule:MyTransport"
PYTEST = {
    ".venv/bin/pytest --transport=path/to/file.py:MyClass": BRIEF,
    f"{MINE} --rdt-nodes=3": COLLECT,
    f"{MINE} --rdt-address=auto --rdt-nodes=2": COLLECT,
    f"{MINE} --benchmark-only": COLLECT,
    f"{MINE} --rdt-profile=soak --rdt-minutes=30": COLLECT,
    "pytest --transport=new/transport.py:Mine --rdt-against=old/transport.py:Mine": COLLECT,
    "pytest --rdt-clauses": [],
    "pytest --rdt-list": [],
    "pytest --help": [],
}
"""Commands that are executed here, each by itself, and what is added to it."""

IN_TURN = (
    MINE,
    "rdt-conformance clause G1",
    "rdt-conformance judge rdt-report/report.json",
    "rdt-conformance report A.json B.json -o comparison",
)
"""Commands that are executed here one after the other: the first one leaves the report that the others read."""

ELSEWHERE = {
    "make test": (".ci/run", "make test"),
    "make docs": ("Makefile", "$(MAKE) docs"),
    "make conformance": (".ci/run", "for transport in shared-memory"),
    "pip install path/to/this/checkout": (".ci/run", '/pip" install'),
    "mkdir my-transport": (".ci/run", 'mkdir "$work/project"'),
    "cd my-transport": (".ci/run", 'cd "$work/project"'),
    "python3 -m venv .venv": (".ci/run", '-m venv "$work/project/.venv"'),
    ". .venv/bin/activate": (".ci/run", "export PATH=$project:$PATH"),
    f"{MINE} --rdt-nodes=3": ("tests/test_nodes.py", "--rdt-nodes=3"),
    f"{MINE} --rdt-address=auto --rdt-nodes=2": ("tests/test_nodes.py", "--rdt-address="),
    f"{MINE} --benchmark-only": ("tests/test_bench_plugin.py", "--benchmark-only"),
    f"{MINE} --rdt-profile=soak --rdt-minutes=30": ("tests/test_soak.py", '"--rdt-profile=soak", "--rdt-minutes=0.1"'),
    # On a machine with GPUs alone; what the second one says of Ray's transport is no matter of a test.
    f"{MINE} --rdt-devices=cuda": ("tests/gpu/test_gpu_faulty.py", "--rdt-devices=cuda"),
    "pytest --transport=ray:NCCL --rdt-engine=cluster,ray": (
        "docs/findings/ray-2.60-gpu.md",
        "--transport=ray:NAME --rdt-engine=cluster,ray --rdt-devices=cuda",
    ),
    # Minutes or hours: they are started by hand.
    "make power": ("Makefile", "-m tests.power"),
    'python -m tests.power --runs=150 --profiles="a sixth of quick"': ("tests/power/__main__.py", "__main__"),
    "python -m tests.power.proofs": ("tests/power/proofs.py", "__main__"),
    "python -m tests.power.histories": ("tests/power/histories.py", "__main__"),
    "python -m tests.power.replays --number=20 --seed=2026": ("tests/power/replays.py", "__main__"),
    "python -m tests.speed.figures shared-memory cross-memory tcp nixl inline": ("tests/speed/figures.py", "__main__"),
    "python -m tests.speed.cycles inline shared-memory cross-memory socket-pull tcp gloo nixl": (
        "tests/speed/cycles.py",
        "__main__",
    ),
    "pytest --transport=gloo --benchmark-only --rdt-engine=local --rdt-peers=raw:GLOO -k test_single_tensor": (
        "tests/test_bench_plugin.py",
        "--rdt-peers=",
    ),
    "python tests/gpu/figures.py nccl abort cuda_ipc nixl memory ray --out=DIR": ("tests/gpu/figures.py", "__main__"),
}
"""Commands that something else executes, or the same with other names: which file, and what stands in it there."""

PLANNED = {
    "make conformance": ".venv/bin/pytest --transport=reference_transports.shared_memory:SharedMemoryTransport",
    # Several versions of Ray are installed and tried for these, which takes long: they are started by hand.
    "make compat": "-m tests.compat",
    'make compat RAY_VERSIONS="2.57.0 2.60.0"': '-m tests.compat --versions="2.57.0 2.60.0"',
    'make compat COMPAT_ARGS="--transports=inline --engines=ray --folder=/somewhere"': (
        "-m tests.compat  --transports=inline --engines=ray --folder=/somewhere"
    ),
}
"""Commands of which only the plan is made here, and what is in it."""


def shown(page: Path) -> list[str]:
    """The commands in the shell blocks of a page, without their comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]


def test_every_command_is_executed_somewhere() -> None:
    tutorial = set(shown(ROOT / "docs" / "tutorial.md")) - ELSEWHERE.keys()
    commands = {command for page in PAGES for command in shown(page)}
    assert commands - tutorial == PYTEST.keys() | ELSEWHERE.keys() | PLANNED.keys() | set(IN_TURN)
    for file, marker in ELSEWHERE.values():
        assert marker in (ROOT / file).read_text(encoding="utf-8"), file


def test_no_block_hides_a_command() -> None:
    command = re.compile(r"(pytest|rdt-conformance|make|pip|python3?) ")
    for page in PAGES:
        language = None
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith("```"):
                language = line.strip("`") if language is None else None
            hidden = language in ("", "text") or (language is None and line.startswith("    "))
            assert not (hidden and command.match(line.strip())), f"{page}: {line}"


def test_every_option_that_is_named_exists() -> None:
    known = {option.name for option in OPTIONS} | {SHORT_NAME}
    for page in PAGES:
        named = set(re.findall(r"--(?:no-)?rdt-[a-z][a-z-]*", page.read_text(encoding="utf-8")))
        assert named <= known, page


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a transport under each of the names that the pages give it."""
    folder = tmp_path_factory.mktemp("project")
    source = next(text for language, _, text in BLOCKS if language == "python")
    for place, name in (
        ("mymodule.py", "MyTransport"),
        ("path/to/file.py", "MyClass"),
        ("old/transport.py", "Mine"),
        ("new/transport.py", "Mine"),
    ):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(source.replace("MemfdTransport", name))
    return folder


@pytest.mark.parametrize("command", PYTEST)
def test_a_command_of_pytest(project: Path, command: str) -> None:
    added = PYTEST[command]
    done = run_pytest_forked(project, [*command.split()[1:], *added])
    assert done.status == (8 if added == BRIEF else 0), done.printed
    assert "1 passed" in done.printed or added != BRIEF


def test_the_commands_that_follow_a_run(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, *others = IN_TURN
    done = run_pytest_forked(project, [*run.split()[1:], *BRIEF])
    assert done.status == 8 and "1 passed" in done.printed
    monkeypatch.chdir(project)
    for copy in ("A.json", "B.json"):
        shutil.copy("rdt-report/report.json", copy)
    assert [cli.main(command.split()[1:]) for command in others] == [0, 8, 0]
    assert "G1 MUST (gc)" in capsys.readouterr().out
    assert list((project / "comparison").iterdir())


@pytest.mark.parametrize("command", PLANNED)
def test_what_make_would_do(command: str) -> None:
    planned = subprocess.run(
        [*shlex.split(command), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    assert PLANNED[command] in planned.stdout


def test_the_commands_for_faulty_transports_name_an_engine_that_catches_them() -> None:
    """`test_faulty` runs the same checks of the same transports there; `tests/gpu` and `power` those that need more."""
    faults = known_faults()
    assert {fault.target for fault in faults} == TARGETS.keys() | GPU_TARGETS.keys() | SOAK_TARGETS.keys()
    for fault in faults:
        command = explain.command(contract.clause(fault.clause), fault)
        if fault.target in SOAK_TARGETS:
            assert command.endswith(f"--rdt-profile=soak --rdt-minutes={SOAK_MINUTES}")
            continue
        assert f"--rdt-engine={engine_of(fault.target)}" in command
        assert ("--rdt-devices=cuda" in command) == (fault.target in GPU_TARGETS)


def test_a_command_for_a_faulty_transport_catches_it(tmp_path: Path) -> None:
    fault = next(fault for fault in known_faults() if fault.clause == "M4")
    done = run_pytest_forked(tmp_path, [*explain.command(contract.clause("M4"), fault).split()[1:], "--benchmark-skip"])
    assert done.status == 1 and "M4 MUST (metadata) is broken" in done.printed
