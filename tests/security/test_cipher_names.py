"""IANA's names of cipher suites, translated to OpenSSL's."""

from __future__ import annotations

import ssl

import pytest

from ottla.security.cipher_names import is_of_tls13, openssl_name, tls12_ciphers

NAMES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_CCM_8": "DHE-RSA-AES256-CCM8",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_ARIA_128_GCM_SHA256": "ECDHE-ECDSA-ARIA128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_CAMELLIA_256_CBC_SHA256": "DHE-RSA-CAMELLIA256-SHA256",
    "TLS_ECDHE_PSK_WITH_AES_256_CBC_SHA384": "ECDHE-PSK-AES256-CBC-SHA384",
}


@pytest.mark.parametrize(("name", "openssl"), NAMES.items())
def test_openssl_knows_the_name(name: str, openssl: str) -> None:
    assert openssl_name(name) == openssl == openssl_name(openssl)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:COMPLEMENTOFALL:@SECLEVEL=0")
    assert openssl in [cipher["name"] for cipher in context.get_ciphers()]


def test_suites_of_tls_13() -> None:
    assert is_of_tls13("TLS_AES_128_GCM_SHA256") and is_of_tls13("TLS_CHACHA20_POLY1305_SHA256")
    assert not is_of_tls13("TLS_RSA_WITH_AES_128_CBC_SHA") and not is_of_tls13("ECDHE-RSA-AES128-SHA")
    assert tls12_ciphers(["TLS_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "", "HIGH"]) == "ECDHE-RSA-AES128-SHA:HIGH"
    assert tls12_ciphers(["TLS_AES_256_GCM_SHA384"]) == ""
