"""Topic ids, directory ids and other ids of 16 bytes. As text they are Kafka's 22 characters of URL-safe base64. In memory and in messages
they are bytes.

`Uuid` is plain `bytes`, because a slice of a frame is already one.
"""

from __future__ import annotations

import binascii

Uuid = bytes

ZERO_UUID: Uuid = bytes(16)
METADATA_TOPIC_UUID: Uuid = bytes(15) + b"\x01"  # reserved for the topic of a KRaft controller's metadata

_TO_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_FROM_URL_SAFE = bytes.maketrans(b"-_", b"+/")


def uuid_to_text(uuid: Uuid) -> str:
    """Returns Kafka's form of an id: URL-safe base64 without padding, 22 characters."""
    assert len(uuid) == 16, f"a uuid has 16 bytes, not {len(uuid)}"
    return binascii.b2a_base64(uuid, newline=False).translate(_TO_URL_SAFE).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """The reverse of `uuid_to_text`. Also accepts padding, and `+` and `/` for `-` and `_`. Raises `ValueError` for a text that is not 16
    bytes in base64."""
    try:
        letters = text.encode("ascii").translate(_FROM_URL_SAFE, b"=")
        uuid = binascii.a2b_base64(letters + b"=" * (-len(letters) % 4), strict_mode=True)
    except ValueError:
        raise ValueError(f"{text!r} is not a uuid in base64") from None
    if len(uuid) != 16:
        raise ValueError(f"{text!r} is {len(uuid)} bytes of base64, not the 16 of a uuid")
    return uuid


def fresh_uuid(random_bytes: bytes) -> Uuid:
    """Returns a version 4 UUID of these random bytes. Its text does not begin with `-`, because a command line would read such a text as an
    option."""
    assert len(random_bytes) == 16, f"a uuid has 16 bytes, not {len(random_bytes)}"
    data = bytearray(random_bytes)
    if data[0] >> 2 == 62:
        data[0] &= 0x7F
    data[6] = data[6] & 0x0F | 0x40
    data[8] = data[8] & 0x3F | 0x80
    return bytes(data)
