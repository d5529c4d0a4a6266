"""Shards of streams and files, against what `CrossSamples` and `read_observations` make of the same in memory."""

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from helpers import heavy_tailed
from pyarrow import parquet
from test_bad_files import CASES

from rcurc_gpu import CrossSamples, rcurc
from rcurc_gpu.errors import InUseError
from rcurc_gpu.io import arrow, numbering, read_observations, text
from rcurc_gpu.samples.choosing import ArrayPairs, choose_cross, choose_cross_of
from rcurc_gpu.shards import LabelledShards, ShardedSamples, build, shard_file, shard_triplets
from rcurc_gpu.shards.buckets import plan

SHAPE = (300, 400)
SMALL = {"memory_bytes": 1 << 20, "shard_bytes": 40_000}


def drawn(n=60_000, shape=SHAPE, seed=0):
    """Triplets with repeats that disagree, more of them in the first columns."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, shape[0], n), (shape[1] * rng.random(n) ** 3).astype(int), rng.standard_normal(n)


def in_chunks(i, j, values, size=7_777):
    return ((i[k : k + size], j[k : k + size], values[k : k + size]) for k in range(0, len(i), size))


def assert_same(found, expected):
    """All that two samples have, to the last bit."""
    assert (found.shape, found.n_unused, found.n_obs) == (expected.shape, expected.n_unused, expected.n_obs)
    for name in ("rows", "cols"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    whole = found.to_memory()
    for block in ("r_block", "c_block"):
        for name in ("indptr", "index", "value"):
            a, b = (getattr(getattr(x, block), name) for x in (whole, expected))
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
    for part in ("index", "value"):
        a, b = (getattr(x.intersection.block, part) for x in (found, expected))
        np.testing.assert_array_equal(a, b)


def assert_nothing_left(folder):
    assert not Path(folder).exists() or not list(Path(folder).iterdir())


CROSSES = {
    "chosen": lambda: {},
    "given": lambda: {
        "rows": np.random.default_rng(1).permutation(300)[:50],
        "cols": np.random.default_rng(2).permutation(400)[:70],
    },
    "rows given": lambda: {"rows": np.arange(7, 30)},
    "columns given": lambda: {"cols": np.asarray([3, 1, 2])},
}


@pytest.mark.parametrize("duplicates", ["mean", "median"])
@pytest.mark.parametrize("limits", [{}, SMALL], ids=["roomy", "narrow"])
@pytest.mark.parametrize("cross", CROSSES.values(), ids=CROSSES)
def test_shards_of_chunks_are_the_samples_of_all_triplets(tmp_path, cross, limits, duplicates):
    i, j, values = drawn()
    how = cross() | {"duplicates": duplicates}
    found = shard_triplets(in_chunks(i, j, values), tmp_path / "shards", SHAPE, **how, **limits)
    assert_same(found, CrossSamples.from_triplets(i, j, values, SHAPE, **how))
    assert limits == {} or len(found.r_shards) + len(found.c_shards) > 4
    assert_same(ShardedSamples.open(tmp_path / "shards"), CrossSamples.from_triplets(i, j, values, SHAPE, **how))
    assert not [path for path in (tmp_path / "shards").iterdir() if path.is_dir()]


def test_values_become_float32(tmp_path):
    i, j, values = drawn()
    found = shard_triplets(in_chunks(i, j, values), tmp_path / "s", SHAPE, duplicates="median", dtype="float32", **SMALL)
    expected = CrossSamples.from_triplets(i, j, values.astype(np.float32), SHAPE, duplicates="median")
    assert_same(found, expected)
    assert found.dtype == np.float32


def test_integers_lists_and_empty_chunks_are_taken(tmp_path):
    i, j = np.nonzero(np.random.default_rng(0).random((20, 30)) < 0.7)
    values = i * 30 + j
    chunks = [([], [], []), (i[:9].astype(np.int8), j[:9].astype(np.uint16), values[:9]), (i[:0], j[:0], values[:0])]
    chunks += [(i[9:].tolist(), j[9:].tolist(), values[9:].tolist())]
    found = shard_triplets(chunks, tmp_path / "s", (20, 30), np.arange(5), np.arange(4))
    assert_same(found, CrossSamples.from_triplets(i, j, values, (20, 30), np.arange(5), np.arange(4)))


@pytest.mark.parametrize("cross", [{}, {"rows": np.arange(4000), "cols": np.arange(3)}], ids=["chosen", "given"])
def test_a_unit_that_does_not_fit_into_the_memory_is_sorted_in_parts(tmp_path, cross):
    rng = np.random.default_rng(3)
    shape, n = (4000, 50), 60_000
    i = rng.integers(0, shape[0], n)
    j = np.where(rng.random(n) < 0.9, 1, rng.integers(0, shape[1], n))  # one column has nine observations of ten
    values = rng.standard_normal(n)
    assert np.count_nonzero(j == 1) > 4 * ((1 << 20) // 96)
    found = shard_triplets(in_chunks(i, j, values), tmp_path / "s", shape, duplicates="mean", **cross, **SMALL)
    assert_same(found, CrossSamples.from_triplets(i, j, values, shape, duplicates="mean", **cross))


def test_a_place_observed_more_often_than_fits_has_the_median_of_all(tmp_path):
    rng = np.random.default_rng(4)
    many = rng.standard_normal(30_001)
    i = np.append(np.zeros(30_001, int), [1, 0, 2])
    j = np.append(np.zeros(30_001, int), [0, 1, 2])
    values = np.append(many, [5.0, 6.0, 7.0])
    found = shard_triplets([(i, j, values)], tmp_path / "s", (3, 3), [0, 1], [0, 1], duplicates="median", **SMALL)
    np.testing.assert_array_equal(found.to_memory().R.toarray(), [[np.median(many), 6, 0], [5, 0, 0]])
    assert found.n_unused == 1


def test_duplicates_that_disagree_are_named_and_equal_ones_kept_once(tmp_path):
    i, j, values = np.asarray([0, 1, 2, 1]), np.asarray([0, 2, 1, 2]), np.asarray([1.0, 2.0, 3.0, 2.0])
    found = shard_triplets(in_chunks(i, j, values, 1), tmp_path / "s", (3, 3), [0, 1], [0, 1])
    assert (found.n_obs, found.survey.n_obs) == (3, (2, 2))
    values[3] = 4.0
    with pytest.raises(ValueError, match=r"entry \(1, 2\) was observed with different values, 2 and 4"):
        shard_triplets(in_chunks(i, j, values, 1), tmp_path / "t", (3, 3), [0, 1], [0, 1])
    assert not (tmp_path / "t").exists()


def test_a_plan_cuts_where_shards_are_full_and_covers_all_units():
    rng = np.random.default_rng(5)
    for _ in range(50):
        counts = rng.integers(0, 30, rng.integers(1, 200))
        most_entries, most_bytes = int(rng.integers(10, 200)), int(rng.integers(100, 2000))
        edges = plan(counts, most_entries, 12, most_bytes)
        assert (edges[0], edges[-1]) == (0, len(counts))
        assert (np.diff(edges) > 0).all()

        def fits(a, b, counts=counts, most_entries=most_entries, most_bytes=most_bytes):
            n = counts[a:b].sum()
            return n <= most_entries and 12 * n + 8 * (b - a) <= most_bytes

        for a, b in pairwise(edges):
            assert b == a + 1 or fits(a, b)
            assert b == len(counts) or not fits(a, b + 1)


@pytest.mark.parametrize("at_once", [1, 97, 10**6])
@pytest.mark.parametrize(("n", "shape", "decay"), [(30_000, (400, 500), 0.8), (500, (100, 90), 1.0), (3, (5, 5), 0.1)])
def test_the_cross_does_not_depend_on_the_pieces(n, shape, decay, at_once):
    i, j = heavy_tailed(n, shape, decay)
    if at_once == 1:
        i, j = i[:500], j[:500]
    pairs = ArrayPairs(i.astype(np.int32), j.astype(np.int32), at_once)
    for found, expected in zip(choose_cross_of(pairs, shape), choose_cross(i, j, shape), strict=True):
        np.testing.assert_array_equal(found, expected)


# ---------------------------------------------------------------- wrong input, interruptions


BAD = {
    "row beyond the end": (([0, 5], [0, 0], [1, 1]), ValueError, r"i of chunk 1 must lie in 0\.\.4, got 5 at index 1"),
    "negative column": (([0, 1], [0, -1], [1, 1]), ValueError, r"j of chunk 1 must lie in 0\.\.5, got -1 at index 1"),
    "nan": (
        ([0, 1], [0, 1], [1, np.nan]),
        ValueError,
        "values of chunk 1 must be finite where observed, got nan at index 1",
    ),
    "inf": (([0], [0], [np.inf]), ValueError, "values of chunk 1 must be finite where observed, got inf at index 0"),
    "lengths": (([0, 1], [0], [1, 2]), ValueError, r"i, j and values of chunk 1 must be vectors of one length, got \(2,\)"),
    "fractions": (([0.5], [0], [1]), TypeError, "i of chunk 1 must hold integers, got dtype float64"),
    "words": (([0], [0], ["x"]), TypeError, "values of chunk 1 must be real numbers"),
    "a pair": (([0], [0]), TypeError, r"chunk 1 must be \(i, j, values\), got tuple"),
    "a number": (7, TypeError, r"chunk 1 must be \(i, j, values\), got int"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_a_wrong_chunk_is_named_and_nothing_is_left(tmp_path, case):
    chunk, error, words = case
    with pytest.raises(error, match=words):
        shard_triplets([([0], [0], [1.0]), chunk], tmp_path / "s", (5, 6))
    assert not (tmp_path / "s").exists()
    (tmp_path / "t").mkdir()
    with pytest.raises(error, match=words):
        shard_triplets([([0], [0], [1.0]), chunk], tmp_path / "t", (5, 6), [0], [0])
    assert (tmp_path / "t").is_dir()
    assert_nothing_left(tmp_path / "t")


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ({"shape": 5}, TypeError, "shape must be a pair"),
        ({"rows": [9]}, ValueError, r"rows must lie in 0\.\.4, got 9"),
        ({"dtype": "int64"}, TypeError, "dtype must be float32 or float64, got 'int64'"),
        ({"dtype": "real"}, TypeError, "dtype must be float32 or float64, got 'real'"),
        ({"duplicates": "sum"}, ValueError, "duplicates must be one of"),
        ({"shard_bytes": 0}, ValueError, "shard_bytes must be at least 1, got 0"),
        ({"memory_bytes": 1000}, ValueError, "memory_bytes must be at least 1048576, got 1000"),
        ({"chunks": []}, ValueError, "chunks is empty: there are no observations"),
        ({"rows": [3], "cols": [0]}, ValueError, r"no entry of the chosen rows \(R\) was observed"),
        ({"rows": [0], "cols": [4]}, ValueError, r"no entry of the chosen columns \(C\) was observed"),
        (
            {"chunks": [([0], [0], [1e300])], "dtype": "float32"},
            ValueError,
            "values of chunk 0 must fit into float32, got 1e.300 at index 0",
        ),
    ],
)
def test_wrong_arguments_are_named(tmp_path, how, error, words):
    call = {"chunks": [([0], [0], [1.0])], "shape": (5, 6)} | how
    with pytest.raises(error, match=words):
        shard_triplets(folder=tmp_path / "s", **call)
    assert not (tmp_path / "s").exists()


def test_a_directory_with_files_is_refused_and_not_touched(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="folder must be a new or an empty directory"):
        shard_triplets([([0], [0], [1.0])], tmp_path, (5, 6))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(NotADirectoryError):
        shard_triplets([([0], [0], [1.0])], tmp_path / "mine.txt", (5, 6))


@pytest.mark.parametrize("place", ["plan", "_counted", "choose_cross_of", "FolderWriter"])
def test_an_interruption_leaves_nothing(tmp_path, monkeypatch, place):
    def interrupt(*_, **__):
        assert list((tmp_path / "s").iterdir())  # there is something to remove
        raise KeyboardInterrupt

    if place == "FolderWriter":
        monkeypatch.setattr(build.FolderWriter, "finish", interrupt)  # all shards are there
    else:
        monkeypatch.setattr(build, place, interrupt)
    with pytest.raises(KeyboardInterrupt):
        shard_triplets(in_chunks(*drawn()), tmp_path / "s", SHAPE, duplicates="mean")
    assert not (tmp_path / "s").exists()


FULL = """
import resource, signal, sys
import numpy as np
import rcurc_gpu as rg
from rcurc_gpu.shards import ShardedSamples, shard_triplets
what, where = sys.argv[1:]
p = rg.synthetic((3000, 3000), 2, 0.1, 10, n_rows=60, n_cols=60, rate=0.5, seed=0)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
try:
    if what == "triplets":
        shard_triplets([(np.arange(9000) % 90, np.arange(9000) // 90, np.ones(9000))], where, (90, 100))
    elif what == "shards":
        ShardedSamples.of(p.samples).save(where)
    elif what == "output":
        rg.rcurc(p.samples, 2, output=where, kernels="xp")
    else:
        p.samples.save(where)
except OSError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits the size of a file, as POSIX can")
@pytest.mark.parametrize("what", ["triplets", "shards", "output", "samples"])
def test_a_file_that_cannot_be_written_is_named(tmp_path, what):
    """Of a full disk the system does not say where it is; here files may not be large."""
    command = [sys.executable, "-c", FULL, what, str(tmp_path / "s")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert str(tmp_path / "s") in done.stdout, done.stderr


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_a_process_that_is_stopped_leaves_nothing_that_passes_for_shards_or_is_in_the_way(tmp_path, how):
    code = (
        "import sys, time, numpy as np\n"
        "from rcurc_gpu.shards import shard_triplets\n"
        "def chunks():\n"
        "    yield np.arange(1000), np.arange(1000), np.ones(1000)\n"
        "    print('reading', flush=True)\n"
        "    time.sleep(600)\n"
        "shard_triplets(chunks(), sys.argv[1], (1000, 1000))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "s")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdout.readline() == "reading\n"
        with pytest.raises(InUseError, match="is being written by another run; wait for its end"):
            shard_triplets([([0], [0], [1.0])], tmp_path / "s", (5, 6))
        child.send_signal(getattr(signal, how))
        child.wait(120)
    if how == "SIGINT":
        assert not (tmp_path / "s").exists()
    else:
        with pytest.raises(ValueError, match="writing it was interrupted"):
            ShardedSamples.open(tmp_path / "s")
        assert (tmp_path / "s" / "unfinished").is_dir()
    assert shard_triplets([([0], [0], [1.0])], tmp_path / "s", (5, 6)).n_obs == 1
    assert not (tmp_path / "s" / "unfinished").exists()


@pytest.mark.parametrize("inside", [{"unfinished": "mine"}, {"unfinished/notes.txt": "mine"}, {"rows.npy": "mine"}])
def test_files_of_others_are_not_taken_for_what_a_killed_process_left(tmp_path, inside):
    for name, content in inside.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    with pytest.raises(FileExistsError, match="this one has files in it"):
        shard_triplets([([0], [0], [1.0])], tmp_path, (5, 6))
    assert [(tmp_path / name).read_text() for name in inside] == list(inside.values())


def test_a_place_observed_far_more_often_than_fits(tmp_path, monkeypatch):
    """Equal values take no memory; of different ones the mean is refused, and without `duplicates` they are named."""
    n = 60_000
    i, j, values = np.zeros(n + 1, int), np.zeros(n + 1, int), np.ones(n + 1)
    i[n] = 1
    cross = ((3, 3), [0, 1], [0, 1])
    assert shard_triplets([(i, j, values)], tmp_path / "s", *cross, **SMALL).n_obs == 2
    values[n - 1] = 2.0
    with pytest.raises(ValueError, match=r"entry \(0, 0\) was observed with different values, 1 and 2"):
        shard_triplets([(i, j, values)], tmp_path / "t", *cross, **SMALL)
    with pytest.raises(ValueError, match="an entry was observed 60,000 times, with different values: more than fit"):
        shard_triplets([(i, j, values)], tmp_path / "t", *cross, duplicates="mean", **SMALL)
    assert not (tmp_path / "t").exists()


# ---------------------------------------------------------------- memory


MEMORY = """
import sys, numpy as np
from rcurc_gpu.shards import shard_triplets

def peak():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024

def chunks(n, shape, rows, cols):
    rng = np.random.default_rng(0)
    for _ in range(0, n, 1_000_000):
        i, j = (rng.integers(0, size, 1_000_000) for size in shape)
        half = rng.random(1_000_000) < 0.5  # in the chosen rows, or in the chosen columns
        i, j = np.where(half, i % rows, i), np.where(half, j, j % cols)
        yield i, j, np.sin(i * 0.7 + j)

shape, n = (200_000, 50_000), 20_000_000
before = peak()
samples = shard_triplets(chunks(n, shape, 1000, 400), sys.argv[1], shape, memory_bytes=64 << 20)
print(peak() - before, len(samples.rows), len(samples.cols), samples.n_obs, samples.n_unused)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from Linux's /proc")
def test_twenty_million_triplets_need_little_more_than_the_memory_allowed(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path / "s")], capture_output=True, text=True, check=True, timeout=300
    )
    peak, n_rows, n_cols, n_obs, n_unused = map(int, done.stdout.split())
    assert (n_rows, n_cols, n_unused) == (1000, 400, 0)
    assert 16_000_000 < n_obs <= 20_000_000  # some are repeated
    assert peak < 150e6 < 0.35 * 20_000_000 * 24


# ---------------------------------------------------------------- files


def write_table(path, rows, cols, values, header=("user", "item", "stars")):
    opened = gzip.open if path.name.endswith(".gz") else open
    with opened(path, "wt", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t" if ".tsv" in path.name else ",")
        if header:
            writer.writerow(header)
        writer.writerows(zip(rows, cols, values, strict=True))


def assert_same_table(found, expected):
    assert_same(found.samples, expected.samples)
    assert (found.source, found.n_missing, found.columns) == (expected.source, expected.n_missing, expected.columns)
    for name in ("rows", "cols"):
        np.testing.assert_array_equal(getattr(found.labels, name), getattr(expected.labels, name))


LABELS = {
    "words": lambda k: f"user «{k * 7919 % 1000}»",
    "quoted words": lambda k: f'"{k * 7919 % 1000}", the user',
    "words over two lines": lambda k: f"user\n{k * 7919 % 1000}",
    "whole numbers": lambda k: k * 7919 % 1000 - 300,
    "large whole numbers": lambda k: int(k * 7919 % 1000) * 10**15 - 10**16,
    "whole numbers of 19 digits": lambda k: int(k * 7919 % 1000) + 9 * 10**18,
    "numbers with zeros before": lambda k: f"{k * 7919 % 1000:04d}",
    "numbers and words": lambda k: k * 7919 % 1000 if k < 250 else f"u{k}",
    "blanks around": lambda k: f" {k * 7919 % 1000}{' ' * (k % 3)}",
}


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".tsv", ".parquet"])
@pytest.mark.parametrize("label", LABELS.values(), ids=LABELS)
def test_a_file_gives_what_read_observations_gives(tmp_path, monkeypatch, label, ending):
    monkeypatch.setattr(text, "_BLOCK", 50_000)  # many blocks of a small file
    monkeypatch.setattr(arrow, "_ROWS", 1000)
    i, j, values = drawn(8000)
    path = tmp_path / f"table{ending}"
    rows, cols = [label(int(k)) for k in i], [f"item {k}" for k in j]
    if ending == ".parquet":
        rows = rows if len({type(k) for k in rows}) == 1 else [str(k) for k in rows]
        values[::50] = np.nan
        parquet.write_table(pa.table({"user": rows, "item": cols, "stars": pa.array(values, from_pandas=True)}), path)
    else:
        write_table(path, rows, cols, ["NA" if k % 50 == 0 else repr(float(v)) for k, v in enumerate(values)])
    found = shard_file(path, tmp_path / "shards", duplicates="mean", **SMALL)
    expected = read_observations(path, duplicates="mean")
    assert_same_table(found, expected)
    assert_same_table(LabelledShards.open(tmp_path / "shards"), expected)
    assert found.n_missing == 160


def test_without_pyarrow_text_gives_the_same(tmp_path, monkeypatch):
    i, j, values = drawn(5000)
    write_table(tmp_path / "t.csv", i, [f"item {k}" for k in j], values, header=None)
    expected = read_observations(tmp_path / "t.csv", duplicates="median")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert_same_table(shard_file(tmp_path / "t.csv", tmp_path / "s", duplicates="median"), expected)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_several_files_are_one_table(tmp_path, ending):
    i, j, values = drawn(9000)
    rows, cols = [f"u{k}" for k in i], j
    whole, parts = tmp_path / f"whole.{ending}", tmp_path / "parts"
    (parts / "year=1").mkdir(parents=True)
    (parts / "_SUCCESS").write_text("")
    (parts / ".part-0.csv.crc").write_text("x")
    for path, part in [(whole, slice(None))] + [
        (parts / place / f"part-{k}.{ending}", slice(3000 * k, 3000 * k + 3000))
        for k, place in enumerate(("", "", "year=1"))
    ]:
        if ending == "csv":
            write_table(path, rows[part], cols[part], values[part])
        else:
            parquet.write_table(pa.table({"user": rows[part], "item": cols[part], "stars": values[part]}), path)
    if ending == "csv":
        (parts / "part-1z.csv").write_text("")  # parts may be empty
        (parts / "part-1y.csv").write_text("user,item,stars\n")
    else:
        parquet.write_table(pa.table({"user": rows[:0], "item": cols[:0], "stars": values[:0]}), parts / "part-1z.parquet")
    expected = read_observations(whole, duplicates="mean")
    sources = {
        "list": sorted(parts.rglob(f"part-*.{ending}")),
        "directory": parts,
        "pattern": str(parts / "**" / f"part-*.{ending}"),
    }
    for name, source in sources.items():
        found = shard_file(source, tmp_path / name, duplicates="mean", **SMALL)
        assert_same(found.samples, expected.samples)
        np.testing.assert_array_equal(found.labels.rows, expected.labels.rows)
        assert "files" in found.source


def test_rows_and_columns_are_given_by_label(tmp_path):
    i, j, values = drawn(5000)
    write_table(tmp_path / "t.csv", [f"u{k}" for k in i], j, values)
    found = shard_file(tmp_path / "t.csv", tmp_path / "s", rows=["u7", "u3", "u250"], cols=[11, 2], duplicates="mean")
    table = read_observations(tmp_path / "t.csv", duplicates="mean")
    shape = table.samples.shape
    rows, cols = table.labels.find_rows(["u7", "u3", "u250"], shape[0]), table.labels.find_cols(["11", "2"], shape[1])
    at = table.labels.find_rows([f"u{k}" for k in i], shape[0]), table.labels.find_cols([str(k) for k in j], shape[1])
    assert_same(found.samples, CrossSamples.from_triplets(*at, values, shape, rows, cols, duplicates="mean"))
    for how, words in (
        ({"rows": ["u7", "who"]}, "rows has the label 'who', which is not in the table"),
        ({"cols": [2, 3, 2]}, r"cols must not repeat a label, got '2' \(2 times\)"),
        ({"cols": []}, "cols is empty"),
    ):
        with pytest.raises(ValueError, match=words):
            shard_file(tmp_path / "t.csv", tmp_path / "t", duplicates="mean", **how)
        assert not (tmp_path / "t").exists()


TABLES = [name for name in CASES if name.endswith((".csv", ".csv.gz", ".parquet", ".tsv"))]


@pytest.mark.parametrize("block", [8 << 20, 64])
@pytest.mark.parametrize("name", TABLES)
def test_a_bad_file_gets_the_same_error_as_in_memory(tmp_path, monkeypatch, name, block):
    monkeypatch.setattr(text, "_BLOCK", block)
    path = tmp_path / name
    path.write_bytes(CASES[name][0])
    errors = []
    for read in (lambda: read_observations(path), lambda: shard_file(path, tmp_path / "s")):
        with pytest.raises((ValueError, ImportError, OSError)) as error:
            read()
        errors.append(str(error.value))
    assert errors[0] == errors[1]
    assert not (tmp_path / "s").exists()


def test_the_line_is_named_far_into_a_file_of_several(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_BLOCK", 1000)
    good = "".join(f"r{k},c{k % 7},{k}\n" for k in range(3000))
    (tmp_path / "a.csv").write_text(good)
    (tmp_path / "b.csv").write_text(f'"two\nlines",c1,1\n\n{good}r1,c1,oops\n{good}')
    with pytest.raises(ValueError, match=r"b\.csv', line 3004: the value 'oops' is not a number"):
        shard_file([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "s")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("block", [7, 16, 100, 8 << 20])
def test_odd_but_right_text_is_read_as_in_memory(tmp_path, monkeypatch, block):
    monkeypatch.setattr(text, "_BLOCK", block)
    monkeypatch.setattr(text, "_SOME", 5)
    texts = [
        'a,b,c\n x ,y,1\nx, z ,2\n\n"q\nr",y,3\n',
        "\ufeffrow,col,v\r\n3,1,2\r\n2,1,NA\r\n",
        'a b,c,1\r"a,b",c,2\r',
        'u;v;1\nu 12";w;2\nz;v;"3"\n',
        'u,v,1\nu 12",w,2\n"l\nm",v,3\n',
        '1,"o\np",v\n2,"12"" q",3',
        'value,"the\nrow",col\n1,a,b\n2,"c\r\nd",e\n3,"\n",e\n'.replace('"\n",e', '"f\n\n",e'),
    ]
    for k, content in enumerate(texts):
        path = tmp_path / f"{block}-{k}.csv"
        path.write_text(content, encoding="utf-8", newline="")
        how = {"row_column": "the\nrow", "column_column": "col", "value_column": "value"} if "the\nrow" in content else {}
        assert_same_table(shard_file(path, tmp_path / f"{block}-{k}", **how), read_observations(path, **how))


def test_whole_numbers_are_numbered_in_the_order_of_their_coming(monkeypatch):
    rng = np.random.default_rng(0)
    for table in (1 << 22, 1 << 4):  # looked up in a table, as text
        monkeypatch.setattr(numbering, "_TABLE", table)
        for spread in (50, 10**4, 10**15):
            known, expected = numbering.LabelNumbers(), {}
            for _ in range(20):
                values = rng.integers(-spread, spread, rng.integers(1, 200))
                numbers = [expected.setdefault(v, len(expected)) for v in values.tolist()]
                labels = np.asarray(list(dict.fromkeys(values.tolist())))
                codes = np.argmax(labels == values[:, None], axis=1)
                column = numbering.LabelColumn(codes, lambda v=labels: v, lambda v=labels: list(map(str, v)))
                assert known.of(known.prepared(column))[codes].tolist() == numbers
            assert list(known.text) == list(map(str, expected))


def test_float32_that_overflows_is_named_by_its_labels(tmp_path):
    write_table(tmp_path / "t.csv", ["a", "b"], ["x", "y"], [1.0, 1e300])
    with pytest.raises(ValueError, match="the value of row 'b' and column 'y' must fit into float32"):
        shard_file(tmp_path / "t.csv", tmp_path / "s", dtype="float32")


def test_what_cannot_be_read_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    np.save(tmp_path / "m.npy", np.ones((3, 3)))
    for source, error, words in (
        (tmp_path / "empty", ValueError, "is a directory without tables"),
        (tmp_path / "no.csv", FileNotFoundError, "No such file"),
        (str(tmp_path / "no-*.csv"), FileNotFoundError, "no file matches"),
        ([], ValueError, "path is empty"),
        (tmp_path / "m.npy", ValueError, "must be a table in text or Parquet, got a matrix"),
    ):
        with pytest.raises(error, match=words):
            shard_file(source, tmp_path / "s")
        assert not (tmp_path / "s").exists()


def test_damaged_labels_are_found(tmp_path):
    write_table(tmp_path / "t.csv", ["a", "b", "a"], ["x", "y", "y"], [1.0, 2.0, 3.0])
    shard_file(tmp_path / "t.csv", tmp_path / "s")
    manifest = json.loads((tmp_path / "s" / "manifest.json").read_text())
    manifest["labels"]["crc32"] = "00000000"
    (tmp_path / "s" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=r"labels\.npz' is damaged"):
        LabelledShards.open(tmp_path / "s")
    os.truncate(tmp_path / "s" / "labels.npz", 100)
    with pytest.raises(ValueError, match="is not a Labels file, or is truncated"):
        LabelledShards.open(tmp_path / "s")


def test_shards_without_labels_open_with_numbers(tmp_path):
    shard_triplets(in_chunks(*drawn()), tmp_path / "s", SHAPE, duplicates="mean")
    opened = LabelledShards.open(tmp_path / "s")
    assert (opened.labels.rows, opened.labels.cols) == (None, None)


def test_bars_are_shown_when_they_are_asked_for(tmp_path, capsys, monkeypatch):
    import tqdm

    shown = []

    class Recorded(tqdm.tqdm):
        def __init__(self, *args, **how):
            super().__init__(*args, **(how | {"delay": 0}))
            shown.append(self)

    monkeypatch.setattr(tqdm, "tqdm", Recorded)
    write_table(tmp_path / "t.csv", *drawn(5000))
    shard_file(tmp_path / "t.csv", tmp_path / "s", duplicates="mean", progress=True)
    names = [bar.desc.rstrip(": ") for bar in shown]
    assert names == ["reading t.csv", "choosing rows and columns", "counting", "sorting", "writing shards"]
    for bar in shown:
        assert bar.total is None or bar.n == bar.total
        assert bar.n > 0
    assert "reading t.csv" in capsys.readouterr().err


def test_a_low_rank_matrix_is_recovered_from_shards_of_a_stream(tmp_path):
    rng = np.random.default_rng(6)
    shape = (500, 600)
    i, j = heavy_tailed(80_000, shape, 0.6)
    W, V = rng.standard_normal((500, 2)), rng.standard_normal((600, 2))
    values = np.einsum("kr,kr->k", W[i], V[j])
    values[rng.random(len(values)) < 0.1] = 30.0
    samples = shard_triplets(in_chunks(i, j, values), tmp_path / "s", shape, **SMALL)
    assert len(samples.r_shards) > 1
    X = W @ V.T
    assert np.linalg.norm(rcurc(samples, rank=2).cur.to_dense() - X) < 1e-6 * np.linalg.norm(X)
