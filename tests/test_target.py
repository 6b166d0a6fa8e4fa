"""What `--transport` accepts, what it learns of a transport, and what it says when it cannot."""

from __future__ import annotations

import importlib.metadata
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest
import ray
import torch
from ray.experimental.rdt import util

from rdt_conformance import author, contract, locate, target as target_module
from rdt_conformance.ray_quiet import no_auto_connect
from rdt_conformance.target import Target, TargetProblem, resolve

TRANSPORT = """
from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata


class Base(TensorTransportManager):
    def tensor_transport_backend(self):
        return "good"

    @staticmethod
    def is_one_sided():
        return True

    @staticmethod
    def can_abort_transport():
        return False

    def actor_has_tensor_transport(self, actor):
        return True

    def extract_tensor_transport_metadata(self, obj_id, rdt_object):
        return TensorTransportMetadata([(t.shape, t.dtype) for t in rdt_object], "cpu")

    def get_communicator_metadata(self, src_actor, dst_actor, backend=None):
        return CommunicatorMetadata()

    def recv_multiple_tensors(self, obj_id, metadata, communicator, target_buffers=None):
        return []

    def send_multiple_tensors(self, tensors, metadata, communicator):
        raise NotImplementedError

    def garbage_collect(self, obj_id, metadata, tensors):
        pass

    def abort_transport(self, obj_id, communicator):
        pass


class Good(Base):
    pass
"""

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module with a transport and some more lines into an empty current folder; nothing of it stays loaded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def write_file(name: str, more: str = "") -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TRANSPORT + textwrap.dedent(more))

    yield write_file
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "") or "").startswith(str(tmp_path)):
            del sys.modules[name]


def problem(spec: str, **options: object) -> str:
    with pytest.raises(TargetProblem) as caught:
        resolve(spec, **options)  # type: ignore[arg-type]
    return str(caught.value)


# --- every form of a target ---------------------------------------------------------------------------------------


def test_a_class_in_a_module_of_the_current_folder(write: Write) -> None:
    write("mine.py")
    target = resolve("mine:Good")
    assert target.transport_class.__name__ == "Good"
    assert target.transport_class.__module__ == "mine"
    assert (target.name.value, target.name.learnt) == ("GOOD", "class: tensor_transport_backend()")
    assert (target.devices.value, target.devices.learnt) == (("cpu",), "default")
    assert (target.data_type.value, target.data_type.learnt) == (torch.Tensor, "default")
    assert (target.one_sided.value, target.one_sided.learnt) == (True, "class: is_one_sided()")
    assert (target.can_abort.value, target.can_abort.learnt) == (False, "class: can_abort_transport()")
    assert target.own_fetch.value is False
    assert target.needs_process.value is False


def test_a_class_in_a_file_imports_its_neighbours(write: Write, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "neighbour.py").write_text("NAME = 'near'\n")
    write("deep/mine_too.py", "from neighbour import NAME")
    assert resolve("deep/mine_too.py:Good").transport_class.__module__ == "mine_too"


def test_a_class_in_a_file_of_a_package_may_import_relatively(write: Write, tmp_path: Path) -> None:
    write("src/pack/__init__.py")
    write("src/pack/neighbour.py")
    write("src/pack/mine.py", "from .neighbour import Good as Other")
    assert resolve("src/pack/mine.py:Good").transport_class.__module__ == "pack.mine"


def test_a_profile_says_what_the_class_cannot(write: Write) -> None:
    write(
        "profiled.py",
        """
        import numpy
        from rdt_conformance import TransportProfile
        PROFILE = TransportProfile(
            Good, name="other", data_type=numpy.ndarray, needs_process=True, note="over a string"
        )
        """,
    )
    target = resolve("profiled:PROFILE")
    facts = (target.name, target.devices, target.data_type, target.needs_process, target.note)
    assert [fact.value for fact in facts] == ["OTHER", ("cpu",), numpy.ndarray, True, "over a string"]
    assert {fact.learnt for fact in facts} == {"profile"}


def test_an_option_overrules_the_profile(write: Write) -> None:
    write("overruled.py", "from rdt_conformance import TransportProfile\nP = TransportProfile(Good, devices=('cuda',))")
    target = resolve("overruled:P", devices=["cpu"], data_type="numpy.ndarray")
    assert (target.devices.value, target.devices.learnt) == (("cpu",), "--rdt-devices")
    assert (target.data_type.value, target.data_type.learnt) == (numpy.ndarray, "--rdt-data-type")


def test_a_short_name_comes_from_an_entry_point(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("installed.py")
    entries = [importlib.metadata.EntryPoint("thing", "installed:Good", locate.SHORT_NAMES)]
    monkeypatch.setattr(locate, "entry_points", lambda group: entries if group == locate.SHORT_NAMES else [])
    assert resolve("thing").transport_class.__module__ == "installed"
    assert "did you mean thing?" in problem("thong")


@pytest.mark.parametrize("name", ["cuda-ipc", "nccl"])
def test_our_transports_of_gpu_memory_are_not_taken_for_others(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_module, "_has_cuda", lambda: True)
    target = resolve(name)
    assert (target.devices.value, target.devices.learnt) == (("cuda",), "profile")
    assert target.transport_class.__module__ == f"reference_transports.{name.replace('-', '_')}"
    monkeypatch.setattr(target_module, "_has_cuda", lambda: False)
    assert problem(name) == f"{name}: torch finds no CUDA device here, but devices name cuda [profile]"


def test_a_transport_that_ray_ships() -> None:
    target = resolve("ray:NIXL")
    assert target.name.value == "NIXL"
    assert target.devices.value == ("cpu",)
    assert target.devices.learnt == "register_tensor_transport() in Ray, and default"
    assert target.can_abort.value
    assert target.own_fetch.value


def test_memory_that_ray_never_gives_a_transport_is_not_sent() -> None:
    said = "ray:NCCL is registered for cuda, and this run offers only cpu; see --rdt-devices"
    assert problem("ray:NCCL", devices=["cpu"]) == said


def test_what_the_module_itself_registers_is_learnt(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(util, "transport_manager_info", dict(util.transport_manager_info))
    monkeypatch.setattr(util, "has_custom_transports", util.has_custom_transports)
    write(
        "registers.py",
        """
        import numpy
        from ray.experimental import register_tensor_transport
        register_tensor_transport("theirs", ["cuda", "cpu"], Good, numpy.ndarray)
        """,
    )
    target = resolve("registers:Good")
    assert (target.name.value, target.devices.value, target.data_type.value) == ("THEIRS", ("cpu",), numpy.ndarray)
    assert target.name.learnt == "register_tensor_transport() in its module"


def test_a_name_that_the_class_cannot_tell_is_left_to_clause_s3(write: Write) -> None:
    write(
        "nameless.py",
        """
        class Property(Base):
            @property
            def tensor_transport_backend(self):
                return "name"

        class Nothing(Base):
            def tensor_transport_backend(self):
                return None
        """,
    )
    learnt = resolve("nameless:Property").name
    assert learnt.value == "PROPERTY"
    assert learnt.learnt == (
        "name of the class, because tensor_transport_backend() failed: TypeError: 'str' object is not callable"
    )
    assert "returned None" in resolve("nameless:Nothing").name.learnt


def test_half_a_fetch_of_its_own_is_none(write: Write) -> None:
    write("half.py", "class Half(Base):\n    def wait_fetch_complete(self, fetch_request, timeout=-1): ...")
    own_fetch = resolve("half:Half").own_fetch
    assert (own_fetch.value, own_fetch.learnt) == (False, "class: overrides wait_fetch_complete")


def test_a_class_that_asks_ray_when_it_is_built_gets_a_process(write: Write) -> None:
    write(
        "asks.py",
        """
        import ray
        class Asks(Base):
            def __init__(self):
                self.node_id = ray.get_runtime_context().get_node_id()
        """,
    )
    target = resolve("asks:Asks")
    assert (target.needs_process.value, target.needs_process.learnt) == (True, "class: Asks() calls into Ray")
    assert (target.name.value, target.one_sided.value, target.can_abort.value) == ("GOOD", True, False)


# --- what makes running impossible --------------------------------------------------------------------------------

MORE = """
import sys
from rdt_conformance import TransportProfile

def function(): ...
number = 3
good = Good()
class Plain: ...
class Unfinished(Base):
    def garbage_collect(self, obj_id, metadata, tensors): ...
Unfinished.__abstractmethods__ = frozenset({"abort_transport", "extract_tensor_transport_metadata"})
class Needs(Base):
    def __init__(self, url): ...
class Raises(Base):
    def __init__(self): raise RuntimeError("no such device")
class Quits(Base):
    def __init__(self): sys.exit(3)
class Unsure(Base):
    @staticmethod
    def is_one_sided(): return 1
class Bound(Base):
    def is_one_sided(self): return True
class Angry(Base):
    @staticmethod
    def can_abort_transport(): raise ValueError("ask later")
P_CLASS = TransportProfile(Plain)
P_DEVICES = TransportProfile(Good, devices=("tpu",))
P_NO_DEVICES = TransportProfile(Good, devices=())
P_DATA = TransportProfile(Good, data_type=dict)
P_LATE = TransportProfile(Good, gives_up_after=600)
P_SOON = TransportProfile(Good, gives_up_after="soon")
"""

ONE_LINE = {
    "": "'' is none of the short names",
    "nothing": "'nothing' is none of the short names",
    "bad": "name the class too: bad:Class",
    "bad.py": "name the class too: bad.py:Class",
    ":Good": "':Good' names no transport; give module:Class",
    "bad:": "'bad:' names no transport; give module:Class",
    "bad:Good()": "'bad:Good()' names no transport; give module:Class",
    "a:b:c": "'a:b' is neither a module nor a .py file",
    "./bad:Good": "did you mean ./bad.py:Good?",
    "baad:Good": "there is no module 'baad'; did you mean bad?",
    "no_such_module:Good": "it is neither in the current folder nor installed",
    "bad.inner:Good": "there is no module 'bad.inner'",
    "no/such/file.py:Good": "there is no file no/such/file.py",
    "folder.py:Good": "folder.py is a folder, not a file",
    "json.py:Good": "the module name 'json' is taken by",
    "bad:God": "bad has no 'God'; did you mean Good?",
    "bad:Xyzzy": "bad has no 'Xyzzy'; the transports there: Base, Good, Unfinished, Needs",
    "json:Xyzzy": "json has no 'Xyzzy'; no transport is there",
    "bad:function": "bad:function is of type function, neither a class nor a TransportProfile",
    "bad:number": "bad:number is of type int, neither a class nor a TransportProfile",
    "bad:good": "bad:good is an instance; Ray builds its own, so name the class Good",
    "bad:Plain": "Plain(object) does not derive from ray.experimental.TensorTransportManager",
    "bad:TransportProfile": "is TransportProfile itself; name an instance of it",
    "bad:Unfinished": "it does not implement abort_transport, extract_tensor_transport_metadata",
    "bad:Needs": "missing a required argument: 'url', but Ray builds a transport without arguments",
    "bad:Unsure": "is_one_sided() must return a bool, but returned 1",
    "bad:Bound": "is_one_sided() failed: TypeError",
    "bad:P_CLASS": "bad:P_CLASS: its transport is a class, but no transport",
    "bad:P_DEVICES": "devices ('tpu',) [profile] are not all of cpu, cuda",
    "bad:P_NO_DEVICES": "devices () [profile] are not all of cpu, cuda",
    "bad:P_LATE": "gives_up_after=600 [profile] is not a number of seconds up to 60",
    "bad:P_SOON": "gives_up_after='soon' [profile] is not a number of seconds up to 60",
    "bad:P_DATA": "carries builtins.dict [profile], which this suite cannot make by itself",
    "ray:NOPE": "Ray ships no transport of that name; it ships ray:NIXL, ray:GLOO, ray:NCCL, ray:CUDA_IPC",
    "ray:NCCL": "no CUDA device here, but devices name cuda [register_tensor_transport() in Ray]",
}


@pytest.mark.parametrize("spec", ONE_LINE)
def test_a_bad_target_is_explained_in_one_line(write: Write, tmp_path: Path, spec: str) -> None:
    write("bad.py", MORE)
    write("json.py")
    (tmp_path / "folder.py").mkdir()
    said = problem(spec)
    assert ONE_LINE[spec] in said
    assert "\n" not in said


def test_cuda_where_there_is_none(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("mine.py")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "torch finds no CUDA device here" in problem("mine:Good", devices=["cuda"])


def test_an_unknown_data_type(write: Write) -> None:
    write("mine.py")
    assert problem("mine:Good", data_type="torch") == (
        "data type 'torch' is not known; choose from torch.Tensor, numpy.ndarray, jax.Array, pyarrow.Table"
    )


AUTHORS = {
    "bad:Raises": ("Raises() failed: RuntimeError: no such device", "bad.py", "in __init__"),
    "bad:Quits": ("Quits() failed: SystemExit: 3", "bad.py", "in __init__"),
    "bad:Angry": ("can_abort_transport() failed: ValueError: ask later", "bad.py", "in can_abort_transport"),
    "broken:Good": ("cannot import broken: ZeroDivisionError", "broken.py", "in <module>"),
    "misspelt:Good": ("cannot import misspelt: ModuleNotFoundError: No module named 'nmupy'", "misspelt.py", "nmupy"),
    "grammar:Good": ("cannot import grammar:", "grammar.py", "SyntaxError"),
    "quits.py:Good": ("cannot import quits: SystemExit", "quits.py", "in <module>"),
}


@pytest.mark.parametrize("spec", AUTHORS)
def test_an_authors_own_error_comes_with_the_authors_lines_only(write: Write, spec: str) -> None:
    write("bad.py", MORE)
    write("broken.py", "1 / 0")
    write("misspelt.py", "import nmupy")
    write("grammar.py", "def (:")
    write("quits.py", "raise SystemExit('not today')")
    said = problem(spec)
    for expected in AUTHORS[spec]:
        assert expected in said
    for ours in ("rdt_conformance", "importlib", "threading.py", "Traceback"):
        assert ours not in said


def test_a_constructor_that_hangs_is_not_waited_for_for_ever(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        "slow.py",
        """
        import threading
        goes_on = threading.Event()
        class Slow(Base):
            def __init__(self): goes_on.wait()
        """,
    )
    monkeypatch.setattr(author, "PATIENCE", 0.05)
    try:
        said = problem("slow:Slow")
    finally:
        sys.modules["slow"].goes_on.set()
    assert "Slow() failed: did not come back within 0.05 s" in said
    assert "goes_on.wait()" in said


# --- what the rest of the suite asks a target -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("applies", "one_sided", "two_sided_abortable"),
    [
        (contract.Applies.ALWAYS, True, True),
        (contract.Applies.ONE_SIDED, True, False),
        (contract.Applies.TWO_SIDED, False, True),
        (contract.Applies.ABORTABLE, False, True),
        (contract.Applies.NOT_ABORTABLE, True, False),
        (contract.Applies.ABORTABLE_TWO_SIDED, False, True),
        (contract.Applies.OWN_FETCH, False, False),
        (contract.Applies.CUDA, False, False),
        (contract.Applies.CUDA_TARGET_BUFFERS, False, False),
    ],
)
def test_which_clauses_speak_of_a_transport(
    write: Write, applies: contract.Applies, one_sided: bool, two_sided_abortable: bool
) -> None:
    write(
        "both.py",
        """
        class Other(Base):
            is_one_sided = staticmethod(lambda: False)
            can_abort_transport = staticmethod(lambda: True)
        """,
    )
    clause = contract.Clause("Z9", contract.Area.GC, contract.Level.MUST, "…", "…", "…", applies=applies)
    assert resolve("both:Good").applies(clause) is one_sided
    assert resolve("both:Other").applies(clause) is two_sided_abortable


def test_the_header_says_where_each_fact_was_learnt(write: Write) -> None:
    write("mine.py")
    lines = resolve("mine:Good").header_lines()
    assert lines[0] == "rdt transport: mine:Good"
    assert "  kind       one-sided  [class: is_one_sided()]" in lines
    assert "  data type  torch.Tensor  [default]" in lines
    assert not any("note" in line for line in lines)


def test_a_file_that_uses_ray_when_it_is_imported(write: Write) -> None:
    write(
        "starts.py",
        """
        import ray
        @ray.remote
        class Actor: pass
        Actor.remote()
        """,
    )
    assert problem("starts.py:Good") == (
        "cannot import starts: it uses Ray when it is imported; put that under `if __name__ == '__main__':`"
    )


def test_looking_at_a_transport_does_not_start_ray(write: Write) -> None:
    write(
        "asks.py",
        """
        import ray
        class Asks(Base):
            def __init__(self): ray.get_runtime_context()
        """,
    )
    target = resolve("asks:Asks")
    assert isinstance(target, Target)
    assert not ray.is_initialized()


def test_ray_is_left_alone_if_it_runs_already(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import auto_init_hook

    monkeypatch.setattr(auto_init_hook, "enable_auto_connect", True)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    no_auto_connect()
    assert auto_init_hook.enable_auto_connect
