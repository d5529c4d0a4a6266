"""Who takes part, and how: each package in the way that its own documentation shows.

A method is a function that imports what it needs, brings the problem into the form the package wants, and returns the
work to be timed. What comes out of the work is a dense matrix (n1, n2) or one with ``to_dense``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import rcurc_gpu as rg
from bench.real import RealProblem, call
from bench.robust_bayes import medians

from .partial_svd import exchange_qolmat, exchange_tensorly
from .problems import CHOSEN, RATE, VIDEO_CHOSEN, VIDEO_RATE, Problem
from .soft_impute import after_dropping

Work = Callable[[], Any]
OURS = "rcurc-gpu"
PARTIAL_SVD = "RCURC_PEERS_PARTIAL_SVD"  # the environment says "1" to the processes of `run`


@dataclass(frozen=True)
class Method:
    """One competitor.

    Attributes
    ----------
    name : str
    package : str
        The distribution it comes from, as pip knows it.
    kinds : tuple of str
        The problems it can take.
    prepare : callable
        Gives the work for a problem.
    takes : callable
        Whether it has anything to say about a problem of these kinds.
    """

    name: str
    package: str
    kinds: tuple[str, ...]
    prepare: Callable[[Problem], Work]
    takes: Callable[[Problem], bool] = lambda problem: True


def threads() -> int:
    """How many threads a method may use; `run` sets the variable for every library."""
    return int(os.environ.get("OMP_NUM_THREADS", "1"))


def partial_svd() -> bool:
    """Whether to exchange full SVDs for partial ones."""
    return os.environ.get(PARTIAL_SVD) == "1"


# ---------------------------------------------------------------- ours


# The others never say that they could not determine a column, so ours do not either: "keep" counts every entry.


def _robust_pca(problem: Problem) -> Work:
    return lambda: rg.robust_pca(problem.Y, problem.rank, undetermined="keep").cur


def _ircur(problem: Problem) -> Work:
    return lambda: rg.ircur(problem.Y, problem.rank, undetermined="keep").cur


def _rcurc(problem: Problem) -> Work:
    """On the cross that was observed, or on one drawn from a matrix that is all there."""
    seen = problem.with_nan()

    def samples() -> rg.CrossSamples:
        if problem.mask is not None:
            return rg.CrossSamples.from_dense(seen, problem.rows, problem.cols)
        chosen, rate = (VIDEO_CHOSEN, VIDEO_RATE) if problem.kind == "video" else (CHOSEN, RATE)
        return rg.ccs_sample(seen, *(round(chosen * n) for n in seen.shape), rate, rate, seed=0)

    return lambda: rg.rcurc(samples(), problem.rank, undetermined="keep").cur


def _default_call(problem: Problem) -> Work:
    """A real matrix as `bench.real` does it."""
    made = RealProblem(problem.truth, problem.with_nan(), problem.rows, problem.cols, problem.counts)
    return lambda: call(made)().cur


# ---------------------------------------------------------------- principal component pursuit


def _pursuit_weight(problem: Problem) -> float:
    """lambda of principal component pursuit, 1 / sqrt(n), with p n for a share p observed: Candes, Li, Ma and Wright 2011,
    theorems 1.1 and 1.2."""
    return float(1 / np.sqrt(problem.share * max(problem.Y.shape)))


def _tensorly(problem: Problem) -> Work:
    from tensorly.decomposition import robust_pca

    if partial_svd():
        exchange_tensorly()
    # Its objective has the nuclear norm once for each of the two modes, so the weight of the sparse part doubles. The
    # default of 100 iterations ends long before its own tolerance does.
    options: dict[str, Any] = {"reg_E": 2 * _pursuit_weight(problem), "n_iter_max": 1000, "verbose": 0}
    if problem.kind != "real":
        return lambda: robust_pca(problem.Y, mask=problem.mask, **options)[0]
    # Its first step is fixed, and too long where values are in the thousands; and it shrinks offsets as all else. Both
    # cost it much: hgt "whole" 0.26 without the division, 0.0022 with it; cotemp "cross" 0.50 with offsets, 0.16 without.
    seen = problem.with_nan()

    def work() -> np.ndarray:
        base = medians(seen)
        scale = np.nanstd(seen - base)
        return base + scale * robust_pca(np.nan_to_num((seen - base) / scale), mask=problem.mask, **options)[0]

    return work


def _pyrpca(problem: Problem) -> Work:
    from pyrpca import rpca_pcp_ialm

    # README: sparsity_factor = 1 / sqrt(max(data.shape))
    if problem.mask is None:
        return lambda: rpca_pcp_ialm(problem.Y, _pursuit_weight(problem), verbose=False)[0]
    # It knows nothing of missing entries; medians of rows and columns stand in for them.
    seen, weight = problem.with_nan(), float(1 / np.sqrt(max(problem.Y.shape)))

    def work() -> np.ndarray:
        filled = np.where(np.isnan(seen), medians(seen), seen)
        return rpca_pcp_ialm(filled, weight, verbose=False)[0]

    return work


def _qolmat_pcp(problem: Problem) -> Work:
    from qolmat.imputations.rpca.rpca_pcp import RpcaPcp

    if partial_svd():
        exchange_qolmat()
    seen = problem.with_nan()
    model = RpcaPcp(lam=_pursuit_weight(problem), verbose=False)
    return lambda: model.decompose(seen, ~np.isnan(seen))[0]


# ---------------------------------------------------------------- methods that are told the rank


def _qolmat_noisy(problem: Problem) -> Work:
    from qolmat.imputations.rpca.rpca_noisy import RpcaNoisy

    # Its benchmark notebook takes 500 iterations; the tolerance is not met in the default of 10 000 either.
    seen = problem.with_nan()
    model = RpcaNoisy(rank=problem.rank, max_iterations=500, random_state=0, verbose=False)
    return lambda: model.decompose(seen, ~np.isnan(seen))[0]


def _rpca(problem: Problem) -> Work:
    from rpca import RobustPCA

    # It subtracts the mean of every column, outliers included, before it starts: the rest has rank r + 1.
    model = RobustPCA(n_components=problem.rank + 1, verbose=False)

    def work() -> np.ndarray:
        model.fit(problem.Y)
        return model.low_rank_ + model.mean_

    return work


def _cmfrec(problem: Problem) -> Work:
    from cmfrec import CMF

    # No biases and no centring: the matrix has neither. Its own example for imputation (example/cmfrec_imputer.ipynb)
    # keeps the default penalty of 10 on the factors.
    seen = problem.with_nan()
    plain = {"user_bias": False, "item_bias": False, "center": False, "use_float": False}
    model = CMF(k=problem.rank, nthreads=threads(), verbose=False, **plain)

    def work() -> np.ndarray:
        model.fit(seen)
        return model.A_ @ model.B_.T

    return work


# ---------------------------------------------------------------- backgrounds of videos


def _median(problem: Problem) -> Work:
    """One picture for all frames."""
    return lambda: np.broadcast_to(np.median(problem.Y, axis=1, keepdims=True), problem.Y.shape)


def _mog2(problem: Problem) -> Work:
    import cv2

    cv2.setNumThreads(threads())
    height, width = problem.frame_shape or (0, 0)
    pictures = np.ascontiguousarray(problem.Y.T.astype(np.uint8).reshape(-1, height, width))

    def work() -> np.ndarray:
        # The documentation: detecting shadows makes it slower, and plays no part in the background.
        model = cv2.createBackgroundSubtractorMOG2(detectShadows=False)
        for picture in pictures:  # it learns while it looks, so the clip is shown twice
            model.apply(picture)
        found = np.empty(problem.Y.shape)
        for k, picture in enumerate(pictures):
            model.apply(picture)
            found[:, k] = model.getBackgroundImage().ravel()
        return found

    return work


# ---------------------------------------------------------------- tables with gaps


def _medians(problem: Problem) -> Work:
    """Of rows and columns."""
    seen = problem.with_nan()
    return lambda: medians(seen)


def _soft_impute(problem: Problem) -> Work:
    seen = problem.with_nan()
    return lambda: after_dropping(seen)


def _knn(problem: Problem) -> Work:
    from sklearn.impute import KNNImputer

    seen, model = problem.with_nan(), KNNImputer(keep_empty_features=True)
    return lambda: model.fit_transform(seen)


def _iterative(problem: Problem) -> Work:
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    seen, model = problem.with_nan(), IterativeImputer(random_state=0, keep_empty_features=True)
    return lambda: model.fit_transform(seen)


def _asks_for_gaps(problem: Problem) -> bool:
    """Imputers return what was observed as it was: there is nothing to score where all of that is asked for."""
    return problem.mask is not None and problem.counts is not None and not (problem.mask & problem.counts).any()


METHODS = (
    Method("rcurc or robust_pca, default call", OURS, ("real",), _default_call),
    Method("robust_pca", OURS, ("full", "video"), _robust_pca),
    Method("rcurc", OURS, ("full", "cross", "video"), _rcurc),
    Method("ircur", OURS, ("full", "video"), _ircur),
    Method("rpca", "rpca", ("full", "video"), _rpca),
    Method("pyrpca", "pyrpca", ("full", "video", "real"), _pyrpca),
    Method("qolmat RpcaNoisy", "qolmat", ("full", "cross", "video"), _qolmat_noisy),
    Method("qolmat RpcaPcp", "qolmat", ("full", "cross", "video"), _qolmat_pcp),
    Method("tensorly robust_pca", "tensorly", ("full", "cross", "video", "real"), _tensorly),
    Method("cmfrec CMF", "cmfrec", ("cross",), _cmfrec),
    Method("OpenCV MOG2", "opencv-contrib-python-headless", ("video",), _mog2),
    Method("temporal median", "numpy", ("video",), _median),
    Method("row and column medians", "numpy", ("real",), _medians),
    Method("MAD, then soft-impute", "scipy", ("real",), _soft_impute),
    Method("scikit-learn KNNImputer", "scikit-learn", ("real",), _knn, _asks_for_gaps),
    Method("scikit-learn IterativeImputer", "scikit-learn", ("real",), _iterative, _asks_for_gaps),
)
