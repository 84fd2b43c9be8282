"""Translates names of cipher suites: Java and Kafka's settings use IANA's names, Python's `ssl` uses OpenSSL's.

`TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384` is OpenSSL's `ECDHE-RSA-AES256-GCM-SHA384`. Suites of TLS 1.3 have the same name in both, and
OpenSSL chooses among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

PREFIX, WITH = "TLS_", "_WITH_"
DIGEST_SUFFIX = re.compile(r"-(?:SHA\d*|MD5)$")


def is_of_tls13(name: str) -> bool:
    """Whether the name is a suite of TLS 1.3. Names of TLS 1.3 have no `_WITH_`, because its suites do not determine the key exchange."""
    return name.startswith(PREFIX) and WITH not in name


def openssl_name(name: str) -> str:
    """Returns OpenSSL's name of a suite of TLS 1.2. Other names are returned unchanged."""
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
    """Returns the suites of TLS 1.2 as an OpenSSL cipher list; empty if all names are of TLS 1.3."""
    return ":".join([openssl_name(name) for name in names if name and not is_of_tls13(name)])
