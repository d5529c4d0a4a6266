"""Iterated Robust CUR: robust PCA of a fully observed matrix, with new rows I and columns J in every iteration."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import numpy as np

from ..backends.arrays import (
    Array,
    array_namespace,
    asarray_on,
    bring,
    device_of,
    device_scope,
    hand_back,
    home_of,
    is_array,
    native,
    quantile_abs,
    take_rows,
)
from ..backends.blocks import others
from ..backends.devices import place_for
from ..backends.operators import hard_threshold, invert, product_svd, truncated_svd
from ..backends.plain.grid import residuals
from ..backends.random import Stream, generator
from ..core.history import IterationState
from ..core.iteration import Core, note, robust_sigma
from ..errors import check_number
from ..options import Settings, Where, check_rank
from ..progress import Progress
from ..result.result import Result
from ..samples.building import float_values
from ..samples.dense import DenseReader, cross_size, dense_source
from .conclude import announced, concluded
from .engine import InProcess, context_of
from .rejected import with_rejected
from .scaling import matrix_at, power_of_two, rescaled, state_at
from .search import CoreSearch
from .sides import Sides
from .solved import Extended
from .supply import in_memory

# zeta_0 over max|Y|. With the authors' 1, pixels that are always white are outliers from the start and become holes: 22.8 dB
# on the video vtest.avi.
_ABOVE = 1.001


def solve_ircur(Y: Any, rank: int | str, given: dict[str, Any]) -> Result:
    """`ircur` with the arguments that were `given`."""
    Y = dense_source(Y)
    home, Y = home_of(Y), native(Y, "Y")
    corner = Y[:1, :1]
    corner = float_values("Y", corner if is_array(corner) else np.asarray(corner))
    # a tenth of a cross that the iteration did not use: all of it could be held out, and a tenth is plenty
    settings = Settings.checked(corner.dtype, given | {"holdout": 0.1, "sweeps": 0})
    oversampling = check_number("oversampling", given["oversampling"], 1)
    most = min(Y.shape) // 4 - 2  # a quarter is left to judge by, and a fit needs rank + 2 observations
    if most < 1:
        raise ValueError(f"Y must have at least 12 rows and columns, got shape {tuple(Y.shape)}")
    rank = check_rank(rank, most, "min(n1, n2) / 4 - 2")
    where = Where.checked(given)
    like = place_for(where.device, corner[0, :])
    largest = DenseReader(Y, like).largest
    if largest == 0:
        raise ValueError("Y is 0 everywhere: there is nothing to recover")
    scale = power_of_two(largest, like)
    reader = DenseReader(Y, like, scale)
    settings = replace(settings, zeta0=_ABOVE * largest / scale if settings.zeta0 is None else settings.zeta0 / scale)
    callback = settings.callback
    watch = None if callback is None else lambda state: callback(state_at(state, like, scale))
    with Progress(where.progress, watch) as show, device_scope(like):
        result = rescaled(_solve(reader, rank, oversampling, settings, show), scale)
        return announced(replace(result, cur=result.cur.mapped(lambda x: hand_back(x, home))))


def _solve(reader: DenseReader, rank: int | str, oversampling: float, settings: Settings, show: Progress) -> Result:
    """Find the rank if need be, iterate, and judge on a cross that the last iteration did not use."""
    started = time.perf_counter()
    rng = generator(settings.seed, Stream.IRCUR)
    curve = None
    if isinstance(rank, str):
        # the rank is chosen as in robust_pca: on a cross, by the schedules of rcurc and its default holdout
        free = replace(settings, zeta0=None, gamma=None, max_iter=None, holdout=0.03)
        chosen = [np.sort(rng.choice(n, cross_size(rank, n), replace=False)) for n in reader.Y.shape]
        supply = in_memory(reader.cross(*chosen), reader.like)
        curve = CoreSearch(supply.view, free, context_of(free, reader.like, show)).choose_rank()
        rank = curve.chosen
    left, right, looked_at, stopped, history = _iterate(reader, rank, oversampling, settings, rng, show, started)
    rest = [others(seen, n) for seen, n in zip(looked_at, reader.Y.shape, strict=True)]
    rows, cols = (np.sort(rng.choice(part, min(len(part), cross_size(rank, len(part))), replace=False)) for part in rest)
    supply = in_memory(replace(reader, scale=1.0).cross(rows, cols), reader.like)
    run = replace(context_of(settings, reader.like, show), started=started)
    judge = CoreSearch(supply.view.scaled(1 / reader.scale), replace(settings, zeta0=None), run)
    # X on the cross as an SVD, and the coefficients of the other columns and rows in it
    at_rows, at_cols = (take_rows(f, asarray_on(k, f)) for f, k in ((left, rows), (right, cols)))
    W, s, V = product_svd(at_rows, at_cols)
    sample = residuals(W * s, V, judge.data.sample)
    zeta = history[-1].threshold
    # zeta decays to nothing and cannot tell inliers: five medians (3.4 standard deviations) can
    core = Core(W, s, V, stopped, history, robust_sigma(sample, 5 * quantile_abs(sample)), zeta)
    coefficients = {"r": (right @ (at_rows.T @ W), cols), "c": (left @ (at_cols.T @ V), rows)}
    home = supply.shards["r"][0].load().value
    outside = {
        side: bring(take_rows(a, asarray_on(others(k, a.shape[0]), a)), home) for side, (a, k) in coefficients.items()
    }
    assert settings.gamma is not None
    solved = judge.judged_given(core, settings.gamma, curve, rank)
    sides = Sides(supply.shards, solved, (rows, cols), reader.scale, InProcess(judge.run), "auto", show, outside)
    found = Extended(sides.extended(), sides.whole, sides.outside)
    factors = {side: sides.engine.collect(found.parts[side]) for side in "rc"}
    found = with_rejected(solved, supply, factors, found, reader.scale, sides.engine)
    result = concluded(solved, supply, factors, found, reader.scale, run.clock())
    return replace(result, cur=matrix_at(result.cur, supply.like), method="ircur")


def _iterate(
    reader: DenseReader,
    rank: int,
    oversampling: float,
    settings: Settings,
    rng: np.random.Generator,
    show: Progress,
    started: float,
) -> tuple[Array, Array, tuple[np.ndarray, np.ndarray], bool, list[IterationState]]:
    """Factors (n1, r) and (n2, r), the last I and J, whether the stopping rule was met, and the history."""
    like, (n1, n2) = reader.like, reader.Y.shape
    xp = array_namespace(like)

    def size(block: Array) -> float:
        return float(xp.linalg.vector_norm(block)) or 1.0  # relative to a block of zeros, all errors are 0

    left, right = (xp.zeros((n, rank), dtype=like.dtype, device=device_of(like)) for n in (n1, n2))
    zeta, history, stopped = settings.zeta0, [], False
    gamma, max_iter = settings.gamma, settings.max_iter
    assert zeta is not None  # all three have values here, which the arguments of rcurc need not
    assert gamma is not None
    assert max_iter is not None
    show.stage(f"IRCUR, rank {rank}")
    for k in range(1, max_iter + 1):
        # new I and J in each iteration; X = left right^T is known everywhere, but formed on I and J only
        I, J = (_draw(rng, n, oversampling * rank * math.log(n)) for n in (n1, n2))  # noqa: E741
        at_I, at_J = asarray_on(I, like), asarray_on(J, like)
        D_R, D_C = reader.rows(I), reader.cols(J)
        X_R, X_C = take_rows(left, at_I) @ right.T, left @ take_rows(right, at_J).T
        S_R, S_C = hard_threshold(D_R - X_R, zeta), hard_threshold(D_C - X_C, zeta)
        R, C = D_R - S_R, D_C - S_C
        # X = C U^+ R with U the rank-r part of R on J, U = W diag(s) V^T: left = C V diag(1/s), right = R^T W
        W, s, V = truncated_svd(xp.take(R, at_J, axis=1), rank, seed=settings.seed)
        left, right = (C @ V) * invert(s), R.T @ W
        new_R = take_rows(left, at_I) @ right.T
        new_C = left @ take_rows(right, at_J).T
        norm = xp.linalg.vector_norm
        error = float(norm(R - new_R)) / size(D_R) + float(norm(C - new_C)) / size(D_C)
        change = float(norm(new_R - X_R)) / size(new_R)
        share = float(xp.mean(xp.astype(S_R != 0, like.dtype)))
        history.append(IterationState(k, error, zeta, share, change, time.perf_counter() - started))
        note(history[-1])
        stopped = error < settings.tol and k > 1  # the first change is from nothing
        ended = show.iteration is not None and show.iteration(history[-1])
        if stopped or ended or not math.isfinite(error):
            break
        zeta *= gamma
    return left, right, (I, J), stopped, history


def _draw(rng: np.random.Generator, n: int, size: float) -> np.ndarray:
    """Draw `size` numbers below `n` with replacement; each is returned once, and at most three quarters of all."""
    # 20 n draws hit nearly all n numbers (each is missed with a chance of e^-20), so more would only cost memory
    drawn = rng.permutation(np.unique(rng.integers(n, size=math.ceil(min(size, 20 * n)))))
    return np.sort(drawn[: 3 * n // 4])
