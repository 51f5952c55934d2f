"""A stand-in for what guards a Conductor that wants a key: a reverse proxy, with TLS if so told.

An open-source Conductor lets everybody in. Those that don't hand out a token for a key and its
secret, and want to see it in a header from then on.
"""

import http.client
import json
import secrets
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

KEY, SECRET = "the-key", "the-secret-of-the-key"
_SECONDS = 30
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


class KeyGuard:
    """``address`` is that of the API behind it. ``handed_out`` counts its tokens.

    ``wants_key`` of False lets everybody through; ``certificate`` is a pair of files.
    """

    def __init__(self, address, *, wants_key=True, certificate=None):
        self.target = urlsplit(address)
        self.wants_key = wants_key
        self.tokens = set()
        self.handed_out = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(self))
        self._server.daemon_threads = False
        self._scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self._scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def address(self):
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}{self.target.path}"

    def hand_out(self):
        token = secrets.token_hex(8)
        self.tokens.add(token)
        self.handed_out += 1
        return token

    def expire(self):
        """No token handed out so far is good any more."""
        self.tokens.clear()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler_for(guard):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        timeout = 2  # an idle connection doesn't keep the guard from ending

        def _pass_on(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if guard.wants_key and self.path == f"{guard.target.path}/token":
                self._let_in(json.loads(body))
            elif guard.wants_key and self.headers.get("X-Authorization") not in guard.tokens:
                self._reply(401, {"status": 401, "message": "EXPIRED_TOKEN"})
            else:
                self._send(*_answer_of(guard.target.netloc, self, body))

        def _let_in(self, login):
            if login == {"keyId": KEY, "keySecret": SECRET}:
                self._reply(200, {"token": guard.hand_out()})
            else:  # as careless as can be: it repeats what it was told
                self._reply(401, {"status": 401, "message": f"not known: {login}"})

        def _reply(self, status, document):
            self._send(status, "application/json", json.dumps(document).encode())

        def _send(self, status, content_type, content):
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _pass_on  # noqa: N815 - http.server's

        def log_message(self, *_):
            """Say nothing."""

    return Handler


def _answer_of(netloc, request, body):
    """The server's status, type and content; that of a gateway if it doesn't answer."""
    server = http.client.HTTPConnection(netloc, timeout=_SECONDS)
    kept = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP}
    try:
        server.request(request.command, request.path, body=body or None, headers=kept)
        answer = server.getresponse()
        return answer.status, answer.getheader("Content-Type") or "", answer.read()
    except (OSError, http.client.HTTPException) as error:
        return 502, "text/plain", str(error).encode()
    finally:
        server.close()
