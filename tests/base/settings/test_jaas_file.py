"""A JAAS file: its sections, the settings that they become, and the refusals, whose messages show no secret."""

from __future__ import annotations

import pytest

from ottla.base.config import ConfigError, load
from ottla.base.settings.jaas import PLAIN, SCRAM, parse_jaas
from ottla.base.settings.jaas_file import ZOOKEEPER_MODULE, listener_lines, login_config_in, parse_jaas_file, zookeeper_login
from ottla.base.settings.setting import SettingError

FILE = f"""
// users of the broker
KafkaServer {{
    {PLAIN} required
        username="admin" password="a;b{{c\\"d"   /* its own
        login */
        user_admin='a;b{{c"d' user_alice=alice-secret;
    {SCRAM} required username=admin password="other//secret";
}};
inside.KafkaServer {{ {PLAIN} required user_bob="x"; }};
Client {{
    {ZOOKEEPER_MODULE} required username="brokers" password="with:colon";
}};
KafkaClient {{ com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true keyTab=/etc/krb5.keytab; }};
"""


def test_sections_of_a_file() -> None:
    sections = parse_jaas_file(FILE)
    assert list(sections) == ["KafkaServer", "inside.KafkaServer", "Client", "KafkaClient"]
    assert [line.module for line in sections["KafkaServer"]] == [PLAIN, SCRAM]
    assert sections["KafkaClient"][0].options == {"useTicketCache": "true", "keyTab": "/etc/krb5.keytab"}
    assert zookeeper_login(sections) == "brokers:with:colon"
    lines = listener_lines(sections, "SASL_SSL")
    assert sorted(lines) == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert parse_jaas(lines["PLAIN"]).users == {"admin": 'a;b{c"d', "alice": "alice-secret"}
    assert parse_jaas(lines["SCRAM-SHA-512"]).options["password"] == "other//secret"
    assert parse_jaas(listener_lines(sections, "INSIDE")["PLAIN"]).users == {"bob": "x"}
    assert parse_jaas_file("") == {} == parse_jaas_file(" // nothing") and zookeeper_login({}) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("KafkaServer", "a section is"),
        ("{ };", "a section is"),
        ("A { }", "has to end in };"),
        ("A { }; A { };", "two sections A"),
        (f"A {{ {PLAIN} user_a=topsecret; }};", "section A: a login module is"),
        (f"A {{ {PLAIN} required user_a=topsecret }};", "end in a semicolon"),
        (f"A {{ {PLAIN} required user_a=topsecret; ", "section A: a login module is"),
        (f"A {{ {PLAIN} required user_a=", "end in a semicolon"),
        (f'A {{\n {PLAIN} required user_a="topsecret; }};', "line 2 cannot be read"),
    ],
)
def test_what_cannot_be_read_is_one_line(text: str, reason: str) -> None:
    with pytest.raises(SettingError, match=reason) as refusal:
        parse_jaas_file(text)
    assert "topsecret" not in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "client",
    [
        "", "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;", f"{ZOOKEEPER_MODULE} required username=brokers;",
        f'{ZOOKEEPER_MODULE} required username="a:b" password=topsecret;',
    ],
)  # fmt: skip
def test_a_login_at_zookeeper_that_is_not_served(client: str) -> None:
    with pytest.raises(SettingError, match=r"section Client: .*DigestLoginModule") as refusal:
        zookeeper_login(parse_jaas_file(f"Client {{ {client} }};"))
    assert "topsecret" not in str(refusal.value)


def test_a_login_module_that_is_not_served() -> None:
    sections = parse_jaas_file("KafkaServer { com.sun.security.auth.module.Krb5LoginModule required keyTab=topsecret; };")
    with pytest.raises(SettingError, match="section KafkaServer: the login module Krb5LoginModule is not served"):
        listener_lines(sections, "SASL_PLAINTEXT")


def test_options_for_a_jvm() -> None:
    assert login_config_in("-Xmx1g -Djava.security.auth.login.config=/a/jaas.conf -Dx=y") == "/a/jaas.conf"
    assert login_config_in('"-Djava.security.auth.login.config=/a" "-Djava.security.auth.login.config=/b"') == "/b"
    assert login_config_in("-Xmx1g") is None


LISTENER = (
    "listeners=SASL_PLAINTEXT://localhost:9092,INSIDE://localhost:9093\n"
    "listener.security.protocol.map=INSIDE:SASL_PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT\n"
)
CLUSTER = (
    "zookeeper.connect=zoo\nbroker.id=1\nzookeeper.set.acl=true\nsecurity.inter.broker.protocol=SASL_PLAINTEXT\n"
    "sasl.mechanism.inter.broker.protocol=PLAIN\nsasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512\n"
)


def test_a_broker_takes_the_sections_where_no_setting_says_otherwise() -> None:
    opts = {"KAFKA_OPTS": "-Djava.security.auth.login.config=/etc/jaas.conf"}
    config, notices = load(file_text=LISTENER + CLUSTER, environment=opts, read_file={"/etc/jaas.conf": FILE}.__getitem__)
    assert notices == []
    assert config.of_listeners.plain_users("SASL_PLAINTEXT") == {"admin": 'a;b{c"d', "alice": "alice-secret"}
    assert config.of_listeners.plain_users("INSIDE") == {"bob": "x"}
    login = config.of_listeners.broker_login(config.endpoints[0])
    assert login is not None and (login.user, login.password) == ("admin", 'a;b{c"d')
    assert config.ottla_zookeeper_sasl == "brokers:with:colon"
    own = f'sasl.jaas.config={PLAIN} required username="u" password="p" user_carol="y";\nottla.zookeeper.sasl=me:mine\n'
    config, _ = load(file_text=LISTENER + CLUSTER + own, environment=opts, read_file=lambda _: FILE)
    assert config.of_listeners.plain_users("INSIDE") == {"carol": "y"} and config.ottla_zookeeper_sasl == "me:mine"


def test_a_broker_by_itself_needs_no_login_at_zookeeper() -> None:
    kerberos = "Client { com.sun.security.auth.module.Krb5LoginModule required; };"
    file = "java.security.auth.login.config=jaas.conf\n"
    config, _ = load(file_text=file, read_file=lambda _: kerberos)
    assert config.ottla_zookeeper_sasl is None
    with pytest.raises(ConfigError, match=r"^java\.security\.auth\.login\.config: jaas\.conf: section Client: .* not by Krb5LoginModule$"):
        load(file_text=f"{file}zookeeper.connect=zoo\nbroker.id=1\n", read_file=lambda _: kerberos)


def test_a_file_that_cannot_be_read() -> None:
    def missing(_: str) -> str:
        raise FileNotFoundError(2, "No such file or directory")

    with pytest.raises(ConfigError, match=r"cannot read jaas\.conf: No such file or directory"):
        load(file_text="java.security.auth.login.config=jaas.conf", read_file=missing)
