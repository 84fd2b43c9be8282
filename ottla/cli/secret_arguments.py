"""Warns of passwords in `KEY=VALUE` arguments: all users of the machine see them in the list of processes, and shells store them.

Such arguments are accepted, because commands in Kafka's documentation contain them. The warning names a safe way to give the password.
"""

from __future__ import annotations

import argparse
import sys

from ottla.cli.command import UsageError, parse_pairs

SECRET = ("password", "jaas", "secret", "token", "ssl.keystore.key", "ssl.key.pem")
"""Words in the names of client properties with a secret value."""
NO_SECRET = (".location", ".url", ".type", ".class", ".file", ".ms")
"""Suffixes of names that contain a word of `SECRET`, but have no secret value."""
CREDENTIALS = "SCRAM-SHA-"
"""Prefix of the settings that set a user's password in `config alter`, as in Kafka's tool."""
WAYS = {
    "properties": ("-X", "--command-config FILE"),
    "property_lists": ("--command-property", "--command-config FILE"),
    "pairs": ("an argument", "--command-config FILE"),
    "add_config": ("--add-config", "--add-config-file FILE, or `ottla user add` for a user's password"),
}
"""Attributes with `key=value` texts. For each: the option that sets it, and the option to use instead."""


def warn_of_secrets(args: argparse.Namespace) -> None:
    """Writes one line to stderr for each option whose value contains a secret."""
    for attribute, (option, way) in WAYS.items():
        given = getattr(args, attribute, None) or []
        texts = [text for part in given for text in ([part] if isinstance(part, str) else part)]
        try:
            names = sorted(filter(is_secret, parse_pairs(texts, option)))
        except UsageError:
            continue  # the command itself reports this error
        if names:
            shown = ", ".join(names)
            sys.stderr.write(f"warning: the list of processes shows {shown} to everybody on this machine; use {way} instead of {option}\n")


def is_secret(name: str) -> bool:
    return name.startswith(CREDENTIALS) or (any(word in name for word in SECRET) and not name.endswith(NO_SECRET))
