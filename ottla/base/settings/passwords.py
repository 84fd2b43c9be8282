"""Passwords that are changed while brokers run. They are stored encrypted, in the format of Apache Kafka with ZooKeeper: a list of
`name:value` pairs with the encrypted text and all parameters of the decryption except the secret. Each broker encrypts and decrypts its own
passwords, so brokers may have different secrets. A stored value in clear is still read. `exposed` returns such values, and values that only
the old secret decrypts (`cluster/password_upkeep.py` encrypts both again).

PBKDF2 derives the key from the secret and from a salt. A process uses one salt for all passwords that it encrypts, so it derives one key.
Each password has its own initialization vector.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ottla.base.bounded_cache import remembered
from ottla.base.ports import Random
from ottla.base.settings.dynamic_values import is_password
from ottla.base.settings.gathering import Notice
from ottla.base.settings.setting import OneOf, Setting, SettingError, at_least, integer, maybe_password, maybe_string, string

CIPHER = "AES/CBC/PKCS5Padding"
DIGESTS = {"PBKDF2WithHmacSHA512": "sha512", "PBKDF2WithHmacSHA256": "sha256", "PBKDF2WithHmacSHA1": "sha1"}
"""Key factories by Java's names."""
DEFAULT_KEY_FACTORY = "PBKDF2WithHmacSHA512"
KEY_BITS = (128, 192, 256)
BLOCK_BYTES = 16
SALT_BYTES = 256
"""Size of the salt in bytes, as in Apache Kafka."""
KEYS_BYTES_MAX = 64 << 10
FIELDS = frozenset({
    "encryptedPassword", "initializationVector", "cipherAlgorithm", "keyFactoryAlgorithm", "iterations", "keyLength", "passwordLength",
    "salt",
})  # fmt: skip
NO_SECRET = "Password encoder secret not configured: set password.encoder.secret of this broker and start it again"
NO_LIBRARY = "passwords cannot be encrypted or decrypted without the package cryptography; install it: pip install cryptography"
WRONG_SECRET = "it was encrypted by another secret than password.encoder.secret and password.encoder.old.secret"


class _KeyLengths:
    """The key lengths of AES, in bits."""

    description = f"[{', '.join(map(str, KEY_BITS))}]"

    def __call__(self, value: Any) -> str:
        return "" if value in KEY_BITS else f"Value must be one of: {', '.join(map(str, KEY_BITS))}"


class PasswordSettings:
    """Encryption of stored passwords."""

    password_encoder_secret = maybe_password(
        "password.encoder.secret",
        "Secret for encrypting passwords that are altered while the broker runs. Without it, a broker of a cluster "
        "refuses to alter passwords.",
    )
    password_encoder_old_secret = maybe_password(
        "password.encoder.old.secret", "Former password.encoder.secret. At its start the broker encrypts the stored passwords again."
    )
    password_encoder_keyfactory_algorithm = maybe_string(
        "password.encoder.keyfactory.algorithm", "How the key is derived from the secret; not set: PBKDF2WithHmacSHA512.",
        valid=OneOf(*DIGESTS),
    )  # fmt: skip
    password_encoder_cipher_algorithm = string(
        "password.encoder.cipher.algorithm", CIPHER, "The only supported cipher of stored passwords.", valid=OneOf(CIPHER)
    )
    password_encoder_key_length = integer("password.encoder.key.length", 128, "Length of the key in bits.", valid=_KeyLengths())
    password_encoder_iterations = integer(
        "password.encoder.iterations", 4096, "Iterations of PBKDF2 when the key is derived from the secret.", valid=at_least(1024)
    )


class _Decrypted(NamedTuple):
    """A stored password in clear."""

    text: str
    is_exposed: bool
    """Whether the stored form is in clear, or encrypted by the old secret."""


class StoredPasswords:
    """The passwords among the stored settings of one broker."""

    def __init__(self, settings: PasswordSettings, table: Mapping[str, Setting[Any]]) -> None:
        self._settings = settings
        self._table = table
        self._salt = b""

    @property
    def has_secret(self) -> bool:
        return bool(self._settings.password_encoder_secret)

    def names(self, names: Iterable[str]) -> list[str]:
        """Returns the names of passwords among these settings."""
        return [name for name in names if is_password(self._table, name)]

    def encrypt(self, text: str, random: Random) -> str:
        """Returns the form to store. Raises `SettingError`."""
        settings = self._settings
        if not settings.password_encoder_secret:
            raise SettingError(NO_SECRET)
        self._salt = self._salt or random.token_bytes(SALT_BYTES)
        factory = settings.password_encoder_keyfactory_algorithm or DEFAULT_KEY_FACTORY
        bits, iterations = settings.password_encoder_key_length, settings.password_encoder_iterations
        key = _derive_key(settings.password_encoder_secret, DIGESTS[factory], self._salt, iterations, bits // 8)
        vector = random.token_bytes(BLOCK_BYTES)
        return _join({
            "encryptedPassword": _encrypt(key, vector, text.encode()), "initializationVector": vector, "cipherAlgorithm": CIPHER,
            "keyFactoryAlgorithm": factory, "iterations": iterations, "keyLength": bits, "passwordLength": _java_length(text),
            "salt": self._salt,
        })  # fmt: skip

    def readable(self, values: Mapping[str, str], notices: list[Notice] | None = None) -> dict[str, str]:
        """Returns the settings with their passwords in clear. A password that cannot be decrypted is omitted, and `notices` gets a line."""
        found = dict(values)
        for name in self.names(values):
            try:
                found[name] = self._read(values[name]).text
            except SettingError as error:
                del found[name]
                if notices is not None:
                    notices.append(Notice(True, f"the stored password {name} has no effect: {error}"))
        return found

    def exposed(self, values: Mapping[str, str]) -> dict[str, str]:
        """Returns the passwords that are stored in clear or encrypted by the old secret, in clear."""
        found = {}
        for name in self.names(values):
            try:
                text, is_exposed = self._read(values[name])
            except SettingError:
                continue
            if is_exposed:
                found[name] = text
        return found

    def _read(self, stored: str) -> _Decrypted:
        fields = _split(stored)
        if fields is None:
            return _Decrypted(stored, is_exposed=True)
        secrets = (self._settings.password_encoder_secret, self._settings.password_encoder_old_secret)
        if not any(secrets):
            raise SettingError("it is encrypted, and password.encoder.secret is not set")
        for secret in filter(None, secrets):
            if (text := _decrypted(fields, secret)) is not None:
                return _Decrypted(text, is_exposed=secret != secrets[0])
        raise SettingError(WRONG_SECRET)


def _join(fields: Mapping[str, str | int | bytes]) -> str:
    from base64 import b64encode

    return ",".join(f"{name}:{b64encode(value).decode() if isinstance(value, bytes) else value}" for name, value in fields.items())


def _split(stored: str) -> dict[str, str] | None:
    """Returns the fields of an encrypted password; None if the text is not encrypted."""
    pairs = [part.strip().partition(":") for part in stored.split(",", len(FIELDS))]
    fields = {name: value for name, _, value in pairs}
    return fields if fields.keys() == FIELDS else None


def _decrypted(fields: Mapping[str, str], secret: str) -> str | None:
    """Returns the password; None if `secret` is wrong. Raises `SettingError` for a damaged form, for an unknown cipher or key factory, and
    without the library."""
    from base64 import b64decode

    if fields["cipherAlgorithm"] != CIPHER:
        raise SettingError(f"its encrypted form names another cipher than {CIPHER}")
    if (digest := DIGESTS.get(fields["keyFactoryAlgorithm"])) is None:
        raise SettingError("its encrypted form names an unknown key factory")
    try:
        bits = int(fields["keyLength"])
        salt, vector, data = (b64decode(fields[name], validate=True) for name in ("salt", "initializationVector", "encryptedPassword"))
        iterations, length = int(fields["iterations"]), int(fields["passwordLength"])
    except ValueError:
        raise SettingError("its encrypted form is damaged") from None
    if bits not in KEY_BITS or iterations < 1 or len(vector) != BLOCK_BYTES or len(data) % BLOCK_BYTES:
        raise SettingError("its encrypted form is damaged")
    plain = _decrypt(_derive_key(secret, digest, salt, iterations, bits // 8), vector, data)
    if plain is None:
        return None
    try:
        text = plain.decode()
    except UnicodeDecodeError:
        return None
    return text if _java_length(text) == length else None


@remembered(KEYS_BYTES_MAX)
def _derive_key(secret: str, digest: str, salt: bytes, iterations: int, length: int) -> bytes:
    from hashlib import pbkdf2_hmac

    return pbkdf2_hmac(digest, secret.encode(), salt, iterations, length)


def _encrypt(key: bytes, vector: bytes, data: bytes) -> bytes:
    padding = BLOCK_BYTES - len(data) % BLOCK_BYTES
    encryptor = _cipher(key, vector).encryptor()
    return bytes(encryptor.update(data + bytes([padding]) * padding) + encryptor.finalize())


def _decrypt(key: bytes, vector: bytes, data: bytes) -> bytes | None:
    """Returns the decrypted data; None if the padding shows that the key is wrong. Raises `SettingError` without the library."""
    decryptor = _cipher(key, vector).decryptor()
    padded = bytes(decryptor.update(data) + decryptor.finalize())
    padding = padded[-1] if padded else 0
    if not 1 <= padding <= BLOCK_BYTES or padded[-padding:] != bytes([padding]) * padding:
        return None
    return padded[:-padding]


def _cipher(key: bytes, vector: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    except ModuleNotFoundError:
        raise SettingError(NO_LIBRARY) from None
    return Cipher(algorithms.AES(key), modes.CBC(vector))


def _java_length(text: str) -> int:
    """Returns the length in UTF-16 units, as Java counts it."""
    return len(text.encode("utf-16-le")) // 2
