"""The CUDA kernels agree with the plain array-API code on NumPy, whatever the order of the threads, in one launch each.

Like test_cupy.py this needs RCURC_TEST_DEVICE: the emulator in tests/hostgpu, or "cuda" for a GPU.
"""

from dataclasses import replace

import numpy as np
import pytest
from conftest import DEVICE, SKIP_CUPY

from rcurc_gpu.backends import operators
from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.backends.plain import passes
from rcurc_gpu.backends.plain.grid import make_grid
from rcurc_gpu.backends.plain.passes import Column, EntryIds, FitPass, Iterates
from rcurc_gpu.backends.plain.regression import Schedule
from rcurc_gpu.backends.plain.votes import split as plain_split

if not DEVICE:
    pytest.skip(SKIP_CUPY, allow_module_level=True)

import cupy

from rcurc_gpu.backends.cuda import calls as cuda
from rcurc_gpu.backends.cuda import votes

EMULATED = DEVICE == "emulator"
if EMULATED:
    import hostgpu

SEEDS = range(3) if EMULATED else [0]  # of the order of threads and blocks
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}
NOISE = {"float64": 1e-6, "float32": 1e-3}
EXACT = [column for column in Column if column not in (Column.SPREAD, Column.STANDARD_ERROR)]  # exact numbers
dtypes = pytest.mark.parametrize("dtype", ["float64", "float32"])


def to_device(x):
    if x is None or isinstance(x, (int, float, str, FitPass)):
        return x
    if isinstance(x, Block):
        return Block(*map(to_device, (x.indptr, x.index, x.value)), x.length)
    if isinstance(x, EntryIds):
        return replace(x, unit=to_device(x.unit), index=to_device(x.index))
    if isinstance(x, Iterates):
        return Iterates(*map(to_device, (x.bases, x.turns, x.zetas)), x.step_size)
    return cupy.asarray(x)


def launches(function, *arguments):
    """The result of a call, and how often each kernel was launched for it; None if nothing counts."""
    if not EMULATED:
        return function(*arguments), None
    hostgpu.reset_stats()
    result = function(*arguments)
    return result, dict(hostgpu.stats()["launches_by_kernel"])


def close(found, expected, dtype, scale=1.0):
    """Equal to rounding, relative to the largest number."""
    found, expected = cupy.asnumpy(found), np.asarray(expected)
    assert found.shape == expected.shape
    size = max(np.abs(expected).max(initial=0), 1e-30)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE[dtype] * scale * size)


# ---------------------------------------------------------------- regress


def problem(counts, length, rank, dtype, outliers=0.15, seed=0):
    """Units with these numbers of entries: y = D a + noise, with outliers. Block, basis and the true a."""
    rng = np.random.default_rng(seed)
    counts = np.asarray(counts)
    basis = np.linalg.qr(rng.standard_normal((length, rank)))[0] * length**0.5
    a = rng.standard_normal((len(counts), rank))
    index = np.concatenate([np.sort(rng.choice(length, n, replace=False)) for n in counts]).astype(np.int32)
    y = np.sum(basis[index] * np.repeat(a, counts, axis=0), axis=1) + NOISE[dtype] * rng.standard_normal(len(index))
    bad = rng.random(len(y)) < outliers
    y = y + bad * rng.uniform(1, 5, len(y)) * rng.choice([-1, 1], len(y))
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Block(indptr, index, y.astype(dtype), length), basis.astype(dtype), a.astype(dtype)


def a_look(dtype, begin="zero", number=0, start=None, **others):
    floor = 4 * NOISE[dtype]
    return FitPass(Schedule(5.0, floor, 0.6), min(floor, 0.5), begin, number, start, **others)


def some_names(block, share=0.0, transposed=False):
    return EntryIds(np.arange(block.n_units) * 2 + 5, np.arange(block.length) * 3 + 1, transposed, 7, share)


def check_regress(block, units, basis, ids, a_look, usable=None, least_good=1):
    """Compare with the plain code on NumPy: everything where the inliers determine the unit, the numbers elsewhere."""
    dtype, rank = basis.dtype.name, basis.shape[1]
    usable = np.ones(block.length, dtype) if usable is None else usable
    white = (np.linalg.inv(np.linalg.cholesky(basis.T @ basis))).astype(dtype)
    expected, table = passes.regress(block, units, basis, usable, white, ids, a_look)
    arguments = tuple(map(to_device, (block, units, basis, usable, white, ids)))
    there = replace(a_look, start=to_device(a_look.start))
    (found, found_table), counted = launches(cuda.regress, *arguments, there)
    assert counted in (None, {"regress": 1})
    found, found_table = found.get(), found_table.get()
    assert found.dtype == found_table.dtype == basis.dtype
    assert np.isfinite(found).all()
    assert np.isfinite(found_table).all()
    good = (table[:, Column.N_INLIERS] >= rank + 2) & (table[:, Column.ILL] == 0)
    assert good.sum() >= least_good
    close(found[good], expected[good], dtype)
    np.testing.assert_array_equal(found_table[good][:, EXACT], table[good][:, EXACT])
    # The spread is a root of squares of what cancelled, about as large as the noise: it is equal to rounding of the values,
    # not of itself. Where inliers are many it is better than that in single precision; where they are hardly more than
    # unknowns, it and the error that follows from an inverse lose as many digits as the condition has: machines differ.
    scale = 1 / NOISE[dtype] if dtype == "float64" else 100
    close(found_table[good][:, Column.SPREAD], table[good][:, Column.SPREAD], dtype, 1 / NOISE[dtype])
    well = good & (table[:, Column.N_INLIERS] >= 3 * rank)
    assert well.any()
    close(found_table[well][:, Column.SPREAD], table[well][:, Column.SPREAD], dtype, scale)
    error = Column.STANDARD_ERROR
    close(found_table[well][:, error], table[well][:, error], dtype, scale)
    always = [Column.N_FIT, Column.N_HELD]
    np.testing.assert_array_equal(found_table[:, always], table[:, always])
    return found, found_table


COUNTS = [0, 3, 40, 300, 77, 31, 32, 33, 260, 1, 1300]


@dtypes
@pytest.mark.parametrize("rank", [1, 5, 16, 32])
@pytest.mark.parametrize("begin", ["zero", "given", "part", "subsets"])
def test_regress_from_every_beginning(dtype, rank, begin):
    # A subset of as many entries as unknowns is often singular, and rounding then decides where it leads: long units, few
    # outliers.
    hard = begin == "subsets" and rank > 5
    counts = [0, 900, 1300] if hard else COUNTS
    block, basis, a = problem(counts, 1500, rank, dtype, outliers=0.01 if hard else 0.15)
    start = a + np.asarray(0.01, dtype) if begin == "given" else None
    number = {"part": 3, "subsets": 20}.get(begin, 0)
    the_look = a_look(dtype, begin, number, start)
    check_regress(block, np.arange(len(counts)), basis, some_names(block), the_look, least_good=2)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("begin", ["zero", "part", "subsets"])
def test_regress_does_not_depend_on_the_order_of_threads(seed, begin):
    block, basis, _ = problem(COUNTS, 1500, 5, "float64")
    units = np.arange(len(COUNTS))
    # enough subsets for one without outliers in each unit: where all have some, rounding decides where they lead
    the_look = a_look("float64", begin, 12 if begin == "subsets" else 6)
    first, first_table = check_regress(block, units, basis, some_names(block, 0.1), the_look)
    if EMULATED:
        hostgpu.set_seed(seed + 1)
    again, again_table = check_regress(block, units, basis, some_names(block, 0.1), the_look)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first_table, again_table)


@pytest.mark.smoke
@dtypes
@pytest.mark.parametrize("transposed", [False, True])
def test_regress_holds_out_and_leaves_out_rows(dtype, transposed):
    block, basis, _ = problem([100, 39, 40, 2000, 250], 2500, 5, dtype)
    usable = (np.random.default_rng(3).random(2500) < 0.8).astype(dtype)
    basis[usable == 0] = 7.0
    ids = some_names(block, 0.2, transposed)
    _, table = check_regress(block, np.arange(5), basis, ids, a_look(dtype), usable, least_good=5)
    assert table[1, Column.N_HELD] == 0  # too few entries to spare any
    assert 0.15 < table[3, Column.N_HELD] / 2000 < 0.25
    # the others are outliers, or in rows that are not usable
    assert table[3, Column.N_CONSENSUS] > 0.6 * table[3, Column.N_HELD]


@dtypes
def test_regress_of_some_units_in_any_order(dtype):
    block, basis, a = problem([50, 60, 0, 70, 1100, 80, 90], 1200, 3, dtype)
    units = np.asarray([5, 0, 4, 2, 1])
    the_look = a_look(dtype, "given", start=a[units])
    found, _ = check_regress(block, units, basis, some_names(block, 0.1), the_look, least_good=4)
    alone, _ = check_regress(block, units[2:3], basis, some_names(block, 0.1), replace(the_look, start=a[units[2:3]]))
    np.testing.assert_array_equal(alone[0], found[2])  # whatever else is looked at
    empty, table = cuda.regress(
        *map(to_device, (block, units[:0], basis, basis[:, 0], basis[:3])), some_names(block), the_look
    )
    assert (empty.shape, table.shape) == ((0, 3), (0, 8))


@pytest.mark.parametrize("seed", SEEDS)
@dtypes
def test_passes_made_together_are_those_made_one_by_one(dtype, seed):
    """To the bit, long units included, which keep a whole block."""
    block, basis, a = problem([50, 60, 0, 70, 1100, 80, 90], 1200, 3, dtype)
    units = np.asarray([5, 0, 4, 2, 1])
    first = a_look(dtype, "given", start=to_device(a[units]))
    others = [
        replace(a_look(dtype, begin, number), schedule=Schedule(5.0, 4 * NOISE[dtype], 0.7))
        for begin, number in (("zero", 0), ("part", 2), ("subsets", 12))
    ]
    arguments = (
        *map(to_device, (block, units, basis, np.ones(1200, dtype), np.eye(3, dtype=dtype))),
        to_device(some_names(block, 0.1)),
    )
    if EMULATED:
        hostgpu.set_seed(seed)
    (together, tables), counted = launches(cuda.regress_together, *arguments, [first, *others])
    assert counted in (None, {"regress": 1})
    assert together.shape == (5, 1 + len(others), 3)
    for k, fit_pass in enumerate([first, *others]):
        alone, table = cuda.regress(*arguments, fit_pass)
        np.testing.assert_array_equal(together[:, k].get(), alone.get())
        np.testing.assert_array_equal(tables[:, k].get(), table.get())


@dtypes
def test_regress_only_measures_without_steps(dtype):
    block, basis, a = problem(COUNTS, 1500, 4, dtype)
    units = np.arange(len(COUNTS))
    the_look = a_look(dtype, "given", start=a, max_steps=0)
    found, _ = check_regress(block, units, basis, some_names(block, 0.1), the_look, least_good=5)
    np.testing.assert_array_equal(found, a)


def test_regress_of_units_that_do_not_fit_in_shared_memory():
    """Entries are then read again, and whether the inliers changed is found from two solutions."""
    counts = [20] * 30 + [900, 1000, 3000, 1024, 1025]  # few on average, so little room is made
    block, basis, a = problem(counts, 4000, 5, "float64")
    units = np.arange(len(counts))
    for begin, number in (("zero", 0), ("part", 2), ("subsets", 20)):
        check_regress(block, units, basis, some_names(block, 0.1), a_look("float64", begin, number), least_good=20)
    check_regress(block, units, basis, some_names(block), a_look("float64", "given", start=a), least_good=20)


@dtypes
def test_regress_on_a_basis_that_is_not_aligned(dtype):
    """Rows are read in pieces of 16 bytes where they are aligned; a view into another array may not be."""
    block, basis, _ = problem([100, 60], 200, 4, dtype)
    arguments = (np.ones(200, dtype), np.eye(4, dtype=dtype), some_names(block), a_look(dtype))
    units, there = np.arange(2), cupy.empty(801, dtype)[1:].reshape(200, 4)
    there[...] = cupy.asarray(basis)
    assert there.data.ptr % 16
    found, _ = cuda.regress(to_device(block), units, there, *map(to_device, arguments))
    expected, _ = cuda.regress(to_device(block), units, to_device(basis), *map(to_device, arguments))
    np.testing.assert_array_equal(found.get(), expected.get())


def test_regress_of_many_units():
    counts = np.random.default_rng(0).integers(0, 40, 1100)  # several units to a block
    counts[[3, 500, 501]] = 1200
    block, basis, _ = problem(counts, 1300, 2, "float64")
    check_regress(block, np.arange(1100), basis, some_names(block, 0.1), a_look("float64"), least_good=800)


@dtypes
def test_units_of_outliers_alone_or_zeros(dtype):
    block, basis, _ = problem([60, 60, 60, 60], 100, 3, dtype)
    value = block.value.copy()
    value[:60] = np.random.default_rng(0).uniform(-1e3, 1e3, 60)  # beyond the first threshold, or agreeing by chance
    value[60:120] = 1e6
    value[120:180] = 0
    block = replace(block, value=value)
    for begin in ("zero", "part", "subsets"):
        found, table = check_regress(block, np.arange(4), basis, some_names(block), a_look(dtype, begin, 5), least_good=1)
        np.testing.assert_array_equal(found[2], 0)
        assert table[2, Column.N_INFORMATIVE] == 0  # nothing that would tell


# ---------------------------------------------------------------- questions to single entries


@dtypes
def test_held_out_entries(dtype):
    block, _, _ = problem(COUNTS, 1500, 3, dtype)
    ids = np.arange(len(COUNTS)) * 2 + 5, np.arange(1500) * 3 + 1
    expected = passes.held_out(block, *ids, 7, 0.2)
    found, counted = launches(votes.held_out, to_device(block), *map(to_device, ids), 7, 0.2)
    assert counted in (None, {"held_out": 1})
    assert found.dtype == bool
    np.testing.assert_array_equal(found.get(), expected)
    assert 0.15 < expected.mean() < 0.25


@dtypes
@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("units", [[5, 0, 4, 2, 10], range(len(COUNTS)), [*range(len(COUNTS))] * 4, []])
def test_votes(dtype, units, few, monkeypatch):
    monkeypatch.setattr(votes, "_FEW_UNITS", 10**6 if few else -1)
    block, basis, a = problem(COUNTS, 1500, 3, dtype)
    units = np.asarray(units, dtype=np.int64)
    usable = (np.random.default_rng(3).random(1500) < 0.8).astype(dtype)
    floor = 6 * NOISE[dtype]
    winner, rejected = plain_split(block, units, basis, usable, a[units], floor)
    for seed in SEEDS:
        if EMULATED:
            hostgpu.set_seed(seed)
        given = (to_device(block), units, *map(to_device, (basis, usable, a[units])), floor)
        (found, others), counted = launches(votes.split, *given)
        assert counted in (None, {"split_few": 1} if few else {"count_votes": 1, "take_rejected": 1})
        of_all, counted = launches(votes.split, *given[:4], to_device(a), floor, units)  # their rows among those of all
        assert counted is None or len(counted) == 2 - few
        for ours, theirs in ((found, others), of_all):
            np.testing.assert_array_equal(ours, winner)
            for name in ("indptr", "index", "value"):
                np.testing.assert_array_equal(getattr(theirs, name).get(), getattr(rejected, name))
                assert getattr(theirs, name).dtype == getattr(rejected, name).dtype
    again = plain_split(block, units, basis, usable, a, floor, units)
    np.testing.assert_array_equal(again[0], winner)
    np.testing.assert_array_equal(again[1].value, rejected.value)


# ---------------------------------------------------------------- the core's grid


def intersection(m, n, rate, width, dtype, seed=0):
    """A block with an empty row and an empty column, weights (0: held out), left and orthonormal Q."""
    rng = np.random.default_rng(seed)
    seen = rng.random((m, n)) < rate
    if m > 2 and n > 2:
        seen[m // 2], seen[:, n // 3] = False, False
    index = np.nonzero(seen)[1].astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(seen.sum(axis=1))]).astype(np.int64)
    block = Block(indptr, index, rng.standard_normal(len(index)).astype(dtype), n)
    weight = rng.choice([0, 1.0, 1.5], len(index)).astype(dtype)
    Q = np.linalg.qr(rng.standard_normal((n, width)))[0].astype(dtype)
    return block, weight, (rng.standard_normal((m, width)) / m**0.5).astype(dtype), Q


def as_matrix(grid, G, block, weight):
    """What a list G of a CUDA grid stands for."""
    out = np.zeros((block.n_units, block.length))
    if isinstance(grid, cuda.CudaDenseGrid):
        return G[0].get()
    i, j = block.unit_of_entry(), block.index
    out[i[weight > 0], j[weight > 0]] = G[0].get()
    return out


SHAPES = [(23, 17, 4), (1, 40, 1), (70, 100, 8), (33, 45, 20), (50, 41, 40), (300, 5, 3)]


@pytest.mark.smoke
@dtypes
@pytest.mark.parametrize("layout", ["sparse", "dense"])
@pytest.mark.parametrize(("m", "n", "width"), SHAPES)
def test_grid(dtype, layout, m, n, width):
    block, weight, left, Q = intersection(m, n, 0.5, width, dtype)
    plain = make_grid(block, weight, None, "dense")
    grid = cuda.make_grid(to_device(block), to_device(weight), None, layout)
    assert type(grid) is {"sparse": cuda.CudaGrid, "dense": cuda.CudaDenseGrid}[layout]
    there_left, there_Q = to_device(left), to_device(Q)
    G, S = None, None
    former = None
    for zeta in (0.8, 0.5):
        expected = plain.threshold(left, Q, np.asarray(zeta, dtype), S)
        device_zeta = cupy.asarray(zeta, dtype)
        found, counted = launches(grid.threshold, there_left, there_Q, device_zeta, former)
        assert counted in (None, {"threshold": 1})
        G, S, former = expected[0], expected[1], found[1]
        for mine, theirs in zip(found[:2], expected[:2], strict=True):
            close(as_matrix(grid, mine, block, weight), np.concatenate(theirs), dtype)
        close(found[2], expected[2], dtype)
        close(found[3], expected[3], dtype)
        assert float(found[4]) == expected[4]
        assert found[3].shape == found[4].shape == ()

    X, P = Q[:, : max(width - 1, 1)], left[:, ::-1]  # neither is in C order
    product, counted = launches(grid.mul, found[0], cupy.asarray(np.ascontiguousarray(X)))
    assert counted in (None, {"multiply": 1})
    close(product, plain.mul(G, X), dtype)
    base = np.ones((n, width), dtype)
    there = [cupy.asarray(np.ascontiguousarray(P)), to_device(base)]
    product, counted = launches(grid.rmul, found[0], *there)
    assert counted in (None, {"multiply" if layout == "sparse" else "multiply_columns": 1})
    close(product, plain.rmul(G, P, base), dtype)
    close(grid.rmul(found[0], to_device(left)[:, ::-1]), plain.rmul(G, P), dtype)
    by_columns = cupy.asfortranarray(to_device(P))
    product, counted = launches(grid.rmul, found[0], by_columns)
    assert counted is None or layout == "dense" or counted == {"multiply": 1}
    close(product, plain.rmul(G, P), dtype)

    for zeta in (0.5, np.inf):
        kept, rows, columns = grid.inlying(there_left, there_Q, zeta)
        expected_kept, expected_rows, expected_columns = plain.inlying(left, Q, zeta)
        close(as_matrix(grid, kept, block, weight), np.concatenate(expected_kept), dtype)
        np.testing.assert_array_equal(rows.get(), expected_rows)
        np.testing.assert_array_equal(columns.get(), expected_columns)
        told, counted = launches(grid.tally, there_left, there_Q, zeta)
        assert counted in (None, {"tally": 1})
        expected = plain.tally(left, Q, zeta)
        np.testing.assert_allclose(told.square, expected.square, rtol=10 * TOLERANCE[np.dtype(dtype).name])
        for a, b in zip(told[1:], expected[1:], strict=True):
            np.testing.assert_array_equal(a, b)


@dtypes
@pytest.mark.parametrize("n", [1, 2, 7, 512, 1777])
@pytest.mark.parametrize("seed", SEEDS)
def test_floor_threshold(dtype, n, seed):
    block, weight, left, Q = intersection(40, 30, 0.5, 6, dtype)
    rng = np.random.default_rng(n)
    sample = (rng.integers(0, 40, n), rng.integers(0, 30, n), rng.standard_normal(n).astype(dtype))
    plain = make_grid(block, weight, None)
    grid = cuda.make_grid(to_device(block), to_device(weight))
    there = (to_device(left), to_device(Q), tuple(map(to_device, sample)))
    if EMULATED:
        hostgpu.set_seed(seed)
    for zeta, floor in ((0.1, 2.5), (100.0, 2.5), (0.3, 0.0)):
        found, counted = launches(grid.floor_threshold, *there, zeta, floor)
        assert counted is None or sum(counted.values()) == 1
        assert (found.shape, found.dtype) == ((), dtype)
        close(found, plain.floor_threshold(left, Q, sample, zeta, floor), dtype)


def test_the_median_of_equal_and_of_huge_numbers():
    block, weight, left, Q = intersection(40, 30, 0.5, 6, "float64")
    grid = cuda.make_grid(to_device(block), to_device(weight))
    zero = cupy.zeros_like(to_device(left))
    for y in ([3.0] * 9, [0.0] * 5 + [1.0] * 5, [1e300, 1e-300, 5.0], [np.inf] * 3, [1.0, np.nan, np.nan]):
        at = cupy.zeros(len(y), np.int64)
        found = grid.floor_threshold(zero, to_device(Q), (at, at, cupy.asarray(y)), 1e-9, 1.0)
        np.testing.assert_array_equal(found.get(), np.maximum(1e-9, np.sort(y)[(len(y) - 1) // 2]))


@pytest.mark.smoke
@dtypes
@pytest.mark.parametrize(("m", "n", "width"), SHAPES)
def test_change(dtype, m, n, width):
    width = min(m, n, width)
    block, weight, left, Q = intersection(m, n, 0.5, width, dtype)
    rng = np.random.default_rng(5)
    s = np.linspace(2, 1, width)
    s[width // 2 + 1 :] = 0
    far = np.linalg.qr(rng.standard_normal((m, width)))[0] * s, np.linalg.qr(rng.standard_normal((n, width)))[0], s
    near = left * 0 + far[0] * (1 + 1e-7), far[1], s
    plain, grid = make_grid(block, weight, None), cuda.make_grid(to_device(block), to_device(weight))
    for old in ((left, Q, np.linalg.norm(left, axis=0)), far):
        old, new = tuple(x.astype(dtype) for x in old), tuple(x.astype(dtype) for x in (near[0], near[1]))
        found, counted = launches(grid.change, *map(to_device, (*new, *old)))
        assert counted is None or width == 1 or counted == {"change": 1}  # CuPy's product of vectors is a kernel
        # what is left of a change of 1e-7 has 1e-9 of its digits (float32 none)
        expected = float(plain.change(*new, *old))
        assert abs(float(found) - expected) <= TOLERANCE[dtype] * 10 * max(expected, 1)


@pytest.mark.smoke
@dtypes
def test_numbers_and_scaled_factors_take_one_launch_each(dtype):
    block, weight, _, _ = intersection(4, 3, 0.9, 2, dtype)
    grid = cuda.make_grid(to_device(block), to_device(weight))
    s = np.arange(3).astype(dtype) + 20
    expected = None
    for k in range(3):
        numbers = np.arange(5).astype(dtype) + 10 * k
        before = None if expected is None else to_device(expected)
        found, counted = launches(grid.record, before, list(cupy.asarray(numbers)), to_device(s))
        assert counted in (None, {"record": 1})
        expected = np.concatenate([numbers if expected is None else np.concatenate([expected, numbers]), s])
        np.testing.assert_array_equal(found.get(), expected)
    P = np.random.default_rng(0).standard_normal((301, 3)).astype(dtype)
    (left, leading), counted = launches(grid.scale, to_device(P), to_device(s), 2)
    assert counted in (None, {"scale": 1})
    np.testing.assert_array_equal(leading.get(), s * [1, 1, 0])
    np.testing.assert_array_equal(left.get(), (P * s * [1, 1, 0]).astype(dtype))


def test_sums_do_not_depend_on_the_order_of_blocks():
    block, weight, left, Q = intersection(70, 100, 0.5, 8, "float64")
    grid = cuda.make_grid(to_device(block), to_device(weight), None, "sparse")
    results = []
    for seed in SEEDS:
        if EMULATED:
            hostgpu.set_seed(seed)
        *_, Z, square, count = grid.threshold(to_device(left), to_device(Q), cupy.asarray(0.5), None)
        change = grid.change(*map(to_device, (left, Q, left[::-1], Q[::-1], left[0])))
        results.append((Z.tobytes(), float(square), float(count), float(change)))
    assert len(set(results)) == 1


# ---------------------------------------------------------------- the paper's recursion


@dtypes
@pytest.mark.parametrize("rank", [1, 5, 16, 32])
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_advance(dtype, rank, share):
    counts = [0, 3, 40, 300, 77, 600, 33, 64]
    block, basis, _ = problem(counts, 700, rank, dtype)
    rng = np.random.default_rng(1)
    steps = 4
    bases = np.stack([np.linalg.qr(basis + 0.1 * rng.standard_normal(basis.shape))[0] for _ in range(steps + 1)]).astype(
        dtype
    )
    turns = np.stack([bases[k].T @ bases[k + 1] for k in range(steps)])
    zetas = np.asarray([5, 3, 2, 1.5], dtype)
    usable = (rng.random(700) < 0.9).astype(dtype)
    units = np.asarray([7, 3, 0, 1, 5, 4])
    ids = some_names(block, share, True)
    a = rng.standard_normal((len(units), rank)).astype(dtype)
    on_host = (block, units, usable, ids, Iterates(bases, turns, zetas, 1.7), a)
    expected, expected_sums = passes.advance(*on_host)
    arguments = tuple(map(to_device, on_host))
    (found, sums), counted = launches(cuda.advance, *arguments)
    assert counted in (None, {"advance": 1})
    close(found, expected, dtype)
    close(sums[:, 0], expected_sums[:, 0], dtype, 10)
    np.testing.assert_array_equal(sums[:, 1].get(), expected_sums[:, 1])
    for seed in SEEDS:
        if EMULATED:
            hostgpu.set_seed(seed)
        again, again_sums = cuda.advance(*arguments)
        np.testing.assert_array_equal(again.get(), found.get())
        np.testing.assert_array_equal(again_sums.get(), sums.get())


def test_advance_of_many_and_of_no_units():
    counts = np.random.default_rng(0).integers(0, 12, 2100)  # more than there are warps
    counts[7] = 900
    block, basis, _ = problem(counts, 1000, 2, "float64")
    bases = np.stack([basis, basis, basis]) / 1000
    turns, zetas, a = np.stack([np.eye(2)] * 2), np.asarray([2.0, 1.0]), np.zeros((2100, 2))
    ids, usable = some_names(block), np.ones(1000)
    for units in (np.arange(2100), np.arange(0)):
        arguments = (block, units, usable, ids, Iterates(bases, turns, zetas, 3.0), a[: len(units)])
        found, sums = cuda.advance(*map(to_device, arguments))
        assert found.shape == (len(units), 2)
        if len(units):
            expected, expected_sums = passes.advance(*arguments)
            close(found, expected, "float64")
            close(sums, expected_sums, "float64")
        else:
            np.testing.assert_array_equal(sums.get(), 0)


# ---------------------------------------------------------------- operators


@pytest.mark.smoke
@dtypes
@pytest.mark.parametrize("shape", [(7,), (33, 41), (0, 3), ()])
def test_hard_threshold(dtype, shape):
    M = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    for zeta in (0.5, np.abs(M) * np.asarray(1.0, dtype), np.asarray(0.5, dtype), np.asarray([0.1, 2.0])[:, None, None]):
        found, counted = launches(operators.hard_threshold, to_device(M), to_device(zeta))
        expected = operators.hard_threshold(M, zeta)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.get(), expected)
        assert counted is None or isinstance(zeta, np.ndarray) or counted == ({"threshold_each": 1} if M.size else {})
    found = operators.hard_threshold(cupy.asarray(M).T, 0.5)
    np.testing.assert_array_equal(found.get(), operators.hard_threshold(M.T, 0.5))


@pytest.mark.smoke
@dtypes
def test_union_sum(dtype):
    rng = np.random.default_rng(0)
    R, C, X = rng.standard_normal((3, 31, 27)).astype(dtype)
    in_R, in_C = rng.random((2, 31, 27)) < 0.5
    for last in (None, X):
        arguments = (R, C, in_R, in_C, 1.3, 2.1, last)
        found, counted = launches(operators.union_sum, *map(to_device, arguments))
        assert counted in (None, {"union_each": 1})
        close(found, operators.union_sum(*arguments), dtype)
    arguments = (R, C[:1], in_R, in_C, 1.3, 2.1)  # what broadcasts is left to the plain code
    close(operators.union_sum(*map(to_device, arguments)), operators.union_sum(*arguments), dtype)
