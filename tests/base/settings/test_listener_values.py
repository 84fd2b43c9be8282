"""Settings of a SASL listener: those that it needs, those of one listener, which win over those of all, and those that can change while the
broker runs."""

from __future__ import annotations

import pytest

from ottla.base.config import BrokerConfig, ConfigError, Endpoint, load
from ottla.base.settings.jaas import PLAIN
from ottla.base.settings.jaas import SCRAM as SCRAM_MODULE

LISTENERS = "listeners=SASL_PLAINTEXT://:1,OTHER://:2\nlistener.security.protocol.map=OTHER:SASL_PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT\n"
SCRAM = "sasl.enabled.mechanisms=SCRAM-SHA-256\n"


def config(text: str) -> BrokerConfig:
    return load(file_text=LISTENERS + text, file_name="f")[0]


def test_a_listeners_own_setting_comes_first() -> None:
    made = config(f"{SCRAM}connections.max.reauth.ms=9\nlistener.name.other.connections.max.reauth.ms=8\n"
                  "listener.name.other.scram-sha-256.connections.max.reauth.ms=7\n")  # fmt: skip
    values = made.of_listeners

    def reauth(listener: str, mechanism: str) -> int:
        return int(values.value(listener, "connections.max.reauth.ms", mechanism))

    assert (reauth("SASL_PLAINTEXT", "PLAIN"), reauth("OTHER", "PLAIN"), reauth("OTHER", "SCRAM-SHA-256")) == (9, 8, 7)
    made.set_dynamic({"connections.max.reauth.ms": "6"}, {"listener.name.other.connections.max.reauth.ms": "5"})
    assert (reauth("SASL_PLAINTEXT", "PLAIN"), reauth("OTHER", "PLAIN"), reauth("OTHER", "SCRAM-SHA-256")) == (6, 5, 7)


def test_limits_of_one_listener_stand_beside_the_brokers() -> None:
    made = config(f"{SCRAM}max.connections=9\nlistener.name.other.max.connections=3\n")
    values, name = made.of_listeners, "max.connections"
    assert (values.limit("SASL_PLAINTEXT", name), values.limit("OTHER", name), made.max_connections) == (None, 3, 9)
    assert not values.has_connection_rates(made.endpoints)
    made.set_dynamic({"listener.name.other.max.connections": "4", "listener.name.other.max.connection.creation.rate": "7"}, {})
    assert values.limit("OTHER", name) == 4 and values.connection_rates(made.endpoints) == {"OTHER": 7}
    assert values.has_connection_rates(made.endpoints)
    with pytest.raises(ConfigError, match=r"creation\.rate"):
        config(f"{SCRAM}listener.name.other.max.connection.creation.rate=0\n")


def test_mechanisms_are_those_of_sasl_listeners_only() -> None:
    made = config(f"{SCRAM}listener.name.other.sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256\n")
    assert made.of_listeners.mechanisms(made.endpoints[0]) == ("SCRAM-SHA-256",)
    assert made.of_listeners.mechanisms(made.endpoints[1]) == ("SCRAM-SHA-512", "SCRAM-SHA-256")
    assert made.of_listeners.mechanisms(Endpoint("PLAINTEXT", "", 1)) == ()


def test_users_of_plain_from_every_form() -> None:
    made = config(f"sasl.enabled.mechanisms=PLAIN\nottla.sasl.plain.users=a=1\nottla.sasl.plain.users.b=2 3\n"
                  f"listener.name.other.plain.sasl.jaas.config={PLAIN} required user_c=4;\n")  # fmt: skip
    assert made.of_listeners.plain_users("SASL_PLAINTEXT") == {"a": "1", "b": "2 3"}
    assert made.of_listeners.plain_users("OTHER") == {"a": "1", "b": "2 3", "c": "4"}
    text = 'listeners = "SASL_PLAINTEXT://:1"\n[sasl.enabled]\nmechanisms = "PLAIN"\n[ottla.sasl.plain.users]\nalice = "x y"\n'
    assert load(file_text=text, file_name="f.toml")[0].of_listeners.plain_users("SASL_PLAINTEXT") == {"alice": "x y"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "names GSSAPI"),
        ("sasl.enabled.mechanisms=", "names nothing"),
        ("sasl.enabled.mechanisms=PLAIN", "has no users"),
        (f"sasl.enabled.mechanisms=PLAIN\nsasl.jaas.config={PLAIN} required user_a=topsecret", "semicolon"),
        (f"{SCRAM}listener.name.absent.sasl.enabled.mechanisms=PLAIN", "no listener ABSENT"),
        (f"{SCRAM}listener.name.other.connections.max.reauth.ms=soon", "reauth"),
        (f"{SCRAM}listener.name.other.gssapi.sasl.jaas.config=x required;", "not served"),
        (f"{SCRAM}listener.name.other.plain.sasl.server.callback.handler.class=org.example.Ours", "not served"),
    ],
)
def test_a_listener_that_lacks_something_stops_the_start(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refusal:
        config(text)
    assert "topsecret" not in str(refusal.value) and "\n" not in str(refusal.value)


def test_an_invalid_value_of_a_listener_stops_the_start_wherever_it_is() -> None:
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    text = (
        "sasl.enabled.mechanisms=OAUTHBEARER\n"
        f"listener.name.other.oauthbearer.sasl.server.callback.handler.class={handler}\n"
        "listener.name.other.oauthbearer.sasl.oauthbearer.clock.skew.seconds=abc\n"
    )
    with pytest.raises(ConfigError, match=r"abc .*clock\.skew\.seconds"):
        config(text)


def test_users_change_while_the_broker_runs() -> None:
    before = config("sasl.enabled.mechanisms=PLAIN\nottla.sasl.plain.users.a=1")
    changed = before.take_over(config("sasl.enabled.mechanisms=PLAIN\nottla.sasl.plain.users.b=2"))
    assert before.of_listeners.plain_users("OTHER") == {"b": "2"}
    assert changed == {"ottla.sasl.plain.users.a", "ottla.sasl.plain.users.b"}


BROKERS = "zookeeper.connect=z:2181\nbroker.id=1\nlisteners=SASL_SSL://:1,PLAINTEXT://:2\nsasl.enabled.mechanisms=SCRAM-SHA-256\n"
BY_SASL = f"{BROKERS}security.inter.broker.protocol=SASL_SSL\nssl.truststore.location=ca.pem\n"
LOGIN = "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256\n"


@pytest.mark.parametrize(
    ("text", "user"),
    [
        (BROKERS, None),
        (BY_SASL, None),
        (f"{BY_SASL}{LOGIN}ottla.inter.broker.login=broker=a=b", ("SCRAM-SHA-256", "broker", "a=b")),
        (
            f'{BY_SASL}{LOGIN}listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config={SCRAM_MODULE} required username="x" password="y";',
            ("SCRAM-SHA-256", "x", "y"),
        ),
    ],
)
def test_as_whom_brokers_log_in(text: str, user: tuple[str, str, str] | None) -> None:
    made = load(file_text=text, file_name="f")[0]
    endpoint = next(one for one in made.endpoints if one.name == made.inter_broker_listener)
    assert made.of_listeners.broker_login(endpoint) == user


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{BROKERS}security.inter.broker.protocol=SASL_SSL", "listener SASL_SSL: .* need ssl.truststore.location"),
        (f"{BROKERS}security.inter.broker.protocol=SSL", "no listener has the protocol SSL"),
        (f"{BROKERS}security.inter.broker.protocol=TLS", "security.inter.broker.protocol"),
        (f"{BROKERS}inter.broker.listener.name=SSL", "SSL is not one of the listeners"),
        (f"{BY_SASL}inter.broker.listener.name=SASL_SSL", "Only one of"),
        (f"{BY_SASL}{LOGIN}", "username and password in sasl.jaas.config"),
        (f"{BY_SASL}{LOGIN}ottla.inter.broker.login=topsecret", "username and password in sasl.jaas.config"),
        (f"{BY_SASL}sasl.mechanism.inter.broker.protocol=GSSAPI", "GSSAPI"),
        (f"{BY_SASL}sasl.mechanism.inter.broker.protocol=OAUTHBEARER\nottla.inter.broker.login=a=topsecret", "OAUTHBEARER"),
        (f"{BY_SASL}sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512\nottla.inter.broker.login=broker=topsecret",
         "SCRAM-SHA-512 is not in sasl.enabled.mechanisms"),
    ],
)  # fmt: skip
def test_brokers_that_could_not_reach_each_other_do_not_start(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refusal:
        load(file_text=text, file_name="f")
    assert "topsecret" not in str(refusal.value) and "\n" not in str(refusal.value)
