"""The core by Gauss-Newton steps, for problems on which the iteration of `iteration` fails.

That iteration takes gradient steps: it needs about half as many observations again, and where singular values differ by 100
it does not come to rest. Here U = L R^T moves along its tangent space. Each step minimises

    sum_ij w_ij (Y_ij - U_ij - A_i . R_j - L_i . B_j)^2 + sum_q l_q (|L_q + A_q|^2 + |R_q + B_q|^2)

over A and B, by conjugate gradients. What is annealed is a scale s, which falls by 0.8 from step to step:

- The weights are those of Geman and McClure, w = 1 / (1 + (residual / s)^2)^2. They are smooth: an entry that was taken for
  an outlier too early comes back.
- The ridge l_q = 0.15 s^2 / d_q, d_q the size of component q, is the prior of a component of that size. It keeps rows with
  few observations from running away. Components below the noise of the outliers vanish; as s falls, those that are real
  come back, the larger ones first. So neither very different singular values nor too large a rank does harm.

A few rows and columns may end wrong; `recheck` mends them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..backends.arrays import MAD_TO_SIGMA, Array, array_namespace, device_of, inverse, quantile_abs
from ..backends.blocks import Block
from ..backends.kernels import RunContext, Step
from ..backends.linalg import subspace_svd
from ..backends.operators import product_svd, random_start, sketch_width
from ..backends.plain.loop import Entries, Factors, residuals
from ..backends.plain.tangent import Side
from .history import IterationState
from .iteration import Core, diverged, finished, finished_state, note, robust_sigma
from .problem import CoreProblem, dof_share

# All numbers here were found on n = 300, r = 5 at 2 to 5 observations per unknown, with 10 to 40 % outliers, condition
# numbers 1, 100 and 1000, and a rank that is too large by 5 or 15 (`bench.phase` has most of these problems).
GAMMA = 0.8  # decay of the scale: 0.9 is twice the work for no more recovered, 0.7 recovers nearly as many
_FIRST = 3.0  # first scale, in standard deviations of the first residuals; 1 and 5 recover fewer
_PRIOR = 0.15  # of the ridge: with 0.1 less is recovered at 30 % outliers, with 0.3 all components may vanish for good
# Largest ridge, over scale and root of the observations per row: what outliers alone give as a singular value. With 0.13
# one in six problems of condition number 100 is lost, and components that are too many stay.
_MOST_RIDGE = 0.2
_DAMPING = 1e-6  # of normal equations, over their mean: for rows without observations, and for the free choice of basis
_CLIP = 1.0  # medians at which observations are clipped for the start; at 3 outliers lead it astray
_START_STEPS = 12  # of the subspace iteration for the start: it is a rough guess anyway
_MOST_STEPS = 150  # of Gauss-Newton; 40 to 60 are usual, 110 take the scale from the start to the floor
# The scale never falls below so many median residuals: those of inliers shrink with the scale and are below a third of it
# even with 45 % outliers. If they do not, they are noise, or the start was in vain.
_FLOOR = 2.0
_LEAST_SCALE = 1e-9  # over a typical entry; float32 has its rounding instead
_SOLVED = 1e-6  # median residual over a typical entry from which the scale falls to the floor at once ...
_FAR_BELOW = 1e-4  # ... if it is so far below the scale
_HELD_STEPS = 10  # at the lowest scale, after which a core that still moves is given up
_NOISY_STEPS = 3  # at a scale that residuals hold up: the noise model does better
_FALLEN = 0.01  # of the first scale, below which `most_outliers` is asked for
_REST = 1e-9  # relative change that counts as none
_LEAST_RATIO = 1.7  # observations per unknown below which nothing is recovered even without outliers
_MOST_WORK = 2e5  # observations times rank: a tenth of a second where there is noise, half a second where there is none
_ZEROS = 0.2  # share of the entries that are 0 from which all others may be taken for outliers
_CG_TOL, _CG_MOST = 1e-2, 30  # each step is solved to 1 %: 1e-3 takes twice the time and recovers no more


def most_components(data: CoreProblem) -> int:
    """The largest rank at which the steps may still recover a core, and which does not cost much more than a first look."""
    return min(int(data.count / (_LEAST_RATIO * sum(data.grid.shape))), int(_MOST_WORK / data.count), *data.grid.shape)


def is_suited(data: CoreProblem) -> bool:
    """Whether the steps may find more than zeros."""
    return data.zeros <= _ZEROS


@dataclass(frozen=True, eq=False)
class _Sides:
    """Rows and columns of the intersection."""

    rows: Side
    cols: Side
    per_unit: float  # observations of a row or column, about

    @classmethod
    def of(cls, data: CoreProblem, run: RunContext) -> _Sides:
        block, weight = data.block, data.weight
        flipped = Block(block.indptr, block.index, weight, block.length).transpose().value
        make = run.kernels.make_side
        m, n = data.grid.shape
        per_unit = data.count * ((m**-0.5 + n**-0.5) / 2) ** 2
        return cls(make(block, weight, run.chunk_bytes), make(data.by_cols, flipped, run.chunk_bytes), per_unit)


def solve_gauss_newton(
    data: CoreProblem,
    rank: int,
    run: RunContext,
    start: Factors | None = None,
    step: Step | None = None,
    most_outliers: float = 1.0,
) -> Core:
    """Solve the core by Gauss-Newton steps from a spectral guess, or from `start`.

    A callback that returns True ends it. `step` keeps the result in the store. With more than `most_outliers`, a share of
    the observations, it is given up: on noisy data half of them may be fitted by chance, step by step.
    """
    if step is not None and step.saved is not None and "sigma" in step.saved:
        return finished(step.saved, data.weight)
    xp = array_namespace(data.weight)
    sides = _Sides.of(data, run)
    i, j, y = data.sample
    sample: Entries = (i, j, xp.astype(y, xp.float64))
    size = float(quantile_abs(sample[2]))
    left, right = _halves(*(_spectral(data, sides, rank, size, run.seed) if start is None else map(_double, start)))
    least = max(_LEAST_SCALE, 30 * float(xp.finfo(y.dtype).eps)) * size
    scale = max(_FIRST * MAD_TO_SIGMA * float(quantile_abs(residuals(left, right, sample))), least)
    history: list[IterationState] = []
    stopped = ended = False
    n_held, most_held, fallen = 0, _HELD_STEPS, _FALLEN * scale
    while len(history) < _MOST_STEPS and not (stopped or ended or n_held >= most_held or diverged(history)):
        if scale < fallen and history[-1].outlier_share > most_outliers:
            break
        A, B = _step(sides, left, right, scale)
        change = (_square(A) / max(_square(left), 1e-300) + _square(B) / max(_square(right), 1e-300)) ** 0.5
        left, right = _halves(*product_svd(left + A, right + B))
        residual = residuals(left, right, sample)
        middle = float(quantile_abs(residual))
        history.append(_state(len(history) + 1, residual, sample[2], scale, change, run.clock()))
        note(history[-1])
        ended = run.progress.iteration is not None and run.progress.iteration(history[-1]) is True
        lowest = max(_FLOOR * middle, least)
        held = scale <= lowest
        n_held += held
        most_held = _HELD_STEPS if lowest == least else _NOISY_STEPS
        stopped = held and change <= max(_REST, 1e-3 * middle / size)  # a thousandth of the noise, as in `iteration`
        solved = middle < min(_SOLVED * size, _FAR_BELOW * scale)
        scale = lowest if solved else max(GAMMA * scale, lowest)
    W, s, V = (xp.astype(x, y.dtype) for x in product_svd(left, right))
    sigma = robust_sigma(residuals(W * s, V, data.sample), scale, dof_share(data, rank))
    core = Core(W, s, V, stopped, history, sigma, scale)
    if step is not None and not ended:
        step.save(finished_state(core))
    return core


def _double(x: Array) -> Array:
    xp = array_namespace(x)
    return xp.astype(x, xp.float64)


def _square(x: Array) -> float:
    return float(array_namespace(x).sum(x * x))


def _halves(W: Array, s: Array, V: Array) -> tuple[Array, Array]:
    """Factors of the same matrix whose columns are of the same size in both: ridges then mean the same on both sides."""
    root = array_namespace(s).sqrt(s)
    return W * root, V * root


def _spectral(data: CoreProblem, sides: _Sides, rank: int, size: float, seed: int) -> Factors:
    """The leading singular triplets of the clipped observations, over the share that is observed."""
    like = _double(data.weight[:1])
    n = data.grid.shape[1]
    begin = random_start(n, sketch_width(rank, data.grid.shape), like, seed)
    clip = _CLIP * size
    W, s, V = subspace_svd(
        lambda X: sides.rows.clipped(X, clip), lambda X: sides.cols.clipped(X, clip), begin, rank, _START_STEPS
    )
    return W[:, :rank], s[:rank] / data.rate, V[:, :rank]


def _state(k: int, residual: Array, y: Array, scale: float, change: float, seconds: float) -> IterationState:
    xp = array_namespace(residual)
    out = xp.abs(residual) >= scale
    inlying = xp.where(out, xp.zeros_like(residual), residual)
    error = _square(inlying) / max(_square(y), 1e-300)
    share = float(xp.mean(xp.astype(out, residual.dtype)))
    return IterationState(k, error, scale, share, change, seconds)


def _ridge(left: Array, right: Array, scale: float, per_unit: float) -> Array:
    """l_q of each component (r,)."""
    xp = array_namespace(left)
    sizes = xp.sqrt(xp.sum(left * left, axis=0) * xp.sum(right * right, axis=0) / (left.shape[0] * right.shape[0]))
    least = _PRIOR * scale / (_MOST_RIDGE * per_unit**0.5)  # of a size that gives the largest ridge
    return _PRIOR * scale**2 / xp.where(sizes > least, sizes, xp.full_like(sizes, least))


def _step(sides: _Sides, left: Array, right: Array, scale: float) -> tuple[Array, Array]:
    """A and B of one Gauss-Newton step.

    For each B the best A follows row by row, so A is eliminated: what is left are equations for B alone, which conjugate
    gradients solve in half as many iterations as both. They are preconditioned by their diagonal blocks.
    """
    ridge = _ridge(left, right, scale, sides.per_unit)
    of_rows, H, b = sides.rows.weigh(left, right, scale)
    of_cols, K, d = sides.cols.weigh(right, left, scale)
    b, d = b - left * ridge, d - right * ridge
    row_inverse, (col_matrix, col_inverse) = _regular(H, ridge)[1], _regular(K, ridge)

    def rows_from(B: Array) -> Array:
        return sides.rows.couple(of_rows, left, B)

    def cols_from(A: Array) -> Array:
        return sides.cols.couple(of_cols, right, A)

    def product(B: Array) -> Array:
        return _each(col_matrix, B) - cols_from(_each(row_inverse, rows_from(B)))

    B = _conjugate_gradients(product, d - cols_from(_each(row_inverse, b)), col_inverse)
    return _each(row_inverse, b - rows_from(B)), B


def _regular(G: Array, ridge: Array) -> tuple[Array, Array]:
    """Gram matrices (u, r, r) with the ridge and a hair of damping, and their inverses."""
    xp = array_namespace(G)
    r = G.shape[1]
    eye = xp.eye(r, dtype=G.dtype, device=device_of(G))
    damping = _DAMPING * xp.sum(G * eye) / (r * G.shape[0])
    G = G + eye * (ridge + damping)
    return G, inverse(G)


def _each(M: Array, x: Array) -> Array:
    """(u, r, r) times (u, r)."""
    return (M @ x[:, :, None])[:, :, 0]


def _conjugate_gradients(product: Callable[[Array], Array], rhs: Array, inverse: Array) -> Array:
    """Solve ``product(x) = rhs`` to `_CG_TOL`, preconditioned by inverse blocks (u, r, r)."""
    xp = array_namespace(rhs)
    x, rest = xp.zeros_like(rhs), rhs
    z = along = _each(inverse, rest)
    now = first = float(xp.sum(rest * z))
    for _ in range(_CG_MOST):
        if not now > _CG_TOL**2 * first:
            break
        image = product(along)
        curvature = float(xp.sum(along * image))
        if not curvature > 0:  # rounding, or nothing left
            break
        x = x + now / curvature * along
        rest = rest - now / curvature * image
        z = _each(inverse, rest)
        before, now = now, float(xp.sum(rest * z))
        along = z + now / before * along
    return x
