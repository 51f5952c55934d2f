"""Root's processes obey permissions where they are to."""

import os
import subprocess

import pytest

from perago.adapters.spark.jvm import can_drop, can_drop_privileges, start_unprivileged


def shell(command):
    return subprocess.run(["sh", "-c", command], check=False, capture_output=True).returncode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is above permissions")
def test_a_process_of_root_can_not_write_what_is_read_only(tmp_path):
    file = tmp_path / "file"
    file.write_text("ours")
    file.chmod(0o444)
    assert start_unprivileged(lambda: shell(f"echo theirs > '{file}'")) != 0
    assert file.read_text() == "ours"
    assert start_unprivileged(lambda: shell(f"rm -f '{file}' && echo new > '{file}'")) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is above permissions")
def test_this_process_and_its_other_children_keep_their_rights(tmp_path):
    file = tmp_path / "file"
    file.write_text("ours")
    file.chmod(0o444)
    start_unprivileged(lambda: shell("true"))
    assert shell(f"echo again > '{file}'") == 0


def test_what_is_started_is_handed_back():
    assert start_unprivileged(lambda: shell("exit 7")) == 7


ALL = (1 << 41) - 1
OVERRIDING, GIVING_UP = 1 << 1, 1 << 8


@pytest.mark.parametrize(
    ("rights", "possible"),
    [
        (0, True),
        (ALL, True),
        (ALL & ~OVERRIDING, True),
        (ALL & ~GIVING_UP, False),
        (OVERRIDING, False),
        (OVERRIDING | GIVING_UP, True),
    ],
)
def test_who_overrides_permissions_has_to_be_able_to_give_that_up(rights, possible):
    assert can_drop(rights) is possible


def test_whether_it_is_possible_here_is_what_is_found_here(tmp_path):
    file = tmp_path / "file"
    file.write_text("ours")
    file.chmod(0o444)
    obeyed = start_unprivileged(lambda: shell(f"echo theirs > '{file}'")) != 0
    assert obeyed or not can_drop_privileges()
