"""Which topics does a subscription's regular expression match?

The language is RE2's, as Kafka reads it: literals and `\\Q...\\E`, `.`, classes with ranges, `[[:alpha:]]`, `\\d \\w \\s`, `\\pL`, groups
with names and flags, `|`, `* + ? {m,n}`, lazy forms, `^ $ \\A \\z \\b \\B`. The whole name must match. A pattern becomes a small program
that is run over a name with all its threads at once, so the time is bounded by length of program times length of name: a pattern that would
make a backtracking matcher run for years (`(a+)+$`) is as cheap as any other. That is why Python's own `re` is not used: the pattern comes
from a stranger, and the loop waits for the answer.

A name has no line ends, so the flags `m s U` change nothing, and it is ASCII, so of Unicode's classes only that part is known. Left out,
and refused as RE2 refuses it: back references and look-around. Refused besides: scripts other than Latin and Common, flags that something
repeats.
"""

from __future__ import annotations

from dataclasses import dataclass
from unicodedata import category

PATTERN_LENGTH_MAX = 512
PROGRAM_LENGTH_MAX = 5_000
REPEAT_MAX = 1_000
MOVES_MAX = 1_000

Ranges = tuple[tuple[int, int], ...]
ANY: Ranges = ((0, 9), (11, 0x10FFFF))  # all but the line feed
LOWER: Ranges = ((97, 122),)
UPPER: Ranges = ((65, 90),)
DIGIT: Ranges = ((48, 57),)
WORD: Ranges = (*DIGIT, *UPPER, (95, 95), *LOWER)
ESCAPES: dict[str, Ranges] = {"d": DIGIT, "w": WORD, "s": ((9, 10), (12, 13), (32, 32))}
POSIX: dict[str, Ranges] = {
    "alnum": (*DIGIT, *UPPER, *LOWER),
    "alpha": (*UPPER, *LOWER),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": DIGIT,
    "graph": ((33, 126),),
    "lower": LOWER,
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": UPPER,
    "word": WORD,
    "xdigit": (*DIGIT, (65, 70), (97, 102)),
}
KINDS = {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
CATEGORIES = frozenset(major + minor for major, minors in KINDS.items() for minor in ("", *minors))
CONTROLS = {"t": 9, "n": 10, "r": 13, "f": 12, "v": 11, "a": 7}
FLAGS = "imsU"


class PatternError(ValueError):
    """The text is no regular expression of the language above."""


@dataclass(frozen=True, slots=True)
class Letter:
    """Consumes one character of these ranges."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Split:
    """Goes on at both places."""

    first: int
    second: int


@dataclass(frozen=True, slots=True)
class Assertion:
    """Goes on only at the start (`^`) or the end (`$`) of the name, between a word and what is none (`b`), or anywhere else (`B`)."""

    kind: str

    def holds(self, name: str, position: int) -> bool:
        if self.kind == "^":
            return position == 0
        if self.kind == "$":
            return position == len(name)
        return (_is_word(name[position - 1 : position]) != _is_word(name[position : position + 1])) == (self.kind == "b")


Instruction = Letter | Split | Assertion
Program = list[Instruction]


class TopicRegex:
    """A compiled pattern; PatternError when it is none."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise PatternError(f"a pattern of {len(pattern)} characters is longer than {PATTERN_LENGTH_MAX}")
        self.pattern = pattern
        self._program = _Parser(pattern).parse()
        # What was found once is known: sets of states, by number, and which follows which. Assertions depend on more than the next letter.
        self._has_assertions = any(isinstance(instruction, Assertion) for instruction in self._program)
        self._sets: list[tuple[int, ...]] = []
        self._moves: list[dict[str, int]] = []
        self._moves_left = MOVES_MAX
        self._number_of(() if self._has_assertions else tuple(self._follow([0], "", 0)))

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        if self._has_assertions:
            return self._run(name)
        number = 0
        for character in name:
            following = self._moves[number].get(character)
            if following is None:
                if not self._moves_left:
                    return self._run(name)
                following = self._learn(number, character)
            number = following
        return len(self._program) in self._sets[number]

    def _learn(self, number: int, character: str) -> int:
        code = ord(character)
        moved = [state + 1 for state in self._sets[number] if self._accepts(state, code)]
        following = self._number_of(tuple(sorted(self._follow(moved, "", 0))))
        self._moves[number][character] = following
        self._moves_left -= 1
        return following

    def _number_of(self, states: tuple[int, ...]) -> int:
        if states not in self._sets:
            self._sets.append(states)
            self._moves.append({})
        return self._sets.index(states)

    def _run(self, name: str) -> bool:
        states = self._follow([0], name, 0)
        for position, character in enumerate(name):
            code = ord(character)
            moved = [state + 1 for state in states if self._accepts(state, code)]
            if not moved:
                return False
            states = self._follow(moved, name, position + 1)
        return len(self._program) in states

    def _accepts(self, state: int, code: int) -> bool:
        if state == len(self._program):
            return False
        instruction = self._program[state]
        assert isinstance(instruction, Letter)
        return any(low <= code <= high for low, high in instruction.ranges)

    def _follow(self, starts: list[int], name: str, position: int) -> dict[int, None]:
        """The states, among letters and the end, that are reached from `starts` without consuming anything."""
        program, found = self._program, dict[int, None]()
        seen: dict[int, None] = {}
        stack = list(starts)
        while stack:
            state = stack.pop()
            if state in seen:
                continue
            seen[state] = None
            instruction = program[state] if state < len(program) else None
            if isinstance(instruction, Split):
                stack += (instruction.second, instruction.first)
            elif isinstance(instruction, Assertion):
                if instruction.holds(name, position):
                    stack.append(state + 1)
            else:
                found[state] = None
        return found


class _Parser:
    """Recursive descent; each part answers a program whose targets count from its own start."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._is_case_blind = False
        self._names: dict[str, None] = {}

    def parse(self) -> Program:
        program = self._alternatives()
        if self._at < len(self._text):
            raise PatternError(f"unexpected {self._text[self._at]!r} at {self._at}")
        return program

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self, expected: str) -> bool:
        if self._text.startswith(expected, self._at):
            self._at += len(expected)
            return True
        return False

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise PatternError("the pattern ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _alternatives(self) -> Program:
        program = self._sequence()
        while self._take("|"):
            program = _either(program, self._sequence())
        return program

    def _sequence(self) -> Program:
        program: Program = []
        while (character := self._peek()) and character not in "|)":
            program = _join(program, self._repeated())
        return program

    def _repeated(self) -> Program:
        at = self._at
        program = self._atom()
        counts = self._counts()
        if counts is None:
            return program
        if not program or self._text[at] == "{":
            raise PatternError(f"nothing that may be repeated at {at}")
        self._take("?")  # a lazy form matches the same names
        if self._counts() is not None:
            raise PatternError(f"a repetition is repeated at {self._at}")
        return _repeat(program, *counts)

    def _counts(self) -> tuple[int, int | None] | None:
        """How often: at least, and at most (None: any number). None if no repetition stands here: then a brace is a letter."""
        start, character = self._at, self._peek()
        if character and character in "*+?":
            self._at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[character]
        end = self._text.find("}", start)
        if character != "{" or end < 0:
            return None
        low, comma, high = self._text[start + 1 : end].partition(",")
        if not _is_count(low) or not (high == "" or _is_count(high)):
            return None
        self._at = end + 1
        least, most = int(low), int(high) if high else None if comma else int(low)
        if least > REPEAT_MAX or (most is not None and (most > REPEAT_MAX or most < least)):
            raise PatternError(f"a repetition that is too large or upside down at {start}")
        return least, most

    def _atom(self) -> Program:
        at, character = self._at, self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return [Letter(self._class())]
        if character == ".":
            return [Letter(ANY)]
        if character in "^$":
            return [Assertion(character)]
        if character == "\\":
            return self._escaped()
        self._at = at
        if self._counts() is not None:
            raise PatternError(f"nothing to repeat at {at}")
        self._at = at + 1
        return [self._letter(ord(character))]

    def _letter(self, code: int) -> Letter:
        return Letter(self._cased(((code, code),)))

    def _group(self) -> Program:
        self._depth += 1
        if self._depth > 100:
            raise PatternError("groups are nested too deeply")
        was_case_blind = self._is_case_blind
        if self._take("?"):
            if self._take("P<") or self._take("<"):
                self._name()
            elif not self._flags():
                self._depth -= 1
                return []  # for the rest of the group in which they stand
        program = self._alternatives()
        if not self._take(")"):
            raise PatternError("a group without an end")
        self._depth -= 1
        self._is_case_blind = was_case_blind
        # A group that is empty may be repeated, unlike nothing at all.
        return program or [_jump(1)]

    def _name(self) -> None:
        end = self._text.find(">", self._at)
        name = self._text[self._at : max(end, self._at)]
        if not name or not all(_is_word(letter) for letter in name) or name in self._names:
            raise PatternError(f"a group's name at {self._at} is missing, wrong or taken")
        self._names[name] = None
        self._at = end + 1

    def _flags(self) -> bool:
        """`i`, `-i`, `i-s` ... up to `:` or `)`; whether a group follows."""
        is_on, has_flag = True, False
        while (character := self._next()) not in ":)":
            if character == "-" and is_on:
                is_on, has_flag = False, False
            elif character in FLAGS:
                has_flag = True
                self._is_case_blind = is_on if character == "i" else self._is_case_blind
            else:
                raise PatternError(f"an unknown kind of group at {self._at}")
        if not (is_on or has_flag):
            raise PatternError(f"no flag to take away at {self._at}")
        return character == ":"

    def _escaped(self) -> Program:
        character = self._next()
        if character in "Azb" or character == "B":
            return [Assertion({"A": "^", "z": "$"}.get(character, character))]
        if character == "Q":
            return self._quoted()
        found = self._escaped_class(character)
        return [Letter(self._cased(found))] if found is not None else [self._letter(self._escaped_code(character))]

    def _quoted(self) -> Program:
        """Up to `\\E` every character stands for itself; what is repeated behind it is the last one."""
        end = self._text.find("\\E", self._at)
        text = self._text[self._at :] if end < 0 else self._text[self._at : end]
        self._at = len(self._text) if end < 0 else end + 2
        program: Program = [self._letter(ord(character)) for character in text]
        counts = self._counts() if program else None
        if counts is None:
            return program
        self._take("?")
        if self._counts() is not None:
            raise PatternError(f"a repetition is repeated at {self._at}")
        return _join(program[:-1], _repeat(program[-1:], *counts))

    def _escaped_class(self, character: str) -> Ranges | None:
        """`\\d`, `\\pL` and their like; None if the character names no class."""
        if character in ESCAPES:
            return ESCAPES[character]
        if character.lower() in ESCAPES:
            return _invert(ESCAPES[character.lower()])
        return self._unicode(is_inverted=character == "P") if character in "pP" else None

    def _unicode(self, *, is_inverted: bool) -> Ranges:
        name = self._next()
        if name == "{":
            end = self._text.find("}", self._at)
            name, self._at = self._text[self._at : max(end, self._at)], end + 1
            if end < 0:
                raise PatternError("a class without an end")
        if name.startswith("^"):
            name, is_inverted = name[1:], not is_inverted
        if name == "Any":
            found: Ranges = ((0, 0x10FFFF),)
        elif name in ("Latin", "Common"):
            found = POSIX["alpha"] if name == "Latin" else _invert(POSIX["alpha"])
        elif name in CATEGORIES:
            found = tuple((code, code) for code in range(128) if category(chr(code)).startswith(name))
        else:
            raise PatternError(f"unknown class {name}")
        return _invert(found) if is_inverted else found

    def _escaped_code(self, character: str) -> int:
        if character in CONTROLS:
            return CONTROLS[character]
        if character == "x":
            return self._hexadecimal()
        if character in "01234567" and (character == "0" or (self._peek() and self._peek() in "01234567")):
            digits = character
            while len(digits) < 3 and self._peek() and self._peek() in "01234567":
                digits += self._next()
            return int(digits, 8)
        if ord(character) > 127 or character.isalnum():
            raise PatternError(f"unknown escape \\{character}")
        return ord(character)

    def _hexadecimal(self) -> int:
        digits = self._next()
        if digits == "{":
            end = self._text.find("}", self._at)
            digits, self._at = self._text[self._at : max(end, self._at)], end + 1
        else:
            digits += self._next()
        if not digits or any(digit not in "0123456789abcdefABCDEF" for digit in digits) or int(digits, 16) > 0x10FFFF:
            raise PatternError(f"no number of a character: {digits!r}")
        return int(digits, 16)

    def _class(self) -> Ranges:
        is_inverted = self._take("^")
        ranges: list[tuple[int, int]] = []
        is_first = True
        while is_first or not self._take("]"):
            is_first = False
            ranges += self._posix() or self._class_part()
        found = self._cased(tuple(ranges))
        return _invert(found) if is_inverted else found

    def _posix(self) -> Ranges:
        """`[:alpha:]` and its like; nothing if none stands here."""
        end = self._text.find(":]", self._at + 2) if self._text.startswith("[:", self._at) else -1
        if end < 0:
            return ()
        name = self._text[self._at + 2 : end]
        if name.removeprefix("^") not in POSIX:
            raise PatternError(f"unknown class {name}")
        self._at = end + 2
        return _invert(POSIX[name[1:]]) if name.startswith("^") else POSIX[name]

    def _class_part(self) -> Ranges:
        character = self._next()
        if character == "\\":
            escape = self._next()
            found = self._escaped_class(escape)
            if found is not None:
                return found
            low = self._escaped_code(escape)
        else:
            low = ord(character)
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in ("]", ""):
            return ((low, low),)
        self._at += 1
        end = self._next()
        high = self._escaped_code(self._next()) if end == "\\" else ord(end)
        if high < low:
            raise PatternError(f"a range upside down in a class at {self._at}")
        return ((low, high),)

    def _cased(self, ranges: Ranges) -> Ranges:
        if not self._is_case_blind:
            return ranges
        both = list(ranges)
        for low, high in ranges:
            for start, end, shift in ((65, 90, 32), (97, 122, -32)):
                first, last = max(low, start), min(high, end)
                if first <= last:
                    both.append((first + shift, last + shift))
        return tuple(both)


def _is_word(letter: str) -> bool:
    return letter != "" and any(low <= ord(letter) <= high for low, high in WORD)


def _is_count(text: str) -> bool:
    """A number without a leading zero."""
    return text.isascii() and text.isdigit() and (text == "0" or text[0] != "0")


def _invert(ranges: Ranges) -> Ranges:
    inverted, start = [], 0
    for low, high in sorted(ranges):
        if low > start:
            inverted.append((start, low - 1))
        start = max(start, high + 1)
    inverted.append((start, 0x10FFFF))
    return tuple(inverted)


# Programs are joined by moving the targets of their splits.


def _moved(program: Program, by: int) -> Program:
    return [Split(part.first + by, part.second + by) if isinstance(part, Split) else part for part in program]


def _join(first: Program, second: Program) -> Program:
    if len(first) + len(second) > PROGRAM_LENGTH_MAX:
        raise PatternError("the pattern is too large")
    return first + _moved(second, len(first))


def _jump(to: int) -> Split:
    return Split(to, to)


def _either(first: Program, second: Program) -> Program:
    start = _join([Split(1, len(first) + 2)], first)
    start.append(_jump(len(first) + 2 + len(second)))
    return _join(start, second)


def _repeat(program: Program, low: int, high: int | None) -> Program:
    repeated: Program = []
    for _ in range(low):
        repeated = _join(repeated, program)
    if high is None:
        loop = _join([Split(1, len(program) + 2)], program)
        loop.append(_jump(0))
        return _join(repeated, loop)
    for _ in range(high - low):
        repeated = _join(repeated, _join([Split(1, len(program) + 1)], program))
    return repeated
