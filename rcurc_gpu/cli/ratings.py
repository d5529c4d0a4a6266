"""``rcurc-gpu ratings``: predict ratings, and list those that the others contradict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from ..io import Columns, Labels, Outliers, WantedEntries, kind_of, named, read_table, write_outliers, write_table
from ..models import Ratings, complete_ratings
from .common import BadInput, OptionWording, errors_in_options, finish, stoppable
from .options import IN_FILE, CommandOptions, Finite, Parsed, column_options, shared_options
from .outputs import check_outputs, wanted_entries

_HEADER = ("row", "column", "value", "lower", "upper")
_OPTION_OF = {"rank": "--rank", "scale": "--scale"}
_OLD_HEADER = ("row", "column", "value")  # of earlier versions, whose files may be replaced


def _scale(text: str) -> tuple[float, float] | None:
    low, high = map(float, text.split(","))
    return (low, high) if np.isfinite([low, high]).all() and low < high else None


_SCALE = Parsed("scale", _scale, "is not the least and the greatest rating, as in 1,5")


@click.command(context_settings={"show_default": True})
@click.argument("file", type=IN_FILE)
@click.option("--predict", type=IN_FILE, metavar="PAIRS.csv", help="Ratings wanted: a table of (row, column), by label.")
@click.option(
    "-o",
    "--output",
    "--predictions",
    "predictions",
    type=IN_FILE,
    metavar="CSV",
    help="Where to write them.  [default: PAIRS-predictions.csv beside it]",
)
@click.option("--suspicious", type=IN_FILE, metavar="CSV", help="Where to write suspicious ratings, the worst first.")
@click.option("--level", type=Finite(min=0), default=3.0, help="List ratings at least so many times as far off as usual.")
@click.option("--scale", type=_SCALE, metavar="LEAST,MOST", help="Range of the scale, such as 1,5; predictions stay inside.")
@click.option("--rank", type=click.IntRange(min=1), default=10, help="Largest rank; components not needed are dropped.")
@column_options
@shared_options(
    seed="Fixes which ratings are held out.",
    force="Replace existing files, whatever they are.",
)
def ratings(**values: Any) -> None:
    """Predict ratings from those in FILE, and list the suspicious ones.

    FILE is a table of ratings (user, item, rating) in .csv, .tsv, .txt (also .gz) or .parquet, with labels of any kind. For
    measurements with little noise 'rcurc-gpu complete' is more exact.

    \b
    Examples:
      rcurc-gpu ratings ratings.csv --predict wanted.csv --suspicious odd.csv
      rcurc-gpu ratings stars.tsv --scale 1,5 --row-column user \\
          --column-column film --value-column stars --predict wanted.tsv

    Every pair in PAIRS.csv gets a prediction; users and items that have no rating get typical values. A prediction has the
    columns row, column, value, and lower and upper: 95 of 100 new ratings lie between these, wrong ones apart. A suspicious
    rating has the columns row, column, observed, recovered, score. Look at them before you delete any.

    Exit status: 0 if the ratings tie all users and items together and
    held-out ratings are predicted better than by the offsets of users and
    items alone, beyond chance, 1 if not, or if no user and no item of
    PAIRS.csv is known (files are written), 2 if an option or a file is
    wrong, 130 if stopped by Ctrl-C.
    """  # noqa: D301
    options, saved = CommandOptions(**values), list[Path]()
    columns = Columns(options.row_column, options.column_column, options.value_column, True, options.header)
    with stoppable(saved), errors_in_options(_OPTION_OF):
        report = _run(options, columns, saved)
    finish(report, options.as_json, good=report["converged"] and report["helps"] and report.get("known_in_part") != 0)


def _run(options: CommandOptions, columns: Columns, saved: list[Path]) -> dict[str, Any]:
    """Read, fit and save; `saved` is filled as files appear. Returns the report."""
    say = options.say
    predictions = check_outputs(options, options.predict or options.file, _HEADER, _OLD_HEADER)
    place = repr(str(options.file))
    if kind_of(str(options.file)) == "matrix":
        raise BadInput(f"{place} is a matrix; ratings come as a table of user, item and rating (.csv, .parquet)")
    table = read_table(str(options.file), columns, progress=options.visible)
    values = np.asarray(table.values)
    rated = ~np.isnan(values)
    if not rated.any():
        raise BadInput(f"{place} has no values: there are no ratings")
    pairs = wanted_entries(options, table.columns)
    i, j, values = table.rows.codes[rated], table.cols.codes[rated], values[rated]
    n1, n2 = len(table.rows.names), len(table.cols.names)
    say(f"Read:       {options.file}, {len(values):,} ratings of {n1:,} users for {n2:,} items")
    # one user and one item more, which have no ratings: what is typical, for labels that are not known
    found = complete_ratings(i, j, values, (n1 + 1, n2 + 1), options.rank, scale=options.scale, seed=options.seed)
    report = _report(options, found, values, (n1, n2))
    say(_words(report))
    labels = Labels(table.rows.names, table.cols.names)
    if predictions is not None and pairs is not None:
        header = named(_HEADER, table.columns, 3)
        report["unknown"], report["known_in_part"] = _write_predictions(predictions, header, pairs, labels, found)
        saved.append(predictions)
        new = f", {report['unknown']:,} of them of unknown users or items" if report["unknown"] else ""
        say(f"Predicted:  {len(pairs):,} ratings{new}: {predictions}")
        if not report["known_in_part"]:
            say("            NONE of these users and items is among the ratings: each got the typical rating")
    if options.suspicious is not None:
        k = found.suspicious(options.level)
        outliers = Outliers(i[k], j[k], values[k], found.predict(i[k], j[k]), found.surprise[k])
        write_outliers(options.suspicious, outliers, labels, table.columns)
        saved.append(options.suspicious)
        say(f"Saved:      {options.suspicious}")
    report["files"] = {"predictions": predictions, "suspicious": options.suspicious}
    return report


def _report(options: CommandOptions, found: Ratings, values: np.ndarray, shape: tuple[int, int]) -> dict[str, Any]:
    low, high = options.scale or (-np.inf, np.inf)
    return {
        "file": str(options.file),
        "ratings": len(values),
        "scale": options.scale,
        "outside_scale": int(np.sum((values < low) | (values > high))),
        "users": shape[0],
        "items": shape[1],
        "converged": found.converged,
        "message": found.sentence(OptionWording(_OPTION_OF), ("users", "items")),
        "groups": 0 if found.groups is None else found.groups.n_groups,
        **{name: getattr(found, name) for name in ("held_out_error", "offsets_error", "gain_error", "helps", "noise")},
        "suspicious": len(found.suspicious(options.level)),
        "level": options.level,
    }


def _words(report: dict[str, Any]) -> str:
    r, lines = report, []
    if r["outside_scale"]:
        low, high = r["scale"]
        lines.append(
            f"Scale:      {r['outside_scale']:,} ratings lie outside of {low:g} to {high:g}; they are used as they are"
        )
    if not np.isnan(r["held_out_error"]):
        lines.append(
            f"Held out:   ratings that were kept aside are off by {r['held_out_error']:.3g} on average; "
            f"{r['offsets_error']:.3g} with the offsets of users and items alone"
        )
    better = "better than the offsets of users and items alone"
    verdict = better if r["helps"] else f"no {better}, beyond what chance gives"
    if not r["converged"]:
        verdict = f"NOT confirmed. {r['message']}"
    elif np.isnan(r["held_out_error"]):
        verdict = "too few ratings to hold any out: nothing is known of how good predictions are"
    lines.append(f"Verdict:    {verdict}")
    lines.append(f"Suspicious: {r['suspicious']:,} ratings are at least {r['level']:g} times as far off as usual")
    return "\n".join(lines)


def _write_predictions(
    path: Path, header: tuple[str, ...], pairs: WantedEntries, labels: Labels, found: Ratings
) -> tuple[int, int]:
    """Write a prediction and its interval for each pair.

    Returns how many are of an unknown user or item, and of how many at least one is known.
    """
    n1, n2 = found.shape[0] - 1, found.shape[1] - 1
    i = labels.find_rows(pairs.rows.names, n1)[pairs.rows.codes]
    j = labels.find_cols(pairs.cols.names, n2)[pairs.cols.codes]
    known = np.where(i < 0, n1, i), np.where(j < 0, n2, j)
    numbers = [(x, "%.6g") for x in (found.predict(*known), *found.interval(*known))]
    write_table(path, header, (pairs.rows, pairs.cols), numbers)
    return int(np.sum((i < 0) | (j < 0))), int(np.sum((i >= 0) | (j >= 0)))
