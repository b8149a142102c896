"""The log of one thread: durable append, reading from the tail, branches, repair.

One file, one record a line, written under a lock that other processes respect. Readers take no lock: they
see whole lines only. A living process keeps the newest part of the active branch parsed, and reads only
what was appended since; the cost of a turn doesn't depend on the length of the file (I15).

Damage costs the damaged line and nothing else (I19): a torn last line is kept aside and reported, an
unreadable line or a missing parent becomes a `Gap`, and the chain goes on with the next older record.
"""

from __future__ import annotations

import fcntl
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from glob import escape as glob_escape
from pathlib import Path
from typing import Final

from tenuto.codec import new_id, stamp
from tenuto.disk import full_disk, sync_dir, write_atomic
from tenuto.errors import ThreadCleared
from tenuto.log.blobs import Blobs
from tenuto.log.record import DamagedLine, Draft, Gap, Record, parse

BLOCK: Final = 64 * 1024
"""Bytes read at a time when going backwards."""

BRANCH_SELECTED = "branch_selected"
"""Event that makes `head` (a record id) the newest record of the active branch."""


_QUESTION: Final = b'"part_kind":"user-prompt"'
_HEAD: Final = re.compile(
    rb'\{"v":1,"seq":([0-9]+),"id":"([0-9a-f-]{36})","parent":(?:null|"([0-9a-f-]{36})"),"turn":'
)
"""How every line of this version begins; another spelling of the same JSON is parsed instead."""


class ThreadLog:
    """One thread's log. Not thread-safe: one event loop or thread uses an instance at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = str(path)
        self._lock_file = str(path.with_suffix(".lock"))
        self.blobs = Blobs(path.with_suffix(".blobs"))
        self.gaps: list[Gap] = []
        """What was stepped over so far, without repeats."""
        self.bytes_read = 0
        self.fsyncs = 0
        self.bytes_written = 0
        self._reset()

    # -- state ------------------------------------------------------------------------------------------

    def _reset(self) -> None:
        self._inode = 0
        self._size = 0
        self._last_seq = 0
        self._last_epoch = 0
        self._head: str | None = None
        self._chain: list[Record] = []
        self._offsets: list[int] = []
        self._whole = True
        self._spans: list[list[int]] | None = None

    def refresh(self) -> None:
        """Take in what this or another process appended. Cost: the bytes appended since the last call."""
        try:
            found = os.stat(self._file)
        except FileNotFoundError:
            self._reset()
            return
        if found.st_ino == self._inode and found.st_size == self._size:
            return
        with self.path.open("rb") as stream:
            if found.st_ino != self._inode or found.st_size < self._size or self._size == 0:
                self._open_tail(stream.fileno(), found)
            else:
                self._read_new(stream.fileno(), found)

    def _open_tail(self, descriptor: int, found: os.stat_result) -> None:
        self._reset()
        self._inode = found.st_ino
        end = self._whole_lines_end(descriptor, found.st_size)
        self._size = end
        for offset, line in self._lines_before(descriptor, end):
            record = self._parse(line, near=0)
            if record is None:
                continue
            self._last_seq = record.seq
            self._last_epoch = record.epoch
            self._select(record, offset)
            break

    def _read_new(self, descriptor: int, found: os.stat_result) -> None:
        raw = os.pread(descriptor, found.st_size - self._size, self._size)
        self.bytes_read += len(raw)
        raw = raw[: raw.rfind(b"\n") + 1]
        offset = self._size
        for line in raw.splitlines(keepends=True):
            record = self._parse(line, near=self._last_seq)
            if record is not None:
                self._take(record, offset)
            offset += len(line)
        self._size = offset

    def _take(self, record: Record, offset: int) -> None:
        self._last_seq = record.seq
        if record.event_type != BRANCH_SELECTED and (record.parent == self._head or not self._chain):
            if not self._chain:
                self._whole = record.parent is None
            self._chain.append(record)
            self._offsets.append(offset)
            self._head = record.id
            if self._spans:
                _extend(self._spans, record.seq)
        else:
            self._spans = None
            self._select(record, offset)

    def _select(self, record: Record, offset: int) -> None:
        """Make the branch that ends in `record` (or that it names) the active one."""
        if record.event_type == BRANCH_SELECTED and record.event is not None:
            self._head = str(record.event["head"])
            at = next((i for i, known in enumerate(self._chain) if known.id == self._head), None)
            if at is None:
                self._chain, self._offsets, self._whole = [], [], False
                self._chain_end = offset
            else:
                del self._chain[at + 1 :], self._offsets[at + 1 :]
            return
        at = next((i for i, known in enumerate(self._chain) if known.id == record.parent), None)
        if at is None:
            self._chain, self._offsets = [record], [offset]
            self._whole = record.parent is None
        else:
            self._chain[at + 1 :], self._offsets[at + 1 :] = [record], [offset]
        self._head = record.id

    # -- reading ----------------------------------------------------------------------------------------

    @property
    def head(self) -> str | None:
        """Id of the newest record of the active branch."""
        self.refresh()
        return self._head

    @property
    def last_seq(self) -> int:
        """Sequence number of the last line, 0 for an empty log."""
        self.refresh()
        return self._last_seq

    def back_to(self, stop: Callable[[Record], bool]) -> list[Record]:
        """The active branch, oldest first, from the newest record for which `stop` holds (inclusive).

        Without such a record: the whole branch. Reads no further back than needed.
        """
        self.refresh()
        for index in range(len(self._chain) - 1, -1, -1):
            if stop(self._chain[index]):
                return self._chain[index:]
        if not self._whole:
            older: list[tuple[int, Record]] = []
            for offset, record in self._walk(*self._oldest()):
                older.append((offset, record))
                if stop(record):
                    break
            else:
                self._whole = True
            older.reverse()
            self._offsets[:0] = [offset for offset, _ in older]
            self._chain[:0] = [record for _, record in older]
        return list(self._chain)

    def after(self, record: Record) -> list[Record] | None:
        """What the active branch has after `record`, or None if `record` isn't in memory on that branch."""
        self.refresh()
        at = bisect_left(self._chain, record.seq, key=lambda known: known.seq)
        if at < len(self._chain) and self._chain[at] is record:
            return self._chain[at + 1 :]
        return None

    def forget_before(self, seq: int) -> None:
        """Drop parsed records older than `seq` from memory. The file keeps them (I2)."""
        keep = next((i for i, record in enumerate(self._chain) if record.seq >= seq), 0)
        if keep:
            del self._chain[:keep], self._offsets[:keep]
            self._whole = False

    def page(self, before_seq: int | None, limit: int) -> list[Record]:
        """Up to `limit` records of the active branch older than `before_seq` (None: newest), oldest first."""
        self.refresh()
        found: list[Record] = []
        for record in reversed(self._chain):
            if len(found) == limit:
                break
            if before_seq is None or record.seq < before_seq:
                found.append(record)
        if len(found) < limit and not self._whole:
            for _, record in self._walk(*self._oldest()):
                if before_seq is None or record.seq < before_seq:
                    found.append(record)
                if len(found) == limit:
                    break
        found.reverse()
        return found

    def branch(self, newest: Record, stop: Callable[[Record], bool]) -> list[Record]:
        """The branch that ends in `newest`, active or not, back to the first record for which `stop` holds.

        Oldest first. O(bytes from `newest` back to that record).
        """
        found = [newest]
        place = self._find(newest.seq)
        if place is not None and not stop(newest):
            for _, record in self._walk(place[0], newest.parent):
                found.append(record)
                if stop(record):
                    break
        found.reverse()
        return found

    def questions_after(self, seq: int) -> list[tuple[int, Record]]:
        """`(offset, question)` of the active branch after record `seq`, oldest first.

        Lines that hold none are followed by their first bytes and not parsed. O(bytes after `seq`).
        """
        self.refresh()
        known = zip(reversed(self._offsets), reversed(self._chain), strict=True)
        found = [(at, record) for at, record in known if record.is_question and record.seq > seq]
        if not self._whole and (not self._chain or self._chain[0].seq > seq):
            start, want = self._oldest()
            found.extend(self._walk(start, want, keep=lambda line: _QUESTION in line, after=seq))
        found.reverse()
        return found

    def forward(self, after: int, before: int) -> Iterator[Record]:
        """The records between two sequence numbers (both excluded) in the file's order, all branches.

        Lazy: O(log size) to find the first, then the bytes of what is taken.
        """
        return (record for _, record in self.forward_places(after, before))

    def forward_places(self, after: int, before: int) -> Iterator[tuple[int, Record]]:
        """As `forward`, with where each line begins."""
        self.refresh()
        if self._size == 0:
            return
        place = self._find(after) if after > 0 else None
        with self.path.open("rb") as stream:
            for offset, line in self._lines_from(stream.fileno(), place[0] if place else 0):
                record = self._parse(line, near=after)
                if record is not None and record.seq >= before:
                    return
                if record is not None and record.seq > after:
                    yield offset, record

    def spans(self) -> tuple[tuple[int, int], ...]:
        """Which records the active branch holds, as inclusive ranges of sequence numbers, oldest first.

        Reads every line's head once, O(file), then keeps the answer up to date; another branch asks again.
        """
        self.refresh()
        if self._spans is None:
            found: list[list[int]] = []
            want = self._head
            with self.path.open("rb") as stream:
                for _, line in self._lines_before(stream.fileno(), self._size):
                    head = _HEAD.match(line)
                    if want is None or head is None or head[2].decode() != want:
                        continue
                    seq = int(head[1])
                    if found and found[-1][0] == seq + 1:
                        found[-1][0] = seq
                    else:
                        found.append([seq, seq])
                    want = head[3].decode() if head[3] else None
            self._spans = found[::-1]
        return tuple((first, last) for first, last in self._spans)

    def offset_of(self, record: Record) -> int:
        """Where the line of a record in memory begins, -1 if it isn't in memory."""
        at = bisect_left(self._chain, record.seq, key=lambda known: known.seq)
        return self._offsets[at] if at < len(self._chain) and self._chain[at] is record else -1

    def read_at(self, places: Sequence[tuple[int, int]]) -> list[tuple[int, Record]] | None:
        """The records at these `(seq, offset)`, or None if one isn't there. O(their bytes)."""
        self.refresh()
        found: list[tuple[int, Record]] = []
        with self.path.open("rb") as stream:
            for seq, offset in places:
                stream.seek(max(0, offset))
                record = self._parse(stream.readline(), near=seq)
                if record is None or record.seq != seq:
                    return None
                found.append((offset, record))
        return found

    def _oldest(self) -> tuple[int, str | None]:
        """Where to read on backwards from what is parsed, and the record to look for there."""
        if self._chain:
            return self._offsets[0], self._chain[0].parent
        return self._chain_end, self._head

    def find(self, seq: int) -> Record | None:
        """The record with this sequence number, on whatever branch. O(log size) reads of a line."""
        self.refresh()
        for record in self._chain[-8:]:
            if record.seq == seq:
                return record
        place = self._find(seq)
        return place[1] if place else None

    def _find(self, seq: int) -> tuple[int, Record] | None:
        if self._size == 0:
            return None
        with self.path.open("rb") as stream:
            low, high = 0, self._size
            while high - low > BLOCK:
                middle = (low + high) // 2
                offset, record = self._next_record(stream.fileno(), middle)
                if record is None or offset >= high:
                    high = middle
                elif record.seq == seq:
                    return offset, record
                elif record.seq < seq:
                    low = offset
                else:
                    high = middle
            for offset, line in self._lines_from(stream.fileno(), self._line_start(stream.fileno(), low)):
                record = self._parse(line, near=seq)
                if record is not None and record.seq >= seq:
                    return (offset, record) if record.seq == seq else None
        return None

    def scan(self) -> Iterator[Record]:
        """Every readable record of the file in order, all branches. O(file); damage goes to `gaps`."""
        self.refresh()
        if self._size == 0:
            return
        previous = 0
        with self.path.open("rb") as stream:
            for _, line in self._lines_from(stream.fileno(), 0):
                record = self._parse(line, near=previous)
                if record is not None:
                    if record.seq > previous + 1:
                        self._report(
                            Gap("missing", record.seq, f"{record.seq - previous - 1} lines are missing")
                        )
                    previous = record.seq
                    yield record

    def leaves(self) -> list[Record]:
        """The newest record of every branch, oldest first. O(file)."""
        last: dict[str, Record] = {}
        for record in self.scan():
            if record.event_type != BRANCH_SELECTED:
                if record.parent is not None:
                    last.pop(record.parent, None)
                last[record.id] = record
        return sorted(last.values(), key=lambda record: record.seq)

    def _walk(
        self,
        start: int,
        want: str | None,
        keep: Callable[[bytes], bool] | None = None,
        after: int = 0,
    ) -> Iterator[tuple[int, Record]]:
        """The branch that ends in record `want`, newest first, reading back from byte `start`.

        With `keep`, only lines for which it holds are parsed and yielded. Ends at record `after`. Where
        `want` can't be found down to the file's beginning, its place is taken by the next older record, and
        the gap is reported.
        """
        if want is None:
            return
        with self.path.open("rb") as stream:
            descriptor = stream.fileno()
            while True:
                candidate: Record | None = None
                above = 0
                for offset, line in self._lines_before(descriptor, start):
                    if keep is not None and (head := _HEAD.match(line)) and not keep(line):
                        above = int(head[1])
                        if head[2].decode() == want:
                            want, start, candidate = head[3].decode() if head[3] else None, offset, None
                            if want is None or above <= after:
                                return
                        continue
                    record = self._parse(line, near=above)
                    if record is None:
                        continue
                    if above and record.seq < above - 1:
                        missing = above - record.seq - 1
                        self._report(Gap("missing", above, f"{missing} lines are missing"))
                    above = record.seq
                    if record.id == want:
                        if record.seq <= after:
                            return
                        yield offset, record
                        want, start, candidate = record.parent, offset, None
                        if want is None:
                            return
                    elif candidate is None and record.event_type != BRANCH_SELECTED:
                        candidate = record
                if candidate is None:
                    self._report(Gap("parent", 0, f"record {want} is missing; nothing older is readable"))
                    return
                note = f"record {want} is missing; continued with #{candidate.seq}"
                self._report(Gap("parent", candidate.seq, note))
                want = candidate.id

    def _parse(self, line: bytes, *, near: int) -> Record | None:
        try:
            return parse(line)
        except DamagedLine as error:
            self._report(Gap("damaged", near, error.message))
            return None

    def _report(self, gap: Gap) -> None:
        if gap not in self.gaps:
            self.gaps.append(gap)

    def _lines_before(self, descriptor: int, end: int) -> Iterator[tuple[int, bytes]]:
        """`(offset, line)` of the whole lines before byte `end`, newest first."""
        rest = b""
        position = end
        while position > 0:
            start = max(0, position - BLOCK)
            block = os.pread(descriptor, position - start, start)
            self.bytes_read += len(block)
            data = block + rest
            pieces = data.split(b"\n")
            rest = pieces[0]
            offset = start + len(data)
            for piece in reversed(pieces[1:]):
                offset -= len(piece)
                if piece:
                    yield offset, piece
                offset -= 1
            position = start
        if rest:
            yield 0, rest

    def _lines_from(self, descriptor: int, start: int) -> Iterator[tuple[int, bytes]]:
        """`(offset, line)` of the whole lines from byte `start` on."""
        rest = b""
        position, offset = start, start
        while position < self._size:
            block = os.pread(descriptor, min(BLOCK * 4, self._size - position), position)
            if not block:
                return
            self.bytes_read += len(block)
            position += len(block)
            pieces = (rest + block).split(b"\n")
            rest = pieces.pop()
            for piece in pieces:
                if piece:
                    yield offset, piece
                offset += len(piece) + 1

    def _line_start(self, descriptor: int, offset: int) -> int:
        """Where the first whole line at or after `offset` begins."""
        if offset == 0 or os.pread(descriptor, 1, offset - 1) == b"\n":
            return offset
        while offset < self._size:
            block = os.pread(descriptor, BLOCK, offset)
            self.bytes_read += len(block)
            at = block.find(b"\n")
            if at >= 0:
                return offset + at + 1
            offset += len(block) or 1
        return self._size

    def _next_record(self, descriptor: int, offset: int) -> tuple[int, Record | None]:
        for at, line in self._lines_from(descriptor, self._line_start(descriptor, offset)):
            record = self._parse(line, near=0)
            if record is not None:
                return at, record
        return self._size, None

    def _whole_lines_end(self, descriptor: int, size: int) -> int:
        """The offset after the last newline: a line still being written isn't there yet."""
        position = size
        while position > 0:
            start = max(0, position - BLOCK)
            block = os.pread(descriptor, position - start, start)
            at = block.rfind(b"\n")
            if at >= 0:
                return start + at + 1
            position = start
        return 0

    # -- writing ----------------------------------------------------------------------------------------

    def append(self, drafts: Sequence[Draft], *, epoch: int, parent: str | None = None) -> list[Record]:
        """Append records that settled together, durably, with one fsync.

        `parent` starts a branch behind that record; by default the active branch goes on. Raises
        `DiskFull`, and then the log is as before. Cost: the bytes of the records.
        """
        with _Lock(self._lock_file):
            # A log that was there and is gone was deleted: a late writer must not bring it back (I10).
            create = 0 if self._inode else os.O_CREAT
            try:
                descriptor = os.open(self._file, os.O_RDWR | create | os.O_APPEND | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                raise _cleared() from None
            try:
                records = self._append(descriptor, drafts, epoch, parent)
            finally:
                os.close(descriptor)
        if records and records[0].seq == 1:
            sync_dir(self.path.parent)
        return records

    def clear(self, first: Record) -> list[Path]:
        """Put a log that holds only `first` in the place of this one, with no blobs and no fragments.

        Writers that had the old one open are refused. Returns the paths of what was there.
        """
        with _Lock(self._lock_file):
            gone = self.paths()
            write_atomic(self.path, first.dump(), mode=0o600)
            for path in gone:
                if path != self.path:
                    path.unlink(missing_ok=True)
            self.blobs.remove_folder()
        self._reset()
        return gone

    def remove(self) -> list[Path]:
        """Delete the log with all that belongs to it; returns the paths of what was there."""
        with _Lock(self._lock_file):
            gone = self.paths()
            for path in gone:
                path.unlink(missing_ok=True)
            self.blobs.remove_folder()
            sync_dir(self.path.parent)
        self._reset()
        return gone

    def paths(self) -> list[Path]:
        """The files that hold content of this log: itself, fragments put aside, blobs."""
        torn = sorted(self.path.parent.glob(f"{glob_escape(self.path.stem)}.torn-*"))
        own = [self.path] if self.path.exists() else []
        return [*own, *torn, *self.blobs.paths()]

    def select(self, head: str, *, turn: int, epoch: int) -> Record:
        """Make the branch that ends in record `head` the active one ("go back")."""
        return self.append([Draft(turn, event={"type": BRANCH_SELECTED, "head": head})], epoch=epoch)[0]

    def _append(
        self, descriptor: int, drafts: Sequence[Draft], epoch: int, parent: str | None
    ) -> list[Record]:
        found = os.fstat(descriptor)
        if found.st_size != self._size or found.st_ino != self._inode:
            self._repair(descriptor, found.st_size)
            replaced = bool(self._inode) and found.st_ino != self._inode
            self.refresh()
            if replaced and self._last_epoch > epoch:
                raise _cleared()
        before, previous, at = parent or self._head, self._last_seq, stamp()
        records: list[Record] = []
        for draft in drafts:
            previous += 1
            record = Record(
                seq=previous,
                id=new_id(),
                parent=before,
                turn=draft.turn,
                at=at,
                epoch=epoch,
                tokens=draft.tokens,
                message=draft.message,
                event=draft.event,
            )
            records.append(record)
            before = record.id
        lines = [record.dump() for record in records]
        start = self._size
        self._write(descriptor, b"".join(lines), start)
        self._inode = found.st_ino
        for record, line in zip(records, lines, strict=True):
            self._take(record, start)
            start += len(line)
        self._size = start
        return records

    def _write(self, descriptor: int, raw: bytes, start: int) -> None:
        view = memoryview(raw)
        try:
            while view:
                view = view[os.write(descriptor, view) :]
            os.fdatasync(descriptor)
        except OSError as error:
            os.ftruncate(descriptor, start)
            raise full_disk(error, self.path) or error from error
        self.fsyncs += 1
        self.bytes_written += len(raw)

    def _repair(self, descriptor: int, size: int) -> None:
        """Finish or put aside a last line that a crash cut short. The caller holds the lock."""
        if size == 0:
            return
        if os.pread(descriptor, 1, size - 1) == b"\n":
            return
        end = self._whole_lines_end(descriptor, size)
        fragment = os.pread(descriptor, size - end, end)
        try:
            parse(fragment)
        except DamagedLine:
            aside = self.path.with_suffix(f".torn-{end}")
            write_atomic(aside, fragment, mode=0o600)
            os.ftruncate(descriptor, end)
            os.fsync(descriptor)
            self._report(Gap("torn", self._last_seq, f"{len(fragment)} bytes kept in {aside.name}"))
        else:
            os.write(descriptor, b"\n")


def _cleared() -> ThreadCleared:
    return ThreadCleared("the thread was cleared meanwhile; this is not kept", hint="send it again")


def _extend(spans: list[list[int]], seq: int) -> None:
    if spans[-1][1] == seq - 1:
        spans[-1][1] = seq
    else:
        spans.append([seq, seq])


class _Lock:
    """The append lock of a log: held for one append, by one process."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            self._descriptor = os.open(self._path, flags, 0o600)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            self._descriptor = os.open(self._path, flags, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
