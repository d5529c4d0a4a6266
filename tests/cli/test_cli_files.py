"""The commands for files, as somebody with ratings uses them, against the truth behind the ratings."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rcurc_gpu import CrossSamples, CURMatrix, cli
from rcurc_gpu.cli.common import OptionWording
from rcurc_gpu.cli.complete import OPTION_OF
from rcurc_gpu.cli.outputs import is_picture
from rcurc_gpu.errors import PYTHON
from rcurc_gpu.io import load_result
from rcurc_gpu.judge.causes import Cause, Evidence
from rcurc_gpu.judge.faults import CoreFault, TooNoisy
from rcurc_gpu.judge.words import Verdict

N1, N2, RANK = 240, 180, 2
NOISE = 0.1  # of entries of size 1


def run(*arguments):
    return CliRunner().invoke(cli.main, [str(a) for a in arguments], prog_name="rcurc-gpu")


def table(path):
    with open(path, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    return header, rows


class Ratings:
    """Ratings of users for items: low rank, a little noise, 8 % wrong, mostly by some users and on some items."""

    def __init__(self, noise=NOISE):
        rng = np.random.default_rng(7)
        self.users = np.asarray([f"user {k:03d}" for k in range(N1)])
        self.items = np.asarray([f"“item” {k}, vol. {k % 3}" for k in range(N2)])
        self.truth = rng.standard_normal((N1, RANK)) @ rng.standard_normal((RANK, N2))
        keen, popular = rng.random(N1) < 0.35, rng.random(N2) < 0.35
        self.seen = (keen[:, None] | popular) & (rng.random((N1, N2)) < 0.5)
        self.wrong = self.seen & (rng.random((N1, N2)) < 0.08)
        self.given = self.truth + noise * rng.standard_normal((N1, N2))
        self.given[self.wrong] += rng.choice([-1, 1], self.wrong.sum()) * rng.uniform(2, 9, self.wrong.sum())
        self.order = rng.permutation(np.argwhere(self.seen))

    def write(self, folder):
        with (folder / "ratings.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["user", "item", "stars"])
            writer.writerows((self.users[i], self.items[j], float(self.given[i, j])) for i, j in self.order)
        self.wanted = np.random.default_rng(8).integers([N1, N2], size=(300, 2))
        with (folder / "wanted.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["user", "item"])
            writer.writerows((self.users[i], self.items[j]) for i, j in self.wanted)
            writer.writerows([("user 999", self.items[0]), (self.users[0], "no such item"), ("user 999", "no such item")])


@pytest.fixture(scope="module")
def ratings():
    return Ratings()


@pytest.fixture(scope="module")
def folder(ratings, tmp_path_factory):
    """Where ``complete`` ran once with everything."""
    folder = tmp_path_factory.mktemp("ratings")
    ratings.write(folder)
    (folder / "out").mkdir()
    outputs = ("--predict", folder / "wanted.csv", "--outliers", folder / "out" / "wrong.csv")
    done = run("complete", folder / "ratings.csv", "-o", folder / "out" / "result.npz", "--device", "cpu", *outputs)
    assert done.exit_code == 0, done.output
    (folder / "report.txt").write_text(done.stdout, encoding="utf-8")
    return folder


# ---------------------------------------------------------------- complete


def test_complete_reports_in_words(folder):
    text = (folder / "report.txt").read_text(encoding="utf-8")
    for part in (
        f"a {N1} x {N2} matrix",
        "'user ",
        "Verdict:    confirmed",
        f"Solved:     rank {RANK}",
        "Components: each moves an entry by about ",
        "the matrix is known to about 0.02",
        "new observations are predicted to about 0.08",
        "times as well as by offsets of rows and columns alone",
        "300 of the 303 entries asked for",
        "3 have a label that is not in the observations",
        "unknown rows: 'user 999'",
        "unknown columns: 'no such item'",
        "result-predictions.csv",
        "wrong.csv",
    ):
        assert part in text


def test_predictions_match_the_truth_in_the_order_given(folder, ratings):
    header, rows = table(folder / "out" / "result-predictions.csv")
    assert header == ["user", "item", "stars", "expected_error", "lower", "upper"]
    assert [tuple(row[:2]) for row in rows[:300]] == [(ratings.users[i], ratings.items[j]) for i, j in ratings.wanted]
    value, expected, lower, upper = np.asarray([row[2:] for row in rows[:300]], dtype=float).T
    truth = ratings.truth[tuple(ratings.wanted.T)]
    error = value - truth
    assert np.abs(error).max() < 5 * NOISE
    assert 0.6 < np.sqrt(np.mean((error / expected) ** 2)) < 1.6
    new = truth + NOISE * np.random.default_rng(9).standard_normal(300)
    assert 0.92 < np.mean((lower < new) & (new < upper)) < 0.98
    assert [row[2:] for row in rows[300:]] == [["", "", "", ""]] * 3


def test_the_outliers_are_the_wrong_ratings(folder, ratings):
    header, rows = table(folder / "out" / "wrong.csv")
    assert header == ["user", "item", "observed", "recovered", "score"]
    found = {(row[0], row[1]) for row in rows}
    assert found >= {(ratings.users[i], ratings.items[j]) for i, j in np.argwhere(ratings.wrong)}
    assert len(found) == len(rows) < 1.03 * ratings.wrong.sum()  # noise has tails
    user = {name: k for k, name in enumerate(ratings.users)}
    item = {name: k for k, name in enumerate(ratings.items)}
    i, j = np.asarray([(user[row[0]], item[row[1]]) for row in rows]).T
    observed, recovered, score = np.asarray([row[2:] for row in rows], dtype=float).T
    np.testing.assert_allclose(observed, ratings.given[i, j], rtol=1e-9)
    assert np.abs(recovered - ratings.truth[i, j]).max() < 5 * NOISE
    assert (np.diff(score) <= 0).all()


def test_the_result_file_needs_nothing_else(folder, ratings):
    kept = load_result(folder / "out" / "result.npz")
    assert kept.rank == RANK
    assert kept.converged
    assert kept.strengths.shape == (RANK,)
    np.testing.assert_array_equal(kept.rank_curve, kept.strengths)
    found = kept.predict([ratings.users[5]], [ratings.items[9]])
    assert abs(found.value[0] - ratings.truth[5, 9]) < 5 * NOISE
    assert found.lower[0] < ratings.truth[5, 9] < found.upper[0]
    assert CURMatrix.load(folder / "out" / "result.npz").shape == (N1, N2)


def test_json_is_one_object_and_nothing_else(folder, tmp_path, ratings):
    done = run(
        "complete",
        folder / "ratings.csv",
        "-o",
        tmp_path / "a.npz",
        "--rank",
        RANK,
        "--predict",
        folder / "wanted.csv",
        "--json",
    )
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert report["converged"] is True
    assert report["rank"] == RANK
    assert len(report["strengths"]) == RANK
    assert report["expected_error"] < report["prediction_error"] < 2 * NOISE
    assert report["times_better_than_offsets"] > 5
    assert report["observed"]["observations"] + report["observed"]["unused"] == ratings.seen.sum()
    assert report["predictions"]["asked"] == 303
    assert report["predictions"]["predicted"] == 300
    assert report["predictions"]["unknown_rows"] == ["user 999"]
    assert report["predictions"]["unknown_cols"] == ["no such item"]
    assert report["files"] == {
        "result": str(tmp_path / "a.npz"),
        "predictions": str(tmp_path / "a-predictions.csv"),
        "outliers": None,
    }


def test_quiet_prints_nothing_and_an_earlier_result_is_replaced(folder, tmp_path):
    for _ in range(2):
        done = run("complete", folder / "ratings.csv", "-o", tmp_path / "a.npz", "--rank", RANK, "--quiet")
        assert (done.exit_code, done.output) == (0, "")


def test_what_is_not_confirmed_ends_with_1_and_is_kept(folder, tmp_path):
    """Noise alone is no failure; asked for an accuracy of 1e-9, it is."""
    outputs = ("-o", tmp_path / "a.npz", "--outliers", tmp_path / "wrong.csv")
    done = run("complete", folder / "ratings.csv", *outputs, "--rank", RANK, "--accuracy", "1e-9")
    assert done.exit_code == 1
    assert "NOT confirmed" in done.stdout
    assert "(--accuracy 1e-09 was asked for)" in done.stdout
    assert "Error:      about 0.02" in done.stdout
    assert not load_result(tmp_path / "a.npz").converged
    assert len(table(tmp_path / "wrong.csv")[1]) > 100


def test_options_that_are_wrong_are_named(folder, tmp_path):
    file, out = folder / "ratings.csv", tmp_path / "a.npz"
    for options, part in (
        (("--rank", "0"), "neither a positive whole number nor auto"),
        (("--rank", "9999"), "--rank must be at most"),
        (("--accuracy", "nan"), "accuracy"),
        (("--offsets", "maybe"), "'maybe' is not auto, yes or no"),
        (("--sweeps", "-1"), "--sweeps"),
        (("--undetermined", "median"), "--undetermined"),
        (("--device", "tpu"), "--device"),
        (("--predictions", tmp_path / "p.csv"), "--predict is missing"),
        (("--method", "slow"), "--method"),
    ):
        done = run("complete", file, "-o", out, *options)
        assert done.exit_code == 2
        assert part in done.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("option", "name", "endings"),
    [
        ("-o", "a.csv", ".npz"),
        ("-o", "a", ".npz"),
        ("--outliers", "w.npz", ".csv, .tsv or .txt"),
        ("--predictions", "p", ".txt"),
    ],
)
def test_outputs_must_have_the_ending_of_their_kind(option, name, endings, folder, tmp_path):
    outputs = {"-o": tmp_path / "a.npz", "--predict": folder / "wanted.csv", option: tmp_path / name}
    done = run("complete", folder / "ratings.csv", *(part for pair in outputs.items() for part in pair))
    assert done.exit_code == 2
    assert done.stderr.endswith(f"{endings}\n")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def with_new_item(ratings, tmp_path):
    """Ratings with one item more, which has one rating; that of another user is wanted, and of an item that is known."""
    ratings.write(tmp_path)
    with (tmp_path / "ratings.csv").open("a", newline="", encoding="utf-8") as file:
        csv.writer(file).writerow([ratings.users[0], "a new item", 1.0])
    with (tmp_path / "wanted.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["user 003", "a new item"], ["user 003", ratings.items[1]]])
    return (tmp_path / "ratings.csv", "-o", tmp_path / "a.npz", "--rank", RANK, "--predict", tmp_path / "wanted.csv")


def test_a_column_with_one_rating_is_named_and_gets_a_wide_interval(with_new_item, ratings, tmp_path):
    done = run("complete", *with_new_item)
    assert done.exit_code == 0, done.output
    assert "1 of 181 columns have too few observations of their own and get typical values" in done.stdout
    assert "Filled in:  1 column ('a new item') with typical values. 1: " in done.stdout
    assert "2 of the 2 entries asked for" in done.stdout
    assert "1 of them are typical values: their rows or columns could not be determined" in done.stdout
    new, other = (np.asarray(row[2:], dtype=float) for row in table(tmp_path / "a-predictions.csv")[1])
    of_all = ratings.truth[3].std()  # what user 003 gives to items
    assert abs(new[0]) < 3 * of_all
    assert 0.8 * of_all < (new[3] - new[2]) / (2 * 1.96) < 1.25 * of_all
    assert (other[3] - other[2]) / 4 < 2 * NOISE


def test_a_column_without_enough_ratings_is_left_empty_on_request(with_new_item, tmp_path):
    done = run("complete", *with_new_item, "--undetermined", "nan")
    assert "No value:   1 column ('a new item')" in done.stdout
    assert "1 lie in rows or columns that could not be determined; left empty" in done.stdout
    assert table(tmp_path / "a-predictions.csv")[1][0] == ["user 003", "a new item", "", "", "", ""]


def test_guesses_that_are_kept_are_called_so_and_counted(with_new_item, tmp_path):
    done = run("complete", *with_new_item, "--undetermined", "keep")
    assert "Guesses:    1 column ('a new item')" in done.stdout
    assert "NaN" not in done.stdout
    assert "2 of the 2 entries asked for" in done.stdout
    assert "1 of them are guesses: their rows or columns could not be determined" in done.stdout
    assert table(tmp_path / "a-predictions.csv")[1][0][2]


@pytest.mark.parametrize("undetermined", ["prior", "keep", "nan"])
def test_without_noise_a_column_with_one_rating_is_as_uncertain_as_columns_differ(undetermined, tmp_path):
    rng = np.random.default_rng(0)
    truth = rng.uniform(1, 2, (60, 2)) @ rng.uniform(1, 2, (2, 50))
    lines = [f"s{i},d{j},{float(truth[i, j])!r}\n" for i, j in np.argwhere(rng.random((60, 50)) < 0.7)]
    (tmp_path / "levels.csv").write_text("sensor,day,level\n" + "".join(lines) + "s0,later,5.0\n")
    (tmp_path / "wanted.csv").write_text("s3,later\ns3,d4\n")
    arguments = ("complete", tmp_path / "levels.csv", "-o", tmp_path / "a.npz", "--predict", tmp_path / "wanted.csv")
    done = run(*arguments, "--undetermined", undetermined)
    assert done.exit_code == 1  # not all of it is known, and exact data are expected to tell all
    assert "1 of 51 columns" in done.stdout
    later, known = (row[2:] for row in table(tmp_path / "a-predictions.csv")[1])
    np.testing.assert_allclose(np.asarray(known, dtype=float)[[0, 2, 3]], truth[3, 4], rtol=1e-6)
    if undetermined == "nan":
        assert later == ["", "", "", ""]
        assert "They are NaN in the result" in done.stdout
        return
    value, error, lower, upper = map(float, later)
    fate = {"prior": "filled in with values typical of the others", "keep": "kept as guesses"}[undetermined]
    assert f"They are {fate}" in done.stdout
    # that day is one like the others, of which 95 % lie in the interval
    assert np.mean((lower < truth[3]) & (truth[3] < upper)) >= 0.9
    assert lower < value < upper
    assert error >= 0.9 * truth[3].std()
    if undetermined == "prior":
        assert abs(value - truth[3].mean()) < 1e-6
        assert error == pytest.approx(truth[3].std(), rel=0.01)


def test_without_intervals_there_are_no_columns_for_them(folder, tmp_path):
    arguments = ("complete", folder / "ratings.csv", "--rank", RANK, "--predict", folder / "wanted.csv", "--quiet")
    sizes = []
    for options in (("--intervals",), ("--no-intervals",), ("--intervals",)):  # one table replaces the other
        assert run(*arguments, "-o", tmp_path / "a.npz", *options).exit_code == 0
        header, rows = table(tmp_path / "a-predictions.csv")
        sizes.append((tmp_path / "a.npz").stat().st_size)
        assert header[4:] == (["lower", "upper"] if options == ("--intervals",) else [])
        assert all(float(row[3]) > 0 for row in rows[:300])
    assert sizes[1] < sizes[0]


def test_the_noise_model_and_its_offsets_can_be_turned_off(folder, tmp_path):
    arguments = ("complete", folder / "ratings.csv", "-o", tmp_path / "a.npz", "--rank", RANK)
    for options, offsets in ((("--offsets", "yes"), True), (("--offsets", "no"), False), (("--sweeps", "0"), None)):
        report = json.loads(run(*arguments, *options, "--json").stdout)
        assert report["cause"] in ("", "undetermined")
        assert report["rank"] == RANK
        assert report["noise_model"] is (offsets is not None)
        assert len(report["strengths"]) == RANK
        assert report["offsets"] is bool(offsets)
        assert len(report["singular_values"]) == RANK + 2 * bool(offsets)


def test_little_noise_is_a_small_error_and_no_reason_for_more_components(tmp_path):
    Ratings(0.002).write(tmp_path)
    report = json.loads(run("complete", tmp_path / "ratings.csv", "-o", tmp_path / "a.npz", "--json").stdout)
    assert report["converged"]
    assert report["rank"] == RANK


def test_advice_of_the_library_names_options_or_is_left_out():
    """Of the texts as the library has them, so that a change there is noticed."""
    words = OptionWording(OPTION_OF)
    evidence = Evidence(0.5, 0.5, 0.9, 2, 0.0, 1.0, 100)
    for cause in (Cause.NOT_SETTLED, Cause.OVERFIT, Cause.UNEXPLAINED, Cause.RANK_TOO_SMALL):
        verdict = Verdict((CoreFault(cause, 2, 30.0, 50, 0.7, evidence),))
        assert not re.search(r"gamma|max_iter|\w='|\w=\d", verdict.sentence(words)), verdict
        assert verdict.sentence(PYTHON) == verdict.message
        assert ("rank='auto'" in verdict.message) == ("--rank auto" in verdict.sentence(words))
    verdict = Verdict((CoreFault(Cause.NOT_SETTLED, 2, 30.0, 50, 0.7, evidence),))
    assert verdict.sentence(words) == "The iteration had not settled after 50 iterations; more observations help."
    assert "(--accuracy 0.01 was asked for): observe more, or pass a larger --accuracy if" in (
        Verdict((TooNoisy(0.03, 0.01),)).sentence(words)
    )


@pytest.mark.parametrize("text", ["item,when,user\n{item},1,{user}\n", "{user},{item}\n", "customer,movie\n{user},{item}\n"])
def test_pairs_are_found_by_the_names_of_the_columns_or_by_their_place(text, folder, ratings, tmp_path):
    filled = text.format(user=ratings.users[3], item='"' + ratings.items[4] + '"')
    (tmp_path / "wanted.csv").write_text(filled, encoding="utf-8")
    names = ("--row-column", "user", "--column-column", "item", "--value-column", "stars")
    outputs = ("-o", tmp_path / "a.npz", "--predict", tmp_path / "wanted.csv", "--predictions", tmp_path / "p.csv")
    done = run("complete", folder / "ratings.csv", "--rank", RANK, *outputs, *names)
    assert done.exit_code == 0, done.output
    ((row, column, value, *_),) = table(tmp_path / "p.csv")[1]
    assert (row, column) == (ratings.users[3], ratings.items[4])
    assert abs(float(value) - ratings.truth[3, 4]) < 5 * NOISE


@pytest.mark.parametrize("text", ["sensor,day\ns1,d2\n", "day,other,sensor\nd2,9,s1\n", "s1,d2\n", "sensor,date\ns1,d2\n"])
def test_the_header_of_the_observations_is_known_again_in_the_pairs(text, tmp_path):
    rng = np.random.default_rng(0)
    truth = np.outer(rng.uniform(1, 2, 40), rng.uniform(1, 2, 40))
    lines = [f"s{i},d{j},{truth[i, j]!r}\n".replace("np.float64(", "").replace(")", "") for i, j in np.ndindex(40, 40)]
    (tmp_path / "levels.csv").write_text("sensor,day,level\n" + "".join(lines))
    (tmp_path / "wanted.csv").write_text(text)
    arguments = ("complete", tmp_path / "levels.csv", "-o", tmp_path / "a.npz", "--rank", 1, "--predict")
    assert run(*arguments, tmp_path / "wanted.csv").exit_code == 0
    ((row, column, value, _, lower, upper),) = table(tmp_path / "a-predictions.csv")[1]
    assert (row, column) == ("s1", "d2")
    assert abs(float(value) - truth[1, 2]) < 1e-6
    assert float(upper) - float(lower) < 1e-6  # exact data
    (tmp_path / "none.csv").write_text("s77,d2\nd1,s1\n")
    done = run(*arguments, tmp_path / "none.csv")
    assert done.exit_code == 1
    assert "NONE: 0 of the 2 entries asked for" in done.stdout


# ---------------------------------------------------------------- describe


def test_describe_says_what_is_there(folder, ratings):
    done = run("describe", folder / "ratings.csv", "--rank", RANK)
    assert done.exit_code == 0
    assert "a list in text with the columns 'user', 'item', 'stars'" in done.stdout
    assert f"This looks like enough for rank {RANK}." in done.stdout
    report = json.loads(run("describe", folder / "ratings.csv", "--json").stdout)
    assert report["shape"] == [N1, N2]
    assert report["observations"] + report["unused"] == ratings.seen.sum()


def test_describe_warns_in_labels_and_ends_with_1(folder):
    done = run("describe", folder / "ratings.csv", "--rank", "40")
    assert done.exit_code == 1
    assert "warning: " in done.stdout
    assert "(the first is row 'user " in done.stdout


@pytest.mark.parametrize(
    "text", ["a,x,1\n", "".join(f"a,c{k},1\n" for k in range(30)), "".join(f"r{k},c{k},1\n" for k in range(30))]
)
def test_describe_without_a_rank_warns_of_what_is_not_enough_for_any(text, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    done = run("describe", tmp_path / "a.csv")
    assert done.exit_code == 1
    assert "There may not be enough for recovery, even at rank 1: see" in done.stdout


def test_advice_on_a_table_names_options(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,Ort\nx,y,Bonn\n")
    (tmp_path / "wide.csv").write_text(("1," * 30 + "1\n") * 30)
    for name, part in (
        ("a.csv", "another with --value-column,"),
        ("wide.csv", "--row-column, --column-column, --value-column"),
    ):
        done = run("describe", tmp_path / name)
        assert done.exit_code == 2
        assert part in done.stderr


def test_describe_without_a_rank_says_so_where_there_is_enough(folder):
    done = run("describe", folder / "ratings.csv")
    assert done.exit_code == 0, done.output
    assert "enough for rank 1. --rank N tells" in done.stdout


# ---------------------------------------------------------------- sample


@pytest.fixture
def matrix(ratings, tmp_path):
    np.save(tmp_path / "m.npy", ratings.truth)
    return tmp_path / "m.npy"


@pytest.mark.parametrize(
    ("options", "rows", "cols"),
    [((), 72, 54), (("--rows", "50", "--cols", "10%"), 50, 18), (("--rows", "1.0", "--cols", "0.5"), 240, 90)],
)
def test_sample_draws_what_was_asked_for(matrix, ratings, options, rows, cols, tmp_path):
    done = run("sample", matrix, "-o", tmp_path / "s.npz", "--rate", "0.4", *options)
    assert done.exit_code == 0, done.output
    s = CrossSamples.load(tmp_path / "s.npz")
    assert (len(s.rows), len(s.cols)) == (rows, cols)
    assert abs(s.rate_rows - 0.4) < 0.02
    C = s.C.tocoo()
    np.testing.assert_array_equal(C.data, ratings.truth[C.row, s.cols[C.col]])


def test_the_seed_fixes_the_samples(matrix, tmp_path):
    files = [tmp_path / f"{k}.npz" for k in range(3)]
    for file, seed in zip(files, (1, 1, 2), strict=True):
        assert json.loads(run("sample", matrix, "-o", file, "--seed", seed, "--json").stdout)["output"] == str(file)
    rows = [CrossSamples.load(file).rows.tolist() for file in files]
    assert rows[0] == rows[1] != rows[2]


def test_sample_leaves_out_what_is_masked(ratings, tmp_path):
    np.savez(tmp_path / "m.npz", Y=np.where(ratings.seen, ratings.truth, 1e9), mask=ratings.seen)
    assert run("sample", tmp_path / "m.npz", "-o", tmp_path / "s.npz", "--quiet").exit_code == 0
    s = CrossSamples.load(tmp_path / "s.npz")
    assert np.abs(s.r_block.value).max() < 100
    assert s.rate_rows < 0.25


def test_samples_are_completed(matrix, ratings, tmp_path):
    run("sample", matrix, "-o", tmp_path / "s.npz", "--rate", "0.5")
    assert run("complete", tmp_path / "s.npz", "-o", tmp_path / "a.npz").exit_code == 0
    found = CURMatrix.load(tmp_path / "a.npz").to_dense()
    np.testing.assert_allclose(found, ratings.truth, atol=1e-6)


def test_sample_refuses_what_is_sampled_already(folder, matrix, tmp_path):
    run("sample", matrix, "-o", tmp_path / "s.npz")
    for file in (tmp_path / "s.npz", folder / "ratings.csv"):
        done = run("sample", file, "-o", tmp_path / "t.npz")
        assert done.exit_code == 2
        assert "use 'rcurc-gpu complete'" in done.stderr
    assert not (tmp_path / "t.npz").exists()


@pytest.mark.parametrize(
    ("option", "value"), [("--rows", "0"), ("--rows", "1.5"), ("--cols", "-3"), ("--cols", "x"), ("--rows", "999")]
)
def test_sample_names_the_option_that_is_wrong(matrix, option, value, tmp_path):
    done = run("sample", matrix, "-o", tmp_path / "t.npz", option, value)
    assert done.exit_code == 2
    assert option in done.stderr


# ---------------------------------------------------------------- plot


def test_plot_makes_one_picture_that_it_knows_again(folder, tmp_path):
    done = run("plot", folder / "out" / "result.npz", "-o", tmp_path / "a.png")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert is_picture(tmp_path / "a.png")  # and may replace


def test_plot_fills_a_directory(folder, tmp_path):
    report = json.loads(run("plot", folder / "out" / "result.npz", "-o", tmp_path / "all", "--json").stdout)
    assert sorted(report["files"]) == sorted(str(path) for path in (tmp_path / "all").iterdir())
    assert {Path(path).stem for path in report["files"]} >= {"convergence", "rank", "outlier_map", "row_fit", "column_fit"}


@pytest.mark.parametrize("name", ["a.pdf", "a.txt", "a.npz"])
def test_plot_refuses_another_kind_of_file(folder, tmp_path, name):
    done = run("plot", folder / "out" / "result.npz", "-o", tmp_path / name)
    assert done.exit_code == 2
    assert "must end in .png, or be a directory" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_plot_without_matplotlib_names_the_extra(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = run("plot", folder / "out" / "result.npz", "-o", tmp_path / "a.png")
    assert done.exit_code == 2
    assert "pip install 'rcurc-gpu[plot]'" in done.stderr


# ---------------------------------------------------------------- help, Ctrl-C


@pytest.mark.parametrize("command", ["sample", "describe", "complete", "plot"])
def test_help_has_examples_and_exit_codes(command):
    text = run(command, "--help").stdout
    assert f"rcurc-gpu {command} " in text
    assert "Exit status: 0" in text
    assert max(map(len, text.splitlines())) <= 80


def test_an_interrupt_says_what_was_saved(folder, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("rcurc_gpu.cli.complete"), "write_outliers", interrupted)
    outputs = ("-o", tmp_path / "a.npz", "--outliers", tmp_path / "wrong.csv")
    done = run("complete", folder / "ratings.csv", "--rank", RANK, *outputs)
    assert done.exit_code == 130
    assert f"Saved before that: {tmp_path / 'a.npz'}" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]


def test_an_interrupt_says_that_the_command_can_go_on(folder, tmp_path, monkeypatch):
    def interrupted(*_):
        (tmp_path / "kept").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr("rcurc_gpu.api.solve", interrupted)
    outputs = ("-o", tmp_path / "a.npz", "--checkpoint", tmp_path / "kept")
    done = run("complete", folder / "ratings.csv", "--rank", RANK, *outputs)
    assert done.exit_code == 130
    assert f"Stopped. What was done is kept in {tmp_path / 'kept'}: the same command resumes from there." in done.stderr


def test_options_of_tables_are_refused_for_a_matrix(tmp_path):
    np.save(tmp_path / "m.npy", np.eye(5))
    done = run("describe", tmp_path / "m.npy", "--value-column", "stars")
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: --value-column is for tables, got 'stars' for ")
    done = run("describe", tmp_path / "m.npy", "--no-header")
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: --header and --no-header are for text files, not for ")


def test_ctrl_c_while_reading_leaves_nothing(tmp_path):
    """In a process of its own, on a table that takes some seconds."""
    with (tmp_path / "big.csv").open("w") as file:
        file.writelines(f"u{k % 9999},i{k % 7919},{k}\n" for k in range(400_000))
    script = """
import sys
sys.modules["pyarrow"] = None
from rcurc_gpu.cli import main
from rcurc_gpu.io import tables
find_layout = tables.find_layout
tables.find_layout = lambda *given: (find_layout(*given), print("ready", flush=True))[0]
main()
"""
    arguments = ["complete", "big.csv", "-o", "a.npz"]
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "Nothing was saved." in errors
    assert "Traceback" not in errors
    assert [p.name for p in tmp_path.iterdir()] == ["big.csv"]


# ---------------------------------------------------------------- video


def test_sample_takes_a_video(tmp_path):
    """Pixels x frames; the same samples as from the frames."""
    import av

    from rcurc_gpu.video import sample_video

    frames = np.random.default_rng(0).integers(256, size=(12, 16, 24), dtype=np.uint8)
    with av.open(str(tmp_path / "v.mkv"), "w") as container:
        stream = container.add_stream("ffv1", rate=10)
        stream.height, stream.width, stream.pix_fmt = 16, 24, "gray"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="gray")))
        container.mux(stream.encode())
    done = run("sample", tmp_path / "v.mkv", "-o", tmp_path / "s.npz", "--rows", "0.5", "--cols", "50%", "--seed", "4")
    assert done.exit_code == 0, done.output
    drawn, expected = CrossSamples.load(tmp_path / "s.npz"), sample_video(list(frames), 0.5, 0.5, 0.25, 4)
    np.testing.assert_array_equal(drawn.C.toarray(), expected.C.toarray())
    np.testing.assert_array_equal(drawn.R.toarray(), expected.R.toarray())
    done = run("sample", tmp_path / "v.mkv", "-o", tmp_path / "s.npz", "--rows", "20")
    assert done.exit_code == 2
    assert "must be shares" in done.stderr


@pytest.mark.parametrize("data", [None, b"", b"not a video\n" * 50])
def test_sample_refuses_a_bad_video_in_one_line(data, tmp_path):
    if data is not None:
        (tmp_path / "v.mp4").write_bytes(data)
    done = run("sample", tmp_path / "v.mp4", "-o", tmp_path / "s.npz")
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "s.npz").exists()


def test_complete_goes_on_from_a_checkpoint(folder, tmp_path):
    arguments = ("complete", folder / "ratings.csv", "--rank", RANK, "--checkpoint", tmp_path / "c", "--quiet")
    assert run(*arguments, "-o", tmp_path / "one.npz").exit_code == 0
    assert run(*arguments, "-o", tmp_path / "two.npz").exit_code == 0
    one, two = (CURMatrix.load(tmp_path / f"{name}.npz") for name in ("one", "two"))
    np.testing.assert_array_equal(one.left, two.left)
    before = (tmp_path / "c").read_bytes()
    done = run(*arguments, "-o", tmp_path / "three.npz", "--seed", "1")
    assert done.exit_code == 2
    assert "is of another solve: it differs in seed" in done.stderr
    assert (tmp_path / "c").read_bytes() == before
