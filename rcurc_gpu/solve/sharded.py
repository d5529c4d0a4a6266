"""A solve of samples in shards: the core once, then steps over the shards of both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..backends.operators import invert
from ..extend.diagnostics import Summary
from ..extend.normal import solve_normal_equations
from ..extend.sweeps import at_the_noise, renewed
from ..extend.typical import typical_of, with_gates
from ..progress import Progress
from ..result.result import Result
from ..shards.samples import ShardedSamples
from ..shards.source import Shard
from .conclude import conclude
from .engine import Engine, Job
from .found import FoundCore
from .output import Output, diagnostics_of
from .work import Arrays, Side, Work, again, doubts, first, numbers_of, second, summary_of, tally_of


class ShardedSolve:
    """What follows the core.

    Parameters
    ----------
    samples : ShardedSamples
    found : FoundCore
        In units in which observations are divided by `unit`; on the host.
    engine : Engine
        Does the work.
    """

    def __init__(
        self,
        samples: ShardedSamples,
        found: FoundCore,
        unit: float,
        device: str,
        engine: Engine,
        show: Progress,
        output: Output | None = None,
    ) -> None:
        self.samples, self.found, self.engine, self.show, self.output = samples, found, engine, show, output
        s, checked, core = found.settings, found.checked, found.checked.core
        right = core.V * core.s
        more: dict[str, Any] = {
            "schedule": checked.schedule,
            "holdout": s.holdout,
            "seed": s.seed,
            "chunk_bytes": s.chunk_bytes,
            "kernels": s.kernels,
            "device": device,
            "unit": unit,
            "no_threshold": 0.0 if s.outliers else found.no_threshold,
            "blank": s.undetermined == "nan",
            "agreeing": checked.agreeing,
        }
        one = np.ones_like(core.s)
        rows, cols = samples.rows, samples.cols
        usable = (checked.usable_rows, checked.usable_cols)
        self.columns = Side("r", core.W, usable[0], rows, one, core.W, cols, right, checked.cols, **more)
        self.rows = Side("c", core.V, usable[1], cols, invert(core.s), right, rows, core.W, checked.rows, **more)
        self.summaries: dict[str, tuple[Summary, Summary]] = {}

    def run(self, seconds: Callable[[], float]) -> Result:
        """The rest of the solve; ``seconds()`` have passed since its beginning."""
        known = None if self.output is None else self.output.done
        if known is not None:
            for side in "rc":
                whole, outside = (summary_of(np.asarray(x)) for x in known[side])
                self.summaries[side] = whole, outside
        else:
            parts = self._extended() if self.found.sweeps == 0 else self._swept()
            if self.output is not None:
                for side, n_units in zip("rc", self.samples.shape[::-1], strict=True):
                    self.output.assemble(side, self.engine.saved(parts[side]), n_units)
                told = {side: [numbers_of(x).tolist() for x in pair] for side, pair in self.summaries.items()}
                self.output.finish(self.samples.rows, self.samples.cols, told)
        if self.output is not None:
            sides = {side: self.output.load(side, n) for side, n in zip("rc", self.samples.shape[::-1], strict=True)}
        else:
            sides = {side: self.engine.collect(parts[side]) for side in "rc"}
        columns, rows = self.summaries["r"], self.summaries["c"]
        return conclude(
            self.found,
            (sides["c"]["factor"], sides["r"]["factor"]),
            diagnostics_of(sides["r"]),
            diagnostics_of(sides["c"]),
            (columns[0], rows[0]),
            (columns[1], rows[1]),
            self.found.sweeps > 0,
            self.samples,
            seconds(),
        )

    def _extended(self) -> dict[str, list[Any]]:
        """Both sides at once."""
        found = self._extend([self.columns, self.rows], last=True)
        return {"r": found[: len(self.samples.r_shards)], "c": found[len(self.samples.r_shards) :]}

    def _swept(self) -> dict[str, list[Any]]:
        """Columns, then rows, and both again for each sweep: the basis of each comes from all of the other."""
        parts = {"r": self._extend([self.columns], last=False)}
        left = self._renewed(self.columns, self.rows, parts["r"])
        self.rows = replace(self.rows, core=left)
        parts["c"] = self._extend([self.rows], last=False)
        right = self._renewed(self.rows, self.columns, parts["c"])
        for k in range(1, self.found.sweeps + 1):
            last = k == self.found.sweeps
            self.columns = _on_new_basis(self.columns, left, right)
            parts["r"] = self._again(k, self.columns, parts["r"], last)
            new = left if last else self._renewed(self.columns, self.rows, parts["r"])
            self.rows = _on_new_basis(self.rows, right, new)
            parts["c"] = self._again(k, self.rows, parts["c"], last)
            left, right = new, right if last else self._renewed(self.rows, self.columns, parts["c"])
        return parts

    def _extend(self, sides: list[Side], last: bool) -> list[Any]:
        """A look at all units of some sides, then others at those that are not as the rest of their side."""
        found = self._map(first, "first", sides, None, [()] * len(sides), reads=True)
        parts = [part for part, _ in found]
        typical = []
        for side, numbers in zip(sides, self._by_side(sides, found), strict=True):
            tallies = [tally_of(x) for x in numbers]
            typical.append(typical_of(sum(tallies[1:], tallies[0]), side.schedule.floor))
        if self.found.settings.outliers:
            counted = self._map(doubts, "doubts", sides, parts, [(u,) for u in typical], reads=False, kept=False)
            for k, numbers in enumerate(self._by_side(sides, counted)):
                typical[k] = with_gates(typical[k], np.sum([x["doubts"] for x in numbers], axis=0))
        found = self._map(second, "second", sides, parts, [(u, last) for u in typical], reads=not last)
        self._note(sides, found)
        return [part for part, _ in found]

    def _again(self, k: int, side: Side, parts: list[Any], last: bool) -> list[Any]:
        """A sweep over one side."""
        found = self._map(again, f"sweep{k}", [side], parts, [(last,)], reads=True)
        self._note([side], found)
        return [part for part, _ in found]

    def _map(
        self,
        work: Work,
        step: str,
        sides: list[Side],
        parts: list[Any] | None,
        args: list[tuple[Any, ...]],
        reads: bool,
        kept: bool = True,
    ) -> list[tuple[Any, Arrays]]:
        """Do a step on all shards of some sides, each side with its `args`."""
        jobs = [Job(shard, side, None, more) for side, more in zip(sides, args, strict=True) for shard in self._shards(side)]
        if parts is not None:
            jobs = [replace(job, part=part) for job, part in zip(jobs, parts, strict=True)]
        if kept:
            names = " and ".join(side.units for side in sides)
            self.show.stage(names if step == "first" else f"{names}, {step}", sum(job.n_units for job in jobs))
        report = self.show.advance if kept else lambda count: None
        return self.engine.map(work, step, jobs, reads, kept, report)

    def _shards(self, side: Side) -> list[Shard]:
        return self.samples.shards(side.side)

    def _by_side(self, sides: list[Side], found: Sequence[tuple[Any, Arrays]]) -> list[list[Arrays]]:
        """The numbers of all shards, for each side."""
        numbers = iter([small for _, small in found])
        return [[next(numbers) for _ in self._shards(side)] for side in sides]

    def _note(self, sides: list[Side], found: Sequence[tuple[Any, Arrays]]) -> None:
        """Add up what the shards say of their units."""
        for side, numbers in zip(sides, self._by_side(sides, found), strict=True):
            whole, outside = ([summary_of(x[name]) for x in numbers] for name in ("whole", "outside"))
            self.summaries[side.side] = (sum(whole[1:], whole[0]), sum(outside[1:], outside[0]))

    def _renewed(self, side: Side, other: Side, parts: list[Any]) -> np.ndarray:
        """The chosen units of the `other` side, from all units of this one."""
        new, good = solve_normal_equations(self.engine.total(parts), side.anchor)
        return renewed(new, good, side.anchor, other.core_diagnostics.status)


def _on_new_basis(side: Side, basis: np.ndarray, core: np.ndarray) -> Side:
    """A side on another basis near to its own, with other rows of its factor for the core."""
    one = np.ones_like(side.scale)
    return replace(side, basis=basis, anchor=basis, scale=one, core=core, schedule=at_the_noise(side.schedule))
