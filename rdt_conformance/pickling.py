"""Ray's own pickling, by which metadata, arguments and classes travel: in one place, since it is not typed."""

from __future__ import annotations

from typing import Any

import ray.cloudpickle

_pickle: Any = ray.cloudpickle

CloudPickler: type[Any] = _pickle.CloudPickler
dumps = _pickle.dumps
loads = _pickle.loads
register_pickle_by_value = _pickle.register_pickle_by_value
unregister_pickle_by_value = _pickle.unregister_pickle_by_value
