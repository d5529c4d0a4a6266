"""Pictures of kept results show what is in them."""

from dataclasses import replace

import numpy as np
import pytest

from rcurc_gpu import CURMatrix, rcurc, synthetic
from rcurc_gpu.io import Completion, Labels, Observations
from rcurc_gpu.plot.result import _merged, intervals, outlier_map, pictures, result_figure, unit_fit, worst_units


@pytest.fixture(scope="module")
def completion():
    problem = synthetic((200, 160), 2, alpha=0.1, n_rows=80, n_cols=60, rate=0.5, seed=3)
    labels = Labels(np.asarray([f"a $rather$ long name of row {k}" for k in range(200)]), np.arange(160).astype(str))
    return Completion.of(rcurc(problem.samples, 2), labels)


@pytest.fixture(scope="module")
def noisy():
    return synthetic((200, 160), 2, alpha=0.1, noise=0.1, n_rows=80, n_cols=60, rate=0.5, seed=3)


@pytest.fixture(scope="module")
def noisy_result(noisy):
    return rcurc(noisy.samples)


def test_with_noise_intervals_and_strengths_come_first(noisy_result):
    c = Completion.of(noisy_result)
    assert list(pictures(c))[:2] == ["intervals", "rank"]
    assert {"convergence", "singular_values"} < set(pictures(c))
    for name, draw in pictures(c).items():
        assert draw(None).get_xlabel(), name
    figure = result_figure(c)
    assert len([ax for ax in figure.axes if ax.get_xlabel()]) == 6
    assert "2 components" in figure.axes[1].get_title()
    figure.canvas.draw()
    assert "intervals" not in pictures(replace(c, cur=replace_uncertainty(c.cur)))


def replace_uncertainty(cur):
    return CURMatrix(cur.left, cur.right, cur.rows, cur.cols)


def test_intervals_show_observations_that_the_solve_did_not_have(noisy, noisy_result):
    i, j = np.random.default_rng(0).integers([200, 160], size=(500, 2)).T
    value = noisy.truth(i, j) + noisy_result.noise * np.random.default_rng(1).standard_normal(500)
    value[:7] += 10 * noisy_result.threshold
    ax = intervals(noisy_result, observed=(i, j, value), level=0.9)
    lower, upper = noisy_result.interval(i, j, 0.9)
    (bars,) = ax.collections
    x = np.asarray([path.vertices for path in bars.get_paths()])
    np.testing.assert_allclose(x[:, :, 0].mean(axis=1), noisy_result.cur.entries(i, j))
    np.testing.assert_allclose(x[:, 1, 1] - x[:, 0, 1], upper - lower)
    inside = np.sum((lower <= value) & (value <= upper))
    assert ax.get_title() == f"{inside / 493:.1%} of 493 observations inside, outliers apart"
    assert 0.85 < inside / 493 < 0.95
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "90 % interval", f"inside ({inside})", f"outside ({493 - inside})", "outlier (7)",
    ]  # fmt: skip
    edge = [drawn for drawn in ax.get_lines() if drawn.get_marker() == "^" and len(drawn.get_xdata())]
    assert sum(len(drawn.get_xdata()) for drawn in edge) >= 7  # what is far off is at the edge
    ax.figure.canvas.draw()


def test_intervals_of_a_result_and_of_its_file_are_the_same(noisy_result):
    assert intervals(noisy_result).get_title() == intervals(Completion.of(noisy_result)).get_title()


def test_intervals_need_observations_and_what_they_are_made_of(noisy, noisy_result, completion):
    with pytest.raises(ValueError, match="no observations to draw"):
        intervals(replace(Completion.of(noisy_result), some_observed=Observations()))
    with pytest.raises(ValueError, match="intervals=True"):
        intervals(rcurc(noisy.samples, intervals=False))
    assert intervals(completion).get_title().endswith("outliers apart")  # exact data have some, too


def test_every_picture_is_drawn(completion):
    for name, draw in pictures(completion).items():
        assert draw(None).get_xlabel(), name
    assert "singular_values" not in pictures(completion)  # "rank" is that where no ranks were compared


def test_one_figure_has_six_panels(completion):
    figure = result_figure(completion)
    titled = [ax for ax in figure.axes if ax.get_xlabel()]
    assert len(titled) == 6
    assert "confirmed" in figure.get_suptitle()


def test_the_outlier_map_shows_shares_of_what_was_seen(completion):
    ax = outlier_map(completion)
    image = ax.images[0].get_array()
    assert np.ma.getmaskarray(image).any()  # the corner that nobody looked into
    # each cell holds at least some observations, so that the mean over them, weighted, is the share of all
    step = -(-completion.seen.shape[0] // image.shape[0])
    weights = _merged(completion.seen, step)
    assert np.ma.average(image, weights=weights) == pytest.approx(100 * len(completion.outliers) / completion.n_obs)
    assert ax.get_xlim() == (-0.5, 159.5)
    assert ax.get_ylim() == (199.5, -0.5)


def test_merging_cells_keeps_their_sum():
    cells = np.arange(35).reshape(5, 7)
    np.testing.assert_array_equal(_merged(cells, 3).sum(), cells.sum())
    assert _merged(cells, 3)[0, 0] == cells[:3, :3].sum()
    assert _merged(cells, 1).tolist() == cells.tolist()


def test_every_row_has_a_dot(completion):
    ax = unit_fit(completion, "rows")
    assert sum(len(line.get_xdata()) for line in ax.lines[:-1]) == 200
    with pytest.raises(ValueError, match="axis must be one of 'rows', 'columns', got 'all'"):
        unit_fit(completion, "all")


def test_the_worst_rows_come_first_with_their_labels(completion):
    ax = worst_units(completion, "rows")
    share = 100 * (1 - completion.rows.n_inliers / completion.rows.n_obs)
    worst = int(np.argmax(share))
    widths = [bar.get_width() for bar in ax.patches]
    assert widths[0] == pytest.approx(share[worst])
    assert widths == sorted(widths, reverse=True)
    label = ax.get_yticklabels()[0].get_text()
    assert label.startswith(r"a \$rather\$ long")  # no formula
    ax.figure.canvas.draw()
