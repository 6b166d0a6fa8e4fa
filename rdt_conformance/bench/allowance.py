"""How long each cell of a full run is measured, so that the whole run ends in time."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Allowance:
    """Gives every cell the same, until what comes besides measuring turns out to take too long.

    That is to make payloads, to compare them, and to build transports anew: where that is slow, the cells that are left
    are measured for a shorter time. What the first cell takes says nothing, as it also starts the processes.

    Args:
        whole: seconds after which the last cell should have ended.
        most: seconds for a measurement, where there is time enough.
        least: seconds for a measurement in any case; one that is shorter tells nothing.
        measurements: of a cell, as a rule. If it turns out that there are more, that is reckoned with.
    """

    whole: float
    most: float
    least: float
    measurements: int
    _given: list[float] = field(default_factory=list)
    _first: tuple[float, float] | None = None

    def next(self, passed: float, measured: float, left: int) -> float:
        """Seconds for each measurement of the next cell.

        Args:
            passed: seconds since the first cell began.
            measured: seconds of these that all measurements were given; some cells have more of them than others.
            left: how many cells have not been measured, the next one among them.
        """
        if len(self._given) == 1:
            self._first = passed, measured
        self._given.append(max(self.least, min(self.most, self._affordable(passed, measured, left))))
        return self._given[-1]

    def _affordable(self, passed: float, measured: float, left: int) -> float:
        done = len(self._given) - 1
        if self._first is None or done < 1:
            return self.most
        first_passed, first_measured = self._first
        besides = (passed - first_passed - (measured - first_measured)) / done
        measurements = max(self.measurements, (measured - first_measured) / sum(self._given[1:]))
        return ((self.whole - passed) / left - besides) / measurements
