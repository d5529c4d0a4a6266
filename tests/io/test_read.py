"""Observations from files, and results kept with labels, against what is known to be in them."""

import csv
import gzip
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from rcurc_gpu import ConvergenceWarning, CrossSamples, CURMatrix, rcurc, synthetic
from rcurc_gpu.io import Completion, LabelledSamples, Labels, load_result, read_observations, read_pairs, save_result
from rcurc_gpu.io.arrow import parse_block
from rcurc_gpu.io.fields import Fields
from rcurc_gpu.io.lines import split_lines
from rcurc_gpu.io.numbering import Encoded
from rcurc_gpu.io.pairs import write_table
from rcurc_gpu.io.tables import read_table
from rcurc_gpu.io.text import Columns, Layout, find_layout

RNG = np.random.default_rng(0)
MATRIX = np.where(RNG.random((14, 11)) < 0.7, RNG.standard_normal((14, 11)), np.nan)
AT_I, AT_J = np.nonzero(~np.isnan(MATRIX))
ROWS = np.asarray([f"ü {k}" for k in range(14)])
COLS = np.asarray([f'c,"{k}"' for k in range(11)])


def observed(labelled):
    """What the samples hold, as a dense matrix with NaN."""
    s = labelled.samples
    out = np.full(s.shape, np.nan)
    r, c = s.R.tocoo(), s.C.tocoo()
    out[s.rows[r.row], r.col] = r.data
    out[c.row, s.cols[c.col]] = c.data
    return out


def by_label(labelled):
    """The same with rows and columns in the order of ROWS and COLS."""
    rows = labelled.labels.find_rows(ROWS, 14)
    cols = labelled.labels.find_cols(COLS, 11)
    return observed(labelled)[np.ix_(rows, cols)]


def agrees(labelled, found):
    """What is in the cross is what was written; the rest, and nothing else, is not used."""
    seen = ~np.isnan(found)
    np.testing.assert_array_equal(found[seen], MATRIX[seen])
    assert seen.sum() + labelled.samples.n_unused == len(AT_I)
    assert seen.sum() > len(AT_I) / 2


def quoted(label):
    return '"' + label.replace('"', '""') + '"'


def lines(delimiter=","):
    order = np.random.default_rng(1).permutation(len(AT_I))
    return [
        delimiter.join([quoted(ROWS[i]), quoted(COLS[j]), repr(float(MATRIX[i, j]))])
        for i, j in zip(AT_I[order], AT_J[order], strict=True)
    ]


@pytest.fixture(params=["pyarrow", "plain"])
def reader(request, monkeypatch):
    """Tables are read with pyarrow, and without."""
    if request.param == "plain":
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    return request.param


# ---------------------------------------------------------------- tables


@pytest.mark.parametrize(
    ("name", "delimiter", "header", "end"),
    [
        ("a.csv", ",", "user,item,stars", "\n"),
        ("a.csv", ",", None, "\n"),
        ("a.csv", ";", "user;item;stars", "\r\n"),
        ("a.tsv", "\t", None, "\n"),
        ("a.txt", "|", "user|item|stars", "\n"),
        ("a.csv.gz", ",", "user,item,stars", "\n"),
    ],
)
def test_text_tables(name, delimiter, header, end, tmp_path, reader):
    text = end.join(([header] if header else []) + lines(delimiter) + [""]).encode("utf-8")
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    labelled = read_observations(tmp_path / name)
    agrees(labelled, by_label(labelled))


def test_the_last_line_needs_no_end_and_a_byte_order_mark_is_no_label(tmp_path, reader):
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + "\n".join(lines()).encode())
    labelled = read_observations(tmp_path / "a.csv")
    agrees(labelled, by_label(labelled))


def test_columns_by_name(tmp_path, reader):
    with (tmp_path / "a.csv").open("w", encoding="utf-8") as file:
        file.write("time,stars,item,time,user\n")
        for i, j in zip(AT_I, AT_J, strict=True):
            file.write(
                f"9,{MATRIX[i, j]!r},{quoted(COLS[j])},8,{quoted(ROWS[i])}\n".replace("np.float64(", "").replace(")", "")
            )
    labelled = read_observations(tmp_path / "a.csv", row_column="user", column_column="item", value_column="stars")
    agrees(labelled, by_label(labelled))


def test_blank_lines_and_blanks_around_fields_do_not_matter(tmp_path, reader):
    (tmp_path / "a.csv").write_text("\n row, column , value\n\na, x ,1\nb,x, 2 \n\na ,y,+3\nb,y,4.0e0\n")
    labelled = read_observations(tmp_path / "a.csv")
    np.testing.assert_array_equal(labelled.labels.rows, ["a", "b"])
    np.testing.assert_array_equal(labelled.labels.cols, ["x", "y"])
    np.testing.assert_array_equal(observed(labelled), [[1, 3], [2, 4]])


def test_whole_numbers_as_labels_ascend_and_stay_what_they_are(tmp_path, reader):
    (tmp_path / "a.csv").write_text("u,i,v\n10,7,1\n9,7,2\n-1,07,3\n10,07,4\n")
    labels = read_observations(tmp_path / "a.csv").labels
    assert labels.rows.tolist() == ["-1", "9", "10"]
    assert labels.cols.tolist() == ["7", "07"]


def test_lines_without_a_value_are_not_observed_and_are_counted(tmp_path, reader):
    (tmp_path / "a.csv").write_text("u,i,v\na,x,1\na,y,\nb,x,NaN\nb,y,4\nc,x,NA\nc,y,0\n")
    labelled = read_observations(tmp_path / "a.csv")
    assert labelled.n_missing == 3
    np.testing.assert_array_equal(observed(labelled)[:, 1], [np.nan, 4, 0])
    assert labelled.samples.n_obs + labelled.samples.n_unused == 3


def test_repeated_observations(tmp_path, reader):
    (tmp_path / "a.csv").write_text("u,i,v\na,x,1\na,x,2\na,x,6\nb,x,1\na,y,1\nb,y,1\n")
    with pytest.raises(ValueError, match="row 'a' and column 'x' was observed with different values, 1 and 2"):
        read_observations(tmp_path / "a.csv")
    for how, value in (("mean", 3), ("median", 2)):
        assert observed(read_observations(tmp_path / "a.csv", duplicates=how))[0, 0] == value


def test_a_label_of_several_lines(tmp_path, reader):
    (tmp_path / "a.csv").write_text('u,i,v\n"a\nb",x,1\nc,x,2\n"a\nb",y,3\nc,y,4\n')
    assert read_observations(tmp_path / "a.csv").labels.rows.tolist() == ["a\nb", "c"]


def read_both_ways(path):
    """A table read with pyarrow, and without."""
    tables = [read_table(path, Columns())]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        return [*tables, read_table(path, Columns())]


def test_pyarrow_reads_large_files_as_the_plain_reader_does(tmp_path, monkeypatch):
    """Several blocks, whose labels differ."""
    monkeypatch.setattr("rcurc_gpu.io.text._BLOCK", 2000)
    path = str(tmp_path / "a.csv")
    rng = np.random.default_rng(3)
    with open(path, "w") as file:
        file.write("user,item,value\n")
        file.writelines(
            f"u{a},i{b},{c!r}\n"
            for (a, b), c in zip(rng.integers(500, size=(3000, 2)), rng.random(3000).tolist(), strict=True)
        )
    assert parse_block(Path(path).read_bytes(), find_layout(path, Columns()), 1) is not None
    fast, plain = read_both_ways(path)
    np.testing.assert_array_equal(fast.values, plain.values)
    for a, b in ((fast.rows, plain.rows), (fast.cols, plain.cols)):
        np.testing.assert_array_equal(a.names, b.names)
        np.testing.assert_array_equal(a.codes, b.codes)


def test_plain_lines_are_split_and_others_read_one_by_one(tmp_path, monkeypatch):
    """A short way for lines of plain fields, the same labels and numbers; whatever is odd takes the long way."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "a.csv"
    plain = "u,time,i,v\r\nb ,9, x,1\r\na,9,x,-2e0\r\nb,8,y y,NaN\r\nü,8,y y,+4"
    layout = Layout(",", 4, None, 1, (0, 2, 3))
    rows, cols, values = split_lines(plain.encode(), layout, 1)
    assert [rows.text()[k] for k in rows.codes] == ["b ", "a", "b", "ü"]
    assert [cols.text()[k] for k in cols.codes] == [" x", "x", "y y", "y y"]
    np.testing.assert_array_equal(values, [1, -2, np.nan, 4])
    path.write_text(plain, encoding="utf-8")
    table = read_table(str(path), Columns("u", "i", "v"))
    assert table.row_names.tolist() == ["b", "a", "b", "ü"]
    assert table.col_names.tolist() == ["x", "x", "y y", "y y"]
    for odd in ("a,9,x", "a,9,x,1,2", "a,9,x,1_0", "a,9,x,inf", "a,9,x,\u0661", "a,9,x,", '"a",9,x,1', "a,9,x,1\n\nb,9,x,2"):
        assert split_lines(odd.encode(), layout, 0) is None, odd
        assert split_lines(f"b,9,x,1\n{odd}\n".encode(), layout, 0) is None, odd


@given(st.lists(st.binary(max_size=20).filter(lambda x: b"," not in x), min_size=1, max_size=40), st.integers(0, 3))
def test_equal_fields_get_one_number_in_the_order_in_which_they_come(fields, collide):
    """Whatever their bytes, and also where different fields have the same hash."""
    text = b",".join(fields)
    stops = np.cumsum([len(field) + 1 for field in fields]) - 1
    some = Fields(text, stops - [len(field) for field in fields], stops)
    if collide:
        hashes = some._hashes() % collide
        some._hashes = lambda: hashes.astype(np.uint64)
    codes, different = some.numbered()
    known = list(dict.fromkeys(fields))
    assert different == known
    assert codes.tolist() == [known.index(field) for field in fields]


def test_fields_that_somebody_made_collide_are_left_to_the_long_way():
    some = Fields(bytes(range(60)), np.arange(60), np.arange(1, 61))
    assert some.numbered() is not None
    some._hashes = lambda: np.zeros(60, np.uint64)
    assert some.numbered() is None


def test_very_long_fields_are_left_to_the_long_way():
    assert Fields(b"a" * 2000, np.array([0]), np.array([2000])).numbered() is None


LABEL = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8).filter(
    lambda text: text.strip() not in ("", "nan", "NaN")
)


@given(
    st.lists(st.tuples(LABEL, LABEL, st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=12),
    st.sampled_from([",", ";", "\t", "|"]),
)
def test_any_labels_and_numbers_come_back_from_both_readers(triplets, delimiter):
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "a.csv")
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([("row", "column", "value"), *triplets])
        tables = read_both_ways(path)
        plain = [t for t in triplets if not any(set(label) & set(f'\r\n"{delimiter}') for label in t[:2])]
        if plain:  # without quotation marks, lines are split
            text = "\n".join(delimiter.join(map(str, line)) for line in [("row", "column", "value"), *plain])
            with open(path, "w", newline="", encoding="utf-8") as file:
                file.write(text)
            for table in read_both_ways(path):
                assert table.row_names.tolist() == [row.strip() for row, _, _ in plain]
                assert table.col_names.tolist() == [column.strip() for _, column, _ in plain]
                assert table.values.tolist() == [value for _, _, value in plain]
    for table in tables:
        assert table.row_names.tolist() == [row.strip() for row, _, _ in triplets]
        assert table.col_names.tolist() == [column.strip() for _, column, _ in triplets]
        assert table.values.tolist() == [value for _, _, value in triplets]


@pytest.mark.parametrize("kind", ["text", "dictionary", "integers", "floats"])
def test_parquet(kind, tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    rows, cols = pa.array(ROWS[AT_I]), pa.array(COLS[AT_J])
    if kind == "dictionary":
        rows, cols = rows.dictionary_encode(), cols.dictionary_encode()
    elif kind != "text":
        rows, cols = (pa.array(x + 100, pa.int32() if kind == "integers" else pa.float64()) for x in (AT_I, AT_J))
    names = ["stars", "user", "item"]
    parquet.write_table(
        pa.table([pa.array(MATRIX[AT_I, AT_J]), rows, cols], names=names), tmp_path / "a.parquet", row_group_size=20
    )
    labelled = read_observations(tmp_path / "a.parquet", row_column="user", column_column="item", value_column="stars")
    if kind in ("text", "dictionary"):
        agrees(labelled, by_label(labelled))
    else:
        assert labelled.labels.rows.tolist() == [str(100 + k) for k in range(14)]
        agrees(labelled, observed(labelled))


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        ("date32", ["2024-05-01", "2024-05-02"]),
        ("date64", ["2024-05-01", "2024-05-02"]),
        ("s", ["2024-05-01T00:00:00", "2024-05-02T00:00:00"]),
        ("ns", ["2024-05-01T00:00:00.25", "2024-05-02T00:00:00.25"]),
        ("UTC", ["2024-05-01T00:00:00Z", "2024-05-02T00:00:00Z"]),
    ],
)
def test_parquet_dates_and_timestamps_are_labels_in_iso_form(kind, labels, tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    days = np.asarray(["2024-05-01", "2024-05-02"] * 2, dtype="datetime64[ns]")
    if kind == "ns":
        days = days + np.timedelta64(250, "ms")
    types = {"date32": pa.date32(), "date64": pa.date64(), "UTC": pa.timestamp("us", "UTC")}
    times = pa.array(days).cast(types.get(kind) or pa.timestamp(kind))
    parquet.write_table(pa.table({"u": ["a", "a", "b", "b"], "day": times, "v": [1.0, 2, 3, 4]}), tmp_path / "a.parquet")
    labelled = read_observations(tmp_path / "a.parquet")
    assert labelled.labels.cols.tolist() == labels
    np.testing.assert_array_equal(observed(labelled), [[1, 2], [3, 4]])


def test_parquet_decimals_and_nulls_among_values(tmp_path):
    from decimal import Decimal

    import pyarrow as pa
    from pyarrow import parquet

    values = pa.array([Decimal("1.5"), None, Decimal("2.5"), Decimal("3.5")])
    parquet.write_table(
        pa.table({"u": ["a", "a", "b", "b"], "i": ["x", "y", "x", "y"], "v": values}), tmp_path / "a.parquet"
    )
    labelled = read_observations(tmp_path / "a.parquet")
    assert labelled.n_missing == 1
    np.testing.assert_array_equal(observed(labelled)[1], [2.5, 3.5])


def test_a_table_of_many_columns_is_read_only_if_they_are_named(tmp_path, reader):
    header = ["user", "item", "stars", *(f"c{k}" for k in range(28))]
    rows = [[f"u{k % 2}", f"i{k // 2}", str(k), *["0"] * 28] for k in range(4)]
    (tmp_path / "x.csv").write_text("\n".join(",".join(row) for row in [header, *rows]))
    with pytest.raises(ValueError, match=r"'.*x.csv' has 31 columns, too many for a list, and is not a matrix with labels"):
        read_observations(tmp_path / "x.csv")
    assert observed(read_observations(tmp_path / "x.csv", value_column="stars")).tolist() == [[0, 2], [1, 3]]
    assert read_pairs(tmp_path / "x.csv").row_names.tolist() == ["u0", "u1", "u0", "u1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a;b;Ort\nx;y;Bonn\n",
            r"line 2: the value 'Bonn' is not a number \(column 'Ort'; choose another with value_column, ",
        ),
        ("x;y;1\nx;z;Bonn\n", r"line 2: .* is not a number \(column 3; .* leave the field empty if the value is missing"),
        ("a;b;c\nx;y;-5,13\n", r"'-5,13' is not a number: decimal commas are not read, write a point \(column 'c'"),
    ],
)
def test_a_value_that_is_no_number_is_named_with_its_column_and_what_to_do(text, message, tmp_path, reader):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_observations(tmp_path / "a.csv")


# ---------------------------------------------------------------- matrices


def sparse():
    return scipy.sparse.coo_array((MATRIX[AT_I, AT_J], (AT_I, AT_J)), shape=MATRIX.shape)


def write_mask(path):
    seen = ~np.isnan(MATRIX)
    np.savez(path, Y=np.where(seen, MATRIX, 1e6), mask=seen)


WRITERS = {
    "a.npy": lambda path: np.save(path, MATRIX),
    "a.npz": lambda path: np.savez(path, anything=MATRIX),
    "mask.npz": write_mask,
    "coo.npz": lambda path: scipy.sparse.save_npz(path, sparse()),
    "csr.npz": lambda path: scipy.sparse.save_npz(path, sparse().tocsr()),
    "csc.npz": lambda path: scipy.sparse.save_npz(path, sparse().tocsc()),
    "a.mtx": lambda path: scipy.io.mmwrite(path, sparse(), precision=17),
    "dense.mtx": lambda path: scipy.io.mmwrite(path, MATRIX, precision=17),
    "a.mtx.gz": lambda path: path.write_bytes(gzip.compress(_market())),
}


def _market():
    import io

    out = io.BytesIO()
    scipy.io.mmwrite(out, sparse(), precision=17)
    return out.getvalue()


@pytest.mark.parametrize("name", WRITERS)
def test_matrices(name, tmp_path):
    WRITERS[name](tmp_path / name)
    labelled = read_observations(tmp_path / name)
    assert labelled.labels.rows is None
    agrees(labelled, observed(labelled))


def test_a_dense_matrix_is_read_in_pieces_and_keeps_its_type(tmp_path, monkeypatch):
    monkeypatch.setattr("rcurc_gpu.io.read._AT_ONCE", 25)
    np.save(tmp_path / "a.npy", MATRIX.astype(np.float32))
    labelled = read_observations(tmp_path / "a.npy")
    assert labelled.samples.dtype == np.float32
    seen = ~np.isnan(observed(labelled))
    np.testing.assert_array_equal(observed(labelled)[seen], MATRIX.astype(np.float32)[seen])


def test_far_too_many_observations_name_the_command_that_helps(tmp_path, monkeypatch):
    monkeypatch.setattr("rcurc_gpu.io.read.MOST_DENSE", 50)
    np.save(tmp_path / "a.npy", MATRIX)
    with pytest.raises(ValueError, match=r"more than 50 observed entries.*'rcurc-gpu sample'"):
        read_observations(tmp_path / "a.npy")


def test_samples_keep_their_labels_and_older_readers_still_read_them(tmp_path):
    samples = CrossSamples.from_dense(MATRIX, np.arange(5), np.arange(4))
    LabelledSamples(samples, Labels(ROWS, COLS)).save(tmp_path / "a.npz")
    again = read_observations(tmp_path / "a.npz")
    np.testing.assert_array_equal(again.labels.rows, ROWS)
    np.testing.assert_array_equal(again.labels.cols, COLS)
    np.testing.assert_array_equal(again.samples.rows, np.arange(5))
    np.testing.assert_array_equal(CrossSamples.load(tmp_path / "a.npz").C.toarray(), samples.C.toarray())


# ---------------------------------------------------------------- labels and pairs


def test_labels_find_and_name():
    labels = Labels(ROWS, COLS)
    assert labels.find_rows(["ü 3", "ü 0", "nobody", "3"], 14).tolist() == [3, 0, -1, -1]
    assert labels.col_names(np.asarray([2, 1])).tolist() == ['c,"2"', 'c,"1"']
    assert labels.T.find_cols(["ü 3"], 14).tolist() == [3]


def test_without_labels_numbers_count_from_0():
    assert Labels().find_rows(["0", "13", "14", "-1", "1.0", "x", "²", "9" * 30], 14).tolist() == [0, 13, *[-1] * 6]
    assert Labels().row_names(np.asarray([7])).tolist() == ["7"]


def test_pairs_in_the_order_given(tmp_path, reader):
    (tmp_path / "a.csv").write_text("user,item\nb,y\na,x\nb,y\n10,x\n")
    pairs = read_pairs(tmp_path / "a.csv")
    assert list(zip(pairs.row_names, pairs.col_names, strict=True)) == [("b", "y"), ("a", "x"), ("b", "y"), ("10", "x")]
    (tmp_path / "b.csv").write_text("b,y,1\na,x,2\n")
    assert read_pairs(tmp_path / "b.csv").row_names.tolist() == ["b", "a"]
    assert read_pairs(tmp_path / "b.csv", header=True).row_names.tolist() == ["a"]


# ---------------------------------------------------------------- results


@pytest.fixture(scope="module")
def problem():
    return synthetic((150, 120), 2, alpha=0.1, c=10, noise=0.01, n_rows=60, n_cols=50, rate=0.5, seed=1)


@pytest.fixture(scope="module")
def result(problem):
    return rcurc(problem.samples, "auto", accuracy=0.05)


@pytest.fixture(scope="module")
def labels():
    return Labels(np.asarray([f"r{k}" for k in range(150)]), np.asarray([f"c{k}" for k in range(120)]))


def test_a_result_comes_back_as_it_was(result, labels, tmp_path):
    save_result(tmp_path / "a.npz", result, labels)
    again = load_result(tmp_path / "a.npz")
    np.testing.assert_array_equal(again.cur.left, result.cur.left)
    np.testing.assert_array_equal(CURMatrix.load(tmp_path / "a.npz").right, result.cur.right)
    for name in (
        "converged",
        "message",
        "cause",
        "noise",
        "threshold",
        "expected_error",
        "history",
        "n_iter",
        "rank",
        "prediction_error",
    ):
        assert getattr(again, name) == getattr(result, name), name
    for units in ("rows", "columns"):
        for name in ("status", "n_obs", "n_inliers", "spread", "standard_error", "n_informative"):
            np.testing.assert_array_equal(getattr(getattr(again, units), name), getattr(getattr(result, units), name))
    np.testing.assert_array_equal(again.labels.cols, labels.cols)
    assert again.n_obs == result.samples.n_obs == again.seen.sum()
    np.testing.assert_array_equal(again.strengths, result.strengths)


def test_a_file_keeps_the_uncertainty(result, tmp_path):
    save_result(tmp_path / "a.npz", result)
    again = load_result(tmp_path / "a.npz")
    i, j = (x.ravel() for x in np.indices(again.shape))
    for kept in (again.cur, CURMatrix.load(tmp_path / "a.npz")):
        np.testing.assert_array_equal(kept.entries(i, j, return_std=True), result.cur.entries(i, j, return_std=True))
    for new in (True, False):
        np.testing.assert_array_equal(again.interval(i, j, 0.8, new=new), result.interval(i, j, 0.8, new=new))
    np.testing.assert_array_equal(again.predict_at(i, j, 0.8).lower, result.interval(i, j, 0.8)[0])


def test_a_file_without_uncertainty_has_errors_but_no_intervals(problem, tmp_path):
    save_result(tmp_path / "a.npz", rcurc(problem.samples, intervals=False))
    again = load_result(tmp_path / "a.npz")
    assert again.cur.uncertainty is None
    i, j = (x.ravel() for x in np.indices(again.shape))
    found = again.predict_at(i, j)
    assert found.lower is None
    assert 0.7 < np.sqrt(np.mean(((found.value - problem.truth(i, j)) / found.expected_error) ** 2)) < 1.4
    with pytest.raises(ValueError, match="intervals were not kept"):
        again.interval(0, 0)


@pytest.mark.parametrize("name", ["noise_model", "left_covariance", "right_scale", "strengths", "observed_i"])
def test_a_damaged_noise_model_is_named_with_its_file(name, result, tmp_path):
    save_result(tmp_path / "a.npz", result)
    with np.load(tmp_path / "a.npz") as file:
        arrays = dict(file)
    arrays[name] = np.concatenate([arrays[name]] * 3, axis=-1)
    np.savez(tmp_path / "b.npz", **arrays)
    with pytest.raises(ValueError, match=r"b\.npz' is damaged: "):
        load_result(tmp_path / "b.npz")


def test_some_observations_are_kept_for_pictures(problem, result):
    some = Completion.of(result).some_observed
    assert 300 < len(some) <= 400
    np.testing.assert_array_equal(some.value, problem.entries(some.i, some.j))
    in_cross = np.isin(some.i, problem.samples.rows) | np.isin(some.j, problem.samples.cols)
    assert in_cross.all()
    assert len(np.unique(some.i)) > 100  # from all over the matrix
    assert len(np.unique(some.j)) > 80


def test_the_outliers_are_those_of_the_result_each_once_with_what_was_observed(problem, result):
    found = Completion.of(result).outliers
    s = problem.samples
    S_R, S_C = (S.tocoo() for S in result.outliers())
    there = {(s.rows[a], b) for a, b in zip(S_R.row, S_R.col, strict=True)}
    there |= {(a, s.cols[b]) for a, b in zip(S_C.row, S_C.col, strict=True)}
    assert sorted(there) == sorted(zip(found.i, found.j, strict=True))
    np.testing.assert_array_equal(found.observed, problem.entries(found.i, found.j))
    np.testing.assert_allclose(found.recovered, result.cur.entries(found.i, found.j))
    assert (np.diff(found.score) <= 0).all()
    assert found.score.min() >= 1


def test_predictions_are_as_far_off_as_they_say(problem, result, labels):
    """The root mean square of error over expected error is 1, over all entries."""
    i, j = (x.ravel() for x in np.indices(problem.shape))
    found = Completion.of(result, labels).predict(labels.rows[i], labels.cols[j])
    ratio = (found.value - problem.truth(i, j)) / found.expected_error
    assert not found.unknown.any()
    assert 0.7 < np.sqrt(np.nanmean(ratio**2)) < 1.4


def test_what_is_not_known_is_told_from_what_is_not_determined(problem, labels):
    s = problem.samples
    j = int(np.setdiff1d(np.arange(120), s.cols)[0])
    R, C = s.R.tolil(), s.C.tocsr()
    R[:, j] = 0
    R = R.tocsc()
    R.eliminate_zeros()
    result = rcurc(CrossSamples.from_blocks(R, C, s.rows, s.cols), 2, undetermined="nan")
    found = Completion.of(result, labels).predict(["r0", "nobody", "r0"], [f"c{j}", "c0", "nothing"])
    assert np.isnan(found.value).all()
    for numbers in (found.expected_error, found.lower, found.upper):
        assert np.isnan(numbers).all()
    assert found.unknown.tolist() == [False, True, True]
    assert found.undetermined.tolist() == [True, False, False]


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_nothing_is_missing_by_default_and_what_is_not_determined_is_as_uncertain_as_it_should_be(noise):
    """Columns that nobody looked at are like any others: 95 % of their entries lie in the intervals."""
    problem = synthetic((150, 120), 2, alpha=0.1, c=10, noise=noise, n_rows=60, n_cols=50, rate=0.5, seed=1)
    s = problem.samples
    lost = np.setdiff1d(np.arange(120), s.cols)[:20]
    R = s.R.tolil()
    R[:, lost] = 0
    R = R.tocsc()
    R.eliminate_zeros()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        c = Completion.of(rcurc(CrossSamples.from_blocks(R, s.C, s.rows, s.cols)))
    i, j = (x.ravel() for x in np.indices(c.shape))
    found = c.predict_at(i, j)
    for numbers in (found.value, found.expected_error, found.lower, found.upper):
        assert np.isfinite(numbers).all()
    np.testing.assert_array_equal(found.guess, np.isin(j, lost))
    assert not found.undetermined.any()
    truth = problem.truth(i, j)
    inside = (found.lower <= truth) & (truth <= found.upper)
    assert inside[found.guess].mean() > 0.9
    ratio = (found.value - truth)[found.guess] / found.expected_error[found.guess]
    assert 0.6 < np.sqrt(np.mean(ratio**2)) < 1.6


def test_cells_count_every_observation_once(problem, result):
    c = Completion.of(result)
    assert c.seen.shape == (150, 120)  # small enough for a cell each
    assert c.seen.max() == 1
    assert c.outlier_cells.sum() == len(c.outliers)
    assert (c.outlier_cells <= c.seen).all()
    assert c.seen[60:, 50:].sum() == 0  # the chosen ones come first


def test_an_ordinary_matrix_file_is_not_a_result(result, tmp_path):
    result.cur.save(tmp_path / "a.npz")
    with pytest.raises(ValueError, match="has a matrix only"):
        load_result(tmp_path / "a.npz")


def test_predictions_are_written_in_order_with_empty_fields_where_a_number_is_missing(tmp_path, monkeypatch):
    """Several pieces of lines, with and without gaps in them."""
    monkeypatch.setattr("rcurc_gpu.io.pairs._LINES", 3)
    numbers = np.arange(8) / 4
    gaps = np.where(np.isin(np.arange(8), [1, 7]), np.nan, numbers)
    names = Encoded(np.arange(8) % 3, ["a", 'b"', "c,d"])
    write_table(tmp_path / "a.csv", ("u", "i", "v", "w"), (names, names), [(numbers, "%.10g"), (gaps, "%.3g")])
    written = list(csv.reader((tmp_path / "a.csv").read_text().splitlines()))
    texts = [f"{v:g}" for v in numbers]
    label = [names.names[k] for k in names.codes]
    want = [[a, a, v, "" if k in (1, 7) else v] for k, (a, v) in enumerate(zip(label, texts, strict=True))]
    assert written == [["u", "i", "v", "w"], *want]


def test_text_is_read_by_pyarrow_without_pandas(tmp_path):
    """Which pyarrow's own way to NumPy imports, half a second of CPU."""
    (tmp_path / "x.csv").write_text("who,what,how\na,x,1\nb,x,\nb,y,3.5\n")
    asked = "print('pyarrow' in sys.modules, 'pandas' in sys.modules)"
    code = f"import sys; from rcurc_gpu import io; io.read_observations('x.csv'); {asked}"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"
    assert read_observations(tmp_path / "x.csv").n_missing == 1
