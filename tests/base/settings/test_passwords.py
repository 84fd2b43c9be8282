"""The encrypted form of stored passwords: as Apache Kafka writes it, and the treatment of other forms."""

from __future__ import annotations

import sys

import pytest

from ottla.base.config import BrokerConfig, SettingError
from ottla.base.settings.gathering import Notice
from ottla.base.settings.passwords import NO_LIBRARY, WRONG_SECRET
from tests.fakes.randomness import SeededRandom

BY_KAFKA = (
    "encryptedPassword:fJv2kB1ZFdXHmsvZtPS9eA==,keyLength:128,cipherAlgorithm:AES/CBC/PKCS5Padding,"
    "initializationVector:Vc0xnbzOWQplWBh5dk5QLw==,keyFactoryAlgorithm:PBKDF2WithHmacSHA512,passwordLength:14,"
    "salt:upuwR9DWzcAvFw/3w3uXaelJoaAfMi5I6YYZMZWaGu1nVO6AP19C6zqJFDCj5OAPaZK7hAjJ1z/rI5EL2Jw3dBsF2HC2KsMEwVcim3SruS6C8xN8iH0s/XmMPDfP"
    "COHRAkdENVcLBu+Uz7pqF1CywytnQTVhIrnI/kr2j1a+r8GEa2Ttk3OLjOUwEbGs7uvPwabsVMxLoshdwreLKt6+7rquxNwcqdMDxYxKWHeodCu7gJSnI7RkMu9mjFHJ"
    "FtjLZnk45cUt1pSgypZKRC63RdfihIvZg7NdlJKU/Ewmn8pDc4aYEYi0yT8W3iFKbUO/ceLgrhkmlPxzYPqunZ6n3w==,iterations:4096"
)
"""Written by a broker of Apache Kafka (in the documentation of a distribution of it), whose secret was `encoder-secret`."""
NAME = "ssl.keystore.password"
TEXTS = ["", "p", "fifteen bytes..", "sixteen bytes...", "passwörd 😀", "a,b:c=d", "x" * 20_000]


def config(secret: str = "", old: str = "", **settings: str) -> BrokerConfig:
    given = {"password.encoder.secret": secret, "password.encoder.old.secret": old, **settings}
    return BrokerConfig({name: value for name, value in given.items() if value})


def encrypted(text: str, secret: str, **settings: str) -> str:
    return config(secret, **settings).passwords.encrypt(text, SeededRandom(1))


def test_what_apache_kafka_encrypted_is_read() -> None:
    assert config("encoder-secret").passwords.readable({NAME: BY_KAFKA}) == {NAME: "serverpassword"}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("factory", ["PBKDF2WithHmacSHA512", "PBKDF2WithHmacSHA1"])
@pytest.mark.parametrize("bits", ["128", "256"])
def test_what_is_encrypted_is_read_again_with_any_settings(text: str, factory: str, bits: str) -> None:
    form = {"password.encoder.keyfactory.algorithm": factory, "password.encoder.key.length": bits, "password.encoder.iterations": "1024"}
    stored = encrypted(text, "s", **form)
    assert not text or len(text) == 1 or text not in stored
    assert f"keyFactoryAlgorithm:{factory}" in stored and f"keyLength:{bits}" in stored and "iterations:1024" in stored
    assert config("s").passwords.readable({NAME: stored}) == {NAME: text}


def test_each_password_has_its_own_initialization_vector() -> None:
    passwords, random = config("s").passwords, SeededRandom(1)
    assert len({passwords.encrypt("the same", random) for _ in range(10)}) == 10


def test_what_the_old_secret_decrypts_is_read_and_has_to_be_encrypted_again() -> None:
    stored = {NAME: encrypted("p", "old"), "ssl.key.password": encrypted("q", "new"), "ssl.truststore.password": "in clear"}
    passwords = config("new", "old").passwords
    assert passwords.readable(stored) == {NAME: "p", "ssl.key.password": "q", "ssl.truststore.password": "in clear"}
    assert passwords.exposed(stored) == {NAME: "p", "ssl.truststore.password": "in clear"}


@pytest.mark.parametrize(
    ("secret", "stored", "reason"),
    [
        ("other", BY_KAFKA, WRONG_SECRET),
        ("", BY_KAFKA, "password.encoder.secret is not set"),
        ("encoder-secret", BY_KAFKA.replace("keyLength:128", "keyLength:127"), "is damaged"),
        ("encoder-secret", BY_KAFKA.replace("initializationVector:", "initializationVector:AAAA"), "is damaged"),
        ("encoder-secret", BY_KAFKA.replace("iterations:4096", "iterations:0"), "is damaged"),
        ("encoder-secret", BY_KAFKA.replace("AES/CBC/PKCS5Padding", "DES/CBC/PKCS5Padding"), "names another cipher than AES/CBC"),
        ("encoder-secret", BY_KAFKA.replace("SHA512", "MD5"), "names an unknown key factory"),
        ("encoder-secret", BY_KAFKA.replace("fJv2kB1Z", "fJv2kB1%"), "is damaged"),
        ("encoder-secret", BY_KAFKA.replace("fJv2kB1Z", "fJv2"), "is damaged"),
        ("encoder-secret", BY_KAFKA.replace("passwordLength:14", "passwordLength:13"), WRONG_SECRET),
    ],
)
def test_what_cannot_be_decrypted_has_no_effect_and_a_notice(secret: str, stored: str, reason: str) -> None:
    notices: list[Notice] = []
    assert config(secret).passwords.readable({NAME: stored, "log.retention.ms": "1"}, notices) == {"log.retention.ms": "1"}
    assert len(notices) == 1 and NAME in notices[0].text and reason in notices[0].text
    assert config(secret).passwords.exposed({NAME: stored}) == {}


def test_without_the_library_the_notice_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
    notices: list[Notice] = []
    assert config("encoder-secret").passwords.readable({NAME: BY_KAFKA}, notices) == {}
    assert [notice.text for notice in notices] == [f"the stored password {NAME} has no effect: {NO_LIBRARY}"]


def test_nothing_is_encrypted_without_a_secret() -> None:
    with pytest.raises(SettingError, match=r"set password\.encoder\.secret of this broker"):
        config().passwords.encrypt("p", SeededRandom(1))


def test_which_settings_are_passwords() -> None:
    names = [
        "ssl.keystore.password", "listener.name.a.ssl.keystore.key", "sasl.jaas.config", "listener.name.a.plain.sasl.jaas.config",
        "ottla.sasl.plain.users", "my.plugin.password",
        "log.retention.ms", "ssl.keystore.location", "listener.name.a.max.connections", "password.encoder.secret", "my.plugin.name",
    ]  # fmt: skip
    assert config().passwords.names(names) == names[:6]


def test_a_stored_password_is_in_force_in_clear() -> None:
    broker = config("s")
    assert broker.set_dynamic({}, {NAME: encrypted("p", "s")}) == []
    assert broker.ssl_keystore_password == "p"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("password.encoder.key.length", "64"), ("password.encoder.iterations", "1023"),
        ("password.encoder.cipher.algorithm", "DES/CBC/PKCS5Padding"), ("password.encoder.keyfactory.algorithm", "MD5"),
    ],
)  # fmt: skip
def test_a_form_that_is_not_served_refuses_the_start(name: str, value: str) -> None:
    with pytest.raises(Exception, match=name.replace(".", r"\.")):
        config("s", **{name: value})
