"""Ray's own pickling, by which metadata, arguments and classes travel: in one place, since it is not typed."""

from __future__ import annotations

import sys
from typing import Any

import ray.cloudpickle

_pickle: Any = ray.cloudpickle

CloudPickler: type[Any] = _pickle.CloudPickler
dumps = _pickle.dumps
loads = _pickle.loads
register_pickle_by_value = _pickle.register_pickle_by_value
unregister_pickle_by_value = _pickle.unregister_pickle_by_value


def dumps_by_value(value: Any, module_name: str) -> bytes | None:
    """Pickle `value` with what a module defines in it, for where that cannot be imported; None if there is no module.

    Raises:
        Exception: it cannot be pickled like that.
    """
    module = sys.modules.get(module_name)
    if module is None:
        return None
    register_pickle_by_value(module)
    try:
        return dumps(value)
    finally:
        unregister_pickle_by_value(module)
