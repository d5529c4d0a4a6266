"""Every CUDA kernel compiles for real architectures, and up to rank 16 nothing spills to memory.

NVRTC is a compiler: this needs no GPU. It takes a minute or two of two cores, and no time when nothing has changed since.
"""

import sys
from pathlib import Path

import pytest
from conftest import DEVICE, SKIP_CUPY

if not DEVICE:
    pytest.skip(SKIP_CUPY, allow_module_level=True)

sys.path.append(str(Path(__file__).parents[2]))  # where bench is, if pytest was started elsewhere

from bench import registers
from rcurc_gpu.backends.cuda.sources import KERNELS, source

# The other kernels are far from any limit: all ranks for one architecture, some for the others.
CASES = registers.cases(everywhere=(5, 16, 32))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_kernel_compiles_and_does_not_spill(name, dtype):
    found = registers.measure_all([case for case in CASES if (case.name, case.dtype) == (name, dtype)])
    assert {case.architecture for case in found} == set(registers.ARCHITECTURES)
    for case, kernels in found.items():
        assert set(kernels) == set(KERNELS[name][1])
        for kernel, numbers in kernels.items():
            assert numbers["shared"] <= 48 << 10, (case, kernel, numbers)
            if case.rank <= 16:
                assert numbers["spill_stores"] == numbers["spill_loads"] == 0, (case, kernel, numbers)


def test_sources_are_self_contained():
    """The headers are part of the text, so that NVRTC looks for no file."""
    for name in KERNELS:
        text = source(name)
        assert "#include" not in text
        assert text.count("REAL residual(") == 1  # the mathematics of an entry comes from one place
