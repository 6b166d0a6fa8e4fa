"""How fast a transport is: a loop that measures contenders in turn and verifies every byte, and what follows from it.

The engines bring contenders, the suites in ``suites/benchmarks`` say what is carried; nothing here knows either.
"""
