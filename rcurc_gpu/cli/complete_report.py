"""What ``rcurc-gpu complete`` reports: figures as a dictionary, and the same in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._version import __version__
from ..extend import UnitDiagnostics
from ..io import Completion, Predictions, WantedEntries

_SHOWN = 5  # unknown labels, and wrong observations, that are named in words
_STRENGTHS = 8  # components that are described in words


def describe_completion(c: Completion, better: float | None = None) -> dict[str, Any]:
    """How the solve went, as a dictionary for JSON; `better` is how many times as well it predicts as offsets alone."""
    top = slice(0, _SHOWN)
    o = c.outliers
    worst = zip(c.labels.row_names(o.i[top]), c.labels.col_names(o.j[top]), o.observed[top], o.recovered[top], strict=True)
    return {
        "version": __version__,
        **{name: getattr(c, name) for name in ("converged", "message", "cause", "rank", "method", "device")},
        "iterations": c.n_iter,
        **{name: getattr(c, name) for name in ("seconds", "expected_error", "prediction_error", "noise", "threshold")},
        "noise_model": c.has_noise_model,
        "strengths": c.strengths.tolist(),
        "offsets": c.offsets,
        "times_better_than_offsets": better,
        "singular_values": c.cur.singular_values().tolist(),
        "outliers": {
            "count": len(o),
            "share": len(o) / c.n_obs,
            "worst": [
                {"row": str(row), "column": str(col), "observed": float(seen), "recovered": float(x)}
                for row, col, seen, x in worst
            ],
        },
        "undetermined_rows": _undetermined(c.rows, c.labels.row_names),
        "undetermined_cols": _undetermined(c.columns, c.labels.col_names),
    }


def _undetermined(units: UnitDiagnostics, names: Any) -> dict[str, Any]:
    return {"count": len(units.undetermined), "labels": names(units.undetermined).tolist(), "reasons": units.reasons()}


def describe_predictions(pairs: WantedEntries, found: Predictions) -> dict[str, Any]:
    """What became of the entries that were asked for, as a dictionary for JSON."""
    return {
        "asked": len(pairs),
        "predicted": int((~np.isnan(found.value)).sum()),
        "guesses": int(found.guess.sum()),
        "undetermined": int(found.undetermined.sum()),
        "unknown": int(found.unknown.sum()),
        "unknown_rows": _once(pairs.row_names[~found.known_row]),
        "unknown_cols": _once(pairs.col_names[~found.known_col]),
    }


def _once(names: np.ndarray) -> list[str]:
    return list(dict.fromkeys(names.tolist()))


# ---------------------------------------------------------------- in words


def observed_words(report: dict[str, Any]) -> str:
    """What was read, in words."""
    observed = report["observed"]
    return "\n            ".join([f"Read:       {report['file']}, {observed['source']}", *observed["lines"]])


# What is printed before the rows and columns that could not be determined, by --undetermined.
_FATE = {"prior": "Filled in:", "nan": "No value: ", "keep": "Guesses:  "}


def _noise_words(report: dict[str, Any]) -> list[str]:
    """What there is besides the verdict where the noise model was used: components and, in a bad result, the errors."""
    strengths = report["strengths"]
    if not report["noise_model"]:
        return []
    more = f" and {len(strengths) - _STRENGTHS} weaker ones" if len(strengths) > _STRENGTHS else ""
    sizes = ", ".join(f"{x:.3g}" for x in strengths[:_STRENGTHS]) + more
    offsets = "offsets of rows and columns" if report["offsets"] else ""
    if strengths:
        added = f"{', beside ' if offsets else ''}{offsets}"
        lines = [f"Components: each moves an entry by about {sizes}{added}; the noise is {report['noise']:.3g}"]
    else:
        lines = [f"Components: none that the data support{', only ' if offsets else ''}{offsets}"]
    if not report["converged"]:  # a good verdict says it all
        better = report["times_better_than_offsets"]
        than = f", {better:.2g} times as good as offsets of rows and columns alone" if better else ""
        lines.append(
            f"Error:      about {report['expected_error']:.2g} of the matrix's size, {report['prediction_error']:.2g} "
            f"for new observations{than}"
        )
    return lines


def result_words(report: dict[str, Any], verdict: str) -> str:
    """The outcome in words; so is the `verdict`."""
    o = report["outliers"]
    lines = [
        f"Solved:     rank {report['rank']}, in {report['seconds']:.2f} s on {report['device']}",
        *_noise_words(report),
        f"Verdict:    {'confirmed' if report['converged'] else 'NOT confirmed'}. {verdict}",
        f"Outliers:   {o['count']:,} observations ({o['share']:.1%}) do not fit the recovered matrix",
    ]
    for k, worst in enumerate(o["worst"][:3]):
        place = f"{worst['row']}, {worst['column']}"
        lines.append(
            f"            {'worst: ' if k == 0 else '       '}{place}: observed {worst['observed']:.6g}, "
            f"recovered {worst['recovered']:.6g}"
        )
    for what, found in (("rows", report["undetermined_rows"]), ("columns", report["undetermined_cols"])):
        if found["count"]:
            reasons = "; ".join(f"{count:,}: {reason}" for reason, count in found["reasons"].items())
            count = f"{found['count']:,} {what if found['count'] > 1 else what[:-1]}"
            typical = " with typical values" if report["undetermined"] == "prior" else ""
            lines.append(f"{_FATE[report['undetermined']]}  {count} ({_list(found['labels'])}){typical}. {reasons}")
    return "\n".join(lines)


def prediction_words(report: dict[str, Any]) -> str:
    """What became of the entries that were asked for, in words."""
    p = report["predictions"]
    none = "" if p["predicted"] else "NONE: "
    lines = [f"Predicted:  {none}{p['predicted']:,} of the {p['asked']:,} entries asked for"]
    if p["guesses"]:
        what = "are typical values" if report["undetermined"] == "prior" else "are guesses"
        lines.append(f"            {p['guesses']:,} of them {what}: their rows or columns could not be determined")
    if p["undetermined"]:
        lines.append(f"            {p['undetermined']:,} lie in rows or columns that could not be determined; left empty")
    if p["unknown"]:
        have = "has" if p["unknown"] == 1 else "have"
        lines.append(f"            {p['unknown']:,} {have} a label that is not in the observations; left empty")
        for what, names in (("rows", p["unknown_rows"]), ("columns", p["unknown_cols"])):
            if names:
                lines.append(f"            unknown {what}: {_list(names)}")
    return "\n".join(lines)


def _list(names: list[str]) -> str:
    more = f", and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more
