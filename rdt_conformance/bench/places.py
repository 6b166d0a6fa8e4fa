"""Where source and receiver are, on a machine with several GPUs: some transports carry nothing within one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rdt_conformance.bench.contents import MEASURED, Load, flat
from rdt_conformance.bench.local import LocalPair
from rdt_conformance.bench.loop import in_words
from rdt_conformance.target import type_name

if TYPE_CHECKING:
    from rdt_conformance.target import Target

_TRIED_BYTES = 4096


def why_not_within_one_gpu(target: Target, seed: int) -> str:
    """What a transport says when both sides have the same GPU, if it carries between two; else empty.

    What it carries may be wrong: that is for the benchmarks to find out.
    """
    device, data_type = target.devices.value[0], type_name(target.data_type.value)
    if device != "cuda" or data_type not in MEASURED or torch.cuda.device_count() < 2:
        return ""
    load = flat(_TRIED_BYTES).adapted(data_type, device, seed % 2**31)
    within = _problem(target.spec, load, apart=False)
    return within if within and not _problem(target.spec, load, apart=True) else ""


def _problem(spec: str, load: Load, *, apart: bool) -> str:
    """What goes wrong with one object."""
    pair = LocalPair(apart=apart)
    try:
        pair.contender("transport", spec, load).cycle(1)
    except Exception as error:
        return in_words(error).partition("\n")[0] or type(error).__name__
    finally:
        pair.close()
    return ""
