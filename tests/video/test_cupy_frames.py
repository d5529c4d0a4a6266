"""The work on single frames on CuPy: the same as on the CPU, to the bit."""

import numpy as np
import pytest
from conftest import DEVICE, SKIP_CUPY
from test_frames import case, rules

from rcurc_gpu.backends.arrays import is_cupy_array
from rcurc_gpu.video import BackgroundSubtractor, separate, surveillance_scene
from rcurc_gpu.video.frames import FrameSplitter

if not DEVICE:
    pytest.skip(SKIP_CUPY, allow_module_level=True)


@pytest.mark.parametrize("shape", [(23, 30), (12, 17, 3)])
def test_a_gpu_splits_frames_as_the_cpu_does(shape):
    frame, left, light = case(shape, 5)
    for rule in rules(shape, 5):
        there, here = (FrameSplitter(left, shape, rule, device) for device in ("cuda", "cpu"))
        for k in range(4):  # each frame moves the last picture of the sum
            new = np.roll(frame, k, axis=1)
            assert is_cupy_array(there.parts)
            one, other = there.split(new, light), here.split(new, light)
            for a, b in zip(one, other, strict=True):
                assert isinstance(a, np.ndarray)
                np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(there.cut_out(new, one.mask), here.cut_out(new, other.mask))
            for splitter, found in ((there, one), (here, other)):
                splitter.drift(new, found, 0.2, slice(2 * k, 2 * k + 5))


def test_a_camera_is_followed_on_a_gpu_as_on_the_cpu():
    frames = list(surveillance_scene((32, 40), frames=30, seed=3, fps=5))
    there, here = BackgroundSubtractor(device="cuda"), BackgroundSubtractor()
    for frame in frames:
        np.testing.assert_array_equal(there.apply(frame), here.apply(frame))
        np.testing.assert_array_equal(there.background, here.background)
    assert there.learned == here.learned > 0


def test_a_video_is_separated_on_a_gpu_as_on_the_cpu(tmp_path):
    scene = surveillance_scene((32, 40), frames=30, seed=3, fps=5)
    made = [separate(scene, tmp_path / device, only=["mask", "objects"], device=device) for device in ("cuda", "cpu")]
    assert made[0].figures["foreground_share"] == made[1].figures["foreground_share"] > 0
    assert (tmp_path / "cuda/objects.csv").read_text() == (tmp_path / "cpu/objects.csv").read_text()
