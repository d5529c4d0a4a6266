"""The checks of the plain code: operators, random numbers, the whole solve."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np

from ..api import rcurc
from ..backends import operators
from ..backends.operators import truncated_svd
from ..backends.random import uniform_at
from ..errors import ConvergenceWarning
from ..testing.synthetic import synthetic
from .selftest import Check, Place, Trial, largest_difference

_DTYPES = ("float32", "float64")
_MASK = (1 << 64) - 1


def operator_checks(group: str, operators: Any) -> list[Check]:
    """The paper's entrywise operators, of a module that has them."""
    checks = []
    for dtype in _DTYPES:
        threshold, union = (partial(make, operators, dtype) for make in (_hard_threshold, _union_sum))
        checks.append(Check(group, f"hard_threshold, {dtype}", threshold, 3000, 4_000_000, 20_000_000))
        checks.append(Check(group, f"union_sum, {dtype}", union, 40, 1500, 3000))
    return checks


def plain_checks() -> list[Check]:
    """What there is to check without fused kernels."""
    svd = [Check("plain", f"truncated_svd, {dtype}", partial(_truncated_svd, dtype), 40, 600, 3000) for dtype in _DTYPES]
    uniform = Check("plain", "uniform_at", _uniform_at, 500, 1_000_000, 10_000_000)
    return [*operator_checks("plain", operators), *svd, uniform]


def solve_checks(place: Place) -> list[Check]:
    """Whole solves, against the truth of a synthetic problem: compiled, plain, and streamed to a device."""
    ways: dict[str, dict[str, Any]] = {"auto": {}, "plain": {"kernels": "xp"}}
    if place.on_gpu:
        ways["from the host"] = {"device": place.name}
    checks = []
    for method, tolerance, large, larger in (("fast", 1e-8, 2000, 4000), ("paper", 1e-4, 1000, 2000)):
        parts = {name: partial(_solve, method, tolerance, way) for name, way in ways.items()}
        checks.append(Check("solve", f"rcurc, method {method}", parts, 120, large, larger))
    return checks


def _hard_threshold(operators: Any, dtype: str, place: Place, size: int) -> Trial:
    M = np.resize(np.random.default_rng(1).uniform(-2, 2, 1_000_003).astype(dtype), size)
    here = place.array(M)

    def difference(got: Any) -> float:
        want = np.zeros_like(M)
        large = np.abs(M) >= np.asarray(0.8, dtype)
        want[large] = M[large]
        return largest_difference(got, want)

    return Trial(lambda: operators.hard_threshold(here, 0.8), difference, 0.0, 2.0 * M.nbytes, "B")


def _union_sum(operators: Any, dtype: str, place: Place, size: int) -> Trial:
    rng = np.random.default_rng(2)
    R, C, X = (rng.random((size, size), dtype=np.dtype(dtype).type) for _ in range(3))
    seen_R, seen_C = (rng.random((size, size), dtype=np.float32) < 0.4 for _ in range(2))
    arguments = {"R_inter": R, "C_inter": C, "seen_R": seen_R, "seen_C": seen_C, "X": X}
    here = {name: place.array(x) for name, x in arguments.items()}

    def difference(got: Any) -> float:
        weight_R, weight_C = seen_R / 0.7, seen_C / 1.4  # means weighted by one over the step
        total = weight_R + weight_C
        want = np.where(total > 0, (weight_R * R + weight_C * C) / np.where(total > 0, total, 1), X)
        return largest_difference(got, want)

    tolerance, moved = 8 * float(np.finfo(dtype).eps), 4.0 * R.nbytes + 2.0 * seen_R.nbytes
    return Trial(lambda: operators.union_sum(step_rows=0.7, step_cols=1.4, **here), difference, tolerance, moved, "B")


def _truncated_svd(dtype: str, place: Place, size: int) -> Trial:
    """Against LAPACK's full SVD: singular values and the rank-4 part."""
    rng = np.random.default_rng(3)
    rank, eps = 4, float(np.finfo(dtype).eps)
    left, right = (np.linalg.qr(rng.standard_normal((n, rank)))[0] for n in (size, size + 5))
    M = ((left * [8, 5, 3, 2]) @ right.T + 1e-3 * rng.standard_normal((size, size + 5)) / np.sqrt(size)).astype(dtype)
    here = place.array(M)

    def difference(got: tuple[Any, Any, Any]) -> float:
        u, s, vt = np.linalg.svd(M.astype(np.float64), full_matrices=False)
        W, values, V = got
        want = (s[:rank], (u[:, :rank] * s[:rank]) @ vt[:rank])
        return largest_difference((values, (W * values) @ V.T), want)

    return Trial(lambda: truncated_svd(here, rank, tol=100 * eps), difference, 1e3 * eps, float(M.size), "obs")


def _uniform_at(place: Place, size: int) -> Trial:
    """Bit by bit against integers of Python."""
    rng = np.random.default_rng(4)
    i, j = rng.integers(0, 1 << 31, size), rng.integers(0, 1 << 31, size)
    here = place.array(i), place.array(j)

    def difference(got: Any) -> float:
        return largest_difference(got, np.asarray([_uniform(int(a), int(b), 7, 11) for a, b in zip(i, j, strict=True)]))

    return Trial(lambda: uniform_at(*here, 7, 11), difference, 0.0, float(size))


def _uniform(i: int, j: int, seed: int, stream: int) -> float:
    """The number that belongs to (i, j): splitmix64's finaliser on the position and the mixed seed."""

    def mix(z: int) -> int:
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & _MASK
        return z ^ z >> 31

    def start(z: int) -> int:
        return mix((z + 0x9E3779B97F4A7C15) & _MASK)

    z = mix((i << 32) + j ^ start(start(seed) ^ stream))
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    return float((z ^ z >> 31) >> 11) * 2.0**-53


def _solve(method: str, tolerance: float, way: dict[str, Any], place: Place, size: int) -> Trial:
    """The largest problem is chosen so that it takes a second or two without compiled kernels."""
    share = 0.5 if size < 500 else 0.3
    rate = 0.6 if size < 500 else 0.3
    chosen = round(share * size)
    problem = synthetic((size, size), 2, alpha=0.1, n_rows=chosen, n_cols=chosen, rate=rate, seed=5)
    there = place.on_gpu and "device" not in way
    samples = problem.samples.to_namespace(place.xp) if there else problem.samples

    def run() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return rcurc(samples, 2, method=method, seed=5, progress=False, **way)

    def difference(result: Any) -> float:
        return float(problem.relative_error(result.cur))

    return Trial(run, difference, tolerance, float(problem.samples.n_obs))
