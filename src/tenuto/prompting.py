"""Prompts with holes, and the operations a model writes into its answer. Pure."""

from __future__ import annotations

import re
from typing import Any, cast

from tenuto.codec import JsonObject

_HOLE = re.compile(r"\{([a-z]+)\}")
_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


def fill(template: str, **values: str) -> str:
    """`template` with `{name}` replaced, in one pass: a value that holds a hole's name stays as it is."""
    return _HOLE.sub(lambda match: values.get(match[1], match[0]), template)


def operations_in(answer: str) -> list[JsonObject] | None:
    """The `operations` of an answer, None if it holds none at all.

    Reads plain JSON, a fenced block, JSON inside prose, a bare list, and what was cut off at the end.
    """
    from pydantic_core import from_json

    candidates = [answer, *_FENCED.findall(answer)]
    start = min((at for at in (answer.find("{"), answer.find("[")) if at >= 0), default=-1)
    if start >= 0:
        end = max(answer.rfind("}"), answer.rfind("]"))
        candidates += [answer[start : end + 1], answer[start:]]
    for candidate in candidates:
        for partial in (False, True):
            try:
                value: Any = from_json(candidate, allow_partial=partial)
            except ValueError:
                continue
            if (found := _listed(value)) is not None:
                return found
    return None


def _listed(value: Any) -> list[JsonObject] | None:
    if isinstance(value, dict):
        value = cast("JsonObject", value).get("operations")
    if not isinstance(value, list):
        return None
    items = cast("list[Any]", value)
    return items if all(isinstance(item, dict) for item in items) else None
