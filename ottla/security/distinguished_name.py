"""The subject of an X.509 certificate as Java writes it (RFC 2253). It is the name of a principal: `CN=alice,OU=Sales,O=Example`.

Also reads when a certificate expires. Special characters are escaped, so a NUL or a comma in a name cannot end it early. Attributes without
a short name in Java are written by object id, with their value in hex.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

SHORT_NAMES = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O", "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
}  # fmt: skip
SEQUENCE, SET, OID, EXPLICIT_VERSION, UTC_TIME = 0x30, 0x31, 0x06, 0xA0, 0x17
CODECS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1E: "utf-16-be", 0x1C: "utf-32-be"}
SPECIAL = frozenset(',+"\\<>;=')
SUBJECT_FIELD = 4
"""Number of fields before the subject, after the version: serial number, algorithm, issuer, validity."""


class CertificateError(ValueError):
    """Raised for bytes that are not a certificate."""


def subject_of(certificate: bytes) -> str:
    """Returns the subject, the most specific part first. Raises `CertificateError`."""
    try:
        (whole,) = _elements(certificate)
        to_be_signed = next(_elements(whole[1]))
        fields = list(_elements(to_be_signed[1]))
        if fields[0][0] == EXPLICIT_VERSION:
            fields = fields[1:]
        tag, subject = fields[SUBJECT_FIELD]
        if whole[0] != SEQUENCE or tag != SEQUENCE:
            raise CertificateError("no subject")
        names = [_relative_name(value) for tag, value in _elements(subject) if tag == SET]
    except (IndexError, StopIteration, UnicodeDecodeError, ValueError) as error:
        raise CertificateError(f"not a certificate: {error}") from None
    return ",".join(reversed(names))


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields tag and content of each element; raises `ValueError` for a truncated element."""
    at = 0
    while at < len(data):
        tag, size, start = data[at], data[at + 1], at + 2
        if size & 0x80:
            count = size & 0x7F
            size, start = int.from_bytes(data[start : start + count], "big"), start + count
        if start + size > len(data):
            raise ValueError("an element is cut short")
        yield tag, data[start : start + size]
        at = start + size


def _relative_name(data: bytes) -> str:
    parts = []
    for _tag, pair in _elements(data):
        (oid_tag, oid), (tag, value) = _elements(pair)
        if oid_tag != OID:
            raise ValueError("an attribute without a type")
        name = SHORT_NAMES.get(_dotted(oid))
        if name is None or tag not in CODECS:
            encoded = bytes([tag, len(value)]) if len(value) < 0x80 else bytes([tag, 0x82]) + len(value).to_bytes(2, "big")
            parts.append(f"{name or _dotted(oid)}=#{(encoded + value).hex()}")
        else:
            parts.append(f"{name}={_escaped(value.decode(CODECS[tag]))}")
    return "+".join(parts)


def _dotted(oid: bytes) -> str:
    numbers, value = [min(oid[0] // 40, 2), oid[0] - 40 * min(oid[0] // 40, 2)], 0
    for byte in oid[1:]:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    return ".".join(map(str, numbers))


def _escaped(text: str) -> str:
    letters = [f"\\{letter}" if letter in SPECIAL else f"\\{ord(letter):02X}" if ord(letter) < 0x20 else letter for letter in text]
    if text[:1] in ("#", " "):
        letters[0] = f"\\{text[0]}"
    if len(text) > 1 and text[-1] == " ":
        letters[-1] = "\\ "
    return "".join(letters)


def valid_until(certificate: bytes) -> datetime:
    """Returns when the certificate expires. Raises `CertificateError`."""
    try:
        (whole,) = _elements(certificate)
        fields = list(_elements(next(_elements(whole[1]))[1]))
        fields = fields[1:] if fields[0][0] == EXPLICIT_VERSION else fields
        _, (tag, end) = _elements(fields[SUBJECT_FIELD - 1][1])
        text = end.decode("ascii")
        if tag == UTC_TIME:  # two digits of the year: 1950 to 2049
            text = ("19" if text[:2] >= "50" else "20") + text
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except (IndexError, StopIteration, UnicodeDecodeError, ValueError) as error:
        raise CertificateError(f"not a certificate: {error}") from None
