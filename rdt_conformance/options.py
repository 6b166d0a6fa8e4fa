"""The command line options, as data.

Everything the user can set is one row of `OPTIONS`: the parser, the ini twins, ``--help``, the docs and the
tests all read it from there. Imported in every pytest run of every project that has the plugin, hence light.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from rdt_conformance.replay import Replay, ReplayProblem

GROUP = "rdt-conformance"
SHORT_NAME = "--transport"
"""A common name: registered as a synonym of ``--rdt-transport``, and only where the project does not use it itself."""

ENGINES = ("local", "cluster", "ray")
DEVICES = ("cpu", "cuda")
DATA_TYPES = ("torch.Tensor", "numpy.ndarray", "jax.Array", "pyarrow.Table")
SOAK, MINUTES = "soak", 5.0
PROFILES = ("quick", "standard", "thorough", SOAK)
MOST_NODES = 16
LEVEL = "level:"
REQUIREMENTS = (
    *(f"{LEVEL}{number}" for number in range(1, 7)),
    "one-sided",
    "two-sided",
    "abort",
    "own-fetch",
    "target-buffers",
    "cuda",
)
"""What a run can be required to find; `rdt_conformance.requirements` knows what each means."""


@dataclass(frozen=True)
class Option:
    """One option of the command line. Its ini twin is the same name without dashes in front and with underscores."""

    name: str
    help: str
    metavar: str = ""
    """Stands for the value in ``--help``; empty for a flag, which takes none."""
    default: str = ""
    """What holds if neither the command line nor the ini file says anything, in the user's words."""
    choices: tuple[str, ...] = ()
    ini: bool = True
    """False for an action, which makes no sense as a standing setting."""

    @property
    def key(self) -> str:
        """Its name as an ini setting and as an attribute of ``config.option``."""
        return self.name.lstrip("-").replace("-", "_")


OPTIONS = (
    Option(
        "--rdt-transport",
        f"the transport to judge; {SHORT_NAME} is short for it, wherever no conftest.py or other plugin uses that name",
        metavar="TARGET",
    ),
    Option(
        "--rdt-engine",
        "what carries the transfers: the reference RDT in this process (local) or with each actor in a Ray process of "
        "its own (cluster), or Ray's own RDT (ray); auto is local and ray, or local alone if quick, and cluster "
        "instead of local for a transport that needs a process",
        metavar="LIST",
        default="auto",
        choices=("auto", *ENGINES),
    ),
    Option(
        "--rdt-devices",
        "device types whose memory is sent, separated by commas",
        metavar="LIST",
        default="profile, else cpu, or what Ray has it registered for",
        choices=DEVICES,
    ),
    Option(
        "--rdt-data-type",
        "type of what is sent",
        metavar="NAME",
        default="profile, else torch.Tensor",
        choices=DATA_TYPES,
    ),
    Option(
        "--rdt-profile",
        "how much is tried: quick (about 30 s on two idle cores), standard (about 3 min), thorough (30 min); soak "
        "is nothing but random work on Ray for --rdt-minutes, in which actors are killed",
        metavar="NAME",
        default="standard",
        choices=PROFILES,
    ),
    Option("--rdt-minutes", "how long a soak works; a part of one will do", metavar="N", default=f"{MINUTES:g}"),
    Option(
        "--rdt-clause",
        "run only the checks that cover these clauses, by their ids and separated by commas",
        metavar="LIST",
        default="all that apply",
        ini=False,
    ),
    Option("--rdt-report", "folder for the report", metavar="DIR", default="rdt-report"),
    Option("--no-rdt-report", "write no report"),
    Option(
        "--rdt-seed", "seed of everything that is chosen at random", metavar="N", default="random, shown in the header"
    ),
    Option(
        "--rdt-address",
        "existing Ray cluster for the engines that need Ray, host:port or auto; it is left as it was",
        metavar="ADDR",
        default="a private one, started for the run",
    ),
    Option(
        "--rdt-nodes",
        "spread the actors over this many nodes of the cluster; a private one gets as many, all on this machine",
        metavar="N",
        default="1",
    ),
    Option(
        "--rdt-peers",
        "other transports to measure beside it, named as it is and separated by commas; or libraries by themselves: "
        "raw:NIXL, raw:GLOO, raw:NCCL; or none",
        metavar="LIST",
        default="Ray's NIXL, if installed, with --benchmark-only",
    ),
    Option(
        "--rdt-against",
        "another transport, or another version of it (path/to/file.py:Class), to hold it against in interleaved "
        "benchmarks: what is worse fails",
        metavar="TARGET",
        default="nothing",
    ),
    Option(
        "--rdt-baseline",
        "report.json of an earlier run to hold the benchmarks against: what is worse fails",
        metavar="FILE",
        default="nothing",
    ),
    Option(
        "--rdt-deviations",
        "TOML file of known deviations: a clause that is listed with engine, reason, link and a last day may be broken "
        "until then; an entry that is no longer true fails",
        metavar="FILE",
        default="nothing is listed",
    ),
    Option(
        "--rdt-require",
        "what the transport must reach or be able to do, or the run fails: a level, and capabilities",
        metavar="LIST",
        default="nothing besides its clauses",
        choices=REQUIREMENTS,
    ),
    Option(
        "--rdt-replay",
        "show one failure again: the token that was printed with it says which check, on what, and every choice in it",
        metavar="TOKEN",
        ini=False,
    ),
    Option("--rdt-list", "show every transport that has a name here, and what it needs, then exit", ini=False),
    Option("--rdt-clauses", "show every clause of the contract and the checks that cover it, then exit", ini=False),
)


@dataclass(frozen=True)
class Settings:
    """What the command line and the ini file ask for, valid. None: not said."""

    transport: str
    from_command_line: bool
    """False if only the ini file names the transport."""
    engines: tuple[str, ...]
    """Empty: what suits the transport."""
    devices: tuple[str, ...] | None
    data_type: str | None
    profile: str
    minutes: float
    report: str | None
    """The report's folder; None: no report."""
    seed: int | None
    address: str | None
    """Of an existing Ray cluster; None: a private one."""
    nodes: int
    peers: tuple[str, ...] | None
    against: str | None
    baseline: str | None
    deviations: Path | None
    required: tuple[str, ...]
    clauses: tuple[str, ...]
    """Of which the checks are run; empty: all."""
    replay: Replay | None = None
    """The one example that is run; None: a whole run."""


def register(parser: pytest.Parser) -> None:
    """Register every option and its ini twin, except `SHORT_NAME`."""
    group = parser.getgroup(GROUP, "Ray Direct Transport conformance")
    for option in OPTIONS:
        if option.metavar:
            group.addoption(option.name, dest=option.key, metavar=option.metavar, default=None, help=_help(option))
        else:
            group.addoption(option.name, dest=option.key, action="store_true", default=False, help=_help(option))
        if option.ini:
            parser.addini(option.key, f"Default for {option.name}.", type="string" if option.metavar else "bool")


def register_short_name(parser: pytest.Parser) -> None:
    """Register `SHORT_NAME` if nobody else has; call it once the project's conftest files had their say."""
    taken = {
        name for group in (*parser._groups, parser._anonymous) for option in group.options for name in option.names()
    }
    if SHORT_NAME not in taken:
        parser.getgroup(GROUP).addoption(
            SHORT_NAME, dest="rdt_transport", metavar="TARGET", default=None, help="short for --rdt-transport"
        )


def read(config: pytest.Config) -> Settings | None:
    """What the user asks for; None if no transport is named, which means that this plugin has nothing to do.

    Raises:
        pytest.UsageError: a value is not allowed, or options are given that do nothing without a transport.
    """
    transport = _transport(config)
    if transport is None:
        _complain_about_idle_options(config)
        return None
    replay = _replay(config)
    if replay is not None:
        return _settings(config, transport, (replay.engine,), replay.nodes, replay.profile, replay.seed, replay)
    engines = _engines(config)
    nodes = _number(config, "--rdt-nodes", 1, MOST_NODES)
    address = _text(config, "--rdt-address")
    _complain_about_no_ray(engines, {"--rdt-address": address is not None, "--rdt-nodes": nodes not in (None, 1)})
    profile = _one(config, "--rdt-profile") or "standard"
    return _settings(config, transport, engines, nodes or 1, profile, _number(config, "--rdt-seed", 0), None)


def _transport(config: pytest.Config) -> str | None:
    """The target; a file that the ini file names lies in that one's folder, wherever pytest was started."""
    value = _text(config, "--rdt-transport")
    place, _, name = (value or "").rpartition(":")
    if value is None or config.getoption("rdt_transport") is not None or not place.endswith(".py"):
        return value
    folder = config.inipath.parent if config.inipath else config.rootpath
    return value if os.path.isabs(place) else f"{os.path.relpath(folder / place, config.invocation_params.dir)}:{name}"


def _settings(
    config: pytest.Config,
    transport: str,
    engines: tuple[str, ...],
    nodes: int,
    profile: str,
    seed: int | None,
    replay: Replay | None,
) -> Settings:
    return Settings(
        transport=transport,
        from_command_line=config.getoption("rdt_transport") is not None,
        engines=engines,
        devices=_several(config, "--rdt-devices"),
        data_type=_one(config, "--rdt-data-type"),
        profile=profile,
        minutes=_minutes(config, profile),
        report=None if _flag(config, "--no-rdt-report") else _text(config, "--rdt-report") or "rdt-report",
        seed=seed,
        address=_text(config, "--rdt-address"),
        nodes=nodes,
        peers=_peers(config),
        against=_text(config, "--rdt-against"),
        baseline=_text(config, "--rdt-baseline"),
        # A replay shows a failure as it is, and is about nothing else.
        deviations=None if replay else _file(config, "--rdt-deviations"),
        required=() if replay else _several(config, "--rdt-require") or (),
        clauses=_clauses(config),
        replay=replay,
    )


_IN_TOKEN = ("--rdt-clause", "--rdt-engine", "--rdt-nodes", "--rdt-profile", "--rdt-seed")


def _replay(config: pytest.Config) -> Replay | None:
    token = _text(config, "--rdt-replay")
    if token is None:
        return None
    told_twice = [name for name in _IN_TOKEN if config.getoption(_option(name).key) is not None]
    if told_twice:
        raise pytest.UsageError(f"{', '.join(told_twice)}: the token of --rdt-replay says that already; leave it out")
    try:
        return Replay.decode(token)
    except ReplayProblem as problem:
        raise pytest.UsageError(f"--rdt-replay: {problem}") from None


def _help(option: Option) -> str:
    text = option.help
    if option.choices:
        text += f"; one of {', '.join(option.choices)}"
    if option.default:
        text += f" (default: {option.default})"
    return text


def _engines(config: pytest.Config) -> tuple[str, ...]:
    named = _several(config, "--rdt-engine") or ()
    return () if "auto" in named else named


def _clauses(config: pytest.Config) -> tuple[str, ...]:
    named = _text(config, "--rdt-clause")
    if named is not None and not _split(named):
        raise pytest.UsageError(f"--rdt-clause: {named!r} names no clause; --rdt-clauses lists them all")
    return tuple(_split(named or ""))


def _peers(config: pytest.Config) -> tuple[str, ...] | None:
    named = _text(config, "--rdt-peers")
    return None if named is None else tuple(name for name in _split(named) if name != "none")


def _text(config: pytest.Config, name: str) -> str | None:
    """The value of an option: from the command line, else from the ini file, else None."""
    key = _option(name).key
    given = config.getoption(key)
    if given is not None or not _option(name).ini:
        return given
    return config.getini(key) or None


def _file(config: pytest.Config, name: str) -> Path | None:
    """A file: from where pytest was started if the command line names it, from the ini file's folder if that does."""
    value = _text(config, name)
    if value is None:
        return None
    on_command_line = config.getoption(_option(name).key) is not None
    return (config.invocation_params.dir if on_command_line else config.rootpath) / value


def _number(config: pytest.Config, name: str, least: int, most: int | None = None) -> int | None:
    value = _text(config, name)
    if value is None:
        return None
    if value.isascii() and value.isdigit() and least <= int(value) and (most is None or int(value) <= most):
        return int(value)
    raise pytest.UsageError(f"{name}: {value!r} is not a whole number from {least} {f'to {most}' if most else 'up'}")


def _minutes(config: pytest.Config, profile: str) -> float:
    if profile != SOAK:
        if config.getoption("rdt_minutes") is not None:
            raise pytest.UsageError(f"--rdt-minutes: it is for a soak alone; add --rdt-profile={SOAK}")
        return MINUTES
    value = _text(config, "--rdt-minutes") or str(MINUTES)
    if value.isascii() and value.replace(".", "", 1).isdigit() and float(value):
        return float(value)
    raise pytest.UsageError(f"--rdt-minutes: {value!r} is not a number above 0")


def _flag(config: pytest.Config, name: str) -> bool:
    key = _option(name).key
    return config.getoption(key) or config.getini(key)


def _one(config: pytest.Config, name: str) -> str | None:
    value = _text(config, name)
    if value is not None:
        _check_choices(name, [value])
    return value


def _several(config: pytest.Config, name: str) -> tuple[str, ...] | None:
    value = _text(config, name)
    if value is None:
        return None
    values = _split(value)
    _check_choices(name, values or [value])
    return tuple(dict.fromkeys(values))


def _split(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _check_choices(name: str, values: Sequence[str]) -> None:
    choices = _option(name).choices
    for value in values:
        if value not in choices:
            raise pytest.UsageError(f"{name}: {value!r} is not known; choose from {', '.join(choices)}")


def _option(name: str) -> Option:
    return next(option for option in OPTIONS if option.name == name)


def _complain_about_no_ray(engines: tuple[str, ...], given: dict[str, bool]) -> None:
    """What is said of Ray's cluster would do nothing on an engine that has none."""
    idle = [name for name, said in given.items() if said]
    if idle and not set(engines) & {"cluster", "ray"} and engines:
        raise pytest.UsageError(f"{', '.join(idle)}: the local engine needs no Ray; choose another --rdt-engine")


def _complain_about_idle_options(config: pytest.Config) -> None:
    """An option that silently does nothing would look as if it had worked."""
    idle = [option.name for option in OPTIONS if config.getoption(option.key) and (option.ini or option.metavar)]
    if idle:
        raise pytest.UsageError(f"{', '.join(idle)}: nothing to do without a transport; add --rdt-transport=TARGET")
