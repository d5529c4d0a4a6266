"""From what a user has (indices, values, masks) to clean sorted observations, or an error that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, device_name, device_of, gather, is_array, native, to_numpy
from ..backends.blocks import Block
from ..errors import ArgumentError, ArgumentTypeError, NothingObservedError
from .duplicates import resolve_duplicates
from .foreign import advice_on, library_of, plain_array, to_host

ReadPiece = Callable[[int, int], tuple[Array, "Array | None"]]  # units start to stop as (units, length), and their mask
READ_BYTES = 64 << 20  # how much of a dense matrix is looked at at once


def host_array(name: str, x: Any) -> np.ndarray:
    """Lists, data frames and the like as a NumPy array."""
    return to_host(name, x)


def given_array(name: str, x: Any, like: Array | None = None) -> Array:
    """What a user gave as an array: a view of one of another library, itself, or lists as an array beside `like`."""
    x = plain_array(name, x)
    x = native(x, name) if library_of(x) is None else x
    if is_array(x):
        return x
    return host_array(name, x) if like is None else asarray_on(host_array(name, x), like)


def index_vector(name: str, index: Any, size: int) -> np.ndarray:
    """Row or column numbers as a host int64 vector: whole, in range, without duplicates, in the order given."""
    index = to_numpy(given_array(name, index))
    if index.ndim != 1:
        found = repr(index.item()) if index.ndim == 0 else f"shape {index.shape}"
        raise ValueError(f"{name} must be a vector of integers, got {found}")
    if index.size == 0:
        raise ValueError(f"{name} is empty: at least one index is needed")
    if index.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold integers, got dtype {index.dtype}")
    if index.min() < 0 or index.max() >= size:
        bad = index[(index < 0) | (index >= size)][0]
        raise ValueError(f"{name} must lie in 0..{size - 1}, got {bad}")
    index = index.astype(np.int64)
    unique, counts = np.unique(index, return_counts=True)
    if unique.size != index.size:
        k = np.argmax(counts)
        raise ValueError(f"{name} must not repeat an index, got {unique[k]} ({counts[k]} times)")
    return index


def check_same_place(name: str, array: Array, other_name: str, other: Array) -> None:
    """Refuse arrays of two namespaces or devices, which no operation could combine."""
    found, wanted = (
        f"{array_namespace(x).__name__.removeprefix('array_api_compat.')} on {device_name(x)}" for x in (array, other)
    )
    if found != wanted:
        raise TypeError(f"{name} must be an array of the same library and device as {other_name} ({wanted}), got {found}")


def float_values(name: str, values: Array) -> Array:
    """`values` as float32 or float64: floats keep their type (float16 becomes float32), integers become float64."""
    xp = array_namespace(values)
    if xp.isdtype(values.dtype, ("integral", "bool")):
        return xp.astype(values, xp.float64)
    if not xp.isdtype(values.dtype, "real floating"):
        raise TypeError(f"{name} must be real numbers, got dtype {values.dtype}{advice_on(values)}")
    if values.dtype in (xp.float32, xp.float64):
        return values
    # half and quadruple precision, and the other byte order
    return xp.astype(values, xp.float32 if xp.finfo(values.dtype).bits <= 32 else xp.float64)


def check_finite(name: str, values: Array, place: Callable[[int], Any] = "index {}".format) -> None:
    """Refuse NaN and inf among observations; ``place(k)`` is where the user finds number k of them."""
    xp = array_namespace(values)
    finite = xp.isfinite(values)
    if not bool(xp.all(finite)):
        first = int(xp.argmin(xp.astype(finite, xp.int8)))
        raise ValueError(
            f"{name} must be finite where observed, got {float(values[first])} at {place(first)}; "
            "leave missing entries out of the observations"
        )


def sigma_vector(sigma: Any, values: Array, name: str = "sigma") -> Array:
    """Standard deviations of the noise of observations, beside their `values` and as many of them, checked."""
    sigma = given_array(name, sigma, values)
    check_same_place(name, sigma, "values", values)
    if sigma.shape != values.shape:
        wanted = f"a vector with a number for each of {values.shape[0]} values"
        raise ArgumentError(name, f"must be {wanted}, got shape {tuple(sigma.shape)}")
    return positive_sigma(sigma, values, name=name)


def sigma_matrix(sigma: Any, like: Array, shape: tuple[int, int], name: str = "Y") -> Array:
    """Standard deviations of the noise of a matrix, a view that shares memory; numbers are checked when they are taken."""
    sigma = given_array("sigma", sigma, like)
    check_same_place("sigma", sigma, name, like)
    try:
        return array_namespace(sigma).broadcast_to(sigma, shape)
    except ValueError:
        raise ArgumentError(
            "sigma", f"must have the shape of {name}, {shape}, or one that broadcasts to it, got {tuple(sigma.shape)}"
        ) from None


def positive_sigma(
    sigma: Array, values: Array, place: Callable[[int], Any] = "index {}".format, name: str = "sigma"
) -> Array:
    """`sigma` in the type of `values`, if it is positive and finite; ``place(k)`` is where the user finds number k."""
    xp = array_namespace(values)
    if not xp.isdtype(sigma.dtype, ("integral", "real floating")):
        raise ArgumentTypeError(name, f"must be real numbers, got dtype {sigma.dtype}")
    with np.errstate(over="ignore"):  # what is too large is named just below
        found = xp.astype(sigma, values.dtype)
    fine = (found > 0) & xp.isfinite(found)
    if not bool(xp.all(fine)):
        first = int(xp.argmin(xp.astype(fine, xp.int8)))
        what = f"must be positive and finite in {values.dtype}"
        raise ArgumentError(name, f"{what}, got {float(sigma[first])} at {place(first)}")
    return found


def positions_in(index: Array, chosen: np.ndarray) -> tuple[Array, Array]:
    """Where each of `index` stands in `chosen`, and whether it does at all."""
    xp = array_namespace(index)
    order = np.argsort(chosen, kind="stable")
    ascending = asarray_on(chosen[order], index, xp.int64)
    place = xp.searchsorted(ascending, xp.astype(index, xp.int64))
    place = xp.minimum(place, xp.asarray(len(chosen) - 1, dtype=place.dtype, device=device_of(index)))
    inside = gather(ascending, place) == xp.astype(index, xp.int64)
    return gather(asarray_on(order, index, xp.int64), place), inside


def observed_dtype(dtype: Any, sigma: bool) -> np.dtype[Any]:
    """The dtype of an observation on its way through tables and files: of its value, or of its value and its `sigma`."""
    return np.dtype([("value", dtype), ("sigma", dtype)]) if sigma else np.dtype(dtype)


def observed(value: np.ndarray, sigma: np.ndarray | None) -> np.ndarray:
    """Values and, if they are known, their sigmas, as one array of `observed_dtype`."""
    if sigma is None:
        return value
    both = np.empty(len(value), observed_dtype(value.dtype, True))
    both["value"], both["sigma"] = value, sigma
    return both


def block_from_entries(
    unit: Array, index: Array, value: Array, n_units: int, length: int, sigma: Array | None = None
) -> Block:
    """Sort entries by unit and index, drop repeats (which agree by now) and compress."""
    xp = array_namespace(unit, index, value)
    key = xp.astype(unit, xp.int64) * length + xp.astype(index, xp.int64)
    order = xp.argsort(key, stable=True)
    key = gather(key, order)
    if key.shape[0] > 1:
        first = xp.concat([xp.ones((1,), dtype=xp.bool, device=device_of(key)), key[1:] != key[:-1]])
        if not bool(xp.all(first)):
            order, key = order[first], key[first]
    edges = xp.arange(n_units + 1, dtype=xp.int64, device=device_of(key)) * length
    indptr = xp.astype(xp.searchsorted(key, edges), xp.int64)
    sigma = None if sigma is None else gather(sigma, order)
    return Block(indptr, xp.astype(key % length, xp.int32), gather(value, order), length, sigma)


def observation_mask(name: str, mask: Any, Y: Array, shape: tuple[int, int]) -> Array | None:
    """`mask` as a boolean array of `shape` beside `Y`, or None."""
    if mask is None:
        return None
    mask = given_array(name, mask, Y)
    check_same_place(name, mask, "Y", Y)
    xp = array_namespace(Y)
    if tuple(mask.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(mask.shape)}")
    if not xp.isdtype(mask.dtype, "bool"):
        raise TypeError(f"{name} must be boolean, got dtype {mask.dtype}")
    return mask


def taken(Y: Array, chosen: np.ndarray, axis: int) -> Array:
    """Some rows (`axis` 0) or columns of an array, by their numbers."""
    if isinstance(Y, np.ndarray):  # take() would first copy all of a memory map's columns
        return np.asarray(Y[chosen, :] if axis == 0 else Y[:, chosen])
    return array_namespace(Y).take(Y, asarray_on(chosen, Y), axis=axis)


def block_from_dense(
    name: str,
    read: ReadPiece,
    n_units: int,
    length: int,
    place: Callable[[int, int], tuple[int, int]],
    read_sigma: Callable[[int, int], Array] | None = None,
) -> Block:
    """Collect the observed entries of `n_units` vectors that ``read(start, stop)`` gives as (units, length), and
    `read_sigma` likewise their noise; ``place(unit, position)`` is where the user knows an entry."""
    step = max(READ_BYTES // (8 * length), 1)
    counts, index, value, sigma = [], [], [], []
    for start in range(0, max(n_units, 1), step):
        dense, mask = read(start, min(start + step, n_units))
        xp = array_namespace(dense)
        values = float_values(name, dense)
        if mask is None:
            mask = ~xp.isnan(values)
        unit, position = xp.nonzero(mask)
        seen = gather(xp.reshape(values, (-1,)), unit * length + position)
        check_finite(name, seen, _locator(place, start, unit, position))
        counts.append(xp.sum(xp.astype(mask, xp.int64), axis=1))
        index.append(xp.astype(position, xp.int32))
        value.append(seen)
        if read_sigma is not None:
            there = gather(xp.reshape(read_sigma(start, min(start + step, n_units)), (-1,)), unit * length + position)
            sigma.append(positive_sigma(there, seen, _locator(place, start, unit, position)))
    xp = array_namespace(value[0])
    ends = xp.cumulative_sum(xp.concat(counts))
    indptr = xp.concat([xp.zeros((1,), dtype=ends.dtype, device=device_of(ends)), ends])
    return Block(indptr, xp.concat(index), xp.concat(value), length, xp.concat(sigma) if sigma else None)


def _locator(place: Callable[[int, int], Any], start: int, unit: Array, position: Array) -> Callable[[int], Any]:
    return lambda k: place(start + int(unit[k]), int(position[k]))


def triplet_index(name: str, index: Any, size: int, values: Array) -> Array:
    """Row or column numbers of observations as an int64 vector beside `values`, in range."""
    index = given_array(name, index, values)
    check_same_place(name, index, "values", values)
    xp = array_namespace(values)
    if index.ndim != 1 or index.shape != values.shape:
        raise ValueError(
            f"{name} and values must be vectors of one length, got {tuple(index.shape)} and {tuple(values.shape)}"
        )
    if index.shape[0] and not xp.isdtype(index.dtype, "integral"):
        labelled = getattr(index.dtype, "kind", "f") in "OUSM"
        labels = (
            "; numpy.unique(labels, return_inverse=True) numbers labels, and complete(frame) takes them" if labelled else ""
        )
        raise TypeError(f"{name} must hold integers, got dtype {index.dtype}{labels}")
    low, high = (int(xp.min(index)), int(xp.max(index))) if index.shape[0] else (0, 0)
    if low < 0 or high >= size:
        raise ValueError(f"{name} must lie in 0..{size - 1}, got {low if low < 0 else high}")
    return xp.astype(index, xp.int64)


def check_both_observed(n_rows: int, n_cols: int) -> None:
    """Refuse samples without an observation in R, or in C."""
    for name, n_obs in (("rows (R)", n_rows), ("columns (C)", n_cols)):
        if n_obs == 0:
            raise NothingObservedError(f"no entry of the chosen {name} was observed: both blocks need observations")


def new_block(
    name: str, Y: Any, mask: Any, length: int, what: str, like: Array, units_last: bool, sigma: Any = None
) -> Block:
    """New units as a block, with a position for each of `what`; `units_last` if they are the columns of `Y`."""
    xp = array_namespace(like)
    if hasattr(Y, "tocoo"):
        if sigma is not None:
            raise ArgumentTypeError("sigma", f"must be None where {name} is a sparse matrix")
        if mask is not None:
            raise TypeError(f"mask must be None where {name} is a sparse matrix: its stored entries are the observations")
        coo = Y.tocoo()
        check_same_place(name, coo.data, "the recovered matrix", like)
        n_units, found = Y.shape[::-1] if units_last else Y.shape
        _check_length(name, found, length, what, units_last)
        value = asarray_on(float_values(name, coo.data), like, like.dtype)
        check_finite(name, value, lambda k: (int(coo.row[k]), int(coo.col[k])))
        row, col = (asarray_on(x, like, xp.int64) for x in (coo.row, coo.col))
        value = resolve_duplicates(row * Y.shape[1] + col, value, Y.shape[1], "error")
        unit, index = (col, row) if units_last else (row, col)
        return block_from_entries(unit, index, value, n_units, length)
    Y = given_array(name, Y, like)
    check_same_place(name, Y, "the recovered matrix", like)
    if Y.ndim != 2:
        raise ValueError(f"{name} must be two-dimensional, got shape {tuple(Y.shape)}")
    mask = observation_mask("mask", mask, Y, tuple(Y.shape))  # type: ignore[arg-type]
    if sigma is not None:
        sigma = sigma_matrix(sigma, Y, tuple(Y.shape), name)  # type: ignore[arg-type]
        sigma = sigma.T if units_last else sigma
    if units_last:
        Y, mask = Y.T, None if mask is None else mask.T
    _check_length(name, Y.shape[1], length, what, units_last)
    Y = xp.astype(float_values(name, Y), like.dtype)

    def read(start: int, stop: int) -> tuple[Array, Array | None]:
        return Y[start:stop, :], None if mask is None else mask[start:stop, :]

    def read_sigma(start: int, stop: int) -> Array:
        return sigma[start:stop, :]

    return block_from_dense(
        name,
        read,
        Y.shape[0],
        length,
        lambda unit, k: (k, unit) if units_last else (unit, k),
        None if sigma is None else read_sigma,
    )


def _check_length(name: str, found: int, length: int, what: str, units_last: bool) -> None:
    if found != length:
        side = "rows" if units_last else "columns"
        raise ValueError(f"{name} must have {length} {side}, one for each of {what}, got {found}")
