"""An iteration that diverges ends with a verdict, not with warnings of NumPy (which are errors here)."""

import numpy as np
import pytest

import rcurc_gpu as rg


@pytest.mark.parametrize(
    ("solve", "method", "kernels", "dtype"),
    [
        (rg.rcurc, "fast", "xp", np.float32),
        (rg.rcurc, "fast", "auto", np.float32),
        (rg.rcurc, "fast", "auto", np.float64),
        (rg.rcurc, "paper", "auto", np.float32),
        (rg.icurc, "fast", "auto", np.float32),
        (rg.icurc, "paper", "xp", np.float64),
    ],
)
def test_steps_that_are_far_too_long_give_a_verdict_and_no_other_warning(solve, method, kernels, dtype):
    s = rg.synthetic((120, 100), rank=3, n_rows=50, n_cols=50, rate=0.6, alpha=0.1, c=5.0, noise=0.0, seed=0).samples
    samples = rg.CrossSamples.from_blocks(s.R.astype(dtype), s.C.astype(dtype), s.rows, s.cols)
    before = np.geterr()
    with pytest.warns(rg.ConvergenceWarning):
        result = solve(samples, 3, method=method, kernels=kernels, step_rows=1e6, step_cols=1e6)
    assert not result.converged
    assert result.message
    assert np.geterr() == before
