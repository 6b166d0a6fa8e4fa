"""A one-sided transport over NIXL: the receiver reads the source's memory, on CPUs and GPUs, without its help.

`transport` is what Ray sees, `transfer` an object on its way, `memory` what is registered of it, `agent` what a process
has of NIXL, and `peer` a connection. Needs the package ``nixl``, whose UCX backend moves the bytes by whatever the two
processes have between them: RDMA, NVLink, shared memory, TCP.

**Nobody asks the source.** So nobody notices, either, that it has freed what is read: a read of deregistered memory
may fail, and with it all else on the same connection, or quietly give what lies there by then. Therefore every object
has a *token*, random bytes in memory that stays registered, which the source wipes before it lets go of the object. A
receiver reads the token before the data and again after them. If it was there both times, the data are the object's.

**A connection is kept.** To make one takes a thousand times as long as to read a small object, and NIXL gives back
only part of an old one. What a peer registers later is added to what is known about it. NIXL can take none of that
back, and refuses another key for memory that it knows. So every registration has a number of its own, in the place of
the device's number, which NIXL compares and UCX ignores, since it asks the address what device it is on. To NIXL,
registrations of the same memory, together or one after the other, are then different things. But what is registered
again, after it was freed, gets its number again if its key is still the same: its readers' NIXL has then nothing to
add. Otherwise it would grow with every tensor that is read, and little pieces of it would lie between the tensors.

**A connection may be lost at any time**: UCX gives it up, with all that is under way on it, when a single read fails.
Who was hurt tries again, once, on a connection of its own, where it hurts nobody if the fault is its own. Each
connection has a name of its own, since NIXL cannot always connect to the same name again.

**Small tensors are packed**, at either end: to register memory takes as long as to copy some ten kilobytes.
"""

from reference_transports.nixl.transport import NixlTransport

__all__ = ["NixlTransport"]
