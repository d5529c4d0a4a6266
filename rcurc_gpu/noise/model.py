"""What the noise model says: chosen rows and columns, priors of all others, noise, and how it was confirmed."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ..backends.plain.posterior import Noise, packed_size


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
        k = self.mean.shape[1]
        diagonal = np.cumsum(np.arange(1, k + 1)) - 1
        return np.mean(self.mean**2 + self.covariance[:, diagonal], axis=0)

    def rescaled(self, factor: np.ndarray) -> Group:
        """Coefficients times `factor` (K,)."""
        q, p = np.tril_indices(self.mean.shape[1])
        return replace(self, mean=self.mean * factor, covariance=self.covariance * (factor[q] * factor[p]))

    def taking(self, kept: np.ndarray) -> Group:
        """The coefficients `kept` (their numbers) alone."""
        q, p = np.tril_indices(self.mean.shape[1])
        inside = np.isin(q, kept) & np.isin(p, kept)
        return replace(self, mean=self.mean[:, kept], covariance=self.covariance[:, inside])


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
    """

    n_held: int
    factor: float
    error: float
    offsets_error: float
    size: float
    log_likelihood: float


@dataclass(frozen=True, eq=False)
class NoiseModel:
    """A fitted model.

    Attributes
    ----------
    rows, cols : Group
        Of I and of J.
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
    n_sweeps : int
    confirmation : Confirmation or None
        None if nothing was held out.
    """

    rows: Group
    cols: Group
    row_table: np.ndarray
    col_table: np.ndarray
    row_precision: np.ndarray
    col_precision: np.ndarray
    centre: float
    offsets: bool
    noise: Noise
    strengths: np.ndarray
    settled: bool
    n_sweeps: int
    confirmation: Confirmation | None

    @property
    def rank(self) -> int:
        """Components, without offsets."""
        return len(self.strengths)
