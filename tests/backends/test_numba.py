"""The kernels compiled for the CPU against the plain code, which is tested against the truth elsewhere."""

import logging
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import pytest

import rcurc_gpu as rg
import rcurc_gpu.backends.numba
from rcurc_gpu.backends import kernels as table
from rcurc_gpu.backends.blocks import Block, pieces
from rcurc_gpu.backends.kernels import XP, choose
from rcurc_gpu.backends.numba import calls, pass_kernel
from rcurc_gpu.backends.plain import passes, ties
from rcurc_gpu.backends.plain.grid import DenseGrid
from rcurc_gpu.backends.plain.passes import Column, EntryIds, FitPass, Iterates
from rcurc_gpu.backends.plain.regression import Schedule

NUMBA = choose("fused", np.zeros(0))
TOLERANCE = {np.float64: 1e-12, np.float32: 1e-5}


def make_block(rng, counts, length, dtype):
    """Units with these counts at random places of a vector of `length`."""
    index = np.concatenate([np.sort(rng.choice(length, count, replace=False)) for count in counts] or [[]])
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Block(indptr, index.astype(np.int32), np.zeros(int(indptr[-1]), dtype=dtype), length)


def make_case(rank, dtype, counts, length=300, outliers=0.2, share=0.05, transposed=True, unusable=0, seed=0):
    """A low-rank block with outliers; the arguments of `regress` but the look, and the true coefficients."""
    rng = np.random.default_rng(seed)
    block = make_block(rng, counts, length, dtype)
    basis = np.linalg.qr(rng.standard_normal((length, rank)))[0]
    truth = rng.standard_normal((len(counts), rank)) * length**0.5
    value = np.sum(basis[block.index] * truth[block.unit_of_entry()], axis=1)
    hit = rng.random(len(value)) < outliers
    value[hit] += rng.uniform(-30, 30, int(hit.sum()))
    block = Block(block.indptr, block.index, value.astype(dtype), length)
    usable = np.ones(length, dtype=dtype)
    usable[:unusable] = 0
    ids = EntryIds(rng.permutation(5000)[: len(counts)], rng.permutation(5000)[:length], transposed, 3, share)
    white = np.linalg.qr(rng.standard_normal((rank, rank)))[0].astype(dtype)
    return (block, np.arange(len(counts)), basis.astype(dtype), usable, white, ids), truth


def assert_same(found, expected, dtype):
    """Coefficients and tables of two looks: counts are equal, the rest to rounding of the largest."""
    for part, other in zip(found, expected, strict=True):
        assert part.dtype == other.dtype == dtype
    scale = max(np.abs(expected[0]).max(initial=0), 1)
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=TOLERANCE[dtype] * scale)
    to_rounding = (Column.SPREAD, Column.STANDARD_ERROR)
    counts = [column for column in Column if column not in to_rounding]
    np.testing.assert_array_equal(found[1][:, counts], expected[1][:, counts])
    # with hardly more inliers than unknowns, what is left is rounding
    good = expected[1][:, Column.N_INLIERS] >= 2 * found[0].shape[1]
    for column in to_rounding:
        np.testing.assert_allclose(found[1][good, column], expected[1][good, column], rtol=1e-6, atol=TOLERANCE[dtype] * 30)


SCHEDULES = {np.float64: Schedule(10.0, 1e-6, 0.5), np.float32: Schedule(10.0, 3e-2, 0.5)}
BEGINS = [("zero", 0), ("part", 0), ("part", 5), ("subsets", 40), ("given", 0)]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rank", [1, 2, 4, 5, 9, 16, 32])
@pytest.mark.parametrize(("begin", "number"), BEGINS)
def test_a_look_is_that_of_the_plain_code(rank, dtype, begin, number):
    # enough entries for every beginning to end in the one solution: in others, rounding decides where
    outliers = 0.5 / rank if begin == "subsets" else 0.2  # a subset without any has to come
    counts = [14 * rank + 60, 14 * rank + 61, 14 * rank + 75, 20 * rank + 60]
    args, truth = make_case(rank, dtype, counts, 720, outliers)
    start = (truth + 0.01).astype(dtype) if begin == "given" else None
    which = FitPass(SCHEDULES[dtype], 0.1, begin, number, start)
    assert_same(NUMBA.regress(*args, which), passes.regress(*args, which), dtype)


@pytest.mark.parametrize(("begin", "number"), BEGINS)
def test_a_unit_too_long_to_go_with_others_goes_alone(begin, number):
    args, truth = make_case(9, np.float64, [600, 150, 160, 700, 650, 170], 720, 0.05)
    which = FitPass(SCHEDULES[np.float64], 0.1, begin, number, truth + 0.01 if begin == "given" else None)
    assert_same(NUMBA.regress(*args, which), passes.regress(*args, which), np.float64)


@pytest.mark.parametrize(("rank", "dtype"), [(5, np.float64), (2, np.float32)])
@pytest.mark.parametrize("begin", ["zero", "given"])
def test_a_look_with_a_rank_that_the_compiler_knows_is_that_of_the_plain_code(rank, dtype, begin, monkeypatch):
    monkeypatch.setattr(calls, "_MANY", 0)
    args, truth = make_case(rank, dtype, [0, 80, *range(130, 151)])
    which = FitPass(SCHEDULES[dtype], 0.1, begin, start=(truth + 0.01).astype(dtype) if begin == "given" else None)
    assert_same(NUMBA.regress(*args, which), passes.regress(*args, which), dtype)
    assert any(numba.types.UniTuple(numba.int64, rank) in kinds for kinds in pass_kernel.regress.signatures)


@pytest.mark.parametrize("piece", [calls._PIECE, 100])
@pytest.mark.parametrize("max_steps", [0, 80])
def test_restarts_of_a_few_units_are_the_same_together_and_one_by_one(piece, max_steps, monkeypatch):
    monkeypatch.setattr(calls, "_PIECE", piece)
    args, _ = make_case(3, np.float64, [40, 700, 31, 0, 52], 720, 0.3)
    units, kinds = np.asarray([0, 1, 2, 4]), [("zero", 0), ("part", 4), ("part", 0), ("part", 2)]
    several = [FitPass(SCHEDULES[np.float64], 0.1, *kind, max_steps=max_steps) for kind in kinds]
    together = NUMBA.regress_together(args[0], units, *args[2:], several)
    for k, one in enumerate(several):
        for ours, theirs in zip(together, NUMBA.regress(args[0], units, *args[2:], one), strict=True):
            np.testing.assert_array_equal(ours[:, k], theirs)
    if max_steps == 0:  # where they begin: each with other entries
        assert len(np.unique(together[0][0, :, 0])) == 4


def test_units_of_all_lengths_in_any_order():
    counts = [0, 1, 2, 300, 7, 15, 16, 17, 64, 0]
    args, _ = make_case(3, np.float64, counts)
    which = FitPass(SCHEDULES[np.float64], 0.1)
    units = np.asarray([9, 3, 8, 0, 7])
    found = NUMBA.regress(args[0], units, *args[2:], which)
    assert_same(found, passes.regress(args[0], units, *args[2:], which), np.float64)
    assert np.all(found[0][[0, 3]] == 0)
    assert NUMBA.regress(args[0], units[:0], *args[2:], which)[0].shape == (0, 3)


@pytest.mark.parametrize("begin", ["zero", "part"])
def test_a_unit_does_not_depend_on_those_beside_it(begin):
    """They are of all lengths, and one of them begins with what would be infinite in a square."""
    args, _ = make_case(3, np.float64, [*range(40, 60), 0, 1, 300])
    block = args[0]
    value = block.value.copy()
    value[0] = 1e200
    block = Block(block.indptr, block.index, value, block.length)
    which = FitPass(SCHEDULES[np.float64], 0.1, begin)
    together = NUMBA.regress(block, *args[1:], which)
    for unit in args[1]:
        alone = NUMBA.regress(block, args[1][unit : unit + 1], *args[2:], which)
        np.testing.assert_array_equal(alone[0][0], together[0][unit])
        np.testing.assert_array_equal(alone[1][0], together[1][unit])
    assert np.all(np.isfinite(together[0][1:]))


@pytest.mark.parametrize(
    "changes", [{"share": 0.0}, {"transposed": False}, {"unusable": 40}, {"outliers": 1.0}, {"outliers": 0.0}]
)
def test_held_out_unusable_and_hopeless(changes):
    args, _ = make_case(3, np.float64, [100, 90, 80], **changes)
    which = FitPass(SCHEDULES[np.float64], 0.1, max_steps=80 if changes.get("outliers") != 1.0 else 0, begin="zero")
    if which.max_steps == 0:  # nothing agrees: only the measuring can be compared
        which = replace(which, begin="given", start=np.ones((3, 3)))
    found = NUMBA.regress(*args, which)
    assert_same(found, passes.regress(*args, which), np.float64)
    assert (found[1][:, Column.N_HELD].sum() > 0) == (args[-1].share > 0)


def test_entries_that_say_nothing_determine_nothing():
    """All observations at rows of the basis that are 0: every coefficient fits them."""
    basis = np.zeros((50, 1))
    basis[0] = 1
    block = Block(
        np.asarray([0, 49, 99]), np.concatenate([np.arange(1, 50), np.arange(50)]).astype(np.int32), np.zeros(99), 50
    )
    ids = EntryIds(np.arange(2), np.arange(50), True, 0, 0.0)
    args = (block, np.arange(2), basis, np.ones(50), np.eye(1), ids, FitPass(SCHEDULES[np.float64], 0.1))
    for regress in (NUMBA.regress, passes.regress):
        np.testing.assert_array_equal(regress(*args)[1][:, Column.ILL], [1, 0])


def test_a_gram_matrix_of_what_is_left_of_larger_ones_is_not_rounding():
    """Large rows of the basis come in with a high threshold and go out again; those that stay are tiny."""
    rng = np.random.default_rng(0)
    basis = np.concatenate([1e6 * rng.standard_normal((10, 2)), rng.standard_normal((60, 2))])
    value = basis @ [1.0, -2.0]
    value[:10] += 1e3 * rng.standard_normal(10)
    block = Block(np.asarray([0, 70]), np.arange(70, dtype=np.int32), value, 70)
    ids = EntryIds(np.arange(1), np.arange(70), True, 0, 0.0)
    which = FitPass(Schedule(1e4, 1e-6, 1e-3), 0.1, "given", start=np.asarray([[1.0, -2.0]]))
    args = (block, np.arange(1), basis, np.ones(70), np.eye(2), ids, which)
    found, expected = NUMBA.regress(*args), passes.regress(*args)
    np.testing.assert_allclose(found[0], [[1, -2]], atol=1e-9)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-9)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_can_solve():
    code = (
        "import os, rcurc_gpu as rg; p = rg.synthetic((900, 900), 2, .1, 5, n_rows=300, n_cols=300, seed=1);"
        "first = rg.rcurc(p.samples, 2, kernels='fused'); child = os.fork();"
        "again = rg.rcurc(p.samples, 2, kernels='fused'); assert (again.cur.left == first.cur.left).all();"
        "child and os.waitpid(child, 0)[1] == 0 and print('both')"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "both\n"


def test_without_a_place_to_keep_what_is_compiled_it_compiles_anyway(tmp_path):
    package = tmp_path / "site" / "rcurc_gpu"
    shutil.copytree(Path(rg.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "backends" / "numba" / "__pycache__").touch()  # a file, so that nothing can be written there
    code = "import logging; logging.basicConfig(); from rcurc_gpu.backends.numba.parts import CACHE; print(CACHE)"
    nowhere = {"HOME": os.devnull, "XDG_CACHE_HOME": os.devnull, "PYTHONPATH": str(tmp_path / "site")}
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"} | nowhere
    command = [sys.executable, "-B", "-c", code]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert "set NUMBA_CACHE_DIR" in done.stderr


def test_it_finds_the_truth_and_does_not_touch_its_input():
    args, truth = make_case(5, np.float64, [150] * 50)
    before = [np.array(x) for x in (args[0].value, args[2], args[3], args[4])]
    a, table = NUMBA.regress(*args, FitPass(SCHEDULES[np.float64], 0.1))
    wrong = np.abs(a - truth).max(axis=1) > 1e-9
    assert wrong.sum() <= 1
    assert np.all(table[~wrong, Column.ILL] == 0)
    for x, y in zip((args[0].value, args[2], args[3], args[4]), before, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("steps", [1, 7])
def test_the_papers_recursion_is_that_of_the_plain_code(dtype, steps):
    (block, units, _, usable, _, ids), _ = make_case(4, dtype, [120, 0, 60, 33], unusable=20)
    rng = np.random.default_rng(5)
    bases = np.stack([np.linalg.qr(rng.standard_normal((300, 4)))[0] for _ in range(steps + 1)]).astype(dtype)
    turns = bases[:-1].transpose(0, 2, 1) @ bases[1:]
    zetas = np.geomspace(20, 1, steps).astype(dtype)
    a = rng.standard_normal((4, 4)).astype(dtype)
    args = (block, units, usable, ids, Iterates(bases, turns, zetas, 1.3), a)
    kept = a.copy()
    found, expected = NUMBA.advance(*args), passes.advance(*args)
    np.testing.assert_array_equal(a, kept)
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=TOLERANCE[dtype] * 100)
    np.testing.assert_allclose(found[1], expected[1], rtol=TOLERANCE[dtype] * 10)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("density", [0.05, 0.6])
@pytest.mark.parametrize("width", [1, 4, 8, 13])
def test_the_grid_is_that_of_the_plain_code(dtype, density, width):
    rng = np.random.default_rng(1)
    m, n = 101, 83
    counts = rng.binomial(n, density, m)
    counts[:3] = 0
    block = make_block(rng, counts, n, dtype)
    block = Block(block.indptr, block.index, rng.standard_normal(block.n_obs).astype(dtype), n)
    weight = rng.integers(0, 3, block.n_obs).astype(dtype)
    grid, plain = NUMBA.make_grid(block, weight, None), DenseGrid.of(block, weight, 1 << 20)
    Q = np.linalg.qr(rng.standard_normal((n, width)))[0].astype(dtype)
    left = rng.standard_normal((m, width)).astype(dtype)
    left[:, width // 2 + 1 :] = 0
    S, plain_S = None, None
    for zeta in (1.5, 0.7):
        G, S, Z, square, count = grid.threshold(left, Q, np.asarray(zeta, dtype), S)
        plain_G, plain_S, plain_Z, plain_square, plain_count = plain.threshold(left, Q, np.asarray(zeta, dtype), plain_S)
        assert Z.dtype == square.dtype == dtype
        np.testing.assert_allclose(Z, plain_Z, rtol=0, atol=TOLERANCE[dtype] * 10)
        np.testing.assert_allclose(square, plain_square, rtol=TOLERANCE[dtype] * 10)
        assert count == plain_count
        X, P = rng.standard_normal((n, width)).astype(dtype), rng.standard_normal((m, width)).astype(dtype)
        base = rng.standard_normal((n, width)).astype(dtype)
        np.testing.assert_allclose(grid.mul(G, X), plain.mul(plain_G, X), rtol=0, atol=TOLERANCE[dtype] * 30)
        np.testing.assert_allclose(grid.rmul(G, P, base), plain.rmul(plain_G, P, base), rtol=0, atol=TOLERANCE[dtype] * 30)
        left = left * dtype(0.5)
    for zeta in (0.9, np.inf):
        kept, by_row, by_col = grid.inlying(left, Q, zeta)
        plain_kept, plain_by_row, plain_by_col = plain.inlying(left, Q, zeta)
        np.testing.assert_array_equal(by_row, plain_by_row)
        np.testing.assert_array_equal(by_col, plain_by_col)
        np.testing.assert_allclose(grid.mul(kept, Q), plain.mul(plain_kept, Q), rtol=0, atol=TOLERANCE[dtype] * 30)
    other = np.linalg.qr(Q + 0.01 * rng.standard_normal(Q.shape))[0].astype(dtype)
    P = np.linalg.qr(rng.standard_normal((m, width)))[0].astype(dtype)
    s = np.arange(width, 0, -1).astype(dtype)
    found, expected = grid.scale(P, s, width - 1), plain.scale(P, s, width - 1)
    for part, other_part in zip(found, expected, strict=True):
        np.testing.assert_array_equal(part, other_part)
    found = grid.change(left, other, *found[:1], Q, found[1])
    assert found.dtype == dtype
    np.testing.assert_allclose(found, plain.change(left, other, expected[0], Q, expected[1]), rtol=TOLERANCE[dtype] * 10)
    sample = rng.integers(0, m, 501), rng.integers(0, n, 501), rng.standard_normal(501).astype(dtype)
    for floor in (0.0, 2.5):
        found = grid.floor_threshold(left, Q, sample, 0.1, floor)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, plain.floor_threshold(left, Q, sample, 0.1, floor), rtol=TOLERANCE[dtype])


# ---------------------------------------------------------------- in the solver


@pytest.mark.parametrize("method", ["fast", "paper"])
@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_the_solver_gives_the_same_with_both(method, noise):
    problem = rg.synthetic((300, 280), 3, 0.15, 5, noise, n_rows=120, n_cols=110, rate=0.4, seed=4)
    results = [rg.rcurc(problem.samples, 3, method=method, kernels=kernels, accuracy=0.1) for kernels in ("xp", "fused")]
    assert [result.kernels for result in results] == ["xp", "numba"]
    errors = [problem.relative_error(result.cur) for result in results]
    assert max(errors) <= (1e-5 if noise == 0 else 0.05)
    assert results[0].converged == results[1].converged
    np.testing.assert_allclose(results[1].cur.to_dense(), results[0].cur.to_dense(), atol=1e-6)
    np.testing.assert_array_equal(results[0].columns.n_inliers, results[1].columns.n_inliers)


def test_the_result_does_not_depend_on_the_number_of_threads():
    code = (
        "import rcurc_gpu as rg, hashlib; p = rg.synthetic((900, 900), 3, .1, 5, n_rows=300, n_cols=300, seed=1);"
        "r = rg.rcurc(p.samples, 3, kernels='fused').cur;"
        "print(hashlib.sha1(r.left.tobytes() + r.right.tobytes()).hexdigest())"
    )
    found = set()
    for threads in ("1", "2", "3"):
        environment = os.environ | {"NUMBA_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        found.add(done.stdout)
    assert len(found) == 1


def test_what_is_compiled_is_kept_for_the_next_process(tmp_path):
    code = (
        "import numpy as np; from rcurc_gpu.backends.blocks import Block;"
        "from rcurc_gpu.backends.numba import calls as cpu, core_kernels as k;"
        "one = np.zeros(1, np.int64); block = Block(np.asarray([0, 1]), one.astype(np.int32), np.ones(1), 1);"
        "cpu.held_out(block, one, one, 0, 0.5);"
        "print(sum(k.held_out.stats.cache_hits.values()), sum(k.held_out.stats.cache_misses.values()))"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    for expected in ("0 1", "1 0"):
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected


def test_factors_may_lie_in_memory_in_any_order():
    rng = np.random.default_rng(5)
    right = rng.normal(size=(40, 3))
    block = make_block(rng, [20] * 30, 40, np.float64)
    for order in "CF":
        packed = np.asarray(ties.grams(block, right), order=order)
        np.testing.assert_allclose(calls.inverses(packed, 1e-3), ties.inverses(packed, 1e-3), rtol=1e-10)
        np.testing.assert_allclose(calls.grams(block, np.asarray(right, order=order)), packed, rtol=1e-12)


def test_an_error_in_one_thread_ends_the_work():
    from rcurc_gpu.backends.numba.threads import run

    done = []

    def work(k):
        if k == 3:
            raise ValueError("piece 3")
        done.append(k)

    with pytest.raises(ValueError, match="piece 3"):
        run(work, [(k,) for k in range(1000)])
    run(done.append, [(k,) for k in range(5)])  # and the next work is done as ever
    assert set(range(5)) <= set(done)


def test_pieces_cover_everything():
    rng = np.random.default_rng(0)
    for counts in (np.zeros(5, int), rng.integers(0, 100, 1000), np.asarray([10**6, 1, 1]), np.zeros(0, int)):
        edges = pieces(counts, 1000)
        assert edges[0] == 0
        assert edges[-1] == len(counts)
        assert np.all(np.diff(edges) > 0)


def test_without_numba_plain_code_serves_and_says_so_once(monkeypatch, caplog):
    problem = rg.synthetic((60, 60), 1, 0.1, 5, n_rows=30, n_cols=30, rate=0.6, seed=0)
    monkeypatch.setitem(sys.modules, "numba", None)
    for name in [name for name in sys.modules if name.startswith("rcurc_gpu.backends.numba.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("calls", "grid"):  # which an import would find although they are no longer among the modules
        monkeypatch.delattr(rcurc_gpu.backends.numba, name, raising=False)
    table._numba.cache_clear()
    try:
        with caplog.at_level(logging.INFO, logger="rcurc_gpu"):
            results = [rg.rcurc(problem.samples, 1) for _ in range(2)]
        assert [result.kernels for result in results] == ["xp", "xp"]
        assert caplog.text.count("rcurc-gpu[fast]") == 1
        with pytest.raises(RuntimeError, match=r"Numba cannot be imported \(.*\); install the extra 'fast'"):
            rg.rcurc(problem.samples, 1, kernels="fused")
    finally:
        table._numba.cache_clear()


def test_kernels_are_refused_where_there_are_none(elsewhere):
    problem = rg.synthetic((60, 60), 1, 0.1, 5, n_rows=30, n_cols=30, rate=0.6, seed=0)
    there = problem.samples.to_namespace(*elsewhere)
    if "strict" in elsewhere.namespace.__name__:
        with pytest.raises(ValueError, match="there are none for arrays of array_api_strict"):
            rg.rcurc(there, 1, kernels="fused")
    with pytest.raises(ValueError, match="kernels must be one of"):
        rg.rcurc(there, 1, kernels="gpu")
    assert choose("xp", np.zeros(0)) is XP


def test_the_same_entries_are_held_out():
    rng = np.random.default_rng(0)
    block = make_block(rng, [0, 7, 300, 50], 300, np.float64)
    ids = (rng.permutation(5000)[:4], rng.permutation(5000)[:300])
    found = NUMBA.held_out(block, *ids, 5, 0.3)
    np.testing.assert_array_equal(found, passes.held_out(block, *ids, 5, 0.3))
    assert 0 < found.sum() < block.n_obs
