"""The names of cipher suites: those of IANA, which Java and so Kafka's settings have, as those of OpenSSL, for which Python's `ssl` asks.

`TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384` is OpenSSL's `ECDHE-RSA-AES256-GCM-SHA384`. The suites of TLS 1.3 have one name in both; which of
them are used is OpenSSL's choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

PREFIX, WITH = "TLS_", "_WITH_"
DIGEST_SUFFIX = re.compile(r"-(?:SHA\d*|MD5)$")


def is_of_tls13(name: str) -> bool:
    """Whether it is IANA's name of a suite of TLS 1.3, which names no key exchange."""
    return name.startswith(PREFIX) and WITH not in name


def openssl_name(name: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2; one that is not IANA's stays as it is."""
    if not name.startswith(PREFIX) or WITH not in name:
        return name
    exchange, _, cipher = name.removeprefix(PREFIX).partition(WITH)
    parts = [] if exchange == "RSA" else [exchange.replace("_", "-")]
    cipher = re.sub(r"^(AES|CAMELLIA|ARIA)_(\d+)", r"\1\2", cipher).replace("_", "-")
    if "CHACHA20" in cipher:
        cipher = DIGEST_SUFFIX.sub("", cipher)
    cipher = cipher.replace("CCM-8", "CCM8")
    return "-".join([*parts, cipher if "PSK" in exchange else cipher.replace("-CBC", "")])


def tls12_ciphers(names: Iterable[str]) -> str:
    """The suites of TLS 1.2 in OpenSSL's form of a list; empty where only some of TLS 1.3 are named."""
    return ":".join([openssl_name(name) for name in names if name and not is_of_tls13(name)])
