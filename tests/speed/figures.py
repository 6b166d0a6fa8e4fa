"""Makes the tables of docs/cpu-figures.md again, but for gloo's, which is a benchmark.

    python -m tests.speed.figures shared-memory nixl

Some quarter of an hour for all of them, on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

_SIZES = "--sizes=1M,16M,64M,256M --counts=1"
_MANY = "--floor=one --sizes=64M --counts=10000"
_FEW = "--floor=memcpy --sizes=4 --counts=1 --buffers=no"
FIGURES = {
    "shared-memory": (f"--floor=memcpy --peer=ray:NIXL {_SIZES}", f"--floor=segment {_SIZES}", _MANY, _FEW),
    "cross-memory": (f"--floor=vm_readv --peer=ray:NIXL {_SIZES} --buffers=yes", _MANY),
    "tcp": (f"--floor=socket {_SIZES} --buffers=no",),
    "nixl": (
        f"--floor=nixl --peer=ray:NIXL {_SIZES} --buffers=yes",
        f"--floor=nixl-anew {_SIZES} --buffers=yes",
        "--floor=nixl --peer=ray:NIXL --sizes=16M --counts=1000 --buffers=yes",
    ),
    "inline": (_FEW,),
}
"""The options of `python -m tests.speed`, for each transport."""


def main() -> None:
    """Measure one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.speed.figures", description=__doc__)
    parser.add_argument(
        "transports",
        nargs="*",
        metavar="TRANSPORT",
        choices=[*FIGURES, []],
        help=f"of {', '.join(FIGURES)}; else all of them",
    )
    for transport in parser.parse_args().transports or FIGURES:
        for options in FIGURES[transport]:
            subprocess.run([sys.executable, "-m", "tests.speed", transport, *options.split()], check=True)


if __name__ == "__main__":
    main()
