"""What is done with the observations of some units, in plain array-API code on a padded rectangle.

`regress` is a fit pass: robust regressions of the observations on a basis, and how well they came out. `advance` takes units
through the paper's recursion. These are the references: the
compiled functions in `numba.calls` and `cuda.calls` have the same signatures and agree with them to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..arrays import Array, array_namespace, asarray_on, device_of, gather, inverse, take_rows
from ..blocks import Block
from ..chunks import Chunk, load_chunk
from ..random import PositionStream, uniform_at
from .regression import LEAST_HELD as LEAST_HELD
from .regression import MAX_STEPS, Schedule, fitted, gram, middle_residual, robust_regression, solve_normal, with_ridge
from .regression import PART as PART
from .verdicts import Column as Column


@dataclass(frozen=True, eq=False)
class EntryIds:
    """Where entries stand in the whole matrix, which decides what is held out.

    Attributes
    ----------
    unit : int64 array (n_units,)
    index : int64 array (length,)
        Numbers of the units and of the positions in them.
    transposed : bool
        Whether units are columns of the matrix.
    seed : int
    share : float
        Share of the entries that is held out.
    """

    unit: Array
    index: Array
    transposed: bool
    seed: int
    share: float


@dataclass(frozen=True, eq=False)
class FitPass:
    """How to regress.

    Attributes
    ----------
    schedule : Schedule
    informative : float
        Entries larger than this tell something; smaller ones fit a solution of 0.
    begin : {"zero", "given", "part", "subsets"}
        Where to begin: at 0; at `start`; with least squares on a random part of the entries; with the best of many random
        subsets of as many entries as unknowns.
    number : int
        Which random part, or how many subsets.
    start : float array (u, r), optional
        For "given", one row for each unit of the pass.
    max_steps : int
        0 takes the beginning as it is.
    """

    schedule: Schedule
    informative: float
    begin: str = "zero"
    number: int = 0
    start: Array | None = None
    max_steps: int = MAX_STEPS


@dataclass(frozen=True, eq=False)
class Iterates:
    """K iterations of the core, as units outside of it need them.

    Attributes
    ----------
    bases : float array (K + 1, length, r)
        W_k before and after each iteration.
    turns : float array (K, r, r)
        ``W_k^T W_{k+1}``.
    zetas : float array (K,)
        Thresholds.
    step_size : float
        eta.
    """

    bases: Array
    turns: Array
    zetas: Array
    step_size: float


def is_held_out(i: Array, j: Array, seed: int, share: float) -> Array:
    """Whether the entry (i, j) of Y, by its place in the matrix, is held out of the fit."""
    return uniform_at(i, j, seed, PositionStream.HOLDOUT) < share


def held_out(block: Block, unit_ids: Array, index_ids: Array, seed: int, share: float) -> Array:
    """`is_held_out` of all entries of a block whose units are rows (n_obs,)."""
    return is_held_out(gather(unit_ids, block.unit_of_entry()), gather(index_ids, block.index), seed, share)


def regress(
    block: Block, units: np.ndarray, basis: Array, usable: Array, white: Array, ids: EntryIds, fit_pass: FitPass
) -> tuple[Array, Array]:
    """Regress some units of a block.

    Parameters
    ----------
    block : Block
    units : int64 array (u,)
        Numbers of the units, on the host.
    basis : float array (length, r)
    usable : float array (length,)
        0 for rows of the basis that are not to be used, else 1.
    white : float array (r, r)
        Makes ``basis @ white.T`` orthonormal.
    ids : EntryIds
    fit_pass : FitPass

    Returns
    -------
    coefficients : float array (u, r)
    table : float array (u, 8)
        How well each unit came out; see `Column`.
    """
    chunk = load_chunk(block, units)
    D = take_rows(basis, chunk.index)
    held = held_in(chunk, ids, basis.shape[1])
    xp = array_namespace(basis)
    fit = xp.astype(chunk.seen & ~held, basis.dtype) * gather(usable, chunk.index)
    unit_ids = gather(ids.unit, chunk.units)
    start, zeta0 = _begin(D, chunk, fit, unit_ids, ids.seed, fit_pass)
    a = robust_regression(D, chunk.value, fit, fit_pass.schedule, start, zeta0) if fit_pass.max_steps else start
    assert a is not None
    return a, _measure(D, chunk.value, fit, held, a, white, fit_pass)


def held_in(chunk: Chunk, ids: EntryIds, rank: int) -> Array:
    """Entries of a chunk that are held out (bool). Units with little to spare give none."""
    xp = array_namespace(chunk.value)
    if ids.share == 0:
        return xp.zeros_like(chunk.seen)
    unit = gather(ids.unit, chunk.units)[:, None]
    place = gather(ids.index, chunk.index)
    pair = (place, unit) if ids.transposed else (unit, place)
    rich = xp.sum(xp.astype(chunk.seen, xp.int64), axis=1) >= LEAST_HELD * rank
    return is_held_out(*pair, ids.seed, ids.share) & chunk.seen & rich[:, None]


def _begin(
    D: Array, chunk: Chunk, fit: Array, unit_ids: Array, seed: int, fit_pass: FitPass
) -> tuple[Array | None, Array | None]:
    """First coefficients (None: 0) and first thresholds (None: the schedule's)."""
    xp = array_namespace(D)
    y = chunk.value
    floor = xp.full((D.shape[0],), fit_pass.schedule.floor, dtype=D.dtype, device=device_of(D))
    if fit_pass.begin == "given":
        return fit_pass.start, None
    if fit_pass.begin == "part":
        lane = xp.arange(fit.shape[1], dtype=xp.int64, device=device_of(D))
        lot = uniform_at(unit_ids[:, None], lane[None, :], seed, PositionStream.PART + fit_pass.number)
        start = solve_normal(D, y, fit * xp.astype(lot < PART, D.dtype))
        return start, xp.maximum(middle_residual(y - fitted(D, start), fit, PART), floor)
    if fit_pass.begin == "subsets":
        # a subset without outliers is off by some noise: not at the floor, but not where outliers come in again either
        return _best_subset(D, chunk, fit, unit_ids, seed, fit_pass), 10 * floor
    return None, None


def _best_subset(D: Array, chunk: Chunk, fit: Array, unit_ids: Array, seed: int, fit_pass: FitPass) -> Array:
    """Solve many random subsets of as many entries as unknowns; the one that most entries agree with."""
    xp = array_namespace(D)
    (u, m, r), y = D.shape, chunk.value
    counts = xp.sum(xp.astype(chunk.seen, xp.int64), axis=1)
    first = xp.arange(u, dtype=xp.int64, device=device_of(D))[:, None] * m
    flat_D, flat_y, flat_fit = xp.reshape(D, (-1, r)), xp.reshape(y, (-1,)), xp.reshape(fit, (-1,))
    best = xp.zeros((u, r), dtype=D.dtype, device=device_of(D))
    most = xp.zeros((u,), dtype=D.dtype, device=device_of(D))
    for k in range(fit_pass.number):
        place = first + _subset(counts, unit_ids, seed, k, r)
        a = solve_normal(take_rows(flat_D, place), gather(flat_y, place), gather(flat_fit, place))
        # a solution from r noisy entries is off by more than the noise: three thresholds instead of one
        agree = xp.sum(xp.astype(xp.abs(y - fitted(D, a)) < 3 * fit_pass.schedule.floor, D.dtype) * fit, axis=1)
        better = agree > most
        most = xp.where(better, agree, most)
        best = xp.where(better[:, None], a, best)
    return best


def _subset(counts: Array, unit_ids: Array, seed: int, k: int, r: int) -> Array:
    """The places of the k-th random subset of r entries, without replacement (u, r).

    Floyd's way: the q-th place is drawn from the first ``count - r + q + 1``; if it is taken already, the last of these is
    not. Units of fewer than r entries get some twice; they are not determined anyway.
    """
    xp = array_namespace(counts)
    draw = xp.arange(k * r, (k + 1) * r, dtype=xp.int64, device=device_of(counts))
    lot = uniform_at(unit_ids[:, None], draw[None, :], seed, PositionStream.SUBSET)
    last = counts[:, None] - r + (draw - k * r)[None, :]
    last = xp.where(last > 0, last, xp.zeros_like(last))
    drawn = xp.astype(xp.floor(lot * xp.astype(last + 1, xp.float64)), xp.int64)
    places = [drawn[:, 0]]
    for q in range(1, r):
        taken = xp.any(xp.stack(places, axis=1) == drawn[:, q : q + 1], axis=1)
        places.append(xp.where(taken, last[:, q], drawn[:, q]))
    return xp.stack(places, axis=1)


def _measure(D: Array, y: Array, fit: Array, held: Array, a: Array, white: Array, fit_pass: FitPass) -> Array:
    """The table of `regress`."""
    xp = array_namespace(D)
    r = D.shape[2]
    residual = y - fitted(D, a)
    inside = xp.abs(residual) < fit_pass.schedule.floor
    keep = xp.astype(inside, D.dtype) * fit
    n_in = xp.sum(keep, axis=1)
    kept = residual * keep
    spread = xp.sqrt(xp.sum(kept * kept, axis=1) / xp.maximum(n_in - r, xp.ones_like(n_in)))
    # In coordinates in which the whole basis is orthonormal, the inverse tells the error that noise makes in the unit.
    # Traces, unlike eigenvalues, come cheaply from a Cholesky factor in a compiled kernel.
    G = white @ gram(D, keep) @ white.T
    nothing = xp.sum(xp.abs(G), axis=(1, 2)) == 0  # entries at rows of the basis that are 0 say nothing
    G, size = with_ridge(G)
    eye = xp.eye(r, dtype=D.dtype, device=device_of(D))
    trace = xp.sum(inverse(G) * eye, axis=(1, 2))
    # rounding may make it negative, or infinite, where it cannot be told
    ill = nothing | ~((trace > 0) & (size * trace < r / float(xp.finfo(D.dtype).eps) ** 0.5))
    columns = {
        Column.N_FIT: xp.sum(fit, axis=1),
        Column.N_INLIERS: n_in,
        Column.SPREAD: spread,
        Column.ILL: xp.astype(ill, D.dtype),
        Column.STANDARD_ERROR: spread * xp.sqrt(xp.abs(trace)),
        Column.N_INFORMATIVE: xp.sum(xp.astype(xp.abs(y) > fit_pass.informative, D.dtype) * keep, axis=1),
        Column.N_HELD: xp.sum(xp.astype(held, D.dtype), axis=1),
        Column.N_CONSENSUS: xp.sum(xp.astype(held & inside, D.dtype), axis=1),
    }
    return xp.stack([columns[column] for column in Column], axis=1)


def advance(
    block: Block, units: np.ndarray, usable: Array, ids: EntryIds, iterates: Iterates, a: Array
) -> tuple[Array, Array]:
    """Take some units, with the coefficients `a` (u, r), through K iterations of the paper outside of the core.

    [X_k]_{I,j} = W_k a_j for a column j outside of J, and a_j <- W_{k+1}^T (W_k a_j + eta_R g_j), g_j its residual below the
    threshold. The others of the arguments are those of `regress`.

    Returns
    -------
    a : float array (u, r)
    sums : float array (K, 2)
        For each iteration the squared residual in the numerator of e_k, and the number of outliers.
    """
    bases, turns = iterates.bases, iterates.turns
    xp = array_namespace(bases)
    chunk = load_chunk(block, units)
    y = chunk.value
    held = held_in(chunk, ids, bases.shape[2])
    fit = xp.astype(chunk.seen & ~held, y.dtype) * gather(usable, chunk.index)
    E = (y - fitted(take_rows(bases[0, :, :], chunk.index), a)) * fit
    sums = []
    for k in range(turns.shape[0]):
        keep = xp.astype(xp.abs(E) < iterates.zetas[k], y.dtype) * fit
        D = take_rows(bases[k + 1, :, :], chunk.index)
        a = a @ turns[k, :, :] + ((iterates.step_size * E * keep)[:, None, :] @ D)[:, 0, :]
        residual = (y - fitted(D, a)) * fit
        rest = residual - E * (fit - keep)
        sums.append(xp.stack([xp.sum(rest * rest), xp.sum(fit - keep)]))
        E = residual
    return a, xp.stack(sums)


def again(fit_pass: FitPass, gamma: float, begin: str = "zero", number: int = 0) -> FitPass:
    """Another fit pass, with another beginning and decay."""
    return replace(fit_pass, schedule=replace(fit_pass.schedule, gamma=gamma), begin=begin, number=number, start=None)


def entry_ids_on(like: Array, unit: np.ndarray, index: np.ndarray, transposed: bool, seed: int, share: float) -> EntryIds:
    """`EntryIds` on the device of `like`."""
    return EntryIds(asarray_on(unit, like), asarray_on(index, like), transposed, seed, share)
