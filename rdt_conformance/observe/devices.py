"""Memory of GPUs: what torch's allocator has handed out in this process, and what the driver has handed out to all.

Nothing here sets a GPU up: a process that has not used one yet holds nothing there.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

DRIVERS_FILES = "/dev/shm/cuda.shm."
"""How the paths begin under which CUDA's driver shares events. The file of a process that is killed stays, whatever the
transport; it holds no data."""


def used_torch() -> Any:
    """torch, if this process has used a GPU by it; else None."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_initialized() else None


def tensor_bytes() -> int:
    """Bytes of all blocks that this process has from torch's allocator and has not given back to it, on all GPUs.

    Blocks that are free, and segments that can be expanded, do not count: only what somebody holds.
    """
    torch = used_torch()
    if torch is None:
        return 0
    return sum(torch.cuda.memory_allocated(device) for device in range(torch.cuda.device_count()))


def driver_bytes() -> dict[str, int]:
    """Bytes in use on each GPU that this process sees, by the GPU's own name: those of all processes on the machine.

    Also what never came to torch's allocator is in there: buffers of communication libraries, other allocators.
    """
    torch = used_torch()
    if torch is None:
        return {}
    found = {}
    for device in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(device)
        found[str(torch.cuda.get_device_properties(device).uuid)] = total - free
    return found


def give_back_cached() -> None:
    """Let torch's allocator return to the driver what nobody holds, also what receivers of shared memory let go of.

    Otherwise what has been freed looks to the driver as if it were still in use.
    """
    torch = used_torch()
    if torch is not None:
        torch.cuda.synchronize()
        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()


def remove_drivers_files(process: int) -> None:
    """Remove what CUDA's driver had for a process that has been killed."""
    for path in Path("/dev/shm").glob(f"{Path(DRIVERS_FILES).name}*.{process:x}.*"):
        with contextlib.suppress(OSError):
            path.unlink()
