"""The doctor's looks at a machine: nothing that is broken breaks them."""

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from rcurc_gpu import __version__
from rcurc_gpu.doctor import probes
from rcurc_gpu.doctor.probes import Cupy, Device, Driver, Smi

A100 = Device("NVIDIA A100", (8, 0), 40_000_000_000)
V100 = Device("Tesla V100", (7, 0), 16_000_000_000)


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


def look(load):
    return probes.look_at_cupy(load, lambda: "")


def test_cupy_that_is_not_installed_is_none():
    assert look(load_nothing(ModuleNotFoundError("No module named 'cupy'", name="cupy"))) is None


def test_an_import_error_of_cupy_becomes_one_line():
    said = (
        "\n================\nFailed to import CuPy.\n\nIf you installed CuPy via wheels, ...\n\nOriginal error:\n"
        "  ImportError: libcublas.so.12: cannot open\n================================\n"
    )
    found = look(load_nothing(ImportError(said)))
    assert found == Cupy(error="ImportError: libcublas.so.12: cannot open")
    assert look(load_nothing(OSError("broken"))).error == "OSError: broken"
    assert "cuda.pathfinder" in look(load_nothing(ModuleNotFoundError("No module named 'cuda.pathfinder'"))).error


@pytest.mark.parametrize(("code", "crashes"), [(0, False), (1, False), (-11, True), (3221225477, True)])
def test_a_cupy_that_crashes_is_not_imported(monkeypatch, code, crashes):
    monkeypatch.setattr(probes.importlib.util, "find_spec", lambda name: object())
    said = probes.crash_of_cupy(lambda *arguments, **options: SimpleNamespace(returncode=code))
    assert bool(said) == crashes
    if crashes:
        found = probes.look_at_cupy(load_nothing(AssertionError("was imported")), lambda: said)
        assert found == Cupy(error=f"Python crashes when it uses CuPy (exit code {code})")


def test_no_cupy_cannot_crash(monkeypatch):
    monkeypatch.setattr(probes.importlib.util, "find_spec", lambda name: None)
    assert probes.crash_of_cupy(load_nothing(AssertionError("was run"))) == ""


def test_half_a_cupy_is_survived():
    found = look(lambda name: SimpleNamespace(__name__=name))
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
    monkeypatch.setattr(probes, "version_of", lambda name: "0.1")
    monkeypatch.setitem(sys.modules, "numba", None)
    assert "numba" in probes.numba_error()
    monkeypatch.setattr(probes, "version_of", lambda name: None)
    assert probes.numba_error() == ""


def test_an_examination_takes_all_looks():
    looked = probes.examine(cupy=lambda: None, smi=lambda: None, driver=lambda: Driver((12, 0)), visible=lambda: "3")
    assert looked.packages["rcurc-gpu"] == __version__
    assert looked.packages["numpy"] == np.__version__
    assert (looked.driver.version, looked.visible, looked.cupy) == ((12, 0), "3", None)
    assert looked.cpus >= 1
