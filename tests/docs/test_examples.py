"""Every example of the documentation runs as it stands there, with the demo model on an empty home."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
PYTHON = [
    (page.name, number, code)
    for page in PAGES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL), 1)
]
CONSOLE = [
    (page.name, re.findall(r"^\$ (tenuto .*)$", page.read_text(), re.MULTILINE))
    for page in PAGES
    if "```console" in page.read_text()
]


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "TENUTO_HOME": str(tmp_path / "home"), "TENUTO_LANG": "en"}


@pytest.mark.parametrize(
    ("page", "number", "code"), PYTHON, ids=[f"{page}-{number}" for page, number, _ in PYTHON]
)
def test_a_python_example_runs(tmp_path, page, number, code):
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(tmp_path), capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0 and done.stdout.strip(), done.stderr


@pytest.mark.sandbox
@pytest.mark.parametrize(("page", "commands"), CONSOLE, ids=[page for page, _ in CONSOLE])
def test_the_commands_of_a_page_run_one_after_the_other(tmp_path, page, commands):
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "a.py").write_text("x = 1\n")
    for command in commands:
        words = [sys.executable, "-c", "from tenuto.cli.main import main; main()", *shlex.split(command)[1:]]
        done = subprocess.run(words, env=environment(tmp_path), capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, f"{command}: {done.stderr}"


def test_the_examples_were_found():
    assert len(PYTHON) >= 3 and sum(len(commands) for _, commands in CONSOLE) > 20


def test_every_page_stands_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in PAGES if page.name not in navigation] == []
