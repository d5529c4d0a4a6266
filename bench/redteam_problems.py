"""Problems that break an assumption, each with its truth: the red team's table of families.

A family is a function of a random generator; `FAMILIES` has them by name, and ``problem(name, seed)`` makes one. What is
seen of a matrix is what is not NaN in `Problem.Y`. Sizes are small, so that a solve takes less than a second.
The families of `bench.redteam_data` (outliers, sensors) and `bench.redteam_noise` (values, noise) are in the same table.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import rcurc_gpu as rg

Maker = Callable[[np.random.Generator], "Problem"]


@dataclass(frozen=True, eq=False)
class Problem:
    """What a solver is given, and what is true.

    Attributes
    ----------
    X, Y : float arrays (n1, n2)
        The truth, and what there is to see of it; NaN: not seen.
    rows, cols : index vectors
        I and J; entries outside of the cross are not used, except by `robust_pca` and `ircur`, which draw their own.
    rank : int or "auto"
    solver : str
        One of `bench.redteam.SOLVERS`.
    options : dict
        Further arguments of the solver.
    also : float array (n1, n2) or None
        What is as true as `X`, entry by entry: a drift is a fault of the sensor, or it is not.
    instead : tuple of float arrays (n1, n2)
        What is as true as `X` as a whole.
    groups : (int array (n1,), int array (n2,)) or None
        To which group rows and columns belong, where groups were hardly tied together.
    new, new_seen : float arrays (n1, k), (|I|, k) or None
        Further columns, and what is seen of them at I, for `transform_columns`.
    """

    X: np.ndarray
    Y: np.ndarray
    rows: np.ndarray
    cols: np.ndarray
    rank: int | str
    solver: str = "rcurc"
    options: dict[str, Any] = field(default_factory=dict)
    also: np.ndarray | None = None
    instead: tuple[np.ndarray, ...] = ()
    groups: tuple[np.ndarray, np.ndarray] | None = None
    new: np.ndarray | None = None
    new_seen: np.ndarray | None = None

    def samples(self) -> rg.CrossSamples:
        """What is seen in the cross."""
        return rg.CrossSamples.from_dense(self.Y, self.rows, self.cols)


FAMILIES: dict[str, Maker] = {}


def family(name: str) -> Callable[[Maker], Maker]:
    """Put a function into the table of families."""

    def put(make: Maker) -> Maker:
        assert name not in FAMILIES, name
        FAMILIES[name] = make
        return make

    return put


def variant(name: str, of: str, **changes: Any) -> None:
    """The same problems for another solver, or with other options."""
    FAMILIES[name] = lambda rng: replace(FAMILIES[of](rng), **changes)


def problem(name: str, seed: int) -> Problem:
    """One problem of a family; no two families share random numbers, a variant and its family neither."""
    return FAMILIES[name](np.random.default_rng([zlib.crc32(name.encode()), seed]))


# ---------------------------------------------------------------- what families are made of


def one_of(rng: np.random.Generator, *values: Any) -> Any:
    """One of some values, as it is."""
    return values[rng.integers(len(values))]


def size(rng: np.random.Generator, low: int = 120, high: int = 300) -> tuple[int, int]:
    """A shape."""
    n1, n2 = rng.integers(low, high, 2)
    return int(n1), int(n2)


def gaussian(rng: np.random.Generator, shape: tuple[int, int], rank: int) -> np.ndarray:
    """A product of Gaussian factors, whose entries are about 1."""
    return rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1])) / rank**0.5


def spoilt(rng: np.random.Generator, X: np.ndarray, share: float, c: float = 10.0) -> np.ndarray:
    """`X` with a share of its entries replaced, uniformly up to `c` times the typical entry."""
    at = rng.random(X.shape) < share
    return np.where(at, c * np.abs(X).mean() * rng.uniform(-1, 1, X.shape), X)


def chosen(rng: np.random.Generator, n: int, share: float) -> np.ndarray:
    """Some of n rows or columns."""
    return np.sort(rng.choice(n, max(round(share * n), 1), replace=False))


def seen(rng: np.random.Generator, Y: np.ndarray, rate: float | np.ndarray) -> np.ndarray:
    """`Y` where it is seen, each entry with a probability; NaN elsewhere."""
    return np.where(rng.random(Y.shape) < rate, Y, np.nan)


def cross(
    rng: np.random.Generator, X: np.ndarray, Y: np.ndarray, rank: int | str, share: float = 0.5, **more: Any
) -> Problem:
    """A problem with a share of rows and columns chosen at random (`rows` and `cols` may be given)."""
    rows, cols = (more.pop(name, None) for name in ("rows", "cols"))
    rows = chosen(rng, X.shape[0], share) if rows is None else rows
    cols = chosen(rng, X.shape[1], share) if cols is None else cols
    return Problem(X, Y, rows, cols, rank, **more)


def outside(n: int, of: np.ndarray) -> np.ndarray:
    """The numbers below n that are not among `of`."""
    return np.setdiff1d(np.arange(n), of)


def local(rng: np.random.Generator, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """A component in some rows and columns alone (n1, n2)."""
    more = np.zeros(shape)
    more[np.ix_(rows, cols)] = 2 * np.outer(rng.standard_normal(len(rows)), rng.standard_normal(len(cols)))
    return more


# ---------------------------------------------------------------- groups that hardly met


def grouped(
    rng: np.random.Generator,
    across: float,
    rank: int = 3,
    outliers: float = 0.0,
    *,
    n_groups: int = 2,
    shape: tuple[int, int] | None = None,
    share: float | None = None,
    inside: float = 0.6,
    noise: float = 0.0,
) -> Problem:
    """Groups of rows and columns: a share of `inside` is seen in each, of `across` between them."""
    shape = (300, 280) if shape is None else shape
    share = one_of(rng, 0.6, 1.0) if share is None else share
    X = gaussian(rng, shape, rank)
    row_group, col_group = (rng.permutation(np.arange(n) % n_groups) for n in shape)
    Y = spoilt(rng, X, outliers) + noise * rng.standard_normal(shape)
    rate = np.where(row_group[:, None] == col_group, inside, across)
    return cross(rng, X, seen(rng, Y, rate), rank, share, groups=(row_group, col_group))


def _few(rng: np.random.Generator) -> float:
    return one_of(rng, 0.0, 0.01, 0.02, 0.03, 0.05)


@family("groups")
def _(rng: np.random.Generator) -> Problem:
    return grouped(rng, _few(rng), one_of(rng, 1, 3, 8), one_of(rng, 0, 0.1))


@family("groups, well tied")
def _(rng: np.random.Generator) -> Problem:
    return grouped(rng, one_of(rng, 0.12, 0.2, 0.3), one_of(rng, 1, 3), one_of(rng, 0, 0.1))


@family("groups, three or four")
def _(rng: np.random.Generator) -> Problem:
    return grouped(rng, _few(rng), 3, one_of(rng, 0, 0.1), n_groups=int(rng.integers(3, 5)))


@family("groups, noise")
def _(rng: np.random.Generator) -> Problem:
    return grouped(rng, _few(rng), one_of(rng, 1, 3), 0.1, noise=one_of(rng, 0.01, 0.05, 0.2))


@family("groups, tiny one")
def _(rng: np.random.Generator) -> Problem:
    """A dozen rows and columns that see each other only."""
    X = gaussian(rng, size(rng), 3)
    group = [np.zeros(n, dtype=int) for n in X.shape]
    for g in group:
        g[rng.choice(len(g), 14, replace=False)] = 1
    rate = np.where(group[0][:, None] == group[1], np.where(group[0][:, None] == 1, 1.0, 0.5), _few(rng))
    return cross(rng, X, seen(rng, X, rate), 3, 1.0, groups=(group[0], group[1]))


@family("groups, bridge of fewer rows than the rank")
def _(rng: np.random.Generator) -> Problem:
    return bridged(rng, 4, int(rng.integers(1, 4)))[0]


@family("groups, bridge of as many rows as the rank")
def _(rng: np.random.Generator) -> Problem:
    return bridged(rng, 4, int(rng.integers(4, 7)))[0]


@family("groups, bridge of corrupted rows")
def _(rng: np.random.Generator) -> Problem:
    """Enough rows see both groups, but of what they see half is wrong."""
    made, at = bridged(rng, 3, 8)
    wrong = rng.random((len(at), made.X.shape[1])) < 0.5
    Y = made.Y.copy()
    Y[at] = np.where(wrong & np.isfinite(Y[at]), rng.uniform(-10, 10, wrong.shape), Y[at])
    return replace(made, Y=Y)


def bridged(rng: np.random.Generator, rank: int, n_bridge: int) -> tuple[Problem, np.ndarray]:
    """Two groups that nothing ties together but `n_bridge` rows, which see all columns; and these rows."""
    made = grouped(rng, 0.0, rank, shape=size(rng, 160, 260), share=1.0)
    at = rng.choice(made.X.shape[0], n_bridge, replace=False)
    Y = made.Y.copy()
    Y[at] = seen(rng, made.X[at], 0.8)
    return replace(made, Y=Y), at


@family("groups, nearly tied")
def _(rng: np.random.Generator) -> Problem:
    return grouped(rng, one_of(rng, 0.06, 0.08, 0.1), one_of(rng, 1, 3, 8), one_of(rng, 0, 0.1))


@family("groups, tied by outliers alone")
def _(rng: np.random.Generator) -> Problem:
    """Much is seen across, and all of it is wrong."""
    made = grouped(rng, 0.2, 3, shape=size(rng, 160, 260))
    assert made.groups is not None
    across = made.groups[0][:, None] != made.groups[1]
    return replace(made, Y=np.where(across & np.isfinite(made.Y), rng.uniform(-5, 5, made.X.shape), made.Y))


@family("groups, of other instruments")
def _(rng: np.random.Generator) -> Problem:
    """What is seen across is larger by a factor. Three of the four blocks can be right together: three truths."""
    made = grouped(rng, one_of(rng, 0.1, 0.3), one_of(rng, 1, 3), shape=size(rng, 160, 260))
    assert made.groups is not None
    factor, (row_group, col_group) = one_of(rng, 1.05, 1.5, 3.0), made.groups
    Y = np.where(row_group[:, None] != col_group, factor * made.Y, made.Y)
    turned = row_group[:, None] - col_group  # 1 in one of the blocks across, -1 in the other
    return replace(made, Y=Y, instead=(made.X * factor**turned, made.X / factor**turned))


@family("groups, seen in turns")
def _(rng: np.random.Generator) -> Problem:
    """A row is seen in every third or fourth column: as many groups that never meet."""
    X = gaussian(rng, size(rng, 160, 260), 3)
    k = one_of(rng, 2, 3, 4)
    at = [np.arange(n) % k for n in X.shape]
    Y = np.where(at[0][:, None] == at[1], spoilt(rng, X, one_of(rng, 0, 0.1)), np.nan)
    return cross(rng, X, Y, 3, one_of(rng, 0.6, 1.0), groups=(at[0], at[1]))


@family("groups, outside of the core")
def _(rng: np.random.Generator) -> Problem:
    """The core is well tied; columns outside of it see rows that tell one component less."""
    n1, n2 = size(rng, 160, 300)
    left = rng.standard_normal((n1, 3))
    rows, cols = chosen(rng, n1, 0.5), chosen(rng, n2, 0.4)
    blind = rng.random(len(rows)) < 0.6  # of the chosen rows, those without the third component
    left[rows[blind], 2] = 0
    X = left @ rng.standard_normal((3, n2))
    rate = np.full((n1, n2), 0.6)
    odd = rng.permutation(outside(n2, cols))[: n2 // 5]  # columns that are seen in these rows alone, or nearly
    rate[np.ix_(rows[~blind], odd)] = one_of(rng, 0.0, 0.02)
    return cross(rng, X, seen(rng, spoilt(rng, X, one_of(rng, 0, 0.1)), rate), 3, rows=rows, cols=cols)


@family("groups, new columns seen in one of them")
def _(rng: np.random.Generator) -> Problem:
    """`transform_columns` with columns that are seen where a component is hardly there."""
    n1, n2 = size(rng, 160, 300)
    left = rng.standard_normal((n1, 3))
    rows = chosen(rng, n1, 0.5)
    blind = rng.random(len(rows)) < 0.5
    left[rows[blind], 2] *= one_of(rng, 0.0, 1e-3)
    right = rng.standard_normal((3, n2 + 40))
    X, new = left @ right[:, :n2], left @ right[:, n2:]
    rate = np.where(blind, 0.6, one_of(rng, 0.0, 0.03))[:, None]
    new_seen = seen(rng, spoilt(rng, new, 0.05)[rows], np.broadcast_to(rate, (len(rows), 40)))
    Y = seen(rng, spoilt(rng, X, 0.1), 0.6)
    return cross(rng, X, Y, 3, rows=rows, new=new, new_seen=new_seen, solver="transform")


# ---------------------------------------------------------------- patterns of what is seen


@family("band along the diagonal")
def _(rng: np.random.Generator) -> Problem:
    """Rows and columns meet only their neighbours: errors add up along the band."""
    X = gaussian(rng, size(rng, 160, 300), 3)
    i, j = (np.arange(n) / n for n in X.shape)
    near = np.abs(i[:, None] - j) < one_of(rng, 0.04, 0.06, 0.1, 0.2)
    return cross(rng, X, seen(rng, X, np.where(near, 0.9, 0.0)), 3, 1.0)


@family("band along the diagonal, noise")
def _(rng: np.random.Generator) -> Problem:
    """The same, with noise that adds up as well."""
    X = gaussian(rng, size(rng, 160, 300), 2)
    i, j = (np.arange(n) / n for n in X.shape)
    near = np.abs(i[:, None] - j) < one_of(rng, 0.06, 0.1, 0.2)
    return cross(rng, X, seen(rng, X + 0.05 * rng.standard_normal(X.shape), np.where(near, 0.9, 0.0)), 2, 1.0)


@family("rows that drop out one after the other")
def _(rng: np.random.Generator) -> Problem:
    X = gaussian(rng, size(rng), 3)
    last = rng.beta(0.7, 0.7, X.shape[0]) * X.shape[1]
    rate = np.where(np.arange(X.shape[1]) < last[:, None], 0.7, 0.0)
    return cross(rng, X, seen(rng, spoilt(rng, X, 0.05), rate), 3, one_of(rng, 0.6, 1.0))


@family("popular rows and columns")
def _(rng: np.random.Generator) -> Problem:
    """Numbers of observations with a heavy tail."""
    X = gaussian(rng, size(rng), 3)
    a, b = (np.clip(rng.pareto(1.0, n) + 0.15, 0, 3) for n in X.shape)
    return cross(rng, X, seen(rng, spoilt(rng, X, 0.05), np.clip(a[:, None] * b, 0, 1)), 3, 1.0)


@family("about rank + 2 observations of a column")
def _(rng: np.random.Generator) -> Problem:
    rank = int(rng.integers(2, 6))
    X = gaussian(rng, size(rng, 200, 300), rank)
    made = cross(rng, X, X, rank, 0.4)
    rate = np.full(X.shape, 0.7)
    rate[:, outside(X.shape[1], made.cols)] = rng.uniform(1, 2.5) * (rank + 2) / len(made.rows)
    return replace(made, Y=seen(rng, spoilt(rng, X, one_of(rng, 0, 0.05, 0.2)), rate))


@family("few observations, many outliers")
def _(rng: np.random.Generator) -> Problem:
    rank = int(rng.integers(1, 6))
    X = gaussian(rng, size(rng), rank)
    rate = min(rng.uniform(2, 8) * rank * sum(X.shape) / X.size, 1)
    return cross(rng, X, seen(rng, spoilt(rng, X, float(rng.uniform(0.1, 0.5))), rate), rank, 1.0)


@family("barely more chosen rows than components")
def _(rng: np.random.Generator) -> Problem:
    X = gaussian(rng, size(rng), 3)
    rows = np.sort(rng.choice(len(X), int(rng.integers(5, 10)), replace=False))
    return cross(rng, X, seen(rng, spoilt(rng, X, one_of(rng, 0, 0.05, 0.2)), 0.9), 3, rows=rows)


@family("the core hardly seen")
def _(rng: np.random.Generator) -> Problem:
    X = gaussian(rng, size(rng), 3)
    made = cross(rng, X, X, 3)
    rate = np.full(X.shape, 0.7)
    rate[np.ix_(made.rows, made.cols)] = one_of(rng, 0.05, 0.1, 0.15)
    return replace(made, Y=seen(rng, spoilt(rng, X, one_of(rng, 0, 0.1)), rate))


for _name, _changes in {
    "auto": {"rank": "auto"},
    "icurc": {"solver": "icurc"},
    "paper": {"solver": "paper"},
    "shards": {"solver": "shards"},
    "robust_pca": {"solver": "robust_pca"},
    "ratings": {"solver": "ratings"},
}.items():
    FAMILIES[f"groups, {_name}"] = lambda rng, changes=_changes: replace(  # type: ignore[misc]
        grouped(rng, _few(rng), 3, shape=(160, 150)), **changes
    )
