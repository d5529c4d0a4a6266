"""Families of the red team (see `bench.redteam_problems`) that aim at the judge's own means: few rejected entries, whole
numbers, faults in proportion, noise between rounding and what can be seen, and what is seen by a rule."""

from __future__ import annotations

import numpy as np

from .redteam_problems import Problem, chosen, cross, family, gaussian, one_of, outside, seen, size, spoilt


@family("a component in a handful of columns outside of I")
def _(rng: np.random.Generator) -> Problem:
    """Four to eight columns of J and as many others have it, in some rows outside of I: few entries are rejected."""
    shape = size(rng, 160, 300)
    rows, cols = chosen(rng, shape[0], 0.5), chosen(rng, shape[1], 0.5)
    k = int(rng.integers(4, 9))
    at = np.concatenate([rng.permutation(cols)[:k], rng.permutation(outside(shape[1], cols))[:k]])
    more = np.zeros(shape)
    part = rng.permutation(outside(shape[0], rows))[: int(rng.integers(20, 60))]
    more[np.ix_(part, at)] = 2 * np.outer(rng.standard_normal(len(part)), rng.standard_normal(len(at)))
    X = gaussian(rng, shape, 3) + more
    Y = spoilt(rng, X, one_of(rng, 0, 0, 0.05)) + one_of(rng, 0, 0, 1e-4, 1e-2) * rng.standard_normal(shape)
    return cross(rng, X, seen(rng, Y, 0.6), 3, rows=rows, cols=cols)


@family("a bump on one side outside of I")
def _(rng: np.random.Generator) -> Problem:
    """A local component without negative values, in rows outside of I."""
    shape = size(rng, 160, 300)
    rows = chosen(rng, shape[0], 0.5)
    more = np.zeros(shape)
    part, at = outside(shape[0], rows), chosen(rng, shape[1], one_of(rng, 0.1, 0.25))
    more[np.ix_(part, at)] = 3 * np.outer(rng.gamma(1.0, 1.0, len(part)), rng.gamma(1.0, 1.0, len(at)))
    X = gaussian(rng, shape, 3) + more
    return cross(rng, X, seen(rng, spoilt(rng, X, one_of(rng, 0, 0.1)), 0.6), 3, rows=rows)


@family("two local components outside of J")
def _(rng: np.random.Generator) -> Problem:
    """A local part of rank 2, so that no two columns of it are in proportion."""
    shape = size(rng, 160, 300)
    cols = chosen(rng, shape[1], 0.5)
    more = np.zeros(shape)
    at, part = outside(shape[1], cols), chosen(rng, shape[0], one_of(rng, 0.1, 0.2))
    more[np.ix_(part, at)] = 2 * gaussian(rng, (len(part), len(at)), 2)
    X = gaussian(rng, shape, 3) + more
    return cross(rng, X, seen(rng, spoilt(rng, X, one_of(rng, 0, 0.1)), 0.6), 3, cols=cols)


@family("whole numbers")
def _(rng: np.random.Generator) -> Problem:
    """Factors of -3 to 3, outliers of whole numbers: residuals agree by chance."""
    n1, n2 = size(rng)
    X = (rng.integers(-3, 4, (n1, 3)) @ rng.integers(-3, 4, (3, n2))).astype(float)
    Y = np.where(rng.random(X.shape) < one_of(rng, 0.05, 0.1, 0.2), rng.integers(-15, 16, X.shape), X)
    return cross(rng, X, seen(rng, Y, 0.6), one_of(rng, 3, "auto"), one_of(rng, 0.5, 1.0))


@family("rank 1, faults in proportion")
def _(rng: np.random.Generator) -> Problem:
    """Zeros, turned signs and tenfold values at random places: residuals are of rank 1 as the matrix is."""
    X = gaussian(rng, size(rng), 1)
    fault = one_of(rng, 0.0, -1.0, 10.0)
    return cross(rng, X, seen(rng, np.where(rng.random(X.shape) < one_of(rng, 0.05, 0.2), fault * X, X), 0.6), 1)


@family("a change of regime")
def _(rng: np.random.Generator) -> Problem:
    """From some column on rows have other coefficients; J is chosen before that, or everywhere."""
    shape = size(rng, 160, 300)
    start = int(shape[1] * one_of(rng, 0.5, 0.8))
    X = np.concatenate([gaussian(rng, (shape[0], n), 2) for n in (start, shape[1] - start)], axis=1)
    cols = chosen(rng, one_of(rng, start, shape[1]), 0.5)
    return cross(rng, X, seen(rng, spoilt(rng, X, one_of(rng, 0, 0.1)), 0.6), one_of(rng, 2, 4, "auto"), cols=cols)


@family("seen where a component says so")
def _(rng: np.random.Generator) -> Problem:
    """Rows with much of the first component are seen in columns with much of it, and hardly elsewhere."""
    n1, n2 = size(rng, 160, 300)
    left, right = rng.standard_normal((n1, 3)), rng.standard_normal((n2, 3))
    often = (left[:, :1] > 0) == (right[:, 0] > 0)
    rate = np.where(often, 0.6, one_of(rng, 0.0, 0.03, 0.1, 0.2))
    X = left @ right.T
    return cross(rng, X, seen(rng, spoilt(rng, X, one_of(rng, 0, 0.1)), rate), 3, one_of(rng, 0.6, 1.0))


@family("components nearly alike")
def _(rng: np.random.Generator) -> Problem:
    """Two components whose columns differ by little, and noise that is smaller still, or not."""
    n1, n2 = size(rng, 160, 300)
    right = rng.standard_normal((3, n2))
    right[2] = right[1] + one_of(rng, 1e-3, 1e-2, 0.1) * right[2]
    X = rng.standard_normal((n1, 3)) @ right
    noise = one_of(rng, 0, 1e-6, 1e-4, 1e-2)
    return cross(rng, X, seen(rng, spoilt(rng, X, 0.1) + noise * rng.standard_normal(X.shape), 0.6), 3)


@family("outliers of all sizes")
def _(rng: np.random.Generator) -> Problem:
    """From rounding to ten times the entries, alike in logarithms: there is no gap below which all is right."""
    X = gaussian(rng, size(rng), 3)
    at = rng.random(X.shape) < one_of(rng, 0.1, 0.3, 0.5)
    wrong = 10 ** rng.uniform(-10, 1, X.shape) * rng.choice([-1, 1], X.shape)
    return cross(rng, X, seen(rng, X + at * wrong, 0.5), 3)


@family("noise of a millionth to a hundredth")
def _(rng: np.random.Generator) -> Problem:
    """Between what is rounding and what is noise; some with a component of its size."""
    shape = size(rng)
    scale = 10 ** rng.uniform(-6, -2)
    X = gaussian(rng, shape, 3) + one_of(rng, 0, 0, 3.0) * scale * gaussian(rng, shape, 1)
    Y = spoilt(rng, X, one_of(rng, 0, 0.1, 0.3)) + scale * rng.standard_normal(shape)
    return cross(rng, X, seen(rng, Y, one_of(rng, 0.2, 0.5)), one_of(rng, 3, "auto"), one_of(rng, 0.6, 1.0))


@family("rectified")
def _(rng: np.random.Generator) -> Problem:
    """Negative values are seen as 0; true are both."""
    X = gaussian(rng, size(rng), one_of(rng, 1, 3)) + one_of(rng, 0.0, 0.5, 1.0)
    Y = np.maximum(X, 0)
    return cross(rng, X, seen(rng, spoilt(rng, Y, one_of(rng, 0, 0.05)), 0.6), 4, also=Y)


@family("a long table of few columns")
def _(rng: np.random.Generator) -> Problem:
    """Half of it is missing: many rows have hardly more right observations than unknowns, and what they reject is chance."""
    rank = int(rng.integers(1, 5))
    X = gaussian(rng, (int(rng.integers(300, 1500)), int(rng.integers(15, 30))), rank)
    Y = spoilt(rng, X, one_of(rng, 0.05, 0.1, 0.2)) + one_of(rng, 0.01, 0.05, 0.2) * rng.standard_normal(X.shape)
    Y = seen(rng, Y, one_of(rng, 0.5, 0.7))
    turned = bool(rng.integers(2))
    X, Y = (X.T, Y.T) if turned else (X, Y)
    return Problem(X, Y, np.arange(len(X)), np.arange(X.shape[1]), one_of(rng, rank, "auto"), "robust_pca")
