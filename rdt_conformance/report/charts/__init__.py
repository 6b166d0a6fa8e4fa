"""The charts of the benchmarks: what was measured becomes a description, and that becomes SVG and a table.

`one_run` and `several_runs` list the charts of a page. What each shows is decided in `transfers`, `samples`, `costs`
and `changes`, which make a `marks.Chart`, or a `marks.Missing` with the reason where there is nothing to draw. How
marks look is decided in `svg` and in the style sheet.
"""

from __future__ import annotations
