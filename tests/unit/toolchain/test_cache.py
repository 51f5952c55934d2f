"""The cache of tools: complete and checked, or made anew."""

import json
import subprocess
import sys
import threading

import pytest

from perago.errors import RuntimeConfigError
from perago.toolchain.cache import Tool, cache_problem, ensure, tools_directory

TOOL = Tool("saw", "1.0", ("bin/saw",))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PERAGO_TOOLS", str(tmp_path / "tools"))
    return tmp_path / "tools"


def make_saw(room):
    (room / "bin").mkdir()
    (room / "bin" / "saw").write_bytes(b"teeth")


def test_what_was_made_is_found_again_and_not_made_twice():
    made = []

    def make(room):
        made.append(room)
        make_saw(room)

    assert cache_problem(TOOL) == "it is missing"
    first = ensure(TOOL, make, pytest.fail)
    assert ensure(TOOL, make, pytest.fail) == first
    assert len(made) == 1
    assert cache_problem(TOOL) is None


def test_a_damaged_program_is_never_used_and_is_made_again():
    saw = ensure(TOOL, make_saw, pytest.fail) / "bin" / "saw"
    saw.write_bytes(b"tooth")
    assert "isn't what was put there" in cache_problem(TOOL)
    lines = []
    ensure(TOOL, make_saw, lines.append)
    assert saw.read_bytes() == b"teeth"
    assert "damaged" in lines[0]


@pytest.mark.parametrize("text", ["", "[]", '{"sha256": {}}', '{"sha256": null}'])
def test_a_manifest_that_says_nothing_about_a_program_is_no_proof(text):
    (ensure(TOOL, make_saw, pytest.fail) / "manifest.json").write_text(text)
    assert "can't be read" in cache_problem(TOOL)


def test_a_missing_program_is_named():
    directory = ensure(TOOL, make_saw, pytest.fail)
    (directory / "bin" / "saw").unlink()
    assert str(directory / "bin" / "saw") in cache_problem(TOOL)


def test_files_that_are_too_many_to_read_each_time_are_weighed():
    box = Tool("box", "1.0", ("bin/saw",), size_checked="nails/*")

    def make(room):
        make_saw(room)
        (room / "nails").mkdir()
        (room / "nails" / "long").write_bytes(b"=====>")
        (room / "nails" / "short").write_bytes(b"=>")

    nails = ensure(box, make, pytest.fail) / "nails"
    assert cache_problem(box) is None
    (nails / "long").write_bytes(b"==>")
    assert cache_problem(box) == f"{nails / 'long'} isn't what was put there (3 of 6 bytes)"
    ensure(box, make, print)
    assert cache_problem(box) is None
    (nails / "short").unlink()
    assert str(nails / "short") in cache_problem(box)


def test_breaking_off_leaves_nothing_that_could_be_taken_for_the_tool(cache):
    def broken(room):
        make_saw(room)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure(TOOL, broken, pytest.fail)
    assert cache_problem(TOOL) == "it is missing"
    assert [entry.suffix for entry in cache.iterdir()] == [".lock"]


def test_what_a_killed_process_left_is_cleared_away(cache):
    script = (
        "import os\n"
        "from perago.toolchain.cache import Tool, ensure\n"
        "ensure(Tool('saw', '1.0', ('bin/saw',)), lambda _room: os._exit(9), print)"
    )
    dying = subprocess.run([sys.executable, "-c", script], check=False)
    assert dying.returncode == 9
    left = [entry.name for entry in cache.iterdir()]
    assert any(name.startswith(".saw-") for name in left)
    ensure(TOOL, make_saw, pytest.fail)
    assert sorted(e.name for e in cache.iterdir()) == [
        TOOL.directory.name,
        f"{TOOL.directory.name}.lock",
    ]


def test_who_comes_second_says_that_it_waits_and_makes_nothing():
    waits, lines = threading.Event(), []

    def on_line(line):
        lines.append(line)
        waits.set()

    def make(room):
        second.start()
        assert waits.wait(30)
        make_saw(room)

    second = threading.Thread(target=ensure, args=(TOOL, pytest.fail, on_line))
    ensure(TOOL, make, pytest.fail)
    second.join(30)
    assert lines == [f"waiting: another process is getting {TOOL.directory.name}"]


def test_a_cache_that_cannot_be_written_names_the_setting(cache):
    cache.write_text("a file in its place")
    with pytest.raises(RuntimeConfigError, match="can't be put into") as error:
        ensure(TOOL, make_saw, pytest.fail)
    assert "PERAGO_TOOLS" in error.value.fix


def test_the_manifest_names_the_tool_and_the_hash_of_each_program():
    manifest = json.loads((ensure(TOOL, make_saw, print) / "manifest.json").read_text())
    assert (manifest["name"], manifest["version"]) == ("saw", "1.0")
    assert list(manifest["sha256"]) == ["bin/saw"]


def test_the_cache_is_outside_the_checkout_unless_the_user_says_otherwise(monkeypatch, tmp_path):
    monkeypatch.delenv("PERAGO_TOOLS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert tools_directory() == tmp_path / "caches" / "perago"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tools_directory() == tmp_path / ".cache" / "perago"
