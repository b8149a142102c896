"""The conformance pack, run as another project would; and that it fails for one that does nothing about it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

PACK = Path(__file__).parents[2] / "conformance"


def module(name: str):
    spec = importlib.util.spec_from_file_location(name, PACK / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


run, adapter = module("run"), module("tenuto_adapter")
CASES = {case["id"]: case for case in run.load_cases()}


@pytest.mark.parametrize("identity", sorted(CASES))
def test_a_case_of_the_pack(identity):
    case = CASES[identity]
    assert run.check(case, json.loads(json.dumps(adapter.answer(case)))) == []


@pytest.mark.parametrize(
    "identity",
    ["c17a-killed-after-the-call", "c17b-one-of-three", "c17d-double-result", "c17f-same-id-again"],
)
def test_switched_off_a_history_sent_as_it_is_fails_the_case(identity):
    case = CASES[identity]
    raw = {"messages": [adapter.neutral(adapter.message_of(entry)) for entry in case["entries"]]}
    assert run.check(case, raw) != []


def test_switched_off_a_sliding_window_fails_the_case_on_sticky_pruning(monkeypatch):
    case = CASES["e31-sticky-pruning"]
    real = adapter.ContextSettings
    monkeypatch.setattr(adapter, "ContextSettings", lambda **values: real(**values, policy="sliding"))
    assert run.check(case, adapter.answer(case)) != []


def test_the_command_of_the_readme_works():
    command = f"{sys.executable} {PACK / 'tenuto_adapter.py'}"
    done = subprocess.run(
        [sys.executable, PACK / "run.py", "--adapter", command], capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.endswith("0 failed\n"), done.stdout
