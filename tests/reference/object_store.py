"""An S3 server on loopback, in a process of its own, that counts its requests and fails one when told to."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

# Errors of S3: status and code.
FAILURES = (
    ("500 Internal Server Error", "InternalError"),
    ("503 Slow Down", "SlowDown"),
    ("403 Forbidden", "AccessDenied"),
    ("403 Forbidden", "ExpiredToken"),
    ("400 Bad Request", "ExpiredToken"),
)
# A commit is answered, and its answer lost on the way back.
LOST = ("", "Lost")
# The file handler of deltalake keeps the interpreter's lock while it waits, so a thread could not answer it.
_SERVER = """
import json, sys, threading
from urllib.parse import parse_qsl
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

backend = create_backend_app("s3")  # a dispatcher to every service lists the modules of moto at each request
lock, left, failure, seen = threading.Lock(), 0, {}, {}

def copied(old, new, gone):
    # By requests each object is one, and listings read all objects of a bucket.
    store = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    for name, key in list(store.get_bucket("history").keys.items()):
        if gone and name.startswith(gone + "/"):
            store.delete_object("history", name)
        if name.startswith(old + "/"):
            store.copy_object(key, "history", new + name.removeprefix(old))

def answer(environ, start):
    global left, failure
    if environ["PATH_INFO"] == "/told":
        with lock:
            said = json.dumps({"failed": bool(failure) and failure["nth"] != "0" and left == 0, "seen": seen})
            failure = dict(parse_qsl(environ["QUERY_STRING"]))
            left = int(failure["nth"])
            seen.clear()
        start("200 OK", [("Content-Type", "application/json")])
        return [said.encode()]
    if environ["PATH_INFO"] == "/copied":
        copied(**dict(parse_qsl(environ["QUERY_STRING"])))
        start("200 OK", [])
        return []
    with lock:
        method = environ["REQUEST_METHOD"]
        seen[method] = seen.get(method, 0) + 1
        lost = bool(failure) and failure["code"] == "Lost"
        commits = method == "PUT" and environ["PATH_INFO"].endswith(".json")
        counts = left > 0 and (commits or not lost)
        fails = counts and left == 1
        left -= counts
    if not fails:
        return backend(environ, start)
    if lost:
        b"".join(backend(environ, lambda *_: None))
        environ["werkzeug.socket"].shutdown(2)
        raise ConnectionAbortedError
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    start(failure["status"], [("Content-Type", "application/xml")])
    return [f"<Error><Code>{failure['code']}</Code><Message>no</Message></Error>".encode()]

class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"
    def log(self, *_): pass

server = make_server("127.0.0.1", 0, answer, threaded=True, request_handler=Quiet)
print(server.server_port, flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
"""


@dataclass(frozen=True)
class Bucket:
    """The bucket ``history``: ``options`` as ``storage_options`` takes them, and a client of boto3."""

    url: str
    options: dict[str, str]
    client: Any

    def tell(self, nth: int = 0, failure: tuple[str, str] = FAILURES[0]) -> tuple[bool, dict[str, int]]:
        """Let the n-th request from now on fail (0: none), or the n-th that commits lose its answer; whether the last
        one that was told did, and the requests since then by method.
        """
        status, code = failure
        asked = urlencode({"nth": nth, "status": status, "code": code})
        with urllib.request.urlopen(f"{self.url}/told?{asked}") as response:
            said = json.load(response)
        return said["failed"], said["seen"]

    def copy(self, old: str, new: str, gone: str) -> None:
        """Copy all objects of one prefix to another, and delete those of a third."""
        with urllib.request.urlopen(f"{self.url}/copied?{urlencode({'old': old, 'new': new, 'gone': gone})}"):
            pass


@contextlib.contextmanager
def served() -> Iterator[Bucket]:
    """An empty bucket while the block runs."""
    import boto3

    server = subprocess.Popen([sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdin is not None
    url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
    options = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "conditional_put": "etag",
    }
    client = boto3.client(
        "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    client.create_bucket(Bucket="history")
    try:
        yield Bucket(url, options, client)
    finally:
        server.stdin.close()
        server.wait()
        server.stdout.close()
