"""What a first answer of a server means, down to the limits between ok, warn and fail."""

import sys
from email.utils import formatdate

import pytest

from perago.adapters.lakefs.client import LakeFSConfig
from perago.adapters.lakefs.reachability import Cause, Reached, Unreachable
from perago.doctor.lakefs import (
    diagnose_lakefs,
    judge_clock,
    judge_fence,
    judge_key,
    judge_server,
    judge_version,
    proxy_in_use,
)
from perago.operations.fence_install import FenceState
from perago.settings import load_settings

NOW = 1_800_000_000.0


def heard(status=401, body='{"message":"error authenticating request"}', **more):
    given = {"date": "", "location": "", "asked_at": NOW, "took": 0.0} | more
    return Reached(status, body, **given)


def at(seconds_ahead):
    return heard(date=formatdate(NOW + seconds_ahead, usegmt=True))


@pytest.mark.parametrize("why", Cause)
def test_every_way_of_not_answering_has_its_own_words_and_a_fix(why):
    finding = judge_server(Unreachable(why, "so it was said"), "http://lakefs")
    assert finding.verdict == "fail"
    assert why.value in finding.detail
    assert finding.fix


@pytest.mark.parametrize(
    ("answer", "verdict", "words"),
    [
        (heard(), "ok", "lakeFS answers"),
        (heard(401, '{"message": "Unauthorized"}'), "fail", "another program"),
        (heard(200, "<html>"), "fail", "another program"),
        (heard(404, ""), "fail", "another program"),
        (
            heard(400, "the plain HTTP request was sent to HTTPS port"),
            "fail",
            "the server needs TLS",
        ),
        (heard(400, "Bad Request"), "fail", "another program"),
        (
            heard(301, location="https://there/api/v1/config/version"),
            "fail",
            "redirects to https://there",
        ),
        (heard(407), "fail", "the proxy rejects our password, or needs one"),
        (heard(502, "bad gateway"), "fail", "status 502 bad gateway"),
    ],
)
def test_only_lakefs_is_taken_for_lakefs(answer, verdict, words):
    finding = judge_server(answer, "http://lakefs")
    assert finding.verdict == verdict
    assert words in finding.detail


@pytest.mark.parametrize(
    ("ahead", "verdict"),
    [
        (0, "ok"),
        (59, "ok"),
        (-59, "ok"),
        (62, "warn"),
        (-62, "warn"),
        (898, "warn"),
        (-898, "warn"),
        (902, "fail"),
        (-902, "fail"),
    ],
)
def test_clocks_may_differ_by_a_minute_and_by_a_quarter_of_an_hour_at_most(ahead, verdict):
    assert judge_clock(at(ahead)).verdict == verdict


@pytest.mark.parametrize("date", ["", "yesterday"])
def test_a_server_that_tells_no_time_is_no_fault(date):
    assert judge_clock(heard(date=date)).verdict == "ok"


@pytest.mark.parametrize(
    ("version", "verdict"),
    [
        ("dev", "ok"),
        ("2.0.0", "ok"),
        ("1.100.0", "ok"),
        ("1.74.0", "ok"),
        ("1.73.2", "warn"),
        ("1.48.0", "warn"),
        ("1.47.9", "fail"),
        ("0.113.0", "fail"),
    ],
)
def test_a_server_that_cannot_squash_is_too_old(version, verdict):
    assert judge_version(heard(200, f'{{"version": "{version}"}}')).verdict == verdict


def test_a_key_is_blamed_for_a_401_alone():
    assert "doesn't accept the key" in judge_key(heard(401), "AKIA").detail
    assert "status 500" in judge_key(heard(500), "AKIA").detail
    assert judge_key(heard(200), "AKIA").verdict == "ok"


@pytest.mark.parametrize("named", ["http://me:hidden@proxy:3128", "me:hidden@proxy:3128"])
def test_a_proxys_password_is_not_shown(monkeypatch, named):
    monkeypatch.setenv("http_proxy", named)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    finding = proxy_in_use(LakeFSConfig("http://lakefs", "key", "secret"))
    assert finding.detail == "http://proxy:3128, from the environment"


@pytest.mark.parametrize(("level", "verdict"), [("auto", "warn"), ("cas", "fail"), ("soft", "ok")])
@pytest.mark.parametrize("state", list(FenceState)[1:])
def test_a_fence_is_missed_as_much_as_it_is_asked_for(state, level, verdict):
    assert judge_fence(state, level, "songs", "mine").verdict == verdict


@pytest.mark.parametrize("level", ["auto", "cas", "soft"])
def test_an_enforced_fence_is_always_fine(level):
    assert judge_fence(FenceState.ENFORCED, level, "songs", "mine").verdict == "ok"


def test_the_fence_is_proposed_for_the_branch_that_lacks_it():
    finding = judge_fence(FenceState.MISSING, "cas", "songs", "mine")
    assert finding.fix == "`perago fence install songs --branch mine`"


def test_a_client_that_cant_be_imported_is_told_with_the_reason_and_ends_it(monkeypatch, tmp_path):
    for name, text in (("lakefs_sdk", "import no_such_part"), ("obstore", "raise OSError('torn')")):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (finding,) = diagnose_lakefs(load_settings(store="lakefs"), "songs", "main")
    assert "lakefs_sdk (ModuleNotFoundError: No module named 'no_such_part')" in finding.detail
    assert "obstore (OSError: torn)" in finding.detail
    assert finding.fix == "pip install 'perago-runtime[lakefs]'"
