"""`ottla log dump` prints what Kafka's tool prints, explains bytes, and refuses other files in one line."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.errors import WireError
from ottla.base.share_state import SharePartitionKey, ShareState, StateBatch
from ottla.base.types import TopicPartition
from ottla.cli.inspect.log_decoders import camel, decode_control, decode_record
from ottla.cli.main import main
from ottla.groups.records import group_metadata, group_tombstone
from ottla.sharing import state_records
from ottla.transactions.metadata import TransactionMetadata
from ottla.transactions.records import state_record, tombstone
from ottla.transactions.states import ONGOING
from ottla.wire.codec import encoder
from ottla.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.messages.control_records import LeaderChangeMessage, Voter
from ottla.wire.messages.group_records import GroupMetadataValue, MemberMetadata
from ottla.wire.messages.share_group_records import (
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    TopicPartitionsInfo,
)
from ottla.wire.records import Record, encode_batch, iter_batches, stamp_crc
from tests.cli.conftest import Ottla
from tests.cli.inspect.segment_files import STEM, batch, make_partition


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    return make_partition(tmp_path / "t-0")


def test_batches_in_the_words_of_kafkas_tool(offline: Ottla, partition: Path) -> None:
    path = partition / f"{STEM}.log"
    result = offline("log", "dump", "--files", path)
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[:2] == [f"Dumping {path}", "Log starting offset: 100"]
    start = (
        "baseOffset: 100 lastOffset: 100 count: 1 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: 1 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 0 "
        "CreateTime: 1000 size: 80 magic: 2 compresscodec: none crc: "
    )
    assert lines[2].startswith(start)
    assert lines[2].endswith(" isvalid: true")
    assert "compresscodec: zstd" in lines[3]
    assert len(lines) == 7


def test_records_with_key_and_value(offline: Ottla, partition: Path) -> None:
    result = offline("log", "dump", "--files", partition / f"{STEM}.log", "--print-data-log")
    records = [line for line in result.out.splitlines() if line.startswith("| ")]
    assert records[0] == "| offset: 100 CreateTime: 1000 keySize: 3 valueSize: 5 sequence: -1 headerKeys: [h] key: key payload: value"
    assert records[2] == "| offset: 102 CreateTime: 1020 keySize: 3 valueSize: -1 sequence: -1 headerKeys: [h] key: key"
    assert records[4].endswith("sequence: -1 headerKeys: [] endTxnMarker: ABORT coordinatorEpoch: 5")
    bare = offline("log", "dump", "--files", partition / f"{STEM}.log", "--print-data-log", "--skip-record-metadata")
    assert next(line for line in bare.out.splitlines() if line.startswith("|")) == "| key: key payload: value"
    assert "endTxnMarker" not in bare.out


def test_a_deep_look_without_values_shows_sizes_only(offline: Ottla, partition: Path) -> None:
    result = offline("log", "dump", "--files", partition / f"{STEM}.log", "--deep-iteration")
    assert "keySize: 3 valueSize: 5" in result.out
    assert "payload" not in result.out


def test_the_smaller_files(offline: Ottla, partition: Path) -> None:
    names = [
        f"{STEM}.index",
        f"{STEM}.timeindex",
        f"{STEM}.txnindex",
        f"{105:020d}.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    result = offline("log", "dump", "--files", ",".join(str(partition / name) for name in names))
    assert result.code == 0
    lines = [line for line in result.out.splitlines() if not line.startswith("Dumping")]
    index = (partition / f"{STEM}.index").read_bytes()
    assert lines == [
        "offset: 101 position: 80",
        f"offset: 103 position: {int.from_bytes(index[12:16], 'big')}",
        "timestamp: 1010 offset: 101",
        "timestamp: 1030 offset: 103",
        "version: 0 producerId: 7 firstOffset: 103 lastOffset: 104 lastStableOffset: 105",
        "producerId: 7 producerEpoch: 0 coordinatorEpoch: 5 currentTxnFirstOffset: OptionalLong.empty lastTimestamp: 1040 "
        "firstSequence: 0 lastSequence: 0 lastOffset: 103 offsetDelta: 0 timestamp: 1040",
        "epoch: 1 start_offset: 100",
        "version: 0",
        "topic_id: AAAAAAAAAAAAAAAAAAAAAQ",
    ]


def test_names_that_are_not_text_are_shown_nevertheless(offline: Ottla, tmp_path: Path) -> None:
    """Header keys, keys and values may be any bytes."""
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(encode_batch([Record(0, 1, b"\xff", b"\xfe\n", (("\udcff", None),))]))
    result = offline("log", "dump", path, "--print-data-log")
    assert result.code == 0
    assert "headerKeys: [?] key: \ufffd payload: \ufffd" in result.out
    assert offline("log", "dump", path, "--hex").code == 0
    assert offline("log", "dump", path, "--print-data-log", "-o", "json").code == 0


def test_a_directory_is_all_of_its_files(offline: Ottla, partition: Path) -> None:
    result = offline("log", "dump", partition, "-o", "json")
    files = result.json()["files"]
    assert [Path(found["file"]).name for found in files] == sorted(path.name for path in partition.iterdir())
    assert [entry["base_offset"] for entry in files[1]["entries"]] == [100, 101, 102, 103, 104]


def test_hex_names_every_byte_of_every_file(offline: Ottla, partition: Path) -> None:
    """Each byte of a file stands in exactly one span (compressed bytes are shown twice, packed and unpacked)."""
    result = offline("log", "dump", partition, "--hex", "-o", "json")
    for found in result.json()["files"]:
        data = Path(found["file"]).read_bytes()
        covered = b"".join(bytes.fromhex(span["data"]) for span in found["bytes"] if not span["is_unpacked"])
        assert covered == data, found["file"]


def test_hex_for_people(offline: Ottla, partition: Path) -> None:
    lines = offline("log", "dump", partition / f"{STEM}.log", "--hex").out.splitlines()
    base_offset = next(line for line in lines if "base_offset" in line)
    assert " ".join(base_offset.split()) == "0-7 00 00 00 00 00 00 00 64 base_offset = 100 (offset of the first record)"
    assert any('key = "key"' in line for line in lines)
    assert any("control_type = 0  (ABORT)" in line for line in lines)
    assert any("zstd:" in line and "unpacked" in line for line in lines)


def test_an_index_that_contradicts_its_segment(offline: Ottla, partition: Path) -> None:
    index, times = partition / f"{STEM}.index", partition / f"{STEM}.timeindex"
    data = bytearray(index.read_bytes())
    data[3] = 2
    index.write_bytes(data)
    data = bytearray(times.read_bytes())
    data[7] = 0xFF
    times.write_bytes(data)
    result = offline("log", "dump", "--verify-index-only", index, times)
    assert result.code == 1
    assert f"Mismatches in :{index}\n  Index offset: 102, log offset: 101" in result.err
    assert f"Found timestamp mismatch in :{times}" in result.err
    assert "offset: " not in result.out


def test_an_index_without_its_segment(offline: Ottla, partition: Path) -> None:
    (partition / f"{STEM}.log").unlink()
    shown = offline("log", "dump", partition / f"{STEM}.index")
    assert (shown.code, shown.out.count("position:")) == (0, 2)
    assert "cannot compare" in shown.err
    assert offline("log", "dump", "--verify-index-only", partition / f"{STEM}.index").code == 1


def test_sanity_checks(offline: Ottla, partition: Path) -> None:
    paths = [partition / f"{STEM}.index", partition / f"{STEM}.timeindex"]
    result = offline("log", "dump", "--index-sanity-check", *paths)
    assert result.code == 0
    assert [line for line in result.out.splitlines() if "passed" in line] == [f"{path} passed sanity check." for path in paths]
    paths[0].write_bytes(paths[0].read_bytes()[:-1])
    broken = offline("log", "dump", "--index-sanity-check", *paths)
    assert broken.code == 1
    assert f"{paths[0]} is corrupt" in broken.err


def test_a_cut_off_tail_is_counted(offline: Ottla, partition: Path) -> None:
    path = partition / f"{STEM}.log"
    path.write_bytes(path.read_bytes()[:-3])
    result = offline("log", "dump", path)
    assert result.code == 0
    assert f"Found 75 invalid bytes at the end of {STEM}.log" in result.out
    assert "invalid bytes" not in offline("log", "dump", path, "--max-bytes", "90").out


@pytest.mark.parametrize("zeros", [300, 40])
def test_zeros_at_the_end_are_no_message_set_of_an_old_format(offline: Ottla, partition: Path, zeros: int) -> None:
    """A file system may leave them after a power failure, and Kafka does with log.preallocate."""
    path = partition / f"{STEM}.log"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + bytes(zeros))
    result = offline("log", "dump", path)
    assert result.code == 0 and f"Found {zeros} invalid bytes at the end of {STEM}.log" in result.out
    path.write_bytes(path.read_bytes() + b"x" * 100)
    assert f"is damaged at {size}: " in offline("log", "dump", path).err


def test_max_bytes_ends_the_reading(offline: Ottla, partition: Path) -> None:
    result = offline("log", "dump", partition / f"{STEM}.log", "--max-bytes", "90", "-o", "jsonl")
    assert [json.loads(line)["base_offset"] for line in result.out.splitlines()] == [100]


@pytest.mark.parametrize("form", ["table", "json", "jsonl", "yaml"])
def test_every_file_that_cannot_be_dumped_is_named(offline: Ottla, partition: Path, form: str) -> None:
    others = [partition / "first.txt", partition / "second.txt"]
    for path in others:
        path.write_text("no file of a log")
    result = offline("log", "dump", *others, partition / f"{STEM}.log", "-o", form)
    assert result.code == 1
    assert all(f"{path} is not a file of a log" in result.out + result.err for path in others)


def test_a_wrong_crc_is_shown_and_nothing_inside_explained(offline: Ottla, partition: Path) -> None:
    path = partition / f"{STEM}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    result = offline("log", "dump", path, "--print-data-log", "--hex")
    assert "isvalid: false" in result.out
    assert "not explained: the CRC is wrong" in result.out


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (f"{0:020d}.log", b"\xff" * 300, "is not a log segment"),
        (f"{0:020d}.log", b"text that is no batch", "hold no whole batch"),
        (f"{0:020d}.log", b"\0" * 11 + b"\x3c" + b"\0" * 4 + b"\1" + b"\0" * 60, "before Kafka 0.11"),
        (f"{0:020d}.txnindex", b"123", "not a multiple"),
        (f"{0:020d}.snapshot", b"\0\1\0\0", "snapshot"),
        ("leader-epoch-checkpoint", b"0\n2\n1 1\n", "has 1 of 2 entries"),
        ("leader-epoch-checkpoint", b"\xff\xfe", "is not text"),
        ("meta.properties", b"nothing", "no '='"),
        ("notes.txt", b"hello", "is not a file of a log"),
    ],
)
def test_what_is_no_file_of_a_log(offline: Ottla, tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    result = offline("log", "dump", "--files", path)
    assert result.code == 1
    assert message in result.err
    assert result.err.count("\n") == 1
    assert path.read_bytes() == content


def test_a_missing_file_and_one_bad_among_good(offline: Ottla, partition: Path, tmp_path: Path) -> None:
    missing = tmp_path / f"{0:020d}.log"
    result = offline("log", "dump", missing, partition / f"{STEM}.log")
    assert result.code == 1
    assert "cannot read" in result.err
    assert "baseOffset: 100" in result.out


@settings(max_examples=150)
@given(data=st.data())
def test_damage_anywhere_is_a_line_and_never_more(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any byte of any file changed, or its end cut off: the dump goes as far as it can and ends with 0 or 1."""
    partition = make_partition(tmp_path_factory.mktemp("damage") / "t-0")
    path = data.draw(st.sampled_from(sorted(partition.iterdir())))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    if path.suffix == ".log" and data.draw(st.booleans()):
        with suppress(WireError):
            for position, header in iter_batches(bytes(content)):
                stamp_crc(content, position, header.size_bytes)  # damage that the CRC does not show
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    options = data.draw(
        st.sampled_from([("--hex",), ("--print-data-log",), ("--offsets-decoder",), ("--index-sanity-check",), ("-o", "json")])
    )
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["log", "dump", str(partition), *options])
    assert code in (0, 1)
    assert "Traceback" not in err.getvalue()
    assert out.getvalue()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 2),
        (("--offsets-decoder", "--transaction-log-decoder", "x.log"), 2),
        (("--share-group-state-decoder", "--offsets-decoder", "x.log"), 2),
        (("--max-bytes", "-1", "x.log"), 2),
        (("--value-decoder-class", "com.example.Decoder", "x.log"), 2),
        (("--cluster-metadata-decoder", "x.log"), 1),
    ],
)
def test_wrong_usage(offline: Ottla, words: tuple[str, ...], code: int) -> None:
    result = offline("log", "dump", *words)
    assert result.code == code
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1


# `ottla log scrub` finds damage in the files of a log, says which offsets it costs, and writes nothing


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory with two partitions; the first has two segments."""
    for name in ("t-0", "t-1"):
        make_partition(tmp_path / "data" / name)
    (tmp_path / "data/t-0" / f"{105:020d}.log").write_bytes(batch(105, 1050))
    return tmp_path / "data"


def files(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_sound_logs_are_counted(offline: Ottla, data: Path) -> None:
    before = files(data)
    result = offline("log", "scrub", data)
    assert (result.code, result.out, result.err) == (0, "", "11 batches in 3 segments were checked, 0 places are damaged\n")
    assert files(data) == before


@pytest.mark.parametrize("path", ["", "t-0", f"t-0/{STEM}.log"])
def test_a_flipped_bit_is_shown_with_its_offsets(offline: Ottla, data: Path, path: str) -> None:
    segment = data / "t-0" / f"{STEM}.log"
    flip(segment, 70)
    before = files(data)
    result = offline("log", "scrub", data / path, "-o", "json")
    assert result.code == 1 and files(data) == before
    (found,) = result.json()["damage"]
    assert found["file"] == str(segment)
    assert (found["first_offset"], found["last_offset"], found["position"]) == (100, 100, 0)
    assert "CRC" in found["reason"]
    assert f"{segment}  " in offline("log", "scrub", data / path).out


def test_a_missing_end_is_damage_unless_the_log_was_compacted(offline: Ottla, data: Path) -> None:
    (data / "t-0" / f"{105:020d}.log").rename(data / "t-0" / f"{110:020d}.log")
    (data / "t-0" / f"{110:020d}.log").write_bytes(batch(110, 1050))
    (found,) = offline("log", "scrub", data, "-o", "json").json()["damage"]
    assert (found["first_offset"], found["last_offset"]) == (105, 109)
    marker = data / "t-0" / f"{110:020d}.compacted"
    marker.touch()
    assert offline("log", "scrub", data).code == 0
    marker.unlink()
    (data / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 110\n")
    assert offline("log", "scrub", data).code == 0


@pytest.mark.parametrize("name", ["nothing", "t-0/partition.metadata", "empty"])
def test_what_is_no_log_is_refused_in_one_line(offline: Ottla, data: Path, name: str) -> None:
    (data / "empty").mkdir()
    result = offline("log", "scrub", data / name)
    assert result.code == 1 and len(result.err.splitlines()) == 1
    assert offline("log", "scrub").code == 2


# Records of the internal topics as JSON, in the form of Kafka's dump tool


def _record(key: bytes, value: bytes | None) -> Record:
    return Record(0, 0, key, value)


def test_a_transactions_state() -> None:
    made = state_record(
        TransactionMetadata(
            transactional_id="tid",
            producer_id=2,
            producer_epoch=0,
            timeout_ms=60_000,
            state=ONGOING,
            partitions=frozenset({TopicPartition("t", 0)}),
            start_timestamp_ms=5,
            update_timestamp_ms=6,
        )
    )
    key, value = decode_record(_record(made.key, made.value), "transactions")
    assert key == '{"type":"0","data":{"transactionalId":"tid"}}'
    assert value == (
        '{"version":"1","data":{"producerId":2,"producerEpoch":0,"transactionTimeoutMs":60000,"transactionStatus":1,'
        '"transactionPartitions":[{"topic":"t","partitionIds":[0]}],"transactionLastUpdateTimestampMs":6,'
        '"transactionStartTimestampMs":5}}'
    )
    gone = tombstone("tid")
    assert decode_record(_record(gone.key, None), "transactions") == (key, "<DELETE>")


def test_a_group_with_what_its_members_say_to_each_other() -> None:
    subscription = b"\0\2" + encoder(ConsumerProtocolSubscription, 2)(ConsumerProtocolSubscription(topics=["t"], user_data=None))
    member = MemberMetadata(member_id="m", subscription=subscription, assignment=b"\xff")
    made = group_metadata("g", GroupMetadataValue(protocol_type="consumer", generation=1, members=[member]))
    key, value = decode_record(_record(made.key, made.value), "offsets")
    assert key == '{"type":"2","data":{"group":"g"}}'
    tree = json.loads(value or "")
    assert tree["version"] == "3"
    shown = tree["data"]["members"][0]
    assert shown["subscription"] == {"topics": ["t"], "userData": None, "ownedPartitions": [], "generationId": -1}
    assert shown["assignment"] == "/w=="
    assert decode_record(_record(group_tombstone("g").key, None), "offsets")[1] == "<DELETE>"


def test_a_share_partitions_state() -> None:
    key = SharePartitionKey("g", bytes(16), 3)
    state = ShareState(2, 1, 5, 0, (StateBatch(5, 6, 0, 1),))
    made = state_records.snapshot_record(key, state_records.Snapshot(4, state, 8, 9))
    shown_key, value = decode_record(_record(made.key, made.value), "shares")
    assert shown_key == '{"type":"0","data":{"groupId":"g","topicId":"AAAAAAAAAAAAAAAAAAAAAA","partition":3}}'
    assert value == (
        '{"version":"0","data":{"snapshotEpoch":4,"stateEpoch":2,"leaderEpoch":1,"startOffset":5,"deliveryCompleteCount":0,'
        '"createTimestamp":8,"writeTimestamp":9,"stateBatches":[{"firstOffset":5,"lastOffset":6,"deliveryState":0,"deliveryCount":1}]}}'
    )
    change = ShareState(2, 1, -1, -1)
    made = state_records.update_record(key, state_records.StateUpdate(4, change))
    shown_key, value = decode_record(_record(made.key, made.value), "shares")
    assert shown_key == '{"type":"1","data":{"groupId":"g","topicId":"AAAAAAAAAAAAAAAAAAAAAA","partition":3}}'
    assert value == '{"version":"0","data":{"snapshotEpoch":4,"leaderEpoch":1,"startOffset":-1,"stateBatches":[]}}'
    assert decode_record(_record(state_records.tombstone(key).key, None), "shares")[1] == "<DELETE>"


def test_what_a_share_group_has_initialized() -> None:
    topic = TopicPartitionsInfo(topic_id=bytes(16), topic_name="t", partitions=[0, 1])
    key = b"\0\x0f" + encoder(ShareGroupStatePartitionMetadataKey, 0)(ShareGroupStatePartitionMetadataKey(group_id="g"))
    data = ShareGroupStatePartitionMetadataValue(initialized_topics=[topic])
    shown = decode_record(_record(key, b"\0\0" + encoder(ShareGroupStatePartitionMetadataValue, 0)(data)), "offsets")
    assert shown == (
        '{"type":"15","data":{"groupId":"g"}}',
        '{"version":"0","data":{"initializingTopics":[],"initializedTopics":[{"topicId":"AAAAAAAAAAAAAAAAAAAAAA","topicName":"t",'
        '"partitions":[0,1]}],"deletingTopics":[]}}',
    )


def test_unknown_records_are_named_or_shown_as_text() -> None:
    assert decode_record(_record(b"\0\x63x", b"v"), "offsets") == ('{"type":"99","data":"unknown"}', "v")
    assert decode_record(_record(b"\0\0\0\x05x", b"v"), "transactions") == ("\0\0\0\x05x", "v")
    assert decode_record(_record(group_tombstone("g").key, b"\x7f\0"), "offsets")[1] == '{"version":"32512","data":"unknown"}'
    assert decode_record(_record(b"k", None), "offsets") == ("k", None)


def test_control_records_of_a_metadata_log() -> None:
    change = LeaderChangeMessage(leader_id=1, voters=[Voter(voter_id=1)], granting_voters=[Voter(voter_id=1)])
    assert decode_control(2, encoder(LeaderChangeMessage, 0)(change)) == (
        "LeaderChange",
        '{"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[{"voterId":1}]}',
    )
    assert decode_control(2, b"\0\0\1") is None
    assert decode_control(99, b"\0\0") is None


def test_names_in_kafkas_form() -> None:
    assert camel("transaction_last_update_timestamp_ms") == "transactionLastUpdateTimestampMs"
