"""``rcurc-gpu bench`` on a device: the emulator, or a GPU."""

import pytest
from conftest import DEVICE, SKIP_CUPY

from rcurc_gpu.benchmark import Case, bench_words, run_bench
from rcurc_gpu.benchmark.measure import CPU, STREAMED
from rcurc_gpu.benchmark.measure import DEVICE as GPU
from rcurc_gpu.doctor import examine

if not DEVICE:
    pytest.skip(SKIP_CUPY, allow_module_level=True)

TINY = Case("tiny", 80, 40, 0.6, rank=2)


def test_a_device_is_timed_from_its_memory_and_streamed():
    machine = examine()
    report = run_bench(machine, [TINY], "cuda:0")
    assert [t["place"] for t in report["timings"]] == [CPU, GPU, STREAMED]
    assert [t["kernels"] for t in report["timings"][1:]] == ["cuda", "cuda"]
    for found in report["timings"]:
        assert found["error"] < 1e-8
    assert report["timings"][1]["pass_error"] < 1e-8
    assert set(report["copy_gb_per_s"]) == {CPU, GPU}
    assert report["emulator"] == (DEVICE == "emulator")
    assert ("a CPU plays the GPU" in bench_words(report, machine)) == (DEVICE == "emulator")


def test_what_does_not_fit_on_the_device_is_streamed_alone(monkeypatch):
    monkeypatch.setattr("rcurc_gpu.benchmark.run._free_device", lambda place: 1000.0)
    report = run_bench(examine(), [TINY], "cuda:0")
    assert [t["place"] for t in report["timings"]] == [CPU, STREAMED]
    assert "on the device" in report["skipped"][0]["why"]
