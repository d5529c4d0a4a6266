"""Families of the red team (see `bench.redteam_problems`): odd values, matrices that are not of low rank, noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .redteam_problems import Problem, chosen, cross, family, gaussian, local, one_of, seen, size, spoilt, variant

# ---------------------------------------------------------------- values


@family("rounded")
def _(rng: np.random.Generator) -> Problem:
    """True are the values before and after."""
    X = gaussian(rng, size(rng), 3) * 2
    step = one_of(rng, 0.01, 0.1, 1, 2)
    Y = np.round(X / step) * step
    return cross(rng, X, seen(rng, spoilt(rng, Y, 0.05), 0.6), 3, also=Y)


@family("rounded ratings")
def _(rng: np.random.Generator) -> Problem:
    """Rounded and clipped to 1..5; true are the values before and after."""
    X = 3 + 0.8 * gaussian(rng, size(rng), 2)
    Y = np.clip(np.round(X), 1, 5)
    return cross(rng, X, seen(rng, Y, one_of(rng, 0.1, 0.3, 0.6)), one_of(rng, "auto", 3), 1.0, also=Y)


@family("two values")
def _(rng: np.random.Generator) -> Problem:
    """Only signs are seen, and asked for."""
    X = np.sign(gaussian(rng, size(rng), 2))
    return cross(rng, X, seen(rng, X, 0.5), one_of(rng, "auto", 2, 6), 1.0)


@family("clipped")
def _(rng: np.random.Generator) -> Problem:
    X = gaussian(rng, size(rng), 3)
    high = np.quantile(X, one_of(rng, 0.8, 0.9, 0.97))
    return cross(rng, X, seen(rng, np.minimum(X, high), 0.6), 3, also=np.minimum(X, high))


@family("below a limit of detection")
def _(rng: np.random.Generator) -> Problem:
    """Positive values, of which the small ones are given as half the limit."""
    X = rng.gamma(1.0, 1.0, (200, 3)) @ rng.gamma(1.0, 1.0, (3, 180))
    limit = np.quantile(X, one_of(rng, 0.1, 0.3, 0.5))
    return cross(rng, X, seen(rng, np.where(limit > X, limit / 2, X), 0.6), 3)


@family("missing not at random")
def _(rng: np.random.Generator) -> Problem:
    """Large values are missing."""
    X = gaussian(rng, size(rng), 3)
    rate = 0.8 / (1 + np.exp(one_of(rng, 2, 5) * (X - one_of(rng, -0.5, 0, 1))))
    return cross(rng, X, seen(rng, spoilt(rng, X, one_of(rng, 0, 0.05)), rate), 3, one_of(rng, 0.5, 1.0))


@family("missing not at random, noise")
def _(rng: np.random.Generator) -> Problem:
    """What is large with its noise is missing: the noise that is seen has another mean, by a little."""
    X = gaussian(rng, size(rng), 2)
    Y = X + one_of(rng, 0.05, 0.1) * rng.standard_normal(X.shape)
    limit = one_of(rng, 0, 0.5)
    return cross(rng, X, seen(rng, Y, np.where(limit < Y, 0.02, 0.7)), one_of(rng, "auto", 2))


@family("tiny and huge units")
def _(rng: np.random.Generator) -> Problem:
    unit = one_of(rng, 1e-300, 1e-150, 1e-30, 1e30, 1e150, 1e250)
    X = gaussian(rng, size(rng), 3)
    Y = spoilt(rng, X, 0.1) + one_of(rng, 0, 0.05) * rng.standard_normal(X.shape)
    return cross(rng, X * unit, seen(rng, Y * unit, 0.5), 3)


@family("a unit for each row")
def _(rng: np.random.Generator) -> Problem:
    shape = size(rng)
    X = gaussian(rng, shape, 3) * 10 ** (rng.uniform(-1, 1, (shape[0], 1)) * one_of(rng, 1.0, 2.0, 4.0))
    return cross(rng, X, seen(rng, np.where(rng.random(shape) < 0.1, X * rng.uniform(-10, 10, shape), X), 0.6), 3)


@family("float32 far from 0")
def _(rng: np.random.Generator) -> Problem:
    X = gaussian(rng, size(rng), 3) + one_of(rng, 0, 1e2, 1e4, 1e6)
    Y = seen(rng, spoilt(rng, X, 0.05, 2.0), 0.5).astype(np.float32)
    return cross(rng, X, Y, 4)


@family("heavy-tailed factors")
def _(rng: np.random.Generator) -> Problem:
    n1, n2 = size(rng)
    df = one_of(rng, 1.0, 1.5, 2.0)
    X = rng.standard_t(df, (n1, 3)) @ rng.standard_t(df, (3, n2))
    return cross(rng, X, seen(rng, spoilt(rng, X, one_of(rng, 0, 0.1)), 0.6), 3)


@family("widely different singular values")
def _(rng: np.random.Generator) -> Problem:
    n1, n2 = size(rng, 160, 300)
    U, V = (np.linalg.qr(rng.standard_normal((n, 4)))[0] for n in (n1, n2))
    X = (n1 * n2) ** 0.5 * (U * np.logspace(0, -one_of(rng, 1, 2, 3), 4)) @ V.T
    return cross(rng, X, seen(rng, spoilt(rng, X, one_of(rng, 0, 0.1)), 0.6), 4)


@family("rows and columns of zeros")
def _(rng: np.random.Generator) -> Problem:
    X = gaussian(rng, size(rng), 3)
    X[rng.random(X.shape[0]) < one_of(rng, 0.1, 0.5)] = 0
    X[:, rng.random(X.shape[1]) < one_of(rng, 0.1, 0.5)] = 0
    return cross(rng, X, seen(rng, spoilt(rng, X, one_of(rng, 0, 0.1)), 0.5), 3)


@family("a rank too large is asked for")
def _(rng: np.random.Generator) -> Problem:
    X = gaussian(rng, size(rng), 2)
    Y = spoilt(rng, X, one_of(rng, 0, 0.1)) + one_of(rng, 0, 0.05) * rng.standard_normal(X.shape)
    return cross(rng, X, seen(rng, Y, one_of(rng, 0.1, 0.2, 0.5)), one_of(rng, 4, 7), 1.0)


@family("one huge row")
def _(rng: np.random.Generator) -> Problem:
    """Nearly all of the norm is in one row or column."""
    X = gaussian(rng, size(rng), 3)
    if rng.random() < 0.5:
        X[rng.integers(X.shape[0])] *= 1e3
    else:
        X[:, rng.integers(X.shape[1])] *= 1e3
    Y = np.where(rng.random(X.shape) < 0.1, rng.uniform(-8, 8, X.shape), X)
    return cross(rng, X, seen(rng, Y + one_of(rng, 0, 0.05) * rng.standard_normal(X.shape), 0.5), 3)


@family("sparse factors")
def _(rng: np.random.Generator) -> Problem:
    n1, n2 = size(rng, 160, 300)
    left, right = (rng.standard_normal((n, 3)) * (rng.random((n, 3)) < one_of(rng, 0.2, 0.4)) for n in (n1, n2))
    X = left @ right.T
    return cross(rng, X, seen(rng, spoilt(rng, X, one_of(rng, 0, 0.1)), 0.6), 3)


# ---------------------------------------------------------------- matrices that are not of low rank


@family("a function of a matrix of low rank")
def _(rng: np.random.Generator) -> Problem:
    X = one_of(rng, np.tanh, np.exp, np.abs)(gaussian(rng, size(rng), 2))
    return cross(rng, X, seen(rng, spoilt(rng, X, 0.05), 0.6), one_of(rng, "auto", 2, 6))


@family("singular values that decay")
def _(rng: np.random.Generator) -> Problem:
    """A smooth kernel: each component is a few times smaller than the one before."""
    x, y = (np.sort(rng.random(n)) for n in size(rng))
    X = 1 / (0.3 + x[:, None] + y) if rng.random() < 0.5 else np.exp(-4 * (x[:, None] - y) ** 2)
    return cross(rng, X, seen(rng, spoilt(rng, X, one_of(rng, 0, 0.05)), 0.6), one_of(rng, "auto", 3, 6))


@family("pure noise")
def _(rng: np.random.Generator) -> Problem:
    """There is nothing to be found: X is 1e-3 of the noise."""
    X = gaussian(rng, size(rng), 2)
    return cross(rng, X, seen(rng, X + 1e3 * rng.standard_normal(X.shape), 0.6), one_of(rng, "auto", 2))


# ---------------------------------------------------------------- noise


def _noisy(rng: np.random.Generator, noise: np.ndarray, rank: int = 3, wrong: float = 0.05) -> Problem:
    """Noise on a matrix of `rank`, which is given or not."""
    X = gaussian(rng, noise.shape, rank)
    asked = rank if rng.random() < 0.5 else "auto"
    return cross(rng, X, seen(rng, spoilt(rng, X, wrong) + noise, 0.5), asked, one_of(rng, 0.5, 1.0))


@family("noise of 1 to 50 %")
def _(rng: np.random.Generator) -> Problem:
    return _noisy(rng, one_of(rng, 0.01, 0.05, 0.2, 0.5) * rng.standard_normal(size(rng)))


@family("noise with heavy tails")
def _(rng: np.random.Generator) -> Problem:
    return _noisy(rng, 0.1 * rng.standard_t(one_of(rng, 1.0, 1.5, 2.5), size(rng)))


@family("noise on one side")
def _(rng: np.random.Generator) -> Problem:
    """Nobody can know whether its mode, median or mean is to be 0."""
    scale = one_of(rng, 0.02, 0.1)
    made = _noisy(rng, scale * rng.exponential(1.0, size(rng)))
    return replace(made, instead=tuple(made.X + scale * shift for shift in (0.25, 0.5, 0.75, 1.0)))


@family("noise that differs by row and column")
def _(rng: np.random.Generator) -> Problem:
    shape = size(rng)
    scale = 10 ** rng.uniform(-2, 0, (shape[0], 1)) * 10 ** rng.uniform(-0.5, 0.5, (1, shape[1]))
    return _noisy(rng, 0.2 * scale * rng.standard_normal(shape))


@family("noise that follows itself")
def _(rng: np.random.Generator) -> Problem:
    """Each row's noise is an autoregression over the columns: it looks like structure."""
    n1, n2 = size(rng)
    noise, keep = np.empty((n1, n2)), one_of(rng, 0.5, 0.9, 0.98)
    noise[:, 0] = rng.standard_normal(n1)
    for j in range(1, n2):
        noise[:, j] = keep * noise[:, j - 1] + (1 - keep**2) ** 0.5 * rng.standard_normal(n1)
    noise *= one_of(rng, 0.05, 0.2)
    made = _noisy(rng, noise, 2)
    return replace(made, also=made.X + noise)  # what is smooth may as well be wanted


@family("noise in proportion")
def _(rng: np.random.Generator) -> Problem:
    X = gaussian(rng, size(rng), 3)
    Y = spoilt(rng, X * (1 + one_of(rng, 0.02, 0.1, 0.3) * rng.standard_normal(X.shape)), 0.05)
    return cross(rng, X, seen(rng, Y, 0.5), 3)


@family("counts")
def _(rng: np.random.Generator) -> Problem:
    """Numbers of events, which scatter by the square root of what is expected."""
    n1, n2 = size(rng)
    X = one_of(rng, 0.3, 3, 100) * rng.gamma(1.0, 1.0, (n1, 2)) @ rng.gamma(1.0, 1.0, (2, n2))
    return cross(rng, X, seen(rng, rng.poisson(X).astype(float), 0.6), one_of(rng, "auto", 2))


@family("noise outside of the core alone")
def _(rng: np.random.Generator) -> Problem:
    """The core is exact."""
    X = gaussian(rng, size(rng), 3)
    made = cross(rng, X, X, 3)
    noise = one_of(rng, 0.05, 0.3) * rng.standard_normal(X.shape)
    noise[np.ix_(made.rows, made.cols)] = 0
    return replace(made, Y=seen(rng, spoilt(rng, X, 0.05) + noise, 0.5))


@family("noise in some rows alone")
def _(rng: np.random.Generator) -> Problem:
    """A quarter of the rows is noisy, the others are exact."""
    shape = size(rng)
    return _noisy(rng, np.where(rng.random((shape[0], 1)) < 0.25, 0.5, 0.0) * rng.standard_normal(shape))


@family("noise, few observations")
def _(rng: np.random.Generator) -> Problem:
    """Rows and columns with fewer observations than components, many of them."""
    X = gaussian(rng, size(rng), 3)
    rate = np.where(rng.random((len(X), 1)) < 0.5, 0.02, 0.4)
    return cross(rng, X, seen(rng, X + 0.05 * rng.standard_normal(X.shape), rate), 3, 1.0)


@family("offsets and noise")
def _(rng: np.random.Generator) -> Problem:
    n1, n2 = size(rng)
    X = 5 * rng.standard_normal((n1, 1)) + 5 * rng.standard_normal((1, n2)) + gaussian(rng, (n1, n2), 1)
    return cross(rng, X, seen(rng, spoilt(rng, X, 0.1) + 0.3 * rng.standard_normal(X.shape), 0.4), "auto")


# ---------------------------------------------------------------- solvers


@family("ratings")
def _(rng: np.random.Generator) -> Problem:
    """`complete_ratings`; true are the ratings that would be given."""
    X = 3.5 + 0.8 * gaussian(rng, size(rng), 2)
    fresh, Y = (np.clip(np.round(X + 0.7 * rng.standard_normal(X.shape)), 1, 5) for _ in range(2))
    Y = np.where(rng.random(X.shape) < 0.1, rng.integers(1, 6, X.shape), Y)
    return cross(rng, fresh, seen(rng, Y, one_of(rng, 0.05, 0.2)), 5, 1.0, solver="ratings")


@family("new columns with outliers")
def _(rng: np.random.Generator) -> Problem:
    n1, n2 = size(rng)
    both = gaussian(rng, (n1, n2 + 40), 3)
    noise = one_of(rng, 0, 0, 0.05) * rng.standard_normal(both.shape)
    Y = seen(rng, spoilt(rng, both, 0.1) + noise, 0.6)
    rows = chosen(rng, n1, 0.5)
    rate = one_of(rng, 0.1, 0.3, 1.0)
    more = {"new": both[:, n2:], "new_seen": seen(rng, Y[rows][:, n2:], rate), "solver": "transform"}
    return cross(rng, both[:, :n2], Y[:, :n2], 3, rows=rows, **more)


@family("new columns with a component of their own")
def _(rng: np.random.Generator) -> Problem:
    """New columns have a component that the old ones do not have, in rows of I or not."""
    n1, n2 = size(rng)
    both = gaussian(rng, (n1, n2 + 40), 3)
    rows = chosen(rng, n1, 0.5)
    part = chosen(rng, n1, 0.3) if rng.random() < 0.5 else np.arange(n1)
    both[np.ix_(part, np.arange(n2, n2 + 40))] += np.outer(rng.standard_normal(len(part)), rng.standard_normal(40))
    Y = seen(rng, spoilt(rng, both, 0.05), 0.6)
    return cross(rng, both[:, :n2], Y[:, :n2], 3, rows=rows, new=both[:, n2:], new_seen=Y[rows][:, n2:], solver="transform")


@family("whole matrix, ircur")
def _(rng: np.random.Generator) -> Problem:
    """Everything is seen; some with a component in few rows and columns."""
    X = gaussian(rng, size(rng, 200, 300), 3)
    if rng.random() < 0.5:
        X = X + local(rng, *(chosen(rng, n, 0.2) for n in X.shape), X.shape)
    return cross(rng, X, spoilt(rng, X, 0.1), 3, solver="ircur")


variant("noise of 1 to 50 %, shards", "noise of 1 to 50 %", solver="shards")
