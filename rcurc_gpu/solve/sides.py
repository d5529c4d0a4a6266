"""The extension after the core: steps over the shards of both sides of the cross, R and C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..backends.arrays import Array
from ..backends.operators import invert
from ..extend.diagnostics import Summary
from ..extend.typical import Tally, typical_by, typical_of, with_gates
from ..progress import Progress
from ..shards.source import Shard
from .jobs import Engine, Job, Stage
from .solved import SolvedCore
from .store import Arrays
from .work import Side, doubts, first, second

Shards = dict[str, list[Shard]]
Found = Sequence[tuple[Any, Arrays]]  # parts, and their numbers


class Sides:
    """Columns of R and rows of C.

    Parameters
    ----------
    shards : dict of lists of Shard
        Of R ("r") and of C ("c").
    solved : SolvedCore
        On the host, if the engine works in other processes.
    chosen : (int64 vector, int64 vector)
        I and J.
    scale : float
        The core is of observations that were divided by this.
    engine : Engine
        Does the work; `device` is where its workers compute.
    given : dict of arrays, optional
        Coefficients of the units outside of the core from another method, for each side.

    Attributes
    ----------
    whole, outside : dict of Summary
        Of all units of a side, and of those outside of the core.
    """

    def __init__(
        self,
        shards: Shards,
        solved: SolvedCore,
        chosen: tuple[np.ndarray, np.ndarray],
        scale: float,
        engine: Engine,
        device: str,
        show: Progress,
        given: dict[str, Array] | None = None,
    ) -> None:
        self.shards, self.solved, self.engine, self.show, self.given = shards, solved, engine, show, given
        core, s = solved.core, solved.settings
        (rows, cols), right = chosen, core.right
        usable = (solved.rows.weights(core.s), solved.cols.weights(core.s))
        more: dict[str, Any] = {
            "schedule": solved.schedule,
            "settings": replace(s, callback=None),
            "device": device,
            "scale": scale,
            "no_threshold": solved.no_threshold,
            "consensus": solved.consensus,
            "mended": s.outliers and given is None,
            "stays": engine.is_here and all(len(x) == 1 for x in shards.values()),
        }
        self.columns = Side("r", core.W, usable[0], rows, None, core.W, cols, right, solved.cols, **more)
        self.rows = Side("c", core.V, usable[1], cols, invert(core.s), right, rows, core.W, solved.rows, **more)
        self.whole: dict[str, Summary] = {}
        self.outside: dict[str, Summary] = {}

    def extended(self) -> dict[str, list[Any]]:
        """The parts of the shards of both sides.

        One pass over all units of both at once, then more over units that are not typical of their side.
        """
        sides = [self.columns, self.rows]
        given = [() if self.given is None else (self.given[side.side],) for side in sides]
        jobs = self._jobs("first", sides, given)
        found = self.engine.map(Stage(first, "first"), jobs, self.show.advance)
        parts = [part for part, _ in found]
        typical = []
        for side, numbers in zip(sides, self._by_side(sides, found), strict=True):
            if "medians" in numbers[0]:  # of one shard, on a device
                typical.append(typical_by(numbers[0]["medians"], side.schedule.floor))
                continue
            tallies = [Tally.unpacked(x) for x in numbers]
            typical.append(typical_of(sum(tallies[1:], tallies[0]), side.schedule.floor))
        # Gates need the doubtful units of all shards, and these need the medians of all shards: hence a step in between.
        if sides[0].mended:
            jobs = self._jobs(None, sides, [(t,) for t in typical], parts)
            counted = self.engine.map(Stage(doubts, "doubts", reads=False, kept=False), jobs, lambda count: None)
            parts = [part | more if isinstance(part, dict) else part for part, (more, _) in zip(parts, counted, strict=True)]
            for k, numbers in enumerate(self._by_side(sides, counted)):
                typical[k] = with_gates(typical[k], np.sum([x["doubts"] for x in numbers], axis=0))
            del counted
        jobs = self._jobs("second", sides, [(t,) for t in typical], parts)
        del found, parts  # each job has its own, until it is done
        found = self.engine.map(
            Stage(second, "second", reads=False), jobs, self.show.advance
        )  # doubtful units alone are read
        self._note(sides, found)
        parts, n = [part for part, _ in found], len(self.shards["r"])
        return {"r": parts[:n], "c": parts[n:]}

    def _jobs(
        self, step: str | None, sides: list[Side], args: Sequence[tuple[Any, ...]], parts: list[Any] | None = None
    ) -> list[Job]:
        """A step on all shards of some sides, each side with its `args`; shown, if it has a name."""
        jobs = [
            Job(shard, side, None, more) for side, more in zip(sides, args, strict=True) for shard in self.shards[side.side]
        ]
        if parts is not None:
            jobs = [replace(job, part=part) for job, part in zip(jobs, parts, strict=True)]
        if step is not None:
            names = " and ".join(side.units for side in sides)
            self.show.stage(names if step == "first" else f"{names}, {step}", sum(job.n_units for job in jobs))
        return jobs

    def _by_side(self, sides: list[Side], found: Found) -> list[list[Arrays]]:
        """The numbers of all shards, for each side."""
        numbers = iter([small for _, small in found])
        return [[next(numbers) for _ in self.shards[side.side]] for side in sides]

    def _note(self, sides: list[Side], found: Found) -> None:
        """Add up the summaries of the shards."""
        for side, numbers in zip(sides, self._by_side(sides, found), strict=True):
            for total, name in ((self.whole, "whole"), (self.outside, "outside")):
                terms = [Summary.from_named(x, name) for x in numbers]
                total[side.side] = sum(terms[1:], terms[0])
