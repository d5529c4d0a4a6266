"""Errors of so many per cent of each value: is that found, and are intervals right for small and for large values?

    python -m bench.growing [--seeds 5] [--first 0]

Matrices of 200 x 120 and rank 3, 40 % of them seen and a tenth of that wrong, with an error of 2 % or 10 % of each value and
a small one everywhere, or with one error for all. `robust_pca` with default options; entries that were not seen are scored.
A line for each kind: how often growing noise was found, the error over that of the same solve told the size of each error
(`sigma=`), and of all seeds together the share of new observations in 95 % intervals, by fifths of their size.
"""

from __future__ import annotations

import warnings

import click
import numpy as np

import rcurc_gpu as rg

KINDS = (("signed", 0.02), ("signed", 0.1), ("positive", 0.02), ("positive", 0.1), ("alike", 0.05))
SHAPE, RANK, RATE, WRONG, FAR = (200, 120), 3, 0.4, 0.1, 3
EVERYWHERE = 0.2  # error that is the same everywhere, over that of an entry of typical size
FIFTHS = 5


def growing(kind: str, share: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Errors of a share of each value, or, "alike", of a typical one: the truth, what is given, and sizes of errors."""
    rng = np.random.default_rng(seed)
    left, right = rng.standard_normal((SHAPE[0], RANK)), rng.standard_normal((RANK, SHAPE[1]))
    X = np.exp(left) @ np.exp(right) if kind == "positive" else left @ right
    size = np.mean(X**2) ** 0.5
    sigma = np.full(SHAPE, share * size) if kind == "alike" else np.hypot(EVERYWHERE * share * size, share * X)
    Y = X + sigma * rng.standard_normal(SHAPE)
    wrong = rng.random(SHAPE) < WRONG
    Y[wrong] += rng.uniform(-FAR, FAR, wrong.sum()) * X.std()
    return X, np.where(rng.random(SHAPE) < RATE, Y, np.nan), sigma


def told(Y: np.ndarray, sigma: np.ndarray) -> rg.Result:
    """The solve that knows how large each error is."""
    i, j = np.nonzero(~np.isnan(Y))
    return rg.rcurc(rg.CrossSamples.from_triplets(i, j, Y[i, j], SHAPE, *map(np.arange, SHAPE), sigma=sigma[i, j]))


def covered(result: rg.Result, X: np.ndarray, sigma: np.ndarray, places: np.ndarray, seed: int) -> np.ndarray:
    """Which new observations at some places (2, n) are in their 95 % intervals, sorted by the size of the entry."""
    i, j = places[:, np.argsort(np.abs(X[tuple(places)]))]
    fresh = X[i, j] + sigma[i, j] * np.random.default_rng(seed).standard_normal(len(i))
    lower, upper = result.interval(i, j)
    return (lower <= fresh) & (fresh <= upper)


@click.command()
@click.option("--seeds", default=5, show_default=True)
@click.option("--first", default=0, show_default=True, help="The first seed.")
def main(seeds: int, first: int) -> None:
    """Noise that grows with the value, and noise that does not."""
    warnings.simplefilter("ignore", rg.ConvergenceWarning)
    click.echo(f"{'':16s}{'found':>8s}{'error':>9s}{'over told, median and most':>28s}   covered, from small to large")
    for kind, share in KINDS:
        found, errors, ratios, inside = 0, [], [], []
        for seed in range(first, first + seeds):
            X, Y, sigma = growing(kind, share, seed)
            places = np.asarray(np.nonzero(np.isnan(Y)))
            i, j = places
            result = rg.robust_pca(Y)
            off, best = (np.linalg.norm(r.cur.entries(i, j) - X[i, j]) for r in (result, told(Y, sigma)))
            known = result.cur.uncertainty
            found += known is not None and known.noise.growth > 0
            errors.append(off / np.linalg.norm(X[i, j]))
            ratios.append(off / best)
            inside.append([np.mean(part) for part in np.array_split(covered(result, X, sigma, places, seed), FIFTHS)])
        shares = " ".join(f"{x:.3f}" for x in np.mean(inside, axis=0))
        over = f"{np.median(ratios):.3f} {max(ratios):.3f}"
        click.echo(f"{kind:10s}{share:5.0%} {found:3d} of {seeds}{np.median(errors):9.4f}{over:>28s}   {shares}")


if __name__ == "__main__":
    main()
