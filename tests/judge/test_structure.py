"""Structure among what was taken for outliers: a further component is no outlier, and random outliers are no component."""

import json

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.judge.lopsided import chance_of as fishers_chance
from rcurc_gpu.judge.lopsided import lopsided
from rcurc_gpu.judge.structure import FEWEST, LIMIT, Looked, Structure, component_scores, crowded

SHAPE, RANK, CHOSEN, RATE = (400, 360), 3, 110, 0.4


class Problem:
    """A matrix of rank 3 with 10 % outliers, and `truth`, which may have a further component."""

    def __init__(self, seed, further=None, spoil=None, noise=0.0, rate=RATE):
        rng = np.random.default_rng(seed)
        (n1, n2), self.rng = SHAPE, rng
        self.rows, self.cols = (np.sort(rng.choice(n, CHOSEN, replace=False)) for n in SHAPE)
        X = rng.standard_normal((n1, RANK)) @ rng.standard_normal((RANK, n2))
        self.truth = X if further is None else X + RANK**0.5 * further(self)
        Y, out = self.truth.copy(), rng.random(SHAPE) < 0.1
        Y[out] += 8 * rng.uniform(-1, 1, SHAPE)[out]
        Y = Y if spoil is None else spoil(self, Y)
        Y += noise * RANK**0.5 * rng.standard_normal(SHAPE)
        seen = np.zeros(SHAPE, dtype=bool)
        seen[self.rows], seen[:, self.cols] = True, True
        i, j = np.nonzero(seen & (rng.random(SHAPE) < rate))
        self.samples = rg.CrossSamples.from_triplets(i, j, Y[i, j], SHAPE, self.rows, self.cols)

    def error(self, result):
        return np.linalg.norm(result.cur.left @ result.cur.right.T - self.truth) / np.linalg.norm(self.truth)


# ---------------------------------------------------------------- further components


def outside_of_rows(p):
    """In rows outside of I, in a quarter of the columns."""
    u, v = p.rng.standard_normal(SHAPE[0]), p.rng.standard_normal(SHAPE[1]) * (p.rng.random(SHAPE[1]) < 0.25)
    u[p.rows] = 0
    return np.outer(u, v)


def outside_of_columns(p):
    u, v = p.rng.standard_normal(SHAPE[0]) * (p.rng.random(SHAPE[0]) < 0.25), p.rng.standard_normal(SHAPE[1])
    v[p.cols] = 0
    return np.outer(u, v)


def in_the_core(p):
    u, v = (p.rng.standard_normal(n) * (p.rng.random(n) < share) for n, share in zip(SHAPE, (0.3, 0.25), strict=True))
    return np.outer(u, v)


def local(p):
    found, (a, b) = np.zeros(SHAPE), (p.rng.integers(0, n - 60) for n in SHAPE)
    found[a : a + 60, b : b + 60] = np.outer(p.rng.standard_normal(60), p.rng.standard_normal(60))
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize("further", [outside_of_rows, outside_of_columns, in_the_core, local])
def test_a_further_component_is_not_confirmed(further, noise, seed):
    problem = Problem(seed, further, noise=noise)
    with pytest.warns(rg.ConvergenceWarning):
        result = rg.rcurc(problem.samples, RANK)
    assert problem.error(result) > 0.05
    assert not result.converged
    if result.structure is not None:
        assert result.structure.components


def test_on_a_device_it_is_seen_as_well(elsewhere):
    problem = Problem(0, outside_of_rows)
    samples = problem.samples.to_namespace(elsewhere.namespace, elsewhere.device)
    with pytest.warns(rg.ConvergenceWarning, match="more rows"):
        result = rg.rcurc(samples, RANK)
    assert result.structure.components == ("rows",)


def test_the_message_says_where_the_component_is():
    for further, place, word in ((outside_of_rows, "rows", "more rows"), (outside_of_columns, "columns", "more columns")):
        with pytest.warns(rg.ConvergenceWarning, match=word):
            result = rg.rcurc(Problem(0, further).samples, RANK)
        assert result.cause == "structured outliers"
        assert result.structure.components == (place,)
        assert getattr(result.structure, place) > LIMIT
        assert "outliers='structured'" in result.message


# ---------------------------------------------------------------- right results


def plain(p, Y):
    return Y


def rows_on_one_side(p, Y):
    out = p.rng.random(SHAPE) < 0.1
    return np.where(out, p.truth + (5 * p.rng.random(SHAPE) + 2) * p.rng.choice([-1, 1], (SHAPE[0], 1)), Y)


def all_on_one_side(p, Y):
    return p.truth + np.abs(Y - p.truth)


def zeros(p, Y):
    return np.where(p.rng.random(SHAPE) < 0.1, 0.0, p.truth)


def negated(p, Y):
    return np.where(p.rng.random(SHAPE) < 0.05, -p.truth, p.truth)


def shifted_block(p, Y):
    rows, cols = (np.flatnonzero(p.rng.random(n) < 0.2) for n in SHAPE)
    Y[np.ix_(rows, cols)] += 5.0
    return Y


def stuck(p, Y):
    for i in p.rng.choice(SHAPE[0], 20, replace=False):
        start = p.rng.integers(0, SHAPE[1] * 3 // 4)
        Y[i, start : start + SHAPE[1] // 4] = Y[i, start]
    return Y


RIGHT = [plain, rows_on_one_side, all_on_one_side, zeros, negated, shifted_block, stuck]


@pytest.mark.filterwarnings("ignore::rcurc_gpu.ConvergenceWarning")
@pytest.mark.parametrize("spoil", RIGHT)
def test_right_results_have_no_component_among_the_rejected(spoil):
    for seed in range(4):
        problem = Problem(seed, spoil=spoil)
        result = rg.rcurc(problem.samples, RANK)
        if problem.error(result) < 1e-6:
            assert result.cause != "structured outliers"
            assert result.structure is None or result.structure.components == ()


@pytest.mark.parametrize("spoil", [plain, rows_on_one_side, zeros])
def test_with_noise_random_outliers_are_no_component(spoil):
    problem = Problem(0, spoil=spoil, noise=0.05)
    result = rg.rcurc(problem.samples, RANK)
    assert result.converged
    assert problem.error(result) < 0.05
    assert result.structure.components == ()


def block_of_signs(seed, component, share=0.2):
    """Observations of 80 x 80, of which a share is rejected."""
    rng = np.random.default_rng(seed)
    i, j = (x.ravel() for x in np.mgrid[:80, :80])
    rejected = rng.random(6400) < share
    residual = rng.standard_normal(6400)
    if component:
        u, v = rng.standard_normal(80), rng.standard_normal(80) * (rng.random(80) < 0.25)
        there = v[j] != 0
        rejected, residual = rejected | there, np.where(there, u[i] * v[j], residual)
    return Looked(i, j, rng.standard_normal(6400), residual, rejected)


def test_random_signs_are_never_a_component():
    scores = [x for seed in range(100) for x in component_scores([block_of_signs(seed, False)] * 2, seed)]
    assert max(x.score for x in scores) < LIMIT
    assert not any(x.is_component for x in scores)


def test_signs_of_a_component_always_are():
    assert all(component_scores([block_of_signs(seed, True)], seed)[0].is_component for seed in range(20))


def test_too_few_rejected_say_nothing():
    block = block_of_signs(0, False)
    few = block._replace(rejected=block.rejected & (np.cumsum(block.rejected) < FEWEST))
    assert component_scores([few], 0)[0].score == 0


def of_two_values(truth, seed, flipped=0.0):
    """Half of a matrix of +1 and -1, of which a share is flipped."""
    rng = np.random.default_rng(seed)
    Y = np.where(rng.random(truth.shape) < flipped, -truth, truth)
    Y[rng.random(truth.shape) < 0.5] = np.nan
    return rg.CrossSamples.from_dense(Y, *(np.arange(n) for n in truth.shape))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rank", [2, 6])
def test_of_two_values_the_places_of_the_rejected_decide(rank, seed):
    """A sign agrees by chance as often as not, so that a matrix of too low a rank explains nine of ten of them."""
    rng = np.random.default_rng(seed)
    truth = np.sign(rng.standard_normal((150, 2)) @ rng.standard_normal((2, 130)))
    with pytest.warns(rg.ConvergenceWarning):
        result = rg.rcurc(of_two_values(truth, seed), rank)
    assert not result.converged
    assert "the rest is confirmed" not in result.message


@pytest.mark.parametrize("flipped", [0.02, 0.2])
def test_two_values_flipped_at_random_are_confirmed(flipped):
    rng = np.random.default_rng(0)
    # two kinds of columns: rank 2
    truth = np.sign(rng.standard_normal((150, 2)))[:, rng.integers(0, 2, 130)] * np.sign(rng.standard_normal(130))
    result = rg.rcurc(of_two_values(truth, 0, flipped), 2)
    assert result.converged
    np.testing.assert_allclose(result.cur.to_dense(), truth, atol=1e-6)


# ---------------------------------------------------------------- what is expected, and what is named


@pytest.mark.filterwarnings("error")
def test_structure_that_is_expected_is_no_doubt():
    result = rg.rcurc(Problem(1, outside_of_rows).samples, RANK, outliers="structured")
    assert result.converged
    assert result.structure.components == ("rows",)


@pytest.mark.parametrize("value", ["random", None, 1, "Structured"])
def test_outliers_is_true_false_or_structured(value):
    with pytest.raises(ValueError, match="outliers must be True, False or 'structured', got"):
        rg.rcurc(Problem(0).samples, RANK, outliers=value)


def test_without_outliers_rcurc_is_icurc():
    samples = rg.synthetic((200, 180), 2, 0.0, rate=0.5, seed=0).samples
    ours, theirs = rg.rcurc(samples, 2, outliers=False), rg.icurc(samples, 2)
    assert np.array_equal(ours.cur.left, theirs.cur.left)


def test_rows_with_far_more_outliers_are_named_and_do_not_decide():
    def spoil(p, Y):
        Y[bad] += 8 * (p.rng.random((len(bad), SHAPE[1])) < 0.3) * p.rng.choice([-1, 1], (len(bad), SHAPE[1]))
        return Y

    bad = np.asarray([7, 70, 300])
    problem = Problem(1, spoil=spoil, rate=0.8)
    result = rg.rcurc(problem.samples, RANK)
    assert result.converged
    assert problem.error(result) < 1e-8
    assert set(result.structure.crowded_rows) == set(bad)
    assert "have far more outliers than the rest" in result.message
    assert all(str(row) in result.message for row in bad)


def test_equal_shares_name_nothing():
    rng = np.random.default_rng(0)
    n = np.full(2000, 50)
    assert all(len(crowded(n, rng.binomial(n, 0.1))) == 0 for _ in range(50))
    k = rng.binomial(n, 0.1)
    k[5] = 40
    assert crowded(n, k).tolist() == [5]


def test_a_message_names_ten_at_most():
    text = Structure(crowded_rows=tuple(range(100, 130)), crowded_columns=(3,)).sentence
    assert text == "Rows 100, 101, 102, 103, 104 and 25 more and column 3 have far more outliers than the rest."


# ---------------------------------------------------------------- wherever the samples are


def test_shards_and_a_finished_output_say_what_memory_says(tmp_path):
    samples = Problem(0, outside_of_rows).samples
    with pytest.warns(rg.ConvergenceWarning):
        here = rg.rcurc(samples, RANK).structure
    results, shards = [], rg.ShardedSamples.of(samples, 50_000)
    assert len(shards.c_shards) > 2
    for _ in range(2):  # the second call reads what the first one wrote
        with pytest.warns(rg.ConvergenceWarning, match="structure of its own"):
            results.append(rg.rcurc(shards, RANK, output=tmp_path / "out"))
    for result in results:
        assert result.structure == results[0].structure
        assert result.structure.components == here.components == ("rows",)
        assert abs(result.structure.rows - here.rows) < 1e-6 * here.rows
    assert json.loads((tmp_path / "out" / "done.json").read_text())["structure"]["components"] == ["rows"]


def test_huge_and_tiny_units_change_nothing():
    samples = Problem(0, outside_of_rows).samples
    found = []
    for factor in (1.0, 2.0**400, 2.0**-400):
        scaled = rg.CrossSamples(
            SHAPE, samples.rows, samples.cols, *(b.scaled(factor) for b in (samples.r_block, samples.c_block))
        )
        with pytest.warns(rg.ConvergenceWarning):
            found.append(rg.rcurc(scaled, RANK).structure.components)
    assert found == [("rows",)] * 3


def test_the_estimators_of_whole_matrices_ask_too():
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((240, 2)) @ rng.standard_normal((2, 220))
    for method in (rg.robust_pca, rg.ircur):
        assert method(Y, 2).structure.components == ()
        assert method(Y, 2, outliers="structured").converged


def test_what_rounding_makes_of_a_component_is_no_doubt():
    block = block_of_signs(0, True)
    assert component_scores([block], 0)[0].is_component
    tiny = component_scores([block._replace(residual=1e-5 * block.residual)], 0)[0]
    assert tiny.score > LIMIT
    assert not tiny.is_component


# ---------------------------------------------------------------- columns whose outliers are in rows outside of I alone


def in_few_columns(transposed, n_columns):
    """In some rows outside of I: a column or two of J, and as many others where nothing of it is seen."""

    def further(p):
        (chosen, others), shape = ((p.cols, p.rows), SHAPE[::-1]) if transposed else ((p.rows, p.cols), SHAPE)
        outside = [np.setdiff1d(np.arange(n), at) for n, at in zip(shape, (chosen, others), strict=True)]
        found = np.zeros(shape)
        rows = p.rng.permutation(outside[0])[:150]
        cols = np.concatenate([p.rng.permutation(x)[:n_columns] for x in (others, outside[1])])
        found[np.ix_(rows, cols)] = 2 * np.outer(p.rng.standard_normal(150), p.rng.choice([-1.5, 1, 2], 2 * n_columns))
        return found.T if transposed else found

    return further


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("noise", [0.0, 0.01])
@pytest.mark.parametrize(("transposed", "place"), [(False, "rows"), (True, "columns")])
def test_a_component_of_a_single_column_is_seen_by_the_rows_that_reject_it(transposed, place, noise, seed):
    problem = Problem(seed, in_few_columns(transposed, 1), noise=noise, rate=0.7)
    with pytest.warns(rg.ConvergenceWarning):
        result = rg.rcurc(problem.samples, RANK)
    assert problem.error(result) > 0.02
    assert result.cause == "structured outliers"
    assert place in result.structure.components


def test_the_chance_is_that_of_fishers_test():
    from scipy.stats import fisher_exact

    cases = np.asarray([(12, 69, 0, 66), (25, 90, 3, 83), (3, 40, 3, 40), (5, 20, 10, 900), (0, 9, 2, 9), (9, 9, 2, 9)])
    expected = [fisher_exact([[k, n - k], [a, b - a]], alternative="greater")[1] for k, n, a, b in cases]
    np.testing.assert_allclose(fishers_chance(*cases.T), expected, rtol=1e-9)


def columns_of_outliers(rng, share_core, share_rows, n_columns=100, n=60):
    """Counts of a core and observations of rows, with shares of outliers by column."""
    i, j = np.divmod(np.arange(n * n_columns), n_columns)
    rejected = rng.random(n * n_columns) < np.broadcast_to(share_rows, (n, n_columns))[i, j]
    residual = np.where(rejected, 3 * rng.standard_normal(len(i)), 0.0)
    counts = np.full(n_columns, n)
    return counts, rng.binomial(counts, share_core), Looked(i, j, rng.standard_normal(len(i)), residual, rejected)


def test_outliers_that_are_alike_everywhere_or_the_columns_or_the_rows_own_are_not_lopsided():
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(300):
        share = rng.choice([0.0, 0.01, 0.1, 0.3])
        of_columns = np.clip(share * rng.gamma(1.0, 1.0, 100), 0, 0.9)
        of_rows = np.clip(share * rng.gamma(1.0, 1.0, (60, 1)), 0, 0.9)
        wrong += lopsided(*columns_of_outliers(rng, share, share)).any()
        wrong += lopsided(*columns_of_outliers(rng, of_columns, of_columns)).any()
        wrong += lopsided(*columns_of_outliers(rng, share, of_rows)).any()
        of_both = of_columns * rng.gamma(1.0, 1.0, (60, 1))  # of a bad sensor, on bad days
        wrong += lopsided(*columns_of_outliers(rng, of_columns, np.clip(of_both, 0, 0.9))).any()
    assert wrong <= 4


def test_which_columns_are_lopsided():
    rng = np.random.default_rng(1)
    share = np.full(100, 0.05)
    more = share.copy()
    more[[3, 70]] = 0.5
    found = [np.flatnonzero(lopsided(*columns_of_outliers(rng, share, more))).tolist() for _ in range(20)]
    assert found.count([3, 70]) >= 19
    alone = np.zeros(100)
    alone[4] = 0.4
    found = [np.flatnonzero(lopsided(*columns_of_outliers(rng, 0.0, alone))).tolist() for _ in range(20)]
    assert found.count([4]) >= 19
