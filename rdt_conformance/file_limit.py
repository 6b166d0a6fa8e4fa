"""How many files this process may have open."""

from __future__ import annotations

import resource

MOST = 65_536


def allow_many_files() -> None:
    """Let this process open as many files as the system allows it to, up to `MOST`.

    The usual 1,024 are soon used up by a transport that leaks some, and many libraries end the process when they get
    none. The leak is to be reported instead.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(MOST, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
