"""How much memory a solve takes, and how long an import."""

import subprocess
import sys
import tracemalloc
import warnings

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.backends.arrays import default_chunk_bytes


@pytest.mark.parametrize("method", ["fast", "paper"])
@pytest.mark.parametrize(
    "sizes",
    [
        {"shape": (2000, 2000), "rate": 0.25},
        {"shape": (2000, 2000), "rate": 0.25, "noise": 0.01},
        {"shape": (8000, 8000), "n_rows": 500, "n_cols": 500, "rate": 0.1, "rank": 2},
    ],
    ids=["dense core", "with noise", "many columns"],
)
def test_the_peak_is_below_six_times_the_observations_and_a_chunk(sizes, method):
    problem = rg.synthetic(**{"rank": 3, "alpha": 0.1, "seed": 0} | sizes)
    small = rg.synthetic((60, 50), 1, n_rows=30, n_cols=30, rate=0.8, seed=0)
    rg.rcurc(small.samples, 1, method=method)  # what the first solve of a process imports and compiles is not of this one
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)
        rg.rcurc(problem.samples, problem.W.shape[1], method=method, max_iter=40)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # the observations themselves were there before; the noise model works on a part of bounded size
    model = 250e6 if method == "fast" and "noise" in sizes else 0
    assert peak <= 5 * problem.samples.nbytes + default_chunk_bytes(np.zeros(1)) + model


def test_importing_loads_nothing_optional():
    code = (
        "import sys, rcurc_gpu\n"
        "print([m for m in ('matplotlib', 'dask', 'numba', 'cupy', 'click', 'tqdm') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
