"""Backgrounds that are followed frame by frame, and the sources that give such frames."""

import http.server
import io
import logging
import subprocess
import sys
import threading

import av
import numpy as np
import pytest
from helpers import write_video

from rcurc_gpu.video import BackgroundSubtractor, LiveSource, is_live, open_video, surveillance_scene
from rcurc_gpu.video.adapt import Kept
from rcurc_gpu.video.write import write_png

SHAPE = (48, 64)


def dB(found, true):
    return 10 * np.log10(255**2 / np.mean(np.square(found.astype(float) - true)))


@pytest.fixture(scope="module")
def scene():
    return surveillance_scene(SHAPE, 700, seed=4, crowd=0.6)


def lamp(k, picture):
    """A second light in half of the picture from frame 350 on."""
    return np.clip(picture + 50.0 * (np.arange(SHAPE[1]) > 30), 0, 255) if k >= 350 else picture


@pytest.fixture(scope="module")
def followed(scene):
    subtractor = BackgroundSubtractor(history=200)
    records = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    log = logging.getLogger("rcurc_gpu")
    level = log.level
    log.addHandler(handler)
    log.setLevel("INFO")
    try:
        frames = (np.rint(lamp(k, scene.frame(k).astype(float))).astype(np.uint8) for k in range(700))
        seen = [(background, mask) for _, background, mask in subtractor.follow(frames)]
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    return subtractor, seen, records


# ---------------------------------------------------------------- the background


def test_the_background_is_learned_and_learned_anew_after_a_lasting_change(followed, scene):
    _, seen, records = followed
    for k in (300, 349, 550, 699):  # the change is at 350
        assert dB(seen[k][0], lamp(k, scene.background(k))) > 35
    changes = [text for text in records if "has changed for good" in text]
    assert len(changes) == 1
    assert 350 <= int(changes[0].split()[1].rstrip(":")) < 400


def test_masks_show_what_moves(followed, scene):
    _, seen, _ = followed
    chosen = [*range(200, 350, 5), *range(550, 700, 5)]
    found = np.stack([seen[k][1] for k in chosen])
    true = np.stack([scene.mask(k) for k in chosen])
    assert set(np.unique(found)) == {0, 255}
    found = found > 0
    assert (found & true).sum() > 0.7 * true.sum()
    assert (found & true).sum() > 0.7 * found.sum()


def test_a_light_that_is_switched_back_is_recognised(scene, caplog):
    caplog.set_level("INFO", logger="rcurc_gpu")
    subtractor = BackgroundSubtractor(history=100)
    on = [*range(150, 300)]
    for k in range(340):
        frame = scene.frame(k).astype(float) + (60.0 * (np.arange(SHAPE[1]) > 30) if k in on else 0)
        subtractor.apply(np.clip(np.rint(frame), 0, 255).astype(np.uint8))
        if k == 310:  # ten frames after it was switched back
            assert dB(subtractor.background, scene.background(k)) > 32
    assert sum("again as it was earlier" in record.getMessage() for record in caplog.records) == 1


def test_the_seed_fixes_the_masks_and_frames_are_not_changed(scene):
    first, again = BackgroundSubtractor(), BackgroundSubtractor()
    for k in range(40):
        frame = scene.frame(k)
        frame.flags.writeable = False
        np.testing.assert_array_equal(first.apply(frame), again.apply(frame))
        np.testing.assert_array_equal(first.background, again.background)
    assert first.frames == 40


def test_learning_beside_the_work_gives_a_background_too(scene):
    subtractor = BackgroundSubtractor(beside=True)
    for k in range(60):
        subtractor.apply(scene.frame(k))
        if subtractor._learning is not None:
            subtractor._learning.done.wait(60)
    assert subtractor.learned >= 2


def test_a_camera_that_shakes_does_not_fill_the_masks():
    still, rng = surveillance_scene((96, 128), 100, seed=3, crowd=0), np.random.default_rng(1)
    subtractor, shares = BackgroundSubtractor(), []
    for frame in still:  # nothing is in it
        shares.append(np.mean(subtractor.apply(np.roll(frame, rng.integers(-2, 3, 2), (0, 1))) > 0))
    assert np.mean(shares[60:]) < 0.1


def test_what_is_kept_is_bounded_and_spread_over_the_history():
    kept = Kept((1, 1), 8, 100)
    for k in range(1000):
        kept.add(np.full((1, 1), k % 256, np.uint8))
        assert len(kept.pictures()) <= 8
    ages = sorted((999 - int(p[0, 0])) % 256 for p in kept.pictures())
    assert ages[-1] > 80
    assert max(np.diff(ages)) <= 16


def test_a_frame_of_one_pixel_has_a_background():
    subtractor = BackgroundSubtractor()
    rng = np.random.default_rng(0)
    for _ in range(30):
        mask = subtractor.apply(rng.integers(100, 103, (1, 1)).astype(np.uint8))
    assert mask.shape == (1, 1)
    assert abs(int(subtractor.background[0, 0]) - 101) <= 1


@pytest.mark.parametrize(
    ("frames", "error", "message"),
    [
        ([np.zeros((4, 5))], TypeError, "frame must be uint8, 0 to 255, got float64"),
        (
            [np.zeros(4, np.uint8)],
            ValueError,
            r"frame must have shape \(height, width\) or \(height, width, 3\), got \(4,\)",
        ),
        (
            [np.zeros((4, 5), np.uint8), np.zeros((5, 4), np.uint8)],
            ValueError,
            r"frame must be of the shape of the first, \(4, 5\), got \(5, 4\)",
        ),
    ],
)
def test_frames_that_cannot_be_used_are_named(frames, error, message):
    subtractor = BackgroundSubtractor()
    for frame in frames[:-1]:
        subtractor.apply(frame)
    with pytest.raises(error, match=message):
        subtractor.apply(frames[-1])


def test_a_history_that_is_too_short_is_refused():
    with pytest.raises(ValueError, match="history must be at least 8, got 3"):
        BackgroundSubtractor(history=3)


# ---------------------------------------------------------------- sources


@pytest.fixture(scope="module")
def clip(scene, tmp_path_factory):
    return write_video(tmp_path_factory.mktemp("live") / "clip.mkv", np.stack([scene.frame(k) for k in range(30)]))


@pytest.mark.parametrize(
    ("source", "live"),
    [("0", True), ("/dev/video0", True), ("rtsp://127.0.0.1/a", True), ("-", True), ("a.mp4", False), ("pictures", False)],
)
def test_what_can_be_seen_once_only_is_known(source, live):
    assert is_live(source) == live


def test_a_file_is_followed_without_dropping_frames(clip):
    with LiveSource(str(clip)) as source:
        assert (source.shape, source.drop) == (SHAPE, False)
        np.testing.assert_array_equal(np.stack(list(source)), np.stack(list(open_video(clip))))
        assert (source.dropped, source.gone) == (0, "")


def test_frames_are_dropped_instead_of_falling_behind(clip):
    with LiveSource(str(clip), drop=True) as source:
        coming = iter(source)
        first = next(coming)
        source._thread.join(30)  # all the others came in the meantime
        late = list(coming)
    expected = list(open_video(clip))
    assert any(np.array_equal(first, frame) for frame in expected)  # the very first, unless this thread was slow to ask
    np.testing.assert_array_equal(late[-1], expected[-1])
    assert len(late) <= 2
    assert 1 + len(late) + source.dropped == len(expected)


def test_a_directory_and_patterns_of_pictures_are_videos(scene, tmp_path):
    for k in range(12):
        write_png(tmp_path / f"shot{k}.png", scene.frame(k))
    (tmp_path / "notes.txt").write_text("no picture")
    expected = np.stack([scene.frame(k) for k in range(12)])
    for path in (tmp_path, tmp_path / "shot%d.png", tmp_path / "shot*.png"):
        video = open_video(path)
        assert len(video) == 12
        np.testing.assert_array_equal(np.stack(list(video)), expected)
    with pytest.raises(FileNotFoundError, match="No such pictures"):
        open_video(tmp_path / "other%d.png")


def test_standard_input_is_followed(clip):
    code = "from rcurc_gpu.video import LiveSource; print(sum(1 for _ in LiveSource('-')))"
    with open(clip, "rb") as file:
        done = subprocess.run([sys.executable, "-c", code], stdin=file, capture_output=True, timeout=120, check=False)
    assert done.stdout.split() == [b"30"], done.stderr


class Camera(http.server.BaseHTTPRequestHandler):
    """Sends JPEGs, one after the other, as cameras do, and hangs up."""

    pictures: list

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=--next")
        self.end_headers()
        for data in self.pictures:
            self.wfile.write(
                b"--next\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(data) + data + b"\r\n"
            )
        self.server.served += 1

    def log_message(self, *arguments):
        pass


def jpeg(picture):
    out = io.BytesIO()
    with av.open(out, "w", format="image2pipe") as container:
        stream = container.add_stream("mjpeg", rate=25)
        stream.height, stream.width = picture.shape
        stream.pix_fmt = "yuvj420p"
        container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="gray")))
        container.mux(stream.encode())
    return out.getvalue()


@pytest.fixture
def camera(scene):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Ours", (Camera,), {}))
    server.RequestHandlerClass.pictures = [jpeg(scene.frame(k)) for k in range(20)]
    server.served = 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_camera_that_goes_away_is_tried_again_and_named(camera, caplog):
    source = f"http://127.0.0.1:{camera.server_port}/video"
    count = 0
    with LiveSource(source, drop=False, patience=0.6) as live:
        for frame in live:
            assert frame.shape == SHAPE
            count += 1
            if count == 30:  # it came back once
                camera.shutdown()
                camera.server_close()
    assert count >= 30
    assert camera.served >= 2
    assert f"'{source}' went away after" in live.gone
    assert any("is back" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("http://127.0.0.1:1/none", ValueError, r"'http://127.0.0.1:1/none' gives no video \(Connection refused\)"),
        ("file:///etc/hostname", ValueError, "source must be a file or begin with one of http, "),
        ("/dev/video_none", FileNotFoundError, "No such file or directory: '/dev/video_none'"),
        ("missing.mp4", FileNotFoundError, "missing.mp4"),
    ],
)
def test_sources_that_are_not_there_are_named(source, error, message):
    with pytest.raises(error, match=message):
        LiveSource(source)


def test_closing_a_source_early_ends_its_thread(clip):
    source = LiveSource(str(clip))
    next(iter(source))
    source.close()
    source._thread.join(10)
    assert not source._thread.is_alive()
