"""What the first solve of a machine compiles, and what the first solve of a process costs after that.

    python -m bench.first_solve                     # the paper's problem, rank not given
    python -m bench.first_solve --rank 5 --size 600 --kernels

CPU seconds, each in a new process: with an empty cache, with the cache that it left, and once more in the same process.
`--kernels` lists what was compiled, each without what it calls. BLAS has one thread: its threads wait in a busy loop.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import click

_SOLVES = """
import sys, time, warnings
began = time.process_time()
import rcurc_gpu as rg
warnings.simplefilter("ignore")
size, rank = int(sys.argv[1]), sys.argv[2]
samples = rg.synthetic((size, size), 5, 0.2, 10, rate=0.25, seed=0).samples
from numba.core import event
from rcurc_gpu.backends.numba import calls

class Compiled(event.Listener):
    def __init__(self):
        self.open, self.own = [], {}
    def on_start(self, event):
        self.open.append([time.process_time(), 0.0])
    def on_end(self, event):
        start, inner = self.open.pop()
        took, function = time.process_time() - start, event.data["dispatcher"].py_func
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        self.own[name] = self.own.get(name, 0.0) + took - inner
        if self.open:
            self.open[-1][1] += took

compiled = Compiled()
event.register("numba:compile", compiled)
times = [time.process_time()]
for _ in range(2):
    rg.rcurc(samples, rank if rank == "auto" else int(rank))
    times.append(time.process_time())
print(times[0] - began, times[1] - times[0], times[2] - times[1], sum(compiled.own.values()))
for name, seconds in sorted(compiled.own.items(), key=lambda x: -x[1]):
    print(f"{seconds:8.2f}  {name}")
"""


@click.command()
@click.option("--size", default=3000, help="Rows and columns of the matrix.")
@click.option("--rank", default="auto")
@click.option("--kernels", is_flag=True, help="List what was compiled.")
def main(size: int, rank: str, kernels: bool) -> None:
    with tempfile.TemporaryDirectory() as cache:
        there = os.environ | {"NUMBA_CACHE_DIR": cache, "OPENBLAS_NUM_THREADS": "1"}
        for name in ("empty cache", "warm cache"):
            command = [sys.executable, "-c", _SOLVES, str(size), rank]
            told = subprocess.run(command, env=there, capture_output=True, text=True, check=True).stdout
            first, *compiled = told.splitlines()
            before, solve, again, compiling = map(float, first.split())
            click.echo(
                f"{name}: {solve:.2f} s of CPU for the first solve, {compiling:.2f} of them to compile; "
                f"{again:.2f} s for the second; {before:.2f} s before (imports and data)"
            )
            if kernels:
                click.echo("\n".join(compiled))


if __name__ == "__main__":
    main()
