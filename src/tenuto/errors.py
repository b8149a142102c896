"""One family of errors: each has a stable `code`, an exit code for the command line, and a next step.

`str(error)` is one line fit for a person; `hint` says what to do about it.
"""

from __future__ import annotations

from typing import Any, ClassVar


class TenutoError(Exception):
    """Base of every error that Tenuto raises on purpose."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details

    def as_json(self) -> dict[str, Any]:
        """`{code, message, hint, details}`, the shape every interface shows."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "details": self.details}


class InvalidId(TenutoError):
    code, exit_code = "invalid_id", 2


class SettingsError(TenutoError):
    """A setting is unknown, has a wrong unit or a wrong value; the message names file and line."""

    code, exit_code = "settings_invalid", 2


class UsageError(TenutoError):
    code, exit_code = "usage", 2


class NotFound(TenutoError):
    """It doesn't exist, or belongs to somebody else: the two look the same on purpose (I13)."""

    code, exit_code = "not_found", 4


class Forbidden(TenutoError):
    code, exit_code = "forbidden", 5


class ThreadBusy(TenutoError):
    """The queue behind the running turn is full."""

    code, exit_code = "thread_busy", 6


class LogVersion(TenutoError):
    """A record was written by a newer Tenuto; it is refused whole, never half-read."""

    code, exit_code = "log_version", 7


class LogInvalid(TenutoError):
    """An imported file is not a log."""

    code, exit_code = "log_invalid", 7


class QuestionTooLarge(TenutoError):
    """The question alone doesn't fit the model's window; `details["over_tokens"]` says by how much (I8)."""

    code, exit_code = "question_too_large", 8


class ContextUnfittable(TenutoError):
    """The request can't be made to fit; `details["item"]` names what is too large (I18)."""

    code, exit_code = "context_unfittable", 8


class DiskFull(TenutoError):
    code, exit_code = "disk_full", 9


class ResultNotFound(NotFound):
    code = "result_not_found"


class ResultTooLarge(TenutoError):
    """One result is larger than the whole quota of its thread."""

    code, exit_code = "result_too_large", 9


class SandboxUnavailable(TenutoError):
    """Code can't run here; the message has the cause, the hint the remedy. There is no fallback."""

    code, exit_code = "sandbox_unavailable", 10


class SandboxBusy(TenutoError):
    code, exit_code = "sandbox_busy", 10


class SandboxCleared(TenutoError):
    """The thread was cleared while its code ran; the late result is discarded."""

    code, exit_code = "sandbox_cleared", 10


class ModelFailed(TenutoError):
    code, exit_code = "model_failed", 11


class ToolServerFailed(TenutoError):
    """An MCP server didn't answer. The tool call fails with this text; the turn goes on."""

    code, exit_code = "tool_server_failed", 12


class LateWrite(TenutoError):
    """A job that began before the thread or the memory was cleared; its result is discarded (I10)."""

    code, exit_code = "late_write", 1


class ThreadCleared(TenutoError):
    """The thread was cleared while this turn ran; nothing more of the turn is kept (I10)."""

    code, exit_code = "thread_cleared", 1


class FactRefused(TenutoError):
    """What can't be remembered: a secret, a wish for one occasion, a text over its limit, words nobody said."""

    code, exit_code = "fact_refused", 2


class MemoryDamaged(TenutoError):
    code, exit_code = "memory_damaged", 7


class EditRefused(TenutoError):
    """The text to be replaced doesn't stand in the file exactly once; nothing was changed."""

    code, exit_code = "edit_refused", 2


class ArchiveRefused(TenutoError):
    """An archive or folder holds a path that leads out of it, or more than is allowed; nothing was taken."""

    code, exit_code = "archive_refused", 2
