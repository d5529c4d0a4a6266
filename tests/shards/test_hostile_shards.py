"""Directories of shards that mean harm: nothing outside of them is read, and what their manifests say is not believed."""

import json
import os
import re
import shutil

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.shards import LabelledShards, ShardedSamples, shard_file
from rcurc_gpu.shards.on_disk import checksum, file_bytes


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Shards with labels, of a matrix of rank 1."""
    folder = tmp_path_factory.mktemp("shards")
    lines = [f"r{i},c{j},{(i + 1) * (j + 1)}" for i in range(60) for j in range(50)]
    (folder / "t.csv").write_text("\n".join(lines))
    shard_file(folder / "t.csv", folder / "s", rows=[f"r{i}" for i in range(20)], cols=[f"c{j}" for j in range(20)])
    return folder / "s"


@pytest.fixture(scope="module")
def original_with_sigma(tmp_path_factory):
    """Shards with labels and the noise of each observation, of a matrix of rank 1."""
    folder = tmp_path_factory.mktemp("sigma")
    lines = [f"r{i},c{j},{(i + 1) * (j + 1)},{1 + j % 2}" for i in range(60) for j in range(50)]
    (folder / "t.csv").write_text("row,column,value,error\n" + "\n".join(lines))
    chosen = {"rows": [f"r{i}" for i in range(20)], "cols": [f"c{j}" for j in range(20)]}
    shard_file(folder / "t.csv", folder / "s", sigma_column="error", **chosen, shard_bytes=10_000)
    return folder / "s"


@pytest.fixture
def folder(original, tmp_path):
    shutil.copytree(original, tmp_path / "s")
    return tmp_path / "s"


def said(change):
    """An attack that changes the manifest."""

    def attack(folder):
        manifest = json.loads((folder / "manifest.json").read_text())
        change(manifest)
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return attack


def put(value, *path):
    """An attack that puts a value somewhere into the manifest."""

    def change(manifest):
        for name in path[:-1]:
            manifest = manifest[name]
        manifest[path[-1]] = value

    return said(change)


def moved(folder, name, link=None):
    """Move a file out of the directory, and leave a link, or say so in the manifest."""
    (folder / name).rename(folder.parent / name)
    if link is not None:
        os.symlink(link.format(folder=folder.parent, name=name), folder / name)


def rewritten(folder, change, where=("shards", "r", 0)):
    """Change the arrays of a shard, by default the first of R, with facts that agree."""
    manifest = entry = json.loads((folder / "manifest.json").read_text())
    for name in where:
        entry = entry[name]
    with open(folder / entry["file"], "rb") as file:
        arrays = [np.load(file) for _ in range(4 if entry["sigma"] else 3)]
    arrays = change(*arrays)
    with open(folder / entry["file"], "wb") as file:
        for array in arrays:
            np.save(file, array)
    entry["crc32"] = checksum(arrays)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def chosen(folder, numbers):
    """Other chosen rows, with their checksum."""
    np.save(folder / "rows.npy", numbers)
    put(checksum([numbers]), "cross", "rows")(folder)


def huge(folder):
    with open(folder / "rows.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<i8", "fortran_order": False, "shape": (10**12,)})


def set_value(k, x):
    def change(indptr, value, index):
        value[k] = x
        return [indptr, value, index]

    return change


def repeated(indptr, value, index):
    index[1] = index[0]
    return [indptr, value, index]


FIRST = ("shards", "r", 0)
BIG = 10**15
ATTACKS = {
    "..": (put("../r-000000.shard", *FIRST, "file"), "a shard is in '../r-000000.shard', where 'r-000000.shard' belongs"),
    "an absolute path": (put("/etc/passwd", *FIRST, "file"), "a shard is in '/etc/passwd'"),
    "another shard": (put("core-r.shard", *FIRST, "file"), "where 'r-000000.shard' belongs"),
    "a core elsewhere": (put("../x", "core", "r", "file"), "a shard is in '../x'"),
    "a link": (lambda f: moved(f, "r-000000.shard", "../{name}"), "r-000000.shard leads out of the directory"),
    "an absolute link": (lambda f: moved(f, "core-c.shard", "{folder}/{name}"), "core-c.shard leads out of the directory"),
    "a link for rows": (lambda f: moved(f, "rows.npy", "../{name}"), "rows.npy leads out of the directory"),
    "a link for the manifest": (lambda f: moved(f, "manifest.json", "../{name}"), "manifest.json leads out of"),
    "a link for labels": (lambda f: moved(f, "labels.npz", "../{name}"), "labels.npz leads out of the directory"),
    "a pipe": (lambda f: (moved(f, "r-000000.shard"), os.mkfifo(f / "r-000000.shard")), "r-000000.shard is not a file"),
    "a manifest without end": (
        lambda f: (f / "manifest.json").write_bytes(b"[" + b"[]," * (6 << 20)),
        "more than 16,777,216 bytes",
    ),
    "a huge shape": (
        lambda f: (put([60, BIG], "shape")(f), put(BIG, *FIRST, "stop")(f)),
        "which take more than its",
    ),
    "a shape of one": (put([60], "shape"), "shape of the manifest is"),
    "a shape below 0": (put([60, -50], "shape"), "shape of the manifest is"),
    "a shape of bools": (put([True, True], "shape"), "shape of the manifest is"),
    "a shape beyond int64": (put([60, 10**30], "shape"), "shape of the manifest is"),
    "another shape": (put([60, 51], "shape"), "do not cover 51 units"),
    "many observations": (put(BIG, *FIRST, "n_obs"), "which take more than its"),
    "few observations": (put(5, *FIRST, "n_obs"), "is damaged or truncated: the manifest says 5 numbers"),
    "a count below 0": (put(-1, *FIRST, "n_obs"), "n_obs of a shard is -1"),
    "a count in words": (put("7", *FIRST, "n_obs"), "n_obs of a shard is 7"),
    "too large": (put(1e300, *FIRST, "largest"), "its largest value has the size 1000, the manifest says 1e+300"),
    "too small": (put(1e-300, *FIRST, "largest"), "the manifest says 1e-300"),
    "a size that is NaN": (put(float("nan"), *FIRST, "largest"), "largest of a shard is nan"),
    "a size that is infinite": (put(float("inf"), *FIRST, "largest"), "largest of a shard is inf"),
    "a core of other units": (put(19, "core", "r", "stop"), "core-r.shard does not have one unit for each of cols (20)"),
    "no core": (put({}, "core"), "lacks 'r'"),
    "a list": (lambda f: (f / "manifest.json").write_text("[]"), "it says '[]'"),
    "nested": (lambda f: (f / "manifest.json").write_text("[" * 200_000), "its brackets are nested too deep"),
    "a long number": (lambda f: (f / "manifest.json").write_text('{"format": ' + "9" * 50_000 + "}"), "or is damaged"),
    "no text": (lambda f: (f / "manifest.json").write_bytes(b"\xff\xfe\xfa"), "or is damaged"),
    "dtype": (put(["float64"], "dtype"), "dtype of the manifest is"),
    "shards in words": (put("none", "shards"), "shards of the manifest is none"),
    "unused below 0": (put(-3, "n_unused"), "n_unused of the manifest is -3"),
    "rows twice": (lambda f: chosen(f, np.zeros(20, np.int64)), "rows.npy is damaged: it repeats a number"),
    "rows beyond": (lambda f: chosen(f, np.arange(50, 70)), "does not lie in 0..59"),
    "rows of terabytes": (huge, "8,000,000,000,000 bytes, where 0 are"),
    "a value that is NaN": (lambda f: rewritten(f, set_value(3, np.nan)), "its largest value has the size nan"),
    "a value that is infinite": (lambda f: rewritten(f, set_value(3, np.inf)), "its largest value has the size inf"),
    "an index twice": (lambda f: rewritten(f, repeated), "an index is repeated, or out of order"),
    "labels in words": (put("none", "labels"), "is damaged"),
    "labels without columns": (said(lambda m: m["labels"].pop("columns")), "lacks 'columns'"),
    "labels missing below 0": (put(-1, "labels", "n_missing"), "n_missing of the labels is -1"),
}


@pytest.mark.parametrize("what", ATTACKS)
def test_an_attack_is_an_error_of_one_line(what, folder):
    attack, words = ATTACKS[what]
    attack(folder)
    with pytest.raises(ValueError, match=re.escape(words)) as told:
        rg.rcurc(LabelledShards.open(folder).samples, 1)
    assert "\n" not in str(told.value)


def set_sigma(x, where=FIRST):
    """An attack that changes a sigma, with facts that agree."""

    def change(indptr, value, index, sigma):
        sigma[3] = x
        return [indptr, value, index, sigma]

    return lambda folder: rewritten(folder, change, where)


def all_entries(manifest):
    return (*manifest["shards"]["r"], *manifest["shards"]["c"], *manifest["core"].values())


def all_say(x):
    """An attack that puts one `sigma` into all entries of the manifest."""
    return said(lambda manifest: [entry.update(sigma=x) for entry in all_entries(manifest)])


NOT_POSITIVE = "is damaged: a sigma is not positive and finite"
NOT_ALIKE = "sigma of a shard is False, that of another True: all must have it, or none"
SIGMA_ATTACKS = {
    "NaN": (set_sigma(np.nan), NOT_POSITIVE),
    "below 0": (set_sigma(-1.0), NOT_POSITIVE),
    "0": (set_sigma(0.0), NOT_POSITIVE),
    "infinite": (set_sigma(np.inf, ("shards", "c", 1)), NOT_POSITIVE),
    "NaN in the core": (set_sigma(np.nan, ("core", "c")), NOT_POSITIVE),
    "in all but one": (put(False, "shards", "c", 0, "sigma"), NOT_ALIKE),
    "in all but the core": (put(False, "core", "c", "sigma"), NOT_ALIKE),
    "not said in one": (said(lambda m: m["shards"]["r"][1].pop("sigma")), NOT_ALIKE),
    "in none": (all_say(False), "its checksum is not the manifest's"),
    "in words": (all_say("yes"), "sigma of a shard is yes"),
    "a number": (all_say(1), "sigma of a shard is 1"),
    "none": (all_say(None), "sigma of a shard is None"),
    "a list": (put([True], *FIRST, "sigma"), "sigma of a shard is [True]"),
    "cut off": (lambda f: os.truncate(f / "r-000000.shard", 8 * 400), "which take more than its"),
    "of another type": (
        lambda f: rewritten(f, lambda *x: [*x[:3], x[3].astype(np.float32)]),
        "is damaged or truncated",
    ),
    "too few": (lambda f: rewritten(f, lambda *x: [*x[:3], x[3][:-1]]), "is damaged or truncated"),
}


@pytest.mark.parametrize("what", SIGMA_ATTACKS)
def test_an_attack_by_sigma_is_an_error_of_one_line(what, original_with_sigma, tmp_path):
    shutil.copytree(original_with_sigma, tmp_path / "s")
    attack, words = SIGMA_ATTACKS[what]
    attack(tmp_path / "s")
    with pytest.raises(ValueError, match=re.escape(words)) as told:
        rg.rcurc(LabelledShards.open(tmp_path / "s").samples, 1)
    assert "\n" not in str(told.value)


def test_files_are_as_large_as_their_sigmas_need(original_with_sigma, folder):
    """Where all entries say `sigma` and no file has it, memory would be taken for numbers that are not there."""
    all_say(True)(folder)
    with pytest.raises(ValueError, match="which take more than its"):
        ShardedSamples.open(folder)
    samples = ShardedSamples.open(original_with_sigma)
    for shard in (*samples.r_shards, *samples.c_shards):
        facts, size = shard.source.facts, os.path.getsize(shard.source.path)
        assert file_bytes(facts, samples.dtype) == shard.load().nbytes
        assert file_bytes(facts, samples.dtype) < size <= file_bytes(facts, samples.dtype) + 4 * 128


def test_shards_that_do_not_say_whether_they_have_sigma_have_none(folder):
    said(lambda manifest: [entry.pop("sigma") for entry in all_entries(manifest)])(folder)
    samples = ShardedSamples.open(folder)
    assert not samples.has_sigma
    assert samples.to_memory().n_obs == 60 * 20 + 50 * 20 - 400


def test_labels_that_do_not_fit(folder):
    arrays = dict(np.load(folder / "labels.npz"))
    for name, change in {
        "row_ends": lambda x: x[::-1].copy(),
        "col_ends": lambda x: x + 1,
        "row_text": lambda x: np.full_like(x, 0xFF),
        "col_text": lambda x: x.astype(np.float64),
    }.items():
        new = arrays | {name: change(arrays[name])}
        np.savez(folder / "labels.npz", **new)
        names = ("row_text", "row_ends", "col_text", "col_ends")
        put(checksum([new[part] for part in names]), "labels", "crc32")(folder)
        with pytest.raises(ValueError, match=r"labels.npz' is damaged: "):
            LabelledShards.open(folder)


def test_a_link_to_the_directory_itself_is_followed(folder, tmp_path):
    os.symlink(folder, tmp_path / "link")
    assert ShardedSamples.open(tmp_path / "link").intersection.block.n_obs == 400
