"""What the CUDA regression executes for each observation, counted without a GPU."""

import sys
from pathlib import Path

import pytest
from conftest import DEVICE

if DEVICE != "emulator":
    pytest.skip("operations are counted on the emulator: RCURC_TEST_DEVICE=emulator", allow_module_level=True)

sys.path.append(str(Path(__file__).parents[2]))  # where bench is, if pytest was started elsewhere

from bench import counts, sass
from rcurc_gpu.backends.cuda.sources import source

LOOPS = """
extern "C" __global__ void loops(int n, int m, float* out) {
    float total = out[threadIdx.x];
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        total = total * 1.5f + 1.0f;
#pragma unroll 1
        for (int j = 0; j < m; j++) {
            total = sinf(total);
        }
    }
    out[threadIdx.x] = total;
}
"""


@pytest.mark.parametrize(("rank", "dtype"), counts.CASES)
def test_the_regression_executes_at_least_thirty_percent_less_than_before(rank, dtype):
    numbers, _ = counts.measure(source("regress.cu"), rank, dtype)
    together, instructions = counts.BEFORE[rank, dtype]
    assert 0 < numbers["together"] <= 0.7 * together
    assert 0 < numbers["instructions"] <= 0.7 * instructions


def test_instructions_of_a_loop_count_as_often_as_it_is_gone_through():
    text = sass.marked(LOOPS)
    lines = {line: n for n, line in enumerate(LOOPS.splitlines(), 1)}
    outer, inner = (next(n for line, n in lines.items() if name in line) for name in ("int i", "int j"))
    assert f"MARK({outer})" in text
    assert f"MARK({inner})" in text
    blocks = sass.blocks_of(sass.disassembled(text, (), 90), "loops")
    once = sass.executed(blocks, {outer: 1.0, inner: 1.0})
    often = sass.executed(blocks, {outer: 10.0, inner: 70.0})
    assert once[outer] > 3
    assert once[inner] > 10  # a sine
    assert often[outer] == pytest.approx(10 * once[outer])
    assert often[inner] == pytest.approx(70 * once[inner])
    assert often[0] == once[0]  # what is in no loop


def test_unrolled_loops_have_no_marks():
    text = (
        "#pragma unroll\nfor (int i = 0; i < 3; i++) {\n    if (i) {\n    }\n}\nif constexpr (A) {\n} else {\n}\nif (b) {\n}"
    )
    assert sass.marked(text).count("MARK") == 1
