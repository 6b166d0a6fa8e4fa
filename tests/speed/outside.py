"""The limits of the machine as the benchmarks measure them, beside tools that others have written, in turns.

    python -m tests.speed.outside

Needs mbw (a copy in memory) and qperf (a TCP connection through loopback); what is not installed is left out. Both are
told to do as ours: mbw copies in a plain loop, as numpy does, and qperf sends from and receives into as many bytes.
Those that go on using a small buffer, such as iperf3, are twice as fast. All memory is in large pages, for which numpy
asks by itself.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess

from rdt_conformance.bench.contents import flat
from rdt_conformance.bench.local import LocalPair

NBYTES = 64 << 20
ROUNDS = 15
CYCLES = 20
"""Of ours in each round."""
_ENVIRONMENT = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def main() -> None:
    """Measure each limit with its tool, and print both."""
    pair = LocalPair()
    try:
        for limit, tool, measure in (("memcpy", "mbw", _mbw), ("socket", "qperf", _qperf)):
            if shutil.which(tool) is None:
                print(f"{limit}: {tool} is not installed")
                continue
            rounds = [(_ours(pair, limit), measure()) for _ in range(ROUNDS)]
            ours, theirs = (statistics.median(each) for each in zip(*rounds, strict=True))
            low, ratio, high = statistics.quantiles([mine / other for mine, other in rounds], n=4)
            print(f"{limit}: {ours / 1e9:.2f} GB/s; {tool}: {theirs / 1e9:.2f} GB/s", end="; ")
            print(f"ratio {ratio:.3f}, quartiles {low:.3f} and {high:.3f}")
    finally:
        pair.close()


def _ours(pair: LocalPair, limit: str) -> float:
    """Bytes per second."""
    contender = pair.contender("ceiling", limit, flat(NBYTES, buffers=True))
    try:
        seconds = [contender.cycle(turn).wait for turn in range(1, CYCLES + 1)]
    finally:
        contender.close()
    return NBYTES / statistics.median(seconds[2:])


def _mbw() -> float:
    printed = _run("mbw", "-q", "-n", str(CYCLES), "-t1", str(NBYTES >> 20))
    rates = re.findall(r"^\d+.*Copy: ([\d.]+) MiB/s", printed, re.M)
    return statistics.median(map(float, rates)) * (1 << 20)


def _qperf() -> float:
    server = subprocess.Popen(["qperf"], env=_ENVIRONMENT)
    try:
        printed = _run("qperf", "127.0.0.1", "--wait_server", "10", "-t", "1", "-m", str(NBYTES), "-uu", "tcp_bw")
    finally:
        server.kill()
        server.wait()
    return float(re.findall(r"bw *= *([\d.]+)", printed)[0])


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, env=_ENVIRONMENT).stdout


if __name__ == "__main__":
    main()
