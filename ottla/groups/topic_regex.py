"""Which topics does a subscription's regular expression match?

The language is RE2's, as far as names of topics need it: literals, `.`, classes with ranges and `\\d \\w \\s`, groups, `|`, `* + ? {m,n}`,
lazy forms, `^ $`, and the flag `(?i)`. The whole name must match. A pattern becomes a small program that is run over a name with all its
threads at once, so the time is bounded by length of program times length of name: a pattern that would make a backtracking matcher run for
years (`(a+)+$`) is as cheap as any other. That is why Python's own `re` is not used: the pattern comes from a stranger, and the loop waits
for the answer.

Left out, and refused as RE2 refuses it: back references and look-around. Left out besides: Unicode classes (topics are ASCII).
"""

from __future__ import annotations

from dataclasses import dataclass

PATTERN_LENGTH_MAX = 512
PROGRAM_LENGTH_MAX = 5_000
REPEAT_MAX = 1_000

Ranges = tuple[tuple[int, int], ...]
ANY: Ranges = ((0, 9), (11, 0x10FFFF))  # all but the line feed
ESCAPES: dict[str, Ranges] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((9, 10), (12, 13), (32, 32)),
}
CONTROLS = {"t": 9, "n": 10, "r": 13, "f": 12, "v": 11, "a": 7}


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
    """Goes on only at the start (`^`) or at the end (`$`) of the name."""

    is_start: bool


Instruction = Letter | Split | Assertion
Program = list[Instruction]


class TopicRegex:
    """A compiled pattern; PatternError when it is none."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise PatternError(f"a pattern of {len(pattern)} characters is longer than {PATTERN_LENGTH_MAX}")
        self.pattern = pattern
        self._program = _Parser(pattern).parse()

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        states = self._follow([0], 0, len(name))
        for position, character in enumerate(name):
            code = ord(character)
            moved = [state + 1 for state in states if self._accepts(state, code)]
            if not moved:
                return False
            states = self._follow(moved, position + 1, len(name))
        return len(self._program) in states

    def _accepts(self, state: int, code: int) -> bool:
        if state == len(self._program):
            return False
        instruction = self._program[state]
        assert isinstance(instruction, Letter)
        return any(low <= code <= high for low, high in instruction.ranges)

    def _follow(self, starts: list[int], position: int, length: int) -> dict[int, None]:
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
                if position == (0 if instruction.is_start else length):
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
        program = self._atom()
        while (character := self._peek()) and character in "*+?{":
            low, high = self._counts()
            self._take("?")  # a lazy form matches the same names
            program = _repeat(program, low, high)
        return program

    def _counts(self) -> tuple[int, int | None]:
        """How often: at least, and at most (None: any number)."""
        start = self._at
        character = self._next()
        if character != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[character]
        end = self._text.find("}", start)
        low, comma, high = self._text[start + 1 : end].partition(",") if end > 0 else ("", "", "")
        if not low.isdigit() or (high and not high.isdigit()):
            raise PatternError(f"a brace at {start} that is no repetition")
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
            return [Letter(self._cased(self._class()))]
        if character == ".":
            return [Letter(ANY)]
        if character in "^$":
            return [Assertion(character == "^")]
        if character == "\\":
            return self._escaped()
        if character in "*+?{":
            raise PatternError(f"nothing to repeat at {at}")
        return [Letter(self._cased(((ord(character), ord(character)),)))]

    def _group(self) -> Program:
        self._depth += 1
        if self._depth > 100:
            raise PatternError("groups are nested too deeply")
        if self._take("?"):
            if self._take("i)"):
                self._is_case_blind = True
                self._depth -= 1
                return []
            if self._take("P<") or self._take("<"):
                if self._peek() in ("=", "!"):
                    raise PatternError("look-around is not supported")
                self._at = self._text.find(">", self._at) + 1
                if self._at == 0:
                    raise PatternError("a group's name without an end")
            elif not self._take(":"):
                raise PatternError("an unknown kind of group")
        program = self._alternatives()
        if not self._take(")"):
            raise PatternError("a group without an end")
        self._depth -= 1
        return program

    def _escaped(self) -> Program:
        character = self._next()
        if character in "Az":
            return [Assertion(character == "A")]
        return [Letter(self._cased(self._escaped_ranges(character)))]

    def _escaped_ranges(self, character: str) -> Ranges:
        if character in ESCAPES:
            return ESCAPES[character]
        if character.lower() in ESCAPES:
            return _invert(ESCAPES[character.lower()])
        if character in CONTROLS:
            return ((CONTROLS[character], CONTROLS[character]),)
        if character.isalnum():
            raise PatternError(f"unknown escape \\{character}")
        return ((ord(character), ord(character)),)

    def _class(self) -> Ranges:
        is_inverted = self._take("^")
        ranges: list[tuple[int, int]] = []
        is_first = True
        while is_first or not self._take("]"):
            is_first = False
            character = self._next()
            if character == "\\":
                escaped = self._escaped_ranges(self._next())
                if len(escaped) > 1 or escaped[0][0] != escaped[0][1]:
                    ranges += escaped
                    continue
                low = escaped[0][0]
            else:
                low = ord(character)
            high = low
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                end = self._next()
                high = self._escaped_ranges(self._next())[0][0] if end == "\\" else ord(end)
            if high < low:
                raise PatternError(f"a range upside down in a class at {self._at}")
            ranges.append((low, high))
        return _invert(tuple(ranges)) if is_inverted else tuple(ranges)

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
