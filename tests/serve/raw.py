"""A real server in a thread, and clients that speak to it byte by byte."""

import json
import socket
import threading
import time
from contextlib import contextmanager

from cato.serve.app import create_app
from cato.serve.server import create_server, listening_socket


@contextmanager
def running_server(models, settings, token=""):
    """The port and the application of a server."""
    app = create_app(models, settings, token)
    with listening_socket("127.0.0.1", 0) as listener:
        server = create_server(app, settings)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1], app
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


class Raw:
    """A connection, from any address of this machine."""

    def __init__(self, port, address="127.0.0.1", timeout=20.0, receive_buffer=None):
        self.socket = socket.socket()
        self.socket.settimeout(timeout)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.bind((address, 0))
        self.socket.connect(("127.0.0.1", port))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def head(self, target="/health", method="GET", **headers):
        """Send a request without its body."""
        fields = {"Host": "localhost"} | {k.replace("_", "-"): v for k, v in headers.items()}
        lines = [f"{method} {target} HTTP/1.1", *(f"{k}: {v}" for k, v in fields.items())]
        self.send("\r\n".join(lines).encode() + b"\r\n\r\n")

    def response(self):
        """Status, headers and body of the next response; None if the connection ends before."""
        data = b""
        while b"\r\n\r\n" not in data:
            if not (part := self._receive()):
                return None
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        while len(body) < int(headers.get("content-length", 0)):
            if not (part := self._receive()):
                return None
            body += part
        return int(status.split()[1]), headers, body

    def status(self):
        found = self.response()
        return found and found[0]

    def detail(self):
        return json.loads(self.response()[2])["detail"]

    def seconds_until_end(self):
        """Time until the server ends the connection."""
        began = time.monotonic()
        while self._receive():
            pass
        return time.monotonic() - began

    def _receive(self):
        try:
            return self.socket.recv(65536)
        except ConnectionResetError:
            return b""
