"""Each fault does to a request what it says, once, and everything else passes unchanged."""

import hashlib
import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from support.wire import (
    FaultyWire,
    answer,
    answer_after_applying,
    cut_answer,
    cut_request,
    delay,
    drop_answer,
    drop_request,
    duplicate,
    set_header,
)

from perago.errors import RuntimeConfigError

LOST = (http.client.HTTPException, ConnectionError)


class _Counter(BaseHTTPRequestHandler):
    """Counts what is applied; answers with the count, or with what the path asks for."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self._body()
        if body is None:
            self.server.cut_short += 1
            self.close_connection = True
            return
        self.server.applied.append((self.path, body, self.headers["Host"]))
        self._answer(b"applied %d" % len(self.server.applied))

    def do_PUT(self):
        self.do_POST()

    def do_GET(self):
        if self.path == "/chunked":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for _ in range(3):
                self.wfile.write(b"5\r\nhello\r\n")
            self.wfile.write(b"0\r\n\r\n")
        elif self.path == "/until-close":
            self.close_connection = True
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"to the end")
        else:
            self._answer(b"x" * 1000)

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()

    def do_DELETE(self):
        self.send_response(204)
        self.end_headers()

    def _body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        return body if len(body) == length else None

    def _answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), _Counter) as server:
        server.applied = []
        server.cut_short = 0
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def wire(server):
    with FaultyWire(f"http://127.0.0.1:{server.server_port}") as wire:
        yield wire


@pytest.fixture
def client(wire):
    connection = http.client.HTTPConnection(wire.endpoint.removeprefix("http://"), timeout=5)
    yield connection
    connection.close()


def ask(client, method="POST", path="/do", body=b"please", **headers):
    client.request(method, path, body=body if method in ("POST", "PUT") else None, headers=headers)
    response = client.getresponse()
    return response.status, response.read()


def bodies(server):
    return [body for _, body, _ in server.applied]


# --- what no rule speaks of -----------------------------------------------------------------------


def test_requests_pass_unchanged_on_one_connection(client, server, wire):
    assert ask(client, path="/do?x=%2F..&y", Host="signed.example") == (200, b"applied 1")
    socket = client.sock
    assert ask(client) == (200, b"applied 2")
    assert client.sock is socket, "the connection is kept"
    assert server.applied[0] == ("/do?x=%2F..&y", b"please", "signed.example")
    assert wire.requests == [("POST", "/do?x=%2F..&y"), ("POST", "/do")]


def test_every_kind_of_answer_passes(client):
    assert ask(client, "GET", "/chunked") == (200, b"hello" * 3)
    assert ask(client, "HEAD", "/sized") == (200, b"")
    assert ask(client, "DELETE", "/it") == (204, b"")
    assert ask(client, "GET", "/sized") == (200, b"x" * 1000)
    assert ask(client, "GET", "/until-close") == (200, b"to the end")
    assert ask(client, "GET", "/sized") == (200, b"x" * 1000)


def test_a_chunked_request_passes(client, server):
    client.request("POST", "/do", body=iter([b"one", b"two"]), encode_chunked=True)
    assert client.getresponse().read() == b"applied 1"
    assert bodies(server) == [b"onetwo"]


def test_a_large_body_passes_in_pieces(client, server):
    large = b"0123456789abcdef" * 500_000
    assert ask(client, body=large) == (200, b"applied 1")
    assert hashlib.sha256(bodies(server)[0]).digest() == hashlib.sha256(large).digest()


def test_a_client_that_asks_first_is_told_to_go_on(client, server):
    client.putrequest("POST", "/do")
    client.putheader("Content-Length", "6")
    client.putheader("Expect", "100-continue")
    client.endheaders()
    assert client.sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"please")
    assert client.getresponse().read() == b"applied 1"


def test_a_server_that_is_gone_is_a_cut_connection(client, server, wire):
    assert ask(client)[0] == 200
    server.shutdown()
    server.server_close()
    client.close()
    with pytest.raises(LOST):
        ask(client)


def test_a_wire_leads_to_a_plain_http_server_only():
    with pytest.raises(RuntimeConfigError, match="can't lead to 'https://example'"):
        FaultyWire("https://example")


# --- faults ---------------------------------------------------------------------------------------


def test_a_dropped_request_is_never_applied(client, server, wire):
    wire.on(fault=drop_request)
    with pytest.raises(LOST):
        ask(client)
    assert bodies(server) == []
    client.close()
    assert ask(client) == (200, b"applied 1")
    assert wire.counts() == 2


def test_a_dropped_answer_follows_an_applied_request(client, server, wire):
    wire.on(fault=drop_answer)
    with pytest.raises(LOST):
        ask(client)
    assert bodies(server) == [b"please"]


def test_a_request_delayed_past_the_clients_patience_is_applied_all_the_same(client, server, wire):
    wire.on(fault=delay(0.4, "before"))
    client.timeout = 0.1
    with pytest.raises(TimeoutError):
        ask(client)
    assert bodies(server) == []
    _until(lambda: bodies(server) == [b"please"])


def test_a_delayed_answer_follows_an_applied_request(client, server, wire):
    wire.on(fault=delay(60, "after"))
    client.timeout = 0.5
    with pytest.raises(TimeoutError):
        ask(client)
    assert bodies(server) == [b"please"]


@pytest.mark.parametrize(("heard", "said"), [("first", b"applied 1"), ("second", b"applied 2")])
def test_a_duplicate_is_applied_twice_and_answered_once(client, server, wire, heard, said):
    wire.on(fault=duplicate(heard))
    assert ask(client) == (200, said)
    assert bodies(server) == [b"please", b"please"]
    assert wire.requests == [("POST", "/do")], "the client sent it once"


def test_a_cut_request_reaches_the_server_without_its_end(client, server, wire):
    wire.on(fault=cut_request(3))
    with pytest.raises(LOST):
        ask(client)
    _until(lambda: server.cut_short == 1)
    assert bodies(server) == []


def test_a_cut_answer_reaches_the_client_without_its_end(client, wire):
    wire.on(fault=cut_answer(400))
    with pytest.raises(http.client.IncompleteRead) as cut:
        ask(client, "GET", "/sized")
    assert len(cut.value.partial) == 400


def test_somebody_else_answers_instead_of_the_server(client, server, wire):
    wire.on(fault=answer(503, b"busy", {"Retry-After": "1"}))
    assert ask(client) == (503, b"busy")
    assert bodies(server) == []
    assert ask(client) == (200, b"applied 1"), "the connection is kept"


def test_somebody_else_answers_after_the_server_has_done_it(client, server, wire):
    wire.on(fault=answer_after_applying(502))
    assert ask(client) == (502, b"")
    assert bodies(server) == [b"please"]


def test_a_header_of_the_answer_is_replaced(client, wire):
    wire.on(fault=set_header("date", "Thu, 01 Jan 1970 00:00:00 GMT"))
    client.request("GET", "/sized")
    response = client.getresponse()
    response.read()
    assert response.headers.get_all("Date") == ["Thu, 01 Jan 1970 00:00:00 GMT"]


# --- rules ----------------------------------------------------------------------------------------


def test_a_rule_takes_the_requests_it_names_as_often_as_it_says(client, wire):
    wire.on(method="PUT", path=r"part=\d", times=2, skip=1, fault=answer(503))
    sent = [("PUT", "/x?part=1"), ("POST", "/x?part=2"), ("PUT", "/x"), *[("PUT", "/x?part=3")] * 3]
    statuses = [ask(client, method, path)[0] for method, path in sent]
    assert statuses == [200, 200, 200, 503, 503, 200]
    assert wire.counts(method="PUT", path="part=") == 4


def test_of_two_rules_the_one_given_first_has_its_way(client, wire):
    wire.on(fault=answer(503))
    wire.on(fault=answer(502), times=None)
    assert [ask(client)[0] for _ in range(3)] == [503, 502, 502]


def test_a_rule_that_met_nothing_shows(client, wire):
    met = wire.on(path="/do", fault=answer(503))
    spared = wire.on(path="/mrege", fault=drop_answer)
    ask(client)
    assert met.fired == 1
    assert wire.unfired == [spared]
    wire.clear()
    assert (wire.unfired, wire.requests) == ([], [])


def test_a_wire_that_is_taken_away_leaves_nobody_waiting(server):
    with FaultyWire(f"http://127.0.0.1:{server.server_port}") as wire:
        wire.on(fault=delay(60))
        waiting = http.client.HTTPConnection(wire.endpoint.removeprefix("http://"), timeout=30)
        waiting.request("POST", "/do", body=b"please")
        _until(lambda: wire.counts() == 1)
        began = time.monotonic()
    assert time.monotonic() - began < 10
    waiting.close()


def _until(holds, seconds=10):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.01)
