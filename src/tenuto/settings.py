"""Every default in one place, with its unit, and where each value came from.

Layers, later wins: the defaults below, `<home>/tenuto.toml`, `<home>/<workspace>/workspace.toml`, then the
environment (`TENUTO_CONTEXT__HISTORY_TOKENS=16000`). Durations and sizes are written with their unit
(`"15 min"`, `"256 MB"`); a bare number means seconds or bytes. An unknown key or a wrong unit is a
`SettingsError` that names file and line.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from tenuto.errors import SettingsError
from tenuto.scope import Member, Role, check_id

ENV_PREFIX = "TENUTO_"
ENV_DIRECT = frozenset({"TENUTO_HOME", "TENUTO_WORKSPACE", "TENUTO_USER", "TENUTO_LANG"})
"""Environment variables that choose where to look; they are not settings."""

_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")


def _quantity(value: object, units: Mapping[str, float], what: str) -> float:
    if isinstance(value, bool):
        raise ValueError(f"expected {what}, got a boolean")
    if isinstance(value, int | float):
        return float(value)
    text = str(value)
    if re.fullmatch(r"\s*[0-9]+(\.[0-9]+)?\s*", text):
        return float(text)
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in units:
        raise ValueError(f"{text!r} is not {what}; write a number and one of {', '.join(units)}")
    return float(match[1]) * units[match[2]]


def _seconds(value: object) -> float:
    return _quantity(value, _SECONDS, "a duration")


def _bytes(value: object) -> int:
    return int(_quantity(value, _BYTES, "a size"))


Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0, json_schema_extra={"unit": "s"})]
Bytes = Annotated[int, BeforeValidator(_bytes), Field(ge=0, json_schema_extra={"unit": "bytes"})]
Tokens = Annotated[int, Field(ge=0, json_schema_extra={"unit": "tokens"})]
Chars = Annotated[int, Field(ge=0, json_schema_extra={"unit": "characters"})]
Count = Annotated[int, Field(ge=0, json_schema_extra={"unit": ""})]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ContextSettings(Section):
    """What goes into one model request."""

    history_tokens: Tokens = 32_000
    """Budget of the history, on top of system, tools, memory and question."""
    trim_to: Annotated[float, Field(gt=0, lt=1)] = 0.6
    """Share of the budget that a step of the stepped window trims to."""
    policy: Literal["stepped", "sliding"] = "stepped"
    output_tokens: Tokens = 8_192
    """Reserved for the answer; the smaller of this and the model's own limit."""
    recent_turns: Count = 2
    recent_result_chars: Chars = 8_000
    """Most of a tool result shown from the last `recent_turns` turns."""
    old_result_chars: Chars = 400
    """Most of an older tool result."""
    images: Count = 4
    """How many of the latest images stay images; older ones become text markers."""
    bridge_tokens: Tokens = 4_000


class TaskSettings(Section):
    """The ledger of what a thread's work rests on."""

    enabled: bool = True
    tokens: Tokens = 1_500
    """Most tokens of the ledger in a request."""
    refresh_after: Count = 4
    """Newly dropped messages that make a refresh worth its cost."""
    model: str = ""
    """The model that refreshes; the thread's own unless set, so that its cached prefix serves."""
    chunk_tokens: Tokens = 6_000
    """Most tokens of records given to one refresh."""


class MemorySettings(Section):
    """What is remembered of a user across threads. Each user switches it on, and extraction by itself."""

    facts: Count = 50
    fact_chars: Chars = 500
    chars: Chars = 8_000
    """Of all active facts together."""
    new_per_turn: Count = 5
    """Most facts that extraction may add from one turn."""
    model: str = ""
    """The model that extracts; the workspace's own unless set."""


class SearchSettings(Section):
    """Search over one's own history."""

    semantic: bool = False
    """Meaning beside words; needs the extra `semantic` (95 MB). Vectors are made in the background."""


class RetentionSettings(Section):
    """How long threads are kept."""

    threads: Seconds = 0
    """Threads that were not used for so long are deleted by `tenuto retention`; 0 keeps them."""


class ResultSettings(Section):
    """Large tool results and pasted texts."""

    offload_chars: Chars = 8_000
    """A text result of an MCP tool above this is saved as a file, when the user may run code."""
    paste_chars: Chars = 32_000
    """A pasted text above this becomes a file of the thread."""
    preview_chars: Chars = 1_500
    files: Count = 64
    size: Bytes = 256 << 20
    """Quota of one thread; the least recently used goes first."""
    ttl: Seconds = 7 * 86_400
    attach_size: Bytes = 256 << 20
    """Most bytes of one attached folder or archive, unpacked."""
    attach_files: Count = 20_000


class SandboxSettings(Section):
    """The warm Python interpreter of a thread."""

    enabled: bool = True
    env: str = ""
    """Folder of the sandbox's own Python environment; empty means the one beside this installation."""
    spares: Count = 1
    idle: Seconds = 900
    """Counted from the end of the last call."""
    max_age: Seconds = 14_400
    """Checked between calls."""
    call: Seconds = 60
    grace: Seconds = 2
    """Between the interrupt and the kill."""
    processes: Count = 64
    process_memory: Bytes = 2 << 30
    total_memory: Bytes = 2560 << 20
    open_files: Count = 512
    work: Bytes = 256 << 20
    """Size of /work, a tmpfs."""
    tmp: Bytes = 64 << 20
    output_kept: Bytes = 1 << 20
    output_kill: Bytes = 256 << 20
    output_model: Chars = 16_000
    artifacts: Count = 20
    artifact_size: Bytes = 25 << 20
    max_boxes: Count = 16
    """Live sandboxes of this process; beyond, the least recently used idle one goes."""
    uid: Count = 65_000
    """Unprivileged host uid that a server running as root starts sandboxes under."""


class ModelSettings(Section):
    """A model of your own, used by its table's name."""

    model: str
    """For example `openai:gpt-5`, `anthropic:claude-sonnet-4-6`, `ollama:qwen3`, or the served model's name."""
    base_url: str | None = None
    """Any OpenAI-compatible endpoint, for example `http://127.0.0.1:8080/v1`."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key; keys don't stand in files."""
    window: Tokens | None = None
    """The model's context window; overrides what is known about it."""
    output: Tokens | None = None
    thinking: bool = False
    """Whether the model thinks; reserves `agent.thinking_tokens` more."""


class McpSettings(Section):
    """One MCP server: either `command` (stdio) or `url` (streamable HTTP)."""

    command: str | None = None
    args: list[str] = []
    env: dict[str, str] = {}
    url: str | None = None
    headers: dict[str, str] = {}
    """`${NAME}` in a value is read from the environment when the server is called."""
    prefix: str | None = None
    """Prefix of its tools' names; the server's name unless set, empty for none."""
    users: list[str] | None = None
    """Who sees it; everybody unless set."""
    approval: list[str] = []
    """Tools that a person must allow, call by call."""
    start: Seconds = 20
    call: Seconds = 60


class AgentSettings(Section):
    model: str = "demo"
    """The model of a new thread."""
    retries: Count = 3
    """Retries of a model request on 429, 5xx and lost connections, with back-off."""
    queue: Count = 8
    """Messages that may wait behind a running turn."""
    requests: Count = 50
    """Model requests in one turn."""
    tool: Seconds = 300
    thinking_tokens: Tokens = 4_096
    drain: Seconds = 30
    """How long background work may still run when the program ends; what is left is done after the next turn."""
    timezone: str = "UTC"
    folder: str = ""
    """Folder below the workspace's shared one whose AGENTS.md, and those above it, count."""
    instructions: str = ""
    """What every conversation of the workspace is told."""


class MemberSettings(Section):
    role: Role = "member"
    grants: list[str] = []


class Settings(BaseSettings):
    """All settings of one workspace. Frozen: a change is a new value."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix=ENV_PREFIX, env_nested_delimiter="__"
    )

    context: ContextSettings = ContextSettings()
    task: TaskSettings = TaskSettings()
    memory: MemorySettings = MemorySettings()
    search: SearchSettings = SearchSettings()
    retention: RetentionSettings = RetentionSettings()
    results: ResultSettings = ResultSettings()
    sandbox: SandboxSettings = SandboxSettings()
    agent: AgentSettings = AgentSettings()
    models: dict[str, ModelSettings] = {}
    mcp: dict[str, McpSettings] = {}
    members: dict[str, MemberSettings] = {"local": MemberSettings(role="owner", grants=["python"])}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: Any,
        env_settings: Any,
        dotenv_settings: Any,
        file_secret_settings: Any,
    ) -> tuple[Any, ...]:
        return (init_settings,)

    def people(self) -> dict[str, Member]:
        """The members, by user id."""
        return {
            check_id("user", user): Member(user, member.role, frozenset(member.grants))
            for user, member in self.members.items()
        }


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings with their origin."""

    settings: Settings
    sources: dict[str, str]
    """Dotted key to `default`, `file:line` or the environment variable's name."""

    def rows(self) -> list[dict[str, Any]]:
        """Every setting as `{key, value, unit, source}`; what may be a secret is named, not shown."""
        return [
            {
                "key": key,
                "value": _safe(key, value),
                "unit": unit_of(key),
                "source": self.sources.get(key, "default"),
            }
            for key, value in leaves(self.settings)
        ]


def home() -> Path:
    """Where everything lives: `$TENUTO_HOME`, else `~/.tenuto`."""
    return Path(os.environ.get("TENUTO_HOME") or Path.home() / ".tenuto")


def load(home_dir: Path, workspace: str, overrides: Mapping[str, Any] | None = None) -> Loaded:
    """Read all layers. `overrides` are nested values of the caller, above every other layer.

    Raises `SettingsError`.
    """
    check_id("workspace", workspace)
    merged: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for path in (home_dir / "tenuto.toml", home_dir / workspace / "workspace.toml"):
        if path.is_file():
            text = path.read_text("utf-8")
            layer = _read_toml(path, text)
            _check(layer, _place_in(path, text))
            _merge(merged, layer)
            sources |= {key: f"{path}:{_line_of(text, key)}" for key, _ in _leaves(layer)}
    environment = _read_environment()
    _check(environment, _variable)
    _merge(merged, environment)
    sources |= {key: _variable(key) for key, _ in _leaves(environment)}
    if overrides:
        _merge(merged, overrides)
        sources |= {key: "caller" for key, _ in _leaves(overrides)}
    settings = _check(merged, lambda key: sources.get(str(key), "settings"))
    settings.people()
    for key, _ in _leaves(settings.model_dump()):
        sources.setdefault(key, "default")
    return Loaded(settings, sources)


def _read_toml(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: {error}", hint="correct the TOML syntax there") from error


def _read_environment() -> dict[str, Any]:
    for name in os.environ:
        if name.startswith(ENV_PREFIX) and name not in ENV_DIRECT:
            top = name[len(ENV_PREFIX) :].split("__")[0].lower()
            if top not in Settings.model_fields:
                raise SettingsError(
                    f"environment: {name} is not a setting",
                    hint="see `tenuto config show` for the names; sections are joined by two underscores",
                )
    return EnvSettingsSource(Settings, env_prefix=ENV_PREFIX, env_nested_delimiter="__")()


def _place_in(path: Path, text: str) -> Callable[[str], str]:
    return lambda key: f"{path}:{_line_of(text, key)}"


def _variable(key: str) -> str:
    return ENV_PREFIX + key.upper().replace(".", "__")


def _check(values: Mapping[str, Any], place: Callable[[str], str]) -> Settings:
    """Validate one layer so that an error can name its own file and line."""
    try:
        return Settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        reason = "is not a setting" if first["type"] == "extra_forbidden" else first["msg"]
        raise SettingsError(
            f"{place(key)}: {key}: {reason.removeprefix('Value error, ')}",
            hint="see `tenuto config show` for every key with its unit",
        ) from error


def _merge(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for key, value in layer.items():
        known = into.get(key)
        if isinstance(known, dict) and isinstance(value, Mapping):
            _merge(cast("dict[str, Any]", known), cast("Mapping[str, Any]", value))
        elif isinstance(value, Mapping):
            copy: dict[str, Any] = {}
            _merge(copy, cast("Mapping[str, Any]", value))
            into[key] = copy
        else:
            into[key] = value


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(cast("Mapping[str, Any]", value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def leaves(settings: Settings) -> list[tuple[str, Any]]:
    """Every setting as `(dotted key, value)`."""
    return list(_leaves(settings.model_dump()))


_NAMED = re.compile(r"\$\{\w+\}")


def _safe(key: str, value: Any) -> Any:
    """Values given to tool servers may be secrets: only names of environment variables are shown."""
    parts = key.split(".")
    if parts[0] != "mcp" or not any(part in ("env", "headers") for part in parts[2:]):
        return value
    if isinstance(value, dict):
        return {name: _safe(key, inner) for name, inner in cast("dict[str, Any]", value).items()}
    return value if isinstance(value, str) and _NAMED.fullmatch(value) else "(hidden)"


def unit_of(key: str) -> str:
    """The unit of a setting by its dotted key, empty where it has none."""
    section, _, name = key.partition(".")
    field = Settings.model_fields.get(section)
    model = field.annotation if field else None
    if isinstance(model, type) and issubclass(model, BaseModel) and name in model.model_fields:
        extra = model.model_fields[name].json_schema_extra
        if isinstance(extra, dict):
            return str(cast("dict[str, Any]", extra).get("unit") or "")
    return ""


def _line_of(text: str, key: str) -> int:
    """The line on which `key` (dotted) is set in a TOML text, or its nearest table; 1 if unknown."""
    wanted = key.split(".")
    table: list[str] = []
    best, depth = 1, 0
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if header := re.fullmatch(r"\[\[?([^\[\]]+)\]\]?\s*(#.*)?", stripped):
            table = [part.strip().strip("\"'") for part in header[1].split(".")]
            path = table
        elif pair := re.match(r"([A-Za-z0-9_.\-\"']+)\s*=", stripped):
            path = table + [part.strip().strip("\"'") for part in pair[1].split(".")]
        else:
            continue
        if path == wanted[: len(path)] and len(path) > depth:
            best, depth = number, len(path)
    return best
