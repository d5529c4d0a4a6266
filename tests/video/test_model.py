"""The model of a background: light, robust fits, masks, motion, and what is said about them."""

import threading
import tracemalloc

import numpy as np
import pytest
from scipy import ndimage

from rcurc_gpu.backends import XP, choose
from rcurc_gpu.video import find, spread
from rcurc_gpu.video.find import FindOptions, find_background, plan_pass
from rcurc_gpu.video.light import find_light
from rcurc_gpu.video.masks import MaskRule, learn_rule, without_specks
from rcurc_gpu.video.motion import Stabilised, find_motion
from rcurc_gpu.video.pictures import shrink
from rcurc_gpu.video.quality import decibels
from rcurc_gpu.video.scene import surveillance_scene
from rcurc_gpu.video.scenes import KINDS, made_up_scene
from rcurc_gpu.video.spread import _quantile

KERNELS = choose("auto", np.empty(0, dtype=np.float32))
SHAPE, FRAMES = (72, 96), 160


def found(scene, frames=None):
    frames = list(scene) if frames is None else frames
    plan = plan_pass(int(np.prod(scene.shape)), len(frames), 64 << 20)
    return find_background(frames, scene.shape, plan, FindOptions(), False)


def quality(background, scene):
    errors = [np.mean(np.square(background.picture(k) - scene.background(k))) for k in range(0, len(scene), 8)]
    return decibels(float(np.mean(errors)), 1)


# ---------------------------------------------------------------- robust fits


def test_a_fit_follows_the_majority_and_compiled_code_agrees_with_plain_code():
    rng = np.random.default_rng(0)
    design = np.stack([1 + 0.1 * rng.standard_normal(100), rng.standard_normal(100)], axis=1).astype(np.float32)
    true = np.stack([rng.uniform(20, 200, 300), 5 * rng.standard_normal(300)], axis=1)
    values = true @ design.T + rng.standard_normal((300, 100))
    values[:, :40] = 230  # something stands there for two fifths of the time
    values = np.clip(np.rint(values), 0, 255).astype(np.uint8)
    plain, agree = XP.robust_fit(values, design, 1.0)
    assert np.quantile(np.abs(plain @ design.T - true @ design.T).max(axis=1), 0.95) < 2.5
    assert 0.5 < agree.mean() < 0.75
    compiled, agree_too = KERNELS.robust_fit(values, design, 1.0)
    np.testing.assert_allclose(compiled, plain, atol=2e-2)
    np.testing.assert_allclose(agree_too, agree, atol=0.02)


def test_what_has_no_weight_does_not_count():
    design = np.ones((10, 1), dtype=np.float32)
    values = np.asarray([[50] * 3 + [200] * 7], dtype=np.uint8)
    weights = np.asarray([[1.0] * 3 + [0.0] * 7], dtype=np.float32)
    for kernels in (XP, KERNELS):
        assert kernels.robust_fit(values, design, 1.0, weights=weights)[0][0, 0] == pytest.approx(50, abs=0.01)


# ---------------------------------------------------------------- light


@pytest.mark.parametrize(("kind", "rank"), [("train", 1), ("standing", 1), ("sunset", 2)])
def test_components_are_light_and_not_objects(kind, rank):
    scene = made_up_scene(kind, SHAPE, 400, seed=5)
    pictures = np.stack([scene.frame(k) for k in range(0, 400, 5)])
    light = find_light(pictures, KERNELS)
    assert light.right.shape[1] == rank


@pytest.mark.parametrize(("shape", "frames", "seed"), [((48, 64), 120, 2), ((90, 120), 200, 3)])
def test_who_walks_by_is_no_light(shape, frames, seed):
    scene = surveillance_scene(shape, frames, seed, fps=5, crowd=0.5)
    background, figures = found(scene)
    assert figures["rank"] == 2  # the street and the sun; one who walks by had been a third
    assert quality(background, scene) > 50


def test_the_light_of_lamps_is_found():
    scene = made_up_scene("lights", SHAPE, 400, seed=5)
    times = range(0, 400, 5)
    pictures = np.stack([scene.frame(k) for k in times])
    right = find_light(pictures, KERNELS).right.astype(float)
    true = np.stack([scene.background(k).ravel() for k in times], axis=1)
    basis = np.linalg.qr(right)[0]
    assert np.sqrt(np.mean(np.square(true - true @ basis @ basis.T))) < 1.0
    assert find_light(pictures, KERNELS, 1).right.shape[1] == 1


# ---------------------------------------------------------------- backgrounds


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("shadow", "clouds")])
def test_nothing_is_confirmed_that_is_worse_than_30_dB(kind):
    scene = made_up_scene(kind, SHAPE, FRAMES, seed=3)
    background, figures = found(scene)
    psnr = quality(background, scene)
    assert psnr >= 30 or not figures["confirmed"]
    assert figures["confirmed"] == (figures["cause"] == "")
    if kind in ("static", "sunset", "train"):
        assert psnr > 40


def test_a_short_clip_has_no_holes():
    scene = made_up_scene("static", (96, 128), 50, seed=1)
    frames = list(scene)
    background, _ = found(scene, frames)
    still = np.median(np.stack(frames), axis=0)
    pictures = np.stack([background.picture(k) for k in range(50)])
    assert decibels(float(np.mean(np.square(pictures - still))), 1) >= 36
    assert not np.any((np.rint(pictures) <= 0) & (still > 10))


def test_who_stands_there_for_half_of_the_time_is_said():
    _, figures = found(made_up_scene("standing", SHAPE, 600, seed=0))
    assert not figures["confirmed"]
    assert any("stands still" in notice for notice in figures["notices"])


def test_a_clip_that_is_too_short_is_not_confirmed():
    _, figures = found(made_up_scene("static", SHAPE, 12, seed=1))
    assert (figures["confirmed"], figures["cause"]) == (False, "too short")


# ---------------------------------------------------------------- motion


@pytest.fixture(scope="module")
def pictures():
    scene = made_up_scene("static", (120, 160), 60, seed=2)
    return np.stack(list(scene))


def test_a_camera_that_stands_neither_shakes_nor_pans(pictures):
    motion = find_motion(pictures)
    assert not motion.shakes
    assert not motion.pans


def test_a_shake_is_undone(pictures):
    rng = np.random.default_rng(0)
    shaken = np.stack([ndimage.shift(p, rng.uniform(-2, 2, 2), order=1, mode="nearest") for p in pictures])
    motion = find_motion(shaken)
    assert motion.shakes
    inner = (slice(None), slice(8, -8), slice(8, -8))
    steady = np.stack(list(Stabilised(shaken, motion.reference)))[inner].astype(float)
    assert np.median(steady.std(axis=0)) < 0.6 * np.median(shaken[inner].std(axis=0))


def test_a_pan_is_named(pictures):
    panned = np.stack([np.roll(p, 2 * k, axis=1) for k, p in enumerate(pictures)])
    motion = find_motion(panned)
    assert motion.pans
    scene = made_up_scene("static", (120, 160), 60, seed=2)
    _, figures = found(scene, list(panned))
    assert figures["cause"] == "camera motion"


# ---------------------------------------------------------------- masks


def test_each_pixel_has_its_own_threshold_and_specks_go():
    typical = np.full((40, 40), 1.0)
    typical[:, 20:] = 10.0
    rule = learn_rule(typical)
    assert rule.threshold[5, 5] == pytest.approx(14.7)
    assert rule.threshold[5, 35] == pytest.approx(40)
    background = np.full((40, 40), 100, dtype=np.uint8)
    frame = background.copy()
    frame[4:14, 4:14] = 130
    frame[4:14, 26:36] = 130  # within the noise there
    frame[30, 10] = 255  # alone
    mask = rule.mask(frame, background)
    assert mask[5:13, 5:13].all()
    assert not mask[:, 20:].any()
    assert not mask[30, 10]


def test_shadows_of_colours_are_background_and_things_are_not():
    background = np.full((20, 30, 3), (120, 90, 60), dtype=np.uint8)
    frame = background.copy()
    frame[:, 10:20] = np.rint(0.65 * background[0, 0]).astype(np.uint8)
    frame[:, 20:] = (60, 90, 120)
    rule = MaskRule(np.full((20, 30), 15, dtype=np.float32), median=1)
    mask = rule.mask(frame, background)
    assert not mask[:, :20].any()
    assert mask[:, 20:].all()
    assert MaskRule(rule.threshold, median=1, shadow=False).mask(frame, background)[:, 10:20].all()


def test_small_groups_are_dropped_and_corners_touch():
    mask = np.zeros((8, 8), dtype=bool)
    mask[0, 0] = mask[1, 1] = mask[2, 2] = True
    mask[6, 6] = True
    assert without_specks(mask, 3).sum() == 3


@pytest.mark.parametrize("kind", KINDS)
def test_outside_of_the_mask_a_scene_is_its_background_and_noise(kind):
    scene = made_up_scene(kind, (48, 64), 40, seed=1)
    difference = (scene.frame(20) - scene.background(20))[~scene.mask(20)]
    limit = 0.4 * 255 if kind == "shadow" else 12  # shadows are background, and leave 0.6 of the light
    assert np.abs(difference).max() < limit
    np.testing.assert_array_equal(made_up_scene(kind, (48, 64), 40, seed=1).frame(20), scene.frame(20))


# ---------------------------------------------------------------- thresholds


def test_stripes_that_move_have_thresholds_that_show_who_stands_on_them():
    scene = made_up_scene("escalator", (120, 160), 200, seed=4)
    plan = plan_pass(120 * 160, 200, 64 << 20)
    background, _ = find_background(list(scene), scene.shape, plan, FindOptions(rank=1), False)  # the stripes are no light
    limits = background.rule.threshold[:, 60:100]  # the stripes go up and down by 9 grey levels, with noise of 2
    assert 12 < np.median(limits) < 22


@pytest.mark.parametrize("channels", [(), (3,)])
def test_a_background_of_two_sides_is_their_middle_and_one_who_stays_is_no_side(channels):
    rng = np.random.default_rng(6)
    pictures = 100 + rng.normal(0, 2, (40, 30, 60, *channels))
    stripes = 9 * np.sign(np.sin(2 * np.pi * (0.31 * np.arange(40)[:, None] + np.arange(30) / 9)))
    pictures[:, :, :40] += stripes.reshape(40, 30, 1, *(1 for _ in channels))
    pictures[5:17, :, 20:40] -= 27  # before some of them someone stands
    pictures[3:21, :, 40:] += 18  # and elsewhere, nearly as long as not
    pictures = np.clip(np.rint(pictures), 0, 255).astype(np.uint8)
    left = np.full((30, 60, *channels), 107, dtype=np.float32)
    left[:, 40:] = 103
    flat, right = left.reshape(-1, 1), np.ones((40, 1), dtype=np.float32)
    found = spread.find_spread(pictures, flat, right, total=1000)
    assert np.quantile(np.abs(left[:, 2:38] - 100), 0.95) < 3
    np.testing.assert_array_equal(left[:, 43:], 103)
    limits = learn_rule(found.typical, found.most, least=found.least).threshold
    assert np.median(limits[:, 2:38]) < 20


def test_quantiles_over_frames_are_those_of_sorted_values():
    values = np.random.default_rng(3).integers(0, 256, (37, 143)).astype(np.uint8)
    values[:20, :40] = 7
    below = np.arange(143, dtype=np.uint8) % 37
    np.testing.assert_array_equal(_quantile(values, below), np.sort(values, axis=0)[below, np.arange(143)])


def test_what_stays_is_no_noise_and_what_comes_and_goes_is():
    rng = np.random.default_rng(5)
    pictures = 100 + rng.normal(0, 2, (40, 30, 60))
    pictures[12:30, :, :20] += 20  # someone in a coat of nearly the colour of the wall, for 18 of 40 frames
    pictures[:, :, 40:] += rng.choice([0, 20], (40, 1, 1), p=[0.55, 0.45])  # a lamp that flickers
    pictures = np.clip(np.rint(pictures), 0, 255).astype(np.uint8)
    left, right = np.full((30 * 60, 1), 100, dtype=np.float32), np.ones((40, 1), dtype=np.float32)
    found = spread.find_spread(pictures, left, right, total=1000)
    limits = learn_rule(found.typical, found.most, least=found.least).threshold
    assert limits[:, 5:15].max() < 15
    assert limits[:, 45:55].min() > 20


@pytest.mark.parametrize("shape", [(17, 31), (9, 800, 3)])
def test_steps_from_the_background_are_the_same_compiled_and_plain(shape, monkeypatch):
    rng = np.random.default_rng(2)
    pictures = rng.integers(0, 256, (3, *shape)).astype(np.uint8)
    left, right = rng.uniform(0, 90, (int(np.prod(shape)), 2)).astype(np.float32), np.ones((3, 2), dtype=np.float32)
    fast = spread._steps(pictures, left, right, np.arange(3))
    monkeypatch.setattr(spread, "picture_kernels", lambda: None)
    plain = spread._steps(pictures, left, right, np.arange(3))
    assert np.mean(fast != plain) < 1e-3  # sums in another order fall on the other side of a half
    assert np.abs(fast.astype(int) - plain).max() <= 1


def test_small_pictures_are_averages_of_squares_and_channels():
    picture = np.random.default_rng(1).integers(0, 256, (13, 20, 3)).astype(np.uint8)
    np.testing.assert_allclose(shrink(picture, 3)[2, 5], picture[6:9, 15:18].mean(), rtol=1e-6)
    np.testing.assert_allclose(shrink(picture[..., 0].astype(np.float32), 2)[0, 0], picture[:2, :2, 0].mean(), rtol=1e-6)
    assert shrink(picture, 3).shape == (4, 6)


@pytest.mark.parametrize("seed", [3, 4])
def test_leaves_are_found_the_same_in_strips_as_at_once(seed, monkeypatch):
    scene = made_up_scene("trees", (60, 80), frames=60, seed=seed)
    pictures = np.stack([scene.frame(k) for k in range(60)])
    left, right = np.median(pictures, axis=0).reshape(-1, 1).astype(np.float32), np.ones((60, 1), dtype=np.float32)
    whole = spread.find_spread(pictures, left, right, 60)
    monkeypatch.setattr(spread, "_STRIP", 7 * 80)
    strips = spread.find_spread(pictures, left, right, 60)
    assert np.count_nonzero(whole.wide) > 30
    np.testing.assert_allclose(strips.wide, whole.wide, rtol=1e-5)
    assert strips.median == whole.median


def test_strips_take_less_memory(monkeypatch):
    scene = made_up_scene("water", (240, 320), frames=40, seed=3)
    pictures = np.stack([scene.frame(k) for k in range(40)])
    left, right = np.median(pictures, axis=0).reshape(-1, 1).astype(np.float32), np.ones((40, 1), dtype=np.float32)
    peaks = []
    for strip in (1 << 14, 1 << 13, 1 << 30):  # the first compiles
        monkeypatch.setattr(spread, "_STRIP", strip)
        tracemalloc.start()
        spread.find_spread(pictures, left, right, 40)
        peaks.append(tracemalloc.get_traced_memory()[1] / pictures.nbytes)
        tracemalloc.stop()
    assert peaks[1] < 0.75 * peaks[2]


def test_where_a_kernels_memory_lies_does_not_matter():
    """Sums of short rows had other bits where arrays lay side by side."""
    rng = np.random.default_rng(0)
    values, design = rng.normal(100, 10, (300, 30)).astype(np.float32), np.ones((30, 1), dtype=np.float32)
    expected = KERNELS.robust_fit(values, design, 1.0)[0]
    found = []

    def fits() -> None:
        between = [np.zeros(rng.integers(1, 100)) for _ in range(100)]
        found.extend(KERNELS.robust_fit(values.copy(), design, 1.0)[0] for _ in between)

    threads = [threading.Thread(target=fits) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 200
    assert all(np.array_equal(x, expected) for x in found)


def test_an_array_of_frames_is_looked_at_where_it_is():
    scene = surveillance_scene((24, 32), frames=30, seed=1)
    pictures = np.stack(list(scene))
    before, plan, options = pictures.copy(), plan_pass(24 * 32, 30, 1 << 20), FindOptions()
    assert np.shares_memory(find._Cross(pictures, (24, 32), plan, 0, False).pictures, pictures)
    found, listed = (find_background(x, (24, 32), plan, options, False)[0] for x in (pictures, list(pictures)))
    np.testing.assert_array_equal(found.matrix.left, listed.matrix.left)
    np.testing.assert_array_equal(pictures, before)
