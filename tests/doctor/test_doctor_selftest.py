"""The doctor's self-test: it goes on whatever happens, and it sees wrong kernels."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rcurc_gpu.backends import Block, operators
from rcurc_gpu.backends.kernels import XP, choose
from rcurc_gpu.backends.plain.posterior import PLAIN_STEPS, MatrixSteps
from rcurc_gpu.doctor import run
from rcurc_gpu.doctor.checks import QUICK_RANKS, SUMS, kernel_checks, operator_checks, plain_checks, solve_checks
from rcurc_gpu.doctor.probes import Machine
from rcurc_gpu.doctor.selftest import Check, Place, Trial, largest_difference, run_check, run_checks
from rcurc_gpu.doctor.step_checks import STEPS, step_checks

CPU = Place(np, "cpu")


def trial(run_it=lambda: 1.0, difference=lambda got: 0.0, work=8.0):
    return Trial(run_it, difference, 0.1, work)


def wrong_kernel():
    raise RuntimeError("no such\nkernel")


def test_a_check_that_raises_fails_and_the_others_go_on():
    checks = [
        Check("g", "raises", lambda place, size: trial(wrong_kernel), 1, 1),
        Check("g", "differs", lambda place, size: trial(difference=lambda got: 0.2), 1),
        Check("g", "is not a number", lambda place, size: trial(difference=lambda got: float("nan")), 1),
        Check("g", "cannot be made", lambda place, size: wrong_kernel(), 1),
        Check("g", "is right", lambda place, size: trial(), 1, 1),
    ]
    outcomes = list(run_checks(CPU, checks))
    assert [o.passed for o in outcomes] == [False, False, False, False, True]
    assert outcomes[0].reason == "RuntimeError: no such kernel"
    assert outcomes[1].reason == "differs by 0.2, more than 0.1"
    assert "nan" in outcomes[2].reason
    assert outcomes[4].throughput > 0
    words = [run.outcome_words(o) for o in outcomes]
    assert "RuntimeError: no such kernel" in words[0]
    assert "obs/s" in words[4]


def test_the_parts_of_a_check_are_named_when_they_fail():
    parts = {"good": lambda place, size: trial(), "bad": lambda place, size: trial(difference=lambda got: 3.0)}
    outcome = run_check(CPU, Check("g", "n", parts, 1))
    assert (outcome.passed, outcome.difference) == (False, 3.0)
    strange = {"nan": lambda place, size: trial(difference=lambda got: float("nan")), **parts}
    assert np.isnan(run_check(CPU, Check("g", "n", strange, 1)).difference)
    assert outcome.reason == "bad: differs by 3, more than 0.1"
    many = {str(k): lambda place, size: trial(wrong_kernel) for k in range(5)}
    assert run_check(CPU, Check("g", "n", many, 1)).reason.endswith("; and 2 more")


def test_quick_does_not_time():
    def make(place, size):
        assert size == 1
        return trial()

    outcome = run_check(CPU, Check("g", "n", make, 1, 1000), quick=True)
    assert (outcome.passed, outcome.throughput) == (True, None)


def test_a_failure_with_more_data_is_a_failure_unless_memory_runs_out():
    def make(error):
        return lambda place, size: trial() if size == 1 else trial(load_nothing_now(error))

    assert "fails with more data" in run_check(CPU, Check("g", "n", make(RuntimeError("x")), 1, 2)).reason
    full = run_check(CPU, Check("g", "n", make(MemoryError()), 1, 2))
    assert (full.passed, full.reason) == (True, "not timed: not enough memory")
    assert "not enough memory" in run.outcome_words(full)


def load_nothing_now(error):
    def run_it():
        raise error

    return run_it


class LostDevice:
    """A namespace whose device stops answering at the first failure."""

    def __init__(self, hangs):
        self.hangs = hangs
        self.cuda = SimpleNamespace(Event=lambda: SimpleNamespace(record=lambda: None, done=not self.hangs))

    def array(self, x):
        raise RuntimeError("cudaErrorIllegalAddress")


def test_after_a_device_is_lost_nothing_more_is_run():
    checks = [Check("g", str(k), lambda place, size: trial(wrong_kernel), 1) for k in range(3)]
    outcomes = list(run_checks(Place(LostDevice(False), "cuda:0"), checks))
    assert [o.skipped for o in outcomes] == [False, True, True]
    assert "not run: the device does not answer since '0'" in outcomes[1].reason
    assert run.make_report(Machine(), [], CPU, outcomes, False)["device_lost"]


def test_a_kernel_that_hangs_is_not_waited_for():
    with pytest.raises(TimeoutError, match="did not end within 0 s"):
        Place(LostDevice(True), "cuda:0").wait(0.05)


def test_differences_are_relative_and_nan_is_the_largest():
    assert largest_difference(np.asarray([1.0, 9.0]), np.asarray([1.0, 10.0])) == pytest.approx(0.1)
    assert largest_difference([np.zeros(2), np.ones(1)], [np.zeros(2), np.full(1, 2.0)]) == 0.5
    assert np.isnan(largest_difference([np.asarray([np.nan]), np.ones(1)], [np.ones(1), np.zeros(1)]))
    assert largest_difference(np.zeros((0, 2)), np.zeros((0, 2))) == 0
    with pytest.raises(AssertionError, match="shape"):
        largest_difference(np.zeros(2), np.zeros(3))


# ---------------------------------------------------------------- its checks


def test_the_plain_code_is_right():
    outcomes = list(run_checks(CPU, plain_checks() + solve_checks(CPU), quick=True))
    assert [o.reason for o in outcomes if not o.passed] == []
    assert len(outcomes) == 9


def test_the_kernels_of_this_installation_are_right():
    outcomes = list(run_checks(CPU, kernel_checks(choose("auto", np.zeros(1)), QUICK_RANKS), quick=True))
    assert [(o.name, o.reason) for o in outcomes if not o.passed] == []


def failures(kernels, *words):
    checks = [c for c in kernel_checks(kernels) if any(w in c.name for w in words)]
    return [o.reason for o in run_checks(CPU, checks, quick=True) if not o.passed]


@pytest.mark.parametrize("change", ["seed", "telling", "start", "white"])
def test_a_wrong_regression_is_seen(change):
    def regress(block, units, basis, usable, white, names, look):
        if change == "seed":
            names = replace(names, seed=names.seed + 1)
        if change == "telling":
            look = replace(look, informative=1.0)
        if change == "start" and look.start is not None:
            look = replace(look, start=1.001 * look.start)
        if change == "white":
            white = 1.001 * white
        return XP.regress(block, units, basis, usable, white, names, look)

    assert len(failures(replace(XP, regress=regress), "regress, rank 1, float64", "regress, rank 5, float64")) == 2


@pytest.mark.parametrize("begin", ["part", "subsets"])
def test_a_wrong_draw_is_seen(begin):
    def regress(block, units, basis, usable, white, names, look):
        if look.begin == begin:  # the names of units are what the draws depend on; nothing else changes without holdout
            names = replace(names, unit=names.unit + 1)
        return XP.regress(block, units, basis, usable, white, names, look)

    assert any(begin in reason for reason in failures(replace(XP, regress=regress), "regress, rank 1, float64"))


def test_a_wrong_recursion_is_seen():
    def advance(block, units, usable, ids, iterates, a):
        return XP.advance(block, units, usable, ids, replace(iterates, step_size=1.0001 * iterates.step_size), a)

    assert len(failures(replace(XP, advance=advance), "advance, float64")) == 1


@pytest.mark.parametrize("method", ["threshold", "mul", "rmul", "inlying", "floor_threshold", "change"])
def test_a_wrong_grid_is_seen(method):
    def make_grid(block, weight, chunk_bytes):
        grid = XP.make_grid(block, weight, chunk_bytes)
        right = getattr(grid, method)

        def wrong(*arguments):
            found = right(*arguments)
            if method == "threshold":
                return (*found[:4], found[4] + 1)
            return (found[0], found[1] + 1, found[2]) if method == "inlying" else found * 1.001

        setattr(grid, method, wrong)
        return grid

    assert failures(replace(XP, make_grid=make_grid), "grid")


@pytest.mark.parametrize(("name", "where"), [(name, where) for where, names in SUMS.items() for name in names])
def test_wrong_sums_are_seen(name, where):
    def off(x):
        return tuple(map(off, x)) if isinstance(x, tuple) else x * (1 + 1e-6)

    def wrong(*arguments):
        found = getattr(XP, name)(*arguments)
        if name != "make_side":
            return off(found)
        return SimpleNamespace(weigh=found.weigh, couple=found.couple, clipped=lambda *given: off(found.clipped(*given)))

    instead = MatrixSteps(solve=lambda *given: off(PLAIN_STEPS.solve(*given))) if name == "matrix_steps" else wrong
    (reason, _) = failures(replace(XP, **{name: instead}), f"{where}, ")  # of both dtypes
    assert name in reason


def _off(x):
    if isinstance(x, tuple):
        made = [_off(x[0]), *x[1:]]
        return type(x)(*made) if hasattr(x, "_fields") else tuple(made)
    if isinstance(x, Block):
        return replace(x, value=x.value + 1)
    return ~x if isinstance(x, np.ndarray) and x.dtype == bool else x + 1


WRONG = {
    "blocks": ("join",),
    "layout": ("held_out", "make_grid"),
    "votes": ("held_out", "agreeing", "split", "rests_on_one"),
    "evidence": ("compare", "sizes", "basis_facts", "largest_squares"),
    "ties of a core": ("grams",),
    "verdicts": ("judge", "diagnose"),
}


@pytest.mark.parametrize(("step", "name"), [(step, name) for step, names in WRONG.items() for name in names])
def test_wrong_steps_are_seen(step, name):
    def wrong(*arguments):
        if name == "make_grid":  # of other weights
            return XP.make_grid(arguments[0], 0 * arguments[1], *arguments[2:])
        if name == "diagnose":
            return XP.diagnose(0 * arguments[0], *arguments[1:])
        found = getattr(XP, name)(*arguments)
        return (found[1] * 0 + 1, found[1]) if name == "judge" else _off(found)

    assert failures(replace(XP, **{name: wrong}), f"{step}, ")


def test_the_steps_of_numpy_are_right():
    assert all(o.passed for o in run_checks(CPU, step_checks(XP), quick=True))
    assert {*WRONG, "cross"} == set(STEPS)


def test_wrong_operators_are_seen():
    wrong = SimpleNamespace(
        hard_threshold=lambda M, zeta: operators.hard_threshold(M, zeta) * (1 + 1e-6),
        union_sum=lambda **arguments: operators.union_sum(**{**arguments, "step_cols": 1.0}),
    )
    assert not any(o.passed for o in run_checks(CPU, operator_checks("wrong", wrong), quick=True))
