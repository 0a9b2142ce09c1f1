"""The bytes of an answer: whole, or not at all."""

from __future__ import annotations

import time
import zlib
from typing import Any

import urllib3

from marketdata.errors import ContractError, NetworkError, PayloadTooLargeError
from marketdata.fetch.retry import Policy

_STEP = 1 << 16
_JSON = (b"{", b"[")


def read_body(raw: Any, encoding: str, policy: Policy, until: float) -> bytes:
    """Read an answer of urllib3 to its proven end.

    Parameters
    ----------
    raw : urllib3 response
    encoding : str
        Its Content-Encoding.
    policy : Policy
    until : float
        Steady time at which to give up [s].

    Raises
    ------
    NetworkError
        If it is cut, corrupt or too slow.
    PayloadTooLargeError
        If it is larger than any page can be.
    ContractError
        If it is encoded in a way that was not asked for.
    """
    name = encoding.strip().lower()
    if name not in ("", "identity", "gzip", "x-gzip"):
        raise ContractError(f"The answer is encoded as {name[:40]!r}; asked was gzip or nothing.")
    inflate = _Inflate(policy) if "gzip" in name else None
    # A recorder's answer has no such option.
    options = {"decode_content": False} if isinstance(raw, urllib3.BaseHTTPResponse) else {}
    parts: list[bytes] = []
    total = 0
    while True:
        data = raw.read1(_STEP, **options)
        if not data:
            break
        if time.monotonic() > until:
            raise NetworkError(f"The answer took longer than {policy.total:g} s.")
        if inflate and not inflate.begun and data.startswith(_JSON):
            inflate = None  # a recorder or a proxy undid it and left the header; gzip never begins like this
        if inflate:
            inflate.feed(data)
            continue
        total += len(data)
        if total > policy.largest_body:
            raise PayloadTooLargeError(f"The answer is larger than {policy.largest_body} bytes; reading stopped.")
        parts.append(data)
    return inflate.finish() if inflate else b"".join(parts)


class _Inflate:
    """Gzip in bounded steps; the end of the stream and its CRC must have been seen."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._stream = zlib.decompressobj(31)
        self._parts: list[bytes] = []
        self._came, self._went = 0, 0

    @property
    def begun(self) -> bool:
        return self._came > 0

    def feed(self, data: bytes) -> None:
        self._came += len(data)
        try:
            while data:
                if self._stream.eof:
                    self._stream = zlib.decompressobj(31)
                out = self._stream.decompress(data, _STEP)
                self._went += len(out)
                self._check()
                self._parts.append(out)
                data = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
        except zlib.error:
            raise NetworkError("The answer is a corrupt gzip stream.") from None

    def finish(self) -> bytes:
        while not self._stream.eof:
            out = self._stream.decompress(b"", _STEP)
            if not out:
                raise NetworkError("The answer is a cut gzip stream: its end or its checksum is missing.")
            self._went += len(out)
            self._check()
            self._parts.append(out)
        return b"".join(self._parts)

    def _check(self) -> None:
        policy = self._policy
        if self._went > policy.largest_body:
            raise PayloadTooLargeError(f"The answer is larger than {policy.largest_body} bytes; reading stopped.")
        if self._went > policy.ratio_from and self._went > policy.largest_ratio * self._came:
            raise PayloadTooLargeError(f"The answer grows more than {policy.largest_ratio}-fold; reading stopped.")
