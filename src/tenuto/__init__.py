"""Tenuto: a work platform for agents that keeps a conversation whole.

Six kinds of information live apart, each in its own package: the log (what happened), the context
(what the model needs this turn), the task, instructions, memory, and results with the sandbox.
`Tenuto` puts them together. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenuto.library import MemoryHandle, Tenuto, ThreadHandle

__version__ = "0.1.0"
__all__ = ["MemoryHandle", "Tenuto", "ThreadHandle", "__version__"]


def __getattr__(name: str) -> Any:
    if name in ("MemoryHandle", "Tenuto", "ThreadHandle"):
        from tenuto import library

        return getattr(library, name)
    raise AttributeError(f"module 'tenuto' has no attribute {name!r}")
