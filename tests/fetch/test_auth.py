"""Keys: where they come from, how they are shown, and what is redacted; tests/test_secret_leaks.py looks for leaks."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from reference.faults import ok, refuse
from reference.oracle import Oracle, expected, read, rows

from marketdata.errors import ConfigError, ContractError, LimitTooSmallError, NotFoundError
from marketdata.fetch.http.auth import KeyProvider, check_key, mask, redact
from marketdata.fetch.http.rate_limit import Pacer
from marketdata.fetch.http.transport import Transport

KEY = "s3cret-key-0123456789-abcd"


@pytest.mark.fault("K1")
def test_a_key_is_shown_by_its_last_four_characters(transport) -> None:
    """A key of less than 16 characters is not shown at all."""
    assert "…abcd" in repr(transport)
    assert KEY not in repr(transport)
    assert (mask("x" * 15), mask("0123456789abcdef")) == ("***", "…cdef")


@pytest.mark.fault("K4")
@pytest.mark.parametrize("key", ["", " ", "abc def", "abc\n", "schlüssel", "key\x00", "\ts3cret", "\u043aey"])
def test_a_key_that_no_header_can_carry_is_a_value_error(key) -> None:
    """It is refused before any request, and is not shown."""
    with pytest.raises(ValueError, match="api_key") as caught:
        Transport("https://service.invalid", key)
    assert isinstance(caught.value, ConfigError)
    assert not key.strip() or key.strip() not in str(caught.value)


@pytest.mark.fault("K4")
def test_a_key_comes_from_a_text_a_callable_or_the_environment(monkeypatch) -> None:
    """It comes from nowhere else."""
    monkeypatch.delenv("MARKETDATA_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="api_key is missing"):
        KeyProvider().get()
    with pytest.raises(ConfigError, match="int"):
        check_key(5)
    with pytest.raises(ConfigError):
        KeyProvider(lambda: "two words").get()
    monkeypatch.setenv("MARKETDATA_API_KEY", KEY)
    assert KeyProvider().get() == KeyProvider(lambda: KEY).get() == KEY


@pytest.mark.fault("K3")
def test_a_pickled_transport_reads_the_environment_again(server, transport, monkeypatch) -> None:
    """A pickle has no key."""
    data = pickle.dumps(transport)
    with pytest.raises(ConfigError, match="MARKETDATA_API_KEY"):
        pickle.loads(data)
    monkeypatch.setenv("MARKETDATA_API_KEY", KEY)
    assert pickle.loads(data).get(["x"]).body == b"{}"
    assert copy.deepcopy(transport).base_url == transport.base_url


@pytest.fixture(params=["test", "a", "market", "limit", "t.k"])
def short(request, server, clock) -> Iterator[tuple[str, Transport]]:
    """A key that is a word of data, or a part of one, and a transport with it."""
    transport = Transport(server.base_url, request.param, pacer=Pacer(clock=clock), clock=clock)
    yield request.param, transport
    transport.close()


@pytest.mark.fault("N36")
def test_data_is_never_redacted(server, short) -> None:
    """A short key that data holds by chance takes no letter of it."""
    key, transport = short
    oracle = server.answer = Oracle.of_prices(30, [key, f"la{key}st"])
    (window,) = read(transport, oracle.request(30), strict=True)
    assert sorted(rows([window])) == expected(oracle.points)


@pytest.mark.fault("N36", "K2")
def test_a_short_key_is_redacted_where_it_stands_alone(server, short) -> None:
    """It takes no letter of a slug, a name or a word of a refusal."""
    key, transport = short

    def detail(text: str, *path: str) -> str:
        server.answer = lambda ask: refuse(404, text)
        with pytest.raises(NotFoundError) as caught:
            transport.get(path or ["x"])
        assert caught.value.detail in str(caught.value)
        return caught.value.detail

    for slug in (f"{key}-1", f"1-{key}", f"la{key}st-{key}-11", f"x_{key}", f"v1/{key}/books", f"{key}.{key}"):
        assert detail(f"Market not found: {slug}", "markets", slug, "books").endswith(slug)
        assert detail(f"Not found: {slug}.") == f"Not found: {slug}."
    assert detail(f"Not found: {key}", "markets", key, "books") == f"Not found: {key}"
    for text in ("X-API-Key: {}", "?api_key={}&x=1", "key '{}'.", '["{}"]', "({})", "{}"):
        assert detail(text.format(key)) == text.format("***")


@pytest.mark.fault("N36", "K2")
def test_a_refusal_is_understood_before_it_is_redacted(server, short) -> None:
    """Its class stays right, and data that an error quotes stays whole."""
    key, transport = short
    server.answer = lambda ask: refuse(400, "limit too small for a market. Minimum required: 12")
    with pytest.raises(LimitTooSmallError) as small:
        transport.get(["x"])
    assert small.value.minimum == 12
    text = f"token '{key}' was '1', not {key}; the label {key}"
    echoed = f"{text} (X-API-Key: {key}) http://h/v1?key={key}"
    assert str(transport.redacted(ContractError(echoed))) == f"{text} (X-API-Key: ***) http://h/v1?key=***"


@pytest.mark.fault("K2")
def test_a_long_key_is_redacted_everywhere() -> None:
    """It is taken out of the middle of words, quoted or not, and out of data."""
    key = "0123/456789+abcdef"
    for is_data in (True, False):
        assert redact(f"a{key}b {quote(key, safe='')}c", key, is_data=is_data) == "a***b ***c"


@pytest.mark.fault("K2")
def test_a_cursor_that_repeats_the_key_is_not_sent_back(server, transport) -> None:
    """A key must not be in an address."""
    oracle = Oracle.of_prices(300)

    server.answer = lambda ask: ok(oracle.body(list(oracle.points)[:200], cursor=f"x{KEY}x"))
    with pytest.raises(ContractError, match="repeats the API key"):
        read(transport, oracle.request(300))
    assert all(KEY not in ask.target for ask in server.asks)
