"""One setting: reading its text, refusing a text, and showing the value."""

from __future__ import annotations

import pytest

from ottla.base.settings.setting import Between, OneOf, Setting, SettingError, Type, at_least

CASES = [
    (Setting("n", Type.INT, 0, "."), " 7 ", 7),
    (Setting("n", Type.INT, 0, "."), "-2147483648", -(1 << 31)),
    (Setting("n", Type.LONG, 0, "."), "+5", 5),
    (Setting("n", Type.DOUBLE, 0.0, "."), "1e3", 1000.0),
    (Setting("n", Type.BOOLEAN, False, "."), "TRUE", True),
    (Setting("n", Type.LIST, (), "."), " a , b,c ", ("a", "b", "c")),
    (Setting("n", Type.LIST, (), "."), "", ()),
    (Setting("n", Type.STRING, "", "."), " x ", "x"),
]


@pytest.mark.parametrize(("setting", "text", "value"), CASES)
def test_what_is_read(setting: Setting[object], text: str, value: object) -> None:
    assert setting.parse(text) == value
    assert setting.parse(setting.text(value)) == value


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        (Setting("n", Type.INT, 0, "."), "2147483648"),
        (Setting("n", Type.SHORT, 0, "."), "40000"),
        (Setting("n", Type.LONG, 0, "."), "9223372036854775808"),
        (Setting("n", Type.LONG, 0, "."), "9" * 5000),
        (Setting("n", Type.INT, 0, "."), "1_000"),
        (Setting("n", Type.INT, 0, "."), "\u0661"),
        (Setting("n", Type.INT, 0, "."), ""),
        (Setting("n", Type.DOUBLE, 0.0, "."), "much"),
        (Setting("n", Type.BOOLEAN, False, "."), "1"),
        (Setting("n", Type.INT, 0, ".", valid=at_least(1)), "0"),
        (Setting("n", Type.INT, 0, ".", valid=Between(1, 9, also=(-1,))), "10"),
        (Setting("n", Type.STRING, "", ".", valid=OneOf("a", "b")), "A"),
    ],
)
def test_what_is_refused(setting: Setting[object], text: str) -> None:
    with pytest.raises(SettingError, match="for configuration n: "):
        setting.parse(text)


def test_a_password_is_not_repeated() -> None:
    secret = Setting("pass.word", Type.PASSWORD, "", ".", valid=OneOf("a"))
    with pytest.raises(SettingError) as caught:
        secret.parse("hunter2")
    assert "hunter2" not in str(caught.value)
    assert secret.is_sensitive


def test_any_case_where_it_is_allowed() -> None:
    setting = Setting("n", Type.STRING, "a", ".", valid=OneOf("alpha", any_case=True))
    assert setting.parse("ALPHA") == "ALPHA"


def test_errors_name_the_range() -> None:
    assert Setting("n", Type.INT, 1, ".", valid=Between(1, 9, also=(-1,))).valid_text == "[1,...,9] or -1"
    assert Setting("n", Type.INT, 1, ".").valid_text == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"), (1.0, "1.0"), (0.0, "0.0"), (0.001, "0.001"), (9999999.0, "9999999.0"), (1e7, "1.0E7"), (12345678.5, "1.23456785E7"),
        (0.0001, "1.0E-4"), (-2.5e-7, "-2.5E-7"), (1.7976931348623157e308, "1.7976931348623157E308"), (4e16, "4.0E16"),
    ],
)  # fmt: skip
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    """Kafka's tools show the text that a broker sends, and people compare it with Kafka's."""
    setting = Setting("n", Type.DOUBLE, 0.0, ".")
    assert setting.text(value) == text
    assert setting.parse(text) == value
