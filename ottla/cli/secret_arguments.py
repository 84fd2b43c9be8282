"""Warns of passwords in arguments: the list of processes shows arguments to everybody on the machine, and shells remember them.

They are accepted all the same, because commands of Kafka's documentation contain them. Each option has another way to give a password.
"""

from __future__ import annotations

import argparse
import sys

from ottla.cli.command import UsageError, parse_pairs

SECRET = ("password", "jaas", "secret", "token", "ssl.keystore.key", "ssl.key.pem")
"""Words in the names of client properties whose values are not shown."""
NO_SECRET = (".location", ".url", ".type", ".class", ".file", ".ms")
"""Endings of names that contain such a word, and have no secret as their value."""
CREDENTIALS = "SCRAM-SHA-"
"""Prefix of the settings that set a user's password, as in Kafka's tool."""
WAYS = {
    "properties": ("-X", "--command-config FILE"),
    "property_lists": ("--command-property", "--command-config FILE"),
    "pairs": ("an argument", "--command-config FILE"),
    "add_config": ("--add-config", "--add-config-file FILE, or `ottla user add` for a user's password"),
}
"""By the attribute that holds `key=value` texts: the option, and the way that keeps the value secret."""


def warn_of_secrets(args: argparse.Namespace) -> None:
    """Writes one line to stderr for each option that holds passwords."""
    for attribute, (option, way) in WAYS.items():
        given = getattr(args, attribute, None) or []
        texts = [text for part in given for text in ([part] if isinstance(part, str) else part)]
        try:
            names = sorted(filter(is_secret, parse_pairs(texts, option)))
        except UsageError:
            continue  # the command says what is wrong
        if names:
            shown = ", ".join(names)
            sys.stderr.write(f"warning: the list of processes shows {shown} to everybody on this machine; use {way} instead of {option}\n")


def is_secret(name: str) -> bool:
    return name.startswith(CREDENTIALS) or (any(word in name for word in SECRET) and not name.endswith(NO_SECRET))
