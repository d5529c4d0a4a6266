"""Verdicts and evidence by CUDA kernels, against the plain code on NumPy; needs RCURC_TEST_DEVICE."""

import numpy as np
import pytest
from conftest import DEVICE, SKIP_CUPY

from rcurc_gpu.backends.kernels import XP
from rcurc_gpu.backends.plain import verdicts as plain
from rcurc_gpu.backends.plain.verdicts import Limits
from rcurc_gpu.extend.diagnostics import Summary, UnitDiagnostics
from rcurc_gpu.extend.typical import Tally, typical_by, typical_of

if not DEVICE:
    pytest.skip(SKIP_CUPY, allow_module_level=True)

import cupy

from rcurc_gpu.backends.cuda.verdicts import UnitTable
from rcurc_gpu.backends.kernels import cuda_kernels

EMULATED = DEVICE == "emulator"
if EMULATED:
    import hostgpu

TOLERANCE = {"float64": 1e-12, "float32": 1e-5}
RANK = 4


@pytest.fixture(params=range(3) if EMULATED else [0])
def orders(request):
    """The order of threads and blocks."""
    if EMULATED:
        hostgpu.set_seed(request.param)
    yield
    if EMULATED:
        hostgpu.set_seed(0)


def fits(n, dtype, seed=0):
    """Tables of a pass, of units of all kinds: few observations, few inliers, wide, ill-conditioned, without spread."""
    rng = np.random.default_rng(seed)
    n_obs = rng.integers(2, 60, n)
    n_in = np.minimum(rng.binomial(n_obs, rng.choice([0.3, 0.8, 0.95], n)), n_obs)
    spread = rng.choice([0.0, 0.1, 0.2, 3.0], n) * rng.uniform(0.9, 1.1, n)
    error = spread * rng.uniform(1, 6, n)
    held = rng.integers(0, 6, n)
    agree = np.minimum(held, rng.integers(0, 6, n))
    informative = np.minimum(n_in, rng.integers(0, 60, n))
    return np.stack([n_obs, n_in, spread, rng.random(n) < 0.1, error, informative, held, agree], axis=1).astype(dtype)


def limits(share=0.8, spread=0.15, floor=0.5, zeta0=10.0, **others):
    given = {"rank": RANK, "length": 70.0, "coherence": 1e300, "holdout": 0.05, "consensus": 0.03, "contests": True}
    return Limits(share=share, spread=spread, floor=floor, zeta0=zeta0, **(given | {"mended": True, "proof": 5} | others))


def on_host(table):
    """`plain.diagnose` of a table: diagnostics, held-out entries and counts."""
    d, held = UnitDiagnostics.blank(len(table)), np.empty((len(table), 2), np.int32)
    return d, held, plain.diagnose(table, RANK, 0.5, (*d.columns, held))


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n", [1, 700])
def test_what_is_known_of_units_is_that_of_the_plain_code(n, dtype, orders):
    inside, table = np.asarray([0, 2]), fits(n, dtype)
    core = UnitDiagnostics.from_table(np.asarray([[0, 9, 8, 0.1, 0.2, 8], [2, 9, 3, 0.1, 0.2, 3.0]]))
    outside = np.setdiff1d(np.arange(n + 2), inside)
    known = UnitTable(cupy.empty(0), n + 2, inside, core.as_table())
    d, held, counts = on_host(table)
    medians = known.diagnose(cupy.asarray(table), RANK, 0.5)
    assert typical_by(medians, 0.5) == typical_of(Tally(*counts), 0.5)
    for at in (limits(), limits(mended=False), limits(floor=1e-9), limits(contests=False, coherence=0.01)):
        again = UnitTable(cupy.empty(0), n + 2, inside, core.as_table())
        again.diagnose(cupy.asarray(table), RANK, 0.5)
        status, bits = plain.judge(d.columns, at)
        sums = again.judge(at)
        assert sums == tuple(int(np.count_nonzero(bits & bit)) for bit in (plain.DOUBTFUL, plain.FAILED, plain.UNKNOWN))
        indptr = np.concatenate([[0], np.cumsum(np.arange(n + 2) % 7)])
        for fit, alone in ((plain.DOUBTFUL | plain.CONTESTABLE, plain.SKEWED | plain.UNKNOWN), (0, plain.SKEWED), (0, 0)):
            a = np.random.default_rng(4).standard_normal((n, 4)).astype(dtype)
            places, rows, n_obs, coefficients, lone = again.picked(fit, alone, cupy.asarray(indptr), cupy.asarray(a))
            np.testing.assert_array_equal(places, np.flatnonzero(bits & fit))
            np.testing.assert_array_equal(rows[:, :6], d.take(places).as_table())  # with the status by itself
            np.testing.assert_array_equal(rows[:, 6:], held[places])
            np.testing.assert_array_equal(n_obs, outside[places] % 7)
            np.testing.assert_array_equal(coefficients, a[places])
            assert coefficients.dtype == a.dtype
            np.testing.assert_array_equal(lone.get(), np.flatnonzero((bits & alone > 0) & (bits & fit == 0)))
        whole = UnitDiagnostics.from_table(again.known())
        np.testing.assert_array_equal(whole.status[outside], status)
        np.testing.assert_array_equal(whole.status[inside], core.status)
        np.testing.assert_array_equal(again.undetermined(), whole.undetermined)
        found, rest = Summary.by_sums(again.summary(), core)
        expected, outer = Summary.parted(whole, inside, 0)
        for a, b in ((found, expected), (rest, outer)):
            assert (a.by_status, a.n_obs, a.n_inliers) == (b.by_status, b.n_obs, b.n_inliers)
            np.testing.assert_allclose(a.square, b.square, rtol=1e-12)
        assert (rest.n_held, rest.n_consensus) == tuple(held.sum(axis=0))
        # some units were fitted again: what is known of them is exchanged, and the sums are of what is known then
        some = outside[::5]
        new = np.concatenate([whole.take(some).as_table(), np.ones((len(some), 2))], axis=1)
        new[:, 0], new[:, 1] = 2.0, 1234.0
        found, _ = Summary.by_sums(again.summary(some, new), core)
        whole = UnitDiagnostics.from_table(again.known())
        np.testing.assert_array_equal(whole.take(some).n_obs, 1234)
        expected, _ = Summary.parted(whole, inside, 0)
        assert (found.by_status, found.n_obs, found.n_inliers) == (expected.by_status, expected.n_obs, expected.n_inliers)


def test_the_rules_see_units_of_all_kinds():
    d, _, _ = on_host(fits(700, "float64"))
    status, bits = plain.judge(d.columns, limits())
    assert set(status.tolist()) == {0, 1, 2, 3}
    for bit in (plain.DOUBTFUL, plain.FAILED, plain.CONTESTABLE, plain.SKEWED, plain.UNKNOWN):
        assert 0 < np.count_nonzero(bits & bit) < len(bits)


def test_crowded_units(orders):
    rng = np.random.default_rng(1)
    table = fits(300, "float64")
    known = UnitTable(cupy.empty(0), 300, np.zeros(0, np.int64), np.zeros((0, 6)))
    known.diagnose(cupy.asarray(table), RANK, 0.5)
    known.judge(limits())
    d = UnitDiagnostics.from_table(known.known())
    n_obs = np.where(d.status == 0, d.n_obs, 0)
    n_out = np.maximum(n_obs - d.n_inliers, 0)
    units, counts, totals = known.crowded(2.0)
    expected = np.flatnonzero(n_out > np.maximum(2.0 * n_out.sum() / n_obs.sum() * n_obs, 2))
    np.testing.assert_array_equal(units, expected)
    np.testing.assert_array_equal(counts, np.stack([n_obs, n_out], axis=1)[expected])
    assert totals.tolist() == [n_obs.sum(), n_out.sum()]
    some = np.sort(rng.choice(300, 100, replace=False))
    for number in (1, 10, 99, 100):
        most = known.most_outliers(some, number)
        assert len(np.unique(most)) == number
        np.testing.assert_array_equal(np.sort(n_out[some][most]), np.sort(n_out[some])[-number:])
    assert known.most_outliers(some[:0], 10).size == 0


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("rank", [1, 5, 32])
@pytest.mark.parametrize("n", [1, 3000])
def test_evidence(n, rank, dtype, orders):
    rng, kernels = np.random.default_rng(rank), cuda_kernels()
    W, V = (np.linalg.qr(rng.standard_normal((size, rank)))[0].astype(dtype) for size in (90, 80))
    s = np.sort(rng.uniform(1, 40, rank))[::-1].astype(dtype)
    i, j = rng.integers(0, 90, n), rng.integers(0, 80, n)
    y = np.sum(W[i] * s * V[j], axis=1) * (rng.random(n) < 0.9) + 0.01 * rng.standard_normal(n)
    y = (y + rng.choice([0, 3.0], n, p=[0.8, 0.2])).astype(dtype)
    given = (0.03, 0.05, 0.01)
    found = kernels.measure(tuple(map(cupy.asarray, (i, j, y))), tuple(map(cupy.asarray, (W, s, V))), *given)
    expected = XP.measure((i, j, y), (W, s, V), *given)
    for name in ("n", "n_informative", "n_agree", "n_below", "n_zero", "n_nonzero"):
        assert abs(getattr(found, name) - getattr(expected, name)) <= (0 if dtype == "float64" else 3)
    for name in ("near_square", "found", "claimed"):
        a, b = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(a, b, rtol=0, atol=10 * TOLERANCE[dtype] * max(np.abs(b).max(), 1))
    for a, b in zip(found.lists[:2], expected.lists[:2], strict=True):
        np.testing.assert_allclose(a.get(), b, rtol=0, atol=TOLERANCE[dtype] * np.abs(y).max())
    for size in (0.05, 0.0):  # some of the entries are informative, and all of them
        given = (0.03, size, 0.01)
        found = kernels.measure(tuple(map(cupy.asarray, (i, j, y))), tuple(map(cupy.asarray, (W, s, V))), *given)
        expected = XP.measure((i, j, y), (W, s, V), *given)
        assert n == 1 or (expected.n_informative < n) == (size > 0)
        compared, by_plain = kernels.compare(found, cupy.asarray(y), 0.03), XP.compare(expected, y, 0.03)
        np.testing.assert_allclose(compared[:3], by_plain[:3], rtol=1e-3 if dtype == "float32" else 1e-9)
        assert np.abs(np.subtract(compared[3:], by_plain[3:])).max() <= (0 if dtype == "float64" else 3)
    largest = XP.largest_squares(W, V)
    np.testing.assert_allclose(largest, (np.concatenate([W, V]).astype(float) ** 2).max(axis=0), rtol=TOLERANCE[dtype])
    np.testing.assert_allclose(kernels.largest_squares(*map(cupy.asarray, (W, V))), largest, rtol=TOLERANCE[dtype])
    np.testing.assert_allclose(kernels.sizes(cupy.asarray(y)), XP.sizes(y), rtol=TOLERANCE[dtype])
    for size in (0.5, 0.0, float(np.abs(y[0]))):  # one that is as large is not larger
        assert kernels.n_larger(cupy.asarray(y), size) == XP.n_larger(y, size) == np.count_nonzero(np.abs(y) > size)
    usable = (rng.random(90) < 0.8).astype(dtype)
    facts, by_plain = kernels.basis_facts(cupy.asarray(W), cupy.asarray(usable)), XP.basis_facts(W, usable)
    np.testing.assert_allclose(facts.gram, by_plain.gram, atol=TOLERANCE[dtype])
    np.testing.assert_allclose(facts[1:], by_plain[1:], rtol=TOLERANCE[dtype])
