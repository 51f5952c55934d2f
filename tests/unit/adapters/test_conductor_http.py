"""Responses as servers and proxies send them, read by our own response class."""

import socket
from http.client import HTTPException, IncompleteRead, RemoteDisconnected

import pytest

from perago.adapters.conductor.http import ResponseReader


def response_to(sent):
    """A response of a server that says this and closes the connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        response = ResponseReader(ours)
        response.begin()
        return response, response.read()


@pytest.mark.parametrize(
    ("head", "body", "stays_open"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b"{}", True),
        (b"HTTP/1.1 200 OK\r\ncontent-length:2\r\nConnection: close\r\n\r\n", b"{}", False),
        (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\n", b"{}", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n", b"{}", False),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\n", b"{}", True),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"as long as it lasts", False),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"", True),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\n", b"{}", True),
    ],
)
def test_a_body_ends_where_the_server_says(head, body, stays_open):
    response, read = response_to(head + body)
    assert (response.status, read, not response.will_close) == (200, body, stays_open)


def test_a_chunked_body_is_put_together():
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/plain\r\n\r\n"
    chunks = b"5\r\nhello\r\nA;name=value\r\n, 10 bytes\r\n0\r\nTrailer: x\r\n\r\n"
    response, body = response_to(head + chunks)
    assert body == b"hello, 10 bytes"
    assert response.header("content-type") == "text/plain"
    assert not response.will_close


def test_no_content_has_none_even_if_it_says_otherwise():
    response, body = response_to(b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n")
    assert (response.status, body) == (204, b"")


def test_a_header_that_is_not_there_is_empty():
    response, _ = response_to(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert response.header("date") == ""


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n14\r\n{}",
    ],
)
def test_a_body_that_is_cut_off_is_no_body(sent):
    with pytest.raises(IncompleteRead):
        response_to(sent)


def test_a_server_that_leaves_without_a_word_is_told_as_that():
    with pytest.raises(RemoteDisconnected):
        response_to(b"")


@pytest.mark.parametrize(
    "sent",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 what\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nmany\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(200)) + b"\r\n",
    ],
)
def test_what_is_no_answer_is_refused(sent):
    with pytest.raises(HTTPException):
        response_to(sent)
