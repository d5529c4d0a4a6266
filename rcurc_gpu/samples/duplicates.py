"""Several observations of one entry: one value for all of them, or an error that names them."""

from __future__ import annotations

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, device_of, gather
from ..errors import ArgumentError, DisagreementError, check_choice


def resolve_weighted(key: Array, value: Array, sigma: Array, n_cols: int, duplicates: str) -> tuple[Array, Array]:
    """`resolve_duplicates` of values with noise of known size: the value and its `sigma`.

    A mean is weighted by the precisions, as of observations with independent noise, and has the smaller sigma that follows.
    """
    if duplicates == "median":
        raise ArgumentError("duplicates", "must be 'error' or 'mean' where sigma is given, got 'median'")
    if duplicates == "error":
        value = resolve_duplicates(key, value, n_cols, duplicates)
        try:
            return value, resolve_duplicates(key, sigma, n_cols, duplicates)
        except DisagreementError as error:
            raise ArgumentError(
                "sigma", f"must be the same wherever an entry stands, got {error.seen} for the entry {error.entry}"
            ) from None
    check_choice("duplicates", duplicates, ("error", "mean", "median"))
    xp = array_namespace(key, value)
    order = xp.argsort(key, stable=True)
    key = gather(key, order)
    if key.shape[0] < 2 or not bool(xp.any(key[1:] == key[:-1])):
        return value, sigma
    group, starts, count = _groups(key[1:] == key[:-1], value)
    value, sigma = gather(value, order), gather(sigma, order)
    first, finest = gather(value, starts), gather(sigma, starts)
    total, weights = xp.zeros_like(first), xp.ones_like(first)  # relative to the first of each group
    for k in range(1, int(xp.max(count))):
        there = count > k
        place = xp.where(there, starts + k, starts)
        weight = xp.where(there, (finest / gather(sigma, place)) ** 2, xp.zeros_like(total))
        total, weights = total + weight * (gather(value, place) - first), weights + weight
    back = xp.argsort(order, stable=True)
    means, sigmas = first + total / weights, finest / xp.sqrt(weights)
    return gather(gather(means, group), back), gather(gather(sigmas, group), back)


def resolve_duplicates(key: Array, value: Array, n_cols: int, duplicates: str) -> Array:
    """One value for each distinct `key`, given back at every place where the key stands.

    Parameters
    ----------
    key : int64 array (n,)
        row * n_cols + column.
    value : float array (n,)
    duplicates : {"error", "mean", "median"}
        What to do where values of one key differ.
    """
    check_choice("duplicates", duplicates, ("error", "mean", "median"))
    xp = array_namespace(key, value)
    if key.shape[0] < 2:
        return value
    # Sort by key, and by value within a key, so that equal keys with different values are neighbours.
    by_value = xp.argsort(value, stable=True)
    order = gather(by_value, xp.argsort(gather(key, by_value), stable=True))
    key, sorted_value = gather(key, order), gather(value, order)
    same = key[1:] == key[:-1]
    differ = same & (sorted_value[1:] != sorted_value[:-1])
    if not bool(xp.any(differ)):
        return value
    if duplicates == "error":
        k = int(xp.argmax(xp.astype(differ, xp.int8)))
        i, j = divmod(int(key[k]), n_cols)
        raise DisagreementError((i, j), f"{float(sorted_value[k]):g} and {float(sorted_value[k + 1]):g}")
    return _combine(order, same, sorted_value, duplicates)


def _groups(same: Array, value: Array) -> tuple[Array, Array, Array]:
    """The group of each of some sorted numbers, and where each group begins and how many are in it."""
    xp = array_namespace(value)
    start_flag = xp.concat([xp.ones((1,), dtype=xp.int64, device=device_of(value)), 1 - xp.astype(same, xp.int64)])
    group = xp.cumulative_sum(start_flag) - 1
    starts = xp.nonzero(start_flag)[0]
    stops = xp.concat([starts[1:], asarray_on(np.asarray([value.shape[0]]), value, starts.dtype)])
    return group, starts, stops - starts


def _combine(order: Array, same: Array, value: Array, duplicates: str) -> Array:
    xp = array_namespace(value)
    group, starts, count = _groups(same, value)
    if duplicates == "median":
        combined = 0.5 * (gather(value, starts + (count - 1) // 2) + gather(value, starts + count // 2))
    else:
        combined = gather(value, starts)
        total = xp.zeros_like(combined)
        for k in range(1, int(xp.max(count))):
            there = count > k
            value_k = gather(value, xp.where(there, starts + k, starts))
            total = total + xp.where(there, value_k - combined, xp.zeros_like(total))
        combined = combined + total / xp.astype(count, value.dtype)
    return gather(gather(combined, group), xp.argsort(order, stable=True))
