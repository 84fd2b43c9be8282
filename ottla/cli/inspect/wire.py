"""`ottla wire`: explains frames field by field.

The input is an argument with hexadecimal digits, a file, or standard input. A file has hexadecimal digits, raw bytes, or a packet capture
(pcap or pcapng). Digits may have any usual layout (spaces, colons, `0x`, the columns of xxd and `hexdump -C`). In a capture, each response
is matched with its request.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from ottla.analysis.frames import (
    FRAME_BYTES_MAX,
    Frame,
    SeenFrame,
    about,
    explain_request,
    explain_response,
    frame_object,
    key_of,
    split_frames,
)
from ottla.analysis.spans import span_lines
from ottla.base.errors import WireError
from ottla.cli.command import Args, Refused, UsageError, command, flag, option
from ottla.cli.inspect.hex_text import from_digits
from ottla.cli.optional import part
from ottla.cli.output import write
from ottla.cli.render.ottla import Output
from ottla.wire.apis import API_NAMES, APIS


@command(
    "wire",
    "Explain a frame of the protocol, or a packet capture.",
    option(
        "frame",
        nargs="*",
        metavar="HEX|FILE",
        help="hexadecimal digits, or a file with them, raw bytes, pcap or pcapng; else standard input",
    ),
    flag("--response", help="the frame is a response; needs --api and --version"),
    option("--api", metavar="NAME|KEY", help="the API of the response; in a capture: show only this API"),
    option("--version", type=int, metavar="N", help="the version of the response"),
    option("--port", type=int, metavar="PORT", help="in a capture: the broker's port"),
    flag("--brief", help="one line per frame"),
    has_connection=False,
)
def _run(args: Args, output: Output) -> int:
    key = None
    if args.api is not None:
        key = key_of(args.api)
        if key is None:
            from ottla.client.blocking.cluster import nearest_hint

            raise UsageError(f"no API {args.api!r}{nearest_hint(args.api, dict.fromkeys(API_NAMES.values()))}")
    data = _read(args.frame)
    try:
        if part("captures").is_recording(data):
            frames = [found for found in part("captures").conversation(data, args.port) if key is None or found.frame.api_key == key]
        else:
            frames = [SeenFrame(frame, "") for frame in _explain(data, key, args)]
    except WireError as error:
        raise Refused(str(error), "CORRUPT_FRAME") from None
    if not frames:
        raise Refused("no frame of the protocol found" + ("" if args.api is None else f" for {API_NAMES[key or 0]}"), "CORRUPT_FRAME")
    _show(output, frames, is_brief=args.brief)
    problems = [found.frame for found in frames if found.frame.problem]
    if problems and output.is_structured:
        return 1  # each frame's object contains the problem
    if problems:
        raise Refused(f"{problems[0].title}: {problems[0].problem}", "CORRUPT_FRAME")
    return 0


def _read(words: list[str]) -> bytes:
    if not words or words == ["-"]:
        if not words and sys.stdin.isatty():
            raise UsageError("give a frame in hexadecimal digits, or a file: ottla wire 00000012...")
        return _as_bytes(sys.stdin.buffer.read(FRAME_BYTES_MAX), "standard input")
    if len(words) == 1 and os.path.exists(words[0]):
        try:
            with open(words[0], "rb") as file:
                return _as_bytes(file.read(FRAME_BYTES_MAX), words[0])
        except OSError as error:
            raise Refused(f"cannot read {words[0]}: {(error.strerror or str(error)).lower()}", "NO_SUCH_FILE") from None
    data = from_digits(" ".join(words))
    if data is None:
        what = words[0] if len(words) == 1 else " ".join(words)[:40]
        raise UsageError(f"{what!r} is neither hexadecimal digits nor a file that exists")
    return data


def _as_bytes(data: bytes, name: str) -> bytes:
    """Converts hexadecimal digits to bytes. Returns captures and binary data unchanged. Raises `Refused` for other text and for empty
    data."""
    if not data:
        raise Refused(f"{name} is empty", "CORRUPT_FRAME")
    if part("captures").is_recording(data) or 0 in data:
        return data
    try:
        found = from_digits(data.decode("ascii"))
    except UnicodeDecodeError:
        return data
    if found is None:
        raise Refused(f"{name} is text, but not hexadecimal digits", "CORRUPT_FRAME")
    return found


def _explain(data: bytes, key: int | None, args: Args) -> Iterator[Frame]:
    if args.response:
        if key is None or args.version is None:
            raise UsageError("a response does not name its API: add --api NAME and --version N of its request")
        if not APIS[key].lowest <= args.version <= APIS[key].highest:
            raise UsageError(f"{API_NAMES[key]} has versions {APIS[key].lowest} to {APIS[key].highest}, not {args.version}")
    elif args.version is not None:
        raise UsageError("a request has its version in its header; --version goes with --response")
    for start, end in split_frames(data):
        piece = memoryview(data)[start:end]
        if args.response:
            assert key is not None
            assert args.version is not None
            yield explain_response(piece, key, args.version, start)
        else:
            yield explain_request(piece, start)


def _show(output: Output, frames: list[SeenFrame], *, is_brief: bool) -> None:
    if output.is_structured:
        objects: list[dict[str, Any]] = [{**frame_object(found.frame), "place": found.place or None} for found in frames]
        if is_brief:
            for found in objects:
                del found["spans"]
        output.objects("frames", objects)
        return
    for number, (frame, place) in enumerate(frames):
        heading = f"{place}  {frame.title}" if place else frame.title
        if is_brief:
            write(heading + (f"  ({frame.problem})" if frame.problem else "") + "\n")
            continue
        sentence = f"  {about(frame.api_key)}." if frame.api_key in APIS else ""
        write("\n" * bool(number) + heading + "\n" + (sentence + "\n" if sentence else ""))
        write("".join(f"{line}\n" for line in span_lines(frame.spans)))
