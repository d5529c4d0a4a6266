"""The doctor on a device: the emulator, or a GPU."""

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner
from conftest import DEVICE, SKIP_CUPY

from rcurc_gpu import cli
from rcurc_gpu.backends.cuda.sources import KERNELS
from rcurc_gpu.doctor import probes
from rcurc_gpu.doctor.checks import all_checks, cuda_checks, nvrtc_compile_checks
from rcurc_gpu.doctor.run import OK, choose_place, findings
from rcurc_gpu.doctor.selftest import Place, run_checks

if not DEVICE:
    pytest.skip(SKIP_CUPY, allow_module_level=True)

import cupy

GPU = Place(cupy, "cuda:0")


def test_the_device_is_found():
    machine = probes.examine()
    assert len(machine.cupy.devices) >= 1
    assert machine.cupy.devices[0].memory > 0
    assert machine.cupy.error == machine.cupy.devices_error == ""
    assert findings(machine)[0].level == OK
    place = choose_place(machine, "auto")
    assert (place.name, place.on_gpu) == ("cuda:0", True)


def test_every_kernel_of_every_file_is_compiled_and_checked():
    names = [check.name for check in all_checks(GPU, probes.Machine())]
    for name in KERNELS:
        assert any(name in checked for checked in names)
    assert {check.group for check in cuda_checks()} == {"cuda"}


@pytest.mark.parametrize("number", range(len(cuda_checks())), ids=[check.name for check in cuda_checks()])
def test_the_kernels_are_right(number):
    (outcome,) = run_checks(GPU, [cuda_checks()[number]], quick=True)
    assert outcome.passed, outcome.reason


def test_the_command_runs_on_the_device(monkeypatch):
    some = [check for check in all_checks(GPU, probes.Machine()) if "elementwise" in check.name or check.group == "plain"]
    monkeypatch.setattr("rcurc_gpu.doctor.run.all_checks", lambda *given: some)
    done = CliRunner().invoke(cli.main, ["doctor", "--device", "cuda:0", "--quick", "--json"])
    found = json.loads(done.stdout)
    assert [(c["name"], c["reason"]) for c in found["checks"] if not c["passed"]] == []
    assert done.exit_code == 0
    assert found["device"] == "cuda:0"
    assert "passed on cuda:0" in found["verdict"]


def test_sources_compile_for_a_gpu_that_is_not_here():
    about = probes.look_at_cupy()
    if not about.architectures:
        pytest.skip("there is no NVRTC")
    checks = [check for check in nvrtc_compile_checks(about) if "elementwise" in check.name]
    (outcome,) = run_checks(GPU, checks)
    assert outcome.passed, outcome.reason


def test_a_source_that_does_not_compile_says_where(monkeypatch):
    monkeypatch.setattr("rcurc_gpu.doctor.checks.source", lambda name: "__global__ void f() { x = 1; }")
    about = probes.look_at_cupy()
    if not about.architectures:
        pytest.skip("there is no NVRTC")
    outcome = next(run_checks(GPU, nvrtc_compile_checks(about)))
    assert not outcome.passed
    assert 'error: identifier "x" is undefined' in outcome.reason


def test_cupy_without_a_device_goes_to_the_cpu():
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, "-m", "rcurc_gpu", "doctor", "--quick", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    found = json.loads(done.stdout)
    assert (found["device"], done.returncode) == ("cpu", 0)
    assert found["machine"]["cupy"]["devices"] == []
    if DEVICE == "emulator":
        assert "there is no NVIDIA driver: the CPU is used" in found["findings"][0]["what"]
