"""The CUDA kernels under the thread and the address sanitizer, on small grids; each in a process that preloads it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import DEVICE

if DEVICE != "emulator":
    pytest.skip("the sanitizers see kernels on the emulator only: RCURC_TEST_DEVICE=emulator", allow_module_level=True)

import hostgpu

HERE = Path(__file__).parents[1]

SET_UP = """
import hostgpu
hostgpu.install()
import cupy, numpy as np
from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.backends.cuda import calls as cuda, elementwise
from rcurc_gpu.backends.plain.passes import EntryIds, FitPass, Iterates
from rcurc_gpu.backends.plain.regression import Schedule
rng = np.random.default_rng(0)
def block_of(counts, length):
    index = np.concatenate([np.sort(rng.choice(length, n, replace=False)) for n in counts]).astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return Block(*map(cupy.asarray, (indptr, index, rng.standard_normal(len(index)))), length)
"""

REGRESS = """
for rank in (5, 16):
    block = block_of([0, 5, 40, 200, 1100, 33], 1200)  # the longest is taken by all warps, and is not staged as a whole
    ids = EntryIds(cupy.asarray(np.arange(6)), cupy.asarray(np.arange(1200)), True, 3, 0.2)
    arrays = map(cupy.asarray, (rng.standard_normal((1200, rank)), np.ones(1200), np.eye(rank)))
    basis, usable, white = arrays
    two = [FitPass(Schedule(2.0, 0.1, 0.5), 0.1, begin, 2, max_steps=3) for begin in ("zero", "part")]
    a, table = cuda.regress_together(block, np.arange(6), basis, usable, white, ids, two)
    assert np.isfinite(a.get()).all() and np.isfinite(table.get()).all()
    for begin in ("zero", "given", "part", "subsets"):
        start = cupy.asarray(np.zeros((6, rank))) if begin == "given" else None
        fit_pass = FitPass(Schedule(2.0, 0.1, 0.5), 0.1, begin, 2, start, max_steps=3)
        a, table = cuda.regress(block, np.arange(6), basis, usable, white, ids, fit_pass)
        assert np.isfinite(a.get()).all() and np.isfinite(table.get()).all()
print("finished")
"""

# The grids are put together by hand: CuPy's own kernels take long to compile, and one of them has a (harmless) race.
CORE = """
m, n = 37, 50
seen = rng.random((m, n)) < 0.3
i, j = np.nonzero(seen)
starts = [cupy.asarray(np.concatenate([[0], np.cumsum(seen.sum(axis=k))])) for k in (1, 0)]
order = np.argsort(j, kind="stable")
by_column = (starts[1], cupy.asarray(i[order].astype(np.int32)), cupy.asarray(order))
Y, weight = rng.standard_normal((m, n)), rng.choice([0.0, 1.0], (m, n)) * seen
index = cupy.asarray(j.astype(np.int32))
for width in (3, 40):
    left, Q = cupy.asarray(rng.standard_normal((m, width))), cupy.asarray(rng.standard_normal((n, width)))
    sparse = cuda.CudaGrid((m, n), cupy.asarray(Y[i, j]), cupy.asarray(weight[i, j]), starts[0], index, by_column)
    for grid in (cuda.CudaDenseGrid((m, n), cupy.asarray(Y), cupy.asarray(weight)), sparse):
        G, S, Z, square, count = grid.threshold(left, Q, cupy.asarray(0.5), None)
        G, S, Z, square, count = grid.threshold(left, Q, cupy.asarray(0.4), S)
        grid.mul(G, Q), grid.rmul(G, left, Q)
    sparse.inlying(left, Q, 0.5), sparse.tally(left, Q, 0.5)
    sample = (rng.integers(0, m, 1100), rng.integers(0, n, 1100), np.ones(1100))
    zeta = sparse.floor_threshold(left, Q, tuple(map(cupy.asarray, sample)), 0.1, 2.5)
    change = sparse.change(left, Q, Z, Q, left[0])
    scaled, s = sparse.scale(left, left[0], 2)
    numbers = sparse.record(None, [square, count, zeta, change, zeta], s)
    assert np.isfinite(sparse.record(numbers, [square, count, zeta, change, zeta], s).get()).all()
    assert np.isfinite(scaled.get()).all()
print("finished")
"""

# Sketches of one panel, of several, and of several that do not fit into shared memory; small matrices with and without rank.
SKETCH = """
from rcurc_gpu.backends.cuda import sketch
sketch._MOST_PANELS, sketch._MOST_BLOCKS = 2, 3
for width, rows in ((3, 20), (6, 440), (33, 160)):
    x, y = rng.standard_normal((2, rows, width))
    tall = sketch.Tall(rows, width, x.dtype)
    tall.orthonormalise(cupy.asarray(x), cupy.asarray(y))
    assert np.abs(tall.Q.get() @ tall.R.get() - x).max() < 1e-12
    if width > 6:
        continue  # an SVD of 33 columns takes a minute with the thread sanitizer
    small = sketch.Small(width, x.dtype)
    for T in (x[:width], 0 * x[:width]):
        small.decompose(cupy.asarray(np.ascontiguousarray(T)))
        assert np.abs((small.u.get() * small.s.get()) @ small.v.get().T - T.T).max() < 1e-12
print("finished")
"""

LOOP = """
from rcurc_gpu.backends.plain.loop import Begin, Recipe
m, n = 70, 60
seen = rng.random((m, n)) < 0.6
i, j = np.nonzero(seen)
starts = [cupy.asarray(np.concatenate([[0], np.cumsum(seen.sum(axis=k))])) for k in (1, 0)]
order = np.argsort(j, kind="stable")
by_column = (starts[1], cupy.asarray(i[order].astype(np.int32)), cupy.asarray(order))
Y, weight = rng.standard_normal((m, n)), 1.0 * seen
index = cupy.asarray(j.astype(np.int32))
for width in (4,):
    whole = (np.zeros((m, width)), np.zeros(width), np.linalg.qr(rng.standard_normal((n, width)))[0])
    sample = (rng.integers(0, m, 600), rng.integers(0, n, 600), np.ones(600))
    recipe = Recipe(width - 1, 2.0, 0.8, 2.5, tuple(map(cupy.asarray, sample)), warm=True)
    sparse = cuda.CudaGrid((m, n), cupy.asarray(Y[i, j]), cupy.asarray(weight[i, j]), starts[0], index, by_column)
    for grid in (sparse, cuda.CudaDenseGrid((m, n), cupy.asarray(Y), cupy.asarray(weight))):
        loop = grid.loop(recipe, Begin(0, tuple(map(cupy.asarray, whole))))
        assert np.isfinite(loop.advance(2).table()).all()
print("finished")
"""

TIES = """
from rcurc_gpu.backends.cuda import ties
from rcurc_gpu.backends.plain.ties import TieProblem
for K, m, n in ((3, 40, 70), (18, 12, 9)):
    seen = rng.random((m, n)) < 0.6
    def block(seen):
        indptr = np.concatenate([[0], np.cumsum(seen.sum(axis=1))])
        return Block(*map(cupy.asarray, (indptr, np.nonzero(seen)[1].astype(np.int32), np.ones(seen.sum()))), seen.shape[1])
    rows, columns = block(seen), block(seen.T)
    left, right = (cupy.asarray(rng.standard_normal((size, K))) for size in (m, n))
    packed = ties.grams(columns, left), ties.grams(rows, right)
    full = np.stack([np.eye(K)] * n)
    given = (packed, cupy.asarray(full), cupy.asarray(np.eye(K * K)), cupy.asarray(rng.standard_normal((n, K))), 1e-3)
    found = ties.CudaLanczos(TieProblem(rows, columns, left, right, *given), 5)
    for _ in range(2):
        assert found.size() > 0 and np.isfinite(found.step())
print("finished")
"""

OTHERS = """
for rank in (2, 16):
    block = block_of([0, 5, 40, 200, 33, 7, 9, 60, 1], 250)
    ids = EntryIds(cupy.asarray(np.arange(9)), cupy.asarray(np.arange(250)), False, 3, 0.2)
    bases, turns = cupy.asarray(rng.standard_normal((4, 250, rank))), cupy.asarray(rng.standard_normal((3, rank, rank)))
    zetas, a, usable = cupy.asarray([3.0, 2.0, 1.0]), cupy.zeros((9, rank)), cupy.asarray(np.ones(250))
    a, sums = cuda.advance(block, np.arange(9), usable, ids, Iterates(bases, turns, zetas, 0.1), a)
    assert np.isfinite(sums.get()).all()
from rcurc_gpu.backends.cuda import votes
votes.held_out(block, cupy.asarray(np.arange(9)), cupy.asarray(np.arange(250)), 3, 0.2)
winner, rejected = votes.split(block, np.asarray([3, 0, 7, 2]), bases[0], usable, cupy.asarray(np.zeros((4, 16))), 0.5)
assert winner.sum() > 0 and rejected.n_obs > 0
votes._FEW_UNITS = 0
votes.split(block, np.asarray([3, 0, 7, 2]), bases[0], usable, a, 0.5, np.asarray([8, 0, 1, 2]))
M, seen = cupy.asarray(np.ones((5, 7))), cupy.asarray(np.ones((5, 7), bool))
elementwise.hard_threshold(M, 0.5), elementwise.union_sum(M, M, seen, seen, 1.0, 2.0, M)
print("finished")
"""


POSTERIOR = """
from rcurc_gpu.backends.plain.posterior import Model, Noise, positions_of
for K in (3, 6, 18):
    block = block_of([0, 5, 40, 200, 1100, 33, 1200], 1250)  # two of them are taken by all warps
    mean, covariance = rng.standard_normal((1250, K)), 0.1 + np.zeros((1250, K * (K + 1) // 2))
    at = positions_of(mean, covariance, np.ones(1250), 0.5, K > 3).to(cupy.empty(0))
    model = Model(at, Noise(0.1, 4.0, 0.1, 20.0, 0.7, 0.2), cupy.asarray(np.ones(K)))
    start = tuple(cupy.asarray(x) for x in (np.zeros((7, K)), np.zeros((7, K * (K + 1) // 2)), np.ones(7)))
    weight = cupy.asarray(rng.choice([0.0, 1.0], block.n_obs))
    for found in cuda.posterior(block, weight, np.arange(7), model, start, (2.0, 1.0), True):
        assert np.isfinite(found.get()).all()
print("finished")
"""

# Blocks taken apart and joined, verdicts and evidence: what sums over blocks, and what one block does alone.
VERDICTS = """
from rcurc_gpu.backends.cuda import blocks, evidence, ties, verdicts, votes
from rcurc_gpu.backends.kernels import cuda_kernels
from rcurc_gpu.backends.plain.verdicts import Limits
verdicts._MOST_BLOCKS, evidence._MOST_BLOCKS = 3, 3
first, second = block_of([0, 5, 40, 60, 33, 7, 9, 60, 1], 61), block_of([3, 50, 40, 0, 33, 7, 9, 60, 1], 61)
joined, code = blocks.join(first, second)
some, unit = blocks.select(joined, np.asarray([8, 1, 3]), cupy.asarray(rng.random(joined.n_obs) < 0.5), with_units=True)
across, starts = joined.transpose(), blocks.places_by_position(joined.indptr, joined.index, 61)[0]
assert (across.indptr == starts).all() and (joined.value == across.transpose().value).all()
across = joined.transpose(np.asarray([8, 1, 3]))
blocks.fingerprints(joined, 12345), blocks.largest_sizes(first.value, second.value)
blocks.join(some, second, np.asarray([3, 0, 7]))
left, right = (cupy.asarray(rng.standard_normal((n, 3))) for n in (9, 61))
blocks.residuals(joined, np.arange(9), np.arange(61) % 2 == 0, (left, np.arange(9)), (right, np.arange(61)))
ones = [cupy.asarray(np.ones(n)) for n in (9, 61)]
votes.agreeing(joined, left, right, 0.5, ones)
ties.rests_on_one(joined, np.arange(9), right, left, ones[1], 0.5)
entries = tuple(map(cupy.asarray, (rng.integers(0, 9, 700), rng.integers(0, 61, 700), rng.standard_normal(700))))
measured = evidence.measure(entries, (left, cupy.asarray(np.ones(3)), right), 0.5, 0.3, 0.1)
evidence.compare(measured, entries[2], 0.5), evidence.sizes(entries[2]), evidence.basis_facts(right, ones[1])
evidence.largest_squares(left, right), evidence.n_larger(entries[2], 0.5)
known = verdicts.UnitTable(left, 402, np.asarray([0, 7]), np.zeros((2, 6)))
n_fit = rng.integers(5, 40, 400)
fits = np.stack([n_fit, rng.integers(2, n_fit + 1), *rng.random((6, 400))], axis=1)
known.diagnose(cupy.asarray(fits), 3, 0.5)
known.judge(Limits(3, 0.8, 0.1, 0.5, 10.0, 60.0, 1e300, 0.05, 0.02, True, True, 5))
offsets = cupy.asarray(np.concatenate([[0], np.cumsum(np.arange(402) % 7)]))
known.picked(1, 30, offsets, cupy.asarray(rng.random((400, 3))))
known.undetermined(), known.crowded(2.0), known.most_outliers(np.arange(3, 300), 40)
assert np.isfinite(known.summary(np.asarray([1, 300]), np.ones((2, 8)))).all()
few = verdicts.UnitTable(left, 9, np.zeros(0, np.int64), np.zeros((0, 6)))
few.diagnose(cupy.asarray(fits[:9]), 3, 0.5)
ties.mark_lone(joined, few, cupy.asarray(np.asarray([1, 4, 6])), right, left, ones[1], 0.5)
ids = cupy.asarray(np.arange(9)), cupy.asarray(np.arange(61))
layout = cuda_kernels().lay_out(joined, code, ids, (3, 0.2), lambda n: (1, 2, 3), lambda n: None)
assert layout.n_fit > 0 and len(layout.held[0]) > 0
blocks.join_rows(right[:4], right[4:9], np.asarray([0, -1, 3, -5, -6]), right[10], np.ones((1, 3)))
print("finished")
"""

SCRIPTS = {
    "verdicts": VERDICTS,
    "regress": REGRESS,
    "core": CORE,
    "sketch": SKETCH,
    "loop": LOOP,
    "ties": TIES,
    "others": OTHERS,
    "posterior": POSTERIOR,
}


@pytest.mark.parametrize("sanitize", ["thread", "address"])
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_clean(sanitize, script):
    environment = hostgpu.sanitizer_environment(sanitize)
    if environment is None:
        pytest.skip(f"g++ came without the {sanitize} sanitizer")
    path = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    done = subprocess.run(
        [sys.executable, "-c", SET_UP + script],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-5000:]
    assert "Sanitizer" not in output, output[-5000:]
    assert "finished" in output
