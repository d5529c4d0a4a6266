"""Which code does the work: plain array-API code, kernels compiled for the CPU (Numba), or CUDA kernels (CuPy)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Protocol

import numpy as np
from array_api_compat import is_cupy_array, is_numpy_array

from ..errors import ArgumentError
from ..progress import Progress
from .arrays import Array, array_namespace, asarray_on, default_chunk_bytes, take_rows
from .blocks import Block, pieces
from .chunks import ChunkPlan
from .plain.evidence import (
    BasisFacts,
    Compared,
    Measured,
    Sizes,
    basis_facts,
    compare,
    largest_squares,
    measure,
    n_larger,
    sizes,
)
from .plain.grid import Grid, make_grid
from .plain.joining import join
from .plain.layout import Layout, lay_out
from .plain.lone import rests_on_one
from .plain.passes import FitPass, advance, entry_ids_on, held_out, regress
from .plain.posterior import PLAIN_STEPS, MatrixSteps, posterior
from .plain.robust import robust_fit
from .plain.tangent import PaddedSide, Side
from .plain.ties import Lanczos, PlainLanczos, couple, grams, inverses, times
from .plain.verdicts import diagnose, judge
from .plain.votes import agreeing, split
from .streaming import Streams

__all__ = ["XP", "Kernels", "RunContext", "Step", "choose", "cuda_kernels", "picture_kernels"]

log = logging.getLogger("rcurc_gpu")

# Over the rank: how many times as long as elsewhere chunks may be on the CPU. Each chunk costs some Python and leaves cores
# idle at its end; but progress is reported, and Ctrl-C is seen, between chunks only: this makes about 0.1 s of work of one.
_LONG = 40
# Copies of the (entries, rank) array in the plain code: D and its weighted copy. They are what takes its memory; fewer here,
# and chunks would be larger than `chunk_bytes` says.
_PADDED_COPIES = 2
_PADDED_OTHERS = 10  # numbers of a padded entry beside these: value, position, residual, weights and what is made of them


@dataclass(frozen=True)
class Kernels:
    """Functions with the same signatures, whatever they are made of.

    Attributes
    ----------
    name : str
        "xp", "numba" or "cuda".
    regress, advance, make_grid : callables
        `passes.regress`, `passes.advance` and `grid.make_grid`, or what takes their place.
    plan : callable
        Cuts units into chunks: (block, units, rank, bytes) to a `ChunkPlan`.
    most_rank : int, optional
        The largest rank they serve; plain code serves larger ones.
    held_out, posterior, grams, couple, inverses, make_side, join, times, lanczos, diagnose, judge,
    split, agreeing, rests_on_one, measure, compare, n_larger, sizes, basis_facts, largest_squares, robust_fit : callables
        `passes.held_out`, `posterior.posterior`, those of `ties`, `tangent.PaddedSide.of`, `joining.join`, those of
        `verdicts`, those of `votes`, `lone.rests_on_one`, those of `evidence`, `robust.robust_fit`, or what takes
        their place.
    matrix_steps : MatrixSteps
        Of `posterior.posterior_of_matrix`.
    laid_out : callable, optional
        `cuda.layout.lay_out`.
    regress_together : callable, optional
        `cuda.calls.regress_together`: several passes at once.
    together : int
        Up to so many units these are faster than one pass after the other, where units that an early one settles are spared
        the later ones.
    unit_table : callable, optional
        `cuda.verdicts.UnitTable`, if what is known of units may stay on a device; `mark_lone`, `cuda.ties.mark_lone`, then,
        too.
    """

    name: str
    regress: Callable[..., tuple[Array, Array]]
    advance: Callable[..., tuple[Array, Array]]
    make_grid: Callable[..., Grid]
    plan: Callable[[Block, np.ndarray, int, int], ChunkPlan]
    most_rank: int | None = None
    held_out: Callable[..., Array] = held_out
    posterior: Callable[..., tuple[Array, Array, Array]] = posterior
    grams: Callable[[Block, Array], Array] = grams
    couple: Callable[[Block, Array, Array, Array], Array] = couple
    inverses: Callable[[Array, float], Array] = inverses
    make_side: Callable[[Block, Array, int | None], Side] = PaddedSide.of
    join: Callable[..., tuple[Block, Array]] = join
    times: Callable[[Array, Array], Array] = times
    lanczos: Callable[..., Lanczos] = PlainLanczos
    diagnose: Callable[..., np.ndarray] = diagnose
    judge: Callable[..., tuple[np.ndarray, np.ndarray]] = judge
    split: Callable[..., tuple[np.ndarray, Block]] = split
    robust_fit: Callable[..., tuple[np.ndarray, np.ndarray]] = robust_fit
    rests_on_one: Callable[..., np.ndarray] = rests_on_one
    agreeing: Callable[..., Block] = agreeing
    measure: Callable[..., Measured] = measure
    compare: Callable[..., Compared] = compare
    n_larger: Callable[[Array, float], int] = n_larger
    sizes: Callable[[Array], Sizes] = sizes
    basis_facts: Callable[[Array, Array], BasisFacts] = basis_facts
    largest_squares: Callable[[Array, Array], np.ndarray] = largest_squares
    regress_together: Callable[..., tuple[Array, Array]] | None = None
    together: int = 0
    unit_table: Callable[..., Any] | None = None
    mark_lone: Callable[..., None] | None = None
    laid_out: Callable[..., Layout] | None = None
    matrix_steps: MatrixSteps = PLAIN_STEPS

    def lay_out(self, *given: Any) -> Layout:
        """`layout.lay_out`, or what takes its place."""
        return lay_out((self.held_out, self.make_grid), *given) if self.laid_out is None else self.laid_out(*given)

    def at(self, rank: int) -> Kernels:
        """What serves `rank`."""
        return self if self.most_rank is None or rank <= self.most_rank else XP

    def regress_all(
        self, block: Block, basis: Array, fit_pass: FitPass, chunk_bytes: int | None, unit_ids: np.ndarray | None = None
    ) -> tuple[Array, Array]:
        """One fit pass over all units of a block that is where its orthonormal basis is; nothing is held out.

        `unit_ids`, by default 0, 1, ..., fix what is random. Returns what `passes.regress` does.
        """
        a, table = self.regress_each(block, basis, [fit_pass], chunk_bytes, unit_ids)
        return a[:, 0, :], table[:, 0, :]

    def regress_each(
        self,
        block: Block,
        basis: Array,
        passes: Sequence[FitPass],
        chunk_bytes: int | None,
        unit_ids: np.ndarray | None = None,
        units: np.ndarray | None = None,
    ) -> tuple[Array, Array]:
        """`regress_all` for several passes, over all units or over some of them; only one alone may have a start.

        What is returned has an axis for the passes: (u, passes, r) and (u, passes, 8).
        """
        r, units = basis.shape[1], np.arange(block.n_units) if units is None else units
        unit_ids = np.arange(block.n_units) if unit_ids is None else unit_ids
        ids = entry_ids_on(basis, unit_ids, np.arange(block.length), False, 0, 0.0)
        usable, white = (asarray_on(x, basis, basis.dtype) for x in (np.ones(block.length), np.eye(r)))
        plan = self.plan(block, units, r, chunk_bytes or default_chunk_bytes(basis))
        given = block, basis, usable, white, ids
        a, table = zip(*(self._passes_over(chosen, passes, *given) for chosen in plan), strict=True)
        return plan.join(list(a)), plan.join(list(table))

    def _passes_over(self, chosen: np.ndarray, passes: Sequence[FitPass], block: Block, *given: Any) -> tuple[Array, Array]:
        """Coefficients and tables of some passes, in one launch if there is code for that."""
        if self.regress_together is not None and len(passes) > 1:
            return self.regress_together(block, chosen, *given, passes)
        starts = [x.start if x.start is None else take_rows(x.start, asarray_on(chosen, x.start)) for x in passes]
        these = [replace(x, start=start) for x, start in zip(passes, starts, strict=True)]
        a, table = zip(*(self.regress(block, chosen, *given, x) for x in these), strict=True)
        if len(passes) == 1:
            return a[0][:, None, :], table[0][:, None, :]
        xp = array_namespace(a[0])
        return xp.stack(a, axis=1), xp.stack(table, axis=1)


def _padded_plan(block: Block, units: np.ndarray, rank: int, chunk_bytes: int) -> ChunkPlan:
    """Units of about the same count together, as a padded rectangle."""
    return ChunkPlan.of(block.counts, units, (_PADDED_COPIES * rank + _PADDED_OTHERS) * 8, chunk_bytes)


XP = Kernels("xp", regress, advance, make_grid, _padded_plan)


def _contiguous_plan(block: Block, units: np.ndarray, rank: int, chunk_bytes: int) -> ChunkPlan:
    """Units in their order; nothing is padded, so chunks only bound what happens between two reports of progress."""
    per_entry = block.value.dtype.itemsize + block.index.dtype.itemsize
    if block.n_obs * per_entry <= chunk_bytes:  # one chunk, without a look at how long units are, which may be on a device
        return ChunkPlan(units, np.asarray([0, len(units)][: 1 + (len(units) > 0)]))
    counts = block.counts[units]
    return ChunkPlan(units, pieces(counts, chunk_bytes // per_entry))


def _long_plan(block: Block, units: np.ndarray, rank: int, chunk_bytes: int) -> ChunkPlan:
    """As `_contiguous_plan`, but on the CPU a chunk takes no memory, and where ranks are small it is done in no time."""
    return _contiguous_plan(block, units, rank, chunk_bytes * max(_LONG // max(rank, 1), 1))


def choose(kernels: str, like: Array, svd: str = "auto") -> Kernels:
    """The kernels for arrays like `like`; `kernels` and `svd` are words of `options.Settings`."""
    if svd == "cusolver" and not is_cupy_array(like):
        name = array_namespace(like).__name__.removeprefix("array_api_compat.")
        raise ArgumentError(
            "svd", f"must be 'auto' where arrays of {name} are computed with, got {svd!r}: it needs a GPU", svd
        )
    if kernels == "xp":
        return XP
    if is_numpy_array(like):
        return _numba(required=kernels == "fused")
    if is_cupy_array(like):
        return _cuda(kernels == "fused", svd)
    if kernels == "fused":
        name = array_namespace(like).__name__.removeprefix("array_api_compat.")
        raise ValueError(f"kernels='fused' was asked for, but there are none for arrays of {name}; use kernels='xp'")
    return XP


def cuda_kernels(svd: str = "auto") -> Kernels:
    """Those for CuPy, which has to be there."""
    from .cuda import calls as cuda
    from .cuda import evidence, layout, sources, ties, verdicts, votes

    make = partial(cuda.make_grid, library=svd == "cusolver")
    most, plan = sources.MOST_RANK, _contiguous_plan
    return Kernels(
        "cuda",
        cuda.regress,
        cuda.advance,
        make,
        plan,
        most,
        posterior=cuda.posterior,
        regress_together=cuda.regress_together,
        together=2_000,  # more keep a device busy in each of the passes
        grams=ties.grams,
        lanczos=ties.lanczos,
        held_out=votes.held_out,
        split=votes.split,
        join=layout.join,
        rests_on_one=ties.rests_on_one,
        agreeing=votes.agreeing,
        measure=evidence.measure,
        compare=evidence.compare,
        n_larger=evidence.n_larger,
        sizes=evidence.sizes,
        basis_facts=evidence.basis_facts,
        largest_squares=evidence.largest_squares,
        unit_table=verdicts.UnitTable,
        mark_lone=ties.mark_lone,
        laid_out=partial(layout.lay_out, library=svd == "cusolver"),
    )


@cache  # which also makes the log line come once
def _cuda(required: bool, svd: str) -> Kernels:
    import cupy  # type: ignore[import-not-found]

    if cupy.cuda.runtime.is_hip:
        # the kernels assume warps of 32 threads, and many of AMD's have 64
        if required:
            raise RuntimeError("kernels='fused' was asked for, but there are none for AMD's GPUs (ROCm); use kernels='xp'")
        log.info("plain CuPy is used: there are no kernels for AMD's GPUs (ROCm)")
        return XP
    return cuda_kernels(svd)


@cache
def _numba(required: bool) -> Kernels:
    try:
        from .numba import calls as cpu
        from .numba import grid as cpu_grid
        from .numba import verdicts as cpu_verdicts
        from .numba.robust_kernel import robust_fit
        from .numba.tangent import CompiledSide
    except ImportError as error:
        if required:
            raise RuntimeError(
                f"kernels='fused' was asked for, but Numba cannot be imported ({error}); install the extra 'fast' "
                "(pip install 'rcurc-gpu[fast]'), or use kernels='xp'"
            ) from error
        log.info("plain NumPy is used; with Numba (pip install 'rcurc-gpu[fast]') this would be about ten times faster")
        return XP
    grid = cpu_grid.CompiledGrid.of
    more = (cpu.held_out, cpu.posterior, cpu.grams, cpu.couple, cpu.inverses, CompiledSide.of, cpu.join, cpu.times)
    return Kernels(
        *("numba", cpu.regress, cpu.advance, grid, _long_plan, None, *more),
        regress_together=cpu.regress_together,
        together=64,  # a call from Python costs 0.1 ms, which is what one pass over about so many takes
        diagnose=cpu_verdicts.diagnose,
        judge=cpu_verdicts.judge,
        split=cpu_verdicts.split,
        robust_fit=robust_fit,
        matrix_steps=MatrixSteps(cpu.weigh, cpu.solve_packed),
    )


@cache
def picture_kernels() -> Any:
    """What Numba compiles for single pictures of a video (`numba.picture_kernel`); None without Numba."""
    try:
        from .numba import picture_kernel
    except ImportError:
        return None
    return picture_kernel


class Step(Protocol):
    """One step of a solve in its store."""

    @property
    def saved(self) -> dict[str, np.ndarray] | None:
        """What an earlier run left, or None."""

    def save(self, arrays: dict[str, Any]) -> None:
        """Keep `arrays`, from any device, in the place of what was there."""


class StepStore(Protocol):
    """What keeps the steps of a solve that may be interrupted; `elapsed` are the seconds of earlier runs."""

    elapsed: float

    def step(self, name: str) -> Step:
        """The next step."""


@dataclass(frozen=True, eq=False)
class RunContext:
    """What travels through a whole solve.

    Attributes
    ----------
    like : array
        Where to compute.
    kernels : Kernels
        What does the work.
    seed : int
    holdout : float
        Share of the observations that is kept out of the fit.
    chunk_bytes : int, optional
        Working memory of one chunk of columns or rows.
    progress : Progress
    store : StepStore, optional
        Keeps what was done, if the solve may be interrupted.
    started : float
        What `time.perf_counter` said when the solve began.
    streams : Streams
        Through which observations on the host go to a device.
    """

    like: Array
    kernels: Kernels
    seed: int = 0
    holdout: float = 0.0
    chunk_bytes: int | None = None
    progress: Progress = field(default_factory=lambda: Progress(False))
    store: StepStore | None = None
    started: float = field(default_factory=time.perf_counter)
    streams: Streams = field(default_factory=Streams)

    def at(self, rank: int) -> RunContext:
        """The same, with the kernels that serve `rank`."""
        kernels = self.kernels.at(rank)
        return self if kernels is self.kernels else replace(self, kernels=kernels)

    def clock(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.started

    def step(self, name: str) -> Step | None:
        """The next step in the store, if there is one."""
        return None if self.store is None else self.store.step(name)
