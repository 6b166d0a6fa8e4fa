"""Processes of their own: each actor of a world is a Ray actor.

Ray hosts the processes and carries the driver's messages to them, each lane being the thread of Ray's own that has its
name: `fleet` starts them, `actor` is what runs inside, `processes` is the driver's view of a world of them. What an
actor has to tell the driver unasked, its transport calls above all, comes through a `channel`.
"""
