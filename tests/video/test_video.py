"""Videos: the made-up street, files, sampling in one pass, and PSNR."""

import sys
import warnings
from fractions import Fraction

import av
import numpy as np
import pytest
from helpers import write_video

from rcurc_gpu import LowRankMatrix, rcurc
from rcurc_gpu.video import VideoWarning, open_video, psnr, sample_video, separate, surveillance_scene


@pytest.fixture(scope="module")
def scene():
    return surveillance_scene((32, 40), 60, seed=3)


@pytest.fixture(scope="module")
def frames():
    return np.stack([surveillance_scene((48, 64), 20, seed=1).frame(k) for k in range(20)])


@pytest.fixture(scope="module")
def clip(frames, tmp_path_factory):
    return write_video(tmp_path_factory.mktemp("videos") / "street.mkv", frames)


# ---------------------------------------------------------------- the street


def test_a_frame_of_the_scene_does_not_depend_on_those_asked_for_before(scene):
    in_order = list(scene)
    again = surveillance_scene((32, 40), 60, seed=3)
    for k in (59, 0, 17, 17):
        np.testing.assert_array_equal(again.frame(k), in_order[k])
    assert len(in_order) == len(scene) == 60
    assert in_order[0].dtype == np.uint8
    assert in_order[0].shape == (32, 40)


def test_the_seed_fixes_the_scene(scene):
    other = surveillance_scene((32, 40), 60, seed=4)
    assert np.mean(other.frame(5) != scene.frame(5)) > 0.5


def test_outside_of_the_mask_a_frame_is_the_background_and_noise():
    scene = surveillance_scene((64, 80), 200, noise=1.5, seed=0)
    k = 100
    difference = scene.frame(k) - scene.background(k)
    outside = difference[~scene.mask(k)]
    assert np.abs(outside.mean()) < 0.1
    assert outside.std() == pytest.approx((1.5**2 + 1 / 12) ** 0.5, rel=0.05)  # and rounding
    assert np.abs(difference[scene.mask(k)]).mean() > 20


def test_without_noise_and_crowd_the_scene_is_its_background():
    scene = surveillance_scene((32, 40), 30, noise=0, crowd=0)
    assert not scene.mask(9).any()
    np.testing.assert_array_equal(scene.frame(9), np.rint(scene.background(9)))


def test_the_true_background_has_rank_2_and_stays_within_the_grey_levels(scene):
    dense = np.stack([scene.background(k).ravel() for k in range(60)], axis=1)
    s = np.linalg.svd(dense, compute_uv=False)
    assert s[1] > 1e-4 * s[0] > 100 * s[2]
    assert dense.min() > 0
    assert dense.max() < 255
    np.testing.assert_allclose(scene.background_matrix[:, :], dense, rtol=1e-5)


def test_something_moves_and_something_stops():
    scene = surveillance_scene((64, 80), 500, seed=0)
    share = np.mean([scene.mask(k) for k in range(0, 500, 10)], axis=0)
    assert 0.01 < share.mean() < 0.15
    assert share.max() < 0.5  # every pixel shows its background most of the time
    assert any(mover.pause > 0 for mover in scene.movers)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": (8, 100)}, "shape must be at least 16 x 16, got 8 x 100"),
        ({"frames": 0}, "frames must be at least 1, got 0"),
        ({"noise": -1}, r"noise must be in \[0, inf\), got -1"),
        ({"fps": 0}, r"fps must be in \(0, inf\), got 0"),
    ],
)
def test_bad_arguments_of_the_scene_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        surveillance_scene(**arguments)


def test_a_frame_beyond_the_end_is_an_error(scene):
    with pytest.raises(IndexError, match="frame must be at least 0 and below 60, got 60"):
        scene.frame(60)


# ---------------------------------------------------------------- files


def test_a_video_gives_the_frames_that_were_written(clip, frames):
    video = open_video(clip)
    assert (len(video), video.shape, video.fps) == (20, (48, 64), 10)
    for _ in range(2):  # each iteration starts anew
        np.testing.assert_array_equal(np.stack(list(video)), frames)


def test_a_range_of_frames_can_be_read(clip, frames):
    video = open_video(clip, start=5, stop=9)
    assert len(video) == 4
    np.testing.assert_array_equal(np.stack(list(video)), frames[5:9])
    assert len(open_video(clip, start=15, stop=1000)) == 5


def test_frames_are_scaled_by_averages(clip, frames):
    small = np.stack(list(open_video(clip, size=(24, 32))))
    means = frames.reshape(20, 24, 2, 32, 2).mean(axis=(2, 4))
    assert small.shape == means.shape
    assert np.abs(small - means).max() <= 1.5


def test_colour_frames_have_three_channels_and_grey_levels_survive(tmp_path):
    frames = np.zeros((5, 32, 48, 3), dtype=np.uint8)
    frames[..., 0], frames[..., 1], frames[..., 2] = 200, 100, 30
    path = write_video(tmp_path / "colour.mkv", frames, pixels="bgr0")
    np.testing.assert_array_equal(np.stack(list(open_video(path, colour=True))), frames)
    grey = 0.299 * 200 + 0.587 * 100 + 0.114 * 30
    assert np.abs(np.stack(list(open_video(path))) - grey).max() < 2


def test_black_and_white_of_a_compressed_video_become_0_and_255(tmp_path):
    frames = np.zeros((10, 32, 48), dtype=np.uint8)
    frames[:, :, 24:] = 255
    video = list(open_video(write_video(tmp_path / "levels.mp4", frames, codec="mpeg4", pixels="yuv420p")))
    assert video[5][:, :16].max() < 6
    assert video[5][:, 32:].min() > 249


@pytest.mark.parametrize("ending", ["mkv", "flv"])
def test_a_file_that_only_says_how_long_it_is_may_end_early_too(tmp_path, ending):
    frames = np.random.default_rng(0).integers(0, 255, (60, 48, 64), dtype=np.uint8)
    path = write_video(tmp_path / f"whole.{ending}", frames, codec="libx264", pixels="yuv420p")
    whole = open_video(path)
    assert len(list(whole)) == len(whole) == 60  # and no warning
    cut = tmp_path / f"cut.{ending}"
    cut.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])
    video = open_video(cut)
    assert (len(video), video.fps, video.varies) == (60, whole.fps, False)
    with pytest.warns(VideoWarning, match=rf"'.*cut.{ending}' is damaged or ends early: 3\d of 60 frames could be decoded"):
        list(video)


def test_a_last_picture_that_stays_for_long_is_no_early_end(tmp_path, frames):
    path = tmp_path / "slides.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=10)
        stream.height, stream.width, stream.pix_fmt = *frames.shape[1:], "gray"
        for k, time in enumerate([0, 10, 12, 40, 41, 60]):  # tenths of a second: slides
            picture = av.VideoFrame.from_ndarray(frames[k], format="gray")
            picture.pts, picture.time_base = time, Fraction(1, 10)
            for packet in stream.encode(picture):
                packet.duration = 25 if k == 5 else 1  # of its time base, which is that of the pictures
                container.mux(packet)
        container.mux(stream.encode())
    with av.open(str(path)) as container:
        assert container.duration > 8e6  # the last one adds to it
    assert len(list(open_video(path))) == len(open_video(path)) == 6


def test_a_video_that_ends_early_gives_what_it_has_with_a_warning(tmp_path, frames):
    path = write_video(tmp_path / "cut.avi", frames)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    video = open_video(path)
    with pytest.warns(VideoWarning, match=r"'.*cut.avi' is damaged or ends early: \d+ of 20 frames could be decoded"):
        came = list(video)
    assert 3 < len(came) < 17
    np.testing.assert_array_equal(came[3], frames[3])
    with pytest.warns(VideoWarning):
        samples = sample_video(video)
    assert samples.shape == (48 * 64, len(came))


def bad_files(folder):
    (folder / "empty.avi").write_bytes(b"")
    (folder / "noise.avi").write_bytes(np.random.default_rng(0).bytes(5000))
    (folder / "text.txt").write_text("not a video\n" * 50)
    with av.open(str(folder / "sound.wav"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 800), dtype=np.int16), format="s16", layout="mono")
        sound.sample_rate = 8000
        container.mux(stream.encode(sound))
    return folder


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("empty.avi", ValueError, "'.*empty.avi' is empty"),
        ("noise.avi", ValueError, "'.*noise.avi' is not a video"),
        ("text.txt", ValueError, "'.*text.txt' is not a video"),
        ("sound.wav", ValueError, "'.*sound.wav' is not a video: it has no pictures in it"),
        ("missing.avi", FileNotFoundError, "No such file or directory: '.*missing.avi'"),
        (".", IsADirectoryError, "Is a directory"),
    ],
)
def test_what_is_not_a_video_is_refused_in_one_line(tmp_path, name, error, message):
    with pytest.raises(error, match=message) as caught:
        open_video(bad_files(tmp_path) / name)
    assert "\n" not in str(caught.value)


def test_a_beginning_beyond_the_end_is_an_error(clip):
    with pytest.raises(ValueError, match=r"start must be below the number of frames of '.*street.mkv', 20, got 20"):
        open_video(clip, start=20)


def test_without_pyav_the_error_names_the_extra(clip, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ImportError, match=r"videos need PyAV, .* pip install 'rcurc-gpu\[video\]'"):
        open_video(clip)


# ---------------------------------------------------------------- samples


def dense(source):
    return np.stack([frame.ravel() for frame in source], axis=1)


def test_samples_hold_the_values_of_the_matrix_of_pixels_and_frames(scene):
    Y = dense(scene)
    samples = sample_video(scene, 0.4, 0.3, 0.5, seed=1)
    assert samples.shape == Y.shape == (1280, 60)
    assert (len(samples.rows), len(samples.cols)) == (512, 18)
    assert samples.dtype == np.float32
    for block, chosen in ((samples.R.tocoo(), Y[samples.rows]), (samples.C.tocoo(), Y[:, samples.cols])):
        np.testing.assert_array_equal(block.data, chosen[block.row, block.col])
        assert block.nnz / chosen.size == pytest.approx(0.5, abs=0.02)
    for block in (samples.r_block, samples.c_block):
        for u in range(block.n_units):
            assert np.all(np.diff(block.index[block.indptr[u] : block.indptr[u + 1]]) > 0)


def test_the_seed_fixes_the_samples(scene):
    first, again, other = (sample_video(scene, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.r_block.value, again.r_block.value)
    np.testing.assert_array_equal(first.c_block.index, again.c_block.index)
    assert not np.array_equal(first.rows, other.rows)


def test_a_file_an_array_and_a_list_of_frames_give_the_same_samples(clip, frames):
    expected = sample_video(frames)
    for source in (clip, str(clip), open_video(clip), list(frames)):
        samples = sample_video(source)
        np.testing.assert_array_equal(samples.r_block.value, expected.r_block.value)
        np.testing.assert_array_equal(samples.c_block.value, expected.c_block.value)


def test_with_all_shares_1_everything_is_seen(frames):
    samples = sample_video(frames, 1, 1, 1)
    np.testing.assert_array_equal(samples.R.toarray(), dense(frames))
    np.testing.assert_array_equal(samples.C.toarray(), dense(frames))


def test_frames_are_looked_at_once_and_not_kept(scene):
    class Once:
        def __init__(self):
            self.alive = []

        def __len__(self):
            return 60

        def __iter__(self):
            import weakref

            for frame in scene:
                self.alive = [ref for ref in self.alive if ref() is not None]
                assert len(self.alive) <= 2
                self.alive.append(weakref.ref(frame))
                yield frame

    sample_video(Once())


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (iter([np.zeros((4, 5))]), TypeError, "source must be a path, a Video or frames with a length .* without a length"),
        (7, TypeError, "source must be a path, a Video or frames with a length .*, got int"),
        ([], ValueError, "source has no frames"),
        ([np.zeros((4, 5)), np.zeros((5, 4))], ValueError, r"frames of one shape, \(4, 5\), got \(5, 4\) as frame 1"),
        ([np.full((4, 5), np.nan)], ValueError, "source must be finite where observed, got nan"),
        (
            [np.zeros((4, 5), dtype=complex)],
            TypeError,
            "source must give frames of numbers, got dtype complex128 as frame 0",
        ),
    ],
)
def test_what_cannot_be_sampled_is_refused(source, error, message):
    with pytest.raises(error, match=message):
        sample_video(source, 1, 1, 1)


def test_frames_without_pixels_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"source must give frames with pixels, got frames of shape \(0, 5\)"):
        separate(np.zeros((40, 0, 5), dtype=np.uint8), tmp_path / "out")


def test_shares_beyond_1_are_refused(frames):
    with pytest.raises(ValueError, match=r"share_rows must be in \(0, 1\], got 40"):
        sample_video(frames, share_rows=40)


# ---------------------------------------------------------------- quality


def test_psnr_is_what_one_computes_by_hand():
    a, b = np.zeros((2, 3)), np.zeros((2, 3))
    b[0, 0], b[1, 2] = 3.0, -9.0  # mean square 90 / 6 = 15
    assert psnr(b, a) == pytest.approx(10 * np.log10(255**2 / 15))
    assert psnr(b, a, peak=1.0) == pytest.approx(-10 * np.log10(15))
    assert psnr(a, a) == np.inf


def test_psnr_of_bytes_does_not_wrap_around():
    assert psnr(np.full((2, 2), 250, np.uint8), np.full((2, 2), 5, np.uint8)) == pytest.approx(20 * np.log10(255 / 245))


def test_psnr_takes_factors_in_pieces(monkeypatch):
    rng = np.random.default_rng(0)
    X, Y = (LowRankMatrix(rng.standard_normal((50, 2)), rng.standard_normal((30, 2))) for _ in range(2))
    monkeypatch.setattr("rcurc_gpu.video.quality._ENTRIES_AT_ONCE", 350)
    square = np.mean((X.to_dense() - Y.to_dense()) ** 2)
    assert psnr(X, Y) == pytest.approx(10 * np.log10(255**2 / square))


def test_psnr_of_undetermined_pixels_is_nan_or_leaves_them_out():
    a, b = np.zeros((3, 2)), np.full((3, 2), 5.0)
    b[1] = np.nan
    assert np.isnan(psnr(b, a))
    assert psnr(b, a, undetermined="skip") == pytest.approx(20 * np.log10(255 / 5))


def test_psnr_of_different_shapes_is_refused():
    with pytest.raises(ValueError, match=r"found and reference must be matrices of one shape"):
        psnr(np.zeros((2, 3)), np.zeros((3, 2)))


# ---------------------------------------------------------------- backgrounds


def test_the_background_of_a_scene_is_found_to_a_grey_level():
    scene = surveillance_scene((64, 80), 300)
    result = rcurc(sample_video(scene), "auto", resolution=1.0)
    assert result.converged
    assert result.rank == 2
    assert psnr(result.cur, scene.background_matrix) > 50


def test_outliers_that_move_together_do_not_drive_the_rank_up(caplog):
    caplog.set_level("INFO", logger="rcurc_gpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rcurc(sample_video(surveillance_scene((48, 60), 400, crowd=2.0), seed=1), "auto", resolution=1.0, sweeps=0)
    tried = [record.args[0] for record in caplog.records if record.msg.startswith("rank %d: ")]
    assert 1 <= max(tried) <= 8


def test_in_float32_the_core_does_not_stop_before_its_threshold_is_at_the_noise():
    # zeta_k in float32 may exceed zeta0 gamma^k by its rounding alone
    samples = sample_video(surveillance_scene((32, 40), 150))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = rcurc(samples, 2, gamma=0.9)
    assert result.history[-1].threshold < 20
