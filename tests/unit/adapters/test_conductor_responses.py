"""Which errors Conductor's responses become. The bodies are those of a real server."""

import json

import pytest

from perago.adapters.conductor.client import ConductorConfig
from perago.adapters.conductor.http import Request, Response, api_path
from perago.adapters.conductor.responses import decode_json, encode_json, error_for, message_of
from perago.errors import (
    OrchestratorAccessError,
    OrchestratorRefusedError,
    OrchestratorUnavailableError,
    UnknownAttemptError,
)

ADDRESS = "http://conductor.example/api"
REPORT = Request("reporting task t-1", "/tasks", "POST", not_found=UnknownAttemptError)
PAGE = Response(200, "text/html", b"<!-- a page to look at -->")


def says(status, message="", **more):
    body = {"status": status, "message": message, "retryable": False, **more}
    return Response(status, "application/json", json.dumps(body).encode())


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (says(404, "No such task found by id: t-1"), UnknownAttemptError),
        (says(404, "No static resource api/v1/tasks."), OrchestratorRefusedError),
        (Response(404, "text/plain", b"nothing here"), OrchestratorRefusedError),
        (PAGE, OrchestratorRefusedError),
        (Response(302, "", b""), OrchestratorRefusedError),
        (says(400, "Validation failed"), OrchestratorRefusedError),
        (says(409, "has ended, status cannot be updated."), OrchestratorRefusedError),
        (says(401, "token expired"), OrchestratorAccessError),
        (says(403, "not yours"), OrchestratorAccessError),
        (says(408), OrchestratorUnavailableError),
        (says(429), OrchestratorUnavailableError),
        (says(500, "database is locked"), OrchestratorUnavailableError),
        (Response(502, "text/html", b"<h1>Bad gateway</h1>"), OrchestratorUnavailableError),
    ],
)
def test_each_answer_is_told_as_what_it_is(answer, error):
    told = error_for(answer, REPORT, ADDRESS)
    assert type(told) is error
    assert "reporting task t-1" in told.message


@pytest.mark.parametrize("answer", [Response(200, "text/plain", b"t-1"), Response(204, "", b"")])
def test_what_is_granted_is_no_problem(answer):
    assert error_for(answer, REPORT, ADDRESS) is None


@pytest.mark.parametrize("answer", [PAGE, says(404, "No static resource tasks.")])
def test_who_asks_in_the_wrong_place_is_told_how_the_address_ends(answer):
    told = error_for(answer, REPORT, ADDRESS)
    assert ADDRESS in told.message
    assert told.fix == "correct CONDUCTOR_SERVER_URL; it ends with /api"


def test_who_is_not_let_in_is_told_which_settings_to_look_at():
    told = error_for(says(401), REPORT, ADDRESS)
    assert "CONDUCTOR_AUTH_KEY" in told.fix
    assert "CONDUCTOR_AUTH_SECRET" in told.fix


def test_a_refusal_has_all_of_the_servers_words():
    details = [{"path": "x", "message": "responseTimeoutSeconds: 9 must be less than 5"}]
    told = error_for(says(400, "Validation failed", validationErrors=details), REPORT, ADDRESS)
    assert "Validation failed; responseTimeoutSeconds: 9 must be less than 5" in told.message


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"not json", b'{"validationErrors": [3]}'])
def test_whatever_is_sent_instead_of_words_is_no_trouble(body):
    assert isinstance(message_of(body), str)


def test_half_an_answer_is_no_answer():
    with pytest.raises(OrchestratorUnavailableError, match="no JSON"):
        decode_json(Response(200, "application/json", b'{"taskId": "t-'), REPORT, ADDRESS)


def test_an_empty_answer_is_nothing():
    assert decode_json(Response(204, "", b""), REPORT, ADDRESS) is None


def test_names_with_any_characters_stay_one_part_of_a_path():
    assert api_path("tasks", "a b/ü?", workerid="w&1") == "/tasks/a%20b%2F%C3%BC%3F?workerid=w%261"


def test_half_a_character_is_sent_as_a_question_mark():
    assert encode_json({"a": "é\ud800"}) == '{"a":"é?"}'.encode()


def test_a_secret_is_in_no_repr():
    assert "hidden-secret" not in repr(ConductorConfig(ADDRESS, "key", "hidden-secret"))
