"""The head start gives what the core would have given, and is only taken where there is plenty."""

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.backends.kernels import Kernels
from rcurc_gpu.core import head_start
from rcurc_gpu.options import Settings
from rcurc_gpu.progress import Progress
from rcurc_gpu.solve import attempts
from rcurc_gpu.solve.engine import search_of
from rcurc_gpu.solve.supply import in_memory


@pytest.fixture(scope="module")
def problem():
    return rg.synthetic((400, 380), 2, 0.2, 10, n_rows=300, n_cols=280, rate=0.6, seed=3)


@pytest.mark.parametrize("kernels", ["xp", "fused"])
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_it_ends_where_the_core_ends(kernels, noise, monkeypatch):
    problem = rg.synthetic((400, 380), 2, 0.2, 10, noise, n_rows=300, n_cols=280, rate=0.6, seed=3)
    taken = []
    original = attempts.solve_with_head_start
    monkeypatch.setattr(attempts, "solve_with_head_start", lambda *a: taken.append(original(*a)) or taken[-1])
    results = [rg.rcurc(problem.samples, 2, kernels=kernels, accuracy=0.1)]
    assert len(taken) == 1
    monkeypatch.setattr(attempts, "is_rich", lambda *_: False)
    results.append(rg.rcurc(problem.samples, 2, kernels=kernels, accuracy=0.1))
    assert len(taken) == 1
    for result in results:
        assert result.converged
        assert problem.relative_error(result.cur) <= (1e-9 if noise == 0 else 0.01)
        assert [state.iteration for state in result.history] == list(range(1, result.n_iter + 1))
    difference = np.abs(results[0].cur.to_dense() - results[1].cur.to_dense()).max()
    assert difference <= (1e-8 if noise == 0 else 1e-3)


def test_it_needs_plenty(problem):
    data = search_of(*_arguments(problem.samples)).data
    assert head_start.is_rich(data, 2)
    assert not head_start.is_rich(data, 5)


def _arguments(samples):
    view = in_memory(samples, samples.r_block.value[:0]).view
    return view, Settings.checked(samples.dtype, {"kernels": "xp"}), "auto", Progress(False, None)


@pytest.mark.parametrize("broken", ["regressions", "core"])
def test_when_it_fails_the_core_does_without(problem, monkeypatch, broken):
    """Wrong coefficients for the other half, or a quarter that does not settle: the result is the same, only later."""
    if broken == "core":
        monkeypatch.setattr(attempts, "solve_with_head_start", lambda *_: None)
    else:
        original = Kernels.regress_all  # others use its table, the head start its coefficients alone

        def wrong(self, block, basis, *rest):
            return np.ones((block.n_units, basis.shape[1])), original(self, block, basis, *rest)[1]

        monkeypatch.setattr(Kernels, "regress_all", wrong)
    result = rg.rcurc(problem.samples, 2)
    assert result.converged
    assert problem.relative_error(result.cur) <= 1e-9


def test_a_user_who_limits_the_iterations_gets_no_more_of_them(problem):
    with pytest.warns(rg.ConvergenceWarning):
        assert rg.rcurc(problem.samples, 2, max_iter=7).n_iter == 7


def test_a_callback_that_ends_it_ends_it(problem):
    with pytest.warns(rg.ConvergenceWarning):
        result = rg.rcurc(problem.samples, 2, callback=lambda state: state.iteration >= 3)
    assert result.n_iter == 3


def test_it_runs_elsewhere(elsewhere, monkeypatch):
    problem = rg.synthetic((150, 140), 1, 0.1, 10, n_rows=130, n_cols=120, rate=0.6, seed=3)
    taken = []
    original = attempts.solve_with_head_start
    monkeypatch.setattr(attempts, "solve_with_head_start", lambda *a: taken.append(original(*a)) or taken[-1])
    result = rg.rcurc(problem.samples.to_namespace(*elsewhere), 1)
    assert len(taken) == 1
    assert result.converged
    expected = rg.rcurc(problem.samples, 1).cur.to_dense()
    np.testing.assert_allclose(elsewhere.numpy(result.cur.to_dense()), expected, atol=1e-8)
