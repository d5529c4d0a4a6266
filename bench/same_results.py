"""Results of seeded problems, recorded and compared: whether a change of the code changed what it computes.

    python -m bench.same_results record OLD --place numba       # before the change
    python -m bench.same_results record NEW --place numba       # after it
    python -m bench.same_results compare OLD NEW

Every problem is solved through the public interface alone, so the same file runs on both states of the code. Places are
plain array code ("xp"), Numba ("numba") and CuPy on the emulator of the tests ("emulator", fewer and smaller problems; from
the root of the repository). Times are neither recorded nor compared. One file without pickles for each problem.

Two records are the same if texts, whole numbers and truth values are equal and other numbers differ by no more than 1e-12
(1e-5 where the observations are of single precision) of the largest in their array; what is in the unit of the data, such as
noise, of the largest entry of the recovered matrix, and relative errors of 1.
"""

from __future__ import annotations

import os

# Sums in the same order every time. Before NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import contextlib
import hashlib
import importlib
import importlib.util
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

TOLERANCE, SINGLE_TOLERANCE = 1e-12, 1e-5
HOST, EVERYWHERE = ("xp", "numba"), ("xp", "numba", "emulator")
SHARD = 40_000  # bytes: a few shards for each side of the problems here
# Of these the size is told by the recovered matrix, not by themselves: without noise they are rounding.
IN_UNITS = ("noise", "threshold", "spread", "standard_error", "outliers")
RELATIVE = ("expected_error", "true_error", "consensus", "error", "change", "errors")

Facts = dict[str, Any]


def _fresh_kernels() -> None:
    """A cache of compiled kernels for this state of the sources alone: Numba looks at the age of single files."""
    spec = importlib.util.find_spec("rcurc_gpu")
    if spec is None or spec.origin is None:
        raise SystemExit("rcurc_gpu is not there: run this from the root of the repository, or install it")
    sources = sorted(Path(spec.origin).parent.rglob("*.py"))
    state = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"rcurc-same-results-{state}"))


_fresh_kernels()

import rcurc_gpu as rg  # noqa: E402  # after the place of its kernels is known

# ---------------------------------------------------------------- places and problems


@dataclass(frozen=True)
class Place:
    """Where to compute.

    Attributes
    ----------
    name : str
    kernels : str
        The argument of the solvers.
    xp : module
        Namespace of the arrays that are given.
    """

    name: str
    kernels: str
    xp: Any = np

    @classmethod
    def named(cls, name: str) -> Place:
        """One of the three; the emulator has to come before the first import of CuPy."""
        if name != "emulator":
            return cls(name, {"xp": "xp", "numba": "fused"}[name])
        importlib.import_module("tests.hostgpu").install()
        return cls(name, "fused", importlib.import_module("cupy"))

    @property
    def elsewhere(self) -> bool:
        """Whether arrays are on a device."""
        return self.xp is not np

    @property
    def device(self) -> str:
        """The device for data on the host."""
        return "cuda" if self.elsewhere else "cpu"

    def put(self, x: Any) -> Any:
        """An array or samples, here."""
        if not self.elsewhere:
            return x
        return x.to_namespace(self.xp) if isinstance(x, rg.CrossSamples) else self.xp.asarray(x)

    def rcurc(self, samples: Any, rank: int | str, **options: Any) -> rg.Result:
        """`rg.rcurc` here."""
        return rg.rcurc(self.put(samples), rank, **{"kernels": self.kernels, **options})

    def icurc(self, samples: Any, rank: int | str, **options: Any) -> rg.Result:
        """`rg.icurc` here."""
        return rg.icurc(self.put(samples), rank, **{"kernels": self.kernels, **options})


class Problem(NamedTuple):
    """A function that solves something and tells what came out, and where it is asked."""

    solve: Callable[[Place], Facts]
    places: tuple[str, ...]


PROBLEMS: dict[str, Problem] = {}


def problem(places: tuple[str, ...] = HOST) -> Callable[[Callable[[Place], Facts]], Callable[[Place], Facts]]:
    """Put a function into the table, under its name."""

    def add(function: Callable[[Place], Facts]) -> Callable[[Place], Facts]:
        PROBLEMS[function.__name__.replace("_", "-")] = Problem(function, places)
        return function

    return add


def family(name: str, function: Callable[..., Facts], *values: Any, places: tuple[str, ...] = HOST) -> None:
    """Put a function into the table once for each value of its second argument."""
    for value in values:
        PROBLEMS[f"{name}-{value}"] = Problem(partial(function, value=value), places)


# ---------------------------------------------------------------- what is told of a result


def host(x: Any) -> np.ndarray:
    """An array of any kind, or a number, a text or None, as a NumPy array."""
    if x is None:
        return np.asarray("None")
    if hasattr(x, "compute"):  # Dask
        x = x.compute()
    if hasattr(x, "__cuda_array_interface__"):
        x = x.get()
    return np.asarray(x)


def first_of(thing: Any, *names: str) -> Any:
    """The attribute that is there under one of its names."""
    for name in names:
        if hasattr(thing, name):
            return getattr(thing, name)
    raise AttributeError(f"{type(thing).__name__} has none of {', '.join(names)}")


def under(prefix: str, facts: Facts) -> Facts:
    """The same facts with a word before each name."""
    return {f"{prefix}.{name}": value for name, value in facts.items()}


def of_states(states: list[rg.IterationState]) -> Facts:
    """Iterations as vectors, without their times."""
    names = ("iteration", "error", "threshold", "outlier_share", "change")
    return {name: np.asarray([getattr(state, name) for state in states]) for name in names}


def of_units(diagnostics: rg.UnitDiagnostics) -> Facts:
    """The diagnostics of columns or rows."""
    facts = {name: getattr(diagnostics, name) for name in ("status", "n_obs", "n_inliers", "spread", "standard_error")}
    facts["n_informative"] = first_of(diagnostics, "n_informative", "n_telling")
    facts["undetermined"] = diagnostics.undetermined
    facts["reasons"] = str(diagnostics.reasons())
    return facts


def of_sparse(matrix: Any) -> Facts:
    """A compressed sparse matrix."""
    return {"outliers": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}


def of_result(result: rg.Result, truth: Any = None, outliers: bool = True) -> Facts:
    """Everything that a result says, but for times.

    Parameters
    ----------
    result : Result
    truth : SyntheticProblem or array (n1, n2), optional
        What should have come out.
    outliers : bool
        Whether to ask for them: not where the factors are on the workers of a cluster.
    """
    left, right = host(result.cur.left), host(result.cur.right)
    dense = left.astype(float) @ right.astype(float).T
    names = ("converged", "message", "cause", "noise", "threshold", "expected_error", "method", "kernels", "device")
    facts = {name: getattr(result, name) for name in (*names, "n_iter", "rank")}
    facts |= {"left": left, "right": right, "cross_rows": result.cur.rows, "cross_cols": result.cur.cols}
    facts |= {"dtype": str(left.dtype), "unit": np.abs(np.nan_to_num(dense)).max()}
    # its name before and after, whatever that is: add it here
    facts["consensus"] = first_of(
        result, "agreeing", "agreeing_share", "rival_share", "consensus", "consensus_elsewhere", "other_consensus", "rivals"
    )
    facts |= under("history", of_states(result.history))
    facts |= under("columns", of_units(result.columns)) | under("rows", of_units(result.rows))
    curve = getattr(result, "rank_curve", None)
    curve = None if isinstance(curve, np.ndarray) else curve  # later versions have the strengths of the components there
    facts["rank_curve"] = "None" if curve is None else "there"
    if curve is not None:
        facts |= {f"rank_curve.{name}": getattr(curve, name) for name in ("ranks", "errors", "supported", "chosen")}
    if outliers:
        for name, sparse in zip(("S_R", "S_C"), result.outliers(), strict=True):
            facts |= under(name, of_sparse(sparse))
    if truth is not None:
        truth = truth if isinstance(truth, np.ndarray) else truth.W @ truth.V.T
        # in a unit in which squares neither vanish nor overflow
        known, size = np.isfinite(dense), 2.0 ** np.floor(np.log2(np.abs(truth).max()))
        apart, whole_truth = (np.where(known, x / size, 0) for x in (dense - truth, truth))
        facts["true_error"] = np.linalg.norm(apart) / np.linalg.norm(whole_truth)
    return {name: host(value) for name, value in facts.items()}  # now, while a cluster and its files are there


def of_transformed(done: rg.Transformed) -> Facts:
    """New columns or rows."""
    return {"matrix": done.matrix.to_dense()} | of_units(done.diagnostics)


def of_samples(samples: Any) -> Facts:
    """Samples and what they say of themselves."""
    facts = {"cross_rows": samples.rows, "cross_cols": samples.cols, "n_obs": samples.n_obs, "n_unused": samples.n_unused}
    facts |= {"rate_rows": samples.rate_rows, "rate_cols": samples.rate_cols, "nbytes": samples.nbytes}
    facts |= {"words": samples.describe(), "words_of_rank": samples.describe(3), "dtype": str(samples.dtype)}
    memory = samples.to_memory() if isinstance(samples, rg.ShardedSamples) else samples
    for name in ("R", "C"):
        block = getattr(memory, name)
        facts |= {f"{name}.data": block.data, f"{name}.indices": block.indices, f"{name}.indptr": block.indptr}
    return facts


# ---------------------------------------------------------------- data


def small(rank: int = 2, noise: float = 0.0, **more: Any) -> rg.SyntheticProblem:
    """A problem that the emulator can do."""
    options = {"alpha": 0.1, "n_rows": 50, "n_cols": 45, "rate": 0.6, "seed": 7} | more
    return rg.synthetic((110, 120), rank, noise=noise, **options)


def medium(rank: int = 4, noise: float = 0.0, **more: Any) -> rg.SyntheticProblem:
    """A problem of some columns and rows that are hard to tell."""
    options = {"alpha": 0.2, "n_rows": 130, "n_cols": 140, "rate": 0.35, "seed": 3} | more
    return rg.synthetic((500, 420), rank, noise=noise, **options)


def staged(condition: float, size: int = 300, chosen: int = 130, rank: int = 4) -> tuple[np.ndarray, rg.CrossSamples]:
    """A matrix whose singular values fall geometrically, and samples with outliers of ten times a typical entry."""
    rng = np.random.default_rng(5)
    left, right = (np.linalg.qr(rng.standard_normal((size, rank)))[0] for _ in range(2))
    truth = (left * np.geomspace(1, 1 / condition, rank) * size) @ right.T
    most = 10 * np.abs(truth).mean()
    Y = truth + np.where(rng.random(truth.shape) < 0.15, rng.uniform(-most, most, truth.shape), 0)
    return truth, rg.ccs_sample(Y, chosen, chosen, 0.6, 0.6, seed=1)


def rival(shape: tuple[int, int], rank: int, share: float, factor: float, rate: float, chosen: tuple[int, int], seed: int):
    """A matrix in which a share of the observations is wrong in one way: another unit, another sign, 0."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((shape[0], rank)) @ rng.standard_normal((shape[1], rank)).T
    Y = np.where(rng.random(shape) < share, factor * truth, truth)
    Y[rng.random(shape) > rate] = np.nan
    return truth, rg.CrossSamples.from_dense(Y, np.arange(chosen[0]), np.arange(chosen[1]))


def scaled(samples: rg.CrossSamples, factor: float) -> rg.CrossSamples:
    """The samples of ``factor * Y``."""
    blocks = [x * samples.dtype.type(factor) for x in (samples.R, samples.C)]
    return rg.CrossSamples.from_blocks(*blocks, samples.rows, samples.cols)


def with_holes(samples: rg.CrossSamples) -> rg.CrossSamples:
    """Two columns and a row that were hardly observed, and a column in which all but a few entries are wrong."""
    cols = np.setdiff1d(np.arange(samples.shape[1]), samples.cols)
    row = np.setdiff1d(np.arange(samples.shape[0]), samples.rows)[20]
    R, C = samples.R.tocoo(), samples.C.tocoo()
    keep = ~(np.isin(R.col, cols[[10, -3]]) & (R.row >= 3))
    wrong = (cols[5] == R.col) & (R.row % 5 > 0)
    data = np.where(wrong, 7 * np.cos(R.row * 1.7), R.data)
    R = scipy.sparse.coo_array((data[keep], (R.row[keep], R.col[keep])), shape=R.shape)
    keep = row != C.row
    C = scipy.sparse.coo_array((C.data[keep], (C.row[keep], C.col[keep])), shape=C.shape)
    return rg.CrossSamples.from_blocks(R, C, samples.rows, samples.cols)


def whole(shape: tuple[int, int], rank: int, noise: float = 0.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A fully observed matrix with outliers in a tenth of its entries, and its truth."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((shape[0], rank)) @ rng.standard_normal((shape[1], rank)).T
    Y = truth + np.where(rng.random(shape) < 0.1, rng.uniform(-10, 10, shape), 0)
    return Y + noise * rng.standard_normal(shape), truth


def of_functions(samples: rg.CrossSamples) -> rg.ShardedSamples:
    """Samples as shards that functions make."""
    R, C = samples.R, samples.C
    return rg.ShardedSamples.from_functions(
        lambda start, stop: R[:, start:stop],
        lambda start, stop: C[start:stop],
        samples.shape,
        samples.rows,
        samples.cols,
        columns_at_once=110,
        rows_at_once=170,
        dtype=samples.dtype,
    )


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A directory for a while."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@contextlib.contextmanager
def cluster() -> Iterator[Any]:
    """A client of two Dask workers in this process."""
    from distributed import Client, LocalCluster

    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with LocalCluster(**options) as workers, Client(workers) as client:
        yield client


# ---------------------------------------------------------------- in memory


def _of_rank(place: Place, value: int) -> Facts:
    size = {1: 60, 2: 70, 3: 80, 5: 110, 8: 140, 10: 160, 16: 220, 20: 250}[value]
    p = rg.synthetic((2 * size, 2 * size + 30), value, 0.15, n_rows=size, n_cols=size + 10, rate=0.6, seed=value)
    return of_result(place.rcurc(p.samples, value), p)


family("rank", _of_rank, 1, 2, 3, 5, 8, 10, 16, 20)


def _with_noise(place: Place, value: float) -> Facts:
    p = medium(noise=value)
    return of_result(place.rcurc(p.samples, 4, accuracy=0.1), p)


family("noise", _with_noise, 0.001, 0.05)


def _with_sweeps(place: Place, value: int) -> Facts:
    p = medium(noise=0.02)
    return of_result(place.rcurc(p.samples, 4, accuracy=0.1, sweeps=value), p)


family("sweeps", _with_sweeps, 0, 2)


def _staged(place: Place, value: float) -> Facts:
    truth, samples = staged(value)
    return of_result(place.rcurc(samples, 4), truth)


family("staged", _staged, 10, 100, 1000)


@problem()
def staged_auto(place: Place) -> Facts:
    """The rank of a staged spectrum is found."""
    truth, samples = staged(30)
    return of_result(place.rcurc(samples, "auto"), truth)


def _single(place: Place, value: float) -> Facts:
    p = medium(noise=value, dtype=np.float32)
    return of_result(place.rcurc(p.samples, 4, accuracy=0.1), p)


family("float32", _single, 0.0, 0.03)


@problem()
def float32_huge(place: Place) -> Facts:
    """Single precision, with squares that overflow."""
    p = medium(dtype=np.float32)
    return of_result(place.rcurc(scaled(p.samples, 1e30), 4), 1e30 * (p.W @ p.V.T))


def _in_units(place: Place, value: str) -> Facts:
    p = small()
    factor = float(value)
    return of_result(place.rcurc(scaled(p.samples, factor), 2), factor * (p.W @ p.V.T))


family("units", _in_units, "1e-200", "1e200", "1e-300")


def _rival(place: Place, value: float) -> Facts:
    truth, samples = rival((400, 380), 2, 0.25, value, 0.3, (150, 140), 5)
    return of_result(place.rcurc(samples, 2), truth)


family("rival-times", _rival, 2.0, -1.0, 0.0)


@problem()
def rival_together(place: Place) -> Facts:
    """In a hundredth of the columns nearly half of the entries are doubled, and nowhere else."""
    rng = np.random.default_rng(2)
    truth = rng.standard_normal((300, 3)) @ rng.standard_normal((300, 3)).T
    wrong = (rng.random(truth.shape) < 0.45) & (np.arange(300) >= 297)
    Y = np.where(wrong, 2 * truth, truth)
    Y[rng.random(truth.shape) > 0.4] = np.nan
    return of_result(place.rcurc(rg.CrossSamples.from_dense(Y, np.arange(100), np.arange(100)), 3), truth)


@problem()
def rival_constant(place: Place) -> Facts:
    """A code for "missing" that was taken for a value, and a rank that is one too large."""
    rng = np.random.default_rng(1)
    truth = 2 + rng.standard_normal((250, 2)) @ rng.standard_normal((2, 250))
    Y = np.where(rng.random(truth.shape) < 0.2, 999.0, truth)
    Y[rng.random(truth.shape) > 0.4] = np.nan
    return of_result(place.rcurc(rg.CrossSamples.from_dense(Y, np.arange(90), np.arange(90)), 4), truth)


def _auto(place: Place, value: float) -> Facts:
    p = medium(3, value, n_rows=110, n_cols=120, rate=0.5)
    return of_result(place.rcurc(p.samples, "auto", accuracy=0.1), p)


family("auto", _auto, 0.0, 0.05)


def _wrong_rank(place: Place, value: int) -> Facts:
    p = medium(3, n_rows=110, n_cols=120, rate=0.5)
    return of_result(place.rcurc(p.samples, value), p)


family("rank-three-as", _wrong_rank, 1, 2, 6)


def _undetermined(place: Place, value: str) -> Facts:
    p = medium()
    return of_result(place.rcurc(with_holes(p.samples), 4, undetermined=value), p)


family("undetermined", _undetermined, "nan", "keep")


@problem()
def mostly_zeros(place: Place) -> Facts:
    """Factors of which most entries are 0, so that most entries of the matrix are."""
    rng = np.random.default_rng(8)
    W, V = (rng.standard_normal((n, 3)) * (rng.random((n, 3)) < 0.35) for n in (300, 280))
    truth = W @ V.T
    Y = truth + np.where(rng.random(truth.shape) < 0.1, rng.uniform(-8, 8, truth.shape), 0)
    return of_result(place.rcurc(rg.ccs_sample(Y, 120, 120, 0.6, 0.6, seed=2), 3), truth)


@problem()
def rectangular(place: Place) -> Facts:
    """Few rows, many columns, and other rates for each; and the same transposed."""
    p = rg.synthetic((140, 1500), 3, 0.15, n_rows=70, n_cols=200, rate=(0.5, 0.35), seed=4)
    wide, tall = (place.rcurc(s, 3) for s in (p.samples, p.samples.T))
    return under("wide", of_result(wide, p)) | under("tall", of_result(tall, (p.W @ p.V.T).T))


def _head_start(place: Place, value: float) -> Facts:
    p = rg.synthetic((400, 380), 2, 0.2, noise=value, n_rows=300, n_cols=280, rate=0.6, seed=3)
    return of_result(place.rcurc(p.samples, 2, accuracy=0.1), p)


family("rich-core", _head_start, 0.0, 0.02)


@problem()
def few_observations(place: Place) -> Facts:
    """Hardly enough: some columns and rows are looked at again, and some cannot be determined."""
    p = medium(5, alpha=0.3, rate=0.22, seed=9)
    return of_result(place.rcurc(p.samples, 5), p)


@problem()
def too_few_observations(place: Place) -> Facts:
    """Nothing can be found: the core does not settle."""
    p = medium(8, alpha=0.4, rate=0.12, seed=9)
    return of_result(place.rcurc(p.samples, 8, max_iter=80), p)


@problem()
def moving_outliers(place: Place) -> Facts:
    """A still picture whose light changes a little, behind something that moves; grey levels, so a resolution of 1."""
    rng = np.random.default_rng(3)
    picture, light = rng.uniform(40, 200, (20, 24)), 1 + 0.05 * np.sin(np.arange(150) / 20)
    frames = picture[:, :, None] * light
    for t in range(150):
        frames[5:12, (t // 2) % 18 : (t // 2) % 18 + 6, t] = 230 + 10 * np.sin(np.arange(7))[:, None]
    Y = np.round(frames.reshape(480, 150))
    samples = rg.ccs_sample(Y, 200, 90, 0.5, 0.5, seed=6)
    return of_result(place.rcurc(samples, "auto", resolution=1.0), picture.reshape(-1, 1) * light)


@problem(("numba",))
def many_observations(place: Place) -> Facts:
    """A million of them in a block: kernels that are compiled for the rank."""
    p = rg.synthetic((2500, 4000), 3, 0.02, noise=0.01, n_rows=700, n_cols=600, rate=(0.45, 0.3), seed=2)
    return of_result(place.rcurc(p.samples, 3, accuracy=0.1), p)


# ---------------------------------------------------------------- settings and callbacks


@problem()
def own_settings(place: Place) -> Facts:
    """Steps, thresholds and tolerances of the user's."""
    p = small()
    options = {"gamma": 0.85, "zeta0": 8.0, "step_rows": 1.1, "step_cols": 1.2, "tol": 1e-16, "holdout": 0.05, "seed": 11}
    return of_result(place.rcurc(p.samples, 2, **options), p)


@problem()
def nothing_held_out(place: Place) -> Facts:
    """No judgement by held-out entries, with noise and small chunks."""
    p = medium(noise=0.02)
    return of_result(place.rcurc(p.samples, 4, holdout=0.0, accuracy=1e-4, chunk_bytes=30_000), p)


@problem()
def cut_short(place: Place) -> Facts:
    """Few iterations: not converged, and it says so."""
    p = medium()
    facts = {}
    for method in ("fast", "paper"):
        facts |= under(method, of_result(place.rcurc(p.samples, 4, max_iter=9, method=method), p))
    return facts


@problem()
def callback(place: Place) -> Facts:
    """What a callback sees, and a callback that ends the core."""
    p, seen, ended = small(), [], []
    result = place.rcurc(p.samples, 2, callback=seen.append)
    stopped = place.rcurc(p.samples, 2, callback=lambda state: ended.append(state) or state.iteration == 12)
    facts = under("whole", of_result(result, p)) | under("stopped", of_result(stopped, p))
    return facts | under("seen", of_states(seen)) | under("ended", of_states(ended))


# ---------------------------------------------------------------- small ones, also on the emulator


@problem(EVERYWHERE)
def small_plain(place: Place) -> Facts:
    """Outliers, and new columns and rows completed with the core."""
    p = small()
    result = place.rcurc(p.samples, 2)
    Y = p.W @ p.V.T
    Y[::7, ::5] += 9.0
    columns, rows = Y[p.samples.rows][:, 3:20].copy(), Y[5:30][:, p.samples.cols].copy()
    columns[::3, ::2], rows[::2, ::3] = np.nan, np.nan
    columns[4:, 6] = np.nan
    facts = of_result(result, p)
    facts |= under("columns_of", of_transformed(result.transform_columns(place.put(columns))))
    return facts | under("rows_of", of_transformed(result.transform_rows(place.put(rows))))


@problem(EVERYWHERE)
def small_noise(place: Place) -> Facts:
    """A sweep over noisy data."""
    p = small(noise=0.05)
    return of_result(place.rcurc(p.samples, 2, accuracy=0.1), p)


@problem(EVERYWHERE)
def small_plain_code(place: Place) -> Facts:
    """Plain array code, wherever the arrays are."""
    p = small(noise=0.02, n_rows=40, n_cols=36)
    return of_result(place.rcurc(p.samples, 2, accuracy=0.1, kernels="xp"), p)


@problem(EVERYWHERE)
def small_float32(place: Place) -> Facts:
    """Single precision."""
    p = small(noise=0.01, dtype=np.float32)
    return of_result(place.rcurc(p.samples, 2, accuracy=0.1), p)


@problem(EVERYWHERE)
def small_auto(place: Place) -> Facts:
    """The rank is chosen."""
    p = small(noise=0.01)
    return of_result(place.rcurc(p.samples, "auto", accuracy=0.1), p)


@problem(EVERYWHERE)
def small_rivals(place: Place) -> Facts:
    """A quarter of the entries doubled."""
    truth, samples = rival((130, 120), 2, 0.2, 2.0, 0.5, (60, 50), 5)
    return of_result(place.rcurc(samples, 2), truth)


@problem(EVERYWHERE)
def small_staged(place: Place) -> Facts:
    """Singular values that fall by a hundred."""
    truth, samples = staged(100, 120, 60, 2)
    return of_result(place.rcurc(samples, 2), truth)


@problem(EVERYWHERE)
def small_undetermined(place: Place) -> Facts:
    """Columns and a row that cannot be determined."""
    p = small()
    return of_result(place.rcurc(with_holes(p.samples), 2), p)


@problem(EVERYWHERE)
def small_icurc(place: Place) -> Facts:
    """No outliers, with noise."""
    p = small(noise=0.01, alpha=0.0)
    return of_result(place.icurc(p.samples, 2, accuracy=0.1), p)


@problem(EVERYWHERE)
def small_paper(place: Place) -> Facts:
    """The paper's method, with an iterate that a callback sees."""
    p, seen = small(), []
    iterates = []

    def look(state: rg.IterationState) -> None:
        seen.append(state)
        if state.iteration in (1, 5):
            iterates.append(state.cur())

    result = place.rcurc(p.samples, 2, method="paper", max_iter=60, callback=look)
    facts = of_result(result, p) | under("seen", of_states(seen))
    return facts | {f"iterate.{k}": cur.to_dense() for k, cur in enumerate(iterates)}


@problem(EVERYWHERE)
def small_icurc_paper(place: Place) -> Facts:
    """The paper's method without outliers."""
    p = small(alpha=0.0)
    return of_result(place.icurc(p.samples, 2, method="paper", max_iter=60), p)


@problem(EVERYWHERE)
def small_robust_pca(place: Place) -> Facts:
    """A whole matrix by a cross of it, and all its outliers."""
    Y, truth = whole((120, 110), 2)
    result = rg.robust_pca(place.put(Y), 2, n_rows=50, n_cols=45, kernels=place.kernels)
    return of_result(result, truth) | under("S", of_sparse(result.outliers_of(place.put(Y))))


@problem(EVERYWHERE)
def small_ircur(place: Place) -> Facts:
    """A whole matrix by other rows and columns in every iteration."""
    Y, truth = whole((120, 110), 2, seed=1)
    result = rg.ircur(place.put(Y), 2, oversampling=3.0, kernels=place.kernels)
    return of_result(result, truth) | under("S", of_sparse(result.outliers_of(place.put(Y))))


@problem(EVERYWHERE)
def small_output(place: Place) -> Facts:
    """Samples on the host, factors in a directory."""
    p = small(noise=0.02)
    with folder() as name:
        options = {"device": place.device, "kernels": place.kernels, "accuracy": 0.1}
        result = rg.rcurc(p.samples, 2, output=name / "result", **options)
        opened = rg.open_result(name / "result", verify=True)
        return of_result(result, p) | under("opened", {"left": np.array(opened.left), "right": np.array(opened.right)})


@problem(EVERYWHERE)
def small_stream(place: Place) -> Facts:
    """Samples on the host, in small chunks through the device if there is one."""
    p = small(noise=0.03)
    options = {"device": place.device, "kernels": place.kernels, "chunk_bytes": 20_000}
    return of_result(rg.rcurc(p.samples, 2, accuracy=0.1, **options), p)


@problem(EVERYWHERE)
def small_stream_paper(place: Place) -> Facts:
    """The paper's method with samples on the host."""
    p = small()
    options = {"device": place.device, "kernels": place.kernels, "chunk_bytes": 20_000}
    return of_result(rg.rcurc(p.samples, 2, method="paper", max_iter=25, **options), p)


@problem(EVERYWHERE)
def small_shards(place: Place) -> Facts:
    """Shards from disk."""
    p = small()
    with folder() as name:
        samples = rg.ShardedSamples.of(p.samples, 12_000).save(name / "shards")
        return of_result(rg.rcurc(samples, 2, device=place.device, kernels=place.kernels), p)


def _small_rank(place: Place, value: int) -> Facts:
    size = 40 + 4 * value
    p = rg.synthetic((size + 30, size + 40), value, 0.05, n_rows=size, n_cols=size, rate=0.8, seed=value)
    return of_result(place.rcurc(p.samples, value), p)


family("small-rank", _small_rank, 1, 5, 12, places=EVERYWHERE)


@problem(EVERYWHERE)
def small_rich_core(place: Place) -> Facts:
    """Plenty of observations of each row and column of the core."""
    p = rg.synthetic((160, 150), 1, 0.1, n_rows=130, n_cols=120, rate=0.8, seed=3)
    return of_result(place.rcurc(p.samples, 1), p)


@problem(EVERYWHERE)
def small_checkpoint(place: Place) -> Facts:
    """Interrupted in the core, and taken up again."""
    p, states = small(noise=0.02), []

    def stop(state: rg.IterationState) -> None:
        states.append(state)
        if len(states) == 15:
            raise KeyboardInterrupt

    solve = partial(place.rcurc, p.samples, 2, accuracy=0.1, checkpoint_every=0.0)
    with folder() as name:
        with contextlib.suppress(KeyboardInterrupt):
            solve(checkpoint=name / "kept", callback=stop)
        facts = of_result(solve(checkpoint=name / "kept", callback=lambda state: None), p)
        return facts | under("seen", of_states(states))


@problem(EVERYWHERE)
def small_dask(place: Place) -> Facts:
    """Shards on a cluster, with noise."""
    p = small(noise=0.02)
    options = {"device": place.device, "kernels": place.kernels, "accuracy": 0.1}
    with cluster() as client:
        return of_result(rg.rcurc(rg.ShardedSamples.of(p.samples, 12_000), 2, client=client, **options), p)


@problem(EVERYWHERE)
def matrices(place: Place) -> Facts:
    """What can be done with a matrix of low rank."""
    rng = np.random.default_rng(0)
    left, right, x = (place.put(rng.standard_normal(shape)) for shape in ((30, 3), (20, 3), (20, 4)))
    cur = rg.CURMatrix(left, right, np.asarray([1, 4, 9]), np.asarray([0, 7]))
    W, s, V = rg.truncated_svd(cur.to_dense(), 2)
    facts = {"dense": cur.to_dense(), "C": cur.C, "U": cur.U, "R": cur.R, "product": cur @ x, "part": cur[3:9, [1, 5]]}
    facts |= {"entries": cur.entries([1, 2, 3], [3, 2, 1]), "singular_values": cur.singular_values()}
    return facts | {"W": W, "s": s, "V": V, "thresholded": rg.hard_threshold(cur.to_dense(), 1.0)}


# ---------------------------------------------------------------- other methods


@problem()
def icurc(place: Place) -> Facts:
    """Every observation right: clean, and of a rank to be found."""
    p = medium(alpha=0.0)
    known, found = (place.icurc(p.samples, rank) for rank in (4, "auto"))
    return under("known", of_result(known, p)) | under("found", of_result(found, p))


@problem()
def icurc_with_outliers(place: Place) -> Facts:
    """Some observations are wrong although none should be."""
    p = medium(alpha=0.01)
    return of_result(place.icurc(p.samples, 4), p)


@problem()
def paper(place: Place) -> Facts:
    """The paper's method, in both precisions."""
    facts = {}
    for dtype in (np.float64, np.float32):
        p = medium(dtype=dtype)
        facts |= under(np.dtype(dtype).name, of_result(place.rcurc(p.samples, 4, method="paper", max_iter=150), p))
    return facts


@problem()
def paper_many_columns(place: Place) -> Facts:
    """More columns than the paper's method carries along; most follow at the end."""
    p = rg.synthetic((70, 6000), 2, 0.1, n_rows=50, n_cols=60, rate=0.6, seed=1)
    return of_result(place.rcurc(p.samples, 2, method="paper", max_iter=60), p)


@problem(("xp",))
def reference(place: Place) -> Facts:
    """The paper's algorithm on dense blocks."""
    p = small()
    s, states = p.samples, []
    seen = [np.asarray((x.tocoo() != 0).todense()) for x in (s.R, s.C)]
    steps = {"step_rows": 0.75 / s.rate_rows, "step_cols": 0.75 / s.rate_cols, "zeta0": 10.0, "gamma": 0.9}
    blocks = (s.R.toarray(), s.C.toarray(), *seen, s.rows, s.cols)
    last = rg.rcurc_reference(*blocks, 2, **steps, max_iter=30, callback=states.append)
    facts = {name: getattr(last, name) for name in ("k", "X_rows", "X_cols", "W", "s", "V", "error")}
    return facts | {"history.error": [state.error for state in states]}


@problem()
def robust_pca(place: Place) -> Facts:
    """A whole matrix with noise and holes, and one of a rank to be found."""
    Y, truth = whole((300, 260), 4, noise=0.02)
    Y[::11, ::13] = np.nan
    noisy = rg.robust_pca(Y, 4, kernels=place.kernels, accuracy=0.1)
    clean, other = whole((200, 220), 3, seed=5)
    found = rg.robust_pca(clean, "auto", kernels=place.kernels)
    facts = under("noisy", of_result(noisy, truth)) | under("S", of_sparse(noisy.outliers_of(Y)))
    return facts | under("found", of_result(found, other))


@problem()
def ircur(place: Place) -> Facts:
    """Other rows and columns in every iteration: with noise, and of a rank to be found."""
    Y, truth = whole((300, 260), 3, noise=0.01)
    noisy = rg.ircur(Y, 3, kernels=place.kernels, accuracy=0.1, max_iter=40)
    clean, other = whole((220, 240), 2, seed=6)
    found = rg.ircur(clean, "auto", kernels=place.kernels)
    return under("noisy", of_result(noisy, truth)) | under("found", of_result(found, other))


@problem()
def estimator(place: Place) -> Facts:
    """scikit-learn's way: holes are filled, outliers replaced, new rows completed."""
    Y, truth = whole((160, 60), 2, noise=0.01)
    Y[np.random.default_rng(3).random(Y.shape) < 0.3] = np.nan
    Y[7, 3:] = np.nan
    model = rg.RobustCURCompletion(2, replace="outliers", undetermined="median", kernels=place.kernels, accuracy=0.1)
    done = model.fit_transform(Y)
    pairs = np.stack([np.arange(40), np.arange(40) % 60], axis=1)
    facts = {"done": done, "new": model.transform(Y[::3] * 1.5), "predicted": model.predict(pairs)}
    names = ("components_", "singular_values_", "rank_", "converged_", "medians_")
    facts |= {name: getattr(model, name) for name in names} | under("S", of_sparse(model.outliers_))
    sparse = rg.RobustCURCompletion("auto", n_rows=80, kernels=place.kernels).fit(scipy.sparse.csr_array(np.nan_to_num(Y)))
    return facts | under("result", of_result(model.result_, truth)) | under("sparse", of_result(sparse.result_, truth))


@problem()
def ratings(place: Place) -> Facts:
    """Ratings, some wrong. The kernels cannot be chosen here; `rcurc` on a cross of them takes those of the place."""
    r = rg.synthetic_ratings((150, 200), 6000, 2, 0.1, seed=1)
    found = rg.complete_ratings(r.i, r.j, r.values, r.shape, 4, scale=(1, 5), sweeps=8)
    names = ("mean", "row_offset", "col_offset", "left", "right", "noise", "surprise", "held_out_error", "offsets_error")
    facts = {name: getattr(found, name) for name in (*names, "gain_error", "helps", "shape", "rank")}
    facts |= {"data": r.values, "is_wrong": r.is_wrong, "expected": r.expected, "suspicious": found.suspicious(2.5)}
    facts |= {"predicted": found.predict(np.arange(150)[:, None], np.arange(200)), "unit": 5.0}
    facts |= under("start", of_result(found.start))
    samples = rg.CrossSamples.from_triplets(r.i, r.j, r.values, r.shape)
    facts |= under("cross", of_result(place.rcurc(samples, 1)))
    return facts | under("samples", of_samples(samples))


@problem(("xp",))
def samples_and_plans(place: Place) -> Facts:
    """Samples from everywhere, what they say, and plans."""
    p = small()
    s = p.samples
    Y = p.W @ p.V.T
    facts = under("synthetic", of_samples(s)) | under("of_functions", of_samples(of_functions(s)))
    facts |= under("drawn", of_samples(rg.ccs_sample(Y, 30, 40, 0.3, 0.5, seed=4)))
    R = s.R.tocoo()
    i, j = np.concatenate([s.rows[R.row], R.row]), np.concatenate([R.col, R.col])
    values = np.concatenate([R.data, Y[R.row, R.col]])
    facts |= under("listed", of_samples(rg.CrossSamples.from_triplets(i, j, values, s.shape, duplicates="mean")))
    chunks = ((i[k::3], j[k::3], values[k::3]) for k in range(3))
    with folder() as name:
        built = rg.shard_triplets(chunks, name / "shards", s.shape, duplicates="mean", shard_bytes=9000)
        facts |= under("built", of_samples(built))
        s.save(name / "samples.npz")
        facts |= under("loaded", of_samples(rg.CrossSamples.load(name / "samples.npz")))
    plan = rg.plan_samples(900, 1100, 4, 0.15, 0.02, 0.05, rate=0.4)
    names = ("n_rows", "n_cols", "rate_rows", "rate_cols", "expected_error", "n_observations", "share")
    facts |= under("plan", {name: getattr(plan, name) for name in names} | {"words": plan.describe()})
    return facts | under("of_plan", of_samples(rg.plan_samples(110, 120, 2, 0.05).draw(Y, seed=3)))


# ---------------------------------------------------------------- shards, files and clusters


def _shards(place: Place, value: str) -> Facts:
    noise = 0.02 if "noise" in value else 0.0
    p = medium(noise=noise)
    with folder() as name:
        samples = rg.ShardedSamples.of(p.samples, SHARD)
        if "disk" in value:
            samples = rg.ShardedSamples.open(samples.save(name / "shards").folder)
        if "functions" in value:
            samples = of_functions(p.samples)
        rank = "auto" if "auto" in value else 4
        return of_result(rg.rcurc(samples, rank, kernels=place.kernels, accuracy=0.1), p)


family("shards", _shards, "disk", "disk-noise", "functions", "functions-noise", "memory-auto")


@problem()
def shards_of_holes(place: Place) -> Facts:
    """Undetermined columns and rows, kept and not, in shards of single precision."""
    p = medium(dtype=np.float32)
    samples = rg.ShardedSamples.of(with_holes(p.samples), SHARD)
    solve = partial(rg.rcurc, samples, 4, kernels=place.kernels)
    kept, blank = (of_result(solve(undetermined=word), p) for word in ("keep", "nan"))
    return under("keep", kept) | under("nan", blank)


@problem()
def shards_of_rivals(place: Place) -> Facts:
    """Outliers that agree with each other, in shards."""
    truth, samples = rival((400, 380), 2, 0.25, 2.0, 0.3, (150, 140), 5)
    return of_result(rg.rcurc(rg.ShardedSamples.of(samples, 20_000), 2, kernels=place.kernels), truth)


@problem()
def shards_without_outliers(place: Place) -> Facts:
    """`icurc` on shards."""
    p = medium(noise=0.02, alpha=0.0)
    return of_result(rg.icurc(rg.ShardedSamples.of(p.samples, SHARD), 4, kernels=place.kernels, accuracy=0.1), p)


@problem()
def output(place: Place) -> Facts:
    """Factors in a directory, of shards on disk, and the same call again."""
    p = medium(noise=0.02)
    with folder() as name:
        samples = rg.ShardedSamples.of(p.samples, SHARD).save(name / "shards")
        solve = partial(rg.rcurc, samples, 4, kernels=place.kernels, accuracy=0.1, output=name / "result", sweeps=2)
        facts = under("first", of_result(solve(), p)) | under("again", of_result(solve(), p))
        opened = rg.open_result(name / "result", verify=True)
        return facts | under("opened", {"left": np.array(opened.left), "right": np.array(opened.right)})


@problem()
def checkpoint(place: Place) -> Facts:
    """A solve that was interrupted in its core, and went on."""
    p, states = medium(noise=0.01), []
    solve = partial(place.rcurc, p.samples, 4, accuracy=0.1, checkpoint_every=0.0)

    def stop(state: rg.IterationState) -> None:
        states.append(state)
        if len(states) == 25:
            raise KeyboardInterrupt

    with folder() as name:
        with contextlib.suppress(KeyboardInterrupt):
            solve(checkpoint=name / "kept", callback=stop)
        facts = under("resumed", of_result(solve(checkpoint=name / "kept", callback=lambda state: None), p))
        return facts | under("seen", of_states(states))


def _dask(place: Place, value: str) -> Facts:
    p = medium(noise=0.02 if "noise" in value else 0.0)
    samples = of_functions(p.samples) if "functions" in value else rg.ShardedSamples.of(p.samples, SHARD)
    gather = "workers" not in value
    with cluster() as client:
        result = rg.rcurc(samples, 4, kernels=place.kernels, accuracy=0.1, client=client, gather=gather)
        return of_result(result, p, outliers=gather)


family("dask", _dask, "memory", "memory-noise", "functions", "workers-noise")


# ---------------------------------------------------------------- recording


def record(target: Path, place_name: str, only: list[str]) -> bool:
    """Solve the problems of a place, write a file for each, and tell whether all could be solved."""
    unknown = sorted(set(only) - set(PROBLEMS))
    if unknown:
        raise SystemExit(f"no such problem: {', '.join(unknown)}; there are {', '.join(PROBLEMS)}")
    place = Place.named(place_name)
    target.mkdir(parents=True, exist_ok=True)
    chosen = {name: p for name, p in PROBLEMS.items() if place_name in p.places and (not only or name in only)}
    start, failed = time.perf_counter(), []
    for name, (solve, _) in chosen.items():
        begin, path = time.perf_counter(), target / f"{name}.npz"
        path.unlink(missing_ok=True)
        try:
            facts = facts_of(solve, place)
        except Exception:  # the others are still worth having
            traceback.print_exc()
            print(f"{name:26s} FAILED", flush=True)
            failed.append(name)
            continue
        np.savez_compressed(path, **facts)
        said = next((str(value)[:70] for key, value in facts.items() if key.split(".")[-1] == "message"), "")
        print(f"{name:26s} {time.perf_counter() - begin:6.2f} s  {len(facts):4d} fields  {said}", flush=True)
    print(f"{len(chosen)} problems in {time.perf_counter() - start:.0f} s, {len(failed)} failed {' '.join(failed)}".rstrip())
    return not failed


def facts_of(solve: Callable[[Place], Facts], place: Place) -> dict[str, np.ndarray]:
    """What a problem tells, as arrays that need no pickle."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        facts = {key: host(value) for key, value in solve(place).items()}
    odd = [key for key, value in facts.items() if value.dtype == object]
    if odd:
        raise TypeError(f"no plain arrays: {', '.join(odd)}")
    return facts


# ---------------------------------------------------------------- comparing


def floor_of(name: str, facts: dict[str, np.ndarray]) -> float:
    """The size below which a number of this name is rounding."""
    *prefix, last = name.split(".")
    if last in RELATIVE:
        return 1.0
    if last not in IN_UNITS:
        return 0.0
    # the unit of the result that the field belongs to: of the longest prefix that has one
    for n in range(len(prefix), -1, -1):
        unit = facts.get(".".join([*prefix[:n], "unit"]))
        if unit is not None:
            return float(unit)
    return 0.0


def tolerance_of(name: str, facts: dict[str, np.ndarray]) -> float:
    """By the precision of the observations that the field comes from."""
    prefix = name.split(".")[:-1]
    for n in range(len(prefix), -1, -1):
        dtype = facts.get(".".join([*prefix[:n], "dtype"]))
        if dtype is not None:
            return SINGLE_TOLERANCE if str(dtype) == "float32" else TOLERANCE
    return TOLERANCE


def difference(old: np.ndarray, new: np.ndarray, floor: float) -> float:
    """0 if both are the same, bit for bit; the largest difference over the largest size, or `floor`; inf if they cannot be
    compared, or should be equal and are not."""
    if old.dtype != new.dtype and not (old.dtype.kind == new.dtype.kind == "U"):
        return np.inf
    if old.shape != new.shape:
        return np.inf
    if old.dtype.kind != "f":
        return 0.0 if np.array_equal(old, new) else np.inf
    if old.tobytes() == new.tobytes():
        return 0.0
    odd = ~np.isfinite(old) | ~np.isfinite(new)
    if not np.array_equal(old[odd], new[odd], equal_nan=True):
        return np.inf
    old, new = old[~odd].astype(np.longdouble), new[~odd].astype(np.longdouble)
    largest = max(float(np.abs(old).max(initial=0)), floor)
    apart = float(np.abs(old - new).max(initial=0))
    return 0.0 if apart == 0 else apart / largest if largest else np.inf


def compare(old_folder: Path, new_folder: Path) -> bool:
    """Print what differs, and tell whether everything is the same up to rounding."""
    names = sorted({path.stem for folder in (old_folder, new_folder) for path in folder.glob("*.npz")})
    if not names:
        raise SystemExit(f"there are no records in {old_folder} and {new_folder}")
    counts = {"bit-equal": 0, "equal up to rounding": 0, "different": 0}
    for name in names:
        paths = [folder / f"{name}.npz" for folder in (old_folder, new_folder)]
        missing = [str(path.parent) for path in paths if not path.exists()]
        if missing:
            verdict, lines = "different", [f"not in {missing[0]}"]
        else:
            verdict, lines = compare_facts(*(read(path) for path in paths))
        counts[verdict] += 1
        print(f"{name:26s} {verdict}")
        for line in lines:
            print(f"    {line}")
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return counts["different"] == 0


def compare_facts(old: dict[str, np.ndarray], new: dict[str, np.ndarray]) -> tuple[str, list[str]]:
    """The verdict on a problem, and a line for each field that is not bit-equal."""
    lines, verdict = [], "bit-equal"
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            verdict = "different"
            lines.append(f"{name}: only in the {'old' if name in old else 'new'} record")
            continue
        apart, most = difference(old[name], new[name], floor_of(name, old)), tolerance_of(name, old)
        if apart == 0:
            continue
        if apart > most:
            verdict = "different"
        elif verdict == "bit-equal":
            verdict = "equal up to rounding"
        mark = "  <-- more than rounding" if apart > most else ""
        lines.append(f"{name}: {apart:.1e}{mark}" if np.isfinite(apart) else f"{name}: {words(old[name], new[name])}{mark}")
    return verdict, lines


def words(old: np.ndarray, new: np.ndarray) -> str:
    """How two fields differ that should be equal."""
    if old.ndim == new.ndim == 0:
        return f"{str(old)!r} was, {str(new)!r} is"
    if old.shape != new.shape or old.dtype != new.dtype:
        return f"{old.dtype} {old.shape} was, {new.dtype} {new.shape} is"
    return f"{np.count_nonzero(old != new)} of {old.size} differ"


def read(path: Path) -> dict[str, np.ndarray]:
    """A record."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="solve the problems and write what came out")
    recording.add_argument("target", type=Path, metavar="OUT_DIR")
    recording.add_argument("--place", choices=EVERYWHERE, required=True)
    recording.add_argument("--only", nargs="+", default=[], metavar="NAME", help="some of the problems")
    comparing = commands.add_parser("compare", help="compare two records; exit status 1 if they differ")
    comparing.add_argument("old", type=Path, metavar="OLD_DIR")
    comparing.add_argument("new", type=Path, metavar="NEW_DIR")
    options = parser.parse_args()
    if options.command == "record":
        fine = record(options.target, options.place, options.only)
    else:
        fine = compare(options.old, options.new)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
