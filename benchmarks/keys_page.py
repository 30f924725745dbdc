"""Write docs/keys.md: every key of a spec and of a study, from the JSON Schema, which the grammar's docstrings make,
and of `summary.json` and of the records of stages, from the docstrings of their fields.

python -m benchmarks.keys_page
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from pydantic import BaseModel

from alray.config.schema import json_schema
from alray.core.run_folder.records import StageRecord, Summary
from alray.report.definitions import definition
from benchmarks.key_users import user_of

PAGE = Path(__file__).parents[1] / "docs" / "keys.md"
INTRODUCTION = """\
# Keys of a spec

Written by `make keys` from the grammar, as is the JSON Schema that `alray schema` prints.
[A spec](spec.md) leads to a page on each section, which explains how its keys work together.

A key with a link is a section of its own. Where a section comes in kinds, its table has the keys that all kinds share,
and each kind has a table of what it adds. A section's bare kind stands for the section: `method: backpropagation`. The
last column names a committed spec or study that uses the key.
"""
_ANY = "any value"
_REQUIRED = "required"

Schema = dict[str, Any]


@dataclass
class KeysPage:
    """The page while it is written."""

    sections: dict[str, Schema]
    """Sections of the grammar by name."""
    lines: list[str] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    """Where the page explains a section: its heading."""

    def root(self, title: str, name: str) -> None:
        """A whole file: its keys, then the sections in it, in order."""
        self.lines += ["", f"## {title}", ""]
        self._sections(self._explain([name], "", set(self.sections[name]["properties"])))

    def _sections(self, new: dict[str, list[str]]) -> None:
        for place, names in new.items():
            self._section(place, names)

    def _explain(self, of: list[str], place: str, keys: set[str]) -> dict[str, list[str]]:
        """Write a table of some keys of a section, or of its kinds, which share them. place: the keys that lead to it,
        each with a dot.

        Returns the sections that no table had before, by place: the names of their kinds.
        """
        section = self.sections[of[0]]
        properties = {key: schema for key, schema in section["properties"].items() if key in keys}
        new: dict[str, list[str]] = {}
        for key, schema in properties.items():
            names = [name for name in self._named(schema) if name not in self.places]
            if names:
                new[f"{place}{key}"] = names
                self.places.update(dict.fromkeys(names, f"{place}{key}"))
        self._table(of, properties, section.get("required", ()))
        return new

    def _section(self, place: str, names: list[str]) -> None:
        """One section in all its kinds, then the sections in it."""
        self.lines += ["", f"### `{place}`", ""]
        kinds = [self.sections[name] for name in names]
        first, *others = (kind["properties"] for kind in kinds)
        if not others:
            self.lines += [self._about(names[0]), ""]
            self._sections(self._explain(names, f"{place}.", set(first)))
            return
        shared = {key for key, schema in first.items() if all(kind.get(key) == schema for kind in others)}
        new = self._explain(names, f"{place}.", shared)
        for name, kind in zip(names, kinds, strict=True):
            own = {key: schema for key, schema in kind["properties"].items() if key not in shared}
            tag = next(key for key in ("kind", "source", "block") if key in own)
            used = user_of([name], tag)
            about = self._about(name) + (f" Used in {_link(used)}." if used else "")
            self.lines += ["", f"#### `{tag}: {self._tag(own.pop(tag))}`", "", about, ""]
            new |= self._explain([name], f"{place}.", set(own))
        self._sections(new)

    def _tag(self, schema: Schema) -> str:
        return str(schema.get("const", "python:module.Class"))

    def _about(self, name: str) -> str:
        return _line(self.sections[name].get("description", ""))

    def _table(self, of: list[str], properties: Schema, required: Collection[str]) -> None:
        if not properties:
            return
        self.lines += ["| key | value | default | meaning | used in |", "|---|---|---|---|---|"]
        for key, schema in properties.items():
            default = _REQUIRED if key in required else _default(schema)
            used = user_of(of, key)
            meaning = _line(schema.get("description", ""))
            cells = (f"`{key}`", self._type(schema), default, meaning, _link(used) if used else "–")
            self.lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")

    def _named(self, schema: Schema) -> Iterator[str]:
        """The sections that a value may be, or that it is a list or a mapping of."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            if "properties" in self.sections[name]:
                yield name
        for option in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
            yield from self._named(option)
        for part in ("items", "additionalProperties"):
            if isinstance(schema.get(part), dict):
                yield from self._named(schema[part])

    def _type(self, schema: Schema) -> str:
        """What a value may be, in words."""
        names = list(self._named(schema))
        options = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
        if names and schema.get("type") not in ("array", "object"):
            place = self.places[names[0]]
            linked = f"[section](#{_slug(place)})"
            # The names of several sections, one for each kind, are those of the page's headings.
            several = len(set(names)) > 1
            tagged = [
                option for option in options if not list(self._named(option)) and not (several and "enum" in option)
            ]
            own = [option for option in tagged if not str(option.get("pattern", "")).startswith("^python")]
            return " or ".join([linked, *map(self._type, own)])
        if "$ref" in schema:
            return self._type(self.sections[schema["$ref"].rpartition("/")[2]])
        if options:
            return " or ".join(dict.fromkeys(map(self._type, options)))
        if "const" in schema:
            return f"`{json.dumps(schema['const']).strip(chr(34))}`"
        if "enum" in schema:
            return ", ".join(f"`{value}`" for value in schema["enum"])
        return self._plain(schema)

    def _plain(self, schema: Schema) -> str:
        kind = schema.get("type")
        if kind == "array":
            entries = schema.get("prefixItems") or [schema.get("items", {})]
            return f"list of {self._type(entries[0])}{_length(schema)}"
        if kind == "object":
            of = schema.get("additionalProperties")
            return f"keys with {self._type(of)}" if isinstance(of, dict) and of else "keys and values"
        if kind in ("integer", "number"):
            return f"{kind}{_bounds(schema)}"
        if kind == "string":
            examples = schema.get("examples")
            return f"text such as {', '.join(f'`{each}`' for each in examples)}" if examples else "text"
        return {"boolean": "`true`, `false`", "null": "`null`"}.get(str(kind), _ANY)


def _bounds(schema: Schema) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    # 2^63 is the end of the machine's integers: no bound that anyone meets.
    told = [f"{sign} {schema[key]}" for key, sign in signs.items() if key in schema and abs(schema[key]) < 2**62]
    return f" {', '.join(told)}" if told else ""


def _length(schema: Schema) -> str:
    least, most = schema.get("minItems"), schema.get("maxItems")
    if least is not None and least == most:
        return f", {least} entries"
    return f", at least {least}" if least else ""


def _default(schema: Schema) -> str:
    if "default" not in schema:
        return "–"  # the text says it
    default = schema["default"]
    if isinstance(default, dict):
        kind = default.get("kind")
        return f"`{kind}`" if kind else ("the defaults of its keys" if default else "`{}`")
    return f"`{json.dumps(default).strip(chr(34))}`"


def _link(file: str) -> str:
    return f"[{PurePath(file).stem}](../{file})"


def _slug(place: str) -> str:
    return "".join(letter for letter in place.lower() if letter.isalnum() or letter in "_-")


def _line(text: str) -> str:
    return " ".join(text.split())


def _results() -> list[str]:
    """The keys of results. Those with the metric's name are shown as in classification."""
    summary = [field.replace("scores", "accuracy") for field in Summary.model_fields]
    stage = list(StageRecord.model_fields)
    stage = stage[stage.index("stage") :]  # the keys before it are those of every record
    return [
        *("", "## `summary.json`", "", *_meanings(Summary, dict(zip(summary, Summary.model_fields, strict=True)))),
        *("", "## Records of stages", "", "Lines of `records.jsonl` of the kind `stage`.", ""),
        *_meanings(StageRecord, dict(zip(stage, stage, strict=True))),
    ]


def _meanings(kind: type[BaseModel], fields: dict[str, str]) -> list[str]:
    """fields: by the key that a file has."""
    rows = (f"| `{key}` | {definition(kind, field)} |" for key, field in fields.items())
    return ["| key | meaning |", "|---|---|", *rows]


def page() -> str:
    """The page's text."""
    schema = json_schema()
    keys = KeysPage(schema["$defs"])
    keys.root("A run", "Spec")
    keys.root("A study", "Study")
    return re.sub(r"\n{3,}", "\n\n", INTRODUCTION + "\n".join([*keys.lines, *_results()])) + "\n"


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
