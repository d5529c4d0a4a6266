"""Files that are not what they should be: one line that says so, exit code 2, and nothing is overwritten."""

import gzip
import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy.io
import scipy.sparse
from click.testing import CliRunner
from pyarrow import parquet

from rcurc_gpu import CrossSamples, cli, rcurc, synthetic
from rcurc_gpu.io import read_observations, save_result

GOOD = "row,column,value\n" + "".join(f"r{i},c{j},{(i + 1) * (j + 1)}\n" for i in range(12) for j in range(10))
MARKET = "%%MatrixMarket matrix coordinate real general\n"
MATRIX = np.outer(np.arange(1.0, 13), np.arange(1.0, 11))


def npy(array, **how):
    out = io.BytesIO()
    np.save(out, array, **how)
    return out.getvalue()


def npz(**arrays):
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def table(**columns):
    out = io.BytesIO()
    parquet.write_table(pa.table(columns), out)
    return out.getvalue()


def samples_file(**changes):
    """A samples file with some arrays replaced; None leaves one out."""
    samples = CrossSamples.from_dense(MATRIX, np.arange(4), np.arange(3))
    arrays = {"format": np.asarray("rcurc-gpu CrossSamples 1")} | samples.file_arrays()
    for name, change in changes.items():
        arrays[name] = change(arrays[name]) if callable(change) else change
    return npz(**{name: array for name, array in arrays.items() if array is not None})


def changed(k, value):
    """A function that changes entry `k` of an array."""

    def change(array):
        array = array.copy()
        array[k] = value
        return array

    return change


def broken_member(data):
    """A zip archive with a byte of its first member turned over, so that its checksum is wrong."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        at = archive.infolist()[0].header_offset + 150
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


SPARSE = io.BytesIO()
scipy.sparse.save_npz(SPARSE, scipy.sparse.csr_array(MATRIX))
COO = {"format": np.asarray(b"coo"), "shape": np.asarray([12, 10]), "data": np.ones(2)}
LABELS = {"row": ["a", "b"], "column": ["x", "y"]}
LONG = '"' + "x" * 600

CASES = {
    # text
    "0 bytes.csv": (b"", "is empty"),
    "blank lines.csv": (b"\n\n  \n", "is empty"),
    "header only.csv": (b"row,column,value\n", "header only"),
    "two columns.csv": (b"a,b\nc,d\n", "at least 3 columns"),
    "json.csv": (json.dumps([{"row": 1, "col": 2}], indent=1).encode(), "at least 3 columns"),
    "html.csv": (b"<!DOCTYPE html>\n<html><body>Not found</body></html>\n", "at least 3 columns"),
    "ragged short.csv": (GOOD.encode() + b"r1,c2\n", "line 122: 2 columns, but the first line has 3"),
    "ragged long.csv": (GOOD.encode() + b"r1,c2,3,4\n", "line 122: 4 columns"),
    "decimal comma.csv": (GOOD.encode() + b"r20,c2,3,5\n", "line 122: 4 columns"),
    "word for a value.csv": (GOOD.encode() + b"r20,c2,three\n", "line 122: the value 'three' is not a number"),
    "underscore.csv": (GOOD.encode() + b"r20,c2,1_000\n", "'1_000' is not a number"),
    "inf.csv": (GOOD.encode() + b"r20,c2,inf\n", "line 122: the value inf is not finite"),
    "overflow.csv": (GOOD.encode() + b"r20,c2,1e999\n", "line 122: the value 1e999 is not finite"),
    "empty label.csv": (GOOD.encode() + b",c2,3\n", "line 122: the label of the row is empty"),
    "blank label.csv": (GOOD.encode() + b"r20,  ,3\n", "line 122: the label of the column is empty"),
    "nan label.csv": (GOOD.encode() + b"nan,c2,3\n", "the label of the row is nan"),
    "open quote.csv": (GOOD.encode() + b'"r20,c2,3\n', "not a table in text"),
    "long label.csv": (GOOD.encode() + LONG.encode() + b'",c2,3\n', "600 characters"),
    "no values.csv": (b"row,column,value\na,x,\nb,y,NaN\n", "has no values"),
    "latin-1.csv": (GOOD.encode() + "é,c2,3\n".encode("latin-1"), "not UTF-8"),
    "utf-16.csv": (GOOD.encode("utf-16"), "not UTF-8"),
    "null bytes.csv": (GOOD.encode() + b"r\x00,c2,3\n", "null character"),
    "binary.csv": (bytes(range(1, 256)) * 20, "not UTF-8"),
    "conflict.csv": (
        GOOD.encode() + b"r1,c2,77\n",
        "was observed with different values, 6 and 77; --duplicates mean (or median) combines them",
    ),
    "conflict after blanks.csv": (GOOD.encode() + b" r1 ,c2,77\n", "row 'r1' and column 'c2' was observed with different"),
    "truncated.csv.gz": (gzip.compress(GOOD.encode())[:-40], "not a gzip file, or is truncated"),
    "plain.csv.gz": (GOOD.encode(), "not a gzip file"),
    "parquet.csv": (table(**LABELS, value=[1.0, 2.0]), "not UTF-8"),
    # Parquet
    "0 bytes.parquet": (b"", "is empty"),
    "csv.parquet": (GOOD.encode(), "not a Parquet file"),
    "truncated.parquet": (table(**LABELS, value=[1.0, 2.0])[:-30], "not a Parquet file, or is damaged"),
    "two columns.parquet": (table(**LABELS), "at least 3 columns"),
    "no rows.parquet": (
        table(row=pa.array([], pa.string()), column=pa.array([], pa.string()), value=pa.array([], pa.float64())),
        "no rows",
    ),
    "words for values.parquet": (table(**LABELS, value=["one", "two"]), "values must be numbers, got string"),
    "inf.parquet": (table(**LABELS, value=[1.0, np.inf]), "inf in row 1 is not finite"),
    "null label.parquet": (table(row=["a", None], column=["x", "y"], value=[1.0, 2.0]), "1 labels are missing"),
    "nan label.parquet": (table(row=[1.0, np.nan], column=["x", "y"], value=[1.0, 2.0]), "got nan"),
    "fractional label.parquet": (table(row=[1.0, 1.5], column=["x", "y"], value=[1.0, 2.0]), "whole numbers, got 1.5"),
    "list label.parquet": (table(row=[[1], [2]], column=["x", "y"], value=[1.0, 2.0]), "dates or timestamps, got list"),
    "empty label.parquet": (table(row=["a", ""], column=["x", "y"], value=[1.0, 2.0]), "a label is empty"),
    # .npy
    "0 bytes.npy": (b"", "is empty"),
    "wrong magic.npy": (b"\x93NUMPX" + npy(MATRIX)[6:], "not a .npy file"),
    "truncated.npy": (npy(MATRIX)[:-100], "not a .npy file, or is damaged"),
    "truncated header.npy": (npy(MATRIX)[:30], "not a .npy file, or is damaged"),
    "text.npy": (GOOD.encode(), "not a .npy file"),
    "objects.npy": (npy(np.asarray([["a", 1], [2, None]], dtype=object), allow_pickle=True), "Python objects"),
    "pickle.npy": (pickle.dumps([1, 2, 3]), "not a .npy file"),
    "strings.npy": (npy(np.asarray([["a", "b"], ["c", "d"]])), "must hold real numbers, got <U1"),
    "complex.npy": (npy(MATRIX * 1j), "must hold real numbers, got complex128"),
    "booleans.npy": (npy(MATRIX > 0), "is a table of True and False, which cannot say what is missing"),
    "vector.npy": (npy(np.arange(5.0)), "must hold a matrix, got an array of shape (5,)"),
    "three axes.npy": (npy(np.zeros((2, 3, 4))), "must hold a matrix"),
    "no rows.npy": (npy(np.zeros((0, 4))), "must hold a matrix, got an array of shape (0, 4)"),
    "all nan.npy": (npy(np.full((5, 4), np.nan)), "no entry that is not NaN"),
    "inf.npy": (npy(np.where(MATRIX == 4, np.inf, MATRIX)), "the value of row '0' and column '3' is not finite, got inf"),
    # .npz
    "0 bytes.npz": (b"", "is empty"),
    "text.npz": (GOOD.encode(), "not a .npz file"),
    "an npy.npz": (npy(MATRIX), "not a .npz file (it does not begin like one)"),
    "truncated.npz": (npz(a=MATRIX)[:-50], "not a .npz file, or is damaged"),
    "checksum.npz": (broken_member(npz(a=MATRIX)), "not a .npz file, or is damaged"),
    "foreign zip.npz": (b"PK\x05\x06" + bytes(18), "it holds nothing"),
    "two matrices.npz": (npz(a=MATRIX, b=MATRIX), "must hold one matrix"),
    "vectors.npz": (npz(a=np.arange(3.0)), "must hold one matrix"),
    "objects.npz": (npz(a=np.asarray([[None]], dtype=object)), "not a .npz file, or is damaged"),
    "mask of another shape.npz": (npz(a=MATRIX, mask=np.ones((3, 3), bool)), "mask must be boolean of shape (12, 10)"),
    "mask of numbers.npz": (npz(a=MATRIX, mask=np.ones(MATRIX.shape)), "mask must be boolean"),
    "sparse truncated.npz": (SPARSE.getvalue()[:-60], "not a .npz file, or is damaged"),
    "sparse negative.npz": (npz(**COO, row=np.asarray([-1, 2]), col=np.asarray([0, 1])), "negative"),
    "sparse beyond.npz": (npz(**COO, row=np.asarray([1, 12]), col=np.asarray([0, 1])), "damaged"),
    "sparse format.npz": (npz(**COO | {"format": np.asarray(b"xyz")}), "damaged"),
    "sparse nan.npz": (
        npz(**COO | {"data": np.asarray([1, np.nan])}, row=np.asarray([1, 2]), col=np.asarray([0, 1])),
        "finite",
    ),
    "sparse empty.npz": (npz(**COO | {"data": np.ones(0)}, row=np.ones(0, int), col=np.ones(0, int)), "no entries"),
    # samples
    "samples truncated.npz": (samples_file()[:-80], "damaged"),
    "samples without rows.npz": (samples_file(rows=None), "lacks rows"),
    "samples of version 9.npz": (samples_file(format=np.asarray("rcurc-gpu CrossSamples 9")), "version 1"),
    "samples out of range.npz": (samples_file(r_index=changed(0, 99)), "r_index does not lie in 0..3"),
    "samples negative.npz": (samples_file(c_index=changed(2, -1)), "c_index does not lie in 0..2"),
    "samples unsorted.npz": (samples_file(r_index=changed(0, 3)), "r_index does not ascend"),
    "samples cut.npz": (samples_file(r_value=lambda v: v[:-1]), "r_index does not fit r_value"),
    "samples indptr.npz": (samples_file(c_indptr=changed(3, 10**9)), "c_indptr does not fit"),
    "samples nan.npz": (samples_file(c_value=changed(1, np.nan)), "c_value is not finite"),
    "samples of integers.npz": (samples_file(r_value=lambda v: v.astype(int)), "not a vector of float32 or float64"),
    "samples float index.npz": (samples_file(r_index=lambda v: v.astype(float)), "r_index does not fit"),
    "samples repeated row.npz": (samples_file(rows=changed(0, 1)), "rows repeats an index"),
    "samples shape.npz": (samples_file(shape=np.asarray([0, 10])), "shape is not a pair"),
    "samples labels.npz": (samples_file(row_labels=np.asarray(["a"])), "row_labels must be 12 strings"),
    # Matrix Market
    "0 bytes.mtx": (b"", "is empty"),
    "text.mtx": (GOOD.encode(), "not a Matrix Market file"),
    "no size.mtx": (MARKET.encode(), "not a Matrix Market file, or is damaged"),
    "too few.mtx": (f"{MARKET}3 3 4\n1 1 1.0\n2 2 2.0\n3 3 3.0\n".encode(), "damaged"),
    "beyond.mtx": (f"{MARKET}3 3 2\n1 1 1.0\n4 1 2.0\n".encode(), "damaged"),
    "index 0.mtx": (f"{MARKET}3 3 2\n0 1 1.0\n2 1 2.0\n".encode(), "damaged"),
    "word.mtx": (f"{MARKET}3 3 2\n1 1 one\n2 1 2.0\n".encode(), "damaged"),
    "inf.mtx": (f"{MARKET}3 3 3\n1 1 inf\n2 1 2.0\n1 2 3\n".encode(), "finite"),
    "conflict.mtx": (f"{MARKET}2 2 4\n1 1 5\n1 1 2.0\n2 2 3\n1 2 1\n".encode(), "different values"),
    "huge.mtx": (f"{MARKET}4000000000 4000000000 2\n1 1 5\n2 1 2.0\n".encode(), "leave empty rows out"),
    "huge count.mtx": (f"{MARKET}3 3 4000000000000\n1 1 5\n".encode(), "more than the file can hold"),
    "huge dense.mtx": (b"%%MatrixMarket matrix array real general\n900000 900000\n1\n2\n", "more than the file can hold"),
    "overflow.mtx": (f"{MARKET}3 99999999999999999999999 1\n1 1 5\n".encode(), "damaged"),
    "complex.mtx": (b"%%MatrixMarket matrix coordinate complex general\n2 2 2\n1 1 5 1\n2 1 2 1\n", "real numbers"),
    "pattern.mtx": (b"%%MatrixMarket matrix coordinate pattern general\n2 2 2\n1 1\n2 1\n", "pattern without values"),
    "no entries.mtx": (f"{MARKET}3 3 0\n".encode(), "no entries"),
    "truncated.mtx.gz": (gzip.compress(f"{MARKET}3 3 1\n1 1 5\n".encode())[:-12], "not a Matrix Market file, or is damaged"),
    "plain.mtx.gz": (f"{MARKET}3 3 1\n1 1 5\n".encode(), "not a Matrix Market file, or is damaged"),
    # others
    "table.xlsx": (b"PK\x03\x04", "ending that is not known (.xlsx)"),
    "no ending": (GOOD.encode(), "ending that is not known (none)"),
}


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """The bytes of the outputs of an earlier run."""
    path = tmp_path_factory.mktemp("earlier") / "out.npz"
    save_result(path, rcurc(synthetic((60, 50), 1, n_rows=30, n_cols=30, rate=0.8, alpha=0.05, seed=0).samples, 1))
    return {
        "out.npz": path.read_bytes(),
        "out-predictions.csv": b"row,column,value,expected_error\na,b,1,0.1\n",
        "wrong.csv": b"row,column,observed,recovered,score\n",
    }


def run(*arguments):
    return CliRunner().invoke(cli.main, [str(a) for a in arguments], prog_name="rcurc-gpu")


def refused(result, part):
    """The command ended with 2 and one line that has `part` in it, and no traceback."""
    assert result.exit_code == 2, (result.output, result.exception)
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1, result.stderr
    assert part in result.stderr


@pytest.mark.parametrize("name", CASES)
def test_a_bad_file_is_refused_and_nothing_is_overwritten(name, tmp_path, earlier):
    data, part = CASES[name]
    file = tmp_path / name
    file.write_bytes(data)
    (tmp_path / "pairs.csv").write_text("row,column\nr1,c1\n")
    for other, content in earlier.items():
        (tmp_path / other).write_bytes(content)
    before = sorted(p.name for p in tmp_path.iterdir())
    outputs = ("-o", tmp_path / "out.npz", "--predict", tmp_path / "pairs.csv", "--outliers", tmp_path / "wrong.csv")
    refused(run("complete", file, "--rank", 1, *outputs), part)
    refused(run("describe", file), part)
    refused(run("describe", file, "--json"), part)
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    assert file.read_bytes() == data
    for other, content in earlier.items():
        assert (tmp_path / other).read_bytes() == content


def test_the_plain_reader_says_the_same_without_pyarrow(tmp_path, monkeypatch):
    """pyarrow is only faster: what is wrong with a file is the same."""
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    for name, (data, part) in CASES.items():
        if name.endswith((".csv", ".csv.gz")):
            (tmp_path / name).write_bytes(data)
            refused(run("describe", tmp_path / name), part)


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(table(**LABELS, value=[1.0, 2.0]))
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    refused(run("describe", tmp_path / "a.parquet"), "pip install 'rcurc-gpu[files]'")


@pytest.mark.parametrize("name", ["a.csv", "a.npy", "a.npz", "a.mtx", "a.parquet", "a"])
def test_a_missing_file(name, tmp_path):
    refused(run("describe", tmp_path / name), "no such file: ")


@pytest.mark.parametrize("name", ["a.csv", "a.npy", "a.npz", "a.mtx", "a.parquet", "a"])
def test_a_directory(name, tmp_path):
    (tmp_path / name).mkdir()
    refused(run("describe", tmp_path / name), "directory")
    refused(run("plot", tmp_path / name, "-o", tmp_path / "x.png"), "directory")


@pytest.mark.parametrize("name", ["a.csv", "a.npy", "a.npz", "a.mtx", "a.parquet"])
def test_a_file_that_may_not_be_read(name, tmp_path, monkeypatch):
    """Root may read everything, so the system's answer is played."""
    (tmp_path / name).write_bytes(b"x")

    def denied(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("builtins.open", denied)
    monkeypatch.setattr(parquet, "ParquetFile", denied)
    refused(run("describe", tmp_path / name), "Permission denied")


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--row-column", "user"), "has no column 'user'; its first line is 'row, column, value'"),
        (("--row-column", "row", "--value-column", "row"), "must be different columns"),
        (("--no-header", "--row-column", "row"), "only where the first line is a header"),
        (("--no-header",), "line 1: the value 'value' is not a number"),
    ],
)
def test_columns_that_are_not_there(options, part, tmp_path):
    (tmp_path / "a.csv").write_text(GOOD)
    refused(run("describe", tmp_path / "a.csv", *options), part)


def test_parquet_columns_that_are_not_there(tmp_path):
    (tmp_path / "a.parquet").write_bytes(table(**LABELS, value=[1.0, 2.0]))
    refused(run("describe", tmp_path / "a.parquet", "--value-column", "stars"), "has no column 'stars'")


@pytest.mark.parametrize("name", ["0 bytes.csv", "ragged short.csv", "latin-1.csv", "truncated.parquet", "empty label.csv"])
def test_bad_pairs_are_refused_before_the_solve(name, tmp_path):
    data, part = CASES[name]
    (tmp_path / name).write_bytes(data)
    (tmp_path / "good.csv").write_text(GOOD)
    refused(run("complete", tmp_path / "good.csv", "--predict", tmp_path / name, "-o", tmp_path / "out.npz"), part)
    assert not (tmp_path / "out.npz").exists()


# ---------------------------------------------------------------- results


def result_with(earlier, **changes):
    with np.load(io.BytesIO(earlier["out.npz"])) as file:
        arrays = {name: file[name] for name in file.files}
    arrays |= changes
    return npz(**{name: array for name, array in arrays.items() if array is not None})


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"completion": None}, "CURMatrix.save wrote it"),
        ({"completion": np.asarray(9)}, "version 9"),
        ({"left": None}, "lacks left"),
        ({"history": None}, "lacks history"),
        ({"left": np.zeros(3)}, "left is not a matrix"),
        ({"row_status": np.zeros(2, np.int8)}, "diagnostics do not fit"),
        ({"outlier_i": np.asarray([10**6]), "outlier_j": np.asarray([0]), "outlier_observed": np.ones(1)}, "out of bounds"),
        ({"history": np.zeros((3, 2))}, "damaged"),
        ({"rows": np.asarray([10**6])}, "damaged"),
        ({"seen": np.zeros((2, 2), int)}, "damaged"),
        ({"col_labels": np.asarray(["x"])}, "col_labels must be 50 strings"),
        ({"format": np.asarray("rcurc-gpu CrossSamples 1")}, "not a CURMatrix file"),
        ({"format": None}, "no header of rcurc-gpu"),
    ],
)
def test_a_bad_result_is_not_drawn(changes, part, tmp_path, earlier):
    (tmp_path / "bad.npz").write_bytes(result_with(earlier, **changes))
    refused(run("plot", tmp_path / "bad.npz", "-o", tmp_path / "x.png"), part)
    assert [p.name for p in tmp_path.iterdir()] == ["bad.npz"]


@pytest.mark.parametrize("size", [0, 10, 1000, -1])
def test_a_truncated_result_is_not_drawn(size, tmp_path, earlier):
    (tmp_path / "bad.npz").write_bytes(earlier["out.npz"][:size])
    refused(run("plot", tmp_path / "bad.npz", "-o", tmp_path / "x.png"), "is not a CURMatrix file, or is truncated")


# ---------------------------------------------------------------- outputs of another kind


OTHERS = {
    "text": b"my notes\n",
    "matrix": npz(a=MATRIX),
    "nothing": b"",
    "picture": b"\x89PNG\r\n\x1a\n" + bytes(100),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_outputs_of_another_kind_are_not_replaced(kind, tmp_path, earlier):
    (tmp_path / "good.csv").write_text(GOOD)
    (tmp_path / "m.npy").write_bytes(npy(MATRIX))
    (tmp_path / "result.npz").write_bytes(earlier["out.npz"])
    mine = {ending: tmp_path / f"mine.{ending}" for ending in ("npz", "csv", "png")}
    for path in mine.values():
        path.write_bytes(OTHERS[kind])
    fine = tmp_path / "out.npz"
    good = tmp_path / "good.csv"
    for arguments in (
        ("complete", good, "-o", mine["npz"]),
        ("complete", good, "-o", fine, "--outliers", mine["csv"]),
        ("complete", good, "-o", fine, "--predict", good, "--predictions", mine["csv"]),
        ("sample", tmp_path / "m.npy", "-o", mine["npz"]),
        ("plot", tmp_path / "result.npz", "-o", mine["png"]),
    ):
        refused(run(*arguments), "exists, and this command did not write it")
    assert {path.read_bytes() for path in mine.values()} == {OTHERS[kind]}
    assert not fine.exists()


def test_an_input_is_never_replaced_even_by_force(tmp_path, earlier):
    good, result = tmp_path / "good.csv", tmp_path / "result.npz"
    good.write_text(GOOD)
    result.write_bytes(earlier["out.npz"])
    for arguments in (
        ("complete", good, "-o", good, "--force"),
        ("complete", good, "-o", tmp_path / "out.npz", "--outliers", good, "--force"),
    ):
        refused(run(*arguments), "is one of the files to read")
    assert good.read_text() == GOOD
    refused(run("complete", good, "-o", tmp_path / "a", "--outliers", tmp_path / "a"), "are the same file")


def test_an_output_that_cannot_be_written(tmp_path):
    (tmp_path / "good.csv").write_text(GOOD)
    refused(run("complete", tmp_path / "good.csv", "-o", tmp_path / "nowhere" / "out.npz"), "there is no directory")
    refused(run("complete", tmp_path / "good.csv", "-o", tmp_path), "is a directory")


def test_the_library_raises_what_the_command_says(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(CASES["inf.csv"][0])
    with pytest.raises(ValueError, match="line 122: the value inf is not finite"):
        read_observations(Path(path))


def test_labels_beyond_their_dictionary_are_damage():
    """As `bench.fuzz` made it of a Parquet file: the codes are there, and what they stand for is not."""
    pa = pytest.importorskip("pyarrow")
    from rcurc_gpu.io.arrow import _encoded

    labels = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int32()), pa.array([], pa.string()), safe=False)
    with pytest.raises(pa.ArrowInvalid, match="not in their dictionary"):
        _encoded(labels)
