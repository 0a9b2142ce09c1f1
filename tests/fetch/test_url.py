"""Addresses of a service, and ids and slugs in the paths of requests."""

from __future__ import annotations

import pytest

from marketdata.errors import ConfigError
from marketdata.fetch.http.url import check_base_url


@pytest.mark.fault("K6")
def test_a_slug_that_would_change_the_path_is_refused(server, transport) -> None:
    """So is one with a length that the interface does not allow; nothing is requested."""
    for slug in (".", "..", "", "x" * 201, "\ud800"):
        with pytest.raises(ConfigError):
            transport.get(["markets", slug, "books"])
    assert server.asks == []


@pytest.mark.fault("K6")
def test_any_other_slug_is_one_segment_of_the_path(server, transport) -> None:
    """It is sent as it is."""
    quoted = {
        "a/b": "a%2Fb",
        "x/books": "x%2Fbooks",
        "...": "...",
        "../../usage": "..%2F..%2Fusage",
        "%2e%2e": "%252e%252e",
        "a?limit=1": "a%3Flimit%3D1",
        "a#b": "a%23b",
        "a b+c": "a%20b%2Bc",
        "\x00\r\n": "%00%0D%0A",
        "é": "%C3%A9",
        "e\u0301": "e%CC%81",
        "~-_.": "~-_.",
        "\\..\\": "%5C..%5C",
        "x" * 200: "x" * 200,
        "😀" * 200: "%F0%9F%98%80" * 200,
    }
    for slug in quoted:
        transport.get(["markets", slug, "books"])
    assert [ask.target for ask in server.asks] == [f"/v1/markets/{segment}/books" for segment in quoted.values()]


@pytest.mark.fault("K7")
def test_an_address_with_more_than_scheme_host_and_path_is_refused(monkeypatch) -> None:
    """A user, a query, a fragment or another scheme; the message shows no password."""
    monkeypatch.delenv("MARKETDATA_BASE_URL", raising=False)
    with_more = [
        "https://user:pass@host",
        "https://user@host",
        "https://host?key=1",
        "https://host/v1?",
        "https://host#part",
    ]
    of_other_schemes = ["ftp://host", "file:///etc/passwd", "host", "", "javascript:alert(1)"]
    without_a_host = ["https://", "https://ho st", "https://host/../x", "https://host:port", "https://[::1"]
    for url in (*with_more, *of_other_schemes, *without_a_host):
        with pytest.raises(ConfigError) as caught:
            check_base_url(url)
        assert "pass@" not in str(caught.value)


@pytest.mark.fault("K7")
def test_a_trailing_slash_or_version_of_an_address_is_dropped() -> None:
    """The rest stays as it is."""
    for base in ("https://host", "https://host:8443/data", "http://localhost:1", "http://[::1]:80"):
        assert {check_base_url(base + end) for end in ("", "/", "/v1", "/v1/")} == {base}
