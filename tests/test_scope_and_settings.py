from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import Forbidden, InvalidId, NotFound, SettingsError
from tenuto.scope import Member, Scope, check_id, member_of, require
from tenuto.settings import load, unit_of


@pytest.mark.parametrize("value", ["a", "A.b_c-9", "x" * 64, "-a", "_"])
def test_an_id_of_letters_digits_and_three_marks_is_taken(value):
    assert check_id("user", value) == value


@pytest.mark.parametrize(
    "value", ["", ".hidden", "a/b", "..", "a b", "x" * 65, "é", "a\n", "a\x00", None, "a:b", "%2e"]
)
def test_any_other_id_is_refused(value):
    with pytest.raises(InvalidId) as caught:
        check_id("user", value)
    assert caught.value.code == "invalid_id"


@given(st.text())
def test_i13_an_accepted_id_is_always_one_path_segment(value):
    try:
        check_id("thread", value)
    except InvalidId:
        return
    assert "/" not in value and value not in (".", "..") and not value.startswith(".") and len(value) <= 64


def test_a_scope_checks_all_three_parts():
    with pytest.raises(InvalidId):
        Scope("w", "u", "../t")


def test_roles_decide_what_a_member_may_do():
    viewer, member, owner = (Member("u", role) for role in ("viewer", "member", "owner"))
    assert [viewer.may(a) for a in ("read", "send", "administer")] == [True, False, False]
    assert [member.may(a) for a in ("read", "send", "administer")] == [True, True, False]
    assert [owner.may(a) for a in ("read", "send", "administer")] == [True, True, True]
    with pytest.raises(Forbidden):
        require(viewer, "send")


def test_i13_a_stranger_learns_only_that_it_is_not_there():
    with pytest.raises(NotFound):
        member_of({}, "eve", "acme")


def test_defaults_are_the_documented_ones(tmp_path):
    settings = load(tmp_path, "w").settings
    assert settings.context.history_tokens == 32_000
    assert settings.context.output_tokens == 8_192
    assert (settings.context.recent_turns, settings.context.recent_result_chars) == (2, 8_000)
    assert (settings.context.old_result_chars, settings.context.images) == (400, 4)
    assert settings.context.bridge_tokens == 4_000
    assert (settings.results.offload_chars, settings.results.paste_chars) == (8_000, 32_000)
    assert (settings.results.files, settings.results.size, settings.results.ttl) == (
        64,
        256 << 20,
        7 * 86_400,
    )
    sandbox = settings.sandbox
    assert (sandbox.idle, sandbox.max_age, sandbox.call, sandbox.processes) == (900, 14_400, 60, 64)
    assert (sandbox.process_memory, sandbox.output_kept) == (2 << 30, 1 << 20)
    assert (sandbox.artifacts, sandbox.artifact_size, sandbox.work) == (20, 25 << 20, 256 << 20)
    assert settings.people()["local"].has("python")


def test_later_layers_win_and_each_value_names_its_origin(tmp_path, monkeypatch):
    (tmp_path / "tenuto.toml").write_text('[sandbox]\nidle = "20 min"\n[context]\nhistory_tokens = 9000\n')
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "workspace.toml").write_text("[context]\nhistory_tokens = 8000\n")
    monkeypatch.setenv("TENUTO_RESULTS__TTL", "2 d")
    loaded = load(tmp_path, "w")
    assert loaded.settings.sandbox.idle == 1200
    assert loaded.settings.context.history_tokens == 8000
    assert loaded.settings.results.ttl == 2 * 86_400
    assert loaded.sources["sandbox.idle"] == f"{tmp_path}/tenuto.toml:2"
    assert loaded.sources["context.history_tokens"] == f"{tmp_path}/w/workspace.toml:2"
    assert loaded.sources["results.ttl"] == "TENUTO_RESULTS__TTL"
    assert loaded.sources["context.images"] == "default"


@pytest.mark.parametrize(
    ("toml", "line", "word"),
    [
        ("[context]\n\nhistory_token = 3\n", 3, "history_token"),
        ('[sandbox]\nidle = "15 MB"\n', 2, "duration"),
        ('[results]\nsize = "3 min"\n', 2, "size"),
        ("[nonsense]\na = 1\n", 1, "nonsense"),
        ("[context]\ntrim_to = 2\n", 2, "trim_to"),
        ("[context\n", 1, "line 1"),
    ],
)
def test_a_wrong_setting_names_file_and_line(tmp_path, toml, line, word):
    path = tmp_path / "tenuto.toml"
    path.write_text(toml)
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, "w")
    assert str(path) in caught.value.message and word in caught.value.message
    if word != "line 1":
        assert f"{path}:{line}" in caught.value.message


def test_an_unknown_environment_variable_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("TENUTO_CONTEXT__NO_SUCH", "1")
    with pytest.raises(SettingsError, match="TENUTO_CONTEXT__NO_SUCH"):
        load(tmp_path, "w")
    monkeypatch.delenv("TENUTO_CONTEXT__NO_SUCH")
    monkeypatch.setenv("TENUTO_NONSENSE", "1")
    with pytest.raises(SettingsError, match="TENUTO_NONSENSE"):
        load(tmp_path, "w")


def test_settings_know_their_units():
    assert unit_of("sandbox.idle") == "s"
    assert unit_of("results.size") == "bytes"
    assert unit_of("context.history_tokens") == "tokens"
    assert unit_of("context.policy") == ""


def test_the_package_and_the_six_kinds_import_nothing_heavy():
    code = (
        "import sys, tenuto, tenuto.context.assemble, tenuto.log.threads, tenuto.results.offload, "
        "tenuto.agent.conversation\n"
        "heavy = {'pydantic_ai', 'openai', 'anthropic', 'mcp', 'fastmcp', 'rich', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
