"""The pictures show what they claim to show."""

import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from rcurc_gpu import ConvergenceWarning, CrossSamples, LowRankMatrix, rcurc, synthetic
from rcurc_gpu.plot import panels as plot


@pytest.fixture(scope="module")
def problem():
    return synthetic((90, 120), 2, rate=0.6, alpha=0.1, seed=0)


@pytest.fixture(scope="module")
def result(problem):
    return rcurc(problem.samples, 2)


@pytest.fixture(scope="module")
def auto(problem):
    """A solve that compares ranks: without noise model."""
    return rcurc(problem.samples, "auto", sweeps=0)


@pytest.fixture(scope="module")
def noisy():
    return rcurc(synthetic((90, 120), 2, rate=0.6, alpha=0.1, noise=0.1, seed=0).samples)


@pytest.fixture(scope="module")
def poor():
    """A solve that leaves columns undetermined."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return rcurc(synthetic((300, 300), 2, rate=0.06, seed=0).samples, 2)


@pytest.fixture
def ax():
    return plot.new_figure(5, 4).add_subplot()


def draw(ax):
    """Render for real: layout and fonts may warn, and a warning is an error here."""
    ax.figure.canvas.draw()


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def line(ax, start):
    (found,) = [drawn for drawn in ax.get_lines() if str(drawn.get_label()).startswith(start)]
    return found


# ---------------------------------------------------------------- all of them


def functions(auto, problem):
    return {
        "sampling_pattern": lambda ax: plot.sampling_pattern(problem.samples, ax),
        "convergence": lambda ax: plot.convergence(auto, ax),
        "strengths": lambda ax: plot.strengths(auto, ax),
        "singular_values": lambda ax: plot.singular_values(auto, ax),
        "column_diagnostics": lambda ax: plot.column_diagnostics(auto, ax),
    }


@pytest.mark.parametrize("name", ["sampling_pattern", "convergence", "strengths", "singular_values", "column_diagnostics"])
def test_draws_on_the_axes_given_or_on_its_own(name, auto, problem, ax):
    function = functions(auto, problem)[name]
    assert function(ax) is ax
    assert ax.get_xlabel()
    assert ax.get_ylabel()
    assert ax.has_data()
    draw(ax)
    own = function(None)
    assert own is not ax
    assert isinstance(own.figure.canvas, FigureCanvasAgg)
    draw(own)


def test_pyplot_is_not_needed(auto, problem, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # importing it is an error now
    for function in functions(auto, problem).values():
        draw(function(None))


def test_without_matplotlib_the_error_names_the_extra(problem, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"rcurc-gpu\[plot\]"):
        plot.sampling_pattern(problem.samples)


# ---------------------------------------------------------------- sampling


def seen_mask(samples):
    mask = np.zeros(samples.shape, dtype=bool)
    r, c = samples.R.tocoo(), samples.C.tocoo()
    mask[samples.rows[r.row], r.col] = True
    mask[c.row, samples.cols[c.col]] = True
    return mask


def test_small_pattern_is_exact(problem, ax):
    plot.sampling_pattern(problem.samples, ax)
    image = np.asarray(ax.get_images()[0].get_array())
    mask = seen_mask(problem.samples)
    np.testing.assert_array_equal(image > 0, mask)
    in_rows = np.isin(np.arange(90), problem.samples.rows)[:, None]
    in_cols = np.isin(np.arange(120), problem.samples.cols)[None, :]
    np.testing.assert_array_equal(image, np.where(mask, in_rows + 2 * in_cols, 0))
    assert f"{mask.mean():.1%}" in ax.get_title()
    assert labels(ax) == ["seen, chosen row", "seen, chosen column", "seen, both"]


def test_chosen_first_is_the_same_pattern_with_the_cross_in_the_corner(problem, ax):
    samples = problem.samples
    plot.sampling_pattern(samples, ax, order="chosen first")
    image = np.asarray(ax.get_images()[0].get_array())
    m, n = len(samples.rows), len(samples.cols)
    np.testing.assert_array_equal(image[:m, :n] > 0, seen_mask(samples)[np.ix_(samples.rows, samples.cols)])
    assert not image[m:, n:].any()
    assert "chosen first" in ax.get_xlabel()


def test_large_pattern_is_a_density(ax):
    samples = synthetic((1000, 700), 2, rate=(0.2, 0.4), seed=1).samples
    plot.sampling_pattern(samples, ax)
    share = np.asarray(ax.get_images()[0].get_array())
    assert max(share.shape) <= 200
    # The mean over equal cells is the share of all entries, up to cells of different size.
    assert share.mean() == pytest.approx(100 * samples.n_obs / 700_000, rel=0.05)
    edge = share.shape[0] * 3 // 10, share.shape[1] * 3 // 10  # 30 % of the rows and columns are chosen
    assert share[: edge[0] - 1, edge[1] + 1 :].mean() == pytest.approx(20, abs=1)
    assert share[edge[0] + 1 :, : edge[1] - 1].mean() == pytest.approx(40, abs=1)
    assert share[: edge[0] - 1, : edge[1] - 1].mean() == pytest.approx(100 * (1 - 0.8 * 0.6), abs=1)
    assert share[edge[0] + 1 :, edge[1] + 1 :].max() == 0
    assert len(ax.figure.axes) == 2  # a colour bar that says what the colours mean
    assert ax.figure.axes[1].get_ylabel() == "entries seen (%)"
    draw(ax)


def test_density_in_the_given_order_does_not_count_twice(ax):
    """Every entry of the cross is seen by both blocks: no cell may hold more than all of its entries."""
    samples = synthetic((450, 450), 1, n_rows=450, n_cols=450, rate=1.0, seed=0).samples
    plot.sampling_pattern(samples, ax, order="given")
    np.testing.assert_allclose(np.asarray(ax.get_images()[0].get_array()), 100)


def test_long_thin_matrix(ax):
    samples = CrossSamples.from_dense(np.ones((3, 1000)), rows=[0, 2], cols=[5, 6])
    plot.sampling_pattern(samples, ax)
    assert np.asarray(ax.get_images()[0].get_array()).shape[0] == 3
    draw(ax)


def test_another_namespace_can_be_drawn(problem, ax):
    import array_api_strict as strict

    plot.sampling_pattern(problem.samples.to_namespace(strict), ax)
    np.testing.assert_array_equal(np.asarray(ax.get_images()[0].get_array()) > 0, seen_mask(problem.samples))


def test_unknown_order(problem, ax):
    with pytest.raises(ValueError, match="order must be one of"):
        plot.sampling_pattern(problem.samples, ax, order="random")


# ---------------------------------------------------------------- convergence


def test_convergence_shows_every_iteration_on_a_log_axis(result, ax):
    plot.convergence(result, ax)
    assert ax.get_yscale() == "log"
    assert ax.get_xlabel() == "iteration"
    np.testing.assert_array_equal(line(ax, "$e_k$").get_ydata(), [s.error for s in result.history])
    np.testing.assert_array_equal(line(ax, "threshold").get_ydata(), [s.threshold for s in result.history])
    np.testing.assert_array_equal(line(ax, "threshold").get_xdata(), np.arange(1, result.n_iter + 1))
    assert any("squared" in label for label in labels(ax))
    assert any("unit of the data" in label for label in labels(ax))


def test_convergence_against_seconds_shows_when_the_clock_was_read(result, ax):
    plot.convergence(result, ax, x="seconds")
    seconds = line(ax, "$e_k$").get_xdata()
    assert (np.diff(seconds) > 0).all()
    assert set(seconds) == {s.seconds for s in result.history}
    assert line(ax, "$e_k$").get_ydata()[-1] == result.history[-1].error
    assert ax.get_xlabel().endswith("(s)")


def test_convergence_with_the_truth_as_a_level_or_by_iteration(result, ax):
    plot.convergence(result, ax, truth=1e-7)
    assert set(line(ax, "true error").get_ydata()) == {1e-7}
    truth = np.geomspace(1, 1e-9, result.n_iter)
    other = plot.convergence(result, truth=truth)
    np.testing.assert_array_equal(line(other, "true relative error").get_ydata(), truth)
    with pytest.raises(ValueError, match="one for each of the"):
        plot.convergence(result, truth=[1.0, 0.1])


def test_convergence_leaves_out_what_a_log_axis_cannot_show(result, ax):
    plot.convergence(result, ax, truth=float("nan"))
    assert not any("true" in label for label in labels(ax))
    other = plot.convergence(result, truth=np.zeros(result.n_iter))
    assert np.isnan(line(other, "true relative error").get_ydata()).all()
    draw(other)


# ---------------------------------------------------------------- rank


def test_strengths_are_bars_beside_the_noise(noisy, ax):
    assert plot.strengths(noisy, ax) is ax
    bars = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(bars, noisy.strengths)
    assert len(bars) == 2
    assert set(line(ax, "noise of one observation").get_ydata()) == {noisy.noise}
    assert ax.get_title().startswith("2 components")
    assert ax.get_title().endswith("supported by the data")
    draw(ax)
    low, high = ax.get_ylim()
    assert low <= noisy.noise < max(bars) < high


def test_strengths_of_very_different_size_are_all_seen(noisy, ax):
    plot.strengths(replace(noisy, noise_strengths=np.asarray([1.0, 1e-3]), noise=0.01), ax)
    assert ax.get_yscale() == "log"
    assert ax.get_ylim()[0] < 1e-3
    draw(ax)


def test_strengths_of_offsets_alone(noisy, ax):
    cur = LowRankMatrix(np.ones((90, 2)), np.ones((120, 2)))
    plot.strengths(replace(noisy, cur=cur, noise_strengths=np.zeros(0)), ax)
    assert ax.get_title() == "no components beside offsets supported by the data"
    draw(ax)


def test_strengths_without_noise_are_those_of_the_truth(problem, result, ax):
    plot.strengths(result, ax)
    bars = [bar.get_height() for bar in ax.patches]
    truth = np.linalg.svdvals(problem.W @ problem.V.T)[: len(bars)]
    np.testing.assert_allclose(bars, truth / np.sqrt(np.prod(result.cur.shape)), rtol=1e-6)


def test_singular_values_are_those_of_the_truth(problem, result, ax):
    plot.singular_values(result, ax)
    truth = np.linalg.svdvals(problem.W @ problem.V.T)[:2]
    np.testing.assert_allclose(line(ax, "recovered").get_ydata(), truth, rtol=1e-6)
    assert list(line(ax, "recovered").get_xdata()) == [1, 2]


def test_singular_values_leave_undetermined_rows_out(poor, ax):
    plot.singular_values(poor, ax)
    assert np.isfinite(line(ax, "recovered").get_ydata()).all()


def test_singular_values_of_nothing(ax):
    assert LowRankMatrix(np.full((3, 2), np.nan), np.ones((4, 2))).singular_values().size == 0


# ---------------------------------------------------------------- columns


def test_columns_are_all_there_and_undetermined_ones_are_marked(poor, ax):
    plot.column_diagnostics(poor, ax)
    bad = line(ax, "undetermined")
    np.testing.assert_array_equal(bad.get_xdata(), poor.columns.undetermined)
    assert f"undetermined ({len(poor.columns.undetermined):,})" in labels(ax)
    good = line(ax, "determined")
    assert good.get_xdata().size + bad.get_xdata().size == 300
    assert good.get_color() != bad.get_color()
    assert good.get_marker() != bad.get_marker()  # colour is not all that tells them apart


def test_column_shares_are_percentages_of_the_observations(result, ax):
    plot.column_diagnostics(result, ax)
    d = result.columns
    np.testing.assert_allclose(line(ax, "determined").get_ydata(), 100 * d.n_inliers / d.n_obs)
    assert not any(label.startswith("undetermined") for label in labels(ax))
    assert any(label.startswith("median, 9") for label in labels(ax))  # 10 % outliers


def test_very_many_columns_are_thinned_out(result, ax, monkeypatch):
    monkeypatch.setattr(plot, "_MOST_POINTS", 50)
    plot.column_diagnostics(result, ax)
    assert line(ax, "determined").get_xdata().size == 40  # every third of 120
    assert labels(ax)[0] == "determined (120), 40 shown"


# ---------------------------------------------------------------- demo


def test_demo_figure(problem, result, tmp_path):
    figure = plot.demo_figure(problem, result)
    figure.savefig(tmp_path / "demo.png")
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    assert len(figure.axes) == 3
    assert "90 x 120, rank 2, cpu: confirmed" in figure.get_suptitle()
    (level,) = {float(y) for y in line(figure.axes[1], "true error").get_ydata()}
    assert level == problem.relative_error(result.cur)


def test_demo_figure_of_a_poor_result(poor):
    problem = synthetic((300, 300), 2, rate=0.06, seed=0)
    figure = plot.demo_figure(problem, poor)
    figure.canvas.draw()
    assert "NOT confirmed" in figure.get_suptitle()
    assert np.isfinite(line(figure.axes[1], "true error").get_ydata()).all()
