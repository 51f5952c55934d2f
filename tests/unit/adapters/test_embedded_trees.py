"""Trees: identity depends on content alone, and work is in proportion to the change."""

from __future__ import annotations

import hashlib
import time

from hypothesis import given
from hypothesis import strategies as st

from perago.adapters.embedded.store import trees

ENDS = [key for n in range(8000) if hashlib.sha256((key := f"k{n}").encode()).digest()[0] == 0]
KEYS = ENDS[:16] + [f"k{n}" for n in range(0, 4000, 200)] + ["é", "日/本", "😀", "k", "k\t"]
"""Half of them end a range, so that a handful of entries is cut, joined and split."""

contents = st.dictionaries(st.sampled_from(KEYS), st.integers(0, 3))
edits = st.dictionaries(st.sampled_from(KEYS), st.one_of(st.none(), st.integers(0, 3)))


class Shelf:
    """Ranges by id, as the store keeps them, and a count of how many were read."""

    def __init__(self):
        self.bodies = {}
        self.reads = 0

    def load(self, range_id):
        self.reads += 1
        return self.bodies[range_id]

    def apply(self, tree, changes):
        built = trees.apply(tree, sorted(changes.items()), self.load)
        self.bodies.update(built.ranges)
        return built

    def build(self, content):
        return self.apply((), {key: entry(key, value) for key, value in content.items()})


def entry(key, value):
    return (key, hashlib.sha256(str(value).encode()).hexdigest(), value)


def as_changes(edit):
    return {key: None if value is None else entry(key, value) for key, value in edit.items()}


def edited(content, edit):
    after = {**content, **edit}
    return {key: value for key, value in after.items() if value is not None}


def entries_of(content):
    return sorted(entry(key, value) for key, value in content.items())


@given(contents, st.lists(edits, max_size=5))
def test_a_tree_changed_step_by_step_is_the_tree_built_from_scratch(content, steps):
    shelf = Shelf()
    built = shelf.build(content)
    for edit in steps:
        built = shelf.apply(trees.decode_tree(built.body), as_changes(edit))
        content = edited(content, edit)
        assert built.id == shelf.build(content).id
    assert list(trees.scan(trees.decode_tree(built.body), "", shelf.load)) == entries_of(content)


@given(contents)
def test_every_range_but_the_last_ends_with_a_key_that_ends_ranges(content):
    tree = trees.decode_tree(Shelf().build(content).body)
    assert all(span.last in ENDS for span in tree[:-1])
    assert sum(span.length for span in tree) == len(content)


@given(contents, st.sampled_from(["", "k", "k1", "k12", "é", "日/", "zzz", *ENDS[:3]]))
def test_a_scan_finds_exactly_the_keys_that_start_with_the_prefix(content, prefix):
    shelf = Shelf()
    tree = trees.decode_tree(shelf.build(content).body)
    expected = [e for e in entries_of(content) if e[0].startswith(prefix)]
    assert list(trees.scan(tree, prefix, shelf.load)) == expected


@given(contents, contents)
def test_a_diff_turns_one_tree_into_the_other(before, after):
    shelf = Shelf()
    old, new = (trees.decode_tree(shelf.build(content).body) for content in (before, after))
    steps = list(trees.diff(old, new, "", shelf.load))
    assert [step.key for step in steps] == sorted(
        key for key in before.keys() | after.keys() if before.get(key) != after.get(key)
    )
    assert shelf.apply(old, {s.key: s.after for s in steps}).id == shelf.build(after).id
    assert shelf.apply(new, {s.key: s.before for s in steps}).id == shelf.build(before).id


@given(contents, edits)
def test_an_overlay_looks_like_the_changed_tree(content, edit):
    changes = sorted(as_changes(edit).items())
    assert list(trees.overlay(iter(entries_of(content)), changes)) == entries_of(
        edited(content, edit)
    )


@given(contents, edits)
def test_only_changes_that_change_something_are_effective(content, edit):
    shelf = Shelf()
    tree = trees.decode_tree(shelf.build(content).body)
    steps = list(trees.effective(tree, sorted(as_changes(edit).items()), shelf.load))
    assert [s.key for s in steps] == sorted(k for k, v in edit.items() if content.get(k) != v)
    for key in KEYS:
        expected = entry(key, content[key]) if key in content else None
        assert trees.find(tree, key, shelf.load) == expected


@given(contents, edits, edits)
def test_a_merge_applies_their_changes_or_names_the_keys_both_changed(base, ours, theirs):
    shelf = Shelf()
    mine, yours = edited(base, ours), edited(base, theirs)
    base_tree, our_tree, their_tree = (
        trees.decode_tree(shelf.build(content).body) for content in (base, mine, yours)
    )
    merged = trees.merge(base_tree, our_tree, their_tree, shelf.load)
    expected = dict(mine)
    conflicts = []
    for key in sorted(base.keys() | mine.keys() | yours.keys()):
        if yours.get(key) in (base.get(key), mine.get(key)):
            continue
        if mine.get(key) != base.get(key):
            conflicts.append(key)
        elif key in yours:
            expected[key] = yours[key]
        else:
            expected.pop(key, None)
    assert merged.conflicts == conflicts
    assert shelf.apply(our_tree, dict(merged.changes)).id == shelf.build(expected).id


def test_ten_changes_in_a_flat_directory_of_100_000_files_touch_ten_places():
    shelf = Shelf()
    built = shelf.build({f"flat/file-{n:06}": 1 for n in range(100_000)})
    tree = trees.decode_tree(built.body)

    touched = [f"flat/file-{n:06}" for n in range(0, 100_000, 10_000)]
    changes = {key: entry(key, 2) for key in touched}
    shelf.reads = 0
    after = shelf.apply(tree, changes)
    assert shelf.reads <= 10
    assert len(after.ranges) <= 10

    shelf.reads = 0
    steps = list(trees.diff(tree, trees.decode_tree(after.body), "", shelf.load))
    assert [step.key for step in steps] == touched
    assert shelf.reads <= 20

    shelf.reads = 0
    assert len(list(trees.scan(tree, "flat/file-0500", shelf.load))) == 100
    assert shelf.reads <= 4

    began = time.perf_counter()
    assert sum(1 for _ in trees.scan(tree, "", shelf.load)) == 100_000
    assert time.perf_counter() - began < 2.0  # 0.2 s on an idle machine
