"""Settings of authentication: SASL mechanisms, TLS, the login between brokers, and the settings that each listener may have.

`listener.name.NAME.SETTING` is a setting for one listener, and `listener.name.NAME.MECHANISM.SETTING` for one mechanism of one listener
(NAME and MECHANISM in small letters); both take precedence over the plain setting. `LISTENER_SETTINGS` lists these settings. For
`LISTENER_LIMITS` both the limit of the listener and the limit of the broker apply.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.base.settings.jaas import PLAIN, parse_jaas
from ottla.base.settings.oauthbearer import MECHANISM as OAUTHBEARER
from ottla.base.settings.oauthbearer import OAUTHBEARER_SETTINGS
from ottla.base.settings.setting import (
    OneOf,
    SettingError,
    SomeOf,
    UpdateMode,
    at_least,
    integer,
    long,
    maybe_password,
    maybe_string,
    settings_of,
    string,
    words,
)
from ottla.base.settings.token_login import TOKEN_LOGIN_SETTINGS

LISTENER_PREFIX = "listener.name."
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
"""SASL mechanisms, by the names that they have in `sasl.enabled.mechanisms`."""
STORE_TYPES = ("PEM", "PKCS12", "JKS")
"""Values of `ssl.keystore.type` and `ssl.truststore.type`. JKS is accepted here, but reading a JKS file fails with an error that shows the
command to convert it."""
PER_BROKER = UpdateMode.PER_BROKER
PLAIN_USER_PREFIX = "ottla.sasl.plain.users."
"""Prefix of the setting of one PLAIN user; `alice = "password"` in the TOML table `[ottla.sasl.plain.users]` becomes such a setting."""
CLUSTER_PROOF = "OTTLA-CLUSTER"
"""The SASL mechanism between brokers: both prove that they know the cluster's secret (`security/cluster_identity.py`)."""


class SecuritySettings:
    """Authentication of clients and of brokers."""

    sasl_enabled_mechanisms = words(
        "sasl.enabled.mechanisms",
        ("GSSAPI",),
        "SASL mechanisms of listeners: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. Kafka's default, GSSAPI, is not supported.",
        update=PER_BROKER,
    )
    sasl_jaas_config = maybe_password(
        "sasl.jaas.config",
        "JAAS line. For PLAIN: the PlainLoginModule with an option user_NAME for the password of each user.",
        update=PER_BROKER,
    )
    java_security_auth_login_config = maybe_string(
        "java.security.auth.login.config",
        "JAAS file, also taken from KAFKA_OPTS. Section KafkaServer has users and logins, used where sasl.jaas.config "
        "is not set; section Client has the login at ZooKeeper.",
    )
    ottla_sasl_plain_users = maybe_password(
        "ottla.sasl.plain.users", "Users of PLAIN, name=password separated by blanks, instead of a JAAS line.", update=PER_BROKER
    )
    sasl_mechanism_inter_broker_protocol = string(
        "sasl.mechanism.inter.broker.protocol", CLUSTER_PROOF,
        "Mechanism with which brokers log in to each other on a SASL listener. After the login they prove that they "
        "know the cluster's secret; OTTLA-CLUSTER: only this proof. Kafka's default, GSSAPI, is not supported.",
        valid=OneOf(CLUSTER_PROOF, *MECHANISMS),
    )  # fmt: skip
    ottla_inter_broker_login = maybe_password(
        "ottla.inter.broker.login", "User and password with which this broker logs in to others, name=password, instead of a JAAS line."
    )
    connections_max_reauth_ms = long(
        "connections.max.reauth.ms",
        0,
        "Lifetime of a SASL session: a client that has not authenticated again by then is disconnected; 0: no limit.",
        valid=at_least(0),
        update=PER_BROKER,
    )
    connection_failed_authentication_delay_ms = integer(
        "connection.failed.authentication.delay.ms", 100, "Delay of the answer to a refused authentication.", valid=at_least(0)
    )
    sasl_server_max_receive_size = integer(
        "sasl.server.max.receive.size", 524288, "Maximum size of a request from a client that has not authenticated.", valid=at_least(64)
    )
    ottla_authentication_timeout_ms = integer(
        "ottla.authentication.timeout.ms", 10000, "A client that has not authenticated within this time is disconnected.", valid=at_least(1)
    )
    ottla_connections_unauthenticated_max = integer(
        "ottla.connections.unauthenticated.max",
        1000,
        "Maximum connections that are authenticating. Above it, the oldest of them is closed.",
        valid=at_least(1),
    )

    ssl_keystore_type = string(
        "ssl.keystore.type", "PEM", "Accepted without effect: PEM and PKCS12 are supported and recognised by the file's content.",
        valid=OneOf(*STORE_TYPES), update=PER_BROKER,
    )  # fmt: skip
    ssl_keystore_location = maybe_string(
        "ssl.keystore.location", "File with the private key and the certificate chain that clients are shown.", update=PER_BROKER
    )
    ssl_keystore_certificate_chain = maybe_password(
        "ssl.keystore.certificate.chain", "Certificate chain as PEM text, instead of a file.", update=PER_BROKER
    )
    ssl_keystore_key = maybe_password("ssl.keystore.key", "Private key as PEM text, instead of a file.", update=PER_BROKER)
    ssl_key_password = maybe_password("ssl.key.password", "Password of the private key; not set: ssl.keystore.password.", update=PER_BROKER)
    ssl_keystore_password = maybe_password(
        "ssl.keystore.password", "Password of the keystore, or of the private key in a PEM file.",
        update=PER_BROKER,
    )  # fmt: skip
    ssl_truststore_type = string(
        "ssl.truststore.type", "PEM", "Accepted without effect: PEM and PKCS12 are supported and recognised by the file's content.",
        valid=OneOf(*STORE_TYPES), update=PER_BROKER,
    )  # fmt: skip
    ssl_truststore_location = maybe_string(
        "ssl.truststore.location",
        "File with the certificate authorities that are trusted for clients and other brokers. The system's are not trusted.",
        update=PER_BROKER,
    )
    ssl_truststore_password = maybe_password("ssl.truststore.password", "Password of a PKCS12 truststore.", update=PER_BROKER)
    ssl_truststore_certificates = maybe_password(
        "ssl.truststore.certificates", "Trusted certificate authorities as PEM text, instead of a file.", update=PER_BROKER
    )
    ssl_client_auth = string(
        "ssl.client.auth", "none", "required: TLS clients must present a certificate. requested: they may. none: they are not asked.",
        valid=OneOf("none", "requested", "required"), update=PER_BROKER,
    )  # fmt: skip
    ssl_endpoint_identification_algorithm = string(
        "ssl.endpoint.identification.algorithm", "https",
        "https: a broker checks that another broker's certificate has the name of the host that it connects to. Empty: "
        "no check.",
        valid=OneOf("https", ""), update=PER_BROKER,
    )  # fmt: skip
    ssl_enabled_protocols = words(
        "ssl.enabled.protocols", ("TLSv1.2", "TLSv1.3"), "Versions of TLS.", valid=SomeOf("TLSv1.2", "TLSv1.3"), update=PER_BROKER
    )
    ssl_cipher_suites = words(
        "ssl.cipher.suites", (), "Cipher suites of TLS 1.2, by IANA's or OpenSSL's names. Empty: OpenSSL's defaults; suites of TLS 1.3 are "
        "always OpenSSL's choice.",
        update=PER_BROKER,
    )  # fmt: skip
    ssl_principal_mapping_rules = string(
        "ssl.principal.mapping.rules", "DEFAULT", "Rules that map the subject of a client's certificate to its principal (KIP-371)."
    )


class BrokerLogin(NamedTuple):
    """A login of brokers to each other with name and password."""

    mechanism: str
    user: str
    password: str


class TlsOptions(NamedTuple):
    """The TLS settings of a listener."""

    listener: str
    keystore: str | None
    keystore_password: str | None
    certificate_chain: str | None
    key: str | None
    key_password: str | None
    truststore: str | None
    truststore_password: str | None
    trusted: str | None
    client_auth: str
    protocols: tuple[str, ...]
    ciphers: tuple[str, ...]
    checks_host: bool
    """Whether the host name in another broker's certificate is checked when connecting to it."""


LISTENER_SETTINGS: frozenset[str] = (
    frozenset(
        {"sasl.enabled.mechanisms", "sasl.jaas.config", "ottla.sasl.plain.users", "ottla.inter.broker.login", "connections.max.reauth.ms"}
    )
    | OAUTHBEARER_SETTINGS
    | TOKEN_LOGIN_SETTINGS
    | {setting.name for setting in settings_of(SecuritySettings) if setting.name.startswith("ssl.")}
)


LISTENER_LIMITS = frozenset({"max.connections", "max.connection.creation.rate"})
"""Limits that may also be set for one listener. The broker's limit still applies to it."""


class ListenerName(NamedTuple):
    """The parts of `listener.name.NAME[.MECHANISM].SETTING`, unchanged."""

    listener: str
    mechanism: str
    setting: str


def split_listener_name(name: str) -> ListenerName | None:
    """Splits the name of a listener's setting; returns None if it is not a served one."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    listener, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    if rest in LISTENER_SETTINGS or rest in LISTENER_LIMITS:
        return ListenerName(listener, "", rest)
    mechanism, _, setting = rest.partition(".")
    if setting in LISTENER_SETTINGS and mechanism.upper() in MECHANISMS:
        return ListenerName(listener, mechanism, setting)
    return None


def is_family_name(name: str) -> bool:
    """Whether the name belongs to a setting of one listener or of one PLAIN user. The table of settings does not list such names."""
    return split_listener_name(name) is not None or (name.startswith(PLAIN_USER_PREFIX) and len(name) > len(PLAIN_USER_PREFIX))


def listener_names(listener: str, setting: str, mechanism: str = "") -> tuple[str, ...]:
    """Returns the names of a listener's setting in order of precedence."""
    names = [f"{LISTENER_PREFIX}{listener.lower()}.{setting}", setting]
    if mechanism:
        names.insert(0, f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{setting}")
    return tuple(names)


def plain_users(jaas: str | None, pairs: str | None) -> dict[str, str]:
    """Returns the PLAIN users with their passwords. Raises `SettingError`, which shows none of them."""
    users: dict[str, str] = {}
    if jaas:
        line = parse_jaas(jaas)
        if line.module != PLAIN:
            raise SettingError("sasl.jaas.config: the mechanism PLAIN needs the PlainLoginModule")
        users.update(line.users)
    for number, pair in enumerate((pairs or "").split(), 1):
        name, equals, password = pair.partition("=")
        if not name or not equals or not password:
            raise SettingError(f"ottla.sasl.plain.users: entry {number} is not name=password")
        users[name] = password
    return users


def broker_login(mechanism: str, jaas: str | None, pair: str | None) -> BrokerLogin:
    """Returns the login from `pair` (`name=password`), else from the JAAS line. Raises `SettingError`, which shows no password."""
    if pair:
        user, _, password = pair.partition("=")
    elif jaas:
        options = parse_jaas(jaas).options
        user, password = options.get("username", ""), options.get("password", "")
    else:
        user = password = ""
    if not user or not password:
        raise SettingError(
            f"sasl.mechanism.inter.broker.protocol={mechanism} needs username and password in sasl.jaas.config, or "
            "ottla.inter.broker.login=name=password"
        )
    return BrokerLogin(mechanism, user, password)
