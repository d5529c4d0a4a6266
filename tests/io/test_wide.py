"""Matrices with labels in text and Parquet, and lists of observations that look like them."""

import gzip
from functools import partial

import numpy as np
import pandas as pd
import pytest

import rcurc_gpu as rg
from rcurc_gpu.files import check_unpacked
from rcurc_gpu.io import read_observations
from rcurc_gpu.io.text import Columns
from rcurc_gpu.io.wide import looks_wide

_rng = np.random.default_rng(0)
VALUES = np.where(_rng.random((9, 6)) < 0.2, np.nan, _rng.standard_normal((9, 6)).round(4))
FRAME = pd.DataFrame(VALUES, index=[f"Ort {k}" for k in range(9)], columns=[f"day {k}" for k in range(6)])


@pytest.fixture(params=["pyarrow", "slow"])
def reader(request, monkeypatch):
    if request.param == "slow":
        monkeypatch.setattr("rcurc_gpu.io.wide._parsed", lambda path, header: None)
    return request.param


def dense(labelled):
    """What was read, as a frame; the cross of so small a matrix is all of it."""
    s = labelled.samples
    out = np.full(s.shape, np.nan)
    r, c = s.R.tocoo(), s.C.tocoo()
    out[s.rows[r.row], r.col] = r.data
    out[c.row, s.cols[c.col]] = c.data
    return pd.DataFrame(out, index=labelled.labels.rows, columns=labelled.labels.cols)


def same(labelled, frame):
    found = dense(labelled)
    assert list(found.index) == [str(x) for x in frame.index]
    assert list(found.columns) == [str(x) for x in frame.columns]
    np.testing.assert_array_equal(found, frame)


@pytest.mark.parametrize(("name", "corner"), [("x.csv", None), ("x.csv", "city"), ("x.tsv", "city"), ("x.csv.gz", None)])
def test_a_wide_text_file_is_a_matrix_with_labels(tmp_path, reader, name, corner):
    path = tmp_path / name
    FRAME.rename_axis(corner).to_csv(path, sep="\t" if ".tsv" in name else ",")
    labelled = read_observations(path)
    same(labelled, FRAME)
    assert labelled.columns == (corner or "row", "column", "value")
    assert labelled.source.startswith("a matrix in text with labels")


def test_columns_may_be_years_and_rows_dates(tmp_path, reader):
    frame = pd.DataFrame(
        VALUES, index=pd.date_range("2024-01-01", periods=9).strftime("%Y-%m-%d"), columns=range(1990, 1996)
    )
    frame.rename_axis("station").to_csv(tmp_path / "x.csv")
    same(read_observations(tmp_path / "x.csv"), frame)


@pytest.mark.parametrize("index", [True, False])
def test_a_wide_parquet_file_is_a_matrix_with_labels(tmp_path, index):
    path = tmp_path / "x.parquet"
    (FRAME if index else FRAME.rename_axis("city").reset_index()).to_parquet(path)
    same(read_observations(path), FRAME)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_narrow_matrix_is_not_taken_for_triplets(tmp_path, ending):
    narrow = FRAME.iloc[:, :2].rename_axis("city")
    path = tmp_path / f"x.{ending}"
    (narrow.to_csv(path) if ending == "csv" else narrow.to_parquet(path))
    assert looks_wide(str(path), "text" if ending == "csv" else "parquet", Columns())
    labelled = read_observations(path)
    assert labelled.samples.shape == (9, 2)


LISTS = {
    "usual words": "user,item,stars\n1,7,5\n2,8,4\n3,9,1\n",
    "labels in the second column": "town,thing,level\na,x,5\nb,y,4\nc,z,1\n",
    "rows that come again": "town,year,level\na,1990,5\nb,1990,4\na,1991,1\n",
    "no header": "alice,7,5\nbob,8,4\ncarol,9,1\n",
    "no header, numbers": "1,7,5\n2,8,4\n3,9,1\n",
    "two lines": "town,year,level\na,1990,5\n",
}


@pytest.mark.parametrize("text", LISTS.values(), ids=LISTS)
def test_lists_of_observations_stay_lists(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)
    assert not looks_wide(str(tmp_path / "x.csv"), "text", Columns())


def test_a_parquet_list_with_whole_numbers_stays_a_list(tmp_path):
    path = tmp_path / "x.parquet"
    pd.DataFrame({"town": ["a", "b", "a"], "year": [1, 1, 2], "level": [5.0, 4.0, 1.0]}).to_parquet(path)
    assert not looks_wide(str(path), "parquet", Columns())


def test_the_layout_can_be_said(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("town,1,2\na,7,5\nb,8,4\nc,9,1\n")  # a list with a header, or a matrix with numbers for names
    assert read_observations(path, layout="matrix").samples.shape == (3, 2)
    assert read_observations(path, layout="triplets").samples.shape == (4, 4)
    with pytest.raises(ValueError, match="layout must be one of 'auto', 'triplets', 'matrix', got 'wide'"):
        read_observations(path, layout="wide")
    with pytest.raises(
        ValueError, match="layout must be 'triplets' or 'auto' for a table with the column 'town', got 'matrix'"
    ):
        read_observations(path, layout="matrix", row_column="town")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "city,a,b\nx,1,2\ny,1,oops\nz,1,2\n",
            r"line 3: the value 'oops' is not a number; a matrix has numbers in all columns",
        ),
        ("city,a,b\nx,1,2\nx,1,3\n", "two rows of the matrix are called 'x'; if it is a list of observations, say layout="),
        ("city,a,a\nx,1,2\ny,1,3\n", "two columns of the matrix are called 'a'"),
        ("city,a,b\nx,1,2\ny,1\n", "line 3: 2 columns, but the first line has 3"),
        ("city,a,b\n,1,2\ny,1,3\n", "the label of a row is empty"),
        ("city,a,b\nx,,\ny,,NA\n", "has no values: there are no observations"),
        ("city,a,b\n", "has a header only: there are no observations"),
        ("city\nx\n", "is not a matrix: its first line must name its columns"),
    ],
)
def test_what_is_wrong_in_a_matrix_is_named(tmp_path, reader, text, message):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_observations(tmp_path / "x.csv", layout="matrix")


def test_a_column_of_line_numbers_is_not_taken_for_rows(tmp_path):
    (tmp_path / "x.csv").write_text(",user,item,stars\n0,a,x,5\n1,b,y,4\n2,a,y,3\n")
    with pytest.raises(
        ValueError, match="has a first column without a name, which looks like line numbers; name the columns"
    ):
        read_observations(tmp_path / "x.csv")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            list("abcdefghi"),
            "numbers of the first column come again or are missing: put a column that numbers the rows before it",
        ),
        (False, "the first line holds numbers: put a line with names before it"),
    ],
)
def test_a_matrix_without_labels_is_refused_with_what_it_lacks(tmp_path, header, message):
    table = pd.DataFrame(np.round(np.random.default_rng(0).standard_normal((30, 9)), 1))
    table.iloc[4, 0] = table.iloc[3, 0]
    table.to_csv(tmp_path / "x.csv", index=False, header=header)
    with pytest.raises(ValueError, match=f"too many for a list, and is not a matrix with labels .* but {message}"):
        read_observations(tmp_path / "x.csv")


def test_shards_and_ratings_want_lists_and_say_so(tmp_path):
    FRAME.to_csv(tmp_path / "x.csv")
    with pytest.raises(ValueError, match="is a matrix with labels, not a list of observations"):
        rg.shard_file([tmp_path / "x.csv"], tmp_path / "shards")


def test_a_compressed_matrix_that_unpacks_to_far_too_much_is_refused(tmp_path, monkeypatch, reader):
    monkeypatch.setattr("rcurc_gpu.files.check_unpacked", partial(check_unpacked, room=10_000, justified=2))
    with gzip.open(tmp_path / "x.csv.gz", "wb") as file:
        file.write(b",a,b\n" + b"".join(b"%d,0,0\n" % k for k in range(10_000)))
    with pytest.raises(ValueError, match="bytes"):
        read_observations(tmp_path / "x.csv.gz", layout="matrix")
