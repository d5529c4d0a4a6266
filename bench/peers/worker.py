"""One run, in a process of its own: ``python -m bench.peers.worker DIRECTORY METHOD LIMIT RESULT``."""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import rcurc_gpu as rg
from bench.real import noisy
from bench.trillion import give_back

from .methods import METHODS, OURS, Method
from .problems import Problem, matrices, real

SMALL = 200  # the size of the problem on which ours are compiled


def main(directory: str, name: str, limit: str, result: str) -> None:
    method = next(m for m in METHODS if m.name == name)
    problem = Problem.load(Path(directory))
    if method.package == OURS:
        compile_for(method, problem)
    # The default action ends the process. A handler of Python's would wait for BLAS to return.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    Path(result).write_text(json.dumps(measure(method, problem, float(limit))))


def compile_for(method: Method, problem: Problem) -> None:
    """Solve something small of the same kind and rank."""
    if problem.kind == "real":
        small = real("", noisy(), "whole" if problem.rows is None else "cross", "large")
    else:
        full, cross = matrices(SMALL)
        small = replace(cross if problem.kind == "cross" else full, rank=problem.rank)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)
        method.prepare(small)()


def measure(method: Method, problem: Problem, limit: float) -> dict[str, float]:
    """Seconds, seconds of CPU, bytes that memory rose by, and the score of the outcome; SIGPROF at the limit."""
    work = method.prepare(problem)
    give_back()
    before = forget_peak()
    signal.setitimer(signal.ITIMER_PROF, limit)
    start, cpu = time.perf_counter(), time.process_time()
    found = work()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    signal.setitimer(signal.ITIMER_PROF, 0)
    memory = peak() - before
    return {"seconds": seconds, "cpu": cpu, "memory": memory, **problem.score(found)}


def forget_peak() -> int:
    """Start the highest resident size anew (Linux), and say what it now is, in bytes."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> int:
    """The highest resident size in bytes.

    Not ru_maxrss where it can be helped: that also knows the size of the process that started this one.
    """
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
