"""Transports of other data than torch's tensors, to judge in tests: one that is right of each, and wrong ones."""
