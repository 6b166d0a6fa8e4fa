"""How long each cell of a full run is measured, so that the whole run ends in time."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Allowance:
    """Gives every cell as much as the first, until what comes besides measuring turns out to take too long.

    That is to start processes, to make payloads and to compare them: of a transport that is slow at it, the cells that
    are left are measured for a shorter time.

    Args:
        whole: seconds after which the last cell should have ended.
        most: seconds for a measurement, where there is time enough.
        least: seconds for a measurement in any case; one that is shorter tells nothing.
        contests: how many measurements a cell consists of.
    """

    whole: float
    most: float
    least: float
    contests: int
    _given: list[float] = field(default_factory=list)

    def next(self, passed: float, left: int) -> float:
        """Seconds for each measurement of the next cell.

        Args:
            passed: seconds since the first cell began.
            left: how many cells have not been measured, the next one among them.
        """
        besides = (passed - self.contests * sum(self._given)) / len(self._given) if self._given else 0.0
        affordable = ((self.whole - passed) / left - besides) / self.contests
        self._given.append(max(self.least, min(self.most, affordable)))
        return self._given[-1]
