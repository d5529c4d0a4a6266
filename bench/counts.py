"""What a fit pass executes for each observation: shuffles, votes, barriers, memory accesses and machine instructions.

Run as ``python -m bench.counts [--before FOLDER] [--detail]``; FOLDER has the sources of another version, for example
``kernels`` of a worktree of the tag "before".
"""

import argparse
import ctypes
import re
import sys
from pathlib import Path

import numpy as np

from bench import sass
from rcurc_gpu.backends.cuda import sources
from rcurc_gpu.backends.random import PositionStream, stream_key

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # where hostgpu is

CASES = [(rank, dtype) for rank in (5, 16) for dtype in ("float32", "float64")]
_UNITS, _LENGTH = 24, 600
# Of the tag "before", by rank and dtype, measured as below (NVRTC 13.4, sm_90): operations together, and instructions.
BEFORE = {
    (5, "float32"): (20.81, 171.96),
    (5, "float64"): (20.81, 186.98),
    (16, "float32"): (43.97, 260.87),
    (16, "float64"): (43.96, 271.92),
}


def expanded(folder: Path, name: str) -> str:
    """A source with its headers, as `sources.source` makes it, from another folder."""
    seen: set[str] = set()

    def expand(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text = (folder / name).read_text().replace("#pragma once\n", "")
        return re.sub(r'^#include "([\w.]+)"$', lambda match: expand(match[1]), text, flags=re.MULTILINE)

    return expand(name)


def problem(rank: int, dtype: str, before: bool = False) -> tuple[int, tuple]:
    """Observations, and arguments of the kernel, of today or of `before`.

    Units have 8 to 16 observations for each unknown, with outliers.
    """
    rng = np.random.default_rng(rank)
    real = np.dtype(dtype).type
    counts = rng.integers(8 * rank, 16 * rank, _UNITS)
    noise = {"float64": 1e-6, "float32": 1e-3}[dtype]
    basis = np.linalg.qr(rng.standard_normal((_LENGTH, rank)))[0] * _LENGTH**0.5
    index = np.concatenate([np.sort(rng.choice(_LENGTH, n, replace=False)) for n in counts]).astype(np.int32)
    a = np.repeat(rng.standard_normal((_UNITS, rank)), counts, axis=0)
    y = np.sum(basis[index] * a, axis=1) + noise * rng.standard_normal(len(index))
    y = y + (rng.random(len(y)) < 0.15) * rng.uniform(1, 5, len(y)) * rng.choice([-1, 1], len(y))
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    white = np.linalg.inv(np.linalg.cholesky(basis.T @ basis))
    arrays = [np.ascontiguousarray(x, dtype) for x in (basis, np.ones(_LENGTH), white)]
    held = (np.int32(0), np.uint64(stream_key(7, PositionStream.HOLDOUT)), np.uint64(int(0.1 * 2**53)))
    floor = 4 * noise
    tiles = max(1, -(-int(1.5 * counts.mean()) // 32))
    passes = (
        np.array([(0, 0.6, 0, 0)], dtype=[("draw_key", "u8"), ("gamma", "f8"), ("begin", "i4"), ("number", "i4")]),
        np.int32(1),
    )
    end = (np.uint64(0), np.int32(tiles), np.zeros((_UNITS, rank), dtype), np.zeros((_UNITS, 8), dtype))
    start = np.zeros((_UNITS, rank), dtype)
    schedule, old = (real(5.0), real(floor)), (np.int32(0), real(5.0), real(floor), real(0.6), real(floor), np.int32(0))
    arguments = (
        np.arange(_UNITS), np.int64(_UNITS), np.int32(4), indptr, index, y.astype(dtype), *arrays,
        np.arange(_UNITS) * 2 + 5, np.arange(_LENGTH) * 3 + 1, *held,
        *((*old, np.int32(60), start, np.uint64(0)) if before else (*passes, *schedule, real(floor), np.int32(60), start)),
        *end,
    )  # fmt: skip
    return int(counts.sum()), arguments


def _of_warps(threads: np.ndarray) -> np.ndarray:
    """A warp does something as often as the lane that does it most often."""
    return threads.reshape(len(threads), -1, 32).max(axis=2).sum(axis=1)


def measure(text: str, rank: int, dtype: str, architecture: int = 90) -> tuple[dict[str, float], dict[int, float]]:
    """Numbers of warps for each observation: of each kind, all together; and instructions by the lines of `text`."""
    from hostgpu.modules import KernelModule

    marked, options = sass.marked(text), sources.options("regress.cu", dtype, rank)
    n, arguments = problem(rank, dtype, before="Pass* __restrict__ passes" not in text)
    module = KernelModule(sass.COUNTERS + marked, options, more_flags=sass.FLAGS)
    arrays = [x for x in arguments if isinstance(x, np.ndarray)]
    ranges = (ctypes.c_void_p * 2 * 64).in_dll(module.library, "cuh_global")
    for n_array, x in enumerate(arrays):
        ranges[n_array][0], ranges[n_array][1] = x.ctypes.data, x.ctypes.data + x.nbytes
    tiles, warps = int(arguments[-3]), 4
    shared = warps * tiles * 32 * (2 * np.dtype(dtype).itemsize + 4)
    module.get_function("regress")((_UNITS // 4,), (32 * warps,), arguments, shared_mem=shared)
    hits = np.array((ctypes.c_longlong * 128 * 4096).in_dll(module.library, "cuh_hits"))
    counts = _of_warps(np.array((ctypes.c_longlong * 128 * 5).in_dll(module.library, "cuh_counts")))
    by_mark = {line: float(x) for line, x in enumerate(_of_warps(hits)) if x}
    instructions = sass.count(marked, options, "regress", by_mark, architecture)
    numbers = {name: count / n for name, count in zip(sass.NAMES, counts.tolist(), strict=True)}
    numbers["together"] = sum(numbers.values())
    numbers["instructions"] = sum(instructions.values()) / n
    return numbers, {line: x / n for line, x in instructions.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", type=Path, help="a folder of CUDA sources to compare with")
    parser.add_argument("--detail", action="store_true", help="instructions of each line as well")
    given = parser.parse_args()
    texts = {"now": sources.source("regress.cu")}
    if given.before:
        texts = {"before": expanded(given.before, "regress.cu"), **texts}
    print("| rank | dtype | |", " | ".join((*sass.NAMES, "together", "instructions")), "|")
    print("|" + "---|" * (3 + len(sass.NAMES) + 2))
    for rank, dtype in CASES:
        found = {}
        for name, text in texts.items():
            found[name], lines = measure(text, rank, dtype)
            print(
                "|", rank, "|", dtype, "|", name, "|", " | ".join(f"{x:.2f}" for x in found[name].values()), "|", flush=True
            )
            if given.detail:
                for line, x in sorted(lines.items(), key=lambda pair: -pair[1])[:25]:
                    print(f"    {x:8.2f}  {line}: {text.splitlines()[line % 2048 - 1].strip() if line else ''}")
        if given.before:
            ratios = (found["now"][k] / max(found["before"][k], 1e-9) for k in found["now"])
            print("|", rank, "|", dtype, "| ratio |", " | ".join(f"{x:.2f}" for x in ratios), "|", flush=True)


if __name__ == "__main__":
    main()
