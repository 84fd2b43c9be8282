"""`ottla log dump`: shows the files of a log, offline, in the format of Kafka's tool; `--hex` shows each byte with its meaning.

The kind of a file follows from its name, as in Kafka: segments, both indexes, aborted transactions, producer snapshots, checkpoints,
`partition.metadata` and `meta.properties`. The command never writes a file. For a damaged or unknown file the command prints one line,
dumps the other files, and returns exit code 1. A mismatch between an index and its segment also gives exit code 1.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from ottla.base.errors import ApiError, ErrorCode, StorageError, WireError
from ottla.cli.command import Args, Refused, UsageError, command, flag, hidden, merged, option
from ottla.cli.inspect.log_dump import Dump, Options, map_file
from ottla.cli.render.ottla import Output

_MAX_BYTES = (1 << 31) - 1
_STRING_DECODERS = ("org.apache.kafka.tools.api.StringDecoder", "kafka.serializer.StringDecoder")
_DECODERS = {"offsets_decoder": "offsets", "transaction_log_decoder": "transactions", "share_group_state_decoder": "shares"}
_NOT_OFFERED = ("cluster_metadata_decoder", "remote_log_metadata_decoder")


def _options(args: Args) -> Options:
    for name in _NOT_OFFERED:
        if getattr(args, name):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"--{name.replace('_', '-')} is not offered: Ottla has no such topic")
    for found in (args.key_decoder_class, args.value_decoder_class):
        if found not in (None, *_STRING_DECODERS):
            raise UsageError(f"a Java class ({found}) cannot be loaded here; without it keys and values are text")
    asked = [name for name in _DECODERS if getattr(args, name)]
    if len(asked) > 1:
        raise UsageError("one decoder at a time: " + " or ".join(f"--{name.replace('_', '-')}" for name in asked))
    if args.max_bytes < 0:
        raise UsageError("--max-bytes is a number of bytes, not below 0")
    decoder = _DECODERS[asked[0]] if asked else ""
    is_printing = args.print_data_log or bool(decoder)
    return Options(
        is_printing=is_printing,
        is_deep=is_printing or args.deep_iteration,
        is_hex=args.hex,
        bytes_max=args.max_bytes if args.max_bytes != _MAX_BYTES else None,
        is_bare=args.skip_record_metadata,
        is_verifying=args.verify_index_only,
        is_checking=args.index_sanity_check,
        decoder=decoder,
    )


@command(
    "log dump",
    "Show segments, indexes, snapshots and checkpoints.",
    option("paths", nargs="*", metavar="FILE", help="files, or directories of partitions"),
    option("--files", action="append", metavar="FILE,...", help="files, as an option of Kafka's tool"),
    flag("--print-data-log", help="also print keys and values"),
    flag("--deep-iteration", help="print each record, not only each batch"),
    flag("--hex", help="print each byte with its field and value"),
    option("--max-bytes", type=int, default=_MAX_BYTES, metavar="N", help="maximum bytes of a segment"),
    flag("--skip-record-metadata", help="only keys and values of records; no control records"),
    flag("--verify-index-only", help="compare indexes with the segment, print only what differs"),
    flag("--index-sanity-check", help="check indexes as a broker does at its start"),
    flag("--offsets-decoder", help="decode the records of __consumer_offsets"),
    flag("--transaction-log-decoder", help="decode the records of __transaction_state"),
    flag("--share-group-state-decoder", help="decode the records of __share_group_state"),
    *(hidden("--" + name.replace("_", "-"), action="store_true") for name in _NOT_OFFERED),
    hidden("--key-decoder-class", nargs="?", metavar="CLASS"),
    hidden("--value-decoder-class", nargs="?", metavar="CLASS"),
    hidden("--max-message-size", type=int, metavar="N"),
    has_connection=False,
)
def _run(args: Args, output: Output) -> int:
    options = _options(args)
    names = [*args.paths, *merged(args.files)]
    if not names:
        raise UsageError("name a file: ottla log dump --files 00000000000000000000.log")
    dump = Dump(output, options)
    failures = []
    for path in [found for name in names for found in _files_of(name)]:
        try:
            _dump_file(dump, path)
        except (Refused, StorageError, WireError) as error:
            failures.append(str(error))
            dump.failed(path, str(error))
    dump.finish()
    if failures:
        for message in failures[:-1]:
            if output.form == "jsonl" or not output.is_structured:  # in JSON and YAML the object of each file has its error
                output.error(message, "CORRUPT_FILE")
        raise Refused(failures[-1], "CORRUPT_FILE")
    return 1 if dump.has_mismatches else 0


def _files_of(name: str) -> list[str]:
    """Returns the file itself, or the files of known kinds in a directory. Raises `Refused` for a directory without such files."""
    if not os.path.isdir(name):
        return [name]
    found = [os.path.join(name, entry) for entry in sorted(os.listdir(name)) if _dumper_of(entry) is not None]
    if not found:
        raise Refused(f"no file of a log in {name}", "NO_SUCH_FILE")
    return found


def _dumper_of(path: str) -> Callable[[Dump, str, bytes | memoryview], None] | None:
    from ottla.cli.inspect import log_files

    suffixes = {
        ".log": log_files.dump_segment,
        ".index": log_files.dump_offset_index,
        ".timeindex": log_files.dump_time_index,
        ".txnindex": log_files.dump_aborted,
        ".snapshot": log_files.dump_producers,
    }
    name = os.path.basename(path)
    # A broker renames files before it deletes them (.deleted), and compaction writes .cleaned and .swap. Their format is the same.
    stem = name.removesuffix(".deleted").removesuffix(".cleaned").removesuffix(".swap")
    for suffix, dumper in suffixes.items():
        if stem.endswith(suffix) and stem.removesuffix(suffix).isdecimal():
            return dumper
    return log_files.NAMED.get(name)


def _dump_file(dump: Dump, path: str) -> None:
    dumper = _dumper_of(path)
    if dumper is None:
        raise Refused(f"{path} is not a file of a log: known are *.log, *.index, *.timeindex, *.txnindex, *.snapshot and checkpoints")
    try:
        data = map_file(path)
    except OSError as error:
        raise Refused(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    dump.begin(path)
    dumper(dump, path, data)
