"""Shards from a stream of observations: seconds, nanoseconds per observation, peak memory.

    python -m bench.shard_build
    python -m bench.shard_build 100_000_000 --memory 256 --kind csv

Observations of a matrix whose rows and columns have counts by a power law are made a chunk at a time, for a file before the
clock starts. Each run is a process of its own; the peak is its resident memory at most, and `base` what the imports take.
What chunks take to make is subtracted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from bench.peers.worker import peak
from rcurc_gpu.shards import shard_file, shard_triplets

_AT_ONCE = 1_000_000
_DECAY = 0.6


def chunks(n: int, shape: tuple[int, int], seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """`n` observations of a matrix of rank 1, some of them repeated."""
    rng = np.random.default_rng(seed)
    for start in range(0, n, _AT_ONCE):
        count = min(_AT_ONCE, n - start)
        i, j = (_power_law(rng.random(count), size) for size in shape)
        yield i, j, np.sin(i + 1.0) * np.cos(j + 1.0)


def _power_law(uniform: np.ndarray, size: int) -> np.ndarray:
    """Places below `size`, number k with a probability that goes with (k + size / 100) ** -decay."""
    low, high = ((size * share) ** (1 - _DECAY) for share in (0.01, 1.01))
    place = (low + uniform * (high - low)) ** (1 / (1 - _DECAY)) - 0.01 * size
    return np.minimum(place.astype(np.int64), size - 1)


def write_file(path: Path, n: int, shape: tuple[int, int]) -> None:
    """The same observations as a table, with numbers for labels."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    schema = pa.schema([("row", pa.int64()), ("column", pa.int64()), ("value", pa.float64())])
    make = parquet.ParquetWriter if path.suffix == ".parquet" else csv.CSVWriter
    with make(path, schema) as writer:
        for chunk in chunks(n, shape):
            writer.write_table(pa.table(list(chunk), schema=schema))


def run_one(n: int, shape: tuple[int, int], source: str, folder: str, given: bool, memory_bytes: int) -> dict[str, Any]:
    """Build once, in this process."""
    base, start, cpu = peak(), time.perf_counter(), time.process_time()
    if source == "triplets":
        chosen = [np.arange(max(size // 20, 1)) for size in shape] if given else [None, None]
        samples = shard_triplets(chunks(n, shape), folder, shape, *chosen, memory_bytes=memory_bytes)
    else:
        samples = shard_file(source, folder, memory_bytes=memory_bytes).samples
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    sizes = [path.stat().st_size for path in Path(folder).iterdir()]
    return {"seconds": seconds, "cpu": cpu, "base": base, "peak": peak(), "bytes": sum(sizes), "repr": repr(samples)}


@click.command()
@click.argument("n", type=int, default=20_000_000)
@click.option("--shape", type=(int, int), default=(200_000, 50_000), show_default=True)
@click.option("--memory", "megabytes", default=512, show_default=True, help="memory_bytes, in MB.")
@click.option("--kind", type=click.Choice(["triplets", "given", "csv", "parquet"]), multiple=True)
@click.option("--child", hidden=True)
def main(n: int, shape: tuple[int, int], megabytes: int, kind: tuple[str, ...], child: str | None) -> None:
    if child is not None:
        click.echo(json.dumps(run_one(**json.loads(child))))
        return
    click.echo(
        f"{n:,} observations of {shape[0]:,} x {shape[1]:,}, 24 bytes each: {24 * n / 1e6:,.0f} MB; memory {megabytes} MB"
    )
    for name in kind or ("triplets", "given", "csv", "parquet"):
        with tempfile.TemporaryDirectory() as place:
            source = "triplets"
            if name in ("csv", "parquet"):
                source = str(Path(place) / f"table.{name}")
                write_file(Path(source), n, shape)
            start, cpu = time.perf_counter(), time.process_time()
            for _ in chunks(n, shape) if source == "triplets" else ():
                pass
            # is in the measured times, and not the library's
            making, making_cpu = time.perf_counter() - start, time.process_time() - cpu
            task = {
                "n": n,
                "shape": shape,
                "source": source,
                "folder": str(Path(place) / "shards"),
                "given": name == "given",
            }
            task["memory_bytes"] = megabytes << 20
            command = [sys.executable, "-m", "bench.shard_build", "--child", json.dumps(task)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        seconds, cpu = found["seconds"] - making, found["cpu"] - making_cpu
        click.echo(
            f"{name:10} {seconds:7.1f} s  {1e9 * seconds / n:6.0f} ns/observation ({1e9 * cpu / n:.0f} of CPU)  "
            f"peak {found['peak'] / 1e6:6.0f} MB (base {found['base'] / 1e6:.0f})  shards {found['bytes'] / 1e6:,.0f} MB\n"
            f"           {found['repr']}"
        )


if __name__ == "__main__":
    main()
