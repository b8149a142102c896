"""The log: durable appends, reading from the tail, branches, repair. Every fault is a real one on a real file."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.errors import DiskFull, LogVersion
from tenuto.log.blobs import Blobs
from tenuto.log.record import Draft, Record, parse
from tenuto.log.store import BLOCK, ThreadLog

from ..conftest import says, user


def drafts(count: int, size: int = 20) -> list[Draft]:
    return [Draft(n, message=user(f"{n} " + "x" * size), tokens=size) for n in range(1, count + 1)]


def seqs(found: list[Record]) -> list[int]:
    return [record.seq for record in found]


def everything(log: ThreadLog) -> list[Record]:
    return log.back_to(lambda record: False)


def test_what_is_appended_is_read_back_by_another_instance(log):
    written = log.append(drafts(3), epoch=7)
    read = everything(ThreadLog(log.path))
    assert read == written
    assert seqs(read) == [1, 2, 3]
    assert [record.parent for record in read] == [None, written[0].id, written[1].id]
    assert {record.epoch for record in read} == {7}


def test_what_settles_together_costs_one_fsync(log):
    log.append(drafts(5), epoch=1)
    assert log.fsyncs == 1
    log.append(drafts(1), epoch=1)
    assert log.fsyncs == 2


def test_i1_a_record_is_on_disk_when_append_returns(tmp_path):
    path = tmp_path / "conv-k.jsonl"
    code = (
        "import sys, os, signal\nfrom pathlib import Path\n"
        "from tenuto.log.store import ThreadLog\nfrom tenuto.log.record import Draft\n"
        "log = ThreadLog(Path(sys.argv[1]))\n"
        "log.append([Draft(1, message={'kind': 'request', 'parts': [{'part_kind': 'user-prompt', 'content': 'q'}]})], epoch=1)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)])
    assert done.returncode == -signal.SIGKILL
    assert seqs(everything(ThreadLog(path))) == [1]


def test_i15_the_tail_is_read_without_touching_the_head(log):
    log.append(drafts(4_000, size=500), epoch=1)
    fresh = ThreadLog(log.path)
    found = fresh.back_to(lambda record: record.seq <= 3_990)
    assert seqs(found) == list(range(3_990, 4_001))
    assert fresh.bytes_read <= 3 * BLOCK < log.path.stat().st_size


def test_a_living_reader_reads_only_what_another_process_appended(log):
    log.append(drafts(1_000, size=500), epoch=1)
    reader = ThreadLog(log.path)
    everything(reader)
    before = reader.bytes_read
    log.append([Draft(9, message=says("new"))], epoch=1)
    assert everything(reader)[-1].message == says("new")
    assert reader.bytes_read - before < 2_000


def test_pages_go_backwards_from_the_end(log):
    log.append(drafts(50), epoch=1)
    fresh = ThreadLog(log.path)
    assert seqs(fresh.page(None, 3)) == [48, 49, 50]
    assert seqs(fresh.page(48, 3)) == [45, 46, 47]
    assert seqs(fresh.page(3, 10)) == [1, 2]
    assert fresh.page(1, 10) == []


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 90_000), min_size=1, max_size=25), st.data())
def test_any_record_is_found_by_its_number(tmp_path_factory, sizes, data):
    log = ThreadLog(tmp_path_factory.mktemp("find") / "conv-f.jsonl")
    log.append([Draft(1, message=user("y" * size)) for size in sizes], epoch=1)
    wanted = data.draw(st.integers(1, len(sizes)))
    fresh = ThreadLog(log.path)
    assert fresh.find(wanted).seq == wanted
    assert fresh.find(len(sizes) + 1) is None


# -- branches -----------------------------------------------------------------------------------------------


def test_i16_an_edit_is_a_branch_and_going_back_brings_the_old_one(log):
    first = log.append(drafts(4), epoch=1)
    edited = log.append([Draft(2, message=user("edited"))], epoch=1, parent=first[1].id)
    assert seqs(everything(log)) == [1, 2, 5]
    assert seqs(everything(ThreadLog(log.path))) == [1, 2, 5]
    assert seqs(log.leaves()) == [4, 5]
    log.select(first[3].id, turn=2, epoch=1)
    assert seqs(everything(log)) == [1, 2, 3, 4]
    assert seqs(everything(ThreadLog(log.path))) == [1, 2, 3, 4]
    more = log.append([Draft(3, message=user("on the old branch"))], epoch=1)
    assert more[0].parent == first[3].id
    assert seqs(everything(ThreadLog(log.path))) == [1, 2, 3, 4, 7]
    assert seqs(log.branch(edited[0], lambda record: False)) == [1, 2, 5]


def test_a_reader_in_another_process_follows_the_switch_of_branches(log):
    first = log.append(drafts(3), epoch=1)
    reader = ThreadLog(log.path)
    everything(reader)
    log.append([Draft(2, message=user("edited"))], epoch=1, parent=first[0].id)
    assert seqs(everything(reader)) == [1, 4]
    log.select(first[2].id, turn=1, epoch=1)
    assert seqs(everything(reader)) == [1, 2, 3]


# -- damage -------------------------------------------------------------------------------------------------


def damage(path: Path, line: int, replacement: bytes) -> None:
    lines = path.read_bytes().split(b"\n")
    lines[line - 1] = replacement
    path.write_bytes(b"\n".join(lines))


def test_a_torn_last_line_is_kept_aside_and_reported_and_the_log_goes_on(log):
    log.append(drafts(2), epoch=1)
    with log.path.open("ab") as stream:
        stream.write(b'{"v":1,"seq":3,"id":"torn')
    fresh = ThreadLog(log.path)
    assert seqs(everything(fresh)) == [1, 2]
    added = fresh.append([Draft(3, message=user("next"))], epoch=1)
    assert added[0].seq == 3
    aside = [path for path in log.path.parent.iterdir() if ".torn-" in path.name]
    assert [path.read_bytes() for path in aside] == [b'{"v":1,"seq":3,"id":"torn']
    assert [gap.kind for gap in fresh.gaps] == ["torn"]
    assert seqs(everything(ThreadLog(log.path))) == [1, 2, 3]


def test_a_last_line_that_lacks_only_its_newline_is_kept(log):
    log.append(drafts(2), epoch=1)
    log.path.write_bytes(log.path.read_bytes()[:-1])
    fresh = ThreadLog(log.path)
    fresh.append([Draft(3, message=user("next"))], epoch=1)
    assert seqs(everything(ThreadLog(log.path))) == [1, 2, 3]


@pytest.mark.parametrize(
    "garbage", [b"", b"not json", b"\xff\xfe\x00", b'{"v":1}', b"[]", b'{"v":1,"seq":"x"}']
)
def test_i19_a_damaged_line_costs_itself_only(log, garbage):
    log.append(drafts(5), epoch=1)
    damage(log.path, 3, garbage)
    fresh = ThreadLog(log.path)
    assert seqs(everything(fresh)) == [1, 2, 4, 5]
    assert "parent" in [gap.kind for gap in fresh.gaps]
    assert seqs(list(ThreadLog(log.path).scan())) == [1, 2, 4, 5]


def test_i19_a_missing_parent_keeps_both_segments_and_reports_the_gap(log):
    log.append(drafts(6), epoch=1)
    lines = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(b"".join(lines[:2] + lines[4:]))
    fresh = ThreadLog(log.path)
    assert seqs(everything(fresh)) == [1, 2, 5, 6]
    assert any(gap.kind == "parent" and gap.near_seq == 2 for gap in fresh.gaps)


def test_i19_a_damaged_line_on_a_dead_branch_doesnt_pull_that_branch_in(log):
    first = log.append(drafts(5), epoch=1)
    log.append([Draft(2, message=user("edited"))], epoch=1, parent=first[1].id)
    damage(log.path, 4, b"garbage")
    assert seqs(everything(ThreadLog(log.path))) == [1, 2, 6]


def test_i19_characters_split_by_a_read_buffer_are_whole(log):
    for extra in (-1, 0, 1):
        text = "能" * ((BLOCK + extra) // 3) + "耗👩‍💻"
        log.append([Draft(1, message=user(text))], epoch=1)
        read = everything(ThreadLog(log.path))[-1]
        assert read.message["parts"][0]["content"] == text


def test_a_record_of_a_newer_version_is_refused_whole(log):
    log.append(drafts(2), epoch=1)
    line = orjson.loads(log.path.read_bytes().splitlines()[-1])
    with log.path.open("ab") as stream:
        stream.write(orjson.dumps({**line, "v": 2, "seq": 3}) + b"\n")
    with pytest.raises(LogVersion) as caught:
        everything(ThreadLog(log.path))
    assert caught.value.code == "log_version"


# -- writing under pressure ---------------------------------------------------------------------------------


def test_a_full_disk_leaves_the_log_as_it_was(log, monkeypatch):
    log.append(drafts(2), epoch=1)
    before = log.path.read_bytes()
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) > 40:
            real(descriptor, bytes(data)[:40])
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(DiskFull):
        log.append([Draft(3, message=user("z" * 100))], epoch=1)
    monkeypatch.undo()
    assert log.path.read_bytes() == before
    assert log.append([Draft(3, message=user("ok"))], epoch=1)[0].seq == 3


def _append_many(path: str, name: str, count: int) -> None:
    log = ThreadLog(Path(path))
    for number in range(count):
        log.append([Draft(1, message=user(f"{name}-{number}"))], epoch=1)


def test_two_processes_append_without_losing_or_splitting_a_line(log):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_append_many, args=(str(log.path), name, 100)) for name in "ab"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    read = everything(ThreadLog(log.path))
    assert seqs(read) == list(range(1, 201))
    words = [record.message["parts"][0]["content"] for record in read]
    assert [w for w in words if w.startswith("a")] == [f"a-{n}" for n in range(100)]
    assert [w for w in words if w.startswith("b")] == [f"b-{n}" for n in range(100)]


# -- the format ---------------------------------------------------------------------------------------------


GOLDEN = Path(__file__).parent / "golden"


def test_the_golden_log_of_version_1_loads_byte_for_byte():
    path = GOLDEN / "v1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    assert [parse(line).dump() for line in lines] == lines
    kinds = [parse(line).event_type or parse(line).message["parts"][0]["part_kind"] for line in lines]
    assert kinds == [
        "thread_created", "turn_started", "user-prompt", "request", "thinking", "tool-return", "request", "text",
        "turn_ended",
    ]  # fmt: skip


def test_the_golden_messages_keep_signatures_and_provider_details():
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    lines = (GOLDEN / "v1.jsonl").read_bytes().splitlines()
    messages = [m for line in lines if (m := parse(line).message) is not None]
    loaded = ModelMessagesTypeAdapter.validate_python(messages)
    thinking = loaded[1].parts[0]
    assert (thinking.signature, thinking.provider_name) == ("c2lnbmF0dXJl", "anthropic")
    assert loaded[1].provider_response_id == "msg_01"
    again = orjson.loads(ModelMessagesTypeAdapter.dump_json(loaded, exclude_none=True))
    assert again[1]["parts"][0]["signature"] == messages[1]["parts"][0]["signature"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(json_values, st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_record_round_trips_whatever_its_message_holds(content, turn, tokens):
    message = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": content}]}
    record = Record(1, "id", None, turn, "2026-12-01T00:00:00.000Z", 1, tokens, message, None)
    assert parse(record.dump()) == record
    assert record.dump().count(b"\n") == 1


def test_a_lone_surrogate_is_logged_as_a_question_mark(log):
    log.append([Draft(1, message=user("broken \ud83d emoji"))], epoch=1)
    assert everything(ThreadLog(log.path))[0].message == user("broken ? emoji")


def test_binary_content_is_stored_once_and_comes_back_byte_for_byte(tmp_path):
    blobs = Blobs(tmp_path / "blobs")
    image = {"kind": "binary", "data": "iVBORw0KGgo=", "media_type": "image/png"}
    message = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": ["look", image, image]}]}
    stored = blobs.deflate(message)
    assert "iVBOR" not in str(stored)
    assert len(list((tmp_path / "blobs").iterdir())) == 1
    assert blobs.inflate(stored)["parts"][0]["content"][1]["data"] == "iVBORw0KGgo="
    assert blobs.get("../../etc/passwd") is None
