"""The one search for outliers: observations that the recovered matrix and the noise do not explain.

Observations come in blocks (samples in memory, shards, a sparse matrix), or are all entries of a whole matrix, whose rows
are multiplied out instead. Either way they are read in pieces, wherever their arrays are. What an outlier is, a rule says
(`rules.OutlierRule`), or a threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..backends.arrays import (
    Array,
    array_namespace,
    asarray_on,
    device_of,
    gather,
    is_array,
    native,
    sparse_module,
    take_rows,
    to_numpy,
)
from ..backends.blocks import Block
from ..samples.building import check_same_place, positive_sigma, sigma_matrix
from ..samples.dense import DenseReader, dense_source
from ..samples.view import Samples
from .matrix import LowRankMatrix
from .rules import OutlierRule, rounding_of

# Observations at once: a piece takes two arrays of this many rows, each as wide as the rank, a few MB beside the factors.
_ENTRIES_AT_ONCE = 1 << 18

# One observation that is an outlier, in the table of a result.
TABLE = np.dtype(
    [
        ("row", np.int64),
        ("column", np.int64),
        ("value", np.float64),
        ("fitted", np.float64),
        ("residual", np.float64),
        ("score", np.float64),
        ("probability", np.float64),
    ]
)


class Outlying(NamedTuple):
    """Some observations that are outliers.

    Attributes
    ----------
    unit, index : integer arrays (k,)
        Row (of C) or column (of R), and the position in it.
    observed, residual : float arrays (k,)
        The value, and the value minus the recovered one.
    score, probability : float64 arrays (k,)
        Size of the residual in units of the local noise, and probability of being an outlier. With a mere threshold: size
        in units of the threshold, and 1.
    """

    unit: Array
    index: Array
    observed: Array
    residual: Array
    score: Array
    probability: Array

    @classmethod
    def joined(cls, parts: Iterable[Outlying]) -> Outlying:
        """One of several."""
        columns = list(zip(*parts, strict=True))
        xp = array_namespace(columns[0][0])
        return cls(*(xp.concat(column) for column in columns))


Place = Callable[[Array, Array], tuple[Array, Array]]


def _unit_first(unit: Array, index: Array) -> tuple[Array, Array]:
    return unit, index


def outlying_in(
    block: Block, basis: Array, coefficients: Array, rule: OutlierRule | float, place: Place = _unit_first
) -> Outlying:
    """What is outlying in a block, where `basis` is.

    Parameters
    ----------
    block : Block
    basis : float array (length, r)
        The product of its rows with the coefficients of a unit is the unit.
    coefficients : float array (n_units, r)
    rule : OutlierRule or float
    place : callable
        Row and column in the matrix of an observation with this unit and index, if there is a rule; by default these.
    """
    return Outlying.joined(_pieces(block.to(basis), basis, coefficients, rule, place))


def _pieces(block: Block, basis: Array, coefficients: Array, rule: OutlierRule | float, place: Place) -> Iterator[Outlying]:
    xp = array_namespace(basis)
    for start in range(0, max(block.n_obs, 1), _ENTRIES_AT_ONCE):
        stop = min(start + _ENTRIES_AT_ONCE, block.n_obs)
        entry = xp.arange(start, stop, dtype=xp.int64, device=device_of(basis))
        unit = xp.searchsorted(block.indptr, entry, side="right") - 1
        index, value = block.index[start:stop], block.value[start:stop]
        fitted = xp.sum(take_rows(basis, index) * take_rows(coefficients, unit), axis=1)
        residual = value - fitted
        sigma = None if block.sigma is None else block.sigma[start:stop]
        some, coarse = _candidates(rule, residual, sigma)
        there = place(gather(unit, some), gather(index, some)) if isinstance(rule, OutlierRule) else None
        out, score, probability = _judged(rule, fitted, residual, some, there, coarse)
        yield Outlying(gather(unit, out), gather(index, out), gather(value, out), gather(residual, out), score, probability)


def _candidates(rule: OutlierRule | float, residual: Array, sigma: Array | None) -> tuple[Array, Array | float]:
    """Numbers of the observations that may be outliers, none where the recovered value is NaN; and how coarse they are."""
    xp = array_namespace(residual)
    coarse = rule.coarseness(sigma) if isinstance(rule, OutlierRule) and residual.shape[0] else 1.0
    least = rule.smallest(coarse) if isinstance(rule, OutlierRule) else rule
    (some,) = xp.nonzero(xp.abs(residual) >= least)
    return some, coarse if isinstance(coarse, float) else gather(coarse, some)


def _judged(
    rule: OutlierRule | float,
    fitted: Array,
    residual: Array,
    some: Array,
    place: tuple[Array, Array] | None,
    coarse: Array | float,
) -> tuple[Array, Array, Array]:
    """Numbers of the outliers among `some` observations, which are at a `place`, their scores and probabilities."""
    xp = array_namespace(residual)
    size = xp.abs(xp.astype(gather(residual, some), xp.float64))
    if not isinstance(rule, OutlierRule):
        return some, size / rule if rule > 0 else size, xp.ones_like(size)
    assert place is not None
    judged = rule.judged(gather(fitted, some), size, *place, coarse)
    return gather(some, judged.which), judged.score, judged.probability


def outlying_blocks(
    samples: Samples, cur: LowRankMatrix, rule: OutlierRule | float
) -> Iterator[tuple[str, int, Block, Outlying]]:
    """Side, first unit and observations of each block of samples, R first, and what is outlying in it."""
    for side, chosen, left, right in (("r", samples.rows, cur.left, cur.right), ("c", samples.cols, cur.right, cur.left)):
        ids = asarray_on(chosen, left)
        basis = take_rows(left, ids)
        for first, block in samples.blocks(side):
            place = _placing(side, ids, first)
            yield side, first, block, outlying_in(block, basis, right[first : first + block.n_units, :], rule, place)


def _placing(side: str, ids: Array, first: int) -> Place:
    """Row and column of observations of a block of samples."""

    def place(unit: Array, index: Array) -> tuple[Array, Array]:
        there = gather(ids, index)
        return (there, unit + first) if side == "r" else (unit + first, there)

    return place


def outlying_once(samples: Samples, cur: LowRankMatrix, rule: OutlierRule | float) -> tuple[np.ndarray, ...]:
    """Row, column, observed value and residual of each outlier of samples, by rows, on the host; each once."""
    table = outlier_table(samples, cur, rule)
    return table["row"], table["column"], table["value"], table["residual"]


def outlier_table(samples: Samples, cur: LowRankMatrix, rule: OutlierRule | float) -> np.ndarray:
    """The outliers of samples, by rows, on the host, each once: an array (k,) of the type `TABLE`."""
    parts = []
    for side, first, _, found in outlying_blocks(samples, cur, rule):
        unit, index, *rest = (to_numpy(x) for x in found)
        place = (samples.rows[index], first + unit) if side == "r" else (first + unit, samples.cols[index])
        parts.append((*place, *rest))
    i, j, value, residual, score, probability = (np.concatenate(column) for column in zip(*parts, strict=True))
    _, once = np.unique(i * samples.shape[1] + j, return_index=True)  # both blocks may see an entry of the intersection
    table = np.empty(len(once), dtype=TABLE)
    columns = {"row": i, "column": j, "value": value, "residual": residual, "score": score, "probability": probability}
    for name, column in columns.items():
        table[name] = column[once]
    table["fitted"] = table["value"] - table["residual"]
    return table


def _place_in(start: int, n2: int, k: int) -> tuple[int, int]:
    """Row and column of entry `k` of rows from `start` on."""
    return start + k // n2, k % n2


def outlying_in_matrix(Y: Any, X: LowRankMatrix, rule: OutlierRule | float, sigma: Any = None) -> Any:
    """``Y - X`` where that is an outlier, as a sparse matrix (n1, n2) of the kind of the factors of X.

    Here all entries of a row are wanted, and a product of matrices gives them much faster than one entry after the other.
    """
    given, Y = Y, native(dense_source(Y), "Y")
    if tuple(Y.shape) != X.shape:
        raise ValueError(f"Y must have the shape of the recovered matrix, {X.shape}, got {tuple(Y.shape)}")
    xp, sparse = array_namespace(X.left), sparse_module(X.left)
    if is_array(Y) and not isinstance(Y, np.ndarray):
        check_same_place("Y", Y, "the recovered matrix", X.left)
    parts, n2 = [], X.shape[1]
    if sigma is not None:
        sigma = sigma_matrix(sigma, X.left, X.shape)
    for start, part in DenseReader(Y, X.left).pieces():
        fitted = X.left[start : start + part.shape[0], :] @ X.right.T
        residual = part - fitted
        flat = xp.reshape(residual, (-1,))
        rounding = rounding_of(given, xp.reshape(part, (-1,)), X.left)
        here = rule.with_limits(rule.probability, rounding) if isinstance(rule, OutlierRule) else max(rule, rounding)
        there = None
        if sigma is not None:
            there = xp.reshape(sigma[start : start + part.shape[0], :], (-1,))
            there = xp.where(xp.isnan(flat), xp.ones_like(there), there)  # there is nothing to judge
            there = positive_sigma(there, flat, partial(_place_in, start, n2))
        some, coarse = _candidates(here, flat, there)
        out, *_ = _judged(here, xp.reshape(fitted, (-1,)), flat, some, (some // n2 + start, some % n2), coarse)
        parts.append((out // n2 + start, out % n2, gather(flat, out)))
    i, j, value = (xp.concat(column) for column in zip(*parts, strict=True))
    make = getattr(sparse, "csr_array", None) or sparse.csr_matrix
    return make((value, (i, j)), shape=X.shape)
