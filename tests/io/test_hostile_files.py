"""Files that mean harm: small ones that unpack to gigabytes, or declare them. Memory is measured."""

import gzip
import io
import os
import shutil
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from rcurc_gpu import CrossSamples, CURMatrix, cli, shard_file
from rcurc_gpu.files import Gunzipped, LockFile, check_unpacked, load_npz
from rcurc_gpu.io import load_result, read_observations

MB = 1 << 20
STATUS = Path("/proc/self/status")


def memory(name):
    return int(STATUS.read_text().partition(f"{name}:")[2].split()[0]) * 1024


def peak_of(call):
    """What a call gives, and by how many bytes the memory of this process grew meanwhile."""
    Path("/proc/self/clear_refs").write_text("5")
    before = memory("VmRSS")
    return call(), memory("VmHWM") - before


def header(shape, descr="<f8"):
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": descr, "fortran_order": False, "shape": shape})
    return out.getvalue()


def zipped(path, name="a.npy", start=b"", size=6000 * 6000 * 8, method=zipfile.ZIP_DEFLATED, **more):
    """An archive with an array of zeros, and `more` small arrays."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for other, array in more.items():
            with archive.open(f"{other}.npy", "w") as file:
                np.save(file, array)
        with archive.open(name, "w", force_zip64=True) as file:
            file.write(start or header((6000, 6000)))
            for done in range(0, size, MB):
                file.write(bytes(min(MB, size - done)))


def gzipped(path, first, piece, times):
    with gzip.open(path, "wb", compresslevel=6) as file:
        file.write(first)
        for _ in range(times):
            file.write(piece)


def written(path, row, column, value, **how):
    parquet.write_table(pa.table({"row": row, "column": column, "value": value}), path, compression="zstd", **how)


N = 12_000_000
ZEROS = pa.repeat(0, N)
# the file, how to write it, what is said of it
TABLES = {
    "one line.csv.gz": (partial(gzipped, first=b"a", piece=b"a" * MB, times=600), "its first line has 1,048,576 characters"),
    "one line later.csv.gz": (
        partial(gzipped, first=b"a,b,1\n", piece=b"a" * MB, times=600),
        "a line has more than 8,388,608 bytes",
    ),
    "a long record.csv.gz": (partial(gzipped, first=b'"\n', piece=b"," * MB, times=600), "field larger than field limit"),
    "long label.parquet": (
        lambda path: written(path, pa.repeat("x" * 20_000, 40_000), pa.repeat(1, 40_000), pa.repeat(1.0, 40_000)),
        "a label has 20,000 characters",
    ),
    "long labels.parquet": (
        lambda path: written(
            path,
            pa.array(["x" * 100_000 + str(k) for k in range(3000)]),
            pa.repeat(1, 3000),
            pa.repeat(1.0, 3000),
            use_dictionary=False,
            column_encoding={"row": "DELTA_BYTE_ARRAY"},
        ),
        "a label has 100,001 characters",
    ),
    "one page.parquet": (
        lambda path: written(
            path, ZEROS, ZEROS, ZEROS, use_dictionary=False, data_page_size=1 << 40, row_group_size=1 << 40
        ),
        "which is far more than they should",
    ),
    "many labels.parquet": (
        lambda path: written(
            path,
            pa.array(np.arange(N)),
            ZEROS,
            ZEROS,
            use_dictionary=["column"],
            column_encoding={"row": "DELTA_BINARY_PACKED"},
        ),
        "different labels or more: far too many",
    ),
    "lists.parquet": (
        lambda path: written(path, pa.array([["x" * 1000] * 1000]), pa.repeat(1, 1), pa.repeat(1.0, 1)),
        "labels must be text, whole numbers, dates or timestamps",
    ),
}
MATRICES = {
    "zeros.npz": (zipped, "unpack to 288,000,128 or more"),
    "zeros in bz2.npz": (partial(zipped, size=80 * MB, method=zipfile.ZIP_BZIP2), "compressed in a way that NumPy does not"),
    "terabytes.npz": (partial(zipped, start=header((10**6, 10**6)), size=0), "8,000,000,000,000 bytes, where 0 are"),
    "negative.npz": (partial(zipped, start=header((-5, 3)), size=0), "declares an array of (-5, 3)"),
    "objects.npz": (partial(zipped, start=header((1, 1), "|O"), size=8), "Python objects"),
    "terabytes.npy": (lambda path: path.write_bytes(header((10**6, 10**6))), "8,000,000,000,000 bytes, where 0 are"),
    "nested header.npy": (
        lambda path: path.write_bytes(b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"(" * 9000),
        "not a .npy file, or is damaged",
    ),
    "samples.npz": (partial(zipped, format=np.asarray("rcurc-gpu CrossSamples 1")), "unpack to 288"),
    "sparse.npz": (
        partial(zipped, name="data.npy", format=np.asarray(b"csr"), shape=np.asarray([5, 5])),
        "unpack to 288",
    ),
    "terabytes sparse.npz": (
        partial(
            zipped, name="data.npy", start=header((10**12,)), size=0, format=np.asarray(b"csr"), shape=np.asarray([5, 5])
        ),
        "8,000,000,000,000 bytes, where 0 are",
    ),
    "ones.mtx.gz": (
        partial(
            gzipped,
            first=b"%%MatrixMarket matrix coordinate real general\n9 9 60000000\n",
            piece=b"1 1 1\n" * 200_000,
            times=300,
        ),
        "which is far more than they should",
    ),
    "one line.mtx.gz": (
        partial(gzipped, first=b"%%MatrixMarket matrix coordinate real general\n%", piece=b"a" * MB, times=600),
        "which is far more than they should",
    ),
}


@pytest.fixture(scope="module")
def run():
    runner = CliRunner()

    def call(*arguments):
        return runner.invoke(cli.main, [str(a) for a in arguments])

    call("describe", "nothing.csv")  # what the first call imports is not counted
    return call


def refused(run, part, *arguments):
    outcome, grown = peak_of(lambda: run(*arguments))
    assert outcome.exit_code == 2, (outcome.output, outcome.exception)
    assert outcome.stderr.count("\n") == 1
    assert part in outcome.stderr
    assert grown < 350 * MB, f"{grown / MB:.0f} MB"


needs_proc = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is read from Linux's /proc")


@needs_proc
@pytest.mark.parametrize("name", TABLES | MATRICES)
def test_a_small_file_does_not_take_gigabytes(name, run, tmp_path):
    make, part = (TABLES | MATRICES)[name]
    make(tmp_path / name)
    assert (tmp_path / name).stat().st_size < 3 * MB
    refused(run, part, "describe", tmp_path / name)
    if name in TABLES:
        refused(run, part, "shard", tmp_path / name, "-o", tmp_path / "shards", "--memory", "64MB")
        assert not (tmp_path / "shards").exists()


@needs_proc
@pytest.mark.parametrize("ending", ["csv.gz", "parquet"])
def test_too_many_observations_are_refused_in_memory_and_streamed_into_shards(ending, run, tmp_path):
    path = tmp_path / f"equal.{ending}"
    if ending == "csv.gz":
        gzipped(path, b"row,column,value\n", b"1,1,1\n" * 100_000, 120)
    else:
        written(path, ZEROS, ZEROS, ZEROS)
    assert path.stat().st_size < MB
    refused(run, "which is far more than they should", "describe", path)
    outcome, grown = peak_of(lambda: run("shard", path, "-o", tmp_path / "shards", "--memory", "64MB"))
    assert outcome.exit_code == 0, outcome.output
    assert grown < 250 * MB
    shutil.rmtree(tmp_path / "shards")


@needs_proc
@pytest.mark.parametrize("read", [CrossSamples.load, CURMatrix.load, load_result])
def test_results_and_samples_that_unpack_to_gigabytes(read, tmp_path):
    for name, how in (("zeros", {}), ("terabytes", {"start": header((10**12,)), "size": 0})):
        kind = "CrossSamples" if read == CrossSamples.load else "CURMatrix"
        zipped(tmp_path / name, format=np.asarray(f"rcurc-gpu {kind} 1"), **how)

        def refuse(path=tmp_path / name):
            with pytest.raises(ValueError, match=r"is damaged \(its .* bytes"):
                read(path)

        assert peak_of(refuse)[1] < 50 * MB


def test_files_that_compress_well_in_good_faith_are_read(tmp_path):
    matrix = np.full((900, 900), np.nan)
    matrix[:40], matrix[:, :40] = 1.0, 1.0
    np.savez_compressed(tmp_path / "a.npz", a=matrix)
    assert (tmp_path / "a.npz").stat().st_size < matrix.nbytes / 100
    assert read_observations(tmp_path / "a.npz").samples.n_obs == 900**2 - 860**2


def test_the_bound():
    check_unpacked(10, 256 * MB)
    check_unpacked(5 * MB, 500 * MB)
    with pytest.raises(ValueError, match="its 10 bytes unpack to 268,435,457 or more"):
        check_unpacked(10, 256 * MB + 1)
    with pytest.raises(ValueError, match="which is far more"):
        check_unpacked(5 * MB, 501 * MB)


def test_a_zip_that_lies_about_its_size(tmp_path):
    """What stands in the directory of the archive bounds what is read, whatever the member has."""
    zipped(tmp_path / "a.npz", size=8 * MB, start=header((MB,)))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    at = data.rfind(b"PK\x01\x02")
    data[at + 24 : at + 28] = (1000).to_bytes(4, "little")
    (tmp_path / "a.npz").write_bytes(data)
    with open(tmp_path / "a.npz", "rb") as file, pytest.raises(zipfile.BadZipFile):
        load_npz(file)


def test_gzip_may_be_read_without_a_bound(tmp_path):
    gzipped(tmp_path / "a.gz", b"", bytes(MB), 300)
    for bounded in (True, False):
        with open(tmp_path / "a.gz", "rb") as raw, Gunzipped(raw, bounded=bounded) as file:
            pieces = iter(lambda file=file: file.read(MB), b"")
            if bounded:
                with pytest.raises(ValueError, match="unpack to"):
                    sum(map(len, pieces))
            else:
                assert sum(map(len, pieces)) == 300 * MB


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "npy", "npz", "mtx", "mtx.gz"])
@pytest.mark.parametrize("what", ["a pipe", "a device"])
def test_what_may_never_end_is_not_read(what, ending, tmp_path):
    path = tmp_path / f"a.{ending}"
    if what == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    for read in (read_observations, lambda name: shard_file(name, tmp_path / "shards")):
        with pytest.raises(ValueError, match=r"is not a file but a directory, a pipe or a device"):
            read(str(path))
    assert [x.name for x in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("read", [CrossSamples.load, CURMatrix.load, load_result])
def test_results_and_samples_that_may_never_end_are_not_read(read, tmp_path):
    os.mkfifo(tmp_path / "a.npz")
    with pytest.raises(ValueError, match="a pipe or a device"):
        read(tmp_path / "a.npz")


def test_a_lock_leaves_no_file(tmp_path):
    lock = LockFile(tmp_path / "a", "a is used")
    with pytest.raises(RuntimeError, match="a is used; wait for its end, or choose another"):
        LockFile(tmp_path / "a", "a is used")
    lock.release()
    lock.release()
    LockFile(tmp_path / "a", "a is used").release()
    assert not list(tmp_path.iterdir())
