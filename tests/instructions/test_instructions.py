"""Instruction files and skills: order, imports that don't escape, limits that are said, changes at the next turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenuto.errors import NotFound
from tenuto.instructions.discover import Place, discover
from tenuto.instructions.skills import catalogue, load_skills, read_skill


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def places(home: Path, folder: str = "") -> list[Place]:
    shared = home / "w" / "shared"
    return [
        Place("global", home, home, flat=True),
        Place("w", home / "w", home / "w", closed=("files",)),
        Place("shared", shared, shared / folder),
    ]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "w" / "shared").mkdir(parents=True)
    return tmp_path


def test_files_are_read_from_general_to_near_and_each_once(home):
    write(home / "AGENTS.md", "global rule")
    write(home / "w" / "CLAUDE.md", "workspace rule")
    write(home / "w" / "shared" / "AGENTS.md", "shared rule")
    write(home / "w" / "shared" / "billing" / "AGENTS.md", "billing rule")
    write(home / "w" / "shared" / "other" / "AGENTS.md", "other rule")
    found = discover(places(home, "billing"))
    order = [
        found.text.index(rule) for rule in ("global rule", "workspace rule", "shared rule", "billing rule")
    ]
    assert order == sorted(order) and "other rule" not in found.text
    assert found.sources == (
        "global/AGENTS.md",
        "w/CLAUDE.md",
        "shared/AGENTS.md",
        "shared/billing/AGENTS.md",
    )
    assert '<instructions source="shared/billing/AGENTS.md">' in found.text


def test_imports_stand_in_their_place_and_a_file_imported_twice_is_given_once(home):
    shared = home / "w" / "shared"
    write(shared / "AGENTS.md", "before\n@docs/style.md\nafter\n@docs/style.md\n```\n@docs/not.md\n```")
    write(shared / "docs" / "style.md", "use kWh")
    text = discover(places(home)).text
    assert text.count("use kWh") == 1 and text.index("before") < text.index("use kWh") < text.index("after")
    assert "@docs/not.md" in text, "inside a code block it is text"


@pytest.mark.parametrize(
    ("name", "notice"),
    [("../../AGENTS.md", "leads out"), ("/etc/passwd", "leads out"), ("../.memory/conv-ming.json", "leads out"),
     ("link.md", "leads out"), ("gone.md", "is not there")],
)  # fmt: skip
def test_an_import_that_escapes_or_is_missing_is_left_out_and_said(home, name, notice):
    secret = write(home / "secret.md", "SECRET")
    write(home / "w" / ".memory" / "conv-ming.json", "SECRET")
    write(home / "w" / "shared" / "AGENTS.md", f"@{name}")
    (home / "w" / "shared" / "link.md").symlink_to(secret)
    found = discover(places(home))
    assert "SECRET" not in found.text and any(notice in one for one in found.notices)


def test_the_workspaces_own_data_and_other_workspaces_cant_be_imported(home):
    write(home / "w" / "files" / "ming" / "t" / "x.md", "SECRET")
    write(home / "w" / ".memory" / "m.md", "SECRET")
    write(home / "w" / "AGENTS.md", "@files/ming/t/x.md\n@.memory/m.md")
    write(home / "AGENTS.md", "@w/AGENTS.md\n@w/files/ming/t/x.md")
    found = discover(places(home))
    assert "SECRET" not in found.text and len(found.notices) == 4


def test_circles_and_depth_are_reported(home):
    shared = home / "w" / "shared"
    write(shared / "AGENTS.md", "@a1.md")
    write(shared / "a1.md", "one\n@a2.md")
    write(shared / "a2.md", "two\n@a1.md")
    assert any("circle" in notice for notice in discover(places(home)).notices)
    for number in range(1, 9):
        write(shared / f"a{number}.md", f"level {number}\n@a{number + 1}.md")
    found = discover(places(home))
    assert "level 5" in found.text and "level 7" not in found.text
    assert any("deeper than 5" in notice for notice in found.notices)


def test_beyond_32_kib_the_rest_is_left_out_with_a_notice(home):
    write(home / "AGENTS.md", "规则" * 6_000)
    write(home / "w" / "AGENTS.md", "last")
    found = discover(places(home))
    assert len(found.text.encode()) < 33_000 and "�" not in found.text
    assert any("cut at 32,768 bytes" in notice for notice in found.notices)


SKILL = "---\nname: monthly-report\ndescription: How the monthly report is made\n---\n\nUse the template.\n"


def test_a_skill_is_listed_by_its_description_and_read_with_its_resources(home):
    folder = home / "skills" / "monthly-report"
    write(folder / "SKILL.md", SKILL)
    write(folder / "scripts" / "sum.py", "print(6 * 7)")
    skills, notices = load_skills([home / "skills"])
    assert not notices and "- monthly-report: How the monthly report is made" in catalogue(skills)
    assert "Use the template." in read_skill(skills, "monthly-report")
    assert "- scripts/sum.py" in read_skill(skills, "monthly-report")
    assert read_skill(skills, "monthly-report", "scripts/sum.py") == "print(6 * 7)"
    for name, resource in (
        ("other", ""),
        ("monthly-report", "../../AGENTS.md"),
        ("monthly-report", "SKILL.md"),
    ):
        with pytest.raises(NotFound):
            read_skill(skills, name, resource)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("no front matter", "front matter"),
        ("---\n: [\n---\n", "no YAML"),
        ("---\n- a\n---\n", "no fields"),
        ("---\nname: Bad Name\ndescription: x\n---\n", "`name` must be"),
        ("---\nname: other\ndescription: x\n---\n", "its folder is"),
        ("---\nname: broken\n---\n", "`description`"),
        (f"---\nname: broken\ndescription: {'x' * 1_025}\n---\n", "`description`"),
    ],
)
def test_a_skill_with_wrong_front_matter_is_left_out_and_said(home, text, wrong):
    write(home / "skills" / "broken" / "SKILL.md", text)
    skills, notices = load_skills([home / "skills"])
    assert not skills and wrong in notices[0]


def test_a_nearer_skill_takes_the_place_of_one_with_its_name(home):
    for place, body in (("skills", "far"), ("w/skills", "near")):
        write(home / place / "monthly-report" / "SKILL.md", SKILL.replace("Use the template.", body))
    skills, _ = load_skills([home / "skills", home / "w" / "skills"])
    assert [skill.body for skill in skills] == ["near"]
