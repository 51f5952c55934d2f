"""Takes OpenLineage's events over HTTP, as a catalogue does, and keeps them."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Receiver:
    def __init__(self, status=201):
        self.events, self.paths, self.headers = [], [], []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.paths.append(self.path)
                receiver.headers.append(dict(self.headers))
                receiver.events.append(json.loads(body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format, *args):  # noqa: A002 - the base's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self._server.server_port}"

    def of(self, job):
        """The events of one job, in the order they came."""
        return [event for event in self.events if event["job"]["name"] == job]

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def receiving(status=201):
    receiver = Receiver(status)
    try:
        yield receiver
    finally:
        receiver.close()
