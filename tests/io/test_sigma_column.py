"""Tables with a column that says how large the noise of each value is: text, Parquet, shards, commands."""

import json

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from rcurc_gpu import CrossSamples, cli, rcurc
from rcurc_gpu.io import load_result, read_observations
from rcurc_gpu.shards import ShardedSamples, shard_file, shard_triplets

RNG = np.random.default_rng(0)
ROW, COLUMN = (x.ravel() for x in np.indices((60, 50)))
KEPT = RNG.random(3000) < 0.6
ROW, COLUMN = ROW[KEPT], COLUMN[KEPT]
TRUTH = (RNG.standard_normal((60, 2)) @ RNG.standard_normal((2, 50)))[ROW, COLUMN]
SIGMA = RNG.choice([0.01, 0.4], len(ROW))
VALUE = TRUTH + SIGMA * RNG.standard_normal(len(ROW))
HEADER = "station,hour,error,reading"


def lines(sigma=SIGMA):
    return "".join(
        f"s{i},{j},{s!r},{v!r}\n" for i, j, s, v in zip(ROW, COLUMN, map(float, sigma), map(float, VALUE), strict=True)
    )


OPTIONS = {"value_column": "reading", "sigma_column": "error"}
COMMAND = ("--value-column", "reading", "--sigma-column", "error")


def run(*arguments):
    return CliRunner().invoke(cli.main, [str(a) for a in arguments], prog_name="rcurc-gpu")


@pytest.fixture
def table(tmp_path):
    (tmp_path / "a.csv").write_text(f"{HEADER}\n{lines()}")
    return tmp_path / "a.csv"


def assert_same(found, expected):
    for a, b in ((found.r_block, expected.r_block), (found.c_block, expected.c_block)):
        for name in ("indptr", "index", "value", "sigma"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def expected():
    return CrossSamples.from_triplets(ROW, COLUMN, VALUE, (60, 50), sigma=SIGMA)


def test_text_line_by_line_and_parquet_give_the_same(table, tmp_path, monkeypatch):
    columns = {"station": [f"s{i}" for i in ROW], "hour": COLUMN, "reading": VALUE, "error": SIGMA}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    for path in (table, tmp_path / "a.parquet"):
        assert_same(read_observations(path, **OPTIONS).samples, expected())
    assert not read_observations(table, value_column="reading").samples.has_sigma
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert_same(read_observations(table, **OPTIONS).samples, expected())


@pytest.mark.parametrize("memory", [1 << 20, 1 << 26])
def test_shards_have_it(table, tmp_path, memory):
    sizes = {"memory_bytes": memory, "shard_bytes": 10_000}
    labelled = shard_file(table, tmp_path / "a", **OPTIONS, **sizes)
    assert len(labelled.samples.r_shards) > 2
    size = 777
    chunks = ((x[k : k + size] for x in (ROW, COLUMN, VALUE, SIGMA)) for k in range(0, len(ROW), size))
    streamed = shard_triplets(map(tuple, chunks), tmp_path / "b", (60, 50), sigma=True, **sizes)
    for samples in (labelled.samples, streamed, ShardedSamples.open(tmp_path / "a")):
        assert samples.has_sigma
        assert_same(samples.to_memory(), expected())
        np.testing.assert_array_equal(samples.intersection.block.sigma, expected().intersection.block.sigma)


def test_repeats_in_shards_are_weighted(tmp_path):
    rng = np.random.default_rng(1)
    i, j = rng.integers(0, 20, 4000), rng.integers(0, 15, 4000)
    values, sigma = rng.standard_normal(4000), rng.uniform(0.1, 2, 4000)
    whole = CrossSamples.from_triplets(i, j, values, (20, 15), duplicates="mean", sigma=sigma)
    options = {"sigma": True, "duplicates": "mean", "shard_bytes": 1000}
    found = shard_triplets([(i, j, values, sigma)], tmp_path / "a", (20, 15), **options).to_memory()
    for a, b in ((found.r_block, whole.r_block), (found.c_block, whole.c_block)):
        np.testing.assert_array_equal(a.index, b.index)
        np.testing.assert_allclose(a.value, b.value)
        np.testing.assert_allclose(a.sigma, b.sigma)


def test_a_manifest_with_sigma_in_some_shards_only_is_refused(table, tmp_path):
    shard_file(table, tmp_path / "a", **OPTIONS, shard_bytes=10_000)
    path = tmp_path / "a" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["shards"]["r"][1]["sigma"] = False
    path.write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="sigma of a shard is False, that of another True"):
        ShardedSamples.open(tmp_path / "a")


def test_the_commands_take_a_column(table, tmp_path):
    done = run("complete", table, "-o", tmp_path / "a.npz", *COMMAND, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["noise_model"]
    found = load_result(tmp_path / "a.npz")
    assert found.cur.uncertainty.sigma in (0.01, 0.4)
    np.testing.assert_allclose(found.cur.left, rcurc(expected(), seed=0).cur.left)
    assert run("shard", table, "-o", tmp_path / "shards", *COMMAND, "--quiet").exit_code == 0
    again = run("complete", tmp_path / "shards", "-o", tmp_path / "b.npz", "--json")
    assert json.loads(again.stdout)["prediction_error"] == pytest.approx(report["prediction_error"])
    refused = run("complete", tmp_path / "shards", "-o", tmp_path / "c.npz", "--sigma-column", "error")
    assert "--sigma-column: 'rcurc-gpu shard' was told" in refused.output


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("s0,0,,1.0", "--sigma-column must have a positive number for row 's0' and column '0', got none"),
        ("s0,0,0,1.0", "--sigma-column must have a positive number for row 's0' and column '0', got 0"),
        ("s0,0,-2,1.0", "--sigma-column must have a positive number for row 's0' and column '0', got -2"),
        ("s0,0,inf,1.0", "line 2: the sigma inf is not finite (column 'error'; choose another with --sigma-column"),
        ("s0,0,fine,1.0", "line 2: the sigma 'fine' is not a number (column 'error'; choose another with --sigma-column"),
    ],
)
def test_bad_sigmas_name_the_option_and_the_place(line, words, tmp_path):
    (tmp_path / "a.csv").write_text(f"{HEADER}\n{line}\ns1,0,1,1.0\ns1,1,1,1.0\n")
    for command in ("complete", "shard"):
        done = run(command, tmp_path / "a.csv", "-o", tmp_path / f"{command}.npz", *COMMAND)
        assert done.exit_code == 2
        assert words in done.output


def test_a_sigma_too_large_for_float32_is_refused(table, tmp_path):
    table.write_text(f"{HEADER}\ns0,0,1e60,1\n{lines()}")
    with pytest.raises(ValueError, match="must have a positive number for row 's0' and column '0', got inf"):
        shard_file(table, tmp_path / "a", dtype="float32", **OPTIONS)


def test_what_has_no_value_needs_no_sigma(table):
    table.write_text(f"{HEADER}\ns0,0,,\n{lines()}")
    labelled = read_observations(table, **OPTIONS)
    assert labelled.n_missing == 1
    assert labelled.samples.has_sigma


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda a: read_observations(a, sigma_column="nothing"), "has no column 'nothing'"),
        (lambda a: read_observations(a, sigma_column="error"), "row, column, value and sigma must be different columns"),
        (lambda a: read_observations(a.with_name("a.npy"), sigma_column="error"), "sigma_column is for tables"),
        (lambda a: shard_file(a, a.with_name("a"), duplicates="median", **OPTIONS), None),
    ],
)
def test_what_cannot_be_is_refused(call, words, table):
    np.save(table.with_name("a.npy"), np.ones((3, 3)))
    if words is None:  # there are no repeats: nothing to take a median of
        call(table)
        return
    with pytest.raises(ValueError, match=words):
        call(table)


@pytest.mark.parametrize(
    ("chunk", "options", "words"),
    [
        (([0], [0], [1.0]), {"sigma": True}, r"chunk 0 must be \(i, j, values, sigma\), got tuple of length 3"),
        (([0], [0], [1.0], [1.0]), {}, r"chunk 0 must be \(i, j, values\), got tuple of length 4"),
        (([0], [0], [1.0], [0.0]), {"sigma": True}, "sigma of chunk 0 must be positive and finite in float64, got 0"),
        (
            ([0], [0], [1.0], [1e-60]),
            {"sigma": True, "dtype": "float32"},
            "sigma of chunk 0 must be .* in float32, got 1e-60",
        ),
        (
            ([0], [0], [1.0], [1e60]),
            {"sigma": True, "dtype": "float32"},
            r"sigma of chunk 0 must be .* in float32, got 1e\+60",
        ),
        (
            ([0], [0], [1.0], [1.0, 2.0]),
            {"sigma": True},
            "sigma of chunk 0 must be a vector with a number for each of 1 val",
        ),
    ],
)
def test_bad_chunks_are_named(chunk, options, words, tmp_path):
    with pytest.raises((TypeError, ValueError), match=words):
        shard_triplets([chunk], tmp_path / "a", (3, 3), **options)
