"""``rcurc-gpu paper table1``."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from helpers import write_video

from rcurc_gpu import rcurc
from rcurc_gpu.cli.paper_table import _scaled, table1
from rcurc_gpu.paper import table1 as experiment
from rcurc_gpu.paper.table1 import TableSettings, compare, markdown
from rcurc_gpu.video import psnr, surveillance_scene


@pytest.fixture(autouse=True)
def no_warm_up(monkeypatch):
    monkeypatch.setattr(experiment, "warm_up", lambda settings: None)  # nothing is timed here


def run(*arguments):
    return CliRunner().invoke(table1, [str(argument) for argument in arguments], prog_name="table1")


def test_the_scene_is_compared_with_ircur_and_with_the_truth():
    scene = surveillance_scene((40, 48), 160, crowd=0.5)
    outcome = compare("scene", scene, TableSettings(rank=1))
    row = outcome.figures
    assert (row["height"], row["width"], row["frames"], row["rank"]) == (40, 48, 160, 1)
    np.testing.assert_array_equal(outcome.pixels[:, 7], scene.frame(7).ravel())
    determined = ~np.isnan(outcome.known.to_dense()).any(axis=1)
    assert determined.mean() > 0.98
    found, reference = (x.to_dense()[determined] for x in (outcome.found, outcome.reference))
    assert row["psnr"] == pytest.approx(psnr(found, reference))
    truth = np.stack([scene.background(k).ravel() for k in range(160)], axis=1)
    square = np.mean((found - truth[determined]) ** 2)
    assert row["psnr_truth"] == pytest.approx(10 * np.log10(255**2 / square), abs=0.01)
    assert row["psnr_truth"] > 41
    assert row["share_seen"] == pytest.approx(0.24 - 0.16 * 0.09, abs=0.01)


def test_the_rank_is_found_from_some_of_the_pixels(monkeypatch):
    scene = surveillance_scene((64, 80), 150, crowd=0.5)
    solved = []
    monkeypatch.setattr(
        experiment, "rcurc", lambda samples, *rank, **o: (solved.append(samples.shape), rcurc(samples, *rank, **o))[1]
    )
    found = compare("scene", scene, TableSettings()).figures
    assert solved == [(4000, 60), (64 * 80, 150)]
    monkeypatch.setattr(experiment, "_FEW_PIXELS", 10**6)
    whole = compare("scene", scene, TableSettings()).figures
    assert solved[2:] == [(64 * 80, 150)]
    assert found["rank"] == whole["rank"]
    assert found["psnr_truth"] == pytest.approx(whole["psnr_truth"], abs=0.5)


def test_the_command_prints_the_table_and_saves_it_with_figures_and_a_sheet(tmp_path):
    done = run("--height", 32, "--width", 40, "--frames", 120, "--rank", 1, "--output", tmp_path / "out")
    assert done.exit_code in (0, 1), done.output
    table = (tmp_path / "out" / "table1.md").read_text()
    assert table.strip() in done.output
    assert "| scene | 32 x 40 | 120 | 1 |" in table
    report = json.loads((tmp_path / "out" / "table1.json").read_text())
    assert report["videos"][0]["psnr_truth"] > 30
    assert (tmp_path / "out" / "table1-scene.png").read_bytes().startswith(b"\x89PNG")
    assert (done.exit_code == 0) == (report["videos"][0]["rcurc"]["cause"] in ("", "undetermined"))


def test_videos_are_scaled_and_reported_as_json(tmp_path):
    frames = np.stack(list(surveillance_scene((64, 80), 170, crowd=0.5)))
    path = write_video(tmp_path / "my street.mkv", frames)
    done = run(path, "--width", 40, "--frames", 150, "--rank", 1, "--json", "--output", tmp_path)
    report = json.loads(done.stdout)
    row = report["videos"][0]
    assert (row["video"], row["height"], row["width"], row["frames"]) == ("my street", 32, 40, 150)
    assert row["psnr"] > 30
    assert row["psnr_truth"] is None
    assert "truth" not in (tmp_path / "table1.md").read_text()
    assert (tmp_path / "table1-my-street.png").exists()


def test_the_size_is_as_asked_in_proportion_or_at_most_as_large_as_allowed():
    assert _scaled((576, 768), (288, None), (256, 320)) == (288, 384)
    assert _scaled((576, 768), (None, 96), (256, 320)) == (72, 96)
    assert _scaled((576, 768), (50, 60), (256, 320)) == (50, 60)
    assert _scaled((100, 120), (None, None), (256, 320)) == (100, 120)
    height, width = _scaled((576, 768), (None, None), (256, 320))
    assert height * width <= 1.01 * 256 * 320
    assert height / width == pytest.approx(0.75, abs=0.01)


def test_the_table_has_columns_for_the_truth_only_where_it_is_known():
    row = {
        "video": "a",
        "height": 2,
        "width": 3,
        "frames": 4,
        "rank": 1,
        "seconds": {"sampling": 1.0, "rcurc": 2.0, "reading": 3.0, "ircur": 4.0},
        "frames_per_second": 8.0,
        "psnr": 40.123,
        "psnr_truth": None,
        "psnr_truth_ircur": None,
    }
    assert markdown([row]).splitlines()[2] == "| a | 2 x 3 | 4 | 1 | 1.00 | 2.00 | 8 | 4.00 | 40.12 |"
    both = markdown([row, row | {"psnr_truth": 50.0, "psnr_truth_ircur": 51.0}]).splitlines()
    assert both[2].endswith("| 40.12 |  |  |")
    assert both[3].endswith("| 40.12 | 50.00 | 51.00 |")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.avi"], "no such file: 'missing.avi'"),
        (["."], "cannot read or write '.': Is a directory"),
        ([__file__], "is not a video"),
        (["--rank", "0"], "'0' is neither a positive whole number nor auto"),
        (["--rank", "two"], "'two' is neither a positive whole number nor auto"),
        (["--rate", "nan"], "'nan' is not a share such as 0.3 or 30%"),
        (["--device", "gpu"], "'gpu' is not auto, cpu, cuda"),
    ],
)
def test_wrong_options_and_videos_end_with_2_and_one_line(arguments, message, tmp_path):
    done = run(*arguments, "--output", tmp_path / "out")
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_damaged_video_is_used_with_a_notice(tmp_path):
    path = write_video(tmp_path / "cut.avi", np.stack(list(surveillance_scene((32, 40), 200, crowd=0.5))))
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 4])
    done = run(path, "--rank", 1, "--output", tmp_path / "out")
    assert done.output.count("is damaged or ends early") == 1
    frames = json.loads((tmp_path / "out" / "table1.json").read_text())["videos"][0]["frames"]
    assert 100 < frames < 200


def test_ctrl_c_ends_with_130_and_says_what_was_saved(tmp_path, monkeypatch):
    def stopped(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "compare", stopped)
    done = run("--output", tmp_path)
    assert done.exit_code == 130
    assert "Stopped. Nothing was saved." in done.stderr
