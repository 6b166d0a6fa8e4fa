"""The limits of the machine as the benchmarks measure them, beside tools that others have written, in turns.

    python -m tests.speed.outside

Needs mbw (a copy in memory) and iperf3 (a TCP connection through loopback); what is not installed is left out.
"""

from __future__ import annotations

import json
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


def main() -> None:
    """Measure each limit with its tool, and print both."""
    pair = LocalPair()
    try:
        for limit, tool, measure in (("memcpy", "mbw", _mbw), ("socket", "iperf3", _iperf3)):
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
    printed = _run("mbw", "-q", "-n", str(CYCLES), "-t0", str(NBYTES >> 20))
    rates = re.findall(r"^\d+.*Copy: ([\d.]+) MiB/s", printed, re.M)
    return statistics.median(map(float, rates)) * (1 << 20)


def _iperf3() -> float:
    server = subprocess.Popen(
        ["iperf3", "-s", "-1", "-B", "127.0.0.1", "--forceflush"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        while "listening" not in server.stdout.readline():
            pass
        printed = _run("iperf3", "-c", "127.0.0.1", "-n", str(CYCLES * NBYTES), "-l", "1M", "--json")
    finally:
        server.kill()
        server.wait()
    return json.loads(printed)["end"]["sum_received"]["bits_per_second"] / 8


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


if __name__ == "__main__":
    main()
