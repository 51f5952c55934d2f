"""What can't be stored is refused by name, whatever a task leaves behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from perago.errors import UnsupportedFileError


def a_socket(path):
    """Bind one at ``path``, which may be longer than a socket's address."""
    folder = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda path: path.symlink_to("keep"), "a symlink"),
        (lambda path: path.symlink_to("nowhere"), "a symlink"),
        (lambda path: path.symlink_to("/etc", target_is_directory=True), "a symlink"),
        (os.mkfifo, "a pipe"),
        (a_socket, "a socket"),
    ],
    ids=["symlink", "dangling symlink", "symlink to a directory", "pipe", "socket"],
)
def test_only_regular_files_are_stored(fetch, make, kind):
    workspace = fetch({"keep": "1", "sub/file": "2"})
    make(workspace.argument / "sub/odd")
    with pytest.raises(UnsupportedFileError, match=rf"'sub/odd': it is {kind}") as refused:
        workspace.scan()
    assert "regular files" in refused.value.fix


def test_a_fetched_file_that_became_a_symlink_is_refused(fetch):
    workspace = fetch({"keep": "1"})
    (workspace.argument / "keep").unlink()
    (workspace.argument / "keep").symlink_to("/etc/hostname")
    with pytest.raises(UnsupportedFileError, match="'keep'"):
        workspace.scan()


@pytest.mark.parametrize("folder", ["", "deep/er/"])
def test_the_markers_name_is_reserved_at_any_depth(fetch, folder):
    workspace = fetch({"deep/er/file": "1"})
    (workspace.argument / f"{folder}.perago-attempt.json").write_text("{}")
    with pytest.raises(UnsupportedFileError, match="reserved for the runtime"):
        workspace.scan()


@pytest.mark.parametrize("name", [b"caf\xe9", b"line\nbreak", b"bell\x07"])
def test_names_that_are_no_portable_text_are_refused(fetch, name):
    workspace = fetch({"a": "1"})
    (workspace.argument / os.fsdecode(name)).write_text("x")
    with pytest.raises(UnsupportedFileError, match="control character, an unpaired surrogate"):
        workspace.scan()


def test_a_task_can_not_add_to_the_repositorys_actions(fetch):
    workspace = fetch({"a": "1"})
    (workspace.argument / "_lakefs_actions").mkdir()
    (workspace.argument / "_lakefs_actions/mine.yaml").write_text("x")
    with pytest.raises(UnsupportedFileError, match=r"'_lakefs_actions'.*repository's own actions"):
        workspace.scan()


def test_a_removed_workspace_is_not_an_emptied_one(fetch):
    workspace = fetch({"a": "1"})
    shutil.rmtree(workspace.argument)
    with pytest.raises(UnsupportedFileError, match="removed its workspace directory"):
        workspace.scan()


def test_a_workspace_replaced_by_a_link_is_refused(fetch, tmp_path):
    workspace = fetch({"a": "1"})
    workspace.argument.rename(tmp_path / "elsewhere")
    workspace.argument.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(
        UnsupportedFileError, match="replaced its workspace directory by something else"
    ):
        workspace.scan()


SCAN_AS_SOMEBODY_WHO_IS_NOT_ROOT = """
import os, shutil, sys
from pathlib import Path
from perago.adapters.local.engine import LocalEngine
from perago.errors import UnsupportedFileError
from perago.testing import Bench

root, nobody = Path(sys.argv[1]), 65534
bench = Bench(root / "bench")
ref = bench.write({"keep": "1", "sub/file": "2"})
ws = root / "attempt" / "files"
ws.mkdir(parents=True)
workspace = LocalEngine().open(bench.store, bench.workspace(ref), "/", ws)
bench.close()
if os.getuid() == 0:
    for path in (ws, *ws.rglob("*")):
        os.chown(path, nobody, nobody)
    os.setgroups([])
    os.setgid(nobody)
    os.setuid(nobody)
{spoil}
try:
    workspace.scan()
except UnsupportedFileError as error:
    print(error.message)
(ws / "sub").chmod(0o700)
"""


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        ("(ws / 'sub/new').touch(0)", "sub/new"),
        ("(ws / 'sub/file').chmod(0)", "sub/file"),
        ("(ws / 'sub').chmod(0)", "sub/"),
        ("(ws / 'sub').chmod(0o400)", "sub/file"),
    ],
    ids=["a new file", "a fetched file", "a directory", "a directory that can't be searched"],
)
def test_what_can_not_be_read_is_refused_by_its_path(spoil, named):
    script = SCAN_AS_SOMEBODY_WHO_IS_NOT_ROOT.replace("{spoil}", spoil)
    with tempfile.TemporaryDirectory() as root:  # pytest's own is closed to other users
        Path(root).chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-c", script, root], capture_output=True, text=True, check=False
        )
    assert done.stderr == ""
    assert done.stdout.startswith(f"'{named}': ")
