"""``rcurc-gpu shard``, as somebody with tables larger than memory uses it."""

import csv
import json
import os
import signal
import subprocess
import sys
from importlib import import_module

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

import rcurc_gpu as rg
from rcurc_gpu import cli
from rcurc_gpu.cli.shard import BYTES
from rcurc_gpu.files import LockFile, locked
from rcurc_gpu.io import read_observations
from rcurc_gpu.shards import LabelledShards


def run(*arguments):
    return CliRunner().invoke(cli.main, [str(a) for a in arguments], prog_name="rcurc-gpu")


@pytest.fixture
def table(tmp_path):
    """Ratings of 40 users for 50 items, with the columns in another order."""
    i, j = np.nonzero(np.random.default_rng(0).random((40, 50)) < 0.6)
    with (tmp_path / "ratings.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["stars", "item", "user"])
        writer.writerows((float(a * 50 + b), f"item {b}", f"user {a}") for a, b in zip(i, j, strict=True))
    return tmp_path / "ratings.csv"


COLUMNS = ("--row-column", "user", "--column-column", "item", "--value-column", "stars")


def test_the_shards_are_the_observations_and_the_report_says_so(table, tmp_path):
    done = run("shard", table, "-o", tmp_path / "shards", *COLUMNS, "--shard-size", "4KB")
    assert done.exit_code == 0, done.output
    expected = read_observations(table, row_column="user", column_column="item", value_column="stars")
    opened = LabelledShards.open(tmp_path / "shards")
    samples = opened.samples
    for found, wanted in ((samples.to_memory().R, expected.samples.R), (samples.to_memory().C, expected.samples.C)):
        np.testing.assert_array_equal(found.toarray(), wanted.toarray())
    np.testing.assert_array_equal(opened.labels.rows, expected.labels.rows)
    for part in (
        "a list in text with the columns 'user', 'item', 'stars'",
        f"{samples.n_obs:,} observations of a 40 x 50 matrix",
        "labels: rows 'user 0'",
        f"Saved:  {tmp_path / 'shards'}",
        f"({len(samples.r_shards) + len(samples.c_shards)} shards",
    ):
        assert part in done.stdout
    assert len(samples.r_shards) > 1


def test_json_is_one_object_and_quiet_says_nothing(table, tmp_path):
    done = run("shard", table, "-o", tmp_path / "a", *COLUMNS, "--json", "--dtype", "float32")
    report = json.loads(done.stdout)
    assert done.stderr == ""
    expected = {"shape": [40, 50], "labelled": True, "missing": 0, "unused": 0, "dtype": "float32", "shards": 2}
    assert {name: report[name] for name in expected} == expected
    assert report["files"] == [str(table)]
    assert report["bytes"] == sum(path.stat().st_size for path in (tmp_path / "a").iterdir())
    assert run("shard", table, "-o", tmp_path / "b", *COLUMNS, "--quiet").output == ""


def test_several_files_or_their_directory_are_one_table(table, tmp_path):
    whole = read_observations(table, row_column="user", column_column="item", value_column="stars")
    with table.open(newline="") as file:
        _, *rows = csv.reader(file)
    (tmp_path / "parts").mkdir()
    for k in range(3):
        stars, items, users = zip(*rows[k * 400 : (k + 1) * 400 if k < 2 else None], strict=True)
        part = pa.table({"user": users, "item": items, "stars": np.asarray(stars, dtype=float)})
        parquet.write_table(part, tmp_path / "parts" / f"part-{k}.parquet")
    files = sorted((tmp_path / "parts").iterdir())
    for name, arguments in (("a", files), ("b", [tmp_path / "parts"])):
        done = run("shard", *arguments, "-o", tmp_path / name, "--json")
        assert done.exit_code == 0, done.output
        found = LabelledShards.open(tmp_path / name)
        np.testing.assert_array_equal(found.samples.to_memory().R.toarray(), whole.samples.R.toarray())
        np.testing.assert_array_equal(found.labels.cols, whole.labels.cols)


def test_rows_and_columns_are_named_in_files(table, tmp_path):
    (tmp_path / "rows.txt").write_text("user 7\n\n user 3 \n")
    (tmp_path / "cols.txt").write_text("item 4\r\nitem 40\r\nitem 9\r\n")
    chosen = ("--rows-from", tmp_path / "rows.txt", "--cols-from", tmp_path / "cols.txt")
    done = run("shard", table, "-o", tmp_path / "shards", *COLUMNS, *chosen)
    assert done.exit_code == 0, done.output
    found = LabelledShards.open(tmp_path / "shards")
    assert found.labels.rows[found.samples.rows].tolist() == ["user 7", "user 3"]
    assert found.labels.cols[found.samples.cols].tolist() == ["item 4", "item 40", "item 9"]


def wrong(tmp_path):
    """Arguments, and words of the error."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "who.txt").write_text("nobody\n")
    (tmp_path / "nothing.txt").write_text("\n")
    (tmp_path / "latin.txt").write_bytes(b"\xe9\n")
    (tmp_path / "oops.csv").write_text("a,b,c\nx,y,1\nx,z,oops\n")
    (tmp_path / "twice.csv").write_text("a,b,c\nx,y,1\nx,y,2\n")
    good, out = ("ratings.csv", *COLUMNS), ("-o", "out")
    return {
        "a full directory": ((*good, "-o", "full"), "--output: the directory 'full' is not empty"),
        "a file for a directory": ((*good, "-o", "oops.csv"), "--output: 'oops.csv' is a file"),
        "no parent": ((*good, "-o", "no/out"), "--output: there is no directory 'no'"),
        "no such file": (("no.csv", *out), "no such file: 'no.csv'"),
        "no such column": (("ratings.csv", *out, "--row-column", "who"), "has no column 'who'"),
        "a wrong value": (("oops.csv", *out), "'oops.csv', line 3: the value 'oops' is not a number"),
        "a repeated entry": (
            ("twice.csv", *out),
            "'twice.csv': the entry of row 'x' and column 'y' was observed with different values, 1 and 2; "
            "--duplicates mean (or median) combines them",
        ),
        "an unknown label": (
            (*good, *out, "--rows-from", "who.txt"),
            "--rows-from has the label 'nobody', which is not in the table",
        ),
        "no labels": ((*good, *out, "--cols-from", "nothing.txt"), "--cols-from is empty"),
        "labels in Latin-1": ((*good, *out, "--cols-from", "latin.txt"), "'latin.txt' is not UTF-8 text"),
        "too little memory": ((*good, *out, "--memory", "1KB"), "--memory must be at least 1048576, got 1024"),
        "no size": ((*good, *out, "--shard-size", "much"), "'much' is not a size such as 64MB or 2GB"),
        "a size of 0": ((*good, *out, "--shard-size", "0GB"), "'0GB' is not a size"),
    }


def test_what_is_wrong_is_said_in_a_line(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, (arguments, words) in wrong(tmp_path).items():
        done = run("shard", *arguments)
        assert done.exit_code == 2, name
        assert words in done.stderr, name
        assert done.stdout == "", name
        assert name in ("no size", "a size of 0") or done.stderr.count("\n") == 1, name
        assert not (tmp_path / "out").exists(), name
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("text", "size"), [("1000", 1000), ("64MB", 64 << 20), ("1.5 gb", 3 << 29), ("2GiB", 2 << 30), ("7k", 7 << 10)]
)
def test_sizes(text, size):
    assert BYTES.convert(text, None, None) == size


def test_ctrl_c_says_that_nothing_was_saved(tmp_path):
    code = (
        "import sys, time\n"
        "from rcurc_gpu.shards import from_files\n"
        "def wait(*_):\n"
        "    print('reading', flush=True)\n"
        "    time.sleep(600)\n"
        "from_files._spooled = wait\n"
        "from rcurc_gpu.cli import main\n"
        "main()\n"
    )
    (tmp_path / "t.csv").write_text("a,b,c\nx,y,1\n")
    command = [sys.executable, "-c", code, "shard", str(tmp_path / "t.csv"), "-o", str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "reading\n"
        assert (tmp_path / "out").exists()
        child.send_signal(signal.SIGINT)
        _, error = child.communicate(timeout=120)
    assert child.returncode == 130
    assert "Stopped. Nothing was saved." in error
    assert not (tmp_path / "out").exists()


@pytest.fixture
def low_rank(tmp_path):
    """A table of a rank-2 matrix with a tenth of its observations wrong, and the matrix."""
    p = rg.synthetic((300, 260), 2, 0.1, 10, n_rows=80, n_cols=80, rate=0.6, seed=1)
    R, C = p.samples.R.tocoo(), p.samples.C.tocoo()
    i, j = np.concatenate([p.samples.rows[R.row], C.row]), np.concatenate([R.col, p.samples.cols[C.col]])
    values = np.concatenate([R.data, C.data])
    with (tmp_path / "table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["row", "column", "value"])
        writer.writerows((f"u{a}", f"m{b}", repr(float(v))) for a, b, v in zip(i, j, values, strict=True))
    return tmp_path / "table.csv", p


def test_shards_are_described_and_completed_as_the_table_is(low_rank, tmp_path):
    table, p = low_rank
    assert run("shard", table, "-o", tmp_path / "shards", "--shard-size", "20KB").exit_code == 0
    said = [run("describe", name, "--rank", "2").stdout.split(": ", 1)[1] for name in (table, tmp_path / "shards")]
    assert said[0] == said[1]
    (tmp_path / "wanted.csv").write_text("row,column\nu3,m5\nu100,m20\nnobody,m1\n")
    for name, result in ((table, "a.npz"), (tmp_path / "shards", "b.npz")):
        done = run("complete", name, "-o", tmp_path / result, "--rank", "2", "--predict", tmp_path / "wanted.csv")
        assert done.exit_code == 0, done.output
    a, b = ((tmp_path / f"{name}-predictions.csv").read_text() for name in "ab")
    assert a == b
    found = [float(line.split(",")[2]) for line in a.splitlines()[1:3]]
    np.testing.assert_allclose(found, p.truth(np.asarray([3, 100]), np.asarray([5, 20])), rtol=1e-6)


def test_a_checkpoint_of_shards_is_a_directory(low_rank, tmp_path):
    table, _ = low_rank
    run("shard", table, "-o", tmp_path / "shards", "--shard-size", "20KB")
    command = ("complete", tmp_path / "shards", "--rank", "2", "--checkpoint", tmp_path / "kept")
    assert run(*command, "-o", tmp_path / "a.npz").exit_code == 0
    assert (tmp_path / "kept" / "left.npy").exists()
    assert run(*command, "-o", tmp_path / "b.npz").exit_code == 0
    done = run(*command, "-o", tmp_path / "c.npz", "--seed", "1")
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: --checkpoint ")
    assert "is of another solve: it differs in seed" in done.stderr


@pytest.mark.parametrize("kind", ["a file", "a directory"])
def test_a_checkpoint_that_another_run_uses(low_rank, tmp_path, kind):
    place, table = tmp_path / "kept", low_rank[0]
    if kind == "a directory":
        assert run("shard", table, "-o", tmp_path / "shards").exit_code == 0
        place.mkdir()
        handle = locked(place, "")
        source = tmp_path / "shards"
    else:
        lock, source = LockFile(place, ""), table
    outcome = run("complete", source, "-o", tmp_path / "r.npz", "--checkpoint", place)
    assert outcome.exit_code == 2
    assert outcome.stderr.count("\n") == 1
    assert "is used by another solve; wait for its end, or choose another" in outcome.stderr
    os.close(handle) if kind == "a directory" else lock.release()


def test_an_interrupt_says_that_the_command_can_go_on(low_rank, tmp_path, interrupted_reading):
    run("shard", low_rank[0], "-o", tmp_path / "shards", "--shard-size", "20KB")
    command = ("complete", tmp_path / "shards", "--rank", "2", "--checkpoint", tmp_path / "kept", "-o", tmp_path / "a.npz")
    done = run(*command)
    assert done.exit_code == 130
    assert f"Stopped. What was done is kept in {tmp_path / 'kept'}: the same command resumes from there." in done.stderr
    assert run(*command).exit_code == 0


def test_options_of_tables_are_refused_for_shards(low_rank, tmp_path):
    run("shard", low_rank[0], "-o", tmp_path / "shards")
    for command in (("describe",), ("complete", "-o", tmp_path / "a.npz")):
        done = run(*command, tmp_path / "shards", "--row-column", "user", "--duplicates", "mean", "--no-header")
        assert done.exit_code == 2
        given = "--duplicates, --no-header, --row-column"
        assert done.stderr.startswith(f"Error: {given}: 'rcurc-gpu shard' was told how to read the table; "), done.stderr


def test_a_scheduler_that_is_not_there(low_rank, tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("rcurc_gpu.cli.complete"), "_PATIENCE", 1)
    done = run("complete", low_rank[0], "-o", tmp_path / "a.npz", "--scheduler", "tcp://127.0.0.1:1")
    assert done.exit_code == 2
    assert done.stderr.endswith("--scheduler: there is no Dask scheduler at 'tcp://127.0.0.1:1'\n")


def test_a_directory_that_is_none_of_shards(tmp_path):
    (tmp_path / "empty").mkdir()
    done = run("describe", tmp_path / "empty")
    assert done.exit_code == 2
    assert "has no manifest.json" in done.stderr
