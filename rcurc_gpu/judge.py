"""Whether a result can be trusted, and if not, why.

The paper's e_k falls with the threshold whatever X_k is, so it proves nothing. What proves something: entries held out of the
fit, structure left in the residuals, rows and columns whose observations do not agree, and the error expected from noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .backend import Array, array_namespace, quantile_abs, take_rows, to_numpy
from .core import Core, CoreData, residuals
from .describe import CORE_PER_RANK
from .extend import Extension, UnitDiagnostics
from .operators import random_start, subspace_svd
from .regress import Schedule
from .repair import CheckedCore

_STRUCTURE = 1.5  # largest singular value of the residuals over that of noise of the same size
_LEAST_HELD = 50  # fewer held-out entries prove nothing


@dataclass(frozen=True)
class Evidence:
    """What was measured about a core.

    Attributes
    ----------
    unexplained : float
        Lower quartile of the held-out residuals over that of the observations: 0 is perfect, 1 explains nothing.
    held_share, fit_share : float
        Share of held-out and of fitted entries that agree with the solution.
    supported : int
        Number of singular components that the held-out entries confirm.
    missing : float
        Size of the largest structure left in the residuals, relative to X; 0 if there is none beyond noise.
    n_held : int
    """

    unexplained: float
    held_share: float
    fit_share: float
    supported: int
    missing: float
    n_held: int


@dataclass(frozen=True)
class Verdict:
    """`ok`, or a `cause` (one word) and a `message` (one sentence)."""

    ok: bool
    cause: str
    message: str


def examine(data: CoreData, core: Core, schedule: Schedule, seed: int) -> Evidence:
    """Measure a core against what it was not fitted to."""
    left = core.W * core.s
    xp = array_namespace(left)
    sample = residuals(left, core.V, data.sample)
    fit_share = _share_below(sample, schedule.floor)
    n_held = int(data.held[2].shape[0])
    if n_held < _LEAST_HELD:
        typical = float(quantile_abs(data.sample[2], 0.25))
        unexplained = float(quantile_abs(sample, 0.25)) / typical if typical > 0 else 0.0
        return Evidence(unexplained, fit_share, fit_share, core.rank, _missing(data, core, schedule, seed), n_held)
    held = residuals(left, core.V, data.held)
    # entries as they are, relative to the outlier-free part of them
    typical = float(quantile_abs(data.held[2], 0.25)) or float(xp.mean(xp.abs(data.held[2])))
    unexplained = float(quantile_abs(held, 0.25)) / typical if typical > 0 else 0.0
    supported = _supported(core, data, held)
    missing = _missing(data, core, schedule, seed)
    return Evidence(unexplained, _share_below(held, schedule.floor), fit_share, supported, missing, n_held)


def judge_core(checked: CheckedCore, data: CoreData, evidence: Evidence, accuracy: float, gamma: float) -> Verdict:
    """The verdict on the core alone."""
    core, r = checked.core, checked.core.rank
    per_row = float(np.median(checked.rows.n_obs))
    few = (
        f"the intersection has {per_row:.0f} observations per row (median) for rank {r}, and about {CORE_PER_RANK * r} are "
        "needed: observe more, choose more rows and columns, or ask for a smaller rank"
    )
    slack = max(0.05, 4 * (0.25 / max(evidence.n_held, 1)) ** 0.5)
    lost = checked.n_undetermined > 0.3 * (len(checked.rows.status) + len(checked.cols.status))
    overfit = evidence.held_share < evidence.fit_share - slack
    unproven = evidence.supported == 0 and evidence.n_held >= _LEAST_HELD
    unexplained = evidence.unexplained > 0.8 or unproven
    detail = f"{evidence.held_share:.0%} of the held-out entries agree with it, but {evidence.fit_share:.0%} of the fitted ones"
    if (overfit or lost or unexplained) and per_row < 0.9 * CORE_PER_RANK * r:
        return Verdict(False, "too few observations", f"No rank-{r} matrix is confirmed by the held-out entries: {few}.")
    if 0 < evidence.supported < r and not unexplained:
        return Verdict(
            False,
            "rank too large",
            f"Rank {r} is too large: the held-out entries confirm only {evidence.supported} components; ask for rank "
            f"{evidence.supported} or rank='auto'.",
        )
    if unexplained or lost:
        return Verdict(
            False,
            "unexplained",
            f"No rank-{r} matrix explains the held-out entries (residuals are {evidence.unexplained:.0%} of the entries): either "
            "too many of the observations are outliers (about half is the most that can be told apart), or the data are "
            "noise, or the rank is far too small; try another rank or rank='auto', and look at the data.",
        )
    if evidence.missing > 0.1 * accuracy:
        return Verdict(
            False,
            "rank too small",
            f"Rank {r} is too small: structure beyond it is left in the residuals; ask for a larger rank or rank='auto'.",
        )
    if overfit:
        return Verdict(
            False,
            "overfit",
            f"The solution is fitted to chance ({detail}): the rank may be wrong, there may be too many outliers, or the "
            f"threshold decayed too fast (gamma={gamma:g}; nearer to 1 is slower and safer).",
        )
    if not core.stopped:
        return Verdict(
            False,
            "not settled",
            f"The iteration had not settled after {len(core.history)} iterations: raise max_iter, or let the threshold decay "
            f"more slowly (gamma={gamma:g} now).",
        )
    if checked.n_undetermined:
        return Verdict(
            False,
            "undetermined",
            _undetermined_text(checked.rows, checked.cols, "of the intersection"),
        )
    return Verdict(True, "", "")


def judge_result(
    core_verdict: Verdict,
    columns: UnitDiagnostics,
    rows: UnitDiagnostics,
    extensions: tuple[Extension, Extension],
    schedule: Schedule,
    expected_error: float,
    accuracy: float,
) -> Verdict:
    """The verdict on everything."""
    if not core_verdict.ok and core_verdict.cause != "undetermined":
        return core_verdict
    problems = _held_out_problems(extensions, schedule)
    if expected_error > accuracy:
        text = (
            "The iteration settled, but noise, or outliers too many or too small to tell from it, limits the accuracy to "
            f"about {expected_error:.1%} (accuracy={accuracy:g} was asked for): observe more, or pass a larger accuracy if "
            "that is good enough."
        )
        problems.append(("noise", text))
    if len(columns.undetermined) or len(rows.undetermined):
        rest = "" if problems else ", the rest is confirmed"
        problems.append(("undetermined", _undetermined_text(rows, columns, "", rest)))
    if problems:
        return Verdict(False, problems[0][0], " ".join(text for _, text in problems))
    return Verdict(True, "", f"Converged; the error expected from what is left in the residuals is {expected_error:.1e}.")


def _held_out_problems(extensions: tuple[Extension, Extension], schedule: Schedule) -> list[tuple[str, str]]:
    """Whether the held-out entries outside of the core agree as well as the fitted ones."""
    problems = []
    for name, extension in zip(("columns", "rows"), extensions, strict=True):
        n_held, d = int(extension.held.shape[0]), extension.diagnostics
        if n_held < _LEAST_HELD:
            continue
        held_share = _share_below(extension.held, schedule.floor)
        fit_share = float(d.n_inliers.sum() / max(d.n_obs.sum(), 1))
        if held_share < fit_share - max(0.05, 4 * (0.25 / n_held) ** 0.5):
            text = (
                f"The {name} outside of the core are fitted to chance ({held_share:.0%} of their held-out entries agree, "
                f"{fit_share:.0%} of the fitted ones): too few observations per {name[:-1]} "
                f"(median {np.median(d.n_obs):.0f})."
            )
            problems.append(("too few observations", text))
    return problems


def _undetermined_text(rows: UnitDiagnostics, columns: UnitDiagnostics, where: str, rest: str = "") -> str:
    parts = []
    for name, d in (("columns", columns), ("rows", rows)):
        if len(d.undetermined):
            reasons = "; ".join(f"{count:,}: {reason}" for reason, count in d.reasons().items())
            parts.append(f"{len(d.undetermined):,} of {len(d.status):,} {name} (the first is {d.undetermined[0]}; {reasons})")
    place = f" {where}" if where else ""
    return (
        f"Not everything{place} could be determined: {' and '.join(parts)}. They are NaN in the result{rest}; "
        "observe more of them, or leave them out."
    )


def _share_below(residual: Array, floor: float) -> float:
    values = to_numpy(residual)
    return float((np.abs(values) < floor).mean()) if values.size else 1.0


def _supported(core: Core, data: CoreData, held: Array) -> int:
    """Components whose part in the held-out entries is really there.

    For each component: its product with the truth on held-out entries (clipped against outliers), over its square on
    fitted ones. That is 1 for a true component. It is about 0 for one that fits noise, and for one that fits the
    outliers of a single row, which is large only where the fit looked.
    """
    xp = array_namespace(held)
    part = _parts(core, data.held)
    fitted = _parts(core, data.sample)
    bound = xp.abs(part) + 3 * core.sigma
    clipped = xp.minimum(xp.maximum(held[:, None] + xp.zeros_like(part), -bound), bound)
    found = xp.mean(part * (part + clipped), axis=0)
    claimed = xp.mean(fitted * fitted, axis=0)
    return int(np.sum(to_numpy(found) > 0.5 * to_numpy(claimed)))


def _parts(core: Core, entries: tuple[Array, Array, Array]) -> Array:
    """What each singular component contributes to some entries (n, r)."""
    i, j, _ = entries
    return take_rows(core.W * core.s, i) * take_rows(core.V, j)


def _missing(data: CoreData, core: Core, schedule: Schedule, seed: int) -> float:
    """Size of the leading singular value of the inlying residuals, if it stands out from that of noise."""
    left = core.W * core.s
    xp = array_namespace(left)
    grid = data.grid
    kept, _, _ = grid.inlying(left, core.V, schedule.floor)
    m, n = grid.shape
    start = random_start(n, min(4, m, n), left, seed)
    _, s, _ = subspace_svd(lambda X: grid.mul(kept, X), lambda X: grid.rmul(kept, X), start, 1, steps=6)
    square = sum(float(xp.sum(panel * panel)) for panel in kept)
    noise_edge = square**0.5 * (m**-0.5 + n**-0.5)  # of independent noise with this norm
    top, norm = float(s[0]), float(xp.linalg.vector_norm(core.s))
    return top / data.rate / norm if top > _STRUCTURE * noise_edge and norm > 0 else 0.0
