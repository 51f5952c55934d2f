"""A forward proxy on loopback, as companies have them: it sees who is asked for what."""

import http.client
import select
import socket
import threading
from base64 import b64encode
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_SECONDS = 30
_HOP_BY_HOP = frozenset({"connection", "proxy-connection", "keep-alive", "transfer-encoding"})


class ForwardProxy:
    """``seen`` holds each request: its method, and the URL or the ``host:port`` of a tunnel.

    ``password``, as ``name:password``, is what it wants to be told by everybody.
    """

    def __init__(self, *, password=None):
        self.seen = []
        self._ending = threading.Event()
        handler = _handler_for(self.seen, password, self._ending)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ending.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler_for(seen, password, ending):
    wanted = password and f"Basic {b64encode(password.encode()).decode()}"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        timeout = 2  # an idle connection doesn't keep the proxy from ending

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
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
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

        def log_message(self, *_):
            """Say nothing."""

    return Handler


def _relay(client, server, ending):
    """Carry bytes both ways until one side has nothing more to say, or the proxy ends."""
    while not ending.is_set():
        for one in select.select([client, server], [], [], 0.1)[0]:
            data = one.recv(65_536)
            if not data:
                return
            (server if one is client else client).sendall(data)
