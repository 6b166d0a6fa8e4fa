"""The reference RDT: a complete implementation of Ray Direct Transport, to be read as its specification.

Read in this order: `registry` (which transports exist), `packing` (tensors out of values and back), `store` (where an
actor keeps tensors), `work` (what runs on an actor's lanes), `refs` and `owner` (who owns an object, when it moves and
when it is freed), `monitor` (what happens when a transfer fails), `worker` (one process), `host` and `threads` (how
processes reach each other, and processes as threads), `rdt` (the verbs that suites use).

It imports neither Ray's manager nor Ray's store.
"""
