"""Samples in shards: the same results as in memory, from any source, and errors that name what is wrong."""

import json
import os
import re
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu import open_result
from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.io import Completion
from rcurc_gpu.shards import ShardedSamples, on_disk, source
from rcurc_gpu.shards.folder import Cross, FolderWriter
from rcurc_gpu.shards.on_disk import checksum
from rcurc_gpu.shards.source import OnDisk
from rcurc_gpu.solve import driver, noise_fit, noisy

SHARD = 60_000  # bytes: six shards of a side


def problem(noise=0.0, alpha=0.2, **more):
    options = {"n_rows": 150, "n_cols": 160, "rate": 0.3, "seed": 3} | more
    return rg.synthetic((900, 700), 4, alpha, 10, noise, **options)


def from_functions(s):
    R, C = s.R.tocsc(), s.C.tocsr()
    return ShardedSamples.from_functions(
        lambda start, stop: R[:, start:stop],
        lambda start, stop: C[start:stop],
        s.shape,
        s.rows,
        s.cols,
        columns_at_once=110,
        rows_at_once=170,
        dtype=s.dtype,
    )


def sources(s, folder):
    return {
        "memory": ShardedSamples.of(s, SHARD),
        "disk": ShardedSamples.of(s, SHARD).save(folder),
        "functions": from_functions(s),
    }


def same(found, expected, tolerance=1e-10):
    x, y = found.cur.to_dense(), expected.cur.to_dense()
    np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
    scale = np.nanmax(np.abs(y))
    np.testing.assert_allclose(x / scale, y / scale, atol=tolerance, rtol=0)
    assert (found.converged, found.cause, found.rank) == (expected.converged, expected.cause, expected.rank)
    for side in ("columns", "rows"):
        for name in ("status", "n_obs", "n_inliers", "n_informative"):
            np.testing.assert_array_equal(getattr(getattr(found, side), name), getattr(getattr(expected, side), name))


CASES = {
    "plain": ({}, {}),
    "noise": ({"noise": 0.02}, {"accuracy": 0.1}),
    "noise, no sweep": ({"noise": 0.02}, {"accuracy": 0.1, "sweeps": 0}),
    "noise, automatic rank": ({"noise": 0.02}, {"rank": "auto"}),
    "automatic rank": ({}, {"rank": "auto"}),
    "plain code": ({"noise": 0.02}, {"accuracy": 0.1, "kernels": "xp"}),
    "nothing held out": ({}, {"holdout": 0.0}),
}


@pytest.mark.parametrize("case", CASES)
def test_shards_from_anywhere_give_what_memory_gives(case, tmp_path):
    made, options = CASES[case]
    p = problem(**made)
    rank = options.pop("rank", 4) if "rank" in options else 4
    expected = rg.rcurc(p.samples, rank, **options)
    assert p.relative_error(expected.cur) < (0.01 if made.get("noise") else 1e-9)
    for name, samples in sources(p.samples, tmp_path / "shards").items():
        found = rg.rcurc(samples, rank, **options)
        same(found, expected)
        assert found.message == expected.message, name
        assert found.expected_error == pytest.approx(expected.expected_error, rel=1e-9)


def test_second_looks_are_the_same():
    """Half of the entries wrong in some columns, so that they are looked at again, and some that no look determines."""
    p = problem(alpha=0.35)
    values = np.array(p.samples.r_block.value)
    counts = p.samples.r_block.counts
    bad = np.flatnonzero(~np.isin(np.arange(700), p.samples.cols))[:8]
    rng = np.random.default_rng(0)
    for j in bad:
        place = slice(p.samples.r_block.indptr[j], p.samples.r_block.indptr[j + 1])
        values[place] = np.where(rng.random(counts[j]) < 0.85, rng.standard_normal(counts[j]) * 9, values[place])
    block = p.samples.r_block
    s = replace(p.samples, r_block=Block(block.indptr, block.index, values, block.length))
    with pytest.warns(rg.ConvergenceWarning, match="Not everything"):
        expected = rg.rcurc(s, 4)
    assert set(bad) <= set(expected.columns.undetermined)
    assert len(expected.columns.undetermined) < 20
    with pytest.warns(rg.ConvergenceWarning) as told:
        found = rg.rcurc(ShardedSamples.of(s, SHARD), 4)
    same(found, expected)
    assert str(told[0].message) == expected.message
    with pytest.warns(rg.ConvergenceWarning):
        kept = rg.rcurc(ShardedSamples.of(s, SHARD), 4, undetermined="keep")
    assert np.isfinite(kept.cur.right).all()


@pytest.mark.parametrize("sweeps", [0, None])
def test_without_outliers(sweeps, tmp_path):
    p = problem(0.02, alpha=0.0)
    expected = rg.icurc(p.samples, 4, accuracy=0.1, sweeps=sweeps)
    for samples in sources(p.samples, tmp_path / "shards").values():
        same(rg.icurc(samples, 4, accuracy=0.1, sweeps=sweeps), expected)


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_units_of_any_size(noise, tmp_path):
    p = problem(noise)
    small = p.samples.scaled(1e-200)
    expected = rg.rcurc(p.samples, 4, accuracy=0.1)
    found = rg.rcurc(ShardedSamples.of(small, SHARD), 4, accuracy=0.1, output=tmp_path / "out")
    np.testing.assert_allclose(found.cur.to_dense() * 1e200, expected.cur.to_dense(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.columns.spread * 1e200, expected.columns.spread, rtol=1e-6, atol=1e-12)
    assert found.threshold * 1e200 == pytest.approx(expected.threshold, rel=1e-6)


def test_float32(tmp_path):
    p = problem(0.02, dtype=np.float32)
    expected = rg.rcurc(p.samples, 4, accuracy=0.1)
    found = rg.rcurc(ShardedSamples.of(p.samples, SHARD).save(tmp_path / "shards"), 4, accuracy=0.1)
    assert found.cur.left.dtype == np.float32
    np.testing.assert_allclose(found.cur.to_dense(), expected.cur.to_dense(), rtol=1e-4, atol=1e-4)
    assert p.relative_error(found.cur) < 0.01


@pytest.mark.parametrize("shard_bytes", [1, 1 << 30], ids=["one unit each", "one for all"])
def test_any_size_of_shards(shard_bytes):
    p = rg.synthetic((120, 110), 2, 0.1, n_rows=50, n_cols=50, rate=0.7, seed=1)
    samples = ShardedSamples.of(p.samples, shard_bytes)
    assert len(samples.r_shards) == (110 if shard_bytes == 1 else 1)
    same(rg.rcurc(samples, 2), rg.rcurc(p.samples, 2))


def test_the_order_of_the_chosen_does_not_matter(tmp_path):
    p = problem()
    s = p.samples
    turned = rg.CrossSamples.from_blocks(s.R.tocoo()[::-1], s.C.tocsc()[:, ::-1], s.rows[::-1], s.cols[::-1])
    disk = ShardedSamples.of(turned, SHARD).save(tmp_path / "shards")
    found = rg.rcurc(disk, 4)
    same(found, rg.rcurc(turned, 4))
    assert p.relative_error(found.cur) < 1e-9


# ---------------------------------------------------------------- what a result can do


def test_what_a_result_in_memory_can_do(tmp_path):
    p = problem()
    expected = rg.rcurc(p.samples, 4)
    found = rg.rcurc(ShardedSamples.of(p.samples, SHARD).save(tmp_path / "s"), 4, output=tmp_path / "out")
    for a, b in zip(found.outliers(), expected.outliers(), strict=True):
        assert a.shape == b.shape
        assert a.nnz == b.nnz > 0
        assert abs(a - b).max() < 1e-9
    new = p.truth(np.repeat(p.samples.rows, 3), np.tile([1, 2, 3], 150)).reshape(150, 3)
    np.testing.assert_allclose(
        found.transform_columns(new).matrix.to_dense(), expected.transform_columns(new).matrix.to_dense(), atol=1e-9
    )
    kept, wanted = Completion.of(found), Completion.of(expected)
    assert len(kept.outliers) == len(wanted.outliers)
    np.testing.assert_array_equal(kept.seen, wanted.seen)
    assert ShardedSamples.open(tmp_path / "s").describe(4) == p.samples.describe(4)


def test_shards_become_memory_again(tmp_path):
    p = problem()
    back = ShardedSamples.of(p.samples, SHARD).save(tmp_path / "s").to_memory()
    for block, was in ((back.r_block, p.samples.r_block), (back.c_block, p.samples.c_block)):
        for name in ("indptr", "index", "value"):
            np.testing.assert_array_equal(getattr(block, name), getattr(was, name))
    assert back.n_obs == p.samples.n_obs == ShardedSamples.open(tmp_path / "s").n_obs


# ---------------------------------------------------------------- bounds


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_every_shard_is_read_once(noise, tmp_path, monkeypatch):
    p = problem(noise)
    disk = ShardedSamples.of(p.samples, SHARD).save(tmp_path / "s")
    read = []
    load = OnDisk.load
    monkeypatch.setattr(OnDisk, "load", lambda self: read.append(os.path.basename(self.path)) or load(self))
    rg.rcurc(disk, 4, accuracy=0.1)
    names = [os.path.basename(shard.source.path) for shard in (*disk.r_shards, *disk.c_shards)]
    assert sorted(read) == sorted(names)


@pytest.fixture
def reads(monkeypatch):
    """Names of the shards that are read: of those that are read as a whole, and of all, some units of them too."""
    whole, every = [], []

    def reading(path, facts, *rest, read=on_disk.read_shard):
        whole.append(os.path.basename(path))
        every.append(os.path.basename(path))
        return read(path, facts, *rest)

    def some(self, units, part=OnDisk.some):
        before = len(every)
        block = part(self, units)
        if len(every) == before:  # it was not read for its checksum
            every.append(os.path.basename(self.path))
        return block

    for module in (on_disk, source):
        monkeypatch.setattr(module, "read_shard", reading)
    monkeypatch.setattr(OnDisk, "some", some)
    return whole, every


def test_with_noise_observations_are_read_twice_and_some_once_more(tmp_path, reads):
    p = problem(0.02)
    disk = ShardedSamples.of(p.samples, SHARD).save(tmp_path / "s")
    result = rg.rcurc(disk, 4)
    assert p.relative_error(result.cur) < 0.01
    names = {os.path.basename(shard.source.path) for shard in (*disk.r_shards, *disk.c_shards)}
    whole, every = ({name: x.count(name) for name in names} for x in reads)
    assert max(whole.values()) <= 2  # the part that the model is fitted to, and all units
    assert set(every.values()) <= {2, 3}  # and units with many outliers, or drawn, of which the structure is looked at


def test_a_resumed_solve_does_not_gather_the_part_again(tmp_path, reads, monkeypatch):
    p = problem(0.02)
    expected = rg.rcurc(p.samples, 4)
    disk = ShardedSamples.of(p.samples, SHARD).save(tmp_path / "s")
    with monkeypatch.context() as patch:
        patch.setattr(driver, "estimate_all", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            rg.rcurc(disk, 4, output=tmp_path / "out")
    for names in reads:
        names.clear()
    same(rg.rcurc(disk, 4, output=tmp_path / "out"), expected)
    whole, every = reads
    assert max(map(whole.count, whole)) == 1
    assert max(map(every.count, every)) <= 2


def test_with_noise_units_may_be_estimated_any_number_at_a_time(monkeypatch):
    p = problem(0.02)
    expected = rg.rcurc(p.samples, 4, accuracy=0.1)
    monkeypatch.setattr(noisy, "_AT_ONCE", 3000)
    found = rg.rcurc(p.samples, 4, accuracy=0.1)
    same(found, expected, 0)
    assert found.expected_error == pytest.approx(expected.expected_error, rel=1e-12)


def test_memory_does_not_grow_with_the_observations(tmp_path):
    p = rg.synthetic((20_000, 20_000), 3, 0.2, n_rows=200, n_cols=200, rate=0.3, seed=0)
    disk = ShardedSamples.of(p.samples, 1 << 20).save(tmp_path / "s")
    rg.rcurc(ShardedSamples.of(p.samples), 3)  # kernels
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    result = rg.rcurc(disk, 3, output=tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert p.relative_error(result.cur) < 1e-8
    assert p.samples.nbytes > 28e6
    assert peak < 0.4 * p.samples.nbytes, peak


# ---------------------------------------------------------------- a directory for the result


def test_a_directory_for_the_result(tmp_path):
    p = problem()
    disk = ShardedSamples.of(p.samples, SHARD).save(tmp_path / "s")
    out = tmp_path / "out"
    expected = rg.rcurc(p.samples, 4)
    found = rg.rcurc(disk, 4, output=out)
    same(found, expected)
    assert isinstance(found.cur.left, np.memmap)
    assert not list((out / "parts").iterdir())
    cur = open_result(out)
    np.testing.assert_array_equal(cur.left, found.cur.left)
    np.testing.assert_array_equal(cur.R, found.cur.R)
    np.testing.assert_array_equal(np.load(out / "right.npy"), found.cur.right)


def test_a_result_that_is_there_is_not_made_again(tmp_path, monkeypatch):
    p = problem(0.02)
    disk = ShardedSamples.of(p.samples, SHARD).save(tmp_path / "s")
    first = rg.rcurc(disk, 4, accuracy=0.1, output=tmp_path / "out")
    monkeypatch.setattr(OnDisk, "load", None)
    again = rg.rcurc(disk, 4, accuracy=0.1, output=tmp_path / "out")
    same(again, first, 0)
    assert again.message == first.message


def test_samples_in_memory_take_an_output_too(tmp_path):
    p = problem()
    same(rg.rcurc(p.samples, 4, output=tmp_path / "out"), rg.rcurc(p.samples, 4))


SCRIPT = """
import os, sys
import rcurc_gpu as rg
from rcurc_gpu.shards import ShardedSamples
from rcurc_gpu.solve.store import PartFolder
disk, out, steps = ShardedSamples.open(sys.argv[1]), sys.argv[2], int(sys.argv[3])
keep = PartFolder.keep
def dying(self, *args):
    global steps
    steps -= 1
    if steps == 0:
        os._exit(9)
    print("kept", args[0], args[1].side, args[1].number)
    return keep(self, *args)
PartFolder.keep = dying
rg.rcurc(disk, 4, accuracy=0.1, output=out)
"""


def test_killed_again_and_again_it_goes_on_where_it_was(tmp_path):
    p = problem(0.02)
    disk = ShardedSamples.of(p.samples, 3 * SHARD).save(tmp_path / "s")
    n_parts = len(disk.r_shards) + len(disk.c_shards)
    kept = []
    for steps in (1, 2, 3, 100):
        command = [sys.executable, "-c", SCRIPT, tmp_path / "s", tmp_path / "out", str(steps)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == (9 if steps < 100 else 0), done.stderr
        kept += [line for line in done.stdout.splitlines() if line.startswith("kept")]
    assert len(kept) == len(set(kept)) == n_parts  # no part was made twice
    cur = open_result(tmp_path / "out")
    expected = rg.rcurc(p.samples, 4, accuracy=0.1)
    np.testing.assert_allclose(cur.to_dense(), expected.cur.to_dense(), atol=1e-10)


KILLED_IN_THE_FIT = """
import os, sys
import rcurc_gpu as rg
from rcurc_gpu.shards import ShardedSamples
from rcurc_gpu.solve import driver, noise_fit
disk, out, when = ShardedSamples.open(sys.argv[1]), sys.argv[2], sys.argv[3]
fit = noise_fit.fit_noise
def dying(part, most, settings, kernels, report):
    return fit(part, most, settings, kernels, lambda sweep, change: os._exit(9) if sweep == 5 else report(sweep, change))
if when == "sweeps":
    noise_fit.fit_noise = dying
else:
    driver.estimate_all = lambda *args: os._exit(9)
rg.rcurc(disk, 4, output=out)
"""


@pytest.mark.parametrize("when", ["sweeps", "estimate"])
def test_killed_in_the_noise_model_the_same_call_gives_the_same(when, tmp_path, monkeypatch):
    p = problem(0.02)
    disk = ShardedSamples.of(p.samples, SHARD).save(tmp_path / "s")
    command = [sys.executable, "-c", KILLED_IN_THE_FIT, tmp_path / "s", tmp_path / "out", when]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr
    undisturbed = rg.rcurc(disk, 4, output=tmp_path / "undisturbed")
    fits = []
    fit = noise_fit.fit_noise
    monkeypatch.setattr(noise_fit, "fit_noise", lambda *args: fits.append(1) or fit(*args))
    resumed = rg.rcurc(disk, 4, output=tmp_path / "out")
    assert len(fits) == (1 if when == "sweeps" else 0)  # a model that was found is kept
    same(resumed, undisturbed, 0)
    i, j = np.asarray([0, 17, 899]), np.asarray([5, 0, 699])
    for found, expected in zip(
        resumed.cur.entries(i, j, return_std=True), undisturbed.cur.entries(i, j, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_ctrl_c_keeps_what_was_done(tmp_path, interrupted_reading):
    p = problem()
    disk = ShardedSamples.of(p.samples, SHARD).save(tmp_path / "s")
    with pytest.raises(KeyboardInterrupt):
        rg.rcurc(disk, 4, output=tmp_path / "out")
    found = rg.rcurc(disk, 4, output=tmp_path / "out")
    assert len(interrupted_reading) <= len(disk.r_shards) + len(disk.c_shards) + 2  # one was read ahead, one was lost
    same(found, rg.rcurc(p.samples, 4))


def test_a_damaged_part_is_made_again(tmp_path, caplog):
    p = problem()
    disk = ShardedSamples.of(p.samples, SHARD).save(tmp_path / "s")
    command = [sys.executable, "-c", SCRIPT, tmp_path / "s", tmp_path / "out", "6"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 9
    part = sorted((tmp_path / "out" / "parts").glob("r-*"))[1]
    part.write_bytes(part.read_bytes()[:-40])
    same(rg.rcurc(disk, 4, accuracy=0.1, output=tmp_path / "out"), rg.rcurc(p.samples, 4, accuracy=0.1))
    assert "made again" in caplog.text


def test_parts_of_another_core_are_not_mixed_in(tmp_path):
    """As when the core comes out with other signs on another machine."""
    p = problem()
    disk = ShardedSamples.of(p.samples, SHARD).save(tmp_path / "s")
    command = [sys.executable, "-c", SCRIPT, tmp_path / "s", tmp_path / "out", "6"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 9
    core = tmp_path / "out" / "core.npz"
    with np.load(core) as file:
        arrays = {name: file[name] for name in file.files}
    factors = [name for name in arrays if name.endswith(("|W", "|V"))]
    assert factors
    for name in factors:
        arrays[name] = -arrays[name]
    np.savez(core, **arrays)
    found = rg.rcurc(disk, 4, accuracy=0.1, output=tmp_path / "out")
    assert p.relative_error(found.cur) < 1e-9


# ---------------------------------------------------------------- what is wrong is said


@pytest.fixture
def folder(tmp_path):
    ShardedSamples.of(problem().samples, SHARD).save(tmp_path / "s")
    return tmp_path / "s"


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def rewrite(path, was, becomes):
    path.write_text(re.sub(was, becomes, path.read_text()))


DAMAGE = {
    "a flipped byte": (lambda f: flip(f / "r-000002.shard", -100), ValueError, "r-000002.shard' is damaged: its checksum"),
    "a truncated shard": (
        lambda f: (f / "c-000001.shard").write_bytes((f / "c-000001.shard").read_bytes()[:-9]),
        ValueError,
        "c-000001.shard' is damaged or truncated: the manifest says",
    ),
    "an empty shard": (lambda f: (f / "c-000001.shard").write_bytes(b""), ValueError, "c-000001.shard' is damaged"),
    "a missing shard": (lambda f: (f / "r-000000.shard").unlink(), FileNotFoundError, "r-000000.shard"),
    "a damaged intersection": (lambda f: flip(f / "core-r.shard", -50), ValueError, "core-r.shard' is damaged"),
    "no manifest": (lambda f: (f / "manifest.json").unlink(), ValueError, "was interrupted"),
    "half a manifest": (
        lambda f: (f / "manifest.json").write_text((f / "manifest.json").read_text()[:500]),
        ValueError,
        "manifest.json' is not a manifest of shards, or is damaged",
    ),
    "a flipped byte in a header": (lambda f: flip(f / "c-000001.shard", 20), ValueError, "c-000001.shard' is damaged"),
    "no rows": (lambda f: (f / "rows.npy").write_bytes(b""), ValueError, "rows.npy is damaged"),
    "a manifest without checksums": (
        lambda f: rewrite(f / "manifest.json", '"crc32"', '"crc"'),
        ValueError,
        "manifest of shards, or is damaged: lacks 'crc32'",
    ),
    "a size that is none": (
        lambda f: (f / "manifest.json").write_text(
            re.sub(r'"largest": [^,]*', '"largest": NaN', (f / "manifest.json").read_text())
        ),
        ValueError,
        "largest of a shard is nan",
    ),
    "other rows": (lambda f: np.save(f / "rows.npy", np.arange(150)), ValueError, "rows.npy is damaged"),
    "another format": (
        lambda f: (f / "manifest.json").write_text(json.dumps({"format": "rcurc-gpu shards 9"})),
        ValueError,
        "it says 'rcurc-gpu shards 9'",
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_directory(what, folder):
    damage, kind, words = DAMAGE[what]
    damage(folder)
    with pytest.raises(kind, match=words.replace("(", r"\(")):
        rg.rcurc(ShardedSamples.open(folder), 4)


def test_a_shard_that_is_damaged_between_two_runs(tmp_path):
    """All first looks are there, so that nothing but single units of it would be read."""
    s = ShardedSamples.of(problem(alpha=0.35).samples, SHARD).save(tmp_path / "s")
    n = len(s.r_shards) + len(s.c_shards)
    command = [sys.executable, "-c", SCRIPT, tmp_path / "s", tmp_path / "out", str(n + 1)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 9
    for shard in s.r_shards:
        flip(tmp_path / "s" / f"r-{shard.number:06d}.shard", -30)
    with pytest.raises(ValueError, match=r"shard' is damaged: its checksum is not the manifest's"):
        rg.rcurc(ShardedSamples.open(tmp_path / "s"), 4, accuracy=0.1, output=tmp_path / "out")


def test_indices_that_would_lead_kernels_astray(folder):
    """With the checksum of what is there, as a careless tool would leave it."""
    manifest = json.loads((folder / "manifest.json").read_text())
    entry = manifest["shards"]["r"][1]
    with open(folder / entry["file"], "rb") as file:
        indptr, value, index = (np.load(file) for _ in range(3))
    for bad, words in ((indptr[::-1].copy(), index), (indptr, index + 1000)):
        with open(folder / entry["file"], "wb") as file:
            for array in (bad, value, words):
                np.save(file, array)
        entry["crc32"] = checksum([bad, value, words])
        (folder / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(ValueError, match=r"an index does not lie in 0..149"):
            rg.rcurc(ShardedSamples.open(folder), 4)


def test_opened_shards_stay_where_they_are(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(folder.parent)
    samples = ShardedSamples.open("s")
    monkeypatch.chdir("/")
    assert rg.rcurc(samples, 4).converged


RESULT_DAMAGE = {
    "a flipped byte": (lambda f: flip(f / "left.npy", -33), ValueError, "left.npy' is damaged: its checksum"),
    "a truncated factor": (
        lambda f: (f / "right.npy").write_bytes((f / "right.npy").read_bytes()[:-800]),
        ValueError,
        "right.npy' is damaged",
    ),
    "an empty factor": (lambda f: (f / "right.npy").write_bytes(b""), ValueError, "right.npy' is damaged"),
    "a missing factor": (lambda f: (f / "left.npy").unlink(), FileNotFoundError, "a file of the result is missing"),
    "half of what was told": (
        lambda f: (f / "done.json").write_text('{"r": [1'),
        ValueError,
        "done.json' is damaged; delete it",
    ),
}


@pytest.mark.parametrize("what", RESULT_DAMAGE)
def test_a_damaged_result(what, tmp_path):
    samples = ShardedSamples.of(problem().samples, SHARD)
    rg.rcurc(samples, 4, output=tmp_path / "out")
    damage, kind, words = RESULT_DAMAGE[what]
    damage(tmp_path / "out")
    for again in (
        lambda: rg.rcurc(samples, 4, output=tmp_path / "out"),
        lambda: open_result(tmp_path / "out", verify=True),
    ):
        with pytest.raises(kind, match=words):
            again()


def test_a_result_whose_last_word_was_deleted_is_made_again(tmp_path):
    samples = ShardedSamples.of(problem().samples, SHARD)
    first = rg.rcurc(samples, 4, output=tmp_path / "out")
    left = np.array(first.cur.left)
    (tmp_path / "out" / "done.json").unlink()
    np.testing.assert_array_equal(rg.rcurc(samples, 4, output=tmp_path / "out").cur.left, left)


def test_a_core_that_cannot_be_read_is_solved_again(tmp_path, caplog):
    s = ShardedSamples.of(problem().samples, SHARD).save(tmp_path / "s")
    command = [sys.executable, "-c", SCRIPT, tmp_path / "s", tmp_path / "out", "6"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 9
    (tmp_path / "out" / "core.npz").write_bytes(b"PK nonsense")
    same(rg.rcurc(s, 4, accuracy=0.1, output=tmp_path / "out"), rg.rcurc(problem().samples, 4, accuracy=0.1))
    assert "the core is solved again" in caplog.text


def test_killed_while_the_first_file_was_written(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "solve.json1x2y.part").write_text("{")
    assert rg.rcurc(ShardedSamples.of(problem().samples, SHARD), 4, output=tmp_path / "out").converged


def test_an_error_while_saving_leaves_nothing(tmp_path):
    s = problem().samples

    def failing(start, stop):
        if start > 300:
            raise RuntimeError("gone")
        return s.R.tocsc()[:, start:stop]

    samples = ShardedSamples.from_functions(
        failing, lambda a, b: s.C.tocsr()[a:b], s.shape, s.rows, s.cols, columns_at_once=100, rows_at_once=100
    )
    with pytest.raises(RuntimeError, match="gone"):
        samples.save(tmp_path / "s")
    assert not list((tmp_path / "s").iterdir())
    assert len(ShardedSamples.of(s, SHARD).save(tmp_path / "s").r_shards) > 1


def test_a_shard_is_missing_in_the_manifest(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["shards"]["r"][2]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="the shards of side 'r' do not cover 700 units"):
        ShardedSamples.open(folder)


def test_directories_that_cannot_be(folder, tmp_path):
    with pytest.raises(FileExistsError, match="new or an empty directory"):
        ShardedSamples.of(problem().samples).save(folder)
    with pytest.raises(NotADirectoryError, match="got a file"):
        ShardedSamples.of(problem().samples).save(folder / "rows.npy")
    with pytest.raises(FileNotFoundError, match="no such directory"):
        ShardedSamples.open(tmp_path / "nowhere")
    writer = FolderWriter(tmp_path / "new", Cross((50, 50), np.arange(5), np.arange(5)), "float64")
    block = Block(np.zeros(11, np.int64), np.zeros(0, np.int32), np.zeros(0), 5)
    writer.add("r", 0, block)
    with pytest.raises(ValueError, match="start must be 10, where the shard before ends, got 20"):
        writer.add("r", 20, block)
    with pytest.raises(ValueError, match="must cover 50 units"):
        writer.finish()


def test_arguments_that_do_not_go_together(tmp_path):
    s = ShardedSamples.of(problem().samples, SHARD)
    with pytest.raises(ValueError, match="checkpoint is for samples in memory"):
        rg.rcurc(s, 4, checkpoint=tmp_path / "c")
    with pytest.raises(ValueError, match="method='fast', got method='paper'"):
        rg.rcurc(s, 4, method="paper")
    with pytest.raises(ValueError, match="gather is for a solve with a client"):
        rg.rcurc(s, 4, gather=False)
    with pytest.raises(ValueError, match="gather is for a solve with a client"):
        rg.rcurc(problem().samples, 4, gather=False)
    with pytest.raises(TypeError, match="samples must be a CrossSamples, got str"):
        ShardedSamples.of("x")
    with pytest.raises(TypeError, match="dtype must be float32 or float64, got 'foo'"):
        ShardedSamples.from_functions(None, None, (9, 9), [1], [1], columns_at_once=1, rows_at_once=1, dtype="foo")
    with pytest.raises(ValueError, match="values must be finite where observed, got nan at index 0; leave missing"):
        rg.CrossSamples.from_triplets([0], [0], np.ma.masked_array([1.0], [True]), (3, 3))
    with pytest.raises(ValueError, match="shard_bytes must be at least 1"):
        ShardedSamples.of(problem().samples, 0)
    with pytest.raises(ValueError, match="rank must be"):
        rg.rcurc(s, 200)


def test_an_output_of_another_solve_is_left_alone(tmp_path):
    s = ShardedSamples.of(problem().samples, SHARD)
    rg.rcurc(s, 4, output=tmp_path / "out")
    before = (tmp_path / "out" / "left.npy").read_bytes()
    with pytest.raises(ValueError, match="is of another solve: it differs in seed"):
        rg.rcurc(s, 4, seed=1, output=tmp_path / "out")
    other = ShardedSamples.of(problem(seed=5).samples, SHARD)
    with pytest.raises(ValueError, match="differs in samples"):
        rg.rcurc(other, 4, output=tmp_path / "out")
    assert (tmp_path / "out" / "left.npy").read_bytes() == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="has other files"):
        rg.rcurc(s, 4, output=tmp_path / "mine")
    with pytest.raises(NotADirectoryError, match="got a file"):
        rg.rcurc(s, 4, output=tmp_path / "mine" / "letter.txt")
    with pytest.raises(FileNotFoundError, match="a directory that exists"):
        rg.rcurc(s, 4, output=tmp_path / "no" / "out")
    with pytest.raises(ValueError, match="it is no result"):
        open_result(tmp_path / "mine")


FUNCTIONS = {
    "raises": (
        lambda R: lambda a, b: 1 / 0,
        RuntimeError,
        r"shard 0 of the columns \(columns 0 to 99\) could not be made: ZeroDivisionError: division by zero",
    ),
    "too few columns": (lambda R: lambda a, b: R[:, a : b - 1], RuntimeError, "must have 100 columns, got 99"),
    "too few rows": (
        lambda R: lambda a, b: R[1:, a:b],
        RuntimeError,
        "must have 150 rows, one for each of the chosen rows I",
    ),
    "infinite": (
        lambda R: lambda a, b: np.full((150, b - a), np.inf),
        RuntimeError,
        r"what make_r\(0, 100\) gave must be finite",
    ),
    "not the numbers of C": (lambda R: lambda a, b: 2 * R[:, a:b], ValueError, "different values, .* in R and .* in C"),
    "nothing": (lambda R: lambda a, b: np.full((150, b - a), np.nan), ValueError, r"no entry of the chosen rows \(R\)"),
}


@pytest.mark.parametrize("what", FUNCTIONS)
def test_functions_that_give_something_else(what):
    make, kind, words = FUNCTIONS[what]
    s = problem().samples
    R, C = s.R.tocsc(), s.C.tocsr()
    samples = ShardedSamples.from_functions(
        make(R), lambda a, b: C[a:b], s.shape, s.rows, s.cols, columns_at_once=100, rows_at_once=100
    )
    with pytest.raises(kind, match=words):
        rg.rcurc(samples, 4)


def test_more_shards_than_anyone_can_hold_are_refused():
    """The list of them took 24 GB before anything was read."""
    with pytest.raises(ValueError, match="columns_at_once must be at least 10,000,000,000 for this shape"):
        ShardedSamples.from_functions(None, None, (10, 10**15), [0, 1], [0, 1], columns_at_once=1, rows_at_once=1)
