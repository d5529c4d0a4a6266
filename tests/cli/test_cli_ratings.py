"""``rcurc-gpu ratings``: from a table of ratings to predictions and a list of suspicious ones."""

import csv
import json

import numpy as np
import pytest
from click.testing import CliRunner

from rcurc_gpu import cli, synthetic_ratings


def run(*arguments):
    return CliRunner().invoke(cli.main, ["ratings", *map(str, arguments)], prog_name="rcurc-gpu")


def write(path, header, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def made():
    return synthetic_ratings(shape=(200, 300), n=15_000, wrong=0.05, seed=0)


@pytest.fixture
def ratings(made, tmp_path):
    path = tmp_path / "ratings.csv"
    rows = ([f"u{i}", f"film {j}", f"{v:g}"] for i, j, v in zip(made.i, made.j, made.values, strict=True))
    write(path, ["user", "film", "stars"], rows)
    return path


def test_every_pair_gets_a_prediction_and_wrong_ratings_are_listed(made, ratings, tmp_path):
    pairs = [(f"u{i}", f"film {j}") for i, j in zip(made.i[:500], made.j[:500], strict=True)]
    write(tmp_path / "wanted.csv", ["user", "film"], [*pairs, ("nobody", "film 3"), ("u1", "no film")])
    done = run(
        ratings, "--predict", tmp_path / "wanted.csv", "--suspicious", tmp_path / "odd.csv", "--scale", "1,5", "--json"
    )
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["ratings"] == len(made.values)
    assert report["unknown"] == 2
    assert report["held_out_error"] < report["offsets_error"]
    lines = read(tmp_path / "wanted-predictions.csv")
    assert [(line["user"], line["film"]) for line in lines[:500]] == pairs
    value = np.array([float(line["stars"]) for line in lines])
    assert value.min() >= 1
    assert value.max() <= 5
    lower, upper = (np.array([float(line[name]) for line in lines]) for name in ("lower", "upper"))
    assert lower.min() >= 1
    assert upper.max() <= 5
    assert (lower <= value).all()
    assert (value <= upper).all()
    assert (upper - lower)[-2:].min() > np.median(upper - lower)  # of an unknown user or film less is known
    expected = np.clip(made.expected[:500], 1, 5)
    assert np.sqrt(np.mean((value[:500] - expected) ** 2)) < 0.8 * np.std(expected)
    wrong = {(f"u{i}", f"film {j}") for i, j in zip(made.i[made.is_wrong], made.j[made.is_wrong], strict=True)}
    listed = read(tmp_path / "odd.csv")
    assert len(listed) == report["suspicious"]
    scores = [float(line["score"]) for line in listed]
    assert scores == sorted(scores, reverse=True)
    hit = np.mean([(line["user"], line["film"]) in wrong for line in listed])
    assert hit > 0.4  # of all ratings 0.05 are wrong


def test_it_speaks(ratings):
    done = run(ratings)
    assert done.exit_code == 0
    assert "15,000 ratings of 200 users for 300 items" in done.stdout
    assert "Suspicious:" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{tmp}/none.csv"], "no such file: "),
        (["{tmp}/empty.csv"], "is empty"),
        (["{tmp}/matrix.npy"], "is a matrix"),
        (["{tmp}/ratings.csv", "--scale", "5,1"], "least and the greatest"),
        (["{tmp}/ratings.csv", "--predictions", "{tmp}/p.csv"], "--predict is missing"),
        (["{tmp}/ratings.csv", "--suspicious", "{tmp}/ratings.csv"], "is one of the files to read"),
        (["{tmp}/ratings.csv", "--suspicious", "{tmp}/empty.csv"], "exists, and this command did not write it"),
        (["{tmp}/ratings.csv", "--value-column", "points"], "has no column"),
    ],
)
def test_bad_input_is_one_line(ratings, tmp_path, arguments, message):
    (tmp_path / "empty.csv").write_bytes(b"")
    np.save(tmp_path / "matrix.npy", np.ones((3, 3)))
    done = run(*(argument.format(tmp=tmp_path) for argument in arguments))
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "empty.csv").read_bytes() == b""


def test_pairs_are_named_as_the_ratings_are_in_any_order(ratings, tmp_path):
    rows = ratings.read_text().splitlines()[1:]
    ratings.write_text("\n".join(["leser,buch,note", *rows]))
    write(tmp_path / "wanted.csv", ["buch", "leser"], [("film 3", "u1")])
    assert run(ratings, "--predict", tmp_path / "wanted.csv").exit_code == 0
    (line,) = read(tmp_path / "wanted-predictions.csv")
    assert (line["leser"], line["buch"]) == ("u1", "film 3")
    write(tmp_path / "wanted.csv", ["leser", "buch"], [("nobody", "nothing")])
    done = run(ratings, "--predict", tmp_path / "wanted.csv")
    assert done.exit_code == 1
    assert "NONE of these users and items" in done.stdout


def test_the_verdict_is_in_words(ratings, tmp_path):
    assert "Verdict:    better than the offsets" in run(ratings).stdout
    same = [(f"u{k % 50}", f"f{k // 50}", 3) for k in range(500)]  # the offsets say all that there is to say
    write(tmp_path / "same.csv", ["user", "film", "stars"], same)
    done = run(tmp_path / "same.csv")
    assert done.exit_code == 1
    assert "Verdict:    no better than the offsets" in done.stdout
    write(tmp_path / "few.csv", ["user", "film", "stars"], [("u1", "f1", 3), ("u2", "f1", 4)])
    done = run(tmp_path / "few.csv")
    assert done.exit_code == 1
    assert "Verdict:    too few ratings to hold any out" in done.stdout
    assert "nan" not in done.stdout


def test_users_and_items_that_never_met_are_told(made, tmp_path):
    apart = (made.i < 100) == (made.j < 150)
    rows = [(f"u{i}", f"film {j}", f"{v:g}") for i, j, v in zip(made.i, made.j, made.values, strict=True)]
    write(tmp_path / "two.csv", ["user", "film", "stars"], [row for row, use in zip(rows, apart, strict=True) if use])
    done = run(tmp_path / "two.csv")
    assert done.exit_code == 1
    assert "Verdict:    NOT confirmed. Users and items fall into 2 groups (" in done.stdout
    assert "result.groups" not in done.stdout
    report = json.loads(run(tmp_path / "two.csv", "--json").stdout)
    assert report["converged"] is False
    assert report["groups"] == 2
    assert report["message"] in done.stdout


def test_ratings_outside_of_the_scale_are_counted(made, ratings):
    n = int(np.sum((made.values < 2) | (made.values > 4)))
    assert n > 0
    assert f"Scale:      {n:,} ratings lie outside of 2 to 4" in run(ratings, "--scale", "2,4").stdout
    assert "Scale:" not in run(ratings, "--scale", "-100,100").stdout


def test_tables_go_to_files_with_a_known_ending_and_tsv_has_tabs(ratings, tmp_path):
    write(tmp_path / "wanted.csv", ["user", "film"], [("u1", "film 3")])
    done = run(ratings, "--predict", tmp_path / "wanted.csv", "--predictions", tmp_path / "p.xlsx")
    assert done.exit_code == 2
    assert "p.xlsx' must end in .csv, .tsv or .txt" in done.stderr
    for _ in range(2):  # the second replaces the first
        done = run(ratings, "--predict", tmp_path / "wanted.csv", "--predictions", tmp_path / "p.tsv")
        assert done.exit_code == 0
    assert (tmp_path / "p.tsv").read_text().startswith("user\tfilm\tstars\tlower\tupper\nu1\tfilm 3\t")
    assert run(ratings, "--predict", tmp_path / "wanted.csv", "-o", tmp_path / "o.tsv").exit_code == 0
    assert (tmp_path / "o.tsv").read_bytes() == (tmp_path / "p.tsv").read_bytes()
    (tmp_path / "p.csv").write_text("row,column,value\nu1,film 3,4\n")  # as earlier versions wrote it: that is replaced too
    assert run(ratings, "--predict", tmp_path / "wanted.csv", "--predictions", tmp_path / "p.csv").exit_code == 0
    assert (tmp_path / "p.csv").read_text().startswith("user,film,stars,lower,upper\n")
