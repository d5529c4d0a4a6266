"""``rcurc-gpu bench``: what is timed, what is left out and why, and the tables. Speeds themselves are not tested."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import DEVICE

from rcurc_gpu import cli
from rcurc_gpu.benchmark import Case, bench_words, make_cases, many_observations, run_bench, square
from rcurc_gpu.benchmark import measure as measuring
from rcurc_gpu.benchmark.measure import CPU, STREAMED, Timing, copy_gb_per_s
from rcurc_gpu.benchmark.measure import DEVICE as GPU
from rcurc_gpu.benchmark.run import Bounds, crossover
from rcurc_gpu.doctor import Machine, Place

TINY = Case("tiny", 80, 40, 0.6, rank=2)
TIMING = Timing("a", CPU, 10, 2, 100, "xp", 1.0, 2.0, 3, 10, 1e-3, 5.0, 2.0, 1e-12, 1e-12, True)


def timings(kind, seconds):
    """By number of observations, here and on the CPU, where each takes a second."""
    both = [(CPU, dict.fromkeys(seconds, 1.0)), (kind, seconds)]
    return [replace(TIMING, case=str(n), place=p, n_obs=n, seconds=s) for p, all_of in both for n, s in all_of.items()]


# ---------------------------------------------------------------- cases


def test_the_usual_cases_are_those_of_the_table():
    names = [case.name for case in make_cases()]
    assert sorted(names) == [
        "1e6 observations",
        "1e7 observations",
        "1e8 observations",
        "d = 10,000",
        "d = 3,000",
        "d = 500",
    ]
    counts = [case.n_obs for case in make_cases()]
    assert counts == sorted(counts)
    assert [case.name for case in make_cases(quick=True)] == ["d = 500", "1e6 observations", "d = 3,000"]


@pytest.mark.parametrize(
    "case", [square(300), many_observations(20_000), many_observations(1_000_000)], ids=lambda c: c.name
)
def test_a_case_has_about_as_many_observations_as_it_says(case):
    block = case.problem.samples
    assert block.r_block.n_obs + block.c_block.n_obs == pytest.approx(case.n_obs, rel=0.02)
    assert block.nbytes == pytest.approx(case.nbytes, rel=0.1)


def test_other_sizes_take_the_place_of_the_usual_ones():
    assert [case.size for case in make_cases(sizes=[300])] == [300]
    assert [(case.name, case.dtype) for case in make_cases(counts=[10**5], dtype="float32")] == [
        ("1e5 observations", "float32")
    ]


# ---------------------------------------------------------------- what is measured


def test_a_case_is_timed_on_the_cpu_with_its_true_error():
    machine = Machine(cpus=2, packages={"rcurc-gpu": "1"})
    report = run_bench(machine, [TINY], "cpu")
    (found,) = report["timings"]
    assert (found["case"], found["place"], found["n_obs"]) == ("tiny", CPU, TINY.problem.samples.n_obs)
    assert found["error"] < 1e-8
    assert found["pass_error"] < 1e-8  # the pass that is timed finds what it should
    assert found["converged"]
    assert 0 < found["core_seconds"] * found["iterations"] < 2 * found["seconds"] + 1
    assert found["pass_gb_per_s"] == pytest.approx(TINY.problem.samples.r_block.nbytes / found["pass_ns"] / TINY_R_OBS)
    assert report["crossover"] == {}
    assert not report["skipped"]
    assert not report["emulator"]


TINY_R_OBS = TINY.problem.samples.r_block.n_obs


def test_data_of_a_case_are_dropped_when_it_is_done():
    case = replace(TINY)
    run_bench(Machine(), [case], "cpu")
    assert "problem" not in case.__dict__


def test_what_memory_or_time_do_not_allow_is_named():
    report = run_bench(Machine(), [TINY], "cpu", memory=1000.0)
    assert not report["timings"]
    assert "GB of memory" in report["skipped"][0]["why"]
    report = run_bench(Machine(), [TINY], "cpu", seconds=0.0)
    assert report["skipped"] == [{"case": "tiny", "place": CPU, "why": "no time is left"}]
    assert "not timed: tiny, CPU: no time is left" in bench_words(report, Machine())


def test_a_case_that_would_take_too_long_is_not_begun():
    bounds = Bounds(end=0.0, memory=1e12)
    bounds.left = lambda: 100.0
    slow = [replace(TIMING, seconds=10.0, n_obs=TINY.n_obs)]
    place = Place(np, "cpu")
    assert bounds.forbids(TINY, CPU, place, slow) == ""
    longer = replace(TINY, size=TINY.size * 10)
    assert bounds.forbids(longer, CPU, place, slow) == "would take about 200 s, and 100 s are left"
    assert bounds.forbids(longer, STREAMED, place, slow) == ""  # nothing is known of another place


def test_memory_that_runs_out_is_named(monkeypatch):
    def fail(*given):
        raise MemoryError

    monkeypatch.setattr("rcurc_gpu.benchmark.run.measure", fail)
    report = run_bench(Machine(), [TINY], "cpu")
    assert report["skipped"][0]["why"] == "the memory was not enough"


def test_a_first_call_that_compiles_all_the_time_away_does_not_count(monkeypatch):
    """It took 200 s on a busy machine; taken for a solve, it would forbid all that comes after it."""
    calls = iter([100.0, 1.0, 1.0, 1.0])
    monkeypatch.setattr(measuring, "_timed", lambda work, place: (next(calls), work()))
    monkeypatch.setattr(measuring, "_fit_pass", lambda case, place: (None, None, None))
    timing = measuring.measure(TINY, CPU, Place(np, "cpu"), lambda: -50.0)
    assert (timing.first_seconds, timing.seconds, timing.repeats) == (100.0, 1.0, 1)


def test_a_copy_has_a_speed():
    assert 0.01 < copy_gb_per_s(Place(np, "cpu"), 2) < 1e5


# ---------------------------------------------------------------- crossover


def test_the_crossover_lies_where_the_ratio_is_one():
    # the GPU is faster by (n / 1e5)^0.5
    found = timings(GPU, {n: (n / 1e5) ** -0.5 for n in (10**4, 10**6, 10**7)})
    assert crossover(found, GPU) == pytest.approx(1e5)
    assert crossover(found, STREAMED) is None


@pytest.mark.parametrize(("seconds", "wanted"), [(0.5, 0.0), (2.0, None)])
def test_there_is_no_crossover_if_one_is_always_faster(seconds, wanted):
    assert crossover(timings(GPU, {10: seconds, 100: seconds}), GPU) == wanted


def test_a_place_that_is_faster_only_at_times_has_its_crossover_after_the_last_loss():
    found = timings(GPU, {10: 0.5, 100: 2.0, 10_000: 0.5})
    assert crossover(found, GPU) == pytest.approx(1000)


# ---------------------------------------------------------------- words


def made_up():
    timed = [replace(TIMING, case="d = 500"), replace(TIMING, case="d = 500", place=GPU, seconds=0.25, kernels="cuda")]
    timed.append(replace(timed[1], place=STREAMED, seconds=0.5, pass_ns=None, pass_gb_per_s=None, converged=False))
    return {
        "version": "1",
        "emulator": False,
        "timings": [t.__dict__ for t in timed],
        "skipped": [],
        "copy_gb_per_s": {CPU: 20.0, GPU: 1000.0},
        "stated_gb_per_s": {GPU: 1555.2},
        "first_call_seconds": {CPU: 9.2},
        "crossover": {GPU: 0.0, STREAMED: 12345.0},
        "busy_before": 0.4,
        "seconds": 10.0,
    }


def test_the_tables_have_seconds_ratios_and_shares():
    lines = bench_words(made_up(), Machine(processor="A fine CPU", cpus=8)).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert cells[0][-2:] == ["GPU against CPU", "GPU, streamed against CPU"]
    assert cells[2] == ["d = 500", "100", "1", "0.25", "0.5", "4 x", "2 x"]
    assert cells[5] == ["d = 500", "CPU", "xp", "10", "1", "5", "2", "10.0%", "1.0e-12"]
    assert cells[6][-2:] == ["0.2%", "1.0e-12"]
    assert cells[7][-4:] == ["-", "-", "-", "1.0e-12 (not confirmed)"]
    text = "\n".join(lines)
    assert "8 cores, A fine CPU" in text
    assert "the GPU is faster from about 1.2e+04 observations on" in text
    assert "the GPU is faster in all cases" in text
    assert "the first call took 9.2 s longer" in text
    assert "emulator" not in text


def test_a_busy_machine_is_called_one():
    assert "others were at work" not in bench_words(made_up(), Machine(cpus=8))
    assert "7.0 processes on 8 cores" in bench_words({**made_up(), "busy_before": 7.0}, Machine(cpus=8))


def test_an_emulator_is_called_one():
    assert "a CPU plays the GPU" in bench_words({**made_up(), "emulator": True}, Machine())


# ---------------------------------------------------------------- the command


def bench(*options):
    return CliRunner().invoke(cli.main, ["bench", *options])


def test_the_command_prints_tables():
    done = bench("--device", "cpu", "--sizes", "200")
    assert done.exit_code == 0, done.output
    assert "| d = 200 |" in done.stdout
    assert "cuda" not in done.stdout.split("Seconds of")[1]


def test_json_is_one_object():
    done = bench("--device", "cpu", "--observations", "2e4", "--json", "--dtype", "float32")
    report = json.loads(done.stdout)
    assert report["timings"][0]["case"] == "20,000 observations"
    assert report["timings"][0]["error"] < 1e-3


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--sizes", "1.5"], "is not a list"), (["--observations", "many"], "is not a list"), (["--seconds", "nan"], "finite")],
)
def test_wrong_options_are_told(options, said):
    done = bench(*options)
    assert done.exit_code == 2
    assert said in done.stderr


@pytest.mark.skipif(bool(DEVICE), reason="there is a device")
def test_a_device_that_is_not_there_is_told():
    done = bench("--device", "cuda:3", "--sizes", "200")
    assert done.exit_code == 2
    assert "--device cuda:3" in done.stderr


def test_nothing_timed_is_no_success():
    assert bench("--device", "cpu", "--sizes", "200", "--seconds", "0").exit_code == 1
