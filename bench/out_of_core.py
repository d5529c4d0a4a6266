"""More observations than memory: a solve from disk against reading the files and against the same solve in memory.

    python -m bench.out_of_core                             # 2e6 x 2e6, 2e8 observations, 2.4 GB of files
    python -m bench.out_of_core --size 100000 --repeats 3   # a smaller run
    python -m bench.out_of_core --noise 0.05                # with noise: a part is read first, then everything

Each measurement is a process of its own, so that its peak of memory is its own; they take turns. Compiled kernels are
loaded before the clock starts. The true error is that of the whole matrix. Reads are observations of a shard that were read
over those it has: on average, and of the shard of which most were read.
"""

from __future__ import annotations

import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import numpy as np

import rcurc_gpu as rg
from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.shards import ShardedSamples, on_disk, source
from rcurc_gpu.shards.source import OnDisk

from .large import RANK, make, truth


def warm_up(noise: float) -> None:
    rg.rcurc(rg.synthetic((3000, 3000), RANK, rate=0.5, seed=0).samples, RANK)
    if noise:
        rg.rcurc(rg.synthetic((900, 900), RANK, noise=noise, rate=0.05, n_rows=600, n_cols=600, seed=0).samples, RANK)


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """How many observations are read from each file meanwhile."""
    n_read: Counter[str] = Counter()
    whole, part = on_disk.read_shard, OnDisk.some

    def load(path: str, facts: on_disk.ShardFacts, *rest: Any) -> Block:
        n_read[path] += facts.n_obs
        return whole(path, facts, *rest)

    def some(shard: OnDisk, units: np.ndarray) -> Block:
        before = n_read[shard.path]
        block = part(shard, units)
        if n_read[shard.path] == before:  # the first time all is read, for its checksum
            n_read[shard.path] += block.n_obs
        return block

    whole_too = patch.object(source, "read_shard", load)
    with patch.object(on_disk, "read_shard", load), whole_too, patch.object(OnDisk, "some", some):
        yield n_read


def measure(kind: str, folder: Path, size: int, noise: float, seed: int) -> dict[str, float]:
    warm_up(noise)
    samples = ShardedSamples.open(folder)
    n_obs = sum(samples.survey.n_obs)
    begun, cpu = time.perf_counter(), time.process_time()
    found = {}
    if kind == "read":
        for side in "rc":
            for _, block in samples.blocks(side):
                found["last"] = float(block.value[-1])
    else:
        options = {}
        if kind == "memory":
            solved = samples.to_memory()
            begun, cpu = time.perf_counter(), time.process_time()
        else:
            solved, options["output"] = samples, folder.parent / "result"
            shutil.rmtree(options["output"], ignore_errors=True)
        with counted() as n_read:
            result = rg.rcurc(solved, RANK, **options)
    found |= {"seconds": time.perf_counter() - begun, "cpu": time.process_time() - cpu}
    found["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if kind == "disk":
        shards = [shard.source for shard in (*samples.r_shards, *samples.c_shards)]
        found["reads"] = n_read.total() / n_obs
        found["most_reads"] = max(n_read[shard.path] / max(shard.facts.n_obs, 1) for shard in shards)
    if kind != "read":
        problem = truth(size, noise, seed)
        found["error"] = problem.relative_error(result.cur, undetermined="skip")
        found["undetermined"] = len(result.columns.undetermined) + len(result.rows.undetermined)
    return found | {"n_obs": n_obs}


@click.command()
@click.option("--size", default=2_000_000, help="Rows and columns of the matrix.")
@click.option("--chosen", default=1000, help="How many rows, and columns, are chosen.")
@click.option("--rate", default=0.05, help="Share of the chosen rows and columns that is observed.")
@click.option("--noise", default=0.0, help="In units of a typical entry.")
@click.option("--shard-obs", default=5_000_000, help="Observations in a shard.")
@click.option("--repeats", default=3)
@click.option("--seed", default=0)
@click.option("--folder", type=click.Path(path_type=Path), help="Where the files are, or will be kept.")
@click.option("--measure", "kind", hidden=True)
def main(
    size: int,
    chosen: int,
    rate: float,
    noise: float,
    shard_obs: int,
    repeats: int,
    seed: int,
    folder: Path | None,
    kind: str,
) -> None:
    if kind:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # single columns may be undetermined; it is said below
            click.echo(json.dumps(measure(kind, folder, size, noise, seed)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = folder or Path(temporary) / "shards"
        if not folder.exists():
            begun = time.perf_counter()
            make(folder, truth(size, noise, seed), chosen, rate, shard_obs)
            click.echo(f"made in {time.perf_counter() - begun:.0f} s")
        kinds = ("read", "memory", "disk")
        found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
        for _ in range(repeats):
            for kind in kinds:
                options = [f"--size={size}", f"--noise={noise}", f"--seed={seed}", f"--folder={folder}", f"--measure={kind}"]
                command = [sys.executable, "-m", "bench.out_of_core", *options]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                found[kind].append(json.loads(done.stdout))
        report(found, sum(path.stat().st_size for path in folder.iterdir()))


def report(found: dict[str, list[dict[str, float]]], n_bytes: int) -> None:
    n_obs = found["disk"][0]["n_obs"]
    seconds = {kind: statistics.median(run["seconds"] for run in runs) for kind, runs in found.items()}
    click.echo(f"{n_obs:,.0f} observations, {n_bytes / 1e9:.2f} GB of files")
    for kind, text in (("read", "reading"), ("memory", "solve in memory"), ("disk", "solve from disk")):
        last = found[kind][-1]
        error = f", true error {last['error']:.1e}, {last['undetermined']} undetermined" if "error" in last else ""
        every = [run["seconds"] for run in found[kind]]
        cpu = statistics.median(run["cpu"] for run in found[kind])
        click.echo(
            f"{text:16} {seconds[kind]:7.2f} s ({min(every):.2f} to {max(every):.2f}; {cpu:.1f} s of CPU), "
            f"{seconds[kind] / n_obs * 1e9:5.1f} ns per observation, peak {max(r['peak'] for r in found[kind]) / 1e9:.2f} GB"
            f"{error}"
        )
    last = found["disk"][-1]
    click.echo(f"reads of a shard: {last['reads']:.3f}, at most {last['most_reads']:.3f}")
    ratios = [
        disk["seconds"] / (read["seconds"] + memory["seconds"])
        for read, memory, disk in zip(found["read"], found["memory"], found["disk"], strict=True)
    ]
    click.echo(f"disk / (reading + memory): {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
