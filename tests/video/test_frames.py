"""The work on one frame: compiled, plain and on other devices it is the same, to the bit."""

import numpy as np
import pytest
from scipy import ndimage

from rcurc_gpu.video.frames import FrameSplitter, objects_in
from rcurc_gpu.video.masks import MaskRule, majority


def case(shape, seed, rank=3):
    rng = np.random.default_rng(seed)
    n1 = int(np.prod(shape))
    left = rng.uniform(-10, 90, (n1, rank)).astype(np.float32)
    light = rng.uniform(0.5, 1.2, rank).astype(np.float32)
    background = np.clip(left @ light, 0, 255).reshape(shape)
    # shadows, things, noise, and blocks of them
    factor = np.kron(rng.choice([1.0, 1.0, 0.7, 0.3], (-(-shape[0] // 6), -(-shape[1] // 6))), np.ones((6, 6)))
    factor = factor[: shape[0], : shape[1]].reshape(*shape[:2], *(1,) * (len(shape) - 2))
    frame = background * factor + rng.normal(0, 6, shape)
    return np.clip(np.rint(frame), 0, 255).astype(np.uint8), left, light


def rules(shape, seed):
    rng = np.random.default_rng(seed)
    threshold = rng.uniform(3, 40, shape[:2]).astype(np.float32)
    threshold[0, :] = 300  # nothing differs by so much
    yield MaskRule(threshold)
    yield MaskRule(threshold, median=1, shadow=False)
    yield MaskRule(threshold, median=3, min_area=9, region=rng.random(shape[:2]) < 0.7)


@pytest.mark.parametrize("shape", [(1, 1), (2, 9), (31, 45), (40, 33, 3), (1, 5, 3)])
def test_compiled_and_plain_code_give_the_same_bits(shape):
    pytest.importorskip("numba")
    for seed in range(3):
        frame, left, light = case(shape, seed)
        for rule in rules(shape, seed):
            fast, plain = (FrameSplitter(left, shape, rule, compiled=c) for c in (True, False))
            assert fast._kernels is not None
            assert plain._kernels is None
            one, other = fast.split(frame, light), plain.split(frame, light)
            for a, b in zip(one, other, strict=True):
                np.testing.assert_array_equal(a, b)
                assert a.dtype == b.dtype
            np.testing.assert_array_equal(fast.cut_out(frame, one.mask), plain.cut_out(frame, one.mask))


@pytest.mark.parametrize("shape", [(31, 45), (20, 33, 3)])
def test_a_split_is_the_rounded_background_and_what_the_rule_says_of_it(shape):
    frame, left, light = case(shape, 7)
    rule = MaskRule(np.full(shape[:2], 20.0, np.float32), median=3, min_area=4)
    found = FrameSplitter(left, shape, rule).split(frame, light)
    exact = np.clip(left.astype(float) @ light, 0, 255).reshape(shape)
    assert np.abs(found.background - exact).max() <= 0.5 + 1e-4
    np.testing.assert_array_equal(found.mask, rule.mask(frame, found.background) * np.uint8(255))
    assert 0.02 < np.mean(found.mask > 0) < 0.9


@pytest.mark.parametrize("shape", [(23, 30), (12, 17, 3)])
def test_the_mask_is_the_same_on_every_device(xp, shape):
    frame, left, light = case(shape, 3)
    for rule in rules(shape, 3):
        background = FrameSplitter(left, shape, rule).paint(light)
        found = rule.mask(xp.array(frame), xp.array(background))
        np.testing.assert_array_equal(xp.numpy(found), rule.mask(frame, background))


def test_the_majority_is_that_of_a_window_with_repeated_edges():
    found = np.random.default_rng(1).random((14, 9)) < 0.5
    for size in (1, 3, 5):
        count = ndimage.uniform_filter(found.astype(float), size, mode="nearest") * size**2
        np.testing.assert_array_equal(majority(found, size), np.rint(count) > size**2 // 2)


def test_objects_have_boxes_and_areas_and_touch_at_corners():
    mask = np.zeros((12, 20), dtype=bool)
    mask[1:4, 2:5] = True
    mask[4, 5] = True  # touches at a corner
    mask[8, 10:18] = True
    mask[9:11, 17] = True
    np.testing.assert_array_equal(objects_in(mask), [[2, 1, 4, 4, 10], [10, 8, 8, 3, 10]])
    rule = MaskRule(np.full(mask.shape, 5.0, np.float32), median=1)
    found = FrameSplitter(np.zeros((mask.size, 1)), mask.shape, rule).split(mask * np.uint8(200), np.ones(1))
    np.testing.assert_array_equal(found.objects, objects_in(mask))
