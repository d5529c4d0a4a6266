"""Registers, spilled bytes and occupancy of every CUDA kernel, from NVRTC; needs the extra "emulator", but no GPU.

Run as ``python -m bench.registers [--all]``: ranks 1, 5, 16 and 32, or all of
tests/backends/test_compile_gate.py.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from rcurc_gpu.backends.cuda.sources import KERNELS, options, source
from rcurc_gpu.backends.operators import sketch_width

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # where hostgpu is

ARCHITECTURES = (75, 80, 90, 100, 120)
RANKS = (*range(1, 17), 20, 24, 32)
SHOWN = (1, 5, 16, 32)


class Multiprocessor(NamedTuple):
    """What a multiprocessor has for blocks; from NVIDIA's table of compute capabilities."""

    warps: int
    blocks: int
    shared: int  # bytes, less those that a block needs for itself
    reserved: int  # of each block


_MULTIPROCESSORS = {
    75: Multiprocessor(32, 16, 64 << 10, 0),
    80: Multiprocessor(64, 32, 164 << 10, 1 << 10),
    90: Multiprocessor(64, 32, 228 << 10, 1 << 10),
    100: Multiprocessor(64, 32, 228 << 10, 1 << 10),
    120: Multiprocessor(48, 24, 100 << 10, 1 << 10),
}
_REGISTERS, _REGISTER_PIECE = 1 << 16, 256  # of a multiprocessor; a warp gets them in pieces of so many
_STAGED_TILES = 3  # of 32 observations, for units of 64: what a warp of `regress` or `advance` keeps in shared memory


def resident_warps(kernel: str, dtype: str, rank: int, architecture: int, numbers: dict[str, int]) -> int:
    """Warps that a multiprocessor holds at a time; `numbers` are those of NVRTC."""
    has = _MULTIPROCESSORS[architecture]
    warps = _warps(kernel, rank)
    item = {"float32": 4, "float64": 8}[dtype]
    staged = warps * _STAGED_TILES * 32 * (2 * item + 4) if kernel in ("regress", "advance") else 0
    of_warp = -(-32 * numbers["registers"] // _REGISTER_PIECE) * _REGISTER_PIECE
    by_registers = _REGISTERS // of_warp // warps
    by_shared = has.shared // max(numbers["shared"] + staged + has.reserved, 1)
    return warps * min(by_registers, by_shared, has.warps // warps, has.blocks)


def _warps(kernel: str, rank: int) -> int:
    """Warps of a block, as it is launched."""
    if kernel in ("regress", "posterior") and rank > 16:
        return 2
    return 8 if kernel in ("threshold_each", "union_each") else 4


class Case(NamedTuple):
    """One compilation; `size` is the rank, or what else the file is compiled for."""

    name: str
    dtype: str
    rank: int
    size: int
    architecture: int


def cases(ranks: Iterable[int] = RANKS, everywhere: Iterable[int] = RANKS) -> list[Case]:
    """What to compile: `ranks` for sm_90, those that are also in `everywhere` for all architectures.

    The regression, which needs the most registers by far, is compiled for all of them in any case.
    """
    everywhere, found = set(everywhere), []
    for name, (macro, _) in KERNELS.items():
        for dtype in ("float32", "float64"):
            for rank in ranks if macro else [0]:
                wanted = ARCHITECTURES if name == "regress.cu" or rank in everywhere or not macro else (90,)
                for size in _sizes(macro, rank):
                    found += [Case(name, dtype, rank, size, architecture) for architecture in wanted]
    return found


def _sizes(macro: str | None, rank: int) -> list[int]:
    """What a file is compiled for at a rank: the core's factors have some columns more, with `method="paper"` several."""
    if macro != "WIDTH":
        return [rank]
    wide = sketch_width(rank, (10**6, 10**6))
    return [rank + 1, wide] if rank in SHOWN else [rank + 1]


def measure(case: Case) -> dict[str, dict[str, int]]:
    """What NVRTC says about each kernel of a file; it remembers what was compiled before."""
    from hostgpu import nvrtc

    return nvrtc.compile_cached(source(case.name), options(case.name, case.dtype, case.size), (), case.architecture)


def measure_all(wanted: list[Case]) -> dict[Case, dict[str, dict[str, int]]]:
    """All of them, on all cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(wanted, pool.map(measure, wanted), strict=True))


def _cell(numbers: dict[str, int]) -> str:
    spilled = numbers["spill_stores"] + numbers["spill_loads"]
    return f"{numbers['registers']} ({spilled} B)" if spilled else str(numbers["registers"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Registers per thread, and bytes spilled where there are any.")
    parser.add_argument("--all", action="store_true", help="all ranks, not 1, 5, 16 and 32 only")
    ranks = RANKS if parser.parse_args().all else SHOWN
    found = measure_all(cases(ranks, ranks))
    _table(found, "registers", lambda case, kernel, numbers: _cell(numbers))
    print(
        f"\nWarps of a multiprocessor at a time, and those it could hold; a warp stages {32 * _STAGED_TILES} observations.\n"
    )
    extension = {case: kernels for case, kernels in found.items() if case.name in ("regress.cu", "posterior.cu", "paper.cu")}
    _table(extension, "warps", _occupancy)


def _occupancy(case: Case, kernel: str, numbers: dict[str, int]) -> str:
    warps = resident_warps(kernel, case.dtype, case.rank, case.architecture, numbers)
    return f"{warps} of {_MULTIPROCESSORS[case.architecture].warps}"


def _table(
    found: dict[Case, dict[str, dict[str, int]]], what: str, cell: Callable[[Case, str, dict[str, int]], str]
) -> None:
    """A row for each kernel, dtype and rank, a column for each architecture."""
    rows: dict[tuple[Any, ...], dict[int, str]] = {}
    for case, kernels in found.items():
        for kernel, numbers in kernels.items():
            size = f"{case.rank}, {case.size} columns" if case.size != case.rank else case.rank or "-"
            rows.setdefault((kernel, case.dtype, size), {})[case.architecture] = cell(case, kernel, numbers)
    names = [f"sm_{number}" for number in ARCHITECTURES]
    print(f"| {what} | dtype | rank |", " | ".join(names), "|")
    print("|" + "---|" * (3 + len(names)))
    for key, cells in rows.items():
        print("|", " | ".join(map(str, [*key, *(cells.get(number, "") for number in ARCHITECTURES)])), "|")


if __name__ == "__main__":
    main()
