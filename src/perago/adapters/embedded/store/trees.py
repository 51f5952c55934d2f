"""Trees: sorted entries, split into ranges by content, so that a change rewrites few ranges.

A tree is the list of its ranges, a range is the list of its entries, and the id of both is the hash
of their encoding. A range ends after a key whose own hash begins with a zero byte. So the split
depends only on the keys in the tree: equal content has an equal id, two trees share every range
that is equal, and a comparison reads only the ranges that differ.

The functions do no I/O: they read ranges through the ``load`` that is passed in, which is
:meth:`TreeRows.load`.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, NamedTuple

from perago.errors import CorruptObjectError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from perago.adapters.local_io.sqlite import Database


Entry = tuple[str, str, int]
"""An object: key, sha256 of its bytes, size."""
Change = tuple[str, Entry | None]
"""A key's new entry; None deletes it. Lists of changes are sorted and have each key once."""


class Range(NamedTuple):
    """Neighbouring entries, stored once under the hash of their encoding."""

    first: str
    last: str
    length: int
    id: str


class Step(NamedTuple):
    """One key whose entry differs between two states; an absent side is None."""

    key: str
    before: Entry | None
    after: Entry | None


Tree = tuple[Range, ...]
_key_of = itemgetter(0)
_last_of = attrgetter("last")


@dataclass(frozen=True, slots=True)
class BuiltTree:
    """A tree with the encodings its store may not have yet."""

    id: str
    body: bytes
    ranges: Mapping[str, bytes]


class Merged(NamedTuple):
    """What a three-way merge changes on one side, and the keys that conflict."""

    changes: list[Change]
    conflicts: list[str]


# --- encoding ------------------------------------------------------------------------------------


def content_id(body: bytes) -> str:
    """The id of an encoded tree or range."""
    return hashlib.sha256(body).hexdigest()


def decode_tree(body: bytes) -> Tree:
    """The ranges a tree is made of, in order."""
    return tuple(Range(*fields) for fields in json.loads(body))


def decode_range(body: bytes) -> list[Entry]:
    """The entries of one range, in order."""
    return [(key, sha256, size) for key, sha256, size in json.loads(body)]


def _encode(rows: Sequence[tuple[object, ...]]) -> bytes:
    # JSON: the sqlite3 shell is enough to read it, and the standard library's parser in C reads
    # 100,000 entries in a tenth of a second. Always written the same way: its hash is the id.
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode()


def _ends_range(key: str) -> bool:
    """True for one key in 256. A cryptographic hash, so that no naming scheme defeats it."""
    return hashlib.sha256(key.encode()).digest()[0] == 0


# --- building ------------------------------------------------------------------------------------


def apply(tree: Tree, changes: Sequence[Change], load: Callable[[str], bytes]) -> BuiltTree:
    """Apply ``changes`` to ``tree``; reads and encodes only the ranges they touch."""
    ranges: list[Range] = []
    encoded: dict[str, bytes] = {}
    unended: list[Entry] = []
    done = 0
    for number, span in enumerate(tree):
        is_last = number == len(tree) - 1
        upto = len(changes) if is_last else bisect_right(changes, span.last, done, key=_key_of)
        if done == upto and not unended:
            ranges.append(span)
            continue
        unended += _changed(decode_range(load(span.id)), changes[done:upto])
        unended = _cut(unended, ranges, encoded)
        done = upto
    unended = _cut(_changed(unended, changes[done:]), ranges, encoded)
    if unended:
        _end_range(unended, ranges, encoded)
    body = _encode(ranges)
    return BuiltTree(content_id(body), body, encoded)


def _changed(entries: list[Entry], changes: Sequence[Change]) -> list[Entry]:
    if not changes:
        return entries
    by_key = {entry[0]: entry for entry in entries}
    for key, entry in changes:
        if entry is None:
            by_key.pop(key, None)
        else:
            by_key[key] = entry
    return sorted(by_key.values())


def _cut(entries: list[Entry], ranges: list[Range], encoded: dict[str, bytes]) -> list[Entry]:
    """End a range at every key that ends one; return the entries after the last of them."""
    start = 0
    for position, entry in enumerate(entries, 1):
        if _ends_range(entry[0]):
            _end_range(entries[start:position], ranges, encoded)
            start = position
    return entries[start:]


def _end_range(entries: list[Entry], ranges: list[Range], encoded: dict[str, bytes]) -> None:
    body = _encode(entries)
    name = content_id(body)
    encoded[name] = body
    ranges.append(Range(entries[0][0], entries[-1][0], len(entries), name))


EMPTY = apply((), (), lambda _: b"")
"""The tree of a new repository."""


# --- reading -------------------------------------------------------------------------------------


def scan(tree: Sequence[Range], prefix: str, load: Callable[[str], bytes]) -> Iterator[Entry]:
    """Entries whose key starts with ``prefix``, in order, holding one range at a time."""
    for position in range(bisect_left(tree, prefix, key=_last_of), len(tree)):
        span = tree[position]
        if span.first > prefix and not span.first.startswith(prefix):
            return
        entries = decode_range(load(span.id))
        if span.first.startswith(prefix) and span.last.startswith(prefix):
            yield from entries
        else:
            yield from (entry for entry in entries if entry[0].startswith(prefix))


def overlay(entries: Iterable[Entry], changes: Sequence[Change]) -> Iterator[Entry]:
    """``entries`` with ``changes`` applied."""
    done = 0
    for entry in entries:
        while done < len(changes) and changes[done][0] < entry[0]:
            if (added := changes[done][1]) is not None:
                yield added
            done += 1
        if done < len(changes) and changes[done][0] == entry[0]:
            if (replaced := changes[done][1]) is not None:
                yield replaced
            done += 1
        else:
            yield entry
    yield from (added for _, added in changes[done:] if added is not None)


def effective(
    tree: Tree, changes: Iterable[Change], load: Callable[[str], bytes]
) -> Iterator[Step]:
    """Those of ``changes`` that would change ``tree``; reads only the ranges they touch."""
    current: Range | None = None
    known: dict[str, Entry] = {}
    for key, after in changes:
        position = bisect_left(tree, key, key=_last_of)
        span = tree[position] if position < len(tree) else None
        if span is not current:
            known = {} if span is None else {e[0]: e for e in decode_range(load(span.id))}
            current = span
        before = known.get(key)
        if before != after:
            yield Step(key, before, after)


def find(tree: Tree, key: str, load: Callable[[str], bytes]) -> Entry | None:
    """The entry of one key."""
    return next((step.before for step in effective(tree, [(key, None)], load)), None)


# --- comparing -----------------------------------------------------------------------------------


def diff(before: Tree, after: Tree, prefix: str, load: Callable[[str], bytes]) -> Iterator[Step]:
    """How two trees differ, in key order; ranges they share are never read.

    A shared range has the same entries on both sides, so skipping it neither hides nor adds a
    difference.
    """
    shared = {span.id for span in before} & {span.id for span in after}
    olds = scan([span for span in before if span.id not in shared], prefix, load)
    news = scan([span for span in after if span.id not in shared], prefix, load)
    old, new = next(olds, None), next(news, None)
    while old is not None or new is not None:
        if new is None or (old is not None and old[0] < new[0]):
            assert old is not None  # noqa: S101 - for the type checker: one of the two is there
            yield Step(old[0], old, None)
            old = next(olds, None)
        elif old is None or new[0] < old[0]:
            yield Step(new[0], None, new)
            new = next(news, None)
        else:
            if old != new:
                yield Step(old[0], old, new)
            old, new = next(olds, None), next(news, None)


def merge(base: Tree, ours: Tree, theirs: Tree, load: Callable[[str], bytes]) -> Merged:
    """The changes from ``base`` to ``theirs`` that ``ours`` does not have yet.

    A key conflicts if its entry in ``ours`` is neither the one in ``base`` nor the one in
    ``theirs``.
    """
    steps = {step.key: step for step in diff(base, theirs, "", load)}
    pending = effective(ours, [(step.key, step.after) for step in steps.values()], load)
    changes: list[Change] = []
    conflicts: list[str] = []
    for key, here, after in pending:
        if here == steps[key].before:
            changes.append((key, after))
        else:
            conflicts.append(key)
    return Merged(changes, conflicts)


# --- rows ----------------------------------------------------------------------------------------


class TreeRows:
    """Trees and ranges in the database, checked against their ids whenever they are read.

    Reads happen in the calling thread's transaction, if it has one.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def tree(self, tree: str) -> Tree:
        """Raises :class:`CorruptObjectError` if the tree is missing or damaged."""
        return decode_tree(self.built(tree).body)

    def built(self, tree: str) -> BuiltTree:
        """A tree that is stored already. Raises as :meth:`tree` does."""
        body = self._body("SELECT CAST(body AS BLOB) FROM trees WHERE id = ?", "tree", tree)
        return BuiltTree(tree, body, {})

    def load(self, range_id: str) -> bytes:
        """Raises :class:`CorruptObjectError` if the range is missing or damaged."""
        return self._body("SELECT CAST(body AS BLOB) FROM ranges WHERE id = ?", "range", range_id)

    def insert(self, connection: sqlite3.Connection, built: BuiltTree) -> None:
        """Write a tree and its ranges, as far as they are missing, in the caller's transaction."""
        connection.executemany("INSERT OR IGNORE INTO ranges VALUES (?, ?)", built.ranges.items())
        connection.execute("INSERT OR IGNORE INTO trees VALUES (?, ?)", (built.id, built.body))

    def _body(self, sql: str, kind: str, name: str) -> bytes:
        rows = self._database.query(sql, name)
        if rows and content_id(rows[0][0]) == name:
            return bytes(rows[0][0])
        raise CorruptObjectError(
            f"{kind} {name} of the store is {'damaged' if rows else 'missing'}",
            fix="run `perago verify` to see all the damage, then restore the store from a backup",
        )
