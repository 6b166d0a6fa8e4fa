"""What the classes of two reference transports cannot say, for their short names: that they carry GPU memory only.

Here, because nothing in ``reference_transports`` depends on this package. Loaded only when one of them is named.
"""

from __future__ import annotations

from rdt_conformance.profile import TransportProfile
from reference_transports.cuda_ipc import CudaIpcTransport
from reference_transports.nccl import NcclTransport

CUDA_IPC = TransportProfile(CudaIpcTransport, devices=("cuda",), note="for actors of one host")
NCCL = TransportProfile(NcclTransport, devices=("cuda",), note="for actors that have a GPU each")
