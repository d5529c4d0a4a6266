"""CPU time from a CSV file with labels of text to predictions: `rcurc-gpu ratings` and `rcurc-gpu complete`.

    python -m bench.text_table [--rows 1000000] [--cold]

User and system time of the whole command, start of Python included, in a process of its own: with pyarrow, and where it is
missing. The ratings are those of `rcurc_gpu.synthetic_ratings` (6,000 users, 3,700 items), and 1,000 pairs are predicted.
Kernels were compiled before; with --cold they are not.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import numpy as np

import rcurc_gpu as rg

_SHAPE = (6_000, 3_700)
_WITHOUT = "import sys; sys.modules['pyarrow'] = None; from rcurc_gpu.cli import main; main()"
_WITH = "from rcurc_gpu.cli import main; main()"


def write(folder: Path, n: int) -> None:
    """`ratings.csv` of `n` lines, shuffled, and `pairs.csv`."""
    made = rg.synthetic_ratings(_SHAPE, n, seed=0)
    order = np.random.default_rng(0).permutation(len(made.values))
    named = [f"user-{i:05d},film {j:04d}" for i, j in zip(made.i[order].tolist(), made.j[order].tolist(), strict=True)]
    lines = [f"{name},{value:g}" for name, value in zip(named, made.values[order].tolist(), strict=True)]
    (folder / "ratings.csv").write_text("\n".join(["user,film,stars", *lines]) + "\n")
    (folder / "pairs.csv").write_text("\n".join(["user,film", *named[:1000]]) + "\n")


def cpu_seconds(folder: Path, code: str, command: str, cache: Path) -> tuple[float, float]:
    """User and system time of one command."""
    options = [
        "ratings.csv",
        "--predict",
        "pairs.csv",
        "--quiet",
        "-o",
        "predictions.csv" if command == "ratings" else "r.npz",
    ]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(Path(__file__).parents[1])}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code, command, *options], cwd=folder, env=environment)
    assert done.returncode in (0, 1), done.returncode  # 1: not confirmed, and written all the same
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime


@click.command()
@click.option("--rows", "n_rows", default=1_000_000)
@click.option("--cold", is_flag=True, help="Compile in each process.")
def main(n_rows: int, cold: bool) -> None:
    """Measure, and print a table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, n_rows)
        print(f"{n_rows:,} lines, {(folder / 'ratings.csv').stat().st_size / 1e6:.0f} MB; seconds of CPU, user + system")
        for command in ("ratings", "complete"):
            for what, code in (("with pyarrow", _WITH), ("without", _WITHOUT)):
                cache = folder / (f"{command}-{what}" if cold else "cache")
                if not cold:
                    cpu_seconds(folder, code, command, cache)
                user, system = cpu_seconds(folder, code, command, cache)
                print(f"  {command:8} {what:12}  {user:5.1f} + {system:.1f}", flush=True)


if __name__ == "__main__":
    main()
