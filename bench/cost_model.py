"""What a solve on a cluster costs, from two small runs; checked on a third, and carried on to 1e8 x 1e8.

    python -m bench.cost_model
    unshare -rn sh -c 'ip link set lo up; python -m bench.cost_model'   # nobody else on the loopback device

The model, for n observations in s shards, |I| + |J| chosen rows and columns, rank r, w workers of one core:

    disk      12 n bytes (8 n in float32), and 8 for each row and column
    time      a + b n / w seconds
    network   (1 + w) (|I| + |J|) (24 r + 41) + c s bytes: to the scheduler and to each worker go the basis, the rows of the
              factor that are known with the core, and their diagnostics; for each shard its tasks and a few numbers
    memory    of a worker: two shards; of the client: the intersection

a, b and c are measured on one worker with 1e7 and 4e7 observations. The matrix is the usual one: rank 5, a fifth outliers,
5 % of 1000 rows and columns seen. No factors are gathered: they are written to a directory.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click
from distributed import Client, LocalCluster

import rcurc_gpu as rg

from .dask_scaling import sent, warm_up
from .large import RANK, make, truth

CHOSEN, RATE = 1000, 0.05


@dataclass
class Run:
    """One measured solve."""

    n_obs: int
    n_shards: int
    seconds: float
    sent: float
    disk: int


def measure(client: Client, folder: Path, size: int, shard_obs: int) -> Run:
    samples = make(folder / f"{size}", truth(size), CHOSEN, RATE, shard_obs)
    disk = sum(path.stat().st_size for path in (folder / f"{size}").iterdir())
    before, begun = sent(), time.perf_counter()
    time.sleep(5)
    idle = (sent() - before) / (time.perf_counter() - begun)
    before, begun = sent(), time.perf_counter()
    result = rg.rcurc(samples, RANK, client=client, output=folder / f"result-{size}")
    seconds = time.perf_counter() - begun
    assert result.cause in ("", "undetermined"), result.message
    n_shards = len(samples.r_shards) + len(samples.c_shards)
    return Run(sum(samples.survey.n_obs), n_shards, seconds, sent() - before - idle * seconds, disk)


def basis_bytes(workers: int) -> float:
    return (1 + workers) * 2 * CHOSEN * (24 * RANK + 41)


@click.command()
@click.option("--sizes", default="100000,400000,1000000", help="Two to measure, one to predict.")
@click.option("--shard-obs", default=2_500_000)
def main(sizes: str, shard_obs: int) -> None:
    runs = []
    with (
        tempfile.TemporaryDirectory() as temporary,
        LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.run(warm_up, 0)
        warm_up(0)
        for size in map(int, sizes.split(",")):
            runs.append(measure(client, Path(temporary), size, shard_obs))
    first, second, third = runs
    b = (second.seconds - first.seconds) / (second.n_obs - first.n_obs)
    a = first.seconds - b * first.n_obs
    c = sum(run.sent - basis_bytes(1) for run in (first, second)) / (first.n_shards + second.n_shards)
    rate = f"{1e-6 / b:.1f} million observations per second and core"
    click.echo(f"a = {a:.2f} s, b = {b * 1e9:.1f} ns ({rate}), c = {c / 1e3:.1f} kB")
    titles = [f"{title:>9}" for title in ("seconds", "model", "MB sent", "model", "GB", "model")]
    click.echo(f"{'observations':>14} {'shards':>7} {' '.join(titles)}")
    for run, size in zip(runs, map(int, sizes.split(",")), strict=True):
        predicted = (a + b * run.n_obs, (basis_bytes(1) + c * run.n_shards) / 1e6, (12 * run.n_obs + 16 * size) / 1e9)
        click.echo(
            f"{run.n_obs:14,} {run.n_shards:7} {run.seconds:9.1f} {predicted[0]:9.1f} {run.sent / 1e6:9.2f} "
            f"{predicted[1]:9.2f} {run.disk / 1e9:9.3f} {predicted[2]:9.3f}"
        )
    click.echo(
        f"the third was predicted: {third.seconds / (a + b * third.n_obs):.2f} times the time, "
        f"{third.sent / (basis_bytes(1) + c * third.n_shards):.2f} times the bytes"
    )
    project(a, b, c)


def project(a: float, b: float, c: float) -> None:
    n, n_obs = 10**8, 2 * 10**8 * CHOSEN * RATE
    shards = n_obs / 5e6
    click.echo(
        f"\n1e8 x 1e8: {n_obs:.0e} observations, {(12 * n_obs + 16 * n) / 1e9:,.0f} GB on disk in {shards:,.0f} shards; "
        f"factors {2 * n * RANK * 8 / 1e9:.0f} GB, diagnostics {2 * n * 41 / 1e9:.0f} GB"
    )
    for workers in (2, 16, 128):
        sent_bytes = basis_bytes(workers) + c * shards
        click.echo(
            f"  {workers:4} cores: {(a + b * n_obs / workers) / 60:6.1f} min, {sent_bytes / 1e6:.0f} MB over the network"
        )


if __name__ == "__main__":
    main()
