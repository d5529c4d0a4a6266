"""Whether a result can be trusted, and if not, why.

The paper's e_k falls with the threshold whatever X_k is, so it proves nothing. What proves something: entries held out
of the fit, structure left in the residuals, rows and columns whose observations do not agree, and the error expected
from noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..backends.arrays import to_numpy
from ..backends.linalg import subspace_svd
from ..backends.operators import random_start
from ..backends.plain.evidence import Compared, Measured
from ..backends.plain.regression import Schedule
from ..core.iteration import Checked, Core, diverged
from ..core.problem import CoreProblem
from ..extend.diagnostics import CONTESTED, ILL_CONDITIONED, Summary
from ..noise.model import NoiseFacts
from ..samples.choosing import NEEDED_PER_RANK
from .causes import USELESS, Cause, Evidence
from .faults import CoreFault, FittedToChance, StructuredOutliers, TooNoisy, Undetermined, Untied
from .groups import Groups, groups_in
from .noise_faults import Astray, MoreComponents, Noisy, NothingFound, Replaced, StillMoving, TooFewHeld, WronglySure
from .structure import Structure
from .ties import FREE, TIED_TO, Ties
from .words import Fault, Verdict

if TYPE_CHECKING:
    from ..backends.kernels import Kernels

_STRUCTURE = 1.5  # largest singular value of the residuals over that of noise of the same size
_LEAST_HELD = 50  # fewer held-out entries prove nothing
ENOUGH_HELD = 70  # to hold out on average, so that it is seldom fewer than that
_MANY_HELD = 300  # from which a component in a single row can be told from outliers there
_FEWEST_HELD = 20  # held-out entries below which nothing confirms a noise model
_DROWNED = 0.7  # error of predictions from which offsets alone say nothing: the noise is as large as the matrix
_CALIBRATED = 0.5  # by how much predicted standard deviations may have been off; more, and the noise is not as modelled
_ROUNDING = 1e-6  # lower quartile of held-out residuals, over that of the entries, that is none
_MOST_CERTAIN = 0.6  # share of the held-out entries that agree, at least, to be sure of components in single rows
_MOSTLY = 0.8  # share of agreeing entries from which it does not matter how many would agree by chance: all may be equal
# Share of the rows and columns that their observations do not tell, from which nothing is said of the rest: its structure
# was looked at without them (a function of a matrix of low rank: 24 % hung on single observations, and the rest was wrong).
# Those with a rival count as well: where they are many, others may have been won by theirs (16 % in a matrix of which large
# entries were missing, and the rest was wrong).
_MOST_HANGING = 0.1
_FINE = 1e-2  # threshold over a typical entry above which it is one of noise
# A gap below this is none. Groups that never met have 1e-10 to 1e-6, as rounding and the steps of Lanczos leave it.
_LEAST_GAP = 1e-4
_ALONE = 0.5  # of a component in one row or column from which it may be the outliers there


def examine(data: CoreProblem, core: Core, schedule: Schedule, seed: int, structure: float) -> Evidence:
    """Measure a core against what it was not fitted to, or, without held-out entries, against itself.

    Only entries count that tell something: in a matrix of many zeros, those that are 0, and are said to be, fit anything.
    Structure in the residuals is not looked for if there cannot be more than `structure`, relative to X.
    """
    # with noise as large as the entries, the threshold would leave none
    size = min(schedule.floor, 0.5 * data.sizes.median)
    kernels, factors = data.kernels, (core.W, core.s, core.V)
    fit, held = (kernels.measure(entries, factors, schedule.floor, size, core.sigma) for entries in (data.sample, data.held))
    held_out = held.n_informative >= _LEAST_HELD
    looked, y = (held, data.held[2]) if held_out else (fit, data.sample[2])
    compared = kernels.compare(looked, y, schedule.floor)
    # the sample has no zeros, and those that are said to be something else agree with nothing
    nonzero = 1 - held.n_zero / max(held.n_informative, 1) if held_out else 1.0
    return Evidence(
        unexplained=compared.residual / compared.value if looked.n_informative else 1.0,
        held_share=_share(looked.n_agree, looked.n_informative),
        fit_share=_share(fit.n_agree, fit.n_informative) * nonzero,
        supported=_supported(core, held, fit, kernels) if held_out else int(np.sum(_spread_out(core, kernels))),
        missing=_missing(data, core, schedule, seed, structure),
        informative_share=held.n_informative / held.n if held_out else 1.0,
        n_held=held.n_informative if held_out else 0,
        beyond_chance=_beyond_chance(looked, compared, schedule.floor),
        near_square=fit.near_square,
    )


def judge_core(checked: Checked, evidence: Evidence, structure: float, gamma: float, cut_short: bool) -> Verdict:
    """The verdict on the core alone; `structure`, relative to X, may be left in the residuals; `cut_short` if the user
    limited the iterations."""
    core, rows, _ = checked
    cause = Cause.NOT_SETTLED if cut_short and not core.stopped else _core_cause(checked, evidence, structure)
    if cause is Cause.NONE:
        return Verdict()
    per_row = float(np.median(rows.n_obs))
    return Verdict((CoreFault(cause, core.rank, per_row, len(core.history), gamma, evidence),))


def _core_cause(checked: Checked, e: Evidence, structure: float) -> Cause:
    """What is wrong with a core, worst first."""
    core, rows, cols = checked
    rank, n_undetermined = core.rank, len(rows.undetermined) + len(cols.undetermined)
    lost = n_undetermined > 0.3 * (len(rows.status) + len(cols.status))
    overfit = e.held_share < e.fit_share - _slack(e.n_held)
    unexplained = e.unexplained > 0.8 or e.supported == 0
    if diverged(core.history):
        return Cause.DIVERGED
    scarce = min(float(np.median(x.n_obs)) for x in (rows, cols)) < 0.9 * NEEDED_PER_RANK * rank
    if scarce and (overfit or lost or unexplained):
        return Cause.TOO_FEW_OBSERVATIONS
    if e.supported < rank and not unexplained:
        return Cause.RANK_TOO_LARGE
    if unexplained or lost:
        return Cause.UNEXPLAINED
    if e.missing > structure:
        return Cause.RANK_TOO_SMALL
    if overfit:
        return Cause.OVERFIT
    # Where most entries are zeros, which fit anything, more of the others have to agree.
    few = e.held_share < (0.45 if e.informative_share > 0.5 else 0.6)
    if few or (e.held_share < _MOSTLY and e.has_few_values and e.beyond_chance < 0.5):
        return Cause.TOO_MANY_OUTLIERS
    if not core.stopped:
        return Cause.NOT_SETTLED
    return Cause.UNDETERMINED if n_undetermined else Cause.NONE


def is_certain(evidence: Evidence, core: Core) -> bool:
    """Whether held-out entries agree to rounding as the fitted ones do, and no component is rounding."""
    s = to_numpy(core.s)
    real = bool(np.all(s > float(np.finfo(s.dtype).eps) ** 0.5 * s[0]))
    agrees = evidence.n_held >= _LEAST_HELD and evidence.held_share > max(
        _MOST_CERTAIN, evidence.fit_share - _slack(evidence.n_held)
    )
    return real and agrees and evidence.unexplained < _ROUNDING


def judge_ties(ties: Ties, core: Core, size: float) -> tuple[Verdict, Groups] | None:
    """The verdict on a core whose rows and columns are not tied together, and their groups; None if they are.

    A weak tie makes errors larger, by 1 over the gap at most. What is left in the residuals of the core, over the `size` of
    a typical entry, says how weak it may be: without noise, few rows that see both groups are enough.
    """
    if ties.gap > min(max(core.sigma / size / TIED_TO, _LEAST_GAP), FREE):
        return None
    groups = groups_in(ties, core.W, core.V)
    if not groups.apart:
        return Verdict((Untied(()),)), Groups(0 * groups.rows, 0 * groups.columns)
    return Verdict((Untied(tuple(groups.sizes())),)), groups


def _slack(n_held: int) -> float:
    """By how much the share of agreeing entries may differ between held-out and fitted ones."""
    return max(0.05, 4 * (0.25 / max(n_held, 1)) ** 0.5)


def judge_result(
    core_verdict: Verdict,
    columns: Summary,
    rows: Summary,
    outside: tuple[Summary, Summary],
    expected_error: float,
    accuracy: float | None,
    filled: str,
    few_values: bool = False,
) -> Verdict:
    """The verdict on everything; `outside` are the columns and the rows outside of the core.

    `filled` is what was put where something was not determined. With `few_values`, rounded ones for example, entries agree
    by chance: where these leave rows open, the rest may have agreed by chance as well.
    """
    if core_verdict.cause not in (Cause.NONE, Cause.UNDETERMINED):
        return core_verdict
    faults: list[Fault] = [*_held_out_faults(outside)]
    if not expected_error < USELESS:  # entries agree, but within noise that is as large as what was found
        faults.append(NothingFound(expected_error))
    if accuracy is not None and expected_error > accuracy:
        faults.append(TooNoisy(expected_error, accuracy))
    if columns.n_undetermined or rows.n_undetermined:
        untold = sum(x.by_status[status] for x in (columns, rows) for status in (ILL_CONDITIONED, CONTESTED))
        hanging = untold > _MOST_HANGING * (columns.n_units + rows.n_units)
        faults.append(Undetermined(columns, rows, alone=not (faults or hanging or few_values), filled=filled))
    return Verdict(tuple(faults), expected_error)


def judge_noise(
    core_verdict: Verdict, columns: Summary, rows: Summary, noise: NoiseFacts, accuracy: float | None
) -> Verdict:
    """The verdict on a result of the noise model."""
    confirmed = noise.confirmation
    # what no component explains may be noise or a matrix of a higher rank: nobody can tell
    drowned = len(noise.strengths) == 0 and not noise.prediction_error < _DROWNED
    useless = drowned or not noise.expected_error < USELESS
    if noise.gap < FREE:
        groups = None if noise.groups is None else Groups(*map(np.asarray, noise.groups))
        sizes = () if groups is None else tuple(groups.sizes())
        return Verdict((Untied(sizes),), noise.expected_error)
    # Too few observations for the rank that was asked for: residuals may be of components that were not found, not noise,
    # and the matrix as far off as held-out entries are.
    scarce = core_verdict.cause is Cause.TOO_FEW_OBSERVATIONS
    hidden = scarce and confirmed is not None and not confirmed.error < USELESS * confirmed.size
    if (useless or hidden) and not core_verdict.ok:
        return replace(core_verdict, expected_error=noise.expected_error)
    faults: list[Fault] = []
    if useless:
        faults.append(NothingFound(noise.expected_error, drowned))
    if confirmed is not None and confirmed.n_held < _FEWEST_HELD:
        faults.append(TooFewHeld(confirmed.n_held))
    if noise.left_over:
        faults.append(MoreComponents(len(noise.strengths)))
    if not noise.settled:
        faults.append(StillMoving(noise.n_sweeps))
    if confirmed is not None and confirmed.n_held >= _LEAST_HELD:
        slack = 1 + _CALIBRATED * (1 + 4 / confirmed.n_held**0.5)
        # Residuals far smaller than predicted are those of data without noise, whose model still shrinks. That proves
        # nothing where hardly anything ties it together (where the core is hardly seen, nine in ten entries fit anything,
        # and the matrix is wrong by half), where single rows disagree, or if it predicted errors that matter.
        proven = noise.gap > FREE and noise.expected_error < TIED_TO * confirmed.factor and noise.astray < TIED_TO
        if not (confirmed.factor < slack and (confirmed.factor > 1 / slack or proven)):
            faults.append(WronglySure(confirmed.factor))
    if accuracy is not None and noise.expected_error > accuracy:
        faults.append(TooNoisy(noise.expected_error, accuracy))
    if noise.replaced:
        faults.append(Replaced(noise.replaced))
    if noise.astray > USELESS:  # single rows, of another size than all others
        faults.append(Astray(noise.astray))
    better = confirmed.offsets_error / max(confirmed.error, 1e-300) if confirmed is not None and noise.offsets else 0.0
    return Verdict(tuple(faults), noise.expected_error, noise=Noisy(noise.prediction_error, better, columns, rows))


def with_structure(verdict: Verdict, structure: Structure | None, expected: bool) -> Verdict:
    """The verdict, if the rejected observations have this `structure`, which may be `expected`."""
    verdict = replace(verdict, structure=structure, structure_expected=expected)
    if structure is None or not structure.components or expected:
        return verdict
    faults = [replace(x, alone=False) if isinstance(x, Undetermined) else x for x in verdict.faults]
    # before what speaks of single rows and columns, or of the size of the error; after what is wrong with all of it
    lesser = [k for k, x in enumerate(faults) if isinstance(x, (Undetermined, TooNoisy))]
    faults.insert(lesser[0] if lesser else len(faults), StructuredOutliers(structure.components))
    return replace(verdict, faults=tuple(faults))


def _held_out_faults(outside: tuple[Summary, Summary]) -> Iterator[FittedToChance]:
    """Whether the held-out entries outside of the core agree as well as the fitted ones."""
    for name, units in zip(("columns", "rows"), outside, strict=True):
        if units.n_held < _LEAST_HELD:
            continue
        held_share = units.n_consensus / units.n_held
        fit_share = units.n_inliers / max(units.n_obs, 1)
        if held_share < fit_share - _slack(units.n_held):
            yield FittedToChance(name, held_share, fit_share, units.n_obs / units.n_units)


def _beyond_chance(looked: Measured, compared: Compared, floor: float) -> float:
    """Share of the entries that agree beyond those that would by chance; of all or of the informative ones, the larger.

    By chance, an entry agrees with what the solution says of another one. Of ratings from 1 to 5 two in five do, and a
    matrix of rank 3 that takes what was rounded for outliers is right for two in three.
    """
    if floor > _FINE * compared.typical:  # with noise all that is small agrees
        return 1.0
    shares = []
    for n, n_below, n_chance in (
        (looked.n, looked.n_below, compared.chance_of_all),
        (looked.n_informative, looked.n_agree, compared.chance),
    ):
        chance = n_chance / n if n else 0.0
        shares.append((_share(n_below, n) - chance) / max(1 - chance, 1e-3))
    return max(shares)


def _share(some: int, n: int) -> float:
    """1 of none."""
    return some / n if n else 1.0


def _supported(core: Core, held: Measured, fit: Measured, kernels: Kernels) -> int:
    """Components whose part in the held-out entries is really there.

    For each component: its product with the truth on held-out entries (clipped against outliers), over its square on
    fitted ones. That is 1 for a true component. It is about 0 for one that fits noise, and for one that fits the
    outliers of a single row, which is large only where the fit looked.
    """
    # the sample has none of the entries that are 0, the held-out ones are as they come
    claimed = fit.claimed * (held.n_nonzero / held.n)
    s = to_numpy(core.s)
    real = s > float(np.finfo(s.dtype).eps) ** 0.5 * s[0]  # the rest is what rounding leaves of nothing
    # one that lives where nothing was observed is claimed by nobody
    seen = claimed > 0.25 * s**2 / (core.W.shape[0] * core.V.shape[0])
    # of one row a few entries are held out at best, if all are few
    spread = _spread_out(core, kernels) if held.n < _MANY_HELD else np.ones(core.rank, dtype=bool)
    return int(np.sum(real & seen & spread & (held.found > 0.5 * claimed)))


def _spread_out(core: Core, kernels: Kernels) -> np.ndarray:
    """Which components are not mostly in one row or column, where outliers could have made them (r,)."""
    return np.asarray(kernels.largest_squares(core.W, core.V) <= _ALONE)


def _missing(data: CoreProblem, core: Core, schedule: Schedule, seed: int, structure: float) -> float:
    """Size of the leading singular value of the inlying residuals, if it stands out from that of noise.

    0 if all singular values together are less than `structure`.
    """
    grid, left = data.grid, core.left
    m, n = grid.shape
    norm = float(np.linalg.norm(to_numpy(core.s)))
    none = structure * data.rate * norm
    if schedule.floor * data.block.n_obs**0.5 <= none:  # as in most cores of data without noise: all of them are below it
        return 0.0
    square = data.tally(left, core.V, schedule.floor).square
    if square**0.5 <= none:
        return 0.0
    if not np.isfinite(square):  # a core that diverged: held-out entries say so
        return 0.0
    kept, _, _ = grid.inlying(left, core.V, schedule.floor)
    start = random_start(n, min(4, m, n), left, seed)
    _, s, _ = subspace_svd(lambda X: grid.mul(kept, X), lambda X: grid.rmul(kept, X), start, 1, steps=6)
    noise_edge = square**0.5 * (m**-0.5 + n**-0.5)  # of independent noise with this norm
    top = float(s[0])
    return top / data.rate / norm if top > _STRUCTURE * noise_edge and norm > 0 else 0.0
