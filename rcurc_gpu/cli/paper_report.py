"""What ``rcurc-gpu paper`` says about its figures."""

from __future__ import annotations

from ..paper import Record, convergence, phase


def pattern_words(record: Record, summary: Record) -> str:
    """Figure 1 in words."""
    n = record["settings"]["size"]
    lines = [
        f"Figure 1:   {summary['observations']:,} of {n:,} x {n:,} entries ({100 * summary['share_of_matrix']:.1f} %) "
        "in every panel"
    ]
    lines += [
        f"            {panel['title']:<24}{panel['chosen']:>5,} rows and columns, "
        f"{100 * panel['share_of_cross']:.0f} % of their entries"
        for panel in summary["panels"]
    ]
    return "\n".join(lines)


def convergence_words(record: Record, summary: Record) -> str:
    """Figure 2 in words: a line for each curve, and what they show."""
    settings, first = record["settings"], record["runs"][0]
    n, runs = settings["size"], settings["runs"]
    lines = [
        f"Figure 2:   {n:,} x {n:,}, {100 * settings['alpha']:g} % outliers, "
        f"{'one run' if runs == 1 else f'{runs} runs'} of each problem, on {first['device']} ({first['kernels']})",
        "",
        '              Algorithm 1                                                method="fast"',
        "   r     c    steps    time  true error   slope of log10 e_k     R^2    time  true error",
    ]
    for curve in summary["curves"]:
        e, fast = curve["e"], curve["fast"]
        lines.append(
            f"{curve['rank']:>4}{curve['c']:>6g}{curve['iterations']:>9}{curve['seconds']:>6.2f} s"
            f"{_number(curve['true_error']['last'], '.1e'):>12}{_number(e['slope'], '.4f'):>13} per step"
            f"{_number(e['r_squared'], '.4f'):>8}{fast['seconds']:>6.2f} s{_number(fast['true_error'], '.1e'):>12}"
        )
    known = [curve["e"]["worst_r_squared"] for curve in summary["curves"] if curve["e"]["worst_r_squared"] is not None]
    worst = f"; lowest R^2 of a single run: {min(known):.4f}" if known else ""
    verdict = "for every curve" if summary["linear"] else "NOT for every curve"
    lines += [
        "",
        f"Linear convergence of e_k (falling, R^2 of at least {convergence.LINEAR:g}): {verdict}{worst}.",
        f"The square of the threshold, which bounds e_k, falls by {-summary['slope_of_threshold']:.4f} per step.",
        "Times are medians, errors geometric means.",
    ]
    return "\n".join(lines)


def _number(value: float | None, form: str) -> str:
    return "unknown" if value is None else format(value, form)


def phase_words(record: Record, summary: Record) -> str:
    """The phase transition in words."""
    s = record["settings"]
    lines = [
        f"Phase:      {summary['problems']:,} problems of {s['size']:,} x {s['size']:,}, rank {s['rank']}: "
        f"{s['observations'][0]} to {s['observations'][-1]} observations per column, "
        f"{100 * s['alphas'][0]:g} to {100 * s['alphas'][-1]:g} % outliers"
    ]
    for method in phase.METHODS:
        found = summary[method]
        lines.append(
            f"            {method:<6} recovered {found['recovered_in_all']:>6,} (error at most {s['success']:g}), "
            f"confirmed {found['confirmed_in_all']:>6,}, wrongly {found['wrongly_confirmed_in_all']:,}"
        )
    return "\n".join(lines)
