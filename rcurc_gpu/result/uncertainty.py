"""How sure the entries of a recovered matrix are: covariances of rows and columns, noise, and what held-out entries said."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtrit

from ..backends.arrays import Array, array_namespace, asarray_on, dots, gather, is_array, take_rows, to_numpy
from ..backends.plain.posterior import Noise, is_all_faster, packed_size, product_variance, product_variances
from ..errors import ArgumentError, ArgumentTypeError, check_number

_NUMBERS_AT_ONCE = 1 << 21  # of covariances, for standard deviations: half a dozen arrays of 16 MB


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """What standard deviations of entries are made of.

    Attributes
    ----------
    left, right : float32 arrays (n1, P), (n2, P)
        Covariances of the coefficients of rows and columns, packed: the lower triangle, row by row, offset last.
    left_scale, right_scale : float32 arrays (n1,), (n2,)
        Of the squared noise of rows and columns; 1 is typical.
    noise : Noise
    offsets : bool
        Whether the factors have two columns for offsets.
    factor : float
        By which standard deviations are multiplied so that held-out entries agree with them.
    left_unit, right_unit : float
        The factors are in these units; everything else here is in the unit of 1.
    centre : float
        m, the offset of all entries.
    left_precision, right_precision : float64 arrays (K,) on the host, or None
        Of the priors of rows and columns, for new ones; None in files that were written before they were kept.
    left_group, right_group : int64 arrays (n1,), (n2,) on the host, or None
        Groups that nothing ties together, if there are any.
    sigma : float or None
        What the samples say of the noise of an observation with this `noise`, the typical one, if they do.
    """

    left: Array
    right: Array
    left_scale: Array
    right_scale: Array
    noise: Noise
    offsets: bool
    factor: float
    left_unit: float = 1.0
    right_unit: float = 1.0
    centre: float = 0.0
    left_precision: np.ndarray | None = None
    right_precision: np.ndarray | None = None
    left_group: np.ndarray | None = None
    right_group: np.ndarray | None = None
    sigma: float | None = None

    @property
    def largest(self) -> float:
        """Variance of an entry of which nothing is known: of the components and of both offsets, by their priors."""
        if self.left_precision is None or self.right_precision is None:
            return 0.0
        k = len(self.left_precision) - self.offsets
        left, right = 1 / self.left_precision, 1 / self.right_precision
        found = float(np.sum(left[:k] * right[:k]) + np.sum(left[k:] + right[k:]))
        # a model without components says nothing of their size: entries are uniform over what was seen
        return found if k else max(found, self.noise.span**2 / 12)

    @property
    def unit(self) -> float:
        """The unit of the entries of the matrix."""
        return self.left_unit * self.right_unit

    @property
    def widening(self) -> float:
        """By which variances of the matrix exceed what the covariances of rows and columns say.

        These are inverses of sums of weights, as if the weights were known. An observation with noise of Student's t has the
        information (nu + 1) / (nu + 3) over its squared scale, not 1. Where held-out entries calibrated the sum of this
        variance and the noise, they did so without it.
        """
        return (self.noise.tail + 3) / (self.noise.tail + 1)

    @property
    def T(self) -> Uncertainty:
        """The uncertainty of the transposed matrix."""
        pairs = [(f"left{x}", f"right{x}") for x in ("", "_scale", "_unit", "_precision", "_group")]
        return replace(self, **{a: getattr(self, b) for pair in pairs for a, b in (pair, pair[::-1])})

    def mapped(self, change: Callable[[Array], Array]) -> Uncertainty:
        """The same with other arrays."""
        arrays = ("left", "right", "left_scale", "right_scale")
        return replace(self, **{f.name: change(getattr(self, f.name)) for f in fields(self) if f.name in arrays})

    def variances(self, left: Array, right: Array, i: Array, j: Array) -> tuple[Array, Array]:
        """Squared standard deviation of entries (i, j) of ``left @ right.T``, and squared scale of their noise, (k,).

        Both are in the unit of 1, since the square of `unit` may be no number any more. Neither is multiplied by `factor`,
        nor the first by `widening`.
        """
        xp = array_namespace(left)
        m, n, size = int(left.shape[0]), int(right.shape[0]), int(i.shape[0])
        if is_all_faster(m, n, size):
            table = product_variances(*self._moments((left, self.left), (right, self.right)), self.offsets)
            matrix = gather(xp.reshape(table, (-1,)), i * n + j)
        else:
            step = max(_NUMBERS_AT_ONCE // max(int(self.left.shape[1]), 1), 1)
            parts = []
            for low in range(0, max(size, 1), step):
                rows, cols = (x[low : min(low + step, size)] for x in (i, j))
                side = take_rows(left, rows), take_rows(self.left, rows)
                other = take_rows(right, cols), take_rows(self.right, cols)
                parts.append(product_variance(*self._moments(side, other), self.offsets))
            matrix = xp.concat(parts)
        scales = xp.astype(gather(self.left_scale, i) * gather(self.right_scale, j), matrix.dtype)
        if self.left_group is not None and self.right_group is not None:
            rows, cols = self.left_group[to_numpy(i)], self.right_group[to_numpy(j)]
            apart = (rows != cols) | (rows < 0)  # -1 is for those in no group; as `judge.groups` has it
            # What was recovered there is as large as the truth, and as far from it as two such entries are from each other.
            # Held-out entries are inside of groups: that they are near to the fit says nothing of those between.
            wide = 2 * self.largest / min(self.factor, 1.0) ** 2
            matrix = matrix + wide * asarray_on(apart.astype(np.float64), matrix, matrix.dtype)
        if self.noise.growth:
            scales = scales * self.noise.by_size(xp.astype(dots(left, i, right, j) / self.unit, matrix.dtype))
        return matrix, self.noise.variance * scales

    def _moments(self, left: Sequence[Array], right: Sequence[Array]) -> tuple[Array, Array, Array, Array]:
        """Means and covariances of both sides, of factors and covariances; 1 stands for the offset of the other side."""
        xp = array_namespace(left[0])

        def mean(factor: Array, unit: float) -> Array:
            u = factor[:, : factor.shape[1] - (2 if self.offsets else 0)] / unit
            return xp.concat([u, xp.ones_like(factor[:, :1])], axis=1) if self.offsets else u

        u, v = mean(left[0], self.left_unit), mean(right[0], self.right_unit)
        return u, v, xp.astype(left[1], u.dtype), xp.astype(right[1], u.dtype)

    def coarseness(self, sigma: Any, like: Array) -> Array:
        """The noise of observations with this `sigma`, in the unit of the samples, over the typical one; beside `like`."""
        given = to_numpy(sigma) if is_array(sigma) else np.asarray(sigma)
        if given.dtype.kind not in "iuf":
            raise ArgumentTypeError("sigma", f"must be a positive number, or an array of such, got dtype {given.dtype}")
        given = given.astype(np.float64)
        if not (np.isfinite(given) & (given > 0)).all():
            bad = given[~(np.isfinite(given) & (given > 0))].flat[0]
            raise ArgumentError("sigma", f"must be positive and finite, got {bad}")
        try:
            np.broadcast_to(given, like.shape)
        except ValueError:
            raise ArgumentError(
                "sigma",
                f"must be a number or broadcast to the shape of the entries, {tuple(like.shape)}, got {given.shape}",
            ) from None
        return asarray_on(given / self.sigma, like, like.dtype)

    def half_width(self, matrix: Array, noise: Array | None, level: float) -> Array:
        """Half of the interval that holds an entry (or, with its `noise`, a new observation) at this level.

        Parameters
        ----------
        matrix, noise : float arrays
            As `variances` gives them, in the unit of 1; the result is in `unit`.
        level : float in (0, 1)
        """
        xp, unit = array_namespace(matrix), abs(self.unit)
        if noise is None:
            return unit * (self.factor * float(ndtri(0.5 + 0.5 * level)) * xp.sqrt(self.widening * matrix))
        return unit * (self.factor * float(stdtrit(self.noise.tail, 0.5 + 0.5 * level)) * xp.sqrt(matrix + noise))


def check_level(level: Any) -> float:
    """A probability between 0 and 1."""
    return check_number("level", level, 0, 1, open_low=True, open_high=True)


_FILE = ("left_covariance", "right_covariance", "left_scale", "right_scale")  # names in files
_PRIORS = ("left_precision", "right_precision")
_GROUPS = ("left_group", "right_group")
_BY_SIZE = "noise_by_size"
_LEAST_NUMBERS = 7  # the first version had so many


def uncertainty_arrays(known: Uncertainty | None) -> dict[str, np.ndarray]:
    """What a file keeps of it; nothing of none."""
    if known is None:
        return {}
    arrays = (known.left, known.right, known.left_scale, known.right_scale)
    n = known.noise
    numbers = [n.variance, n.tail, n.share, n.span, float(known.offsets), known.factor]
    numbers += [known.right_unit, known.left_unit, known.centre]
    numbers += [] if known.sigma is None else [known.sigma]
    found = {name: to_numpy(x) for name, x in zip(_FILE, arrays, strict=True)} | {"noise_model": np.asarray(numbers)}
    found |= {_BY_SIZE: np.asarray([n.constant, n.growth])} if n.growth else {}
    return found | {name: x for name in (*_PRIORS, *_GROUPS) if (x := getattr(known, name)) is not None}


def uncertainty_from(arrays: Mapping[str, np.ndarray], shape: tuple[int, int]) -> Uncertainty | None:
    """What `uncertainty_arrays` gave; None if nothing was kept."""
    if "noise_model" not in arrays:
        return None
    numbers = np.asarray(arrays["noise_model"], dtype=np.float64)
    left, right, left_scale, right_scale = (np.asarray(arrays[name]) if name in arrays else np.zeros(0) for name in _FILE)
    sizes = (left.shape[:1], right.shape[:1], left_scale.shape, right_scale.shape)
    fits = sizes == ((shape[0],), (shape[1],)) * 2 and left.ndim == right.ndim == 2 and left.shape[1:] == right.shape[1:]
    priors = {name: np.asarray(arrays[name], dtype=np.float64) for name in _PRIORS if name in arrays}
    fits = fits and all(x.ndim == 1 and packed_size(len(x)) == left.shape[1] and x.min() > 0 for x in priors.values())
    groups = {name: np.asarray(arrays[name]) for name in _GROUPS if name in arrays}
    fits = fits and tuple(x.shape[0] if x.ndim == 1 and x.dtype.kind == "i" else -1 for x in groups.values()) in ((), shape)
    names = ("factor", "right_unit", "left_unit", "centre", "sigma")
    counted = numbers.ndim == 1 and _LEAST_NUMBERS <= len(numbers) <= 5 + len(names)
    by_size = np.asarray(arrays.get(_BY_SIZE, (1.0, 0.0)), dtype=np.float64)
    fits = fits and by_size.shape == (2,) and bool(np.isfinite(by_size).all() and by_size.min() >= 0 < by_size[0])
    whole = counted and np.isfinite(numbers).all()
    if not (whole and fits and numbers[:2].min() > 0 and (len(numbers) < 5 + len(names) or numbers[-1] > 0)):
        raise ValueError("the noise model in the file is damaged")
    noise, rest = Noise(*numbers[:4].tolist(), *by_size.tolist()), numbers[4:].tolist()
    more = dict(zip(names, rest[1:], strict=False)) | priors | groups
    return Uncertainty(left, right, left_scale, right_scale, noise, bool(rest[0]), **more)
