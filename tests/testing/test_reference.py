"""Algorithm 1 as written beside the paper: against a still plainer version, and against the truth."""

import numpy as np
import pytest

from rcurc_gpu import rcurc_reference, synthetic

RATE = 0.6


class Dense:
    """A small problem as dense blocks and masks, and the arguments of Algorithm 1."""

    def __init__(self):
        problem = synthetic((80, 90), 2, alpha=0.1, n_rows=40, n_cols=42, rate=RATE, seed=0)
        s = problem.samples
        self.rows, self.cols = s.rows, s.cols
        self.X = problem.W @ problem.V.T
        self.Y_rows, self.Y_cols = s.R.toarray(), s.C.toarray()
        self.seen_rows, self.seen_cols = (np.zeros(shape, bool) for shape in (self.Y_rows.shape, self.Y_cols.shape))
        for seen, block in ((self.seen_rows, s.R.tocoo()), (self.seen_cols, s.C.tocoo())):
            seen[block.row, block.col] = True
        step = 0.75 / RATE
        self.options = {"zeta0": 5 * problem.mean_abs, "gamma": 0.9, "step_rows": step, "step_cols": 0.9 * step}

    def run(self, xp, **options):
        arrays = (self.Y_rows, self.Y_cols, self.seen_rows, self.seen_cols, self.rows, self.cols)
        return rcurc_reference(*map(xp.array, arrays), 2, **self.options, **options)

    def true_error(self, xp, state):
        """Of the whole matrix C U^+ R, not only of the cross."""
        X_rows, X_cols, W, s, V = (xp.numpy(x) for x in (state.X_rows, state.X_cols, state.W, state.s, state.V))
        X = X_cols @ np.linalg.pinv((W * s) @ V.T, rcond=1e-10) @ X_rows
        return np.linalg.norm(X - self.X) / np.linalg.norm(self.X)


@pytest.fixture(scope="module")
def small():
    return Dense()


def algorithm_1(small, rank, iterations, literal):
    """Every iterate as a whole n1 x n2 matrix, with the full SVD and the pseudo-inverse; e_k beside it."""
    I, J, (n1, n2) = small.rows, small.cols, small.X.shape  # noqa: E741
    zeta0, gamma, eta_R, eta_C = (small.options[name] for name in ("zeta0", "gamma", "step_rows", "step_cols"))
    Y, omega_R, omega_C = np.zeros((n1, n2)), np.zeros((n1, n2), bool), np.zeros((n1, n2), bool)
    omega_R[I], omega_C[:, J] = small.seen_rows, small.seen_cols
    Y[I] = np.where(small.seen_rows, small.Y_rows, 0)
    Y[:, J] = np.where(small.seen_cols, small.Y_cols, Y[:, J])
    omega = omega_R | omega_C
    X = np.zeros((n1, n2))
    for k in range(iterations):
        zeta = zeta0 * gamma**k
        S = np.where(np.abs(Y - X) >= zeta, Y - X, 0)
        R = (X + eta_R * omega_R * (Y - X - S))[I]
        C = (X + eta_C * omega_C * (Y - X - S))[:, J]
        joined = np.zeros((len(I), len(J)))
        for a, i in enumerate(I):
            for b, j in enumerate(J):
                if omega_R[i, j] and omega_C[i, j]:
                    joined[a, b] = eta_R * eta_C / (eta_R + eta_C) * (R[a, j] / eta_R + C[i, b] / eta_C)
                elif omega_R[i, j] or omega_C[i, j]:
                    joined[a, b] = R[a, j] if omega_R[i, j] else C[i, b]
                elif not literal:
                    joined[a, b] = X[i, j]
        u, s, vt = np.linalg.svd(joined)
        U = (u[:, :rank] * s[:rank]) @ vt[:rank]
        R[:, J], C[I] = U, U
        X = C @ np.linalg.pinv(U, rcond=1e-10) @ R
        yield X, np.sum((omega * (S + X - Y)) ** 2) / np.sum((omega * Y) ** 2)


@pytest.mark.parametrize("literal", [False, True], ids=["mended", "as printed"])
def test_the_iterates_are_those_of_algorithm_1_on_whole_matrices(xp, small, literal):
    states = []
    small.run(xp, max_iter=12, literal=literal, callback=states.append)
    assert [state.k for state in states] == list(range(1, 13))
    for state, (X, error) in zip(states, algorithm_1(small, 2, 12, literal), strict=True):
        np.testing.assert_allclose(xp.numpy(state.X_rows), X[small.rows], atol=1e-8)
        np.testing.assert_allclose(xp.numpy(state.X_cols), X[:, small.cols], atol=1e-8)
        assert state.error == pytest.approx(error, rel=1e-6)


def test_it_recovers_a_small_problem(xp, small):
    state = small.run(xp, max_iter=200)
    assert small.true_error(xp, state) < 1e-8


def test_the_union_sum_as_printed_fits_the_observations_and_misses_the_matrix(xp, small):
    state = small.run(xp, max_iter=200, literal=True)
    assert state.error < 1e-5
    assert small.true_error(xp, state) > 0.5


def test_it_stops_when_the_error_is_small_enough(xp, small):
    state = small.run(xp, tol=1e-6, max_iter=200)
    assert state.error <= 1e-6
    states = []
    small.run(xp, max_iter=state.k, callback=states.append)
    assert states[-2].error > 1e-6
    np.testing.assert_array_equal(xp.numpy(states[-1].X_rows), xp.numpy(state.X_rows))


def test_what_was_not_seen_may_hold_anything(xp, small):
    state = small.run(xp, max_iter=5)
    other = Dense()
    other.Y_rows[~other.seen_rows], other.Y_cols[~other.seen_cols] = 1e6, -1e6
    np.testing.assert_array_equal(xp.numpy(other.run(xp, max_iter=5).X_rows), xp.numpy(state.X_rows))
