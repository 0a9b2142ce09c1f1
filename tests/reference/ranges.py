"""A web server of files that answers ranges, counts its bytes, and may end a connection in the middle."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class RangeServer:
    """``files`` by name; ``sent`` counts bytes of bodies; after ``cut_after`` requests of ranges it answers none."""

    files: dict[str, bytes]
    url: str = ""
    sent: int = 0
    requests: list[str] = field(default_factory=list)
    cut_after: int | None = None
    version: str = "one"

    def body(self, name: str, wanted: str | None) -> tuple[int, bytes, dict[str, str]]:
        whole = self.files[name]
        if wanted is None:
            return 200, whole, {}
        first, last = (int(part) for part in wanted.removeprefix("bytes=").split("-"))
        last = min(last, len(whole) - 1)
        return 206, whole[first : last + 1], {"Content-Range": f"bytes {first}-{last}/{len(whole)}"}


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[RangeServer]:
    """The server on a free port of the loopback."""
    server = RangeServer(files)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, *, with_body: bool) -> None:
            name, wanted = self.path.lstrip("/"), self.headers.get("Range")
            if name not in server.files:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            ranges = [one for one in server.requests if one.startswith("range ")]
            if wanted and server.cut_after is not None and len(ranges) >= server.cut_after:
                self.close_connection = True
                self.connection.close()
                return
            status, body, headers = server.body(name, wanted)
            server.requests.append(f"range {wanted}" if wanted else self.command)
            self.send_response(status)
            for key, value in {**headers, "ETag": f'"{server.version}"', "Accept-Ranges": "bytes"}.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if with_body:
                server.sent += len(body)
                self.wfile.write(body)

    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=web.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{web.server_port}"
    try:
        yield server
    finally:
        web.shutdown()
        web.server_close()
        thread.join()
