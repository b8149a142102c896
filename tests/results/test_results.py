"""Results are saved whole before the model sees anything of them (I9), and their end is told (I14)."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.errors import DiskFull, ResultNotFound, ResultTooLarge
from tenuto.results.files import ThreadFiles, safe_name
from tenuto.results.offload import offload, paste
from tenuto.results.store import ResultStore, slug
from tenuto.results.structure import Column, describe
from tenuto.settings import ResultSettings

ROWS = [
    {"building": f"B{n % 12:02d}", "kwh": n / 4, "holiday": n % 7 == 0, "note": None} for n in range(4_000)
]


def store_in(path: Path, clock=None, **rules) -> ResultStore:
    settings = ResultSettings(**rules)
    return ResultStore(path, settings, clock) if clock else ResultStore(path, settings)


def put(store: ResultStore, text: str, tool: str = "query", **arguments):
    return store.save(tool, arguments, text.encode(), describe(text, 500))


def offloaded(store: ResultStore, text: str, *, may_run_code: bool = True, **rules):
    return offload(
        text,
        tool="query",
        arguments={"m": 1},
        store=store,
        rules=ResultSettings(**rules),
        may_run_code=may_run_code,
    )


# -- structure ----------------------------------------------------------------------------------------------


def test_json_rows_are_described_with_exact_counts_and_types():
    found = describe(json.dumps(ROWS), 1_500)
    assert (found.kind, found.rows, found.extension) == ("json rows", 4_000, ".json")
    assert found.columns == (
        Column("building", "text"), Column("kwh", "number"), Column("holiday", "true/false"), Column("note", "empty"),
    )  # fmt: skip
    assert found.preview_of == "first 5 of 4,000 rows"
    assert len(found.preview.splitlines()) == 5


def test_nested_json_names_its_largest_table():
    found = describe(
        json.dumps({"meta": {"unit": "kWh"}, "data": {"items": ROWS[:30], "few": ROWS[:2]}}), 1_500
    )
    assert (found.kind, found.path, found.rows) == ("json", "data.items", 30)
    assert "meta.unit: text" in found.outline
    assert "at data.items" in found.preview_of


def test_json_lines_csv_and_prose_are_told_apart():
    assert describe("\n".join(map(json.dumps, ROWS[:9])), 900).kind == "json lines"
    lines = ["building;kwh"] + [f"B{n};{n}.5" for n in range(40)]
    found = describe("\n".join(lines), 900)
    assert (found.kind, found.rows) == ("csv", 40)
    assert found.columns == (Column("building", "text"), Column("kwh", "number"))
    prose = describe("# Title\n\nSome words.\n## Part\nMore, words, here.\n" * 20, 900)
    assert prose.kind == "text" and "# Title" in prose.outline and "100 lines" in prose.outline


def test_a_column_that_appears_late_is_not_missed():
    rows = [{"a": 1}] * 3_000 + [{"a": 2, "late": "x"}]
    assert describe(json.dumps(rows), 500).columns[-1] == Column("late", "text")


@given(st.text(max_size=400))
def test_any_text_is_described_without_an_error(text):
    found = describe(text, 100)
    assert found.kind in ("json rows", "json", "json lines", "csv", "text")
    assert len(found.preview) <= 101


# -- offloading ---------------------------------------------------------------------------------------------


def test_i9_a_large_result_is_whole_on_disk_and_labelled_as_a_preview(tmp_path):
    text = json.dumps(ROWS)
    found = offloaded(store_in(tmp_path), text)
    assert (tmp_path / "query-0001.json").read_text() == text
    assert found.text.startswith("[saved] /results/query-0001.json has the whole result")
    assert "4,000 rows x 4 columns" in found.text
    assert "it is not the data" in found.text and "[preview: first 5 of 4,000 rows]" in found.text
    assert len(found.text) < 2_500
    assert found.metadata({"m": 1}) == {"result": "query-0001.json", "rows": 4_000, "arguments": {"m": 1}}


def test_a_small_result_passes_unchanged(tmp_path):
    assert offloaded(store_in(tmp_path), "x" * 8_000).text == "x" * 8_000
    assert not (tmp_path / "index.json").exists()


def test_without_the_right_to_run_code_there_is_no_file_but_a_hint(tmp_path):
    found = offloaded(store_in(tmp_path / "r"), json.dumps(ROWS), may_run_code=False)
    assert found.result is None and not (tmp_path / "r").exists()
    assert (
        len(found.text) <= 8_000
        and "narrow the query" in found.text
        and "[clipped: this is a part" in found.text
    )


def test_a_result_larger_than_the_whole_quota_is_clipped_with_the_reason(tmp_path):
    found = offloaded(store_in(tmp_path, size=10_000), "y" * 20_000, size=10_000)
    assert found.result is None and "more than the thread's quota" in found.text
    with pytest.raises(ResultTooLarge):
        put(store_in(tmp_path, size=10), "y" * 11)


def test_a_full_disk_gives_a_clear_message_and_nothing_half_written(tmp_path, monkeypatch):
    store = store_in(tmp_path)
    put(store, "first " * 9)
    before = sorted(path.name for path in tmp_path.iterdir())
    real = os.fdopen

    class Full:
        def __init__(self, stream):
            self._stream = stream

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self._stream.close()

        def write(self, data):
            self._stream.write(data[:10])
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(
        os, "fdopen", lambda d, mode="r", *a, **k: Full(real(d, mode)) if mode == "wb" else real(d, mode)
    )
    found = offloaded(store, json.dumps(ROWS))
    assert found.result is None and "no space left" in found.text
    with pytest.raises(DiskFull):
        put(store, "more")
    monkeypatch.undo()
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert [result.name for result in store.all()] == ["query-0001.txt"]


def test_kill_9_while_saving_leaves_no_readable_half(tmp_path):
    code = (
        "import sys, os\nfrom pathlib import Path\nfrom tenuto.results.store import ResultStore\n"
        "from tenuto.results.structure import describe\nfrom tenuto.settings import ResultSettings\n"
        "store = ResultStore(Path(sys.argv[1]), ResultSettings(size=10**10, files=10**6))\n"
        "text = 'z' * 3_000_000\nprint('go', flush=True)\n"
        "while True: store.save('q', {}, text.encode(), describe('z', 5))\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    worker.stdout.readline()
    while len(list(tmp_path.glob("q-*"))) < 3:
        assert worker.poll() is None
    worker.kill()
    worker.wait()
    store = store_in(tmp_path, size=10**10)
    for result in store.all():
        if result.state == "kept":
            assert len(store.read(result.name)) == 3_000_000
    assert all(path.stat().st_size == 3_000_000 for path in tmp_path.glob("q-*"))


# -- quota and expiry ---------------------------------------------------------------------------------------


class Clock:
    def __init__(self):
        self.now = datetime(2026, 12, 1, tzinfo=UTC)

    def __call__(self):
        self.now += timedelta(seconds=1)
        return self.now


def test_the_least_recently_used_goes_first_when_the_files_are_too_many(tmp_path):
    store = store_in(tmp_path, Clock(), files=3)
    for n in range(3):
        put(store, f"result {n}")
    store.read("query-0001.txt")
    put(store, "result 3")
    states = {result.name: result.state for result in store.all()}
    assert states == {
        "query-0001.txt": "kept", "query-0002.txt": "evicted", "query-0003.txt": "kept", "query-0004.txt": "kept",
    }  # fmt: skip
    assert store.gone() == {"query-0002.txt"}


def test_the_quota_of_bytes_holds(tmp_path):
    store = store_in(tmp_path, Clock(), size=100)
    for _ in range(5):
        put(store, "x" * 40)
    assert sum(r.bytes for r in store.all() if r.state == "kept") <= 100
    assert [r.state for r in store.all()] == ["evicted"] * 3 + ["kept"] * 2


def test_i14_an_expired_result_says_so_and_names_the_call_that_makes_it_again(tmp_path):
    clock = Clock()
    store = store_in(tmp_path, clock, ttl="7 d")
    put(store, "old", month="2026-10")
    clock.now += timedelta(days=8)
    assert [result.state for result in store.all()] == ["expired"]
    assert not (tmp_path / "query-0001.txt").exists()
    with pytest.raises(ResultNotFound) as caught:
        store.read("query-0001.txt")
    assert "expired" in caught.value.message and "2026-10" in caught.value.hint


def test_a_file_that_was_removed_by_hand_counts_as_reclaimed(tmp_path):
    store = store_in(tmp_path)
    put(store, "x")
    (tmp_path / "query-0001.txt").unlink()
    assert [result.state for result in store.all()] == ["expired"]


def test_a_changed_file_is_not_passed_off_as_the_result(tmp_path):
    store = store_in(tmp_path)
    put(store, "truth")
    (tmp_path / "query-0001.txt").write_text("lies")
    with pytest.raises(ResultNotFound, match="damaged"):
        store.read("query-0001.txt")


def test_a_damaged_index_is_set_aside_and_no_name_is_given_twice(tmp_path):
    store = store_in(tmp_path)
    put(store, "one")
    (tmp_path / "index.json").write_text("{broken")
    assert put(store, "two").name == "query-0002.txt"
    assert (tmp_path / ".index.json.damaged").exists()
    assert (tmp_path / "query-0001.txt").read_text() == "one"


# -- names --------------------------------------------------------------------------------------------------


def test_the_same_name_in_two_threads_is_two_files(tmp_path):
    first, second = store_in(tmp_path / "a"), store_in(tmp_path / "b")
    assert put(first, "one").name == put(second, "two").name
    assert first.read("query-0001.txt") == b"one" and second.read("query-0001.txt") == b"two"


@given(st.text())
def test_i13_hostile_names_stay_in_their_folder(name):
    for safe in (slug(name), safe_name(name)):
        assert safe and "/" not in safe and "\\" not in safe and "\x00" not in safe
        assert not safe.startswith(".") and safe not in ("..", ".")
        assert len(safe) <= 93


def test_a_name_is_looked_up_and_never_used_as_a_path(tmp_path):
    (tmp_path / "secret").write_text("s")
    store = store_in(tmp_path / "r")
    put(store, "x")
    for name in ("../secret", "/etc/passwd", "..", "", "index.json", ".lock"):
        with pytest.raises(ResultNotFound):
            store.read(name)


def test_two_files_of_one_name_are_both_kept(tmp_path):
    files = ThreadFiles(tmp_path)
    names = [files.add("../../chart.png", content).name for content in (b"1", b"2", b"3")]
    assert names == ["chart.png", "chart-2.png", "chart-3.png"]
    assert [files.path(name).read_bytes() for name in names] == [b"1", b"2", b"3"]


def test_a_long_pasted_text_becomes_a_file_of_the_thread(tmp_path):
    files = ThreadFiles(tmp_path)
    text = "building,kwh\n" + "B01,12.5\n" * 5_000
    shown, saved = paste(text, files=files, rules=ResultSettings())
    assert files.path(saved.name).read_text() == text
    assert f"/files/{saved.name}" in shown and "5,000 rows x 2 columns" in shown and len(shown) < 2_500
    assert paste("short", files=files, rules=ResultSettings()) == ("short", None)


def _save_many(path: str, tool: str) -> None:
    store = ResultStore(Path(path), ResultSettings(files=10_000))
    for n in range(25):
        put(store, f"{tool} {n}", tool=tool)


def test_two_processes_never_give_one_name_twice(tmp_path):
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_save_many, args=(str(tmp_path), tool)) for tool in ("a", "b")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    names = [result.name for result in store_in(tmp_path, files=10_000).all()]
    assert len(names) == len(set(names)) == 50
