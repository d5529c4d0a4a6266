"""``rcurc-gpu doctor``: what it says about machines of all kinds, and how it ends.

The machines are made up; what CuPy says on a device is in test_doctor_cupy.py.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from rcurc_gpu import __version__, cli
from rcurc_gpu.cli.common import jsonable
from rcurc_gpu.doctor import run
from rcurc_gpu.doctor.probes import Cupy, Device, Driver, Machine, Smi
from rcurc_gpu.doctor.run import FAIL, OK, WARN, findings
from rcurc_gpu.doctor.selftest import Check, Outcome, Place, Trial

CPU = Place(np, "cpu")
A100 = Device("NVIDIA A100", (8, 0), 40_000_000_000)
RTX = Device("NVIDIA GeForce RTX 4090", (8, 9), 24_000_000_000)
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
    "a GPU for pictures": (
        machine((13, 0), (RTX,), "cupy-cuda13x", working(devices=(RTX,))),
        OK,
        "cuda:0 (NVIDIA GeForce RTX 4090) computes much faster in float32",
        "give it float32 values",
    ),
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
        "CuPy 12.3.0 is older than 13.6",
        'pip install --upgrade "cupy-cuda12x[ctk]"',
    ),
    "CuPy with a warning": (
        machine((13, 0), wheel="cupy-cuda13x", cupy=working(warnings=("cuTENSOR is missing",))),
        WARN,
        "CuPy warns: cuTENSOR is missing",
        "",
    ),
    "ROCm": (
        machine(wheel="cupy-rocm-5-0", cupy=working(5, rocm=True)),
        WARN,
        "ROCm: plain CuPy code runs there",
        "please report",
    ),
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
    words = "\n".join([run.machine_words(state), run.findings_words(found)])
    assert "None" not in words
    assert state.driver.problem in words
    made = run.make_report(state, found, CPU, [], False)
    assert made["passed"] == all(f.level != FAIL for f in found)
    assert made["next"]
    assert json.dumps(jsonable(made), allow_nan=False)


def test_what_is_wrong_with_a_gpu_does_not_matter_to_the_cpu():
    state = SITUATIONS["a wheel newer than the driver"][0]
    assert {f.level for f in findings(state, "cpu")} == {WARN, OK}


def test_a_gpu_for_computing_gets_no_advice_about_float32():
    assert not any("float32" in f.what for f in findings(SITUATIONS["a GPU"][0]))


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


# ---------------------------------------------------------------- the command


@pytest.fixture
def doctor(monkeypatch):
    """Run the command on some machine, with a check or two."""

    def invoke(*options, state=BARE, checks=()):
        monkeypatch.setattr(run, "examine", lambda: state)
        monkeypatch.setattr(run, "all_checks", lambda *given: list(checks))
        return CliRunner().invoke(cli.main, ["doctor", *options], prog_name="rcurc-gpu")

    return invoke


def wrong_kernel():
    raise RuntimeError("no such kernel")


GOOD = Check("g", "good", lambda place, size: Trial(lambda: 1.0, lambda got: 0.0, 0.1, 8.0), 1, 1)
BAD = Check("g", "bad", lambda place, size: Trial(wrong_kernel), 1)


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

    monkeypatch.setattr(os, "_exit", end)
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
