"""What ``device="auto"`` means: where the data are, and for commands an estimate."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest

from rcurc_gpu.backends import ESTIMATED_CROSSOVER, device_for_file
from rcurc_gpu.backends.devices import place_for
from rcurc_gpu.errors import DeviceError

DEVICES = "rcurc_gpu.backends.devices.namespace_for_device"


@pytest.fixture
def gpu(monkeypatch):
    """As if there were a GPU."""
    monkeypatch.setattr(DEVICES, lambda device: (SimpleNamespace(), "cuda" if device == "auto" else device))


def test_arrays_on_the_host_stay_there_though_there_is_a_gpu(gpu):
    like = place_for("auto", np.ones(3, dtype=np.float32))
    assert (type(like), like.dtype, like.shape) == (np.ndarray, np.float32, (0,))


def test_arrays_elsewhere_stay_there(elsewhere):
    x = elsewhere.array([1.0, 2.0])
    assert elsewhere.numpy(place_for("auto", x)).shape == (0,)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("n_obs", "device"), [(ESTIMATED_CROSSOVER - 1, "cpu"), (ESTIMATED_CROSSOVER, "cuda")])
def test_a_command_takes_a_gpu_from_the_crossover_on_and_logs_that_it_is_an_estimate(n_obs, device, caplog):
    with caplog.at_level(logging.INFO, "rcurc_gpu"):
        assert device_for_file("auto", n_obs) == device
    assert ("an estimate of where a GPU is faster" in caplog.text) == (device == "cuda")


def test_a_command_that_is_told_a_device_takes_it(gpu):
    assert device_for_file("cuda:1", 10) == "cuda:1"
    assert device_for_file("cpu", 10 * ESTIMATED_CROSSOVER) == "cpu"


def test_without_a_gpu_a_command_takes_the_cpu(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    assert device_for_file("auto", 10 * ESTIMATED_CROSSOVER) == "cpu"
    with pytest.raises(DeviceError):
        device_for_file("cuda", 10)
