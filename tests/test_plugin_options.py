"""The options of the plugin, their twins in ini files, and what is said of values that make no sense."""

from __future__ import annotations

import importlib.util
import os
from importlib.metadata import EntryPoint

import pytest
from made_suites import LOADED, NO_CACHE, TARGET, Run

from rdt_conformance import locate
from rdt_conformance.options import OPTIONS

pytestmark = pytest.mark.usefixtures("not_side_by_side")


def test_help_shows_every_option_and_its_ini_twin(run: Run) -> None:
    result = run("--help", transport="")
    assert result.ret == 0
    text = result.stdout.str()
    assert "Ray Direct Transport conformance:" in text
    assert "--transport=TARGET" in text
    for option in OPTIONS:
        assert f"  {option.name}" in text
        assert option.ini == (f"  {option.key} (" in text)


def test_help_does_not_look_at_the_transport(run: Run) -> None:
    result = run("--help", transport="no_such_module:Class")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*--rdt-transport=TARGET*"])


SEEN_TO_WORK = {
    "rdt_engine": ("auto", "rdt run: engine local,*"),
    "rdt_devices": ("cpu", "  devices    cpu  [[]--rdt-devices[]]"),
    "rdt_data_type": ("numpy.ndarray", "  data type  numpy.ndarray  [[]--rdt-data-type[]]"),
    "rdt_profile": ("quick", "rdt run: *profile quick,*"),
    "rdt_seed": ("77", "rdt run: *--rdt-seed=77,*"),
    "rdt_report": ("elsewhere", "report: */elsewhere/report.html"),
    "rdt_transport": (TARGET, f"rdt transport: {TARGET}"),
    "rdt_nodes": ("2", "rdt run: *, 2 nodes, *"),
    "rdt_peers": ("tcp,cross-memory", "rdt benchmarks: in full, with tcp, cross-memory beside it"),
    "rdt_require": ("abort,level:1", "   abort is required: can_abort_transport() says that it cannot"),
    "rdt_against": ("tcp", "rdt benchmarks: in full*, against tcp"),
}
WITHOUT_A_RUN = {
    "rdt_nodes": ("--collect-only",),  # no Ray needs to start for that
    "rdt_peers": ("--collect-only", "--benchmark-only"),
    "rdt_against": ("--collect-only", "--benchmark-only"),
}


@pytest.mark.parametrize("key", SEEN_TO_WORK)
@pytest.mark.parametrize("way", ["command line", "ini file"])
def test_an_option_and_its_ini_twin_do_the_same(run: Run, pytester: pytest.Pytester, key: str, way: str) -> None:
    value, seen = SEEN_TO_WORK[key]
    brief = WITHOUT_A_RUN.get(key, ())
    transport = "" if key == "rdt_transport" else TARGET
    if way == "ini file":
        profile = "" if key == "rdt_profile" else "rdt_profile = quick"
        pytester.makeini(f"[pytest]\n{key} = {value}\n{profile}\nno_rdt_report = {key != 'rdt_report'}")
        args = (*brief, *(() if transport else ("--rootdir=.",)))
        given = (f"--transport={transport}",) if transport else ()
        result = pytester.runpytest_inprocess(*LOADED, *given, *args, *NO_CACHE)
    else:
        name = "--" + key.replace("_", "-")
        result = run(f"{name}={value}", *brief, *(() if transport else ("--no-rdt-report",)), transport=transport)
    result.stdout.fnmatch_lines([seen])
    assert (pytester.path / "elsewhere" / "report.json").exists() == (key == "rdt_report")


@pytest.mark.parametrize("place", ["mine.py", "below/mine.py"])
def test_a_file_that_the_ini_file_names_is_found_from_everywhere(pytester: pytest.Pytester, place: str) -> None:
    pytester.makeini(f"[pytest]\nrdt_transport = {place}:Mine\nrdt_engine = local\nno_rdt_report = true")
    path = pytester.path / place
    path.parent.mkdir(exist_ok=True)
    path.write_text("from reference_transports.inline import InlineTransport\nclass Mine(InlineTransport): pass\n")
    (pytester.path / "below" / "further").mkdir(parents=True)
    for start in ("", "below/further"):
        os.chdir(pytester.path / start)
        seen = os.path.relpath(path)
        result = pytester.runpytest_inprocess(*LOADED, "--collect-only", *NO_CACHE)
        result.stdout.fnmatch_lines([f"rdt transport: {seen}:Mine"])
    os.chdir(pytester.path)


def test_a_package_that_is_missing_is_no_fault_of_the_transport(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for transport in ("reference_transports.nixl:NixlTransport", "ray:NIXL"):
        result = run(transport=transport)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"ERROR: {transport} needs the package nixl, which is not installed"])


def test_the_seen_options_are_all_there_are() -> None:
    elsewhere = {
        "no_rdt_report",
        "rdt_clauses",
        "rdt_address",
        "rdt_baseline",
        "rdt_deviations",
        "rdt_replay",
        "rdt_list",
        "rdt_clause",
        "rdt_minutes",
    }
    assert set(SEEN_TO_WORK) | elsewhere == {option.key for option in OPTIONS}


BAD_VALUES = {
    "--rdt-engine=warp": "--rdt-engine: 'warp' is not known; choose from auto, local, cluster, ray",
    "--rdt-engine=local,warp": "--rdt-engine: 'warp' is not known; choose from auto, local, cluster, ray",
    "--rdt-engine=,": "--rdt-engine: ',' is not known; choose from auto, local, cluster, ray",
    "--rdt-devices=cpu,tpu": "--rdt-devices: 'tpu' is not known; choose from cpu, cuda",
    "--rdt-devices=": "--rdt-devices: '' is not known; choose from cpu, cuda",
    "--rdt-data-type=torch": "--rdt-data-type: 'torch' is not known; choose from torch.Tensor, numpy.ndarray",
    "--rdt-profile=slow": "--rdt-profile: 'slow' is not known; choose from quick, standard, thorough, soak",
    "--rdt-seed=-1": "--rdt-seed: '-1' is not a whole number from 0 up",
    "--rdt-seed=x": "--rdt-seed: 'x' is not a whole number from 0 up",
    "--rdt-require=level:7": "--rdt-require: 'level:7' is not known; choose from level:1, level:2, ",
    "--rdt-require=,": "--rdt-require: ',' is not known; choose from ",
    "--rdt-nodes=0": "--rdt-nodes: '0' is not a whole number from 1 to 16",
    "--rdt-nodes=many": "--rdt-nodes: 'many' is not a whole number from 1 to 16",
    "--rdt-report=in_the_way/deeper": "--rdt-report: nothing can be written to",
    "--rdt-report=/proc/deeper": "--rdt-report: nothing can be written to /proc",
    "--rdt-transport=nope:Nope": "there is no module 'nope'",
    "--rdt-against=nope:Nope": "--rdt-against: there is no module 'nope'",
    "--rdt-peers=tcp,nope:Nope": "--rdt-peers: there is no module 'nope'",
    "--rdt-baseline=nothing.json": "--rdt-baseline: ",
}


@pytest.mark.parametrize("given", BAD_VALUES)
def test_a_bad_value_is_explained_in_one_line(run: Run, pytester: pytest.Pytester, given: str) -> None:
    (pytester.path / "in_the_way").touch()
    result = run(given, "--no-header")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = [line for line in result.stderr.lines if line]
    assert len(said) == 1
    assert said[0].startswith(f"ERROR: {BAD_VALUES[given]}")
    assert sorted(path.name for path in pytester.path.iterdir()) == ["in_the_way"]


def test_an_option_that_would_do_nothing_is_refused(run: Run) -> None:
    result = run("--rdt-profile=quick", transport="")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --rdt-profile: nothing to do without a transport; add --rdt-transport=TARGET"])


@pytest.mark.parametrize("idle", ["--rdt-nodes=2", "--rdt-address=auto"])
def test_an_option_for_ray_is_refused_without_it(run: Run, idle: str) -> None:
    result = run(idle, "--rdt-engine=local")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {idle.split('=')[0]}: the local engine needs no Ray; *"])


def test_the_clauses_can_be_listed_without_a_transport(run: Run) -> None:
    result = run("--rdt-clauses", transport="")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["LIFECYCLE*", "L1 *test_works*", "*clauses: *MUST*"])


def test_the_known_transports_can_be_listed_without_a_transport(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(broken_package="raise RuntimeError('no licence')\nmore = 1")
    entries = [
        EntryPoint(name, value, locate.SHORT_NAMES)
        for name, value in {
            "inline": TARGET,
            "nixl": "reference_transports.nixl:NixlTransport",
            "broken": "broken_package:Thing",
            "absent": "no_such_package:Thing",
            "vague": "reference_transports.inline",
        }.items()
    ]
    twice = EntryPoint("absent", "other_package:Thing", locate.SHORT_NAMES)
    monkeypatch.setattr(locate, "entry_points", lambda group: [*entries, entries[0], twice])
    result = run("--rdt-list", transport="")
    assert result.ret == 0
    given = "unknown package  "
    result.stdout.fnmatch_lines_random(
        [
            f"inline * {given}one-sided, torch.Tensor on cpu",
            f"nixl * {given}one-sided, torch.Tensor on cpu; can abort; needs the package nixl*",
            f"broken * {given}not usable here: cannot import broken_package: RuntimeError: no licence",
            f"absent * {given}not usable: several packages give this name: no_such_package:Thing",
            f"absent * {given}not usable: several packages give this name: other_package:Thing",
            f"vague * {given}not usable here: 'vague': the entry point of unknown package names no class, *",
            "ray:NIXL * ray 2.* one-sided, torch.Tensor on cpu; can abort; needs the package nixl*",
            "ray:GLOO * ray 2.* two-sided, torch.Tensor on cpu; needs a process for each actor",
            "ray:NCCL * ray 2.* not usable here: ray:NCCL: torch finds no CUDA device *",
        ]
    )
    assert len([line for line in result.stdout.lines if line]) == 11
    result = run(transport="absent")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: 'absent' is given by unknown package (no_such_package:Thing) and *"])
