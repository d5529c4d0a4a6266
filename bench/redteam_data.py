"""Families of the red team (see `bench.redteam_problems`): rows that are alike, outliers, sensors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .redteam_problems import (
    FAMILIES,
    Problem,
    chosen,
    cross,
    family,
    gaussian,
    local,
    one_of,
    outside,
    seen,
    size,
    spoilt,
    variant,
)

# ---------------------------------------------------------------- rows and columns that are alike


@family("nine rows in ten equal")
def _(rng: np.random.Generator) -> Problem:
    X = gaussian(rng, size(rng), 3)
    alike = rng.random(X.shape[0]) < one_of(rng, 0.85, 0.9, 0.95)
    X[alike] = X[np.flatnonzero(alike)[0]]
    return cross(rng, X, seen(rng, spoilt(rng, X, one_of(rng, 0, 0.1)), 0.4), 3, one_of(rng, 0.5, 1.0))


@family("nine columns in ten multiples of one")
def _(rng: np.random.Generator) -> Problem:
    X = gaussian(rng, size(rng), 3)
    alike = np.flatnonzero(rng.random(X.shape[1]) < 0.9)
    X[:, alike] = X[:, alike[:1]] * rng.uniform(0.5, 2, len(alike))
    return cross(rng, X, seen(rng, spoilt(rng, X, one_of(rng, 0, 0.1)), 0.4), 3, one_of(rng, 0.5, 1.0))


@family("duplicated rows")
def _(rng: np.random.Generator) -> Problem:
    """Each row four times, with the same outliers."""
    n1, n2 = size(rng)
    base = gaussian(rng, (n1 // 4, n2), 4)
    X, Y = (np.repeat(M, 4, axis=0) for M in (base, spoilt(rng, base, 0.2)))
    return cross(rng, X, seen(rng, Y, 0.4), 4)


@family("duplicated rows, seen alike")
def _(rng: np.random.Generator) -> Problem:
    """Each row four times, seen in the same places: the copies prove nothing."""
    n1, n2 = size(rng, 200, 300)
    base = gaussian(rng, (n1 // 4, n2), 3)
    Y = seen(rng, spoilt(rng, base, one_of(rng, 0, 0.1)), one_of(rng, 0.08, 0.12, 0.2, 0.3))
    return cross(rng, np.repeat(base, 4, axis=0), np.repeat(Y, 4, axis=0), 3, 1.0)


@family("a component in few rows")
def _(rng: np.random.Generator) -> Problem:
    """A component that lives in so few rows that a column sees one or two of them, some wrong."""
    n1, n2 = size(rng, 160, 300)
    left = rng.standard_normal((n1, 3))
    left[rng.random(n1) > one_of(rng, 0.02, 0.04, 0.08), 2] = 0
    X = left @ rng.standard_normal((3, n2))
    return cross(rng, X, seen(rng, spoilt(rng, X, one_of(rng, 0, 0.1)), 0.5), 3, one_of(rng, 0.5, 1.0))


@family("a component in few columns")
def _(rng: np.random.Generator) -> Problem:
    made = FAMILIES["a component in few rows"](rng)
    return replace(made, X=made.X.T, Y=made.Y.T, rows=made.cols, cols=made.rows)


@family("blocks on the diagonal")
def _(rng: np.random.Generator) -> Problem:
    """Zero between the blocks, which each have their own component."""
    n1, n2 = size(rng)
    k = int(rng.integers(3, 7))
    at = [np.sort(rng.integers(0, k, n)) for n in (n1, n2)]
    X = np.where(at[0][:, None] == at[1], np.outer(rng.standard_normal(n1), rng.standard_normal(n2)), 0)
    return cross(rng, X, seen(rng, spoilt(rng, X, one_of(rng, 0, 0.1)), 0.5), k)


@family("chosen rows from one cluster")
def _(rng: np.random.Generator) -> Problem:
    """The chosen rows do not have one of the components, or hardly."""
    n1, n2 = size(rng, 160, 300)
    left = rng.standard_normal((n1, 3))
    rows = chosen(rng, n1, 0.4)
    left[rows, 2] *= one_of(rng, 0.0, 1e-4, 0.02)
    X = left @ rng.standard_normal((3, n2))
    Y = spoilt(rng, X, one_of(rng, 0, 0.1)) + one_of(rng, 0, 0, 0.05) * rng.standard_normal(X.shape)
    return cross(rng, X, seen(rng, Y, 0.5), one_of(rng, 2, 3), rows=rows)


@family("chosen rows and columns from one cluster")
def _(rng: np.random.Generator) -> Problem:
    """A component that only the rows outside of I and the columns outside of J have, which never meet: nobody can know."""
    n1, n2 = size(rng, 160, 300)
    left, right = rng.standard_normal((n1, 3)), rng.standard_normal((n2, 3))
    rows, cols = chosen(rng, n1, 0.5), chosen(rng, n2, 0.5)
    left[rows, 2] *= (weak := one_of(rng, 1e-3, 0.02, 0.1))
    right[cols, 2] *= weak
    X = left @ right.T
    return cross(rng, X, seen(rng, spoilt(rng, X, 0.1), 0.6), 3, rows=rows, cols=cols)


# ---------------------------------------------------------------- structure among what looks like outliers


@family("local component outside of I, a quarter of the columns")
def _(rng: np.random.Generator) -> Problem:
    shape = size(rng, 160, 300)
    rows = chosen(rng, shape[0], 0.5)
    X = gaussian(rng, shape, 3) + local(rng, outside(shape[0], rows), chosen(rng, shape[1], 0.25), shape)
    return cross(rng, X, seen(rng, spoilt(rng, X, one_of(rng, 0, 0.1)), 0.6), 3, rows=rows)


@family("local component outside of I, a tenth of the columns")
def _(rng: np.random.Generator) -> Problem:
    """A third of the rows outside of I have it, in columns of J or not."""
    shape = size(rng, 160, 300)
    rows = chosen(rng, shape[0], 0.5)
    some = rng.permutation(outside(shape[0], rows))[: shape[0] // 6]
    X = gaussian(rng, shape, 3) + local(rng, some, chosen(rng, shape[1], 0.1), shape)
    return cross(rng, X, seen(rng, spoilt(rng, X, one_of(rng, 0, 0.1)), 0.6), 3, rows=rows)


@family("local component outside of J")
def _(rng: np.random.Generator) -> Problem:
    made = FAMILIES["local component outside of I, a quarter of the columns"](rng)
    return replace(made, X=made.X.T, Y=made.Y.T, rows=made.cols, cols=made.rows)


@family("local component in the core")
def _(rng: np.random.Generator) -> Problem:
    shape = size(rng, 160, 300)
    some = [chosen(rng, n, one_of(rng, 0.15, 0.3)) for n in shape]
    X = gaussian(rng, shape, 3) + local(rng, some[0], some[1], shape)
    return cross(rng, X, seen(rng, spoilt(rng, X, one_of(rng, 0, 0.1)), 0.6), 3, one_of(rng, 0.5, 1.0))


@family("local component, noise")
def _(rng: np.random.Generator) -> Problem:
    shape = size(rng, 160, 300)
    rows = chosen(rng, shape[0], 0.5)
    X = gaussian(rng, shape, 3) + local(rng, outside(shape[0], rows), chosen(rng, shape[1], 0.25), shape)
    Y = spoilt(rng, X, 0.05) + one_of(rng, 0.02, 0.1) * rng.standard_normal(shape)
    return cross(rng, X, seen(rng, Y, 0.6), one_of(rng, "auto", 3), rows=rows)


@family("rank too small by a weak component")
def _(rng: np.random.Generator) -> Problem:
    shape = size(rng, 160, 300)
    X = gaussian(rng, shape, 3) + one_of(rng, 0.02, 0.05, 0.2) * gaussian(rng, shape, 1)
    return cross(rng, X, seen(rng, spoilt(rng, X, one_of(rng, 0, 0.1)), 0.5), 3)


@family("half of a row from another row")
def _(rng: np.random.Generator) -> Problem:
    """A tenth of the rows holds another row's values (also of low rank) in up to 60 % of the columns."""
    X = gaussian(rng, size(rng), 3)
    Y, other, n2 = X.copy(), X.copy(), X.shape[1]
    for i in chosen(rng, X.shape[0], 0.1):
        at = rng.random(n2) < one_of(rng, 0.4, 0.5, 0.6)
        other[i] = X[rng.integers(X.shape[0])]
        Y[i, at] = other[i, at]
    return cross(rng, X, seen(rng, Y, 0.5), 3, one_of(rng, 0.5, 1.0), also=other)


@family("outliers of low rank")
def _(rng: np.random.Generator) -> Problem:
    """Outliers that agree on another matrix of low rank."""
    X = gaussian(rng, size(rng), 3)
    at = rng.random(X.shape) < one_of(rng, 0.1, 0.2, 0.3, 0.4)
    return cross(rng, X, seen(rng, np.where(at, 3 * gaussian(rng, X.shape, int(rng.integers(1, 4))), X), 0.6), 3)


@family("most entries from another matrix")
def _(rng: np.random.Generator) -> Problem:
    """Two matrices of low rank, mixed half and half: either is as true, but not a mixture."""
    X = gaussian(rng, size(rng), 2)
    other = gaussian(rng, X.shape, 2)
    at = rng.random(X.shape) < rng.uniform(0.45, 0.6)
    return cross(rng, X, seen(rng, np.where(at, other, X), 0.7), 2, instead=(other,))


@family("a block shifted as a whole")
def _(rng: np.random.Generator) -> Problem:
    X = gaussian(rng, size(rng, 160, 300), 3)
    Y = X.copy()
    Y[np.ix_(*(chosen(rng, n, 0.3) for n in X.shape))] += one_of(rng, 3.0, 10.0)
    return cross(rng, X, seen(rng, Y, 0.6), 3)


@family("rows of garbage")
def _(rng: np.random.Generator) -> Problem:
    """Some rows are wrong everywhere: nobody can know what they were, but the others can be known."""
    X = gaussian(rng, size(rng), 3)
    Y = spoilt(rng, X, 0.05)
    at = chosen(rng, X.shape[0], one_of(rng, 0.02, 0.1, 0.25))
    Y[at] = rng.uniform(-3, 3, (len(at), X.shape[1]))
    return cross(rng, X, seen(rng, Y, 0.5), 3)


@family("rows with more outliers than others")
def _(rng: np.random.Generator) -> Problem:
    X = gaussian(rng, size(rng), 3)
    share = np.where(rng.random(X.shape[0]) < 0.2, 0.5, 0.05)[:, None]
    at = rng.random(X.shape) < share
    return cross(rng, X, seen(rng, np.where(at, rng.uniform(-8, 8, X.shape), X), 0.6), 3)


@family("chosen columns worse than others")
def _(rng: np.random.Generator) -> Problem:
    X = gaussian(rng, size(rng), 3)
    made = cross(rng, X, X, 3)
    Y = spoilt(rng, X, 0.05)
    Y[:, made.cols] = spoilt(rng, X, one_of(rng, 0.3, 0.4, 0.5))[:, made.cols]
    return replace(made, Y=seen(rng, Y, 0.6))


@family("small outliers")
def _(rng: np.random.Generator) -> Problem:
    """Outliers of a few percent of the entries; there is no noise."""
    X = gaussian(rng, size(rng), 3)
    at = rng.random(X.shape) < one_of(rng, 0.1, 0.3, 0.5)
    return cross(rng, X, seen(rng, X + at * one_of(rng, 0.01, 0.1) * rng.standard_normal(X.shape), 0.5), 3)


@family("bursts")
def _(rng: np.random.Generator) -> Problem:
    """For a few columns in a row half of the rows go wrong together, by the same value."""
    X = gaussian(rng, size(rng), 3)
    Y = X.copy()
    for start in rng.integers(0, X.shape[1] - 5, 6):
        Y[np.ix_(chosen(rng, X.shape[0], 0.5), np.arange(start, start + 5))] += rng.uniform(2, 10)
    return cross(rng, X, seen(rng, Y, 0.6), 3)


# ---------------------------------------------------------------- sensors


@family("stuck sensors")
def _(rng: np.random.Generator) -> Problem:
    """A fifth of the rows keeps its value from some column on."""
    X = gaussian(rng, size(rng), 3) + 2
    Y, stuck = X.copy(), X.copy()
    for i in chosen(rng, X.shape[0], 0.2):
        start = int(rng.uniform(0.3, 0.9) * X.shape[1])
        Y[i, start:] = stuck[i] = Y[i, start]
    return cross(rng, X, seen(rng, Y, 0.6), 4, one_of(rng, 0.5, 1.0), also=stuck)


@family("drifts")
def _(rng: np.random.Generator) -> Problem:
    """A tenth of the rows drifts from some column on, at one pace."""
    X = gaussian(rng, size(rng), 3)
    j, Y = np.arange(X.shape[1]) / X.shape[1], X.copy()
    for i in chosen(rng, X.shape[0], 0.1):
        Y[i] += 5 * np.clip(j - rng.uniform(0, 0.9), 0, None)
    return cross(rng, X, seen(rng, Y, 0.6), 3, one_of(rng, 0.5, 1.0), also=Y)


@family("drifts, noise")
def _(rng: np.random.Generator) -> Problem:
    """All rows drift, each at its own pace from its own start; the drift is part of what is asked for."""
    X = gaussian(rng, size(rng), 2)
    j = np.arange(X.shape[1]) / X.shape[1]
    X = X + rng.standard_normal((len(X), 1)) * 2 * np.clip(j - rng.uniform(0, 0.9, (len(X), 1)), 0, None)
    return cross(rng, X, seen(rng, spoilt(rng, X, 0.05) + 0.05 * rng.standard_normal(X.shape), 0.5), "auto")


@family("another unit for a while")
def _(rng: np.random.Generator) -> Problem:
    """A third of the rows is a thousand times (or 1.8 times) too large in the last third of the columns."""
    X = gaussian(rng, size(rng), 3) + 1
    Y = X.copy()
    Y[chosen(rng, X.shape[0], 0.3), -X.shape[1] // 3 :] *= one_of(rng, 1000.0, 1.8)
    return cross(rng, X, seen(rng, Y, 0.6), 4, also=Y)


@family("signs turned")
def _(rng: np.random.Generator) -> Problem:
    X = gaussian(rng, size(rng), 3)
    return cross(rng, X, seen(rng, np.where(rng.random(X.shape) < one_of(rng, 0.1, 0.3), -X, X), 0.5), 3)


@family("zeros for what is missing")
def _(rng: np.random.Generator) -> Problem:
    X = gaussian(rng, size(rng), 3)
    return cross(rng, X, seen(rng, np.where(rng.random(X.shape) < one_of(rng, 0.1, 0.3, 0.5), 0, X), 0.7), 3)


@family("-999 for what is missing")
def _(rng: np.random.Generator) -> Problem:
    """In some columns nearly always: these may as well be -999."""
    X = gaussian(rng, size(rng), 3) + 5
    mostly = rng.random(X.shape[1]) < 0.1
    Y = np.where(rng.random(X.shape) < np.where(mostly, 0.8, 0.1), -999, X)
    return cross(rng, X, seen(rng, Y, 0.6), 4, also=np.where(mostly, -999, X))


variant("local component in the core, robust_pca", "local component in the core", solver="robust_pca")
variant("missing not at random, robust_pca", "missing not at random", solver="robust_pca", rank="auto")
variant("nine rows in ten equal, auto", "nine rows in ten equal", rank="auto")
variant("local component outside of I, shards", "local component outside of I, a quarter of the columns", solver="shards")
variant("local component outside of I, paper", "local component outside of I, a quarter of the columns", solver="paper")
variant("chosen rows from one cluster, icurc", "chosen rows from one cluster", solver="icurc")
