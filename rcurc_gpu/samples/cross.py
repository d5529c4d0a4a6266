"""What was observed: shape, chosen rows I and columns J, and the entries seen in the two blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .. import files
from ..backends.arrays import (
    Array,
    array_namespace,
    asarray_on,
    device_name,
    gather,
    home_of,
    takes_kernels,
    to_numpy,
)
from ..backends.blocks import Block
from ..errors import check_shape
from ..summary import Summarised, Summary
from .building import (
    ReadPiece,
    block_from_dense,
    block_from_entries,
    check_both_observed,
    check_finite,
    check_same_place,
    float_values,
    given_array,
    index_vector,
    observation_mask,
    positions_in,
    sigma_matrix,
    sigma_vector,
    taken,
    triplet_index,
)
from .choosing import choose_cross
from .describe import cross_facts, describe
from .duplicates import resolve_duplicates, resolve_weighted
from .foreign import DaskMatrix, as_source, plain_array
from .intersection import Intersection, freeze, join_intersection
from .sample_file import PARTS, check_arrays
from .sparse import as_sparse, to_coo


@dataclass(frozen=True, eq=False, repr=False)
class CrossSamples(Summarised):
    """Cross-concentrated samples of an n1 x n2 matrix Y. Immutable.

    Make one with `from_dense`, `from_triplets`, `from_sparse`, `from_blocks`, `ccs_sample` or `synthetic`.

    Attributes
    ----------
    shape : (int, int)
    rows : int64 array (|I|,)
        The chosen rows I.
    cols : int64 array (|J|,)
        The chosen columns J.
    r_block : Block
        What Omega_R sees of ``R = Y[rows, :]``: its units are the n2 columns.
    c_block : Block
        What Omega_C sees of ``C = Y[:, cols]``: its units are the n1 rows.
    n_unused : int
        Observations that were given but lie outside the cross.
    home : array (0,), optional
        Of the library that the observations came from, if that is another than that of the blocks: the factors of a result
        become arrays of it, too.
    """

    shape: tuple[int, int]
    rows: np.ndarray
    cols: np.ndarray
    r_block: Block
    c_block: Block
    n_unused: int = 0
    home: Array | None = None

    def __post_init__(self) -> None:
        check_both_observed(self.r_block.n_obs, self.c_block.n_obs)
        for block in (self.r_block, self.c_block):
            block.mapped(freeze)
        freeze(self.rows)
        freeze(self.cols)

    # ---------------------------------------------------------------- constructors

    @classmethod
    def from_dense(
        cls, Y: Any, rows: Any, cols: Any, mask_rows: Any = None, mask_cols: Any = None, *, sigma: Any = None
    ) -> CrossSamples:
        """Take the cross out of a dense matrix.

        Parameters
        ----------
        Y : array (n1, n2)
            NumPy, CuPy, a torch tensor (or another array with DLPack or ``__cuda_array_interface__``), any array-API array,
            or a `numpy.memmap`, of which only the cross is read, piece by piece. NaN means not observed.
        rows, cols : index vectors
            I and J.
        mask_rows : bool array (|I|, n2), optional
            Which entries of ``Y[rows, :]`` were observed. By default those that are not NaN.
        mask_cols : bool array (n1, |J|), optional
            The same for ``Y[:, cols]``.
        sigma : array (n1, n2), or one that broadcasts to it, optional
            Standard deviation of the noise of each entry, as in `from_triplets`; (n2,) for a number for each column, (n1, 1)
            for each row. Where nothing was observed it may be anything.

        Returns
        -------
        CrossSamples
            With arrays of the type of `Y`; NumPy or CuPy arrays on the same device for a torch tensor.
        """
        if hasattr(Y, "tocoo"):
            raise TypeError("Y must be a dense array, got a sparse matrix; use CrossSamples.from_sparse")
        home, Y = home_of(Y), as_source(plain_array("Y", Y))
        if isinstance(Y, DaskMatrix):
            return _of_dask(Y, rows, cols, (mask_rows, mask_cols), sigma)
        Y = given_array("Y", Y)
        if Y.ndim != 2:
            raise ValueError(f"Y must be two-dimensional, got shape {tuple(Y.shape)}")
        n1, n2 = check_shape("Y.shape", Y.shape)
        rows, cols = index_vector("rows", rows, n1), index_vector("cols", cols, n2)
        mask_rows = observation_mask("mask_rows", mask_rows, Y, (len(rows), n2))
        mask_cols = observation_mask("mask_cols", mask_cols, Y, (n1, len(cols)))

        def read_r(start: int, stop: int) -> tuple[Array, Array | None]:
            return taken(Y[:, start:stop], rows, 0).T, None if mask_rows is None else mask_rows[:, start:stop].T

        def read_c(start: int, stop: int) -> tuple[Array, Array | None]:
            return taken(Y[start:stop, :], cols, 1), None if mask_cols is None else mask_cols[start:stop, :]

        sigma = None if sigma is None else sigma_matrix(sigma, Y, (n1, n2))
        return replace(samples_of_pieces(read_r, read_c, (n1, n2), rows, cols, sigma), home=home)

    @classmethod
    def from_triplets(
        cls,
        i: Any,
        j: Any,
        values: Any,
        shape: tuple[int, int],
        rows: Any = None,
        cols: Any = None,
        *,
        duplicates: str = "error",
        sigma: Any = None,
    ) -> CrossSamples:
        """Make samples from a list of observations.

        Parameters
        ----------
        i, j : integer arrays (n,)
            Row and column of each observation.
        values : array (n,)
        shape : (int, int)
        rows, cols : index vectors, optional
            I and J. What is not given is chosen: the rows and columns on which the observations concentrate, or, where
            there is no clear cross (ratings), the densest intersection whose cross leaves out at most 5 % of the
            observations; `n_unused` and `describe` tell how many fall outside.
        duplicates : {"error", "mean", "median"}
            What to do with repeated observations that disagree.
        sigma : array (n,), optional
            Standard deviation of the noise of each observation, if instruments differ and you know by how much. In any
            unit: only ratios matter, the solver finds what they have in common. Data without noise do not need it. With
            `duplicates` "mean", repeated observations are weighted by it; "median" is not possible then.
        """
        n1, n2 = check_shape("shape", shape)
        home, values = home_of(values), float_values("values", given_array("values", values))
        i, j = triplet_index("i", i, n1, values), triplet_index("j", j, n2, values)
        if values.shape[0] == 0:
            raise ValueError("values is empty: there are no observations")
        check_finite("values", values)
        sigma = None if sigma is None else sigma_vector(sigma, values)
        if rows is None or cols is None:
            best_rows, best_cols = choose_cross(to_numpy(i), to_numpy(j), (n1, n2))
            rows = best_rows if rows is None else rows
            cols = best_cols if cols is None else cols
        rows, cols = index_vector("rows", rows, n1), index_vector("cols", cols, n2)
        xp = array_namespace(values)
        if sigma is None:
            values = resolve_duplicates(i * n2 + j, values, n2, duplicates)
        else:
            values, sigma = resolve_weighted(i * n2 + j, values, sigma, n2, duplicates)
        place_i, in_rows = positions_in(i, rows)
        place_j, in_cols = positions_in(j, cols)
        of_rows, of_cols = (None if sigma is None else sigma[some] for some in (in_rows, in_cols))
        r_block = block_from_entries(j[in_rows], place_i[in_rows], values[in_rows], n2, len(rows), of_rows)
        c_block = block_from_entries(i[in_cols], place_j[in_cols], values[in_cols], n1, len(cols), of_cols)
        unused = int(xp.sum(xp.astype(~(in_rows | in_cols), xp.int64)))
        return cls((n1, n2), rows, cols, r_block, c_block, unused, home)

    @classmethod
    def from_sparse(cls, Y: Any, rows: Any = None, cols: Any = None, *, duplicates: str = "error") -> CrossSamples:
        """Make samples from a sparse matrix (scipy.sparse or cupyx.scipy.sparse); every stored entry, also a stored 0,
        is an observation. `rows`, `cols` and `duplicates` as in `from_triplets`."""
        coo = to_coo("Y", Y)
        return cls.from_triplets(coo.row, coo.col, coo.data, Y.shape, rows, cols, duplicates=duplicates)

    @classmethod
    def from_blocks(cls, R: Any, C: Any, rows: Any, cols: Any, *, duplicates: str = "error") -> CrossSamples:
        """Make samples from two sparse matrices, ``R`` (|I|, n2) and ``C`` (n1, |J|), whose stored entries are the
        observations. Where both see an entry of the intersection with different values, `duplicates` decides."""
        r, c = to_coo("R", R), to_coo("C", C)
        check_same_place("C", c.data, "R", r.data)
        n1, n2 = int(C.shape[0]), int(R.shape[1])
        rows, cols = index_vector("rows", rows, n1), index_vector("cols", cols, n2)
        if R.shape[0] != len(rows) or C.shape[1] != len(cols):
            raise ValueError(
                f"R must have one row for each of rows ({len(rows)}) and C one column for each of cols ({len(cols)}), "
                f"got R {tuple(R.shape)} and C {tuple(C.shape)}"
            )
        value_r, value_c = float_values("R", r.data), float_values("C", c.data)
        check_finite("R", value_r, lambda k: (int(r.row[k]), int(r.col[k])))
        check_finite("C", value_c, lambda k: (int(c.row[k]), int(c.col[k])))
        xp = array_namespace(value_r, value_c)
        i_r, j_c = gather(asarray_on(rows, value_r), r.row), gather(asarray_on(cols, value_c), c.col)
        j_r, i_c = xp.astype(r.col, xp.int64), xp.astype(c.row, xp.int64)
        key = xp.concat([i_r * n2 + j_r, i_c * n2 + j_c])
        value = resolve_duplicates(key, xp.concat([value_r, value_c]), n2, duplicates)
        split = value_r.shape[0]
        r_block = block_from_entries(j_r, r.row, value[:split], n2, len(rows))
        c_block = block_from_entries(i_c, c.col, value[split:], n1, len(cols))
        return cls((n1, n2), rows, cols, r_block, c_block)

    # ---------------------------------------------------------------- what is there

    @property
    def dtype(self) -> Any:
        """float32 or float64."""
        return self.r_block.value.dtype

    @property
    def device(self) -> str:
        """Where the observations live."""
        return device_name(self.r_block.value)

    @cached_property
    def n_obs(self) -> int:
        """Observations in the union of Omega_R and Omega_C."""
        xp = array_namespace(self.intersection.seen_by)
        twice = int(xp.sum(xp.astype(self.intersection.seen_by == 3, xp.int64)))
        return self.r_block.n_obs + self.c_block.n_obs - twice

    @cached_property
    def largest(self) -> tuple[float, float]:
        """The largest size of an observation of R, and of C."""
        values = self.r_block.value, self.c_block.value
        if takes_kernels(values[0]):
            from ..backends.cuda.blocks import largest_sizes

            return largest_sizes(*values)
        xp = array_namespace(*values)
        r, c = (max(float(xp.max(x)), -float(xp.min(x))) for x in values)  # abs() would take as much memory again
        return r, c

    def blocks(self, side: str) -> Iterator[tuple[int, Block]]:
        """The first unit (0) and the observations of R ("r") or of C ("c")."""
        yield 0, self.r_block if side == "r" else self.c_block

    def counts(self, side: str) -> np.ndarray:
        """Observations of each column of R ("r") or row of C ("c"), on the host."""
        return (self.r_block if side == "r" else self.c_block).counts

    @property
    def nbytes(self) -> int:
        """Bytes that the observations take."""
        return self.r_block.nbytes + self.c_block.nbytes

    @property
    def rate_rows(self) -> float:
        """p_R, the share of R that was observed."""
        return self.r_block.n_obs / (len(self.rows) * self.shape[1])

    @property
    def rate_cols(self) -> float:
        """p_C, the share of C that was observed."""
        return self.c_block.n_obs / (len(self.cols) * self.shape[0])

    @property
    def has_sigma(self) -> bool:
        """Whether the noise of each observation is known (`sigma` of `from_triplets` and `from_dense`)."""
        return self.r_block.sigma is not None

    @property
    def R(self) -> Any:
        """``Y[rows, :]`` as a sparse matrix (|I|, n2) in CSC form, sharing memory."""
        return as_sparse(self.r_block, units_last=True)

    @property
    def C(self) -> Any:
        """``Y[:, cols]`` as a sparse matrix (n1, |J|) in CSR form, sharing memory."""
        return as_sparse(self.c_block, units_last=False)

    @cached_property
    def intersection(self) -> Intersection:
        """The observations inside I x J, each once."""
        return join_intersection(self.r_block, self.c_block, self.rows, self.cols)

    def describe(self, rank: int | None = None) -> str:
        """Say in words what is there, with warnings where it is too little for `rank` (or for any rank)."""
        return describe(self, rank)

    def _summary(self) -> Summary:
        unused = {"not used": f"{self.n_unused:,} observations outside the chosen rows and columns"} if self.n_unused else {}
        return Summary(cross_facts(self) | unused | {"values": f"{self.dtype} on {self.device}"})

    # ---------------------------------------------------------------- elsewhere

    @property
    def T(self) -> CrossSamples:
        """The samples of the transposed matrix, sharing memory."""
        return CrossSamples(self.shape[::-1], self.cols, self.rows, self.c_block, self.r_block, self.n_unused, self.home)

    def scaled(self, factor: float) -> CrossSamples:
        """The samples of ``factor * Y``."""
        return replace(self, r_block=self.r_block.scaled(factor), c_block=self.c_block.scaled(factor))

    def to(self, like: Array) -> CrossSamples:
        """The observations where `like` is."""
        return replace(self, r_block=self.r_block.to(like), c_block=self.c_block.to(like))

    def to_namespace(self, xp: Any, device: Any = None) -> CrossSamples:
        """Copy the observations to another array namespace (NumPy, CuPy, ...), explicitly."""
        place = {} if device is None else {"device": device}

        def make(x: Array) -> Array:
            return xp.asarray(to_numpy(x), **place)

        return replace(self, r_block=self.r_block.mapped(make), c_block=self.c_block.mapped(make), home=None)

    def file_arrays(self) -> dict[str, np.ndarray]:
        """What `save` writes, on the host."""
        arrays = {"shape": np.asarray(self.shape), "rows": self.rows, "cols": self.cols}
        arrays["n_unused"] = np.asarray(self.n_unused)
        for name, block in (("r", self.r_block), ("c", self.c_block)):
            parts = PARTS if block.sigma is None else (*PARTS, "sigma")
            arrays |= {f"{name}_{part}": to_numpy(getattr(block, part)) for part in parts}
        return arrays

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one ``.npz`` file (no pickle), atomically."""
        files.write_npz(path, "CrossSamples", self.file_arrays())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CrossSamples:
        """Read what `save` wrote, as NumPy arrays."""
        parts = [f"{name}_{part}" for name in "rc" for part in PARTS]
        a = files.read_npz(path, "CrossSamples", ("shape", "rows", "cols", "n_unused", *parts))
        check_arrays(os.fspath(path), a)
        r = Block(a["r_indptr"], a["r_index"], a["r_value"], len(a["rows"]), a.get("r_sigma"))
        c = Block(a["c_indptr"], a["c_index"], a["c_value"], len(a["cols"]), a.get("c_sigma"))
        return cls((int(a["shape"][0]), int(a["shape"][1])), a["rows"], a["cols"], r, c, int(a["n_unused"]))


def samples_of_pieces(
    read_r: ReadPiece,
    read_c: ReadPiece,
    shape: tuple[int, int],
    rows: np.ndarray,
    cols: np.ndarray,
    sigma: Array | None = None,
) -> CrossSamples:
    """Samples from pieces of a dense matrix: ``read_r(start, stop)`` gives columns of R, (columns, |I|), and `read_c` rows
    of C, (rows, |J|); `sigma` (n1, n2) is of the whole matrix."""

    def sigma_r(start: int, stop: int) -> Array:
        return taken(sigma[:, start:stop], rows, 0).T  # type: ignore[index]

    def sigma_c(start: int, stop: int) -> Array:
        return taken(sigma[start:stop, :], cols, 1)  # type: ignore[index]

    of_r, of_c = (None, None) if sigma is None else (sigma_r, sigma_c)
    r_block = block_from_dense("Y", read_r, shape[1], len(rows), lambda unit, k: (int(rows[k]), unit), of_r)
    c_block = block_from_dense("Y", read_c, shape[0], len(cols), lambda unit, k: (unit, int(cols[k])), of_c)
    return CrossSamples(shape, rows, cols, r_block, c_block)


def _of_dask(Y: DaskMatrix, rows: Any, cols: Any, masks: tuple[Any, Any], sigma: Any) -> CrossSamples:
    """`CrossSamples.from_dense` of a Dask array: only the cross is ever here."""
    n1, n2 = check_shape("Y.shape", Y.shape)
    rows, cols = index_vector("rows", rows, n1), index_vector("cols", cols, n2)
    R, C = Y.taken(rows, 0), Y.taken(cols, 1)
    seen = (
        observation_mask(f"mask_{name}", m, x, x.shape) for name, m, x in zip(("rows", "cols"), masks, (R, C), strict=True)
    )
    R, C = (x if mask is None else np.where(mask, x, np.nan) for x, mask in zip((R, C), seen, strict=True))
    sigma = None if sigma is None else sigma_matrix(sigma, R, (n1, n2))
    read_r, read_c = (lambda a, b, units=units: (units[a:b], None) for units in (R.T, C))
    return samples_of_pieces(read_r, read_c, (n1, n2), rows, cols, sigma)
