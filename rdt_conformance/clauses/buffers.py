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
        why="set_target_for_ref lets a user say where a get puts the tensors. Ray checks shape, dtype and contiguity, "
        "passes the buffers on, and uses what comes back as the value.",
        fix="Receive into the buffers and return those very tensors. If you cannot, raise a ValueError at the start of "
        "fetch_multiple_tensors or recv_multiple_tensors; to ignore them is not allowed.",
        applies=Applies.TARGET_BUFFERS,
    ),
    Clause(
        "B2",
        Area.BUFFERS,
        Level.MUST,
        sentence="The transport writes nothing outside the bytes of the target buffers.",
        source="src rdt_manager.py set_target_for_ref; ray#61094",
        suffers="The neighbours of a buffer that is part of a larger tensor are overwritten.",
        why="A buffer may be a slice of a larger tensor. Only its own bytes are the user's gift to the transfer.",
        fix="Write exactly numel() * element_size() bytes from the buffer's data_ptr(). Do not write by storage, and "
        "do not round up to pages or blocks.",
        applies=Applies.TARGET_BUFFERS,
    ),
    Clause(
        "B3",
        Area.BUFFERS,
        Level.MUST,
        sentence="The transport fills the target buffers in the order of the tensors.",
        source="src rdt_manager.py set_target_for_ref; src rdt_store.py validate_tensor_buffers",
        suffers="Layers of equal shape are loaded into each other's place.",
        why="Buffer number n is for tensor number n. Ray has checked them in pairs.",
        fix="Zip the buffers with tensor_meta in the given order. Do not look for a buffer by shape or size.",
        applies=Applies.TARGET_BUFFERS,
    ),
    Clause(
        "B4",
        Area.BUFFERS,
        Level.MUST,
        sentence="The transport receives into the same target buffers again and again.",
        source="src rdt_manager.py set_target_for_ref",
        suffers="A loop that updates weights in place works once.",
        why="A loop that updates weights gets new objects into the same tensors again and again.",
        fix="Do not keep a buffer, or a registration of it that cannot be made twice, beyond the transfer. Where "
        "registrations are cached, use the one that is there.",
        applies=Applies.TARGET_BUFFERS,
    ),
    Clause(
        "B5",
        Area.BUFFERS,
        Level.MUST,
        sentence="The transport receives into target buffers on another device, or raises a clear error.",
        source="src rdt_manager.py set_target_device_for_ref; src rdt_manager.py _trigger_fetch; ray#64711",
        suffers="A transfer from one type of device to another crashes or leaves garbage.",
        why="Since Ray 2.60 the target may be on another device than the source: the buffers' own, or the one given to "
        "set_target_device_for_ref, for which Ray allocates buffers.",
        fix="Take the device from the buffers, not from the metadata, and copy through memory that both can reach. Or "
        "compare the two and raise a ValueError.",
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
        why="Ray checks the buffers that a user has set before a get. Other ways to the transport have no such check.",
        fix="Compare number, shape, dtype and contiguity with tensor_meta before you write, and raise a ValueError.",
        applies=Applies.TARGET_BUFFERS,
        engines=REFERENCE,
    ),
    Clause(
        "B7",
        Area.BUFFERS,
        Level.SHOULD,
        sentence="The transport fills GPU target buffers so that no kernel writes over them that the default stream "
        "still had to run.",
        source="src rdt_manager.py set_target_for_ref; nixl#730",
        suffers="Buffers made by torch.zeros right before a get are zeros after it, now and then.",
        why="torch.zeros returns before its kernel has run. Ray hands the buffers over as they are, and its own CUDA "
        "IPC copies on the current stream, so its users never had to wait.",
        fix="Before you write into target buffers by anything but the current stream, wait for that stream, or let "
        "yours wait for an event recorded on it.",
        applies=Applies.CUDA_TARGET_BUFFERS,
    ),
)
