"""The half-sweep of the noise model: plain code against sums written out, and compiled code against plain code."""

import numpy as np
import pytest

from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.backends.kernels import choose
from rcurc_gpu.backends.plain.posterior import (
    Fit,
    Model,
    Noise,
    is_all_faster,
    laid_out,
    packed_size,
    positions_of,
    posterior,
    posterior_of_matrix,
    product_variance,
    product_variances,
)

N_POSITIONS, N_UNITS = 60, 9


def make(offsets=True, k=3, rate=0.5, seed=0):
    """Units seen at some positions, with noise and outliers; the last but one has no observations."""
    rng = np.random.default_rng(seed)
    K = k + offsets
    A = 0.1 * rng.standard_normal((N_POSITIONS, K, K))
    q, p = np.tril_indices(K)
    covariance = (A @ A.transpose(0, 2, 1))[:, q, p]
    at = positions_of(
        rng.standard_normal((N_POSITIONS, K)), covariance, rng.uniform(0.5, 2, N_POSITIONS), 0.3 * offsets, offsets
    )
    Z = rng.standard_normal((N_UNITS, K))
    Y = Z @ at.x.T + at.shift + 0.1 * rng.standard_normal((N_UNITS, N_POSITIONS))
    Y[rng.random(Y.shape) < 0.1] += 20
    seen = rng.random(Y.shape) < rate
    seen[-2] = False
    indptr = np.concatenate([[0], np.cumsum(seen.sum(axis=1))])
    block = Block(indptr, np.nonzero(seen)[1].astype(np.int32), Y[seen], N_POSITIONS)
    weight = rng.choice([0.0, 1.0, 2.0], block.n_obs, p=[0.1, 0.8, 0.1])
    model = Model(at, Noise(0.02, 6.0, 0.1, 50.0, 0.7, 0.2), rng.uniform(0.5, 2, K))
    start = (np.zeros((N_UNITS, K)), np.zeros((N_UNITS, packed_size(K))), rng.uniform(0.5, 2, N_UNITS))
    return block, weight, model, start


def by_hand(block, weight, model, start, unit, heat):
    """One step for one unit, entry by entry."""
    at, noise, K = model.at, model.noise, model.at.x.shape[1]
    z, own = start[0][unit], start[2][unit]
    P, h = np.diag(model.precision), np.zeros(K)
    q, p = np.tril_indices(K)
    for t in range(block.indptr[unit], block.indptr[unit + 1]):
        if weight[t] == 0:
            continue
        i = block.index[t]
        full = np.zeros((K, K))
        full[q, p] = full[p, q] = at.covariance[i]
        x, y = at.x[i], block.value[t] - at.shift[i]
        tilde = np.append(z[:-1], 1.0) if at.offsets else z
        local = noise.variance * own * at.scale[i] / weight[t] * (noise.constant + noise.growth * (x @ z + at.shift[i]) ** 2)
        square = ((y - x @ z) ** 2 + tilde @ full @ tilde) / local
        second = np.outer(x, x)
        inner = full.copy()
        if at.offsets:
            inner[-1], inner[:, -1] = 0, 0
        density = np.exp(noise.top) / np.sqrt(local * heat**2)
        density *= (1 + square / (noise.tail * heat**2)) ** (-0.5 * (noise.tail + 1))
        inlier = (1 - noise.share) * density / ((1 - noise.share) * density + noise.share / noise.span)
        w = inlier * (noise.tail + 1) / (noise.tail + square / heat**2) / local
        P = P + w * (second + inner)
        cross = np.append(full[-1, :-1], 0.0) if at.offsets else np.zeros(K)
        h = h + w * (y * x - cross)
    S = np.linalg.inv(P)
    return S @ h, S[q, p]


@pytest.mark.parametrize("offsets", [True, False])
def test_a_step_is_what_the_formulas_say(offsets):
    block, weight, model, start = make(offsets)
    mean, covariance, table = posterior(block, weight, np.arange(N_UNITS), model, start, (2.0,))
    for unit in range(N_UNITS):
        z, S = by_hand(block, weight, model, start, unit, 2.0)
        np.testing.assert_allclose(mean[unit], z, atol=1e-12)
        np.testing.assert_allclose(covariance[unit], S, atol=1e-12)
    np.testing.assert_array_equal(table[:, Fit.N_FIT], np.diff(np.concatenate([[0], np.cumsum(weight > 0)])[block.indptr]))


def test_without_observations_the_prior_stays():
    block, weight, model, start = make()
    mean, covariance, table = posterior(
        block, weight, np.asarray([N_UNITS - 2]), model, tuple(x[-2:-1] for x in start), (1.0,)
    )
    diagonal = np.cumsum(np.arange(1, 5)) - 1
    np.testing.assert_array_equal(mean, 0)
    np.testing.assert_allclose(covariance[0, diagonal], 1 / model.precision)
    assert table[0, Fit.N_FIT] == 0


@pytest.mark.parametrize("measure", [False, True])
@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize("rate", [0.05, 0.6])
def test_compiled_code_agrees_with_plain_code(rate, offsets, measure):
    block, weight, model, start = make(offsets, rate=rate, seed=3)
    units, heats = np.asarray([4, 0, 7, 8]), (8.0, 2.0, 1.0, 1.0)
    begin = tuple(x[units] for x in start)
    plain = posterior(block, weight, units, model, begin, heats, measure)
    fused = choose("fused", np.empty(0)).posterior(block, weight, units, model, begin, heats, measure)
    for a, b in zip(plain, fused, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("k", [1, 6, 7, 12])  # vectors that are full, and others
def test_compiled_code_agrees_for_any_number_of_unknowns(k):
    block, _, model, start = make(k=k, seed=5)
    units = np.arange(N_UNITS)
    plain = posterior(block, None, units, model, start, (2.0, 1.0), True)
    for weight in (None, np.ones(block.n_obs)):
        fused = choose("fused", np.empty(0)).posterior(block, weight, units, model, start, (2.0, 1.0), True)
        for a, b in zip(plain, fused, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("measure", [False, True])
@pytest.mark.parametrize("tail", [4.0, 10.0, 30.0])
@pytest.mark.parametrize("offsets", [True, False])
def test_compiled_sums_by_products_agree_with_sums_over_entries(offsets, tail, measure):
    block, weight, model, start = make(offsets, k=9, rate=0.9, seed=7)
    model = Model(model.at, Noise(0.02, tail, 0.1, 50.0, 0.7, 0.2), model.precision)
    fused, units, heats = choose("fused", np.empty(0)), np.arange(N_UNITS), (4.0, 1.0)
    single = fused.posterior(block, weight, units, model, start, heats, measure)
    matrices = laid_out(block, weight, units, np.empty(0))
    together = posterior_of_matrix(*matrices, model, start, heats, measure, fused.matrix_steps)
    for a, b in zip(single, together, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("offsets", [True, False])
def test_variances_of_all_products_are_those_of_each(offsets, xp):
    rng, (m, n, K) = np.random.default_rng(0), (7, 5, 4)
    u, v = rng.standard_normal((m, K)), rng.standard_normal((n, K))
    q, p = np.tril_indices(K)
    S, T = ((A @ A.transpose(0, 2, 1))[:, q, p] for A in (rng.standard_normal((k, K, K)) for k in (m, n)))
    if offsets:
        u[:, -1] = v[:, -1] = 1.0
    every = xp.numpy(product_variances(*map(xp.array, (u, v, S, T)), offsets))
    i, j = np.indices((m, n)).reshape(2, -1)
    single = xp.numpy(product_variance(*map(xp.array, (u[i], v[j], S[i], T[j])), offsets))
    np.testing.assert_allclose(every.ravel(), single, rtol=1e-12)
    # drawn at random: products of normal numbers; what is 1 does not vary, and the variance beside it is an offset's
    a, b = (
        x + np.einsum("nkl,dnl->dnk", np.linalg.cholesky(full), rng.standard_normal((40_000, len(x), K)))
        for x, full in ((u, _full(S, K)), (v, _full(T, K)))
    )
    drawn = np.einsum("dk,dk->d", a[:, 2, : K - offsets], b[:, 3, : K - offsets])
    drawn = drawn + (a[:, 2, -1] + b[:, 3, -1] if offsets else 0.0)
    assert every[2, 3] == pytest.approx(np.var(drawn), rel=0.05)


def _full(packed, K):
    q, p = np.tril_indices(K)
    full = np.zeros((len(packed), K, K))
    full[:, q, p] = full[:, p, q] = packed
    return full


def test_all_products_are_formed_only_where_few_rows_and_columns_meet_often():
    assert is_all_faster(700, 60, 6000)
    assert not is_all_faster(700, 60, 100)
    assert not is_all_faster(10**6, 10**6, 10**12)


@pytest.mark.parametrize("kernels", ["xp", "fused"])
def test_without_steps_the_start_is_measured(kernels):
    block, weight, model, start = make()
    code = choose(kernels, np.empty(0)).posterior
    units = np.arange(N_UNITS)
    mean, covariance, table = code(block, weight, units, model, start, (2.0, 1.0), True)
    again = code(block, weight, units, model, (mean, covariance, start[2]), (), True)
    for a, b in zip((mean, covariance, table), again, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-12)


def test_it_runs_elsewhere(xp):
    block, weight, model, start = make()
    there = Model(
        type(model.at)(
            *(xp.array(getattr(model.at, name)) for name in ("x", "shift", "second", "cross", "covariance", "scale")), True
        ),
        model.noise,
        xp.array(model.precision),
    )
    moved = Block(xp.array(block.indptr), xp.array(block.index), xp.array(block.value), block.length)
    found = posterior(moved, xp.array(weight), np.arange(N_UNITS), there, tuple(map(xp.array, start)), (4.0, 1.0), True)
    here = posterior(block, weight, np.arange(N_UNITS), model, start, (4.0, 1.0), True)
    for a, b in zip(found, here, strict=True):
        np.testing.assert_allclose(xp.numpy(a), b, rtol=1e-9, atol=1e-9)
