"""HTTP servers that stand beside the real ones: proxies, an auth service, a lineage catalog.

Each listens on a loopback port of its own and is a context manager.
"""

import http.client
import json
import re
import secrets
import select
import socket
import ssl
import threading
from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

_SECONDS = 30
_HOP_BY_HOP = frozenset({"connection", "proxy-connection", "keep-alive", "transfer-encoding"})


class LoopbackServer:
    """Serves ``handler`` from a thread while the block lasts."""

    def __init__(self, handler):
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def port(self):
        return self._server.server_port

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or lakeFS waits 40 ms for the body of each response
    timeout = 2  # an idle connection doesn't keep the server from ending

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def reply(self, status, document=None):
        """Send a document as JSON, or no body for None."""
        content = b"" if document is None else json.dumps(document).encode()
        self.send(status, "application/json", content)

    def send(self, status, content_type, content):
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Print nothing."""


# --- a forward proxy, as companies have them ------------------------------------------------------


class ForwardProxy(LoopbackServer):
    """``seen`` holds each request: its method, and the URL or the ``host:port`` of a tunnel.

    ``password``, as ``name:password``, is required in every request.
    """

    def __init__(self, *, password=None):
        self.seen = []
        self._ending = threading.Event()
        super().__init__(_proxy_handler(self.seen, password, self._ending))

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def __exit__(self, *_):
        self._ending.set()
        super().__exit__()


def _proxy_handler(seen, password, ending):
    wanted = password and f"Basic {b64encode(password.encode()).decode()}"

    class Handler(_Handler):
        def parse_request(self):
            if not super().parse_request():
                return False
            if wanted and self.headers.get("Proxy-Authorization") != wanted:
                self.send_error(407)
                return False
            del self.headers["Proxy-Authorization"]
            return True

        def do_CONNECT(self):
            seen.append(("CONNECT", self.path))
            host, _, port = self.path.rpartition(":")
            with socket.create_connection((host, int(port)), timeout=_SECONDS) as server:
                self.send_response(200)
                self.end_headers()
                with suppress(OSError):
                    _relay(self.connection, server, ending)
            self.close_connection = True

        def _pass_on(self):
            seen.append((self.command, self.path))
            parts = urlsplit(self.path)
            body = self.body()
            server = http.client.HTTPConnection(parts.netloc, timeout=_SECONDS)
            path = f"{parts.path}?{parts.query}" if parts.query else parts.path
            kept = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
            server.request(self.command, path, body=body or None, headers=kept)
            answer = server.getresponse()
            content = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP_BY_HOP | {"content-length", "date", "server"}:
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else len(content)
            self.send_header("Content-Length", str(length or 0))
            self.end_headers()
            self.wfile.write(content)
            server.close()

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815 - http.server's

    return Handler


def _relay(client, server, ending):
    """Carry bytes both ways until one side closes, or the proxy ends."""
    while not ending.is_set():
        for one in select.select([client, server], [], [], 0.1)[0]:
            data = one.recv(65_536)
            if not data:
                return
            (server if one is client else client).sendall(data)


# --- a reverse proxy in front of a Conductor that wants a key -------------------------------------

KEY, SECRET = "the-key", "the-secret-of-the-key"


class KeyGuard(LoopbackServer):
    """Hands out a token for ``KEY`` and ``SECRET``, and requires it in a header from then on.

    An open-source Conductor has no keys; those that do work like this. ``address`` is that of the
    API behind it. ``handed_out`` counts its tokens. ``wants_key`` of False lets every request
    through; ``certificate`` is a pair of files, for TLS.
    """

    def __init__(self, address, *, wants_key=True, certificate=None):
        self.target = urlsplit(address)
        self.wants_key = wants_key
        self.tokens = set()
        self.handed_out = 0
        super().__init__(_guard_handler(self))
        self._scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self._scheme = "https"

    @property
    def address(self):
        return f"{self._scheme}://127.0.0.1:{self.port}{self.target.path}"

    def hand_out(self):
        token = secrets.token_hex(8)
        self.tokens.add(token)
        self.handed_out += 1
        return token

    def expire(self):
        """No token handed out so far is valid any more."""
        self.tokens.clear()


def _guard_handler(guard):
    class Handler(_Handler):
        def _pass_on(self):
            body = self.body()
            if guard.wants_key and self.path == f"{guard.target.path}/token":
                self._let_in(json.loads(body))
            elif guard.wants_key and self.headers.get("X-Authorization") not in guard.tokens:
                self.reply(401, {"status": 401, "message": "EXPIRED_TOKEN"})
            else:
                self.send(*_response_of(guard.target.netloc, self, body))

        def _let_in(self, login):
            if login == {"keyId": KEY, "keySecret": SECRET}:
                self.reply(200, {"token": guard.hand_out()})
            else:  # as careless as can be: it repeats what it was sent
                self.reply(401, {"status": 401, "message": f"not known: {login}"})

        do_GET = do_POST = do_PUT = do_DELETE = _pass_on  # noqa: N815 - http.server's

    return Handler


def _response_of(netloc, request, body):
    """The server's status, type and content; that of a gateway if it doesn't respond."""
    server = http.client.HTTPConnection(netloc, timeout=_SECONDS)
    dropped = _HOP_BY_HOP | {"content-length"}
    kept = {k: v for k, v in request.headers.items() if k.lower() not in dropped}
    try:
        server.request(request.command, request.path, body=body or None, headers=kept)
        answer = server.getresponse()
        return answer.status, answer.getheader("Content-Type") or "", answer.read()
    except (OSError, http.client.HTTPException) as error:
        return 502, "text/plain", str(error).encode()
    finally:
        server.close()


# --- the auth service of a lakeFS that enforces policies ------------------------------------------

EVERYTHING = {
    "effect": "allow",
    "resource": "*",
    "action": ["fs:*", "auth:*", "ci:*", "retention:*", "branches:*", "pr:*"],
}
_BORN = 1_700_000_000
_TOKEN = "made-up-token"


@dataclass
class User:
    """``statements`` is the policy in force; a test changes it as it goes."""

    name: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    statements: list = field(default_factory=list)


class AuthService(LoopbackServer):
    """Knows the users and their policies; lakeFS looks them up here and enforces them itself.

    An open-source lakeFS alone has one user, who may do everything.
    """

    def __init__(self, *users):
        self._users = users
        super().__init__(_auth_handler(self))

    @property
    def config(self):
        """The configuration for a lakeFS that asks here, without a cache."""
        return {
            "auth": {
                "api": {"endpoint": f"http://127.0.0.1:{self.port}/api/v1", "token": _TOKEN},
                "ui_config": {"rbac": "external"},
                "cache": {"enabled": False},
            },
            # Its users are ours: there is none to set up.
            "installation": {"user_name": "", "access_key_id": "", "secret_access_key": ""},
        }

    def document(self, path):
        """The document at a path, None if there is none."""
        if path == "/config/version":
            return {"version": "stand-in"}
        if match := re.fullmatch("/auth/credentials/([^/]+)", path):
            return next((_key(u) for u in self._users if u.access_key_id == match[1]), None)
        if match := re.fullmatch("/auth/users/([^/]+)(/policies)?", path):
            user = next((u for u in self._users if u.name == match[1]), None)
            return user and (_policies(user) if match[2] else _user(user))
        return None


def _key(user):
    return {
        "access_key_id": user.access_key_id,
        "secret_access_key": user.secret_access_key,
        "creation_date": _BORN,
        "user_id": 0,
        "user_name": user.name,
    }


def _user(user):
    named = {"name": user.name, "username": user.name, "friendly_name": user.name}
    return named | {"creation_date": _BORN, "encryptedPassword": ""}


def _policies(user):
    policies = [{"name": "the-one", "creation_date": _BORN, "statement": user.statements}]
    if not user.statements:
        policies = []
    page = {"has_more": False, "next_offset": "", "max_per_page": 1000, "results": len(policies)}
    return {"pagination": page, "results": policies}


def _auth_handler(service):
    class Handler(_Handler):
        timeout = 5

        def do_GET(self):
            path = unquote(urlsplit(self.path).path).removeprefix("/api/v1")
            if path == "/healthcheck":
                self.reply(HTTPStatus.NO_CONTENT)
            elif (found := service.document(path)) is not None:
                self.reply(HTTPStatus.OK, found)
            else:
                self.reply(HTTPStatus.NOT_FOUND, {"message": "not found"})

    return Handler


# --- a catalog that receives lineage --------------------------------------------------------------


class LineageReceiver(LoopbackServer):
    """Takes OpenLineage's events over HTTP and keeps them, with their paths and headers.

    ``status`` is what it replies to each.
    """

    def __init__(self, status=201):
        self.events, self.paths, self.headers = [], [], []
        receiver = self

        class Handler(_Handler):
            protocol_version = "HTTP/1.0"

            def do_POST(self):
                receiver.paths.append(self.path)
                receiver.headers.append(dict(self.headers))
                receiver.events.append(json.loads(self.body()))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

        super().__init__(Handler)

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}"

    def of(self, job):
        """The events of one job, in the order they came."""
        return [event for event in self.events if event["job"]["name"] == job]
