"""What the noise model says: chosen rows and columns, priors of all others, noise, and how it was confirmed."""

from __future__ import annotations

import math
from dataclasses import asdict, astuple, dataclass, fields, replace
from typing import Any

import numpy as np

from ..backends.arrays import diagonal, triangle, unpacking
from ..backends.plain.posterior import Noise, packed_size
from .precision import SigmaScale


@dataclass(frozen=True, eq=False)
class Group:
    """Rows, or columns.

    Attributes
    ----------
    mean : float array (n, K)
        Coefficients of the components, and the offset.
    covariance : float array (n, P)
        Packed: the lower triangle, row by row.
    scale : float array (n,)
        Of their squared noise; 1 is typical.
    """

    mean: np.ndarray
    covariance: np.ndarray
    scale: np.ndarray

    @classmethod
    def at(cls, mean: np.ndarray) -> Group:
        """A guess that is sure of itself."""
        n, k = mean.shape
        return cls(mean, np.zeros((n, packed_size(k))), np.ones(n))

    @classmethod
    def typical(cls, precision: np.ndarray, n: int) -> Group:
        """What a prior of this precision (K,) says of `n` units of which nothing is known."""
        found = cls.at(np.zeros((n, len(precision))))
        found.covariance[:, diagonal(len(precision))] = 1 / precision
        return found

    def __len__(self) -> int:
        return len(self.mean)

    def __getitem__(self, units: Any) -> Group:
        return Group(self.mean[units], self.covariance[units], self.scale[units])

    def put(self, units: np.ndarray, new: Group) -> Group:
        """The same, with `new` ones for some units."""
        arrays = []
        for f in fields(self):
            values = getattr(self, f.name).copy()
            values[units] = getattr(new, f.name)
            arrays.append(values)
        return Group(*arrays)

    def joined(self, other: Group) -> Group:
        """These and, after them, the `other` ones."""
        return Group(*(np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)))

    def spread(self) -> np.ndarray:
        """Mean squares of the coefficients, doubt included (K,): the prior variances that fit them best."""
        return np.mean(self.squares(), axis=0)

    def squares(self) -> np.ndarray:
        """Expected squares of the coefficients (n, K)."""
        return self.mean**2 + self.covariance[:, diagonal(self.mean.shape[1])]

    def rescaled(self, factor: np.ndarray) -> Group:
        """Coefficients times `factor` (K,)."""
        q, p = triangle(self.mean.shape[1])
        return replace(self, mean=self.mean * factor, covariance=self.covariance * (factor[q] * factor[p]))

    def turned(self, matrix: np.ndarray) -> Group:
        """Coefficients z times a matrix (K, K): `matrix` z."""
        k = self.mean.shape[1]
        q, p = triangle(k)
        covariance = np.empty_like(self.covariance)
        place = unpacking(k)
        some = max((1 << 16) // (k * k), 1)  # half a MB at a time stays in the cache: half of the time with 32 coefficients
        for low in range(0, len(self), some):
            part = slice(low, low + some)
            full = self.covariance[part][:, place]
            covariance[part] = (matrix @ full @ matrix.T)[:, q, p]
        return replace(self, mean=self.mean @ matrix.T, covariance=covariance)

    def second_moment(self) -> np.ndarray:
        """Mean products of the coefficients, doubt included (K, K)."""
        return self.mean.T @ self.mean / len(self.mean) + self.covariance.mean(axis=0)[unpacking(self.mean.shape[1])]

    def widened(self, new: np.ndarray, offsets: bool) -> Group:
        """The same with `new` coefficients (n, c) after those of the components, sure of themselves."""
        k, c = self.mean.shape[1] - offsets, new.shape[1]
        mean = np.concatenate([self.mean[:, :k], new, self.mean[:, k:]], axis=1)
        old = np.concatenate([np.arange(k), np.arange(k + c, k + c + offsets)])  # where the coefficients are now
        q, p = triangle(mean.shape[1])
        covariance = np.zeros((len(mean), len(q)))
        covariance[:, np.isin(q, old) & np.isin(p, old)] = self.covariance
        return replace(self, mean=mean, covariance=covariance)

    def taking(self, kept: np.ndarray) -> Group:
        """The coefficients `kept` (their numbers) alone."""
        q, p = triangle(self.mean.shape[1])
        inside = np.isin(q, kept) & np.isin(p, kept)
        return replace(self, mean=self.mean[:, kept], covariance=self.covariance[:, inside])


def balancing(rows: np.ndarray, cols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Matrices R and R^-T that make both second moments, R rows R^T and R^-T cols R^-1, the same diagonal one."""
    half = np.linalg.cholesky(rows)
    values, q = np.linalg.eigh(half.T @ cols @ half)
    root = np.maximum(values[::-1], np.finfo(float).tiny) ** 0.25
    back = (half @ q[:, ::-1]).T / root[:, None]
    return np.linalg.inv(back).T, back


@dataclass(frozen=True)
class Confirmation:
    """What held-out entries say of a fit.

    Attributes
    ----------
    n_held : int
        How many there were.
    factor : float
        By which predicted standard deviations were multiplied to be right for nine of ten of them.
    error, offsets_error : float
        Root mean square residual of those that are no outliers: of the model, and of offsets alone.
    size : float
        Root mean square of their predictions.
    log_likelihood : float
        Mean over all of them.
    excess : float
        Root mean square residual over what the model predicts of it, of fitted entries that are no outliers, as if each had
        been left out: above 1 where single rows and columns are worse than they seem.
    mistaken : float
        Root mean square, over all held-out entries, of the residuals of those that were taken for outliers and may be none:
        where values are few, a rating for example, nobody can tell one from the other. 0 where values are many.
    bias : float
        Root mean square, over all entries, of what residuals of entries of one size have in common. It is 0 but for chance,
        unless what is observed depends on its noise, or values follow another law.
    """

    n_held: int
    factor: float
    error: float
    offsets_error: float
    size: float
    log_likelihood: float
    excess: float = 1.0
    mistaken: float = 0.0
    bias: float = 0.0


def outlier_threshold(noise: Noise) -> float:
    """Residual, where the noise is typical, from which an observation is rather an outlier."""
    sigma = noise.variance**0.5
    low, high = 0.0, max(noise.span, sigma)
    log_odds = math.log(noise.odds * sigma)
    for _ in range(60):  # the odds grow with the residual; their logarithm, for they may be beyond all numbers
        middle = 0.5 * (low + high)
        log = log_odds + 0.5 * (noise.tail + 1) * math.log1p((middle / sigma) ** 2 / noise.tail)
        low, high = (middle, high) if log < 0 else (low, middle)
    return high


@dataclass(frozen=True)
class NoiseFacts:
    """What a result says of its noise model.

    Attributes
    ----------
    noise : Noise
    offsets : bool
    strengths : tuple of floats
    settled, left_over : bool
    n_sweeps : int
    confirmation : Confirmation or None
    expected_error, prediction_error : float
        Over the whole matrix: of the matrix, relative to its size, and of new observations, relative to theirs.
    centre : float
        m, the offset of all entries.
    row_precision, col_precision : tuples of K floats, or None
        Of the priors of rows and columns; None in files that were written before these were kept.
    gap : float
        How well rows and columns are tied together: 0 if they fall apart (`judge.identified`).
    groups : two tuples of ints, or None
        The groups of the rows of I and of the columns of J, if they fall apart.
    sigma : float or None
        What the user says of the noise of an observation with noise `noise`, if anything.
    astray : float
        Relative error of the matrix if rows, or columns, are right whose observations were nearly all taken for outliers.
    replaced : float
        Share of the observations with one value, wherever the matrix is; 0 if there is no such value.
    factor : float
        By which predicted standard deviations are multiplied.
    """

    noise: Noise
    offsets: bool
    strengths: tuple[float, ...]
    settled: bool
    left_over: bool
    n_sweeps: int
    confirmation: Confirmation | None
    expected_error: float
    prediction_error: float
    centre: float = 0.0
    row_precision: tuple[float, ...] | None = None
    col_precision: tuple[float, ...] | None = None
    gap: float = 1.0
    groups: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    sigma: float | None = None
    astray: float = 0.0
    replaced: float = 0.0
    factor: float = 1.0

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        return asdict(self)

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> NoiseFacts:
        """What `as_json` gave."""
        confirmation = None if told["confirmation"] is None else Confirmation(**told["confirmation"])
        changed: dict[str, Any] = {"noise": Noise(**told["noise"]), "confirmation": confirmation}
        names = ("strengths", "row_precision", "col_precision")
        changed |= {name: tuple(told[name]) for name in names if told.get(name) is not None}
        if confirmation is not None and "factor" not in told:  # written by an earlier version
            changed["factor"] = confirmation.factor
        if told.get("groups") is not None:
            changed["groups"] = tuple(map(tuple, told["groups"]))
        return cls(**told | changed)


@dataclass(frozen=True, eq=False)
class NoiseModel:
    """A fitted model.

    Attributes
    ----------
    rows, cols : Group
        Of I and of J.
    more_rows, more_cols : float arrays (., K)
        Means of the other rows and columns that the model was fitted to: where their estimates begin.
    more_row_ids, more_col_ids : int64 arrays
        Their numbers in the matrix, ascending.
    row_table, col_table : float arrays (n, len(Fit))
        How well each of them fits.
    row_precision, col_precision : float arrays (K,)
        Of the priors of all rows and columns.
    centre : float
    offsets : bool
        Whether there are any.
    noise : Noise
    strengths : float array (k,)
        Standard deviation of what each component adds to an entry, largest first.
    settled : bool
        Whether the last sweep changed hardly anything.
    left_over : bool
        Whether the residuals have another component, for which the rank that was asked for left no room.
    n_sweeps : int
    confirmation : Confirmation or None
        None if nothing was held out.
    sigma : SigmaScale or None
        What the user says of the noise; `noise` is that of a fine observation, then.
    change : float
        Of the predictions by the last sweep, over their size.
    """

    rows: Group
    cols: Group
    more_rows: np.ndarray
    more_cols: np.ndarray
    more_row_ids: np.ndarray
    more_col_ids: np.ndarray
    row_table: np.ndarray
    col_table: np.ndarray
    row_precision: np.ndarray
    col_precision: np.ndarray
    centre: float
    offsets: bool
    noise: Noise
    strengths: np.ndarray
    settled: bool
    left_over: bool
    n_sweeps: int
    confirmation: Confirmation | None
    sigma: SigmaScale | None = None
    change: float = 0.0

    @property
    def rank(self) -> int:
        """Components, without offsets."""
        return len(self.strengths)

    @property
    def typical_noise(self) -> Noise:
        """The noise of a typical observation."""
        return self.noise if self.sigma is None else replace(self.noise, variance=self.noise.variance * self.sigma.ratio**2)

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it as arrays, for a store."""
        found: dict[str, Any] = {}
        for name in ("rows", "cols"):
            found |= {f"{name}.{f.name}": getattr(getattr(self, name), f.name) for f in fields(Group)}
        found |= {name: getattr(self, name) for name in _ARRAYS}
        n, c = self.noise, self.confirmation
        found["numbers"] = np.asarray(
            [self.centre, self.offsets, self.settled, self.left_over, self.n_sweeps, self.change], dtype=np.float64
        )
        found["noise"] = np.asarray(astuple(n))
        found["sigma"] = np.asarray([] if self.sigma is None else [self.sigma.fine, self.sigma.typical], dtype=np.float64)
        found["confirmation"] = np.asarray([] if c is None else [getattr(c, f.name) for f in fields(c)], dtype=np.float64)
        return found

    @classmethod
    def from_arrays(cls, a: dict[str, np.ndarray]) -> NoiseModel:
        """What `arrays` gave."""
        rows, cols = (Group(*(a[f"{name}.{f.name}"] for f in fields(Group))) for name in ("rows", "cols"))
        numbers: list[float] = [*a["numbers"].tolist(), 0.0]  # older stores lack the last one
        centre, offsets, settled, left_over, n_sweeps, change = numbers[:6]
        c = a["confirmation"].tolist()
        confirmation = Confirmation(int(c[0]), *c[1:]) if c else None
        more: dict[str, Any] = {name: a[name] for name in _ARRAYS}
        more |= {"centre": centre, "offsets": bool(offsets), "settled": bool(settled), "n_sweeps": int(n_sweeps)}
        more |= {"left_over": bool(left_over), "change": change}
        more |= {"noise": Noise(*a["noise"].tolist()), "confirmation": confirmation}
        more["sigma"] = SigmaScale(*a["sigma"].tolist()) if len(a["sigma"]) else None
        return cls(rows=rows, cols=cols, **more)


_ARRAYS = (
    "more_rows",
    "more_cols",
    "more_row_ids",
    "more_col_ids",
    "row_table",
    "col_table",
    "row_precision",
    "col_precision",
    "strengths",
)
