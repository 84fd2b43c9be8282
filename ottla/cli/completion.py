"""`ottla completion SHELL`: prints a script that lets the shell complete commands, options, topics and groups.

The script calls `ottla complete-words ...`. If that prints nothing, bash, zsh and fish complete file names. Topics and groups are requested
from the brokers that the command itself would use, for at most `DEADLINE_S` seconds. Errors are hidden, because a message would break the
user's command line.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Iterable, Sequence
from typing import Any

from ottla.cli.command import Args, Command, command, option
from ottla.cli.command_groups import GROUPS, canonical, find_command, load_commands
from ottla.cli.output import write

DEADLINE_S = 0.3

TOPIC_OPTIONS = ("--topic", "-t", "--include")
GROUP_OPTIONS = ("--group", "-g", "--to-group", "--share-group")

OVERALL = ("--help", "--help-json", "--version")

SCRIPTS = {
    "bash": """\
# ottla completion bash >> ~/.bashrc
_ottla() {
  local IFS=$'\\n'
  COMPREPLY=($(ottla complete-words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _ottla ottla
""",
    "zsh": """\
# ottla completion zsh >> ~/.zshrc
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
_ottla() {
  local -a found
  found=(${(f)"$(ottla complete-words "${(@Q)words[2,CURRENT]}" 2>/dev/null)"})
  if (( $#found )); then compadd -a found; else _files; fi
}
compdef _ottla ottla
""",
    "fish": """\
# ottla completion fish > ~/.config/fish/completions/ottla.fish
function __ottla_complete
  set -l found (ottla complete-words (commandline -opc)[2..] (commandline -ct) 2>/dev/null)
  if test (count $found) -gt 0; printf '%s\\n' $found; else; __fish_complete_path (commandline -ct); end
end
complete -c ottla -f -a '(__ottla_complete)'
""",
    "powershell": """\
# ottla completion powershell >> $PROFILE
Register-ArgumentCompleter -Native -CommandName ottla -ScriptBlock {
  param($word, $line, $position)
  $words = @($line.CommandElements | Select-Object -Skip 1 | ForEach-Object { "$_" })
  if (-not $word) { $words += '' }
  ottla complete-words @words 2>$null | ForEach-Object { [System.Management.Automation.CompletionResult]::new($_) }
}
""",
}


@command(
    "completion",
    "A script that lets your shell complete commands, topics and groups.",
    option("shell", choices=tuple(SCRIPTS), help="|".join(SCRIPTS)),
    has_connection=False,
    has_output=False,
)
def _run(args: Args) -> None:
    write(SCRIPTS[args.shell])


def complete(words: Sequence[str]) -> int:
    """Prints the candidates for the last word, one per line."""
    for found in candidates(list(words) or [""]):
        write(found + "\n")
    return 0


def candidates(words: list[str]) -> list[str]:
    """Returns the words that begin with the last word and are valid after the other words."""
    from ottla.cli.parser import BY_NAME, length_of_leading

    last = words[-1]
    start = length_of_leading(words[:-1])
    if start >= len(words):  # the last word is the value of a global option
        return _beginning(last, BY_NAME[words[-2]].settings.get("choices", ()))
    if start == len(words) - 1:
        return _beginning(last, (*OVERALL, *BY_NAME) if last.startswith("-") else GROUPS)
    return _candidates_of_command(canonical(words[start:]), last, words)


def _candidates_of_command(words: list[str], last: str, line: list[str]) -> list[str]:
    """Returns candidates for the last word. `words` begins with the command. `line` also has the options before it, such as `-b`."""
    found = _command_of(words)
    if found is None:
        return []
    if isinstance(found, list):
        return _beginning(last, found) if len(words) == 2 else []
    program, command = found
    from ottla.cli.parser import build_parser

    actions = build_parser(program, command)._actions
    option = next((action for action in actions if words[-2] in action.option_strings and action.nargs != 0), None)
    if option is not None:
        return _beginning(last, option.choices) if option.choices else _names(line, last, words[-2])
    if last.startswith("-"):
        return _beginning(last, [name for action in actions for name in action.option_strings if action.help != argparse.SUPPRESS])
    return _positional(line, last, actions)


def _beginning(start: str, names: Iterable[str]) -> list[str]:
    return sorted(str(name) for name in names if str(name).startswith(start))


def _command_of(words: list[str]) -> tuple[str, Command] | list[str] | None:
    """Returns the program name and command of the words. Returns the verbs of the group while the verb is the last word; else None."""
    if words[0] not in GROUPS:
        return None
    if len(words) == 2 and words[0] not in (commands := load_commands(words[0])):
        return list(commands)
    found = find_command(words)
    return found and (" ".join(["ottla", *words[: found[1]]]), found[0])


def _positional(words: list[str], last: str, actions: list[argparse.Action]) -> list[str]:
    """Returns candidates for a positional argument: choices, topics or groups."""
    for action in actions:
        if action.option_strings:
            continue
        if action.choices:
            return _beginning(last, action.choices)
        name = f"{action.dest} {action.metavar or ''}".lower()
        if "topic" in name or "group" in name:
            return _names(words, last, "--group" if "group" in name else "--topic")
    return []


def _names(words: list[str], last: str, option: str) -> list[str]:
    """Asks the broker for topics or groups. Ends the process without output if the broker does not answer in time."""
    if option not in TOPIC_OPTIONS + GROUP_OPTIONS:
        return []
    if hasattr(signal, "setitimer"):
        # A timer ends the process even during a blocking name lookup. Nothing has been printed yet.
        signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
        signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)
    try:
        if option not in GROUP_OPTIONS:
            return _beginning(last, _query(words, None))
        return _beginning(last, _query(words, ["share"] if "share-group" in (*words, option.lstrip("-")) else []))
    finally:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)


def _query(words: list[str], group_types: list[str] | None) -> list[str]:
    """Asks the broker for groups of these types (an empty list means all types), or for topics if `group_types` is None."""
    from ottla.base.errors import OttlaError
    from ottla.cli.command import Refused, UsageError, add_options
    from ottla.cli.options import connect
    from ottla.cli.parser import CONNECTION

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    add_options(parser, CONNECTION)
    try:
        args: Any = parser.parse_known_args(words[:-1])[0]
        with connect(args, timeout_ms=int(DEADLINE_S * 1000)) as cluster:
            if group_types is not None:
                from ottla.client.core import group_admin

                return [found.group_id for found in group_admin.list_groups(cluster, types=group_types)]
            return cluster.topic_names()
    except (OttlaError, UsageError, Refused, argparse.ArgumentError, SystemExit):
        return []
