"""The tasks of `bench.real` on matrices that nothing was tuned to: made ones that look real, and tables of scikit-learn.

    python -m bench.realistic [NAME ...] [--only TASK] [--seeds 0,1,2,3,4] [--ranks]

name      what it is
field     400 days x 60 stations: a smooth field that moves, seasons, stations of unequal noise, rounded to 0.1
counts    Poisson counts, 300 x 80, of a low-rank logarithm: the noise grows with the value
spectra   60 samples x 180 wavelengths of three substances; four samples have a fourth, and the noise is multiplicative
tastes    300 people x 120 things, marks from 1 to 5, 40 % given
digits, diabetes, wine, cancer    data of scikit-learn, each feature with mean 0 and variance 1
"""

from __future__ import annotations

from collections.abc import Callable

import click
import numpy as np

from .real import options, run


def _field(rng: np.random.Generator) -> np.ndarray:
    days, stations = np.arange(400), rng.uniform(0, 10, (60, 2))
    places = rng.uniform(0, 10, (12, 2))
    bumps = np.exp(-0.5 * np.sum((stations[:, None] - places) ** 2, axis=2) / 9)
    steps = rng.standard_normal((len(days), 12))
    for day in days[1:]:
        steps[day] += 0.9 * steps[day - 1]
    season = 8 * np.sin(2 * np.pi * days / 365)[:, None] * rng.uniform(0.7, 1.3, 60)
    height = rng.normal(0, 4, 60)
    noise = rng.uniform(0.2, 2.0, 60) * rng.standard_normal((400, 60))
    return np.round(12 + season + height + 2 * steps @ bumps.T / 3 + noise, 1)


def _counts(rng: np.random.Generator) -> np.ndarray:
    log = 2 + 0.7 * rng.standard_normal((300, 1)) + 0.7 * rng.standard_normal(80)
    log = log + 0.35 * rng.standard_normal((300, 3)) @ rng.standard_normal((3, 80))
    return rng.poisson(np.exp(np.minimum(log, 6.0))).astype(np.float64)


def _spectra(rng: np.random.Generator) -> np.ndarray:
    at = np.linspace(0, 1, 180)
    peaks = np.exp(-0.5 * ((at - rng.uniform(0, 1, (4, 5, 1))) / rng.uniform(0.01, 0.08, (4, 5, 1))) ** 2)
    pure = np.sum(rng.uniform(0.2, 1, (4, 5, 1)) * peaks, axis=1)
    share = rng.dirichlet([4, 4, 4], 60)
    odd = np.zeros((60, 1))
    odd[rng.choice(60, 4, replace=False)] = rng.uniform(0.5, 1.5, (4, 1))
    clean = share @ pure[:3] + odd * pure[3] + 0.05 * rng.standard_normal((60, 1)) + 0.1
    return clean * (1 + 0.01 * rng.standard_normal(clean.shape)) + 0.002 * rng.standard_normal(clean.shape)


def _tastes(rng: np.random.Generator) -> np.ndarray:
    liking = 3.4 + 0.5 * rng.standard_normal((300, 1)) + 0.6 * rng.standard_normal(120)
    liking = liking + 0.4 * rng.standard_normal((300, 3)) @ rng.standard_normal((3, 120))
    marks = np.clip(np.round(liking + 0.7 * rng.standard_normal(liking.shape)), 1, 5)
    return np.where(rng.random(marks.shape) < 0.4, marks, np.nan)


def _table(name: str, most: int = 600) -> Callable[[np.random.Generator], np.ndarray]:
    def load(rng: np.random.Generator) -> np.ndarray:
        from sklearn import datasets

        table = np.asarray(getattr(datasets, f"load_{name}")().data, dtype=np.float64)[:most]
        table = table[:, table.std(axis=0) > 0]
        return (table - table.mean(axis=0)) / table.std(axis=0)

    return load


MATRICES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "field": _field,
    "counts": _counts,
    "spectra": _spectra,
    "tastes": _tastes,
    "digits": _table("digits"),
    "diabetes": _table("diabetes"),
    "wine": _table("wine"),
    "cancer": _table("breast_cancer"),
}


def made(name: str, seed: int = 0) -> np.ndarray:
    """A matrix by its name."""
    return MATRICES[name](np.random.default_rng(seed))


@click.command()
@options
def main(names: tuple[str, ...], only: tuple[str, ...], seeds: list[int | None], ranks: bool) -> None:
    """The tasks of bench.real on matrices that nothing was tuned to."""
    unknown = set(names) - set(MATRICES)
    if unknown:
        raise click.ClickException(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(MATRICES)}")
    run({name: made(name) for name in names or MATRICES}, only, seeds, ranks)


if __name__ == "__main__":
    main()
