"""Subjects of certificates, written as Java writes them. The DER input is made by hand."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ottla.security.distinguished_name import CertificateError, subject_of, valid_until

CN, ORGANIZATION, OU, MAIL = b"\x55\x04\x03", b"\x55\x04\x0a", b"\x55\x04\x0b", b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x01"


def der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = bytes([len(content)]) if len(content) < 0x80 else b"\x82" + len(content).to_bytes(2, "big")
    return bytes([tag]) + size + content


def certificate(*names: tuple[bytes, int, bytes], until: bytes = der(0x17, b"300102030405Z")) -> bytes:
    subject = der(0x30, *(der(0x31, der(0x30, der(6, oid), der(tag, value))) for oid, tag, value in names))
    validity = der(0x30, der(0x17, b"200101000000Z"), until)
    signed = der(0x30, der(0xA0, der(2, b"\2")), der(2, b"\1"), der(0x30), der(0x30), validity, subject)
    return der(0x30, signed, der(0x30), der(3))


@pytest.mark.parametrize(
    ("names", "subject"),
    [
        ([(ORGANIZATION, 0x13, b"Example"), (OU, 0x0C, b"Sales"), (CN, 0x0C, b"alice")], "CN=alice,OU=Sales,O=Example"),
        ([(CN, 0x0C, "Zoë".encode())], "CN=Zoë"),
        ([(CN, 0x1E, "Zoë".encode("utf-16-be"))], "CN=Zoë"),
        ([(CN, 0x0C, b"alice\0.evil")], "CN=alice\\00.evil"),
        ([(CN, 0x0C, b"a,OU=admin")], "CN=a\\,OU\\=admin"),
        ([(CN, 0x0C, b"#1 ")], "CN=\\#1\\ "),
        ([(MAIL, 0x16, b"a@b"), (CN, 0x0C, b"x")], "CN=x,1.2.840.113549.1.9.1=#1603614062"),
        ([], ""),
    ],
)
def test_subjects(names: list[tuple[bytes, int, bytes]], subject: str) -> None:
    assert subject_of(certificate(*names)) == subject


def test_what_is_no_certificate() -> None:
    whole = certificate((CN, 0x0C, b"alice"))
    for data in (b"", b"\x30", b"nonsense", *(whole[:size] for size in range(0, len(whole), 7))):
        with pytest.raises(CertificateError):
            subject_of(data)
        with pytest.raises(CertificateError):
            valid_until(data)


@pytest.mark.parametrize(
    ("until", "year"), [(der(0x17, b"300102030405Z"), 2030), (der(0x17, b"990102030405Z"), 1999), (der(0x18, b"20510102030405Z"), 2051)]
)
def test_the_end_of_validity(until: bytes, year: int) -> None:
    assert valid_until(certificate(until=until)) == datetime(year, 1, 2, 3, 4, 5, tzinfo=UTC)
