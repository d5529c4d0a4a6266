"""A matrix of a trillion entries on one machine.

    python -m bench.trillion                                # 1e6 x 1e6, 1e8 observations
    python -m bench.trillion --size 100000 --rows 1000      # a smaller run
    python -m bench.trillion --noise 0.05                   # with noise, after the same without

Rank 5, a fifth of the entries outliers of size 10, solved with default parameters. The error is that of the whole matrix
against the known truth, from the factors. Compiling is excluded: a small problem is solved first. Memory is the peak of
the whole process, so generation counts too.
"""

from __future__ import annotations

import ctypes
import resource
import time
from contextlib import suppress
from threading import Event, Thread

import click

import rcurc_gpu as rg

RANK, ALPHA, C = 5, 0.2, 10.0
GB = 1e9


class Watch:
    """Resident memory while a block of code runs, looked at every 20 ms."""

    def __enter__(self) -> Watch:
        give_back()
        self.before = self.most = resident()
        self._done, self._thread = Event(), Thread(target=self._look, daemon=True)
        self._thread.start()
        self._start, self._cpu = time.perf_counter(), time.process_time()
        return self

    def _look(self) -> None:
        while not self._done.wait(0.02):
            self.most = max(self.most, resident())

    def __exit__(self, *_: object) -> None:
        self.seconds, self.cpu = time.perf_counter() - self._start, time.process_time() - self._cpu
        self._done.set()
        self._thread.join()

    @property
    def rise(self) -> float:
        """By how many bytes memory grew at most."""
        return self.most - self.before


def give_back() -> None:
    """Return freed memory to the system (glibc), so that a rise is seen."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def resident() -> int:
    """Bytes of this process in memory now; Linux only, else 0."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


@click.command()
@click.option("--size", default=1_000_000, help="Rows and columns of the matrix.")
@click.option("--rows", default=1000, help="How many rows, and columns, are chosen.")
@click.option("--rate", default=0.05, help="Share of the chosen rows and columns that is observed.")
@click.option("--kernels", default="auto", help="auto, xp or fused, as in rcurc.")
@click.option("--noise", default=0.0, help="Standard deviation of the noise, over the mean size of an entry.")
@click.option("--seed", default=0)
def main(size: int, rows: int, rate: float, kernels: str, noise: float, seed: int) -> None:
    for level in dict.fromkeys((0.0, noise)):
        for share in (0.05, 0.5):  # compiles
            small = rg.synthetic((900, 900), RANK, noise=level, rate=share, n_rows=600, n_cols=600, seed=0)
            rg.rcurc(small.samples, RANK, kernels=kernels)
        run(size, rows, rate, kernels, level, seed)


def run(size: int, rows: int, rate: float, kernels: str, noise: float, seed: int) -> None:
    """Make a problem, solve it, and say what that took."""
    with Watch() as generation:
        problem = rg.synthetic((size, size), RANK, ALPHA, C, noise, n_rows=rows, n_cols=rows, rate=rate, seed=seed)
    samples = problem.samples
    n_obs = samples.r_block.n_obs + samples.c_block.n_obs
    click.echo(f"{size:,} x {size:,} = {size**2:.0e} entries, rank {RANK}, {ALPHA:.0%} outliers, c = {C:g}, noise {noise:g}")
    click.echo(
        f"{rows:,} rows and columns, {rate:.0%} of them observed: {n_obs:,} observations, {samples.nbytes / GB:.2f} GB"
    )
    click.echo(f"generation      {generation.seconds:8.1f} s  ({generation.cpu:.1f} s of CPU)")
    with Watch() as solving:
        result = rg.rcurc(samples, RANK, kernels=kernels)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    click.echo(
        f"rcurc           {solving.seconds:8.1f} s  ({solving.cpu:.1f} s of CPU), {solving.seconds / n_obs * 1e9:.0f} ns "
        f"per observation, kernels {result.kernels}, {result.n_iter} core iterations"
    )
    click.echo(f"memory          {peak / GB:8.2f} GB at most; the solve added {solving.rise / GB:.2f} GB")
    error = problem.relative_error(result.cur, undetermined="skip")
    n_cols, n_rows = len(result.columns.undetermined), len(result.rows.undetermined)
    click.echo(f"true error      {error:8.1e}    of the whole matrix but {n_rows} undetermined rows and {n_cols} columns")
    click.echo(f"converged       {result.converged!s:>8}    {result.message}")


if __name__ == "__main__":
    main()
