"""Start the runs, one process each and in turns, and collect what they say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import rcurc_gpu as rg

from .methods import OURS, PARTIAL_SVD, Method
from .problems import Problem

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("OMP", "OPENBLAS", "MKL", "NUMBA")
LONG = 5.0  # seconds; such a run is not repeated


@dataclass(frozen=True)
class Entry:
    """What became of a method on a problem: medians over its runs, or a note on why there are none.

    Attributes
    ----------
    seconds, cpu : float, optional
        Elapsed, and of all threads together.
    memory : float, optional
        By how many bytes the resident size rose.
    error, psnr : float, optional
    note : str
    runs : int
    """

    problem: str
    method: str
    version: str
    seconds: float | None = None
    cpu: float | None = None
    memory: float | None = None
    error: float | None = None
    psnr: float | None = None
    note: str = ""
    runs: int = 0


def version_of(method: Method) -> str | None:
    """The version of its package, or None if that is not installed."""
    if method.package == OURS:
        return rg.__version__
    try:
        return version(method.package)
    except PackageNotFoundError:
        return None


def compare(
    problem: Problem,
    methods: Iterable[Method],
    *,
    limit: float,
    repeats: int = 1,
    threads: int = 1,
    partial_svd: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Entry]:
    """Run every method that takes this problem and is installed.

    Parameters
    ----------
    problem : Problem
    methods : iterable of Method
    limit : float
        Seconds of CPU, for each thread, after which a run is stopped; not of the clock, which other programs on the
        machine make run faster.
    repeats : int
        Runs of each method, of which the median counts; one for those that take longer than five seconds.
    threads : int
        For each run.
    partial_svd : bool
        Exchange full SVDs in some packages for partial ones; see `partial_svd.py`.
    tell : callable
        Is given a line for every run, and for every package that is not installed.

    Returns
    -------
    list of Entry
    """
    able = [m for m in methods if problem.kind in m.kinds and m.takes(problem)]
    versions = {m.name: version_of(m) for m in able}
    for method in able:
        if versions[method.name] is None:
            tell(f"{method.name}: left out, {method.package} is not installed")
    able = [m for m in able if versions[m.name] is not None]
    runs: dict[str, list[dict[str, float]]] = {m.name: [] for m in able}
    notes = dict.fromkeys(runs, "")
    with TemporaryDirectory() as place:
        data = Path(place) / "problem"
        problem.save(data)
        for k in range(repeats):
            for method in able:
                done = runs[method.name]
                if notes[method.name] or (k > 0 and done[0]["seconds"] > LONG):
                    continue
                outcome = _run(data, method.name, limit, threads, partial_svd, Path(place) / "result.json")
                if isinstance(outcome, str):
                    notes[method.name] = outcome
                    tell(f"{method.name}: {outcome}")
                else:
                    done.append(outcome)
                    tell(f"{method.name}: {outcome['seconds']:.3g} s, error {outcome['error']:.1e}")
    return [_entry(problem, m.name, versions[m.name] or "", runs[m.name], notes[m.name]) for m in able]


def _run(data: Path, name: str, limit: float, threads: int, partial_svd: bool, result: Path) -> dict[str, float] | str:
    """What the worker measured, or why there is nothing."""
    result.unlink(missing_ok=True)
    limit *= threads
    environment = os.environ | {f"{library}_NUM_THREADS": str(threads) for library in LIBRARIES}
    environment[PARTIAL_SVD] = str(int(partial_svd))
    command = [sys.executable, "-m", "bench.peers.worker", str(data), name, str(limit), str(result)]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode == 0:
        return json.loads(result.read_text())
    if ended.returncode == -signal.SIGPROF:
        return f"stopped after {limit:g} s of CPU"
    last = ended.stderr.strip().splitlines()[-1:] or [f"exit code {ended.returncode}"]
    return f"failed: {last[0]}"


def _entry(problem: Problem, name: str, version: str, runs: Sequence[dict[str, float]], note: str) -> Entry:
    values = {key: median(run[key] for run in runs) for key in (runs[0] if runs else ())}
    return Entry(problem.title, name, version, **values, note=note, runs=len(runs))
