"""``rcurc-gpu doctor``: what it finds on machines of all kinds, and that its self-test sees wrong kernels.

The machines are made up; what CuPy says on a device is in test_doctor_cupy.py.
"""

import ctypes
import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from rcurc_gpu import __version__, cli, operators
from rcurc_gpu.doctor import probes, report, run
from rcurc_gpu.doctor.checks import operator_checks, plain_checks, solve_checks
from rcurc_gpu.doctor.findings import FAIL, OK, WARN, findings
from rcurc_gpu.doctor.kernel_checks import QUICK_RANKS, kernel_checks
from rcurc_gpu.doctor.probes import Cupy, Device, Driver, Machine, Probes, Smi
from rcurc_gpu.doctor.selftest import Check, Outcome, Place, Trial, largest_difference, run_check, run_checks
from rcurc_gpu.fused import XP, choose

CPU = Place(np, "cpu")
A100 = Device("NVIDIA A100", (8, 0), 40_000_000_000)
V100 = Device("Tesla V100", (7, 0), 16_000_000_000)
K80 = Device("Tesla K80", (3, 7), 12_000_000_000)
PACKAGES = {"rcurc-gpu": __version__, "numpy": "2.4", "numba": "0.68"}
BARE = Machine("3.12.0", "Linux", 8, PACKAGES)
NO_DEVICE = "CUDARuntimeError: cudaErrorInsufficientDriver: CUDA driver version is insufficient"


def machine(driver=None, devices=(A100,), wheel=None, cupy=None, **more):
    """A machine with a driver for some CUDA and some wheel of CuPy."""
    return replace(
        BARE,
        driver=Driver() if driver is None else Driver(driver, 0, "", devices),
        wheels={wheel: "14.2.0"} if wheel else {},
        cupy=cupy,
        **more,
    )


def working(cuda=13, devices=(A100,), **more):
    return Cupy("14.2.0", runtime=(cuda, 0), driver=(13, 0), nvrtc=(cuda, 0), devices=devices, **more)


def broken(cuda=13, **more):
    return Cupy("14.2.0", runtime=(cuda, 0), nvrtc=(cuda, 0), devices_error=NO_DEVICE, **more)


SITUATIONS = {
    "nothing": (machine(), OK, "no NVIDIA driver: the CPU is used", ""),
    "CuPy without a driver": (
        machine(wheel="cupy-cuda13x", cupy=broken()),
        WARN,
        "cupy-cuda13x 14.2.0 is installed, but there is no NVIDIA driver",
        "nothing, if this machine has no NVIDIA GPU",
    ),
    "a card without a driver": (machine(cards=1), WARN, "but no driver for it", "install NVIDIA's driver 580"),
    "a card outside of the container": (machine(cards=1, container=True), WARN, "container", "docker run --gpus all"),
    "a new driver without CuPy": (
        machine((13, 0)),
        WARN,
        "there is a GPU (NVIDIA A100, CUDA 13.0), but CuPy is not installed",
        'pip install "cupy-cuda13x[ctk]"',
    ),
    "a driver for CUDA 12 without CuPy": (machine((12, 4)), WARN, "CUDA 12.4", 'pip install "cupy-cuda12x[ctk]"'),
    "a GPU that CUDA 13 does not know": (machine((13, 0), (V100,)), WARN, "V100", 'pip install "cupy-cuda12x[ctk]"'),
    "an old driver": (machine((11, 4)), FAIL, "too old: it serves CUDA 11.4", "install driver 525 or newer"),
    "an old driver and CuPy": (
        machine((11, 4), wheel="cupy-cuda12x", cupy=broken(12)),
        FAIL,
        "too old: it serves CUDA 11.4",
        "install driver 525 or newer",
    ),
    "a wheel newer than the driver": (
        machine((12, 4), wheel="cupy-cuda13x", cupy=broken()),
        FAIL,
        "cupy-cuda13x 14.2.0 needs a driver for CUDA 13, and this one serves CUDA 12.4",
        'pip uninstall -y cupy-cuda13x && pip install "cupy-cuda12x[ctk]"   or update the driver to 580',
    ),
    "a wheel newer than the driver, that cannot be imported": (
        machine((12, 4), wheel="cupy-cuda13x", cupy=Cupy(error="ImportError: libcudart")),
        FAIL,
        "needs a driver for CUDA 13",
        "pip uninstall -y cupy-cuda13x",
    ),
    "a wheel that is too old": (
        machine((12, 4), wheel="cupy-cuda11x", cupy=broken(11)),
        FAIL,
        "is for CUDA 11, which is too old",
        'pip uninstall -y cupy-cuda11x && pip install "cupy-cuda12x[ctk]"',
    ),
    "a wheel for AMD": (
        machine((12, 4), wheel="cupy-rocm-5-0", cupy=Cupy(error="ImportError: libamdhip64.so")),
        FAIL,
        "is for AMD's GPUs",
        'pip uninstall -y cupy-rocm-5-0 && pip install "cupy-cuda12x[ctk]"',
    ),
    "CuPy that cannot be imported": (
        machine((12, 4), wheel="cupy-cuda12x", cupy=Cupy(error="ImportError: libcublas.so.12")),
        FAIL,
        "CuPy cannot be imported: ImportError: libcublas.so.12",
        'pip install "cupy-cuda12x[ctk]"',
    ),
    "CuPy that finds nothing, for no known reason": (
        machine((13, 0), wheel="cupy-cuda13x", cupy=replace(broken(), devices_error="CUDARuntimeError: 999")),
        FAIL,
        "CuPy cannot use it: CUDARuntimeError: 999",
        "pip uninstall",
    ),
    "two wheels": (
        replace(machine((13, 0), cupy=broken()), wheels={"cupy-cuda12x": "13.6", "cupy-cuda13x": "14.2"}),
        FAIL,
        "2 packages of CuPy overwrite each other: cupy-cuda12x, cupy-cuda13x",
        'pip uninstall -y cupy-cuda12x cupy-cuda13x && pip install "cupy-cuda13x[ctk]"',
    ),
    "two wheels that work": (
        replace(machine((13, 0), cupy=working()), wheels={"cupy-cuda12x": "13.6", "cupy-cuda13x": "14.2"}),
        WARN,
        "2 packages of CuPy overwrite each other",
        "pip uninstall -y cupy-cuda12x cupy-cuda13x",
    ),
    "a GPU": (machine((13, 0), wheel="cupy-cuda13x", cupy=working()), OK, "CuPy 14.2.0 has 1 device", ""),
    "a GPU too old for its wheel": (
        machine((13, 0), (V100,), "cupy-cuda13x", working(devices=(V100,))),
        FAIL,
        "cuda:0 (Tesla V100) has compute capability 7.0, and CUDA 13 begins at 7.5",
        'pip uninstall -y cupy-cuda13x && pip install "cupy-cuda12x[ctk]"',
    ),
    "a GPU too old for everything": (
        machine((12, 0), (K80,), "cupy-cuda12x", working(12, devices=(K80,))),
        FAIL,
        "compute capability 3.7",
        "use --device cpu",
    ),
    "a GPU without NVIDIA's libraries": (
        machine((13, 0), wheel="cupy-cuda12x", cupy=working(12, missing={"cublas": "ImportError: libcublas.so.12"})),
        FAIL,
        "CuPy lacks libraries of CUDA: cublas (ImportError: libcublas.so.12)",
        'pip install "cupy-cuda12x[ctk]"',
    ),
    "an old CuPy": (
        machine((12, 0), wheel="cupy-cuda12x", cupy=replace(working(12), version="12.3.0")),
        WARN,
        "CuPy 12.3.0 is older than 13.4",
        'pip install --upgrade "cupy-cuda12x[ctk]"',
    ),
    "CuPy with a warning": (
        machine((13, 0), wheel="cupy-cuda13x", cupy=working(warnings=("cuTENSOR is missing",))),
        WARN,
        "CuPy warns: cuTENSOR is missing",
        "",
    ),
    "ROCm": (machine(wheel="cupy-rocm-5-0", cupy=working(5, rocm=True)), WARN, "ROCm", "please report"),
    "all devices hidden": (
        replace(machine(visible="", smi=Smi("580.1", ("A100",))), driver=Driver((13, 0), 100, "CUDA_ERROR_NO_DEVICE")),
        WARN,
        "CUDA_VISIBLE_DEVICES='' leaves 0 of 1 devices",
        "unset CUDA_VISIBLE_DEVICES",
    ),
    "a hidden device": (
        machine((13, 0), wheel="cupy-cuda13x", cupy=working(), visible="0", smi=Smi("580.1", ("A100", "A100"))),
        WARN,
        "CUDA_VISIBLE_DEVICES='0' leaves 1 of 2 devices",
        "unset CUDA_VISIBLE_DEVICES",
    ),
    "a driver without a device": (
        replace(machine(), driver=Driver((13, 0), 100, "CUDA_ERROR_NO_DEVICE")),
        WARN,
        "the NVIDIA driver (CUDA 13.0) finds no device",
        "nvidia-smi",
    ),
    "a driver that was just updated": (
        replace(machine(), driver=Driver((13, 0), 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")),
        FAIL,
        "the NVIDIA driver does not start: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)",
        "restart the machine",
    ),
    "a driver with an unheard-of problem": (
        replace(machine(), driver=Driver((13, 0), 7, "CUDA error 7")),
        FAIL,
        "does not start: CUDA error 7",
        "nvidia-smi",
    ),
    "no Numba": (replace(BARE, packages={"numba": None}), WARN, "Numba is not installed", "pip install numba"),
    "a Numba that cannot be imported": (
        replace(BARE, numba_error="ImportError: Numba needs NumPy 2.2 or less"),
        WARN,
        "Numba cannot be imported: ImportError: Numba needs NumPy 2.2 or less",
        "pip install --upgrade numba",
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_each_situation_is_named_with_what_to_do(name):
    state, level, what, advice = SITUATIONS[name]
    found = findings(state)
    assert any(f.level == level and what in f.what and advice in f.advice for f in found), found
    worst = FAIL if level == FAIL else WARN
    assert all(f.level != FAIL for f in found) or worst == FAIL


@pytest.mark.parametrize("name", SITUATIONS)
def test_each_situation_can_be_told(name):
    state = SITUATIONS[name][0]
    found = findings(state)
    words = "\n".join([report.machine_words(state), report.findings_words(found)])
    assert "None" not in words
    assert state.driver.problem in words
    made = report.make_report(state, found, CPU, [], False)
    assert made["passed"] == all(f.level != FAIL for f in found)
    assert made["next"]
    assert json.dumps(cli._jsonable(made), allow_nan=False)


def test_what_is_wrong_with_a_gpu_does_not_matter_to_the_cpu():
    state = SITUATIONS["a wheel newer than the driver"][0]
    assert {f.level for f in findings(state, "cpu")} == {WARN, OK}


def test_numba_does_not_matter_to_a_gpu():
    state = replace(SITUATIONS["a GPU"][0], packages={"numba": None})
    assert [f.level for f in findings(state)] == [OK]
    assert any("Numba" in f.what for f in findings(state, "cpu"))


@pytest.mark.parametrize(
    ("state", "device", "what"),
    [
        ("nothing", "cuda", "--device cuda was asked for, but CuPy has no device"),
        ("a GPU", "cuda:1", "--device cuda:1 was asked for, but CuPy has only cuda:0"),
    ],
)
def test_a_device_that_is_not_there_is_a_failure(state, device, what):
    state = SITUATIONS[state][0]
    assert what in [f.what for f in findings(state, device) if f.level == FAIL]
    assert run.choose_place(state, device) is None


# ---------------------------------------------------------------- probes


class FakeDriver:
    """libcuda, as far as it is asked."""

    def __init__(self, version=12040, code=0, devices=(A100,), names=True):
        self.version, self.code, self.devices, self.names = version, code, devices, names

    def cuDriverGetVersion(self, number):
        number._obj.value = self.version
        return 0

    def cuInit(self, flags):
        return self.code

    def cuDeviceGetCount(self, number):
        number._obj.value = len(self.devices)
        return 0

    def cuDeviceGet(self, handle, k):
        handle._obj.value = k

    def cuDeviceGetName(self, buffer, size, handle):
        buffer.value = self.devices[handle.value].name.encode()

    def cuDeviceGetAttribute(self, number, attribute, handle):
        number._obj.value = self.devices[handle.value].capability[attribute - 75]

    def cuDeviceTotalMem_v2(self, number, handle):
        number._obj.value = self.devices[handle.value].memory

    def cuGetErrorName(self, code, text):
        if not self.names:
            raise AttributeError("cuGetErrorName")
        text._obj.value = b"CUDA_ERROR_NO_DEVICE"


def test_the_driver_is_asked_for_its_version_and_devices():
    found = probes.look_at_driver(lambda name: FakeDriver(devices=(A100, V100)), "Linux")
    assert found == Driver((12, 4), 0, "", (A100, V100))


def test_a_driver_that_does_not_start_says_why():
    assert probes.look_at_driver(lambda name: FakeDriver(code=100), "Linux") == Driver((12, 4), 100, "CUDA_ERROR_NO_DEVICE")
    old = FakeDriver(code=999, names=False)
    assert probes.look_at_driver(lambda name: old, "Windows") == Driver((12, 4), 999, "CUDA error 999")


def test_a_library_that_is_no_driver_is_survived():
    found = probes.look_at_driver(lambda name: object(), "Linux")
    assert found.version == (0, 0)
    assert "cuDriverGetVersion" in found.problem


def test_no_driver_is_no_error():
    def load(name):
        raise OSError(f"{name}: cannot open shared object file")

    assert probes.look_at_driver(load, "Linux").version is None
    assert probes.look_at_driver(ctypes.CDLL, "Darwin") == Driver()


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        (SimpleNamespace(returncode=0, stdout="580.65, A100\n580.65, T4\n", stderr=""), Smi("580.65", ("A100", "T4"))),
        (SimpleNamespace(returncode=9, stdout="NVIDIA-SMI has\nfailed", stderr=""), Smi(problem="NVIDIA-SMI has failed")),
        (subprocess.TimeoutExpired("nvidia-smi", 20), None),
    ],
)
def test_nvidia_smi_is_asked(done, expected):
    def run_it(*arguments, **options):
        if isinstance(done, Exception):
            raise done
        return done

    found = probes.ask_smi(run_it, lambda name: "/bin/nvidia-smi")
    assert found == expected or (expected is None and "timed out" in found.problem)
    assert probes.ask_smi(run_it, lambda name: None) is None


def test_cards_are_seen_on_the_bus(tmp_path):
    for k, (kind, vendor) in enumerate([("0x030200", "0x10de"), ("0x030000", "0x8086"), ("0x020000", "0x10de")]):
        (tmp_path / str(k)).mkdir()
        (tmp_path / str(k) / "class").write_text(kind + "\n")
        (tmp_path / str(k) / "vendor").write_text(vendor + "\n")
    assert probes.count_cards(tmp_path) == 1
    assert probes.count_cards(tmp_path / "none") == 0


def test_a_container_is_recognised(tmp_path):
    assert not probes.in_container((str(tmp_path / "mark"),))
    (tmp_path / "mark").touch()
    assert probes.in_container((str(tmp_path / "mark"),))


def load_nothing(error):
    def load(name):
        raise error

    return load


def test_cupy_that_is_not_installed_is_none():
    assert probes.look_at_cupy(load_nothing(ModuleNotFoundError("No module named 'cupy'", name="cupy"))) is None


def test_an_import_error_of_cupy_becomes_one_line():
    said = (
        "\n================\nFailed to import CuPy.\n\nIf you installed CuPy via wheels, ...\n\nOriginal error:\n"
        "  ImportError: libcublas.so.12: cannot open\n================================\n"
    )
    found = probes.look_at_cupy(load_nothing(ImportError(said)))
    assert found == Cupy(error="ImportError: libcublas.so.12: cannot open")
    assert probes.look_at_cupy(load_nothing(OSError("broken"))).error == "OSError: broken"
    assert (
        "cuda.pathfinder"
        in probes.look_at_cupy(load_nothing(ModuleNotFoundError("No module named 'cuda.pathfinder'"))).error
    )


def test_half_a_cupy_is_survived():
    found = probes.look_at_cupy(lambda name: SimpleNamespace(__name__=name))
    assert "AttributeError" in found.error


def test_a_long_error_is_cut_and_homes_are_left_out(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert probes.one_line(ValueError(f"in {tmp_path}/x:\n  wrong")) == "ValueError: in ~/x: wrong"
    assert len(probes.one_line("x" * 1000)) == 240


def test_wheels_are_found_by_their_names(monkeypatch):
    names = ["cupy-cuda12x", "cupy_cuda13x", "cupy", "cupy-rocm-5-0", "cupyx", "numpy"]
    there = [SimpleNamespace(metadata={"Name": name}, version="1") for name in names] + [SimpleNamespace()]
    monkeypatch.setattr(probes.importlib.metadata, "distributions", lambda: there)
    assert list(probes.cupy_wheels()) == ["cupy", "cupy-cuda12x", "cupy-cuda13x", "cupy-rocm-5-0"]


def test_a_numba_that_cannot_be_imported_says_why(monkeypatch):
    monkeypatch.setattr(probes, "_version_of", lambda name: "0.1")
    monkeypatch.setitem(sys.modules, "numba", None)
    assert "numba" in probes.numba_error()
    monkeypatch.setattr(probes, "_version_of", lambda name: None)
    assert probes.numba_error() == ""


def test_an_examination_takes_all_looks():
    looked = probes.examine(Probes(cupy=lambda: None, smi=lambda: None, driver=lambda: Driver((12, 0)), visible=lambda: "3"))
    assert looked.packages["rcurc-gpu"] == __version__
    assert looked.packages["numpy"] == np.__version__
    assert (looked.driver.version, looked.visible, looked.cupy) == ((12, 0), "3", None)
    assert looked.cpus >= 1


# ---------------------------------------------------------------- the self-test


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
    words = [report.outcome_words(o) for o in outcomes]
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
    assert "not enough memory" in report.outcome_words(full)


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
    assert report.make_report(BARE, [], CPU, outcomes, False)["device_lost"]


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
            look = replace(look, telling=1.0)
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
    def advance(block, units, usable, names, bases, turns, zetas, step_size, a):
        return XP.advance(block, units, usable, names, bases, turns, zetas, 1.0001 * step_size, a)

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


def test_wrong_operators_are_seen():
    wrong = SimpleNamespace(
        hard_threshold=lambda M, zeta: operators.hard_threshold(M, zeta) * (1 + 1e-6),
        union_sum=lambda **arguments: operators.union_sum(**{**arguments, "step_cols": 1.0}),
    )
    assert not any(o.passed for o in run_checks(CPU, operator_checks("wrong", wrong), quick=True))


# ---------------------------------------------------------------- the command


@pytest.fixture
def doctor(monkeypatch):
    """Run the command on some machine, with a check or two."""

    def invoke(*options, state=BARE, checks=()):
        monkeypatch.setattr(run, "examine", lambda: state)
        monkeypatch.setattr(run, "all_checks", lambda *given: list(checks))
        return CliRunner().invoke(cli.main, ["doctor", *options], prog_name="rcurc-gpu")

    return invoke


GOOD = Check("g", "good", lambda place, size: trial(), 1, 1)
BAD = Check("g", "bad", lambda place, size: trial(wrong_kernel), 1)


def test_a_healthy_machine_ends_with_0(doctor):
    done = doctor(checks=[GOOD])
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    for part in (
        "Installed",
        "Devices",
        "Findings",
        "Self-test on cpu",
        "g: good",
        "Verdict: all 1 checks passed on the CPU.",
    ):
        assert part in done.stdout
    assert "paste this output into an issue" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_failed_check_ends_with_1(doctor):
    done = doctor(checks=[GOOD, BAD])
    assert done.exit_code == 1
    assert "fail g: bad" in done.stdout
    assert "1 of 2 checks failed on the CPU: do not trust its results" in done.stdout
    assert "report the failed checks" in done.stdout


def test_something_to_repair_ends_with_1(doctor):
    done = doctor(checks=[GOOD], state=SITUATIONS["a wheel newer than the driver"][0])
    assert done.exit_code == 1
    assert "there is something to repair (fail, above); all 1 checks passed on the CPU" in done.stdout
    assert "Next:    pip uninstall -y cupy-cuda13x" in done.stdout
    assert "not usable         NVIDIA A100" in done.stdout


def test_json_is_one_object_and_nothing_else(doctor):
    done = doctor("--json", checks=[GOOD, BAD], state=SITUATIONS["an old driver"][0])
    assert done.exit_code == 1
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["passed"] is False
    assert [c["passed"] for c in found["checks"]] == [True, False]
    assert found["machine"]["driver"]["version"] == [11, 4]
    assert found["findings"][0]["level"] == "fail"
    assert found["device"] == "cpu"


def test_a_device_that_is_not_there_ends_with_1_and_nothing_is_run(doctor):
    done = doctor("--device", "cuda", checks=[BAD])
    assert done.exit_code == 1
    assert "--device cuda was asked for, but CuPy has no device" in done.stdout
    assert "Self-test" not in done.stdout


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cpu:0", "1"])
def test_a_device_that_cannot_be_is_refused(doctor, device):
    done = doctor("--device", device)
    assert done.exit_code == 2
    assert "is not auto, cpu, cuda or a numbered device such as cuda:1" in done.stderr


def test_ctrl_c_ends_with_130(doctor):
    def stop(place, size):
        raise KeyboardInterrupt

    done = doctor(checks=[Check("g", "n", stop, 1)])
    assert done.exit_code == 130
    assert "Stopped." in done.stderr


def test_a_lost_device_does_not_keep_the_process(monkeypatch, doctor):
    class Ended(BaseException):
        pass

    def end(code):
        raise Ended(code)

    monkeypatch.setattr(cli.os, "_exit", end)
    monkeypatch.setattr(run, "run_checks", lambda *a: [Outcome("g", "n", False, reason="not run", skipped=True)])
    monkeypatch.setattr(run, "examine", lambda: BARE)
    with pytest.raises(Ended, match="1"):
        CliRunner().invoke(cli.main, ["doctor"])


def test_this_machine_is_examined_in_a_process_of_its_own():
    """Whatever is installed here: no warning, no traceback, and the CPU is right."""
    command = [sys.executable, "-W", "error", "-m", "rcurc_gpu", "doctor", "--device", "cpu", "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["passed"] is True
    assert {c["group"] for c in found["checks"]} >= {"plain", "solve"}
