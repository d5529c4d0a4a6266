"""``method="paper"`` gives the iterates of Algorithm 1."""

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.core import paper


def dense(samples):
    R, C = samples.R.tocoo(), samples.C.tocoo()
    seen_R, seen_C = np.zeros(R.shape, bool), np.zeros(C.shape, bool)
    seen_R[R.row, R.col] = True
    seen_C[C.row, C.col] = True
    return R.toarray(), C.toarray(), seen_R, seen_C


@pytest.fixture(scope="module")
def problem():
    return rg.synthetic((260, 300), 4, 0.2, 10, n_rows=110, n_cols=120, rate=(0.55, 0.5), seed=4)


def reference(problem, iterations, tol=0.0, **changes):
    s = problem.samples
    median = np.median(np.abs(s.intersection.block.value))
    options = {
        "zeta0": 5 * median,
        "gamma": 0.9,
        "step_rows": 0.75 / s.rate_rows,
        "step_cols": 0.75 / s.rate_cols,
    } | changes
    states = []
    rg.rcurc_reference(*dense(s), s.rows, s.cols, 4, **options, tol=tol, max_iter=iterations, callback=states.append)
    return states, options


def relative(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("iterations", [1, 2, 3, 7, 20, 60])
def test_iterates_equal_the_reference(problem, iterations):
    states, options = reference(problem, iterations)
    with pytest.warns(rg.ConvergenceWarning):
        result = rg.rcurc(
            problem.samples, 4, method="paper", holdout=0, tol=0, max_iter=iterations, undetermined="keep", **options
        )
    s = problem.samples
    assert result.n_iter == iterations
    assert relative(result.cur[s.rows, :], states[-1].X_rows) <= 1e-8
    assert relative(result.cur[:, s.cols], states[-1].X_cols) <= 1e-8
    np.testing.assert_allclose([h.error for h in result.history], [state.error for state in states], rtol=1e-8)


@pytest.mark.parametrize("changes", [{"gamma": 0.8}, {"step_rows": 1.0, "step_cols": 2.5}, {"zeta0": 3.0}])
def test_parameters_keep_their_meaning(problem, changes):
    states, options = reference(problem, 15, **changes)
    with pytest.warns(rg.ConvergenceWarning):
        result = rg.rcurc(problem.samples, 4, method="paper", holdout=0, tol=0, max_iter=15, undetermined="keep", **options)
    assert relative(result.cur[problem.samples.rows, :], states[-1].X_rows) <= 1e-8
    np.testing.assert_allclose([h.error for h in result.history], [state.error for state in states], rtol=1e-8)


def test_it_stops_where_the_reference_stops(problem):
    states, options = reference(problem, 300, tol=1e-12)
    result = rg.rcurc(problem.samples, 4, method="paper", holdout=0, tol=1e-12, **options)
    assert result.n_iter == len(states)
    assert result.history[-1].error <= 1e-12
    assert result.converged


def test_default_parameters_recover_the_truth(problem):
    result = rg.rcurc(problem.samples, 4, method="paper")
    assert result.converged
    assert problem.relative_error(result.cur) <= 1e-5


def test_a_pilot_decides_when_units_are_many_and_the_sums_are_exact(problem, monkeypatch):
    """With a pilot of 20 units the others follow in one pass; errors of all iterations are still those of everything."""
    states, options = reference(problem, 300, tol=1e-12)
    monkeypatch.setattr(paper, "_PILOT", 20)
    result = rg.rcurc(problem.samples, 4, method="paper", holdout=0, tol=1e-12, chunk_bytes=30_000, **options)
    assert result.history[-1].error <= 1e-12
    assert len(states) <= result.n_iter <= len(states) + 3
    shared = [h.error for h in result.history[: len(states)]]
    np.testing.assert_allclose(shared, [state.error for state in states], rtol=1e-8)


def test_e_k_alone_is_never_called_success(problem):
    """With 60 % outliers the threshold decays, e_k falls below any tolerance, and the result is garbage."""
    hopeless = rg.synthetic((260, 300), 4, 0.6, 10, n_rows=110, n_cols=120, rate=0.4, seed=4)
    with pytest.warns(rg.ConvergenceWarning):
        result = rg.rcurc(hopeless.samples, 4, method="paper", undetermined="keep")
    assert result.history[-1].error <= 1e-12
    assert hopeless.relative_error(result.cur) > 0.1
    assert not result.converged


def test_a_wrong_row_of_the_core_is_not_called_right():
    """Algorithm 1 leaves a row of the intersection wrong now and then; nothing mends it, so it must be reported."""
    hard = rg.synthetic((400, 400), 4, 0.3, 10, rate=0.3, seed=9)
    with pytest.warns(rg.ConvergenceWarning):
        result = rg.rcurc(hard.samples, 4, method="paper", undetermined="keep")
    rows = hard.samples.rows
    wrong = rows[hard.row_errors(result.cur)[rows] > 1e-2]
    assert len(wrong) > 0
    assert set(wrong) <= set(result.rows.undetermined)


def test_a_callback_sees_the_whole_iterate(problem):
    """`state.cur()` is X_k of the reference, also when it is asked for after the solve."""
    states, options = reference(problem, 8)
    seen = []
    with pytest.warns(rg.ConvergenceWarning):
        result = rg.rcurc(
            problem.samples,
            4,
            method="paper",
            holdout=0,
            tol=0,
            max_iter=8,
            undetermined="keep",
            callback=seen.append,
            **options,
        )
    s = problem.samples
    assert [state.iteration for state in seen] == list(range(1, 9))
    for state, expected in zip(seen, states, strict=True):
        assert relative(state.cur()[s.rows, :], expected.X_rows) <= 1e-8
        assert relative(state.cur()[:, s.cols], expected.X_cols) <= 1e-8
    np.testing.assert_array_equal(seen[-1].cur().to_dense(), result.cur.to_dense())
    assert result.history == seen
    assert all(state.make is None for state in result.history)  # else every iterate would be kept


def test_a_callback_sees_the_iterate_in_the_units_of_the_data(problem):
    s = problem.samples
    solves = []
    for unit in (1.0, 2.0**300):  # squares of such numbers overflow; the solver works in other units
        seen = []
        with pytest.warns(rg.ConvergenceWarning):
            rg.rcurc(s.scaled(unit), 4, method="paper", max_iter=3, callback=seen.append)
        solves.append([(state.threshold / unit, state.cur().to_dense() / unit) for state in seen])
    for (zeta, X), (other_zeta, other_X) in zip(*solves, strict=True):
        assert other_zeta == pytest.approx(zeta, rel=1e-9)
        assert relative(other_X, X) <= 1e-9


def test_where_there_is_no_whole_iterate_it_says_so(problem, monkeypatch):
    seen = []
    rg.rcurc(problem.samples, 4, callback=seen.append)
    with pytest.raises(RuntimeError, match="only a callback of method='paper'"):
        seen[0].cur()
    monkeypatch.setattr(paper, "_PILOT", 20)
    rg.rcurc(problem.samples, 4, method="paper", callback=seen.append)
    with pytest.raises(RuntimeError, match="at most 4096 columns"):
        seen[-1].cur()


def test_the_clock_goes_on_from_iteration_to_iteration(problem):
    seconds = [state.seconds for state in rg.rcurc(problem.samples, 4, method="paper").history]
    assert all(later > earlier for earlier, later in zip([0.0, *seconds], seconds, strict=False))
