"""Pictures of kept results show what is in them."""

import numpy as np
import pytest

from rcurc_gpu import rcurc, synthetic
from rcurc_gpu.io import Completion, Labels
from rcurc_gpu.plot.result import _merged, outlier_map, pictures, result_figure, unit_fit, worst_units


@pytest.fixture(scope="module")
def completion():
    problem = synthetic((200, 160), 2, alpha=0.1, n_rows=80, n_cols=60, rate=0.5, seed=3)
    labels = Labels(np.asarray([f"a $rather$ long name of row {k}" for k in range(200)]), np.arange(160).astype(str))
    return Completion.of(rcurc(problem.samples, 2), labels)


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
