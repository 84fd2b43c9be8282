"""The compiled codec of a message in one version: `decoder`, `encoder`, `encoder_parts` and `writer`; for large ones also in steps.

Each (message, version) is compiled when it is first used (`decoding.py`, `encoding.py`) and kept; the compilers are imported then, too,
so that a start does not wait for them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

from ottla.base.errors import ApiError, ErrorCode
from ottla.wire.schema import Buffer, Message

StructT = TypeVar("StructT", bound=Message)

_decoders: dict[tuple[type[Message], int], Any] = {}
_bounded_decoders: dict[tuple[type[Message], int], Any] = {}
_step_decoders: dict[tuple[type[Message], int], Any] = {}
_writers: dict[tuple[type[Message], int], Any] = {}
_step_writers: dict[tuple[type[Message], int], Any] = {}
_element_writers: dict[tuple[type[Message], int, str], Any] = {}
_spliced_writers: dict[tuple[type[Message], int, str], Any] = {}
_encoders: dict[tuple[type[Message], int], Any] = {}
_part_encoders: dict[tuple[type[Message], int], Any] = {}


def decoder(cls: type[StructT], version: int) -> Callable[[Buffer, int], tuple[StructT, int]]:
    """(buffer, offset) -> (message, offset after it). Nonsense raises WireError and nothing else. The buffer ends where its frame ends."""
    decode = _decoders.get((cls, version))
    if decode is None:
        from ottla.wire.decoding import compile_decoder

        _check_version(cls, version)
        decode = _decoders[cls, version] = compile_decoder(cls, version)
    return decode


def bounded_decoder(cls: type[StructT], version: int, objects_max: int) -> Callable[[Buffer, int], tuple[StructT, int]]:
    """The same; raises `decoding.ManyObjects` for a message of more than `objects_max` objects, the same for each use of a class."""
    decode = _bounded_decoders.get((cls, version))
    if decode is None:
        from ottla.wire.decoding import compile_bounded_decoder

        _check_version(cls, version)
        decode = _bounded_decoders[cls, version] = compile_bounded_decoder(cls, version, objects_max)
    return decode


def step_decoder(cls: type[StructT], version: int) -> Callable[[Buffer, int], Generator[None, None, tuple[StructT, int]]]:
    """The same as a generator that returns the message; a step is a bounded number of elements."""
    decode = _step_decoders.get((cls, version))
    if decode is None:
        from ottla.wire.decoding import compile_step_decoder

        _check_version(cls, version)
        decode = _step_decoders[cls, version] = compile_step_decoder(cls, version)
    return decode


def encoder(cls: type[StructT], version: int) -> Callable[[StructT], bytes]:
    """message -> bytes. A value that this version has no place for raises ApiError(UNSUPPORTED_VERSION) unless it is ignorable."""
    encode = _encoders.get((cls, version))
    if encode is None:
        write = writer(cls, version)
        join = b"".join

        def encode(message: StructT) -> bytes:
            parts: list[Any] = []
            write(message, parts)
            return join(parts)

        _encoders[cls, version] = encode
    return encode


def encoder_parts(cls: type[StructT], version: int) -> Callable[[StructT], list[Any]]:
    """message -> the same bytes in pieces. Large `records`, and `records` that are not bytes-like, are pieces of their own, not copied."""
    encode = _part_encoders.get((cls, version))
    if encode is None:
        from ottla.wire.encoding import compile_split_writer

        _check_version(cls, version)
        write = compile_split_writer(cls, version)
        join = b"".join

        def encode(message: StructT) -> list[Any]:
            parts: list[Any] = []
            out: list[Any] = []
            write(message, parts, out)
            if parts:
                out.append(join(parts))
            return out

        _part_encoders[cls, version] = encode
    return encode


def writer(cls: type[StructT], version: int) -> Callable[[StructT, list[Any]], None]:
    """(message, parts) -> appends the pieces of the encoding to `parts`; for callers who put a header before it and join once."""
    write = _writers.get((cls, version))
    if write is None:
        from ottla.wire.encoding import compile_writer

        _check_version(cls, version)
        write = _writers[cls, version] = compile_writer(cls, version)
    return write


def step_writer(cls: type[StructT], version: int) -> Callable[[StructT, list[Any], list[Any]], Iterator[None]]:
    """(message, parts, out) -> the same as a generator; a step is a bounded number of elements. `records` are pieces of their own as in
    `encoder_parts`: the bytes in `parts` are joined and moved to `out`, and the `records` are added behind them."""
    write = _step_writers.get((cls, version))
    if write is None:
        from ottla.wire.encoding import compile_step_writer

        _check_version(cls, version)
        write = _step_writers[cls, version] = compile_step_writer(cls, version)
    return write


def element_writer(cls: type[Message], version: int, name: str) -> Callable[[list[Any], list[Any]], Iterator[None]]:
    """(elements, parts) -> appends the encoding of elements of the array `name`, without a count, in steps."""
    write = _element_writers.get((cls, version, name))
    if write is None:
        from ottla.wire.encoding import compile_element_writer

        _check_version(cls, version)
        write = _element_writers[cls, version, name] = compile_element_writer(cls, version, name)
    return write


def spliced_writer(cls: type[StructT], version: int, name: str) -> Callable[[StructT, int, list[Any], list[Any]], None]:
    """(message, count, written, parts) -> appends the encoding of a message whose array `name` is written already: so many elements."""
    write = _spliced_writers.get((cls, version, name))
    if write is None:
        from ottla.wire.encoding import compile_spliced_writer

        _check_version(cls, version)
        write = _spliced_writers[cls, version, name] = compile_spliced_writer(cls, version, name)
    return write


def _check_version(cls: type[Message], version: int) -> None:
    lowest, highest = cls.VERSIONS
    if not lowest <= version <= highest:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{cls.__name__} has versions {lowest} to {highest}, not {version}")
