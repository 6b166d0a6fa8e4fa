"""Receiving into memory that the receiver brings. Ray offers it in a get, so for one-sided transports only.

It is torch's alone: before a fetch Ray calls is_contiguous() of each buffer (`rdt_store.validate_tensor_buffers`).
"""

from __future__ import annotations

from rdt_conformance.contract_types import REFERENCE, Applies, Area, Clause, Level

CLAUSES = (
    Clause(
        "B1",
        Area.BUFFERS,
        Level.MUST,
        sentence="The transport fills the given target buffers exactly and returns those very buffers, or raises a "
        "clear ValueError before it writes anything.",
        source="doc TensorTransportManager.fetch_multiple_tensors; src rdt_manager.py set_target_for_ref; ray#61094",
        suffers="The buffers stay empty although the get succeeded, or hold half of the data.",
        applies=Applies.TARGET_BUFFERS,
    ),
    Clause(
        "B2",
        Area.BUFFERS,
        Level.MUST,
        sentence="The transport writes nothing outside the bytes of the target buffers.",
        source="src rdt_manager.py set_target_for_ref; ray#61094",
        suffers="The neighbours of a buffer that is part of a larger tensor are overwritten.",
        applies=Applies.TARGET_BUFFERS,
    ),
    Clause(
        "B3",
        Area.BUFFERS,
        Level.MUST,
        sentence="The transport fills the target buffers in the order of the tensors.",
        source="src rdt_manager.py set_target_for_ref; src rdt_store.py validate_tensor_buffers",
        suffers="Layers of equal shape are loaded into each other's place.",
        applies=Applies.TARGET_BUFFERS,
    ),
    Clause(
        "B4",
        Area.BUFFERS,
        Level.MUST,
        sentence="The transport receives into the same target buffers again and again.",
        source="src rdt_manager.py set_target_for_ref",
        suffers="A loop that updates weights in place works once.",
        applies=Applies.TARGET_BUFFERS,
    ),
    Clause(
        "B5",
        Area.BUFFERS,
        Level.MUST,
        sentence="The transport receives into target buffers on another device, or raises a clear error.",
        source="src rdt_manager.py set_target_device_for_ref; src rdt_manager.py _trigger_fetch; ray#64711",
        suffers="A transfer from one type of device to another crashes or leaves garbage.",
        applies=Applies.CUDA,
        since="2.58",
    ),
    Clause(
        "B6",
        Area.BUFFERS,
        Level.SHOULD,
        sentence="The transport answers target buffers of the wrong number, shape or dtype with an error and corrupts "
        "nothing.",
        source="src rdt_store.py validate_tensor_buffers; src rdt_manager.py _trigger_fetch",
        suffers="A mistake that Ray's own check misses ends in corrupted memory instead of an error.",
        applies=Applies.TARGET_BUFFERS,
        engines=REFERENCE,
    ),
)
