"""Components that rest on a single observation are not believed."""

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.backends.plain.lone import rests_on_one
from rcurc_gpu.extend.diagnostics import ILL_CONDITIONED


def test_leverage_tells(xp):
    rng = np.random.default_rng(0)
    basis = rng.standard_normal((12, 2))
    basis[:10, 1] = 0  # the second component is in two rows alone
    a = rng.standard_normal((3, 2))
    seen = np.ones((3, 12), dtype=bool)
    seen[1, 11] = False  # one of them is left
    seen[2, 10:] = False  # none
    i, j = np.nonzero(seen)
    indptr = np.concatenate([[0], np.cumsum(seen.sum(axis=1))]).astype(np.int64)
    block = Block(indptr, j.astype(np.int32), (a @ basis.T)[i, j], 12)
    found = rests_on_one(block.mapped(xp.array), np.arange(3), *map(xp.array, (basis, a, np.ones(12))), 1e-6)
    assert found.tolist() == [False, True, True]


@pytest.mark.filterwarnings("ignore::rcurc_gpu.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(4))
def test_nine_rows_in_ten_alike(seed):
    """A column sees nine of the rows that tell two of the three components, and a tenth of these observations is wrong."""
    rng = np.random.default_rng(seed)
    U = rng.standard_normal((300, 3))
    U[:270] = U[0]
    X = U @ rng.standard_normal((3, 300))
    i, j = np.nonzero(rng.random(X.shape) < 0.3)
    y = X[i, j]
    wrong = rng.random(len(y)) < 0.1
    y[wrong] += rng.uniform(-10, 10, int(wrong.sum())) * np.abs(X).mean()
    result = rg.rcurc(rg.CrossSamples.from_triplets(i, j, y, shape=X.shape), 3)
    sure = [np.asarray(d.status) == 0 for d in (result.rows, result.columns)]
    rest = np.ix_(*sure)
    assert not result.converged or np.linalg.norm(result.cur.to_dense() - X) < 1e-2 * np.linalg.norm(X)
    assert np.linalg.norm((result.cur.to_dense() - X)[rest]) < 1e-6 * np.linalg.norm(X)
    assert np.isin(ILL_CONDITIONED, result.columns.status)
