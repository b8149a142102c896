"""Skills in the Agent Skills format: a folder with `SKILL.md`, whose front matter names and describes it.

The catalogue stands in the prompt; the rest is read when it is needed. Scripts of a skill run in the sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tenuto.errors import NotFound

FILE = "SKILL.md"
NAME_CHARS = 64
DESCRIPTION_CHARS = 1_024
CATALOGUE_CHARS = 8_000
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_FRONT = re.compile(r"\A---\r?\n(.*?)\r?\n---\r?\n?(.*)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill."""

    name: str
    description: str
    folder: Path
    body: str
    """What `SKILL.md` says below its front matter."""

    @property
    def resources(self) -> list[str]:
        """The files beside `SKILL.md`, by path below the skill's folder."""
        found = (path for path in sorted(self.folder.rglob("*")) if path.is_file() and not path.is_symlink())
        names = (path.relative_to(self.folder).as_posix() for path in found)
        return [
            name for name in names if name != FILE and not any(p.startswith(".") for p in name.split("/"))
        ]


def load_skills(folders: Sequence[Path]) -> tuple[list[Skill], list[str]]:
    """The skills below some folders, by name, and what is wrong with others. A later folder's skill wins."""
    found: dict[str, Skill] = {}
    notices: list[str] = []
    for folder in folders:
        for path in sorted(folder.glob(f"*/{FILE}")) if folder.is_dir() else ():
            try:
                skill = _read(path)
            except ValueError as error:
                notices.append(f"skill {path.parent.name}: {error}")
                continue
            found[skill.name] = skill
    return [found[name] for name in sorted(found)], notices


def _read(path: Path) -> Skill:
    """Raises ValueError with what is wrong."""
    import yaml

    match = _FRONT.match(path.read_bytes().decode("utf-8", "replace"))
    if match is None:
        raise ValueError("SKILL.md has no front matter between two lines of ---")
    try:
        raw: Any = yaml.safe_load(match[1])
    except yaml.YAMLError as error:
        raise ValueError(f"its front matter is no YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(raw, dict):
        raise ValueError("its front matter holds no fields")
    fields = cast("dict[str, Any]", raw)
    name, description = fields.get("name"), fields.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > NAME_CHARS:
        raise ValueError(f"`name` must be 1 to {NAME_CHARS} small letters, digits and single hyphens")
    if name != path.parent.name:
        raise ValueError(f"`name` is {name!r} but its folder is {path.parent.name!r}")
    if not isinstance(description, str) or not description.strip() or len(description) > DESCRIPTION_CHARS:
        raise ValueError(f"`description` must have 1 to {DESCRIPTION_CHARS:,} characters")
    return Skill(name, " ".join(description.split()), path.parent, match[2].strip())


def catalogue(skills: Sequence[Skill]) -> str:
    """What the prompt says of the skills; empty without any. Bounded, and says what it left out."""
    if not skills:
        return ""
    lines = [
        "Skills: ways of working for certain tasks. Before such a task, read the skill with `read_skill`."
    ]
    spent = 0
    for at, skill in enumerate(skills):
        line = f"- {skill.name}: {skill.description}"
        spent += len(line)
        if spent > CATALOGUE_CHARS:
            lines.append(f"[{len(skills) - at} more skills have no room here]")
            break
        lines.append(line)
    return "\n".join(lines)


def read_skill(skills: Sequence[Skill], name: str, resource: str = "") -> str:
    """A skill's text with the list of its resources, or one resource. Raises `NotFound`."""
    skill = next((skill for skill in skills if skill.name == name), None)
    if skill is None:
        raise NotFound(f"there is no skill {name!r}", hint=f"there are: {', '.join(s.name for s in skills)}")
    if not resource:
        others = "".join(f"\n- {one}" for one in skill.resources)
        where = f"\n\nResources (read_skill with `resource`; in the sandbox: /skills/{name}):{others}"
        return skill.body + (where if others else "")
    if resource not in skill.resources:
        raise NotFound(f"skill {name!r} has no resource {resource!r}", hint="read the skill for the list")
    return (skill.folder / resource).read_bytes().decode("utf-8", "replace")
