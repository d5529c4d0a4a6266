"""The command ``rcurc-gpu bench``: how fast this machine solves problems with known truth, on its CPU and on its GPU."""

from .cases import Case, make_cases, many_observations, square
from .report import bench_words
from .run import run_bench

__all__ = ["Case", "bench_words", "make_cases", "many_observations", "run_bench", "square"]
