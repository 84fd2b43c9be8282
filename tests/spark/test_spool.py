"""The output of tasks reaches the driver in files or messages; it is checked, limited, and removed afterwards."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ottla.client import TopicPartition
from ottla.spark.errors import OutputError, SpoolError
from ottla.spark.spool import STALE_S, Spool, SpoolWriter, TaskOutput, discard, output_bytes_max, spool_root
from tests.spark.encoded import encode

pytestmark = pytest.mark.usefixtures("own_temporary_directory")

A, B = TopicPartition("out", 0), TopicPartition("out", 1)
BATCHES = [(A, encode(b"a", b"b"), 2), (B, encode(b"c"), 1), (A, encode(b"d" * 5000), 1)]


def _written(spool: Spool, **options: int) -> TaskOutput:
    with spool.open("0-0", **options) as writer:
        for partition, data, rows in BATCHES:
            writer.append(partition, data, rows)
        return writer.finish()


def _read(output: TaskOutput) -> list[tuple[TopicPartition, bytearray, int]]:
    return [tuple(batch) for batch in output.batches()]


def test_a_task_that_sees_the_directory_sends_a_path(tmp_path: Path) -> None:
    spool = Spool.create("checkpoint")
    output = pickle.loads(pickle.dumps(_written(pickle.loads(pickle.dumps(spool)))))
    assert output.path is not None and output.data == ()
    assert (output.partitions, output.rows, output.size_bytes) == ((A, B), 4, sum(len(data) for _, data, _ in BATCHES))
    assert _read(output) == BATCHES
    assert _read(output) == BATCHES
    assert len(pickle.dumps(output)) < 500


def test_a_task_elsewhere_sends_the_bytes(tmp_path: Path) -> None:
    spool = Spool.create(None)
    for elsewhere in (spool._replace(directory=str(tmp_path / "not-there")), spool._replace(token="of another host")):
        output = pickle.loads(pickle.dumps(_written(elsewhere)))
        assert output.path is None and len(output.data) == 3
        assert _read(output) == BATCHES


def test_batches_that_are_read_are_the_drivers_own(tmp_path: Path) -> None:
    for spool in (Spool.create(None), Spool("/not/there", "token")):
        output = _written(spool)
        for batch in output.batches():
            batch.data[43:57] = bytes(14)  # stamped with a producer id
        assert _read(output) == BATCHES


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "foreign"])
def test_a_damaged_file_is_an_error_and_no_output(tmp_path: Path, damage: str) -> None:
    output = _written(Spool.create(None))
    assert output.path is not None
    file = Path(output.path)
    data = file.read_bytes()
    if damage == "gone":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(data[:-1])
    elif damage == "flipped":
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        first = BATCHES[0][1]
        file.write_bytes(encode(b"x", b"y") + data[len(first) :])
    with pytest.raises(SpoolError, match=str(tmp_path)):
        list(output.batches())


def test_a_damaged_message_is_an_error() -> None:
    output = _written(Spool("/not/there", "token"))
    damaged = TaskOutput(output.task, output.partitions, output.index, output.rows, output.size_bytes, None, output.data[:2])
    with pytest.raises(SpoolError, match=r"task 0-0 is damaged: its commit message"):
        list(damaged.batches())


def test_output_beyond_the_bound_is_refused_by_the_option_s_name(tmp_path: Path) -> None:
    spool = Spool.create(None)
    with pytest.raises(OutputError, match=r"^maxOutputBytes=1000: "):
        _written(spool, bytes_max=1000)
    assert os.listdir(spool.directory) == ["token"]
    assert output_bytes_max(False) < 1024**3 < output_bytes_max(True)


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    spool = Spool.create(None)
    with pytest.raises(ZeroDivisionError), spool.open("1-1") as writer:
        writer.append(*BATCHES[0])
        raise ZeroDivisionError
    assert os.listdir(spool.directory) == ["token"]


def test_attempts_of_one_task_do_not_share_a_file(tmp_path: Path) -> None:
    spool = Spool.create(None)
    first, second = spool.open("0-0"), spool.open("0-0")
    first.append(*BATCHES[0])
    second.append(*BATCHES[1])
    assert (_read(first.finish()), _read(second.finish())) == ([BATCHES[0]], [BATCHES[1]])


def test_a_disk_that_refuses_is_an_error_with_the_path(tmp_path: Path) -> None:
    writer = Spool.create(None).open("0-0")
    assert writer._file is not None
    writer._file.close()
    writer._file = open("/dev/full", "wb", buffering=16)  # noqa: SIM115  closed by the writer
    with pytest.raises(SpoolError, match=rf"cannot be written: {tmp_path}.*no space left"), writer:
        writer.append(*BATCHES[2])
    with pytest.raises(SpoolError, match=r"cannot be written: .*no such file"):
        SpoolWriter("0-0", str(tmp_path / "gone"))


def test_directories_go_with_their_batch_and_those_of_earlier_tries(tmp_path: Path) -> None:
    failed, spool = Spool.create("checkpoint"), Spool.create("checkpoint")
    other, job = Spool.create("another"), Spool.create(None)
    discard([None, _written(spool), None, _written(Spool("/not/there", ""))])
    assert {one.directory for one in (failed, spool, other, job) if os.path.exists(one.directory)} == {other.directory, job.directory}
    output = _written(job)
    discard([output])
    discard([output])
    assert not os.path.exists(job.directory)
    other.discard()
    assert not os.path.exists(other.directory)


def test_what_a_killed_driver_left_is_swept(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    of_dead, old = Spool.create("a", owner=gone.pid), Spool.create("b")
    alive = Spool.create("c", owner=1)
    os.utime(old.directory, (0, time.time() - STALE_S - 1))
    Spool.create("d")
    assert [os.path.exists(one.directory) for one in (of_dead, old, alive)] == [False, False, True]


def test_another_user_s_link_in_place_of_the_directory_is_refused_and_not_followed(tmp_path: Path) -> None:
    """Another user's symbolic link in place of the directory is refused and not followed. Everybody may create such a link in `/tmp`, and
    its target may be a private directory of this user, whose owner and mode look right. So the link itself must be checked."""
    home = tmp_path / "home"
    for name in ("documents", "batch-1-photos"):
        (home / name).mkdir(parents=True)
        os.utime(home / name, (0, time.time() - STALE_S - 1))
    home.chmod(0o700)
    (tmp_path / f"ottla-spool-{os.getuid()}").symlink_to(home)
    with pytest.raises(SpoolError, match=r"is not a directory .*symbolic link.*; remove it, or set TMPDIR"):
        Spool.create("a")
    assert sorted(os.listdir(home)) == ["batch-1-photos", "documents"]


def test_the_sweep_removes_what_has_a_name_of_its_own_and_no_more(tmp_path: Path) -> None:
    root, elsewhere = spool_root(), tmp_path / "elsewhere"
    key = "0123456789abcdef" * 2
    kept = ["documents", "a-1-b", f"{key[:24]}.range", "batch-99999999999999999999-x"]
    swept = [f"{key[:24]}-1-x", f"{key[:24]}.{key[:16]}.source", f".{key[:24]}.{key[:16]}.source-ab_1", f".{key[:24]}.range-ab_1"]
    for name in [*kept, swept[0]]:
        (root / name / "inner").mkdir(parents=True)
    for name in swept[1:]:
        (root / name).touch()
    (elsewhere / "inner").mkdir(parents=True)
    (root / "batch-1-link").symlink_to(elsewhere)
    for name in [*kept, *swept]:
        os.utime(root / name, (0, time.time() - STALE_S - 1))
    spool = Spool.create("d")
    assert sorted(os.listdir(root)) == sorted([*kept, "batch-1-link", Path(spool.directory).name])
    assert os.listdir(elsewhere) == ["inner"]


def test_the_files_are_the_user_s_alone(tmp_path: Path) -> None:
    """Only this user can read the files, even if the umask is 0. The mode of the directory is not enough: files may be moved, and the mode
    may be changed."""
    before = os.umask(0)
    try:
        spool = Spool.create("checkpoint")
        _written(spool)
    finally:
        os.umask(before)
    files = list(Path(spool.directory).iterdir())
    assert len(files) == 2 and {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_the_directory_is_the_user_s_alone(tmp_path: Path) -> None:
    root = spool_root()
    assert root.stat().st_mode & 0o777 == 0o700
    root.chmod(0o755)
    with pytest.raises(SpoolError, match=r"open to others"):
        spool_root()
