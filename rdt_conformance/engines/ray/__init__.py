"""Ray's own RDT behind the vocabulary of suites.

The processes are those of `rdt_conformance.engines.cluster`. `recording` makes Ray's calls of the transport visible,
`rdt` says the verbs in Ray's words, `user_code` and `actor` are what runs in an actor, `engine` puts them together.
"""
