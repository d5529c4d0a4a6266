"""One worker against two, and what goes over the network.

    python -m bench.dask_scaling                            # 1e6 x 1e6, 1e8 observations on disk
    python -m bench.dask_scaling --size 100000 --repeats 1  # a smaller run
    unshare -rn sh -c 'ip link set lo up; python -m bench.dask_scaling'   # nobody else on the loopback device

A LocalCluster with workers of one thread, in turns with one worker and with two. The clock runs from the first look at
columns and rows to the result, on the workers or (--to-disk) in a directory: the core before it is solved once, by the
client. Kernels are compiled before.
Bytes are those of the loopback device during the whole solve, less what an idle cluster of the same size sends in the same
time (heartbeats); so nothing else should use it.
"""

from __future__ import annotations

import logging
import statistics
import tempfile
import time
from pathlib import Path

import click
import numpy as np
import psutil
from distributed import Client, LocalCluster

import rcurc_gpu as rg
from rcurc_gpu.shards import ShardedSamples

from .large import RANK, make, truth


class Clock(logging.Handler):
    """When the work on columns and rows began."""

    def emit(self, record: logging.LogRecord) -> None:
        """Look at one line of the log."""
        if record.getMessage().startswith("columns and rows: "):
            self.begun = time.perf_counter()


def sent() -> int:
    return psutil.net_io_counters(pernic=True)["lo"].bytes_sent


def warm_up(_: int) -> None:
    samples = rg.synthetic((3000, 3000), RANK, rate=0.5, seed=0).samples
    rg.rcurc(samples, RANK)
    rg.rcurc(ShardedSamples.of(samples), RANK)


@click.command()
@click.option("--size", default=1_000_000, help="Rows and columns of the matrix.")
@click.option("--chosen", default=1000, help="How many rows, and columns, are chosen.")
@click.option("--rate", default=0.05, help="Share of the chosen rows and columns that is observed.")
@click.option("--shard-obs", default=5_000_000, help="Observations in a shard.")
@click.option("--repeats", default=3)
@click.option("--to-disk", is_flag=True, help="Write the factors to a directory, put together by the client.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the files are, or will be kept.")
def main(size: int, chosen: int, rate: float, shard_obs: int, repeats: int, to_disk: bool, folder: Path | None) -> None:
    clock = Clock()
    logger = logging.getLogger("rcurc_gpu")
    logger.addHandler(clock)
    logger.setLevel(logging.INFO)
    problem = truth(size)
    with tempfile.TemporaryDirectory() as temporary:
        folder = folder or Path(temporary) / "shards"
        if not folder.exists():
            make(folder, problem, chosen, rate, shard_obs)
        samples = ShardedSamples.open(folder)
        here = rg.rcurc(samples, RANK)
        n_obs = sum(samples.survey.n_obs)
        inside = samples.intersection.block.nbytes
        click.echo(
            f"{n_obs:,} observations in {len(samples.r_shards)} + {len(samples.c_shards)} shards, rank {RANK}; in one "
            f"process {here.seconds:.1f} s, true error {problem.relative_error(here.cur, undetermined='skip'):.1e}"
        )
        seconds: dict[int, list[float]] = {1: [], 2: []}
        bytes_sent: dict[int, list[float]] = {1: [], 2: []}
        for k in range(repeats):
            for n in (1, 2) if k % 2 == 0 else (2, 1):
                with (
                    LocalCluster(n_workers=n, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
                    Client(cluster) as client,
                ):
                    client.run(warm_up, 0)
                    time.sleep(2)
                    idle, begun = sent(), time.perf_counter()
                    time.sleep(5)
                    idle = (sent() - idle) / (time.perf_counter() - begun)
                    before, begun = sent(), time.perf_counter()
                    how = {"output": Path(temporary) / f"result-{k}-{n}"} if to_disk else {"gather": False}
                    result = rg.rcurc(samples, RANK, client=client, **how)
                    ended = time.perf_counter()
                    seconds[n].append(ended - clock.begun)
                    bytes_sent[n].append(sent() - before - idle * (ended - begun))
                    factors = ((result.cur.left, here.cur.left), (result.cur.right, here.cur.right))
                    same = max(float(np.nanmax(np.abs(np.asarray(a) - b)) / np.nanmax(np.abs(b))) for a, b in factors)
                click.echo(
                    f"{n} worker{'s' * (n > 1)}: {seconds[n][-1]:6.2f} s, {bytes_sent[n][-1] / 1e6:.2f} MB sent, factors "
                    f"as in one process to {same:.0e}"
                )
    ratio = statistics.median(a / b for a, b in zip(seconds[1], seconds[2], strict=True))
    basis = 2 * chosen * RANK * 8
    slow, fast = statistics.median(seconds[1]), statistics.median(seconds[2])
    click.echo(
        f"2 workers are {ratio:.2f} times as fast as 1 ({slow:.2f} s and {fast:.2f} s, {slow / n_obs * 1e9:.0f} ns per "
        "observation and core)"
    )
    one, two = (statistics.median(bytes_sent[n]) / 1e6 for n in (1, 2))
    click.echo(
        f"bytes: {one:.2f} and {two:.2f} MB; (|I| + |J|) r numbers are {basis / 1e6:.2f} MB, the intersection "
        f"{inside / 1e6:.2f} MB, the observations {samples.nbytes / 1e6:,.0f} MB"
    )


if __name__ == "__main__":
    main()
