"""Returns compiled functions that decode or encode a message of one version, also as generators, which handle large messages in steps.

A function is compiled when it is first asked for (`decoding.py`, `encoding.py`), and then kept. The compilers are imported at the same
time, so that the start does not wait for them. Every function here raises ApiError(UNSUPPORTED_VERSION) for a version that the message does
not have.
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
    """Returns a function (buffer, offset) -> (message, offset after it). It raises `WireError`, and nothing else, for bytes that are not
    such a message. The buffer must end where its frame ends.
    """
    decode = _decoders.get((cls, version))
    if decode is None:
        from ottla.wire.decoding import compile_decoder

        _check_version(cls, version)
        decode = _decoders[cls, version] = compile_decoder(cls, version)
    return decode


def bounded_decoder(cls: type[StructT], version: int, objects_max: int) -> Callable[[Buffer, int], tuple[StructT, int]]:
    """As `decoder`, but the function raises `decoding.ManyObjects` for a message of more than `objects_max` objects. All calls for a class
    and version must give the same `objects_max`, because the first function is kept.
    """
    decode = _bounded_decoders.get((cls, version))
    if decode is None:
        from ottla.wire.decoding import compile_bounded_decoder

        _check_version(cls, version)
        decode = _bounded_decoders[cls, version] = compile_bounded_decoder(cls, version, objects_max)
    return decode


def step_decoder(cls: type[StructT], version: int) -> Callable[[Buffer, int], Generator[None, None, tuple[StructT, int]]]:
    """As `decoder`, but as a generator, which returns (message, offset after it). Each step decodes a limited number of elements. The limit
    of objects is lower than in `decoder`: `decoding.REQUEST_OBJECTS_MAX`.
    """
    decode = _step_decoders.get((cls, version))
    if decode is None:
        from ottla.wire.decoding import compile_step_decoder

        _check_version(cls, version)
        decode = _step_decoders[cls, version] = compile_step_decoder(cls, version)
    return decode


def encoder(cls: type[StructT], version: int) -> Callable[[StructT], bytes]:
    """Returns a function message -> bytes. It raises ApiError(UNSUPPORTED_VERSION) if a field that this version does not have is set,
    unless the field is ignorable, and ApiError(INVALID_REQUEST) for a string that is too long.
    """
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
    """As `encoder`, but the function returns a list of pieces. Large `records`, and `records` that are not bytes-like, are pieces of their
    own and are not copied.
    """
    encode = _part_encoders.get((cls, version))
    if encode is None:
        from ottla.wire.encoding import compile_split_writer

        _check_version(cls, version)
        encode = _part_encoders[cls, version] = compile_split_writer(cls, version)
    return encode


def writer(cls: type[StructT], version: int) -> Callable[[StructT, list[Any]], None]:
    """Returns a function (message, parts) that appends the pieces of the encoding to `parts`, for callers that put a header before them and
    join once.
    """
    write = _writers.get((cls, version))
    if write is None:
        from ottla.wire.encoding import compile_writer

        _check_version(cls, version)
        write = _writers[cls, version] = compile_writer(cls, version)
    return write


def step_writer(cls: type[StructT], version: int) -> Callable[[StructT, list[Any], list[Any]], Iterator[None]]:
    """Returns a generator function (message, parts, out) that appends the pieces of the encoding to `parts` in steps. `records` that are a
    piece of their own (as in `encoder_parts`) are appended to `out` instead, after the pieces in `parts`, which are joined and moved to
    `out` first.
    """
    write = _step_writers.get((cls, version))
    if write is None:
        from ottla.wire.encoding import compile_step_writer

        _check_version(cls, version)
        write = _step_writers[cls, version] = compile_step_writer(cls, version)
    return write


def element_writer(cls: type[Message], version: int, name: str) -> Callable[[list[Any], list[Any]], Iterator[None]]:
    """Returns a generator function (elements, parts) that appends the encoding of elements of the array `name`, without their count, to
    `parts`, in steps.
    """
    write = _element_writers.get((cls, version, name))
    if write is None:
        from ottla.wire.encoding import compile_element_writer

        _check_version(cls, version)
        write = _element_writers[cls, version, name] = compile_element_writer(cls, version, name)
    return write


def spliced_writer(cls: type[StructT], version: int, name: str) -> Callable[[StructT, int, list[Any], list[Any]], None]:
    """Returns a function (message, count, written, parts) that appends the encoding of a message to `parts`. Its array `name` has `count`
    elements, which `written` has encoded already (`element_writer`).
    """
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
