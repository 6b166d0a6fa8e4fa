"""Which files a process is said to have to do with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rdt_conformance.observe.own_files import is_among

PROGRAM = """
import mmap, os, socket, subprocess, sys, tempfile
from multiprocessing import shared_memory
from pathlib import Path
from rdt_conformance.observe import own_files

folder = Path(tempfile.gettempdir())
for name in ("before", "unheld"):
    (folder / name).write_text("x")
own_files.listen()
own_files.listen()
os.close(os.open(folder / "closed", os.O_CREAT | os.O_WRONLY))
os.mkdir(folder / "made")
(folder / "made" / "inside").write_text("x")
os.rename(folder / "made" / "inside", str(folder / "renamed"))
socket.socket(socket.AF_UNIX).bind(str(folder / "bound"))
with open("/proc/self/status"), open(os.open(folder / "before", os.O_RDWR), "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 0)
os.chdir(folder)
open("relative", "w").close()
child = subprocess.Popen(["sleep", "60"], stdin=os.open(folder / "held", os.O_CREAT | os.O_RDWR))
segment = shared_memory.SharedMemory(create=True, size=10)
segment.close()
found = own_files.own_files()
print(own_files.was_named(f"/dev/shm/{segment.name}"), own_files.was_named("/proc/self/status"))
segment.unlink()
print(" ".join(sorted(os.path.basename(path) for path in found if path.startswith(f"{folder}/"))))
child.kill()
for number in range(3 * own_files._MOST):
    (folder / "short").with_suffix(f".{number}").touch()
    (folder / "short").with_suffix(f".{number}").unlink()
print(len(own_files._named) <= 2 * own_files._MOST + 99, own_files.was_named(str(folder / "made")))
"""


def test_what_was_made_named_mapped_or_is_held_by_a_child_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "foreign").write_text("x")
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.splitlines()
    assert told == ["True False", "before bound closed held made relative renamed", "True True"]


BELOW = """
import os, shutil, socket, sys, tempfile
from pathlib import Path
from rdt_conformance.observe import own_files
from rdt_conformance.observe.resources import SHARED_MEMORY_FILES, TEMPORARY_FILES, Watch

temporary, working, shared = Path(tempfile.gettempdir()), Path.cwd(), Path(tempfile.mkdtemp(dir="/dev/shm"))
(temporary / "spool").mkdir()
(temporary / "ray").mkdir()
(temporary / "spool" / "before").write_text("x")
own_files.listen()
watch = Watch(memory=False)
for folder in (temporary / "spool", working, working / "deep" / "er", shared, temporary / "ray" / "session_1"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "file").write_text("x")
    os.close(os.open(folder / "other", os.O_CREAT | os.O_WRONLY))
socket.socket(socket.AF_UNIX).bind("\\0nowhere")
for folder in (working / ".hidden", working / "__pycache__"):
    folder.mkdir()
    (folder / "file").write_text("x")
(temporary / "spool" / "before").write_text("again")
(temporary / "spool" / "before").read_text()
def told(kind):
    found = watch.snapshot().names.get(kind, ())
    names = {f"{temporary}/": "T/", f"{working}/": "W/", f"{shared}/": "S/"}
    return sorted(next(name + path[len(at) :] for at, name in names.items() if path.startswith(at)) for path in found)
print(*told(TEMPORARY_FILES))
print(*told(SHARED_MEMORY_FILES))
before = watch.snapshot().counts[TEMPORARY_FILES]
(temporary / "spool" / "file").unlink()
print(before - watch.snapshot().counts[TEMPORARY_FILES])
for _ in range(5000):
    (working / "short").touch()
    (working / "short").unlink()
print(len(own_files._below) < 20)
for number in range(5 * own_files._MOST):
    (working / f"short{number}").touch()
    (working / f"short{number}").unlink()
print(own_files._MOST < len(own_files._below) <= 2 * own_files._MOST + 99)
own_files.made_below()
own_files.made_below()
print(len(own_files._below) < 20)
shutil.rmtree(shared)
"""


def test_what_python_makes_in_folders_and_in_the_working_one_counts(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "work").mkdir()
    told = subprocess.run(
        [sys.executable, "-B", "-c", BELOW],
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary"), "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path / "work",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert told.stdout.splitlines() == [
        "T/spool/file T/spool/other W/deep W/deep/er W/deep/er/file W/deep/er/other W/file W/other",
        "S/file S/other",
        "1",
        "True",
        "True",
        "True",
    ], told.stderr


def test_a_folder_belongs_to_whom_something_inside_does() -> None:
    files = {"/tmp/a/b", "/tmp/c"}
    assert is_among("/tmp/a", files) and is_among("/tmp/c", files)
    assert not is_among("/tmp/a/b/d", files) and not is_among("/tmp/foreign", files)
