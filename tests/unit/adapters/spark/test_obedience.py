"""Root's processes obey permissions where they are to."""

import os
import subprocess

import pytest

from perago.adapters.spark.obedience import obediently


def shell(command):
    return subprocess.run(["sh", "-c", command], check=False, capture_output=True).returncode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is above permissions")
def test_a_process_of_root_can_not_write_what_is_read_only(tmp_path):
    file = tmp_path / "file"
    file.write_text("ours")
    file.chmod(0o444)
    assert obediently(lambda: shell(f"echo theirs > '{file}'")) != 0
    assert file.read_text() == "ours"
    assert obediently(lambda: shell(f"rm -f '{file}' && echo new > '{file}'")) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is above permissions")
def test_this_process_and_its_other_children_keep_their_rights(tmp_path):
    file = tmp_path / "file"
    file.write_text("ours")
    file.chmod(0o444)
    obediently(lambda: shell("true"))
    assert shell(f"echo again > '{file}'") == 0


def test_what_is_started_is_handed_back():
    assert obediently(lambda: shell("exit 7")) == 7
