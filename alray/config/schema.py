"""The JSON Schema of specs and studies, for editors. It is made from the models and their docstrings."""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, models_json_schema
from pydantic_core import core_schema

from alray.config.loading.composition import BASE
from alray.config.sections.choice import OPEN_TAG, Choice
from alray.config.sections.duration import Duration
from alray.config.sections.own_code import own_pattern
from alray.config.sections.section import ANCHORS, Section, meanings
from alray.config.sections.spec import Spec
from alray.config.study.section import Study

_BASE = "Path of the spec that this one is on top of: sections are merged key by key, and lists are replaced."


class _Generator(GenerateJsonSchema):
    """Writes what a spec accepts beyond the models: bare names of kinds. Writes defaults in the form of a spec."""

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> dict[str, Any]:
        sections = super().tagged_union_schema(schema)
        choice = schema["discriminator"]
        if not isinstance(choice, Choice):
            return sections
        kinds = [kind for kind in schema["choices"] if kind != OPEN_TAG]
        named = [{"type": "string", "enum": kinds}] if kinds else []
        own = [{"type": "string", "pattern": own_pattern(choice.group)}] if OPEN_TAG in schema["choices"] else []
        return {"anyOf": [sections, *named, *own]}

    def model_schema(self, schema: core_schema.ModelSchema) -> dict[str, Any]:
        found = super().model_schema(schema)
        for name, meaning in meanings(schema["cls"]).items():
            found["properties"][schema["cls"].model_fields[name].alias or name]["description"] = meaning
        return found

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, Duration):
            return str(dft)
        if isinstance(dft, Section):
            return dft.model_dump(mode="json")
        return super().encode_default(dft)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a file that holds a spec, or a study if it has the key `study`.

    Of a spec on top of a `base` only the names of its sections are checked: what it leaves out is in the base.
    """
    _, schema = models_json_schema(
        [(Spec, "validation"), (Study, "validation")], title="alray spec or study", schema_generator=_Generator
    )
    on_top: dict[str, Any] = {
        "properties": {BASE: {"type": "string", "description": _BASE}, **dict.fromkeys(Spec.model_fields, True)},
        "additionalProperties": False,
    }
    for document in (on_top, schema["$defs"]["Spec"], schema["$defs"]["Study"]):
        document["patternProperties"] = {f"^{ANCHORS}": True}
    spec = {"if": {"required": [BASE]}, "then": on_top, "else": {"$ref": "#/$defs/Spec"}}
    kinds = {"if": {"required": ["study"]}, "then": {"$ref": "#/$defs/Study"}, "else": spec}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **kinds, **schema}


def schema_text() -> str:
    """Return the schema as the text of `specs/alray.schema.json`."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
