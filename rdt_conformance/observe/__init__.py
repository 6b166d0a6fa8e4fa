"""Watch a process from the side: what it holds open, keeps in memory and leaves behind.

Nothing here calls the transport under test, so nothing that is wrong in the transport can hide a leak, and watching
changes nothing about what is watched.
"""

from rdt_conformance.observe.containers import registrations
from rdt_conformance.observe.leaks import Growth, Leak, Observer, growth
from rdt_conformance.observe.leftovers import left_behind
from rdt_conformance.observe.resources import Resources, Watch
from rdt_conformance.observe.stack_traces import stacks

__all__ = ["Growth", "Leak", "Observer", "Resources", "Watch", "growth", "left_behind", "registrations", "stacks"]
