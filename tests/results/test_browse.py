"""Files on demand: versions, reading by lines, searching, attaching, and nothing that leads out (I13)."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import ArchiveRefused, EditRefused, NotFound, UsageError
from tenuto.results.attach import attach
from tenuto.results.browse import MOST_MATCHES, Browser
from tenuto.results.files import ThreadFiles


@pytest.fixture
def files(tmp_path: Path) -> ThreadFiles:
    return ThreadFiles(tmp_path / "files")


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    code = tmp_path / "shared" / "src"
    code.mkdir(parents=True)
    (tmp_path / "files").mkdir(exist_ok=True)
    (code / "a.py").write_text("def total(rows):\n    return sum(rows)\n")
    (code / "b.py").write_text("TOTAL = 3\n")
    (code / "data.bin").write_bytes(b"\0total")
    (tmp_path / "shared" / ".gitignore").write_text("ignored/\n*.log\n")
    for name in ("ignored", "node_modules", ".hidden"):
        (tmp_path / "shared" / name).mkdir()
        (tmp_path / "shared" / name / "x.py").write_text("total = 1\n")
    (tmp_path / "shared" / "run.log").write_text("total 9\n")
    (tmp_path / "secret.txt").write_text("total secret\n")
    (tmp_path / "shared" / "out").symlink_to(tmp_path / "secret.txt")
    return Browser({"files": tmp_path / "files", "shared": tmp_path / "shared"})


def test_a_report_is_changed_in_place_and_every_version_is_kept_and_comparable(files):
    files.write("report.md", b"# Report\ntotal: 1\n")
    changed = files.edit("report.md", "total: 1", "total: 2")
    assert (changed.name, changed.version) == ("report.md", 2)
    assert [v.version for v in files.versions("report.md")] == [1, 2]
    assert files.read("report.md") == b"# Report\ntotal: 2\n" and files.read("report.md", 1).endswith(
        b"total: 1\n"
    )
    assert "-total: 1\n+total: 2" in files.difference("report.md", 1, 2)
    assert [file.name for file in files.all()] == ["report.md"]


def test_a_file_that_was_there_before_its_first_change_is_version_one(files):
    files.add("chart.txt", b"first")
    files.write("chart.txt", b"second")
    assert [files.read("chart.txt", n) for n in (1, 2)] == [b"first", b"second"]


@pytest.mark.parametrize("old", ["", "missing", "o"])
def test_an_edit_whose_text_is_not_there_exactly_once_changes_nothing(files, old):
    files.write("r.md", b"foo boo")
    with pytest.raises(EditRefused):
        files.edit("r.md", old, "x")
    assert files.read("r.md") == b"foo boo" and len(files.versions("r.md")) == 1


def test_files_are_listed_read_by_lines_and_searched(browser):
    assert ("shared/src/a.py", 38) in browser.list() and ("shared/src", None) in browser.list("shared")
    assert browser.read("shared/src/a.py", 2, 1) == (["    return sum(rows)"], 2)
    found, more = browser.search("total")
    assert [(m.path, m.line) for m in found] == [("shared/src/a.py", 1), ("shared/src/b.py", 1)] and not more
    assert [m.path for m in browser.search("Total|TOTAL")[0]] == ["shared/src/b.py"], (
        "a capital letter means it"
    )
    assert [m.path for m in browser.search("total", glob="a.*")[0]] == ["shared/src/a.py"]


@pytest.mark.parametrize(
    "path",
    [
        "shared/../secret.txt",
        "../secret.txt",
        "shared/out",
        "/etc/passwd",
        "shared/.hidden/x.py",
        "a\0b",
        "shared/./../../x",
    ],
)
def test_i13_no_path_and_no_link_leads_out(browser, path):
    with pytest.raises(NotFound):
        browser.read(path)
    with pytest.raises(NotFound):
        browser.list(path)


@given(
    st.lists(
        st.sampled_from(["..", ".", "shared", "files", "src", "a.py", "", "secret.txt", "~", "\\.."]),
        max_size=8,
    )
)
def test_i13_no_combination_of_segments_leaves_the_folders(tmp_path_factory, segments):
    root = tmp_path_factory.getbasetemp() / "browse"
    (root / "shared" / "src").mkdir(parents=True, exist_ok=True)
    (root / "files").mkdir(exist_ok=True)
    (root / "secret.txt").write_text("secret")
    browser = Browser({"files": root / "files", "shared": root / "shared"})
    try:
        found = browser.find("/".join(segments))
    except NotFound:
        return
    assert found.is_relative_to((root / "files").resolve()) or found.is_relative_to(
        (root / "shared").resolve()
    )


def test_a_pattern_that_would_take_for_ever_is_ended_and_a_broken_one_is_an_error(browser, monkeypatch):
    from tenuto.results import browse

    monkeypatch.setattr(browse, "SEARCH_S", 0.05)
    (browser.find("shared/src") / "long.txt").write_text("a" * 60 + "!")
    with pytest.raises(UsageError):
        browser.search("(a|aa)+$")
    with pytest.raises(UsageError):
        browser.search("(")


def test_many_matches_are_cut_and_said_to_be(browser):
    (browser.find("shared/src") / "many.txt").write_text("hit\n" * 300)
    found, more = browser.search("hit")
    assert len(found) == MOST_MATCHES and more


def zipped(path: Path, entries: dict[str, bytes], link: str = "") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
        if link:
            info = zipfile.ZipInfo(link)
            info.external_attr = 0o120777 << 16
            archive.writestr(info, "/etc/passwd")
    return path


LIMITS = {"most_bytes": 1_000_000, "most_files": 100}


def test_an_archive_is_unpacked_as_a_folder_without_links_and_hidden_entries(files, tmp_path):
    source = zipped(
        tmp_path / "code.zip", {"src/a.py": b"x = 1\n", ".git/config": b"secret"}, link="src/evil"
    )
    taken = attach(files, source, **LIMITS)
    assert (taken.name, taken.files, taken.passed_over) == ("code", 1, 2)
    assert Browser({"files": files.folder}).read("files/code/src/a.py") == (["x = 1"], 1)
    assert attach(files, source, **LIMITS).name == "code-2"


def test_a_tar_with_links_and_devices_and_a_folder_are_taken_alike(files, tmp_path):
    path = tmp_path / "code.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo("a.py")
        info.size = 6
        archive.addfile(info, io.BytesIO(b"x = 1\n"))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            bad = tarfile.TarInfo(f"bad{kind}")
            bad.type, bad.linkname = kind, "/etc/passwd"
            archive.addfile(bad)
    taken = attach(files, path, **LIMITS)
    assert (taken.files, taken.passed_over) == (1, 4)
    folder = tmp_path / "base"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "b.py").write_text("y")
    (folder / "link").symlink_to("/etc/passwd")
    taken = attach(files, folder, **LIMITS)
    assert (taken.name, taken.files, taken.passed_over) == ("base", 1, 1)


@pytest.mark.parametrize("name", ["../evil", "/abs", "a/../../b", "C:\\evil", "..\\evil"])
def test_an_entry_that_leads_out_refuses_the_whole_archive(files, tmp_path, name):
    source = zipped(tmp_path / "bad.zip", {"fine.txt": b"x", name: b"y"})
    with pytest.raises(ArchiveRefused):
        attach(files, source, **LIMITS)
    assert [path.name for path in files.folder.iterdir()] == []


def test_a_bomb_is_stopped_as_it_grows_and_leaves_nothing(files, tmp_path):
    bomb = zipped(tmp_path / "bomb.zip", {})
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", b"\0" * 5_000_000)
    with pytest.raises(ArchiveRefused):
        attach(files, bomb, **LIMITS)
    many = zipped(tmp_path / "many.zip", {f"f{n}": b"" for n in range(101)})
    with pytest.raises(ArchiveRefused):
        attach(files, many, **LIMITS)
    assert list(files.folder.iterdir()) == []
