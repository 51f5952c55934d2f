"""A stand-in for the service that a lakeFS with policies asks who somebody is and what he may do.

An open-source lakeFS knows one user who may do everything. Told of such a service it looks up keys,
users and policies there, and checks every request against the policies itself: what is made up here
is only the address book, not the judgement.
"""

import json
import re
import threading
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

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


class AuthService:
    """The service, on a loopback port of its own; a context manager."""

    def __init__(self, *users):
        self._users = users
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_for(self))
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def config(self):
        """What a lakeFS has to be configured with to ask here, each time anew."""
        return {
            "auth": {
                "api": {"endpoint": f"http://127.0.0.1:{self._server.server_port}/api/v1"}
                | {"token": _TOKEN},
                "ui_config": {"rbac": "external"},
                "cache": {"enabled": False},
            },
            # Its users are ours: there is none to set up.
            "installation": {"user_name": "", "access_key_id": "", "secret_access_key": ""},
        }

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, path):
        """The value for a path, None if there is none."""
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


def _handler_for(service):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or lakeFS waits 40 ms for each answer's body
        timeout = 5  # an idle connection of lakeFS's doesn't keep the service from ending

        def do_GET(self):
            path = unquote(urlsplit(self.path).path).removeprefix("/api/v1")
            if path == "/healthcheck":
                self._reply(HTTPStatus.NO_CONTENT, None)
            elif (found := service.answer(path)) is not None:
                self._reply(HTTPStatus.OK, found)
            else:
                self._reply(HTTPStatus.NOT_FOUND, {"message": "not found"})

        def _reply(self, status, document):
            body = b"" if document is None else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Say nothing."""

    return Handler
