"""``rcurc-gpu video`` and `rcurc_gpu.video.separate`: background, foreground and mask of a file."""

import json
import warnings
from importlib import import_module

import av
import numpy as np
import pytest
from click.testing import CliRunner

from rcurc_gpu import CURMatrix
from rcurc_gpu.cli import main
from rcurc_gpu.video import Background, BackgroundSubtractor, VideoWarning, open_video, psnr, separate, surveillance_scene
from rcurc_gpu.video.find import plan_pass
from rcurc_gpu.video.frames import FrameSplitter
from rcurc_gpu.video.read import Video
from rcurc_gpu.video.separate import Options
from rcurc_gpu.video.write import VideoWriter, write_png

SHAPE, FRAMES = (48, 64), 120
WRITTEN = {
    "background.mp4",
    "background.png",
    "foreground.mp4",
    "mask.mp4",
    "objects.csv",
    "report.json",
    "result.npz",
    "sheet.png",
    "timeline.png",
}


def write_video(path, frames, fps=25.0):
    frames = list(frames)
    writer = VideoWriter(path, frames[0].shape, fps)
    for frame in frames:
        writer.write(frame)
    writer.finish()
    return path


def run(*arguments):
    return CliRunner().invoke(main, ["video", *map(str, arguments)])


def names(directory):
    return {path.name for path in directory.iterdir()}


@pytest.fixture(scope="module")
def scene():
    """Longer than the clip: its end comes later. Few frames a second, so that the light changes."""
    return surveillance_scene(SHAPE, 2 * FRAMES, seed=2, fps=5, crowd=0.6)


@pytest.fixture(scope="module")
def clip(scene, tmp_path_factory):
    return write_video(tmp_path_factory.mktemp("clip") / "street.mp4", [scene.frame(k) for k in range(FRAMES)])


@pytest.fixture(scope="module")
def truth(scene):
    """Of the clip, (n1, n2)."""
    return scene.background_matrix[:, :FRAMES]


@pytest.fixture(scope="module")
def made(clip, scene, tmp_path_factory):
    true = [np.rint(scene.background(k)).astype(np.uint8) for k in range(FRAMES)]
    return separate(clip, tmp_path_factory.mktemp("made"), truth=true)


# ---------------------------------------------------------------- what is found


def test_the_background_is_found(made, truth):
    assert made.confirmed
    assert isinstance(made.matrix, CURMatrix)
    assert made.matrix.shape == truth.shape
    assert psnr(made.matrix, truth) > 38
    assert made.figures["psnr_truth"] == pytest.approx(psnr(made.matrix, truth), abs=0.3)  # rounded to grey levels


def test_the_mask_shows_what_moves(made, scene):
    found = np.stack(list(open_video(made.files[0].parent / "mask.mp4"))) > 127
    true = np.stack([scene.mask(k) for k in range(FRAMES)])
    assert found.shape == true.shape
    assert (found & true).sum() > 0.8 * true.sum()
    assert (found & true).sum() > 0.9 * found.sum()


def test_the_videos_have_all_frames_and_show_what_was_found(made):
    directory = made.files[0].parent
    assert names(directory) == WRITTEN == {path.name for path in made.files}
    background, foreground, mask = (open_video(directory / f"{name}.mp4") for name in ("background", "foreground", "mask"))
    assert len(background) == len(foreground) == len(mask) == FRAMES
    assert background.fps == 25
    for k, (frame, cut, where) in enumerate(zip(background, foreground, mask, strict=True)):
        assert np.abs(frame - made.background.picture(k)).mean() < 2.5  # compression
        assert np.abs(cut[where < 64].astype(float) - 128).mean() < 8
    picture = next(iter(open_video(directory / "background.png")))
    np.testing.assert_allclose(picture, made.background.still(), atol=0.51)


def test_the_report_names_the_files_and_is_json(made):
    report = json.loads((made.files[0].parent / "report.json").read_text())
    assert report["complete"]
    assert report["program"] == "rcurc-gpu video"
    assert set(report["files"]) == WRITTEN
    assert report["frames_written"] == FRAMES
    assert 0 < report["foreground_share"] < 0.2


def test_the_factors_can_be_loaded_as_matrix_and_as_background(made, tmp_path):
    path = made.files[0].parent / "result.npz"
    np.testing.assert_array_equal(CURMatrix.load(path).left, made.matrix.left)
    loaded = Background.load(path)
    assert loaded.shape == SHAPE
    assert loaded.noise == made.background.noise
    np.testing.assert_array_equal(loaded.rule.threshold, made.background.rule.threshold)
    np.testing.assert_array_equal(loaded.picture(7), made.background.picture(7))


def test_colour_is_found_and_kept(scene, tmp_path):
    tint = np.asarray([1.0, 0.8, 0.5])
    frames = [np.rint(scene.frame(k)[:, :, None] * tint).astype(np.uint8) for k in range(FRAMES)]
    made = separate(write_video(tmp_path / "colour.mp4", frames), tmp_path / "out", rank=2)
    assert made.background.shape == (*SHAPE, 3)
    true = (scene.background_matrix.left[:, None, :] * tint[:, None]).reshape(-1, 2) @ scene.background_matrix.right[
        :FRAMES
    ].T
    assert psnr(made.matrix, true) > 32  # compression takes more of colours
    assert open_video(tmp_path / "out" / "mask.mp4").shape == SHAPE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is short
        grey = separate(tmp_path / "colour.mp4", tmp_path / "grey", rank=1, colour=False, frames=30, only="mask")
    assert grey.background.shape == SHAPE
    assert grey.figures["frames"] == 30


def test_little_memory_is_enough_for_fewer_frames(clip, truth, tmp_path):
    made = separate(clip, tmp_path, rank=2, memory=200_000)
    assert made.figures["chosen_frames"] <= 33
    assert made.matrix.shape == truth.shape
    assert psnr(made.matrix, truth) > 34


@pytest.mark.parametrize("n1", [100 * 100, 1080 * 1920, 3 * 1080 * 1920])
@pytest.mark.parametrize("n2", [300, 3000, 100_000])
def test_the_plan_keeps_to_the_memory(n1, n2):
    memory = 512 << 20
    plan = plan_pass(n1, n2, memory)
    assert plan.n_cols * n1 + plan.n_rows * n2 <= memory
    assert plan.n_cols >= 16
    assert plan.n_rows >= 300


def test_a_background_is_applied_to_a_later_clip(made, scene, tmp_path):
    later = range(FRAMES, 2 * FRAMES)
    path = write_video(tmp_path / "later.mp4", [scene.frame(k) for k in later])
    true = [np.rint(scene.background(k)).astype(np.uint8) for k in later]
    applied = separate(path, tmp_path / "out", model=made.files[0].parent / "result.npz", truth=true)
    assert applied.figures["psnr_truth"] > 33
    # the light is another one: the old picture would not do
    old = made.background.picture(FRAMES - 1).ravel()[:, None]
    assert applied.figures["psnr_truth"] > 3 + psnr(np.repeat(old, FRAMES, axis=1), scene.background_matrix[:, FRAMES:])
    assert names(tmp_path / "out") == WRITTEN - {"result.npz"}


def test_a_preview_is_small_and_writes_no_videos(scene, tmp_path):
    path = write_video(tmp_path / "large.mp4", [np.kron(scene.frame(k), np.ones((5, 5), np.uint8)) for k in range(FRAMES)])
    done = run(path, "-o", tmp_path / "out", "--preview", "--quiet")
    assert done.exit_code in (0, 1), done.output
    assert names(tmp_path / "out") == {"preview-background.png", "preview-sheet.png", "preview-report.json"}
    report = json.loads((tmp_path / "out" / "preview-report.json").read_text())
    assert report["height"] * report["width"] <= 1.05 * 160 * 120
    assert report["frames"] <= 100


def test_frames_of_odd_size_are_written_whole(tmp_path):
    frames = np.random.default_rng(0).integers(100, 120, (9, 33, 47)).astype(np.uint8)
    path = write_video(tmp_path / "odd.mp4", frames, fps=float("nan"))
    video = open_video(path)
    assert (video.shape, len(video), video.fps) == ((34, 48), 9, 25)


# ---------------------------------------------------------------- files in the way


def test_files_of_others_stay_unless_forced(clip, tmp_path):
    theirs = tmp_path / "sheet.png"
    theirs.write_text("not ours")
    done = run(clip, "-o", tmp_path, "--rank", 2)
    assert done.exit_code == 2
    assert "no earlier run wrote it" in done.output
    assert names(tmp_path) == {"sheet.png"}
    assert theirs.read_text() == "not ours"
    (tmp_path / "notes.txt").write_text("kept")
    for options in (["--force"], []):  # then they are ours
        assert run(clip, "-o", tmp_path, "--rank", 2, "--quiet", "--frames", 40, *options).exit_code in (0, 1)
        assert theirs.read_bytes().startswith(b"\x89PNG")
    assert names(tmp_path) == WRITTEN | {"notes.txt"}


def test_what_is_read_is_never_replaced(scene, tmp_path):
    path = write_video(tmp_path / "mask.mp4", [scene.frame(k) for k in range(20)])
    before = path.read_bytes()
    done = run(path, "-o", tmp_path, "--force")
    assert done.exit_code == 2
    assert "is read and would be replaced" in done.output
    assert path.read_bytes() == before


# ---------------------------------------------------------------- the command


def test_the_command_reports_in_words_and_as_json(clip, made, scene, tmp_path):
    still = tmp_path / "true.png"
    write_png(still, scene.background(FRAMES // 2))
    done = run(clip, "-o", tmp_path / "out", "--truth", still, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    assert report["rank"] == made.figures["rank"]
    assert report["psnr_truth"] > 25
    done = run(clip, "-o", tmp_path / "out", "--model", tmp_path / "out" / "result.npz")
    assert done.exit_code == 0
    for word in ("Background:  rank", "Foreground:", "Saved in"):
        assert word in done.output


def test_bars_do_not_change_what_is_found(clip, made, tmp_path):
    done = run(clip, "-o", tmp_path)
    assert "solving" in done.output
    np.testing.assert_array_equal(CURMatrix.load(tmp_path / "result.npz").left, made.matrix.left)


def only_sound(path):
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=44100)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.rate = 44100
        container.mux(stream.encode(frame))
        container.mux(stream.encode())


BAD_FILES = {
    "missing": (lambda path, clip: None, "no such file: "),
    "directory": (lambda path, clip: path.mkdir(), "Is a directory"),
    "empty": (lambda path, clip: path.touch(), "is empty (0 bytes)"),
    "text": (lambda path, clip: path.write_text("no video at all\n" * 50), "is not a video"),
    "truncated": (lambda path, clip: path.write_bytes(clip.read_bytes()[:-3000]), "its beginning is damaged"),
    "sound": (lambda path, clip: only_sound(path), "it has no pictures in it"),
    "picture": (lambda path, clip: write_png(path, np.full((20, 20), 99.0)), "must have at least 8 frames, got 1"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_files_end_with_2_and_one_line_and_write_nothing(kind, clip, tmp_path):
    make, message = BAD_FILES[kind]
    make(tmp_path / "in.mp4", clip)
    done = run(tmp_path / "in.mp4", "-o", tmp_path / "out")
    assert done.exit_code == 2
    assert message in done.output
    assert done.output.count("\n") <= 4  # with the two lines of usage
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "{file}"], "--output must be a directory, got"),
        (["-o", "{file}/out"], "Not a directory"),
        (["--model", "{clip}"], "is not a CURMatrix file"),
        (["--model", "{npz}", "--height", "20"], "must be as that of the model, 48 x 64 in grey, got 20 x 27 in grey"),
        (["--truth", "{file}"], "is empty (0 bytes)"),
        (["--truth", "{short}"], "truth must have one frame, or as many as the source, 120, got 9"),
        (["--rank", "100"], "--rank must be at most"),
        (["--frames", "3"], "IN must have at least 8 frames, got 3"),
        (["--only", "sound"], "'sound' is not one of 'background', 'foreground', 'mask'"),
        (["--live", "--preview"], "--live takes no --preview"),
        (["--preview", "--truth", "{file}"], "--preview takes neither a model nor a truth"),
    ],
)
def test_wrong_options_end_with_2_and_one_line(options, message, clip, made, scene, tmp_path):
    (tmp_path / "file").touch()
    write_video(tmp_path / "short.mp4", [scene.frame(k) for k in range(9)])
    places = {"file": tmp_path / "file", "clip": clip, "npz": made.files[0].parent / "result.npz"}
    options = [option.format(**places, short=tmp_path / "short.mp4") for option in options]
    if "-o" not in options:
        options += ["-o", str(tmp_path / "out")]
    done = run(clip, "--quiet", *options)
    assert done.exit_code == 2, done.output
    assert message in done.output
    assert "Traceback" not in done.output


def test_ctrl_c_ends_with_130_and_leaves_videos_that_play(clip, tmp_path, monkeypatch):
    split, done = FrameSplitter.split, []

    def stopped(self, *arguments):
        done.append(1)
        if len(done) == 50:
            raise KeyboardInterrupt
        return split(self, *arguments)

    monkeypatch.setattr(FrameSplitter, "split", stopped)
    done_by = run(clip, "-o", tmp_path, "--rank", 2)
    assert done_by.exit_code == 130
    assert f"Saved before that: {tmp_path / 'result.npz'}" in done_by.output
    assert "Videos and tables have the first 49 frames." in done_by.output
    assert names(tmp_path) == WRITTEN - {"sheet.png", "timeline.png"}
    for name in ("background", "foreground", "mask"):
        assert len(list(open_video(tmp_path / f"{name}.mp4"))) == 49
    assert not json.loads((tmp_path / "report.json").read_text())["complete"]
    monkeypatch.undo()
    done = run(clip, "-o", tmp_path, "--model", tmp_path / "result.npz", "--quiet")  # go on from there
    assert done.exit_code == 0, done.output
    assert names(tmp_path) == WRITTEN
    assert run(clip, "-o", tmp_path, "--rank", 2, "--quiet").exit_code == 0  # all of them are still known as ours


def test_a_damaged_video_is_used_with_a_notice(clip, tmp_path):
    data = bytearray(clip.read_bytes())
    end = data.index(b"moov")
    data[end // 2 : end - 8] = bytes(end - 8 - end // 2)  # the second half of the pictures
    (tmp_path / "damaged.mp4").write_bytes(data)
    with pytest.warns(VideoWarning, match="frames could be decoded"):
        made = separate(tmp_path / "damaged.mp4", tmp_path / "out", rank=1)
    assert made.figures["frames_written"] == made.matrix.shape[1] < FRAMES


def test_a_small_file_is_decoded_once_and_a_large_one_twice_with_the_same_result(clip, tmp_path, monkeypatch):
    decode, opened = Video.__iter__, []

    def counted(self):
        for k, frame in enumerate(decode(self)):
            opened.append(k == FRAMES - 1)
            yield frame

    monkeypatch.setattr(Video, "__iter__", counted)
    once = separate(clip, tmp_path / "once", colour=False, rank=1, only=["mask", "objects"])
    assert sum(opened) == 1
    whole = FRAMES * SHAPE[0] * SHAPE[1]
    monkeypatch.setattr(import_module("rcurc_gpu.video.separate"), "_REMEMBERED", 0.99 * whole / Options.memory)
    twice = separate(clip, tmp_path / "twice", colour=False, rank=1, only=["mask", "objects"])
    assert sum(opened) == 3
    np.testing.assert_array_equal(once.matrix.left, twice.matrix.left)
    assert (tmp_path / "once" / "objects.csv").read_text() == (tmp_path / "twice" / "objects.csv").read_text()


@pytest.mark.parametrize(
    ("source", "options", "error", "message"),
    [
        (3, {}, TypeError, "source must be a path, a Video or frames with a length, got int"),
        ([], {}, ValueError, "source has no frames"),
        (np.zeros((9, 4), np.uint8), {}, ValueError, "source must give frames of shape"),
        (np.ones((9, 20, 20)), {}, TypeError, "source must give frames of uint8, 0 to 255, got float64 as frame 0"),
        (np.ones((9, 20, 20), np.uint8), {"size": (10, 10)}, ValueError, "size, frames and preview are for files"),
        (np.ones((9, 20, 20), np.uint8), {"colour": "red"}, ValueError, "colour must be True, False or 'auto', got 'red'"),
        (np.ones((9, 20, 20), np.uint8), {"only": "sound"}, ValueError, "only must be some of background, .*, got sound"),
        (np.ones((9, 20, 20), np.uint8), {"mask": "gif"}, ValueError, "mask must be one of mp4, mkv, png, got 'gif'"),
    ],
)
def test_bad_arguments_are_named(source, options, error, message, tmp_path):
    with pytest.raises(error, match=message):
        separate(source, tmp_path / "out", **options)


# ---------------------------------------------------------------- what is written


def test_only_what_is_asked_for_is_written_and_a_lossless_mask_agrees_with_the_objects(clip, tmp_path):
    assert run(clip, "-o", tmp_path, "--only", "mask", "--only", "objects", "--mask", "mkv").exit_code == 0
    assert names(tmp_path) == {"mask.mkv", "objects.csv", "report.json"}
    masks = list(open_video(tmp_path / "mask.mkv"))
    assert set(np.unique(masks)) == {0, 255}
    table = np.loadtxt(tmp_path / "objects.csv", delimiter=",", skiprows=1, dtype=int)
    for k, mask in enumerate(masks):
        rows = table[table[:, 0] == k]
        assert rows[:, 5].sum() == np.count_nonzero(mask)
        for _, left, top, width, height, area in rows:
            assert np.count_nonzero(mask[top : top + height, left : left + width]) >= area


def test_masks_as_pictures(clip, tmp_path):
    for frames in (30, 20):  # the second run has fewer
        assert run(clip, "-o", tmp_path, "--only", "mask", "--mask", "png", "--frames", frames).exit_code in (0, 1)
        pictures = open_video(tmp_path / "mask")
        assert len(pictures) == frames
    assert set(np.unique(list(pictures))) == {0, 255}


# ---------------------------------------------------------------- videos that are odd


def write_odd(path, frames, codec="ffv1", pixels="gray", times=None):
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = pixels
        for k, frame in enumerate(frames):
            picture = av.VideoFrame.from_ndarray(frame, format="gray")
            if times is not None:
                picture.pts = times[k]
            container.mux(stream.encode(picture))
        container.mux(stream.encode())
    return path


@pytest.fixture(scope="module")
def some(scene):
    return np.stack([scene.frame(k) for k in range(40)])


def quiet(source, output, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are short
        return separate(source, output, **options)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [("one pixel", (1, 1)), ("odd size", (33, 47)), ("ten bits", SHAPE), ("varying rate", SHAPE)],
)
def test_odd_videos_are_separated_and_what_is_written_plays(kind, shape, some, tmp_path):
    frames = np.ascontiguousarray(some[:, : shape[0], : shape[1]])
    options = {}
    if kind == "ten bits":
        options = {"codec": "ffv1", "pixels": "gray10le"}
    if kind == "varying rate":
        options = {"times": np.cumsum(np.where(np.arange(40) < 20, 1, 7))}
    path = write_odd(tmp_path / "in.mkv", frames, **options)
    made = quiet(path, tmp_path / "out", mask="mkv")
    assert made.background.shape == shape
    assert np.abs(made.background.picture(20) - np.median(frames, axis=0)).mean() < 6
    for name in ("background.mp4", "foreground.mp4", "mask.mkv"):
        assert len(list(open_video(tmp_path / "out" / name))) == 40
    assert ("frame_rate" in made.figures) == (kind == "varying rate")


def test_frames_that_change_size_are_scaled_with_a_notice(some, tmp_path):
    for k in range(20):
        frame = some[k] if k < 12 else np.kron(some[k], np.ones((2, 2), np.uint8))
        write_png(tmp_path / f"{k}.png", frame)
    with pytest.warns(VideoWarning, match="changes to frames of 96 x 128 at frame 12; all are scaled to 48 x 64"):
        frames = list(open_video(tmp_path))
    np.testing.assert_allclose(frames[15], some[15], atol=1)


def test_a_video_that_ends_within_its_pictures_is_separated_with_a_notice(some, tmp_path):
    whole = write_odd(tmp_path / "whole.avi", some)
    (tmp_path / "cut.avi").write_bytes(whole.read_bytes()[: whole.stat().st_size * 2 // 3])
    done = run(tmp_path / "cut.avi", "-o", tmp_path / "out", "--only", "mask")
    assert done.exit_code in (0, 1), done.output
    assert "is damaged or ends early" in done.output
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert len(list(open_video(tmp_path / "out" / "mask.mp4"))) == report["frames_written"]
    assert 8 < report["frames_written"] < 40


# ---------------------------------------------------------------- --live


def test_a_file_is_followed_live(clip, tmp_path):
    done = run("--live", clip, "-o", tmp_path, "--grey")
    assert done.exit_code == 0, done.output
    assert f"Followed:    {FRAMES} frames of 48 x 64, 0 dropped" in done.output
    assert names(tmp_path) == {"mask.mp4", "objects.csv", "background.png", "timeline.png", "report.json"}
    assert len(list(open_video(tmp_path / "mask.mp4"))) == FRAMES


def test_ctrl_c_ends_a_live_run_with_0_and_finished_files(clip, tmp_path, monkeypatch):
    split, count = BackgroundSubtractor.split, []

    def stopped(self, frame):
        count.append(1)
        if len(count) == 30:
            raise KeyboardInterrupt
        return split(self, frame)

    monkeypatch.setattr(BackgroundSubtractor, "split", stopped)
    done = run("--live", clip, "-o", tmp_path, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    assert report["stopped"]
    assert report["frames"] == 29
    assert len(list(open_video(tmp_path / "mask.mp4"))) == 29


def test_what_gives_its_frames_once_needs_live(tmp_path):
    done = run("rtsp://127.0.0.1:1/x", "-o", tmp_path / "out")
    assert done.exit_code == 2
    assert "use --live" in done.output
