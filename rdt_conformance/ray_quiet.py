"""Keeps Ray from starting by itself."""

from __future__ import annotations

import os
import sys


def no_auto_connect() -> None:
    """See to it that no call into Ray starts a cluster of its own, unless Ray runs already.

    ``ray.get_runtime_context()`` and its friends call ``ray.init()`` when nothing runs. A transport that does so on the
    local engine would pay for a whole Ray without anyone having asked for one. Ray reads the variable when it is
    imported, so this belongs before that; where Ray is imported already, its switch is turned. Usage statistics are
    switched off too, unless the user decided on them.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = sys.modules.get("ray")
    if ray is None:
        os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
    elif not ray.is_initialized():
        from ray._private import auto_init_hook

        auto_init_hook.enable_auto_connect = False
