"""The charts of the benchmarks: what was measured becomes a description, and that becomes SVG and a table.

What a chart shows is decided in `transfers`, `samples`, `costs`, `changes` and `runs`, which return a `marks.Chart`, or
a `marks.Missing` with the reason where there is nothing to draw. How marks look is decided in `svg` and the style sheet.
"""

from __future__ import annotations
