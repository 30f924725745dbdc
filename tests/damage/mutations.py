"""Damaged input, drawn at random: texts of YAML, values of JSON and the bytes of any file.

Every function takes a generator. The same seed gives the same damage.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

import yaml

ODD_TEXTS = (
    "",
    " ",
    "~",
    "null",
    "true",
    "0x1F",
    "1e999",
    "-0",
    "nan",
    ".inf",
    "-.inf",
    "3e-4",
    "9" * 50,
    "9" * 5_000,
    "-" + "9" * 400,
    "a" * 5_000,
    "../../../../etc/passwd",
    "/dev/zero",
    "/",
    ".",
    "..",
    "~nobody/x",
    "s3://bucket/x",
    "http://example.org/x",
    "python:planted.Block",
    "python:planted",
    "python:../planted.Block",
    "!!python/object/apply:os.system ['touch PLANTED']",
    "{{",
    "%s%n",
    "a.b.c",
    "x" * 300 + ".yaml",
    "\u202e\u0300\u2028",
    "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    "\x00",
    "\x1b[31m",
    "\x85",
    "\ufeff",
    "\ud800",
    "1:30",
    "10 steps",
    "1e400 epochs",
    "-1 s",
    "0 steps",
    "9" * 400 + " steps",
)
"""Texts that parsers, paths and terminals take amiss. Some are half a surrogate pair, which UTF-8 cannot hold."""
ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    10**9,
    2**31,
    2**63,
    10**30,
    10**400,
    -(10**18),
    0.0,
    -0.0,
    0.5,
    1e-320,
    1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"kind": None},
    {"0": 1},
    [1, 2, 3],
    ["a"] * 1_000,
    [0] * 5_000,
    *ODD_TEXTS,
)


DEEPEST = "<3,000 lists>"
"""Stands for a value within so many lists, which Python's JSON neither writes nor reads."""


def deep(levels: int, of: type = list) -> Any:
    """A value within so many lists or sections."""
    value: Any = 1
    for _ in range(levels):
        value = [value] if of is list else {"k": value}
    return value


Path = tuple[str | int, ...]


def paths_of(value: Any, around: Path = ()) -> list[Path]:
    """The path of every value in a document, but for that of the whole of it."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = []
    for key, inner in entries:
        found += [(*around, key), *paths_of(inner, (*around, key))]
    return found


def _holder(value: Any, path: Path) -> Any:
    for part in path[:-1]:
        value = value[part]
    return value


def mutate_value(random: Random, value: Any) -> Any:
    """A copy of a document with one to three values of it damaged, removed, moved or repeated."""
    value = json.loads(json.dumps(value))
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        value = _mutate_once(random, value)
    return value


def _mutate_once(random: Random, value: Any) -> Any:
    paths = paths_of(value)
    if not paths or random.random() < 0.02:
        return deepcopy(random.choice((*ODD_VALUES, deep(150), DEEPEST, deep(90, dict))))
    path = random.choice(paths)
    holder, key = _holder(value, path), path[-1]
    old = holder[key]
    what = random.randrange(9)
    if what == 0:
        del holder[key]
    elif what == 1:
        holder[key] = _other_type(random, old)
    elif what == 2 and isinstance(holder, dict):
        holder[random.choice(ODD_TEXTS)] = holder.pop(key)
    elif what == 3 and isinstance(holder, list):
        holder += [json.loads(json.dumps(old)) for _ in range(random.choice((1, 2, 50)))]
    elif what == 4:
        other = random.choice(paths)
        holder[key] = json.loads(json.dumps(_holder(value, other)[other[-1]]))
    elif what == 5:
        holder[key] = random.choice((deep(3), deep(60), deep(150), deep(150, dict), DEEPEST))
    elif what == 6 and isinstance(old, int | float) and not isinstance(old, bool):
        holder[key] = random.choice((old + 1, -old, old * 10**6, old * 0.5, old * 1e300, 10**25, 0))
    else:
        holder[key] = deepcopy(random.choice(ODD_VALUES))
    return value


def _other_type(random: Random, old: Any) -> Any:
    """The same value as another type."""
    if isinstance(old, str):
        return random.choice(([old], {old: old}, len(old), old + "x", old[: len(old) // 2], old * 100))
    if isinstance(old, dict):
        return random.choice((list(old), list(old.values()), str(old), {**old, "unknown": 1}, len(old)))
    if isinstance(old, list):
        return random.choice((dict.fromkeys(map(str, old)), str(old), len(old), old[:-1], [old]))
    return random.choice((str(old), [old], {"value": old}, None))


def mutate_bytes(random: Random, content: bytes) -> bytes:
    """The content of a file with bytes flipped, lost, added or repeated."""
    damaged = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8))):
        at = random.randrange(len(damaged) + 1)
        what = random.randrange(7)
        if what == 0 and damaged:
            damaged[at % len(damaged)] ^= 1 << random.randrange(8)
        elif what == 1:
            del damaged[at:]
        elif what == 2:
            del damaged[at : at + random.choice((1, 4, 64))]
        elif what == 3:
            damaged[at:at] = bytes(random.randrange(256) for _ in range(random.choice((1, 8))))
        elif what == 4:
            damaged[at:at] = damaged[at : at + random.choice((1, 16, 1_000))]
        elif what == 5:
            damaged[at : at + 8] = random.choice((b"\xff" * 8, b"\0" * 8, b"\x7f" + b"\xff" * 7, b"99999999"))
        else:
            damaged[at:at] = random.choice((b"\xff\xfe", b"\xed\xa0\x80", b"\0", b"\n", b"\r", b"\x1b]0;x\x07", b"\t"))
    return bytes(damaged)


def as_json(value: Any) -> bytes:
    """A value as JSON in one line. Half of a surrogate pair becomes an escape, which JSON may hold."""
    return json.dumps(value).replace(json.dumps(DEEPEST), "[" * 3_000 + "]" * 3_000).encode()


def mutate_json(random: Random, content: bytes) -> bytes:
    """A file of JSON: half of the time another value, half of the time other bytes."""
    if random.random() < 0.25:
        return mutate_bytes(random, content)
    return as_json(mutate_value(random, json.loads(content)))


def mutate_lines(random: Random, content: bytes) -> bytes:
    """A file of a JSON value on each line: one line damaged, lost, moved or repeated."""
    lines = content.splitlines(keepends=True)
    at = random.randrange(len(lines))
    what = random.randrange(8)
    if what == 0:
        return mutate_bytes(random, content)
    if what == 1:
        del lines[at]
    elif what == 2:
        lines.insert(random.randrange(len(lines)), lines[at])
    elif what == 3:
        random.shuffle(lines)
    else:
        lines[at] = as_json(mutate_value(random, json.loads(lines[at]))) + b"\n"
    return b"".join(lines)


def mutate_yaml(random: Random, text: str) -> bytes:
    """A file of YAML: its document or its text damaged."""
    if random.random() < 0.5:
        damaged = mutate_value(random, yaml.safe_load(text))
        return yaml.safe_dump(damaged, sort_keys=False, width=1_000).encode("utf-8", "surrogatepass")
    content = text.encode()
    for _ in range(random.choice((1, 1, 2, 4))):
        content = random.choice(_OF_TEXT)(random, content.decode("utf-8", "replace")).encode("utf-8", "surrogatepass")
    return mutate_bytes(random, content) if random.random() < 0.2 else content


def _line_changed(random: Random, text: str, change: Callable[[str], str]) -> str:
    lines = text.split("\n")
    at = random.randrange(len(lines))
    lines[at] = change(lines[at])
    return "\n".join(lines)


def _after_colon(random: Random, text: str) -> str:
    """Another value for the key of one line."""
    return _line_changed(random, text, lambda line: f"{line.partition(':')[0]}: {random.choice(ODD_TEXTS)}")


def _token(random: Random, text: str) -> str:
    """Anything where YAML has a meaning for it."""
    tokens = (
        *(
            "&a ",
            "*a",
            "*nowhere",
            "<<: *a",
            "<<: 1",
            "? ",
            "- ",
            ": ",
            "\t",
            "---\n",
            "...\n",
            "%YAML 1.2\n",
            "!!set ",
        ),
        *(
            "!!binary ",
            "!!python/name:os.system ",
            "!<tag:yaml.org,2002:int> ",
            "|\n",
            ">\n",
            '"',
            "'",
            "{",
            "}",
            "[",
            "]",
        ),
        *(
            "\u2028",
            "\x85",
            "\x00",
            "\x07",
            "\ufeff",
            "\ud800",
            '"\\ud800"',
            '"\\U00110000"',
            "#",
            "@",
            "`",
            "\r",
            "\\",
        ),
    )
    at = random.randrange(len(text) + 1)
    return text[:at] + random.choice(tokens) + text[at:]


def _repeated(random: Random, text: str) -> str:
    """A line twice: a duplicate key, mostly."""
    return _line_changed(random, text, lambda line: f"{line}\n{line}")


def _indented(random: Random, text: str) -> str:
    return _line_changed(random, text, lambda line: " " * random.randrange(1, 9) + line)


def _cut(random: Random, text: str) -> str:
    at = random.randrange(len(text) + 1)
    return text[:at] + text[at + random.choice((1, 5, 40, 10_000)) :]


def _huge(random: Random, text: str) -> str:
    """A value that is long, deep, or expands to many."""
    bomb = "\n".join(["a0: &a0 [1, 1]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))])
    values = (
        "[" * 2_000,
        "[" * 90 + "]" * 90,
        "{a: " * 300 + "1" + "}" * 300,
        "[" + ", ".join("1" * 3_000) + "]",
        "{" + ", ".join(f"k{n}: 1" for n in range(2_000)) + "}",
        "x" * 100_000,
        "1" * 20_000,
        "0x" + "f" * 5_000,
        "1e" + "9" * 500,
        f"1\n{bomb}",
        "1\n" + "# a comment\n" * 5_000,
        "1\n" + "\n".join(f"unknown{n}: {n}" for n in range(1_000)),
    )
    return _line_changed(random, text, lambda line: f"{line.partition(':')[0]}: {random.choice(values)}")


_OF_TEXT = (_after_colon, _after_colon, _token, _token, _repeated, _indented, _cut, _huge)
