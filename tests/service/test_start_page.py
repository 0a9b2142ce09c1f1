"""The start page: what it shows, in a browser where there is one, and what it keeps to itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from reference.memory import MINUTE, MemoryArchive
from reference.web import START, Web, in_process
from service.browser import Browser, chromium

from marketdata.service.server import Service, serve

EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\'; rm -rf ~ #'
ROWS = "return [...document.querySelectorAll(arguments[0])].map(r => [...r.children].map(c => c.innerText.trim()))"


def hostile_archive() -> MemoryArchive:
    """A market whose every name is an attack, and a plain one with gaps and one-sided books."""
    archive = MemoryArchive(simulated=True)
    archive.add_market("m-77", {"Yes": "1", "No": "2"}, slug="will-it-rain", end_date="2026-02-01T00:00:00Z")
    archive.add_market(f"0x{EVIL}", {EVIL: f"3{EVIL}"}, slug=EVIL)
    archive._records["markets"][-1]["question"] = f"{EVIL} \u202e\u0007"
    for minute in range(170):
        if 60 <= minute < 75:
            continue
        price = 0.3 + minute / 1000
        bids = [(round(price - 0.01 * k, 3), 10.0 * k + minute) for k in range(1, 14)]
        book = (bids if minute % 4 else [], [(round(price + 0.02, 3), 5.5)])
        for market, token in (("m-77", "1"), (f"0x{EVIL}", f"3{EVIL}")):
            archive.put("books", market, token, START + minute * MINUTE, book)
            archive.put("prices", market, token, START + minute * MINUTE, price)
    return archive


@pytest.fixture(scope="module")
def shown() -> Iterator[Service]:
    with serve(hostile_archive(), requests_per_minute=1000) as service:
        yield service


@pytest.fixture
def asked(shown: Service) -> Iterator[Web]:
    with requests.Session() as session:
        yield Web(shown.base_url, shown.api_key, session)


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def page(window: Browser, shown: Service) -> Browser:
    """The page with the key given, by keyboard alone."""
    window.open_anew(shown.base_url + "/")
    give_key(window, str(shown.api_key))
    window.wait(lambda: listed(window) == 2)
    return window


def give_key(page: Browser, key: str) -> None:
    page.run("document.querySelector('#key').focus()")
    page.type(key)
    page.press("Enter")


def listed(page: Browser) -> int:
    """How many markets are listed."""
    return int(page.run("return document.querySelectorAll('#markets button').length"))


def loaded(page: Browser) -> bool:
    return bool(
        page.run("return !!document.querySelector('#chart svg') && document.querySelector('#busy').innerText === ''")
    )


def test_the_pages_are_files_of_the_service_and_hold_nothing_that_needs_a_key() -> None:
    """They need no key, load nothing from elsewhere, run no other script, and tell no market, plan or date."""
    web = in_process(hostile_archive())
    for path in ("/", "/interface.html"):
        page = web.session.get(path)
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert (page.headers["x-content-type-options"], page.headers["referrer-policy"]) == ("nosniff", "no-referrer")
        assert not re.findall(r"<(?:script|style)>|\son\w+=", page.text)
        files = re.findall(r'(?:src|href)="(/[^"]+)"', page.text)
        assert {"/page.css"} < set(files)
        texts = [page.text, *(web.session.get(file).text for file in files)]
        assert not any("://" in text.replace("http://www.w3.org/", "") for text in texts)
        assert not [s for s in ("will-it-rain", "m-77", "local", "2026-01-05") for text in texts[:1] if s in text]
    for script in ("/base.js", "/interface.js"):
        assert web.session.get(script).headers["content-type"] == "text/javascript; charset=utf-8"
    assert all(path.startswith("/v1/") for path in web.get("/openapi.json").body["paths"])
    assert [web.get(path).status for path in ("/docs", "/redoc")] == [404, 404]


def test_coverage_is_what_the_archive_covers() -> None:
    """Intervals per market and view, half-open, and the sum of all; for a key, with its plan alone, and counted."""
    web = in_process(hostile_archive())
    web.session.app.state.service.limiter.clock = lambda: 1e9
    assert [web.as_key(key).get("/coverage").status for key in (None, "wrong")] == [401, 401]
    before = web.get("/v1/usage").body["limits"]["requests_remaining"]
    body = web.get("/coverage", search="rain").body
    assert web.get("/v1/usage").body["limits"]["requests_remaining"] == before - 2
    (market,) = body["data"]
    hours = [["2026-01-05T00:00:00Z", "2026-01-05T01:00:00Z"], ["2026-01-05T01:15:00Z", "2026-01-05T02:50:00Z"]]
    assert market["coverage"] == {"books": hours, "prices": hours, "metrics": []}
    assert body["totals"]["books"] == {"markets": 2, "start": hours[0][0], "end": hours[1][1]}
    assert body["totals"]["metrics"] is None
    assert (body["markets"], body["simulated"], body["plan"]["name"]) == (2, True, "local")
    assert web.get("/coverage", limit="1001").status == 422
    plans = {"mine": {"views": ["prices"]}, "customer-x": {"requests_per_minute": 777}}
    answer = in_process(hostile_archive(), keys={"a": "mine", "b": "customer-x"}, plans=plans).get("/coverage")
    assert answer.body["plan"]["name"] == "mine"
    assert not re.search("customer-x|777", str(answer.body))


def test_coverage_of_many_gaps_stays_small() -> None:
    """However many gaps a market has, it has some 200 intervals at most, and its ends are exact."""
    archive = MemoryArchive()
    archive.add_market("m", {"Yes": "1"})
    for minute in range(0, 4001, 2):
        archive.put("prices", "m", "1", START + minute * MINUTE, 0.5)
    intervals = in_process(archive).get("/coverage").body["data"][0]["coverage"]["prices"]
    assert len(intervals) <= 201
    assert (intervals[0][0], intervals[-1][1]) == ("2026-01-05T00:00:00Z", "2026-01-07T18:41:00Z")


def bars(page: Browser, selector: str) -> list[float]:
    """Widths of the bars of the ladder, as a part of the row."""
    widths = page.run("return [...document.querySelectorAll(arguments[0])].map(r => r.style.backgroundSize)", selector)
    return [float(width.partition("%")[0]) / 100 for width in widths]


def test_a_market_is_drawn_from_the_services_own_answers(page: Browser, asked: Web) -> None:
    """By keyboard a market is opened and stepped back in time; the ladder and the figures equal the answers of /v1."""
    page.wait(lambda: page.run("return document.activeElement.closest('#markets') !== null"))
    page.press("Enter")
    page.wait(lambda: loaded(page))
    assert "Simulated data." in page.text("#simulated")
    assert "SIMULATED" in page.text("#chart")
    page.run("document.querySelector('#time').focus()")
    page.press("Left", "Left")
    at = page.text("#at")
    assert at == "2026-01-05 02:47 UTC"
    times = {"start_ts": "2026-01-05T02:47:00Z", "end_ts": "2026-01-05T02:48:00Z", "resolution": "1m"}
    (book,) = asked.get("/v1/tokens/1/books", **times).body["data"]
    (price,) = asked.get("/v1/tokens/1/prices", **times).body["data"]
    bids = page.run(ROWS, "#bids tr")
    assert [float(row[0]) for row in bids] == [level[0] for level in book["bids"][:10]]
    assert [float(row[1]) for row in bids] == [round(level[1], 2) for level in book["bids"][:10]]
    assert page.run(ROWS, "#asks tr") == [[f"{book['asks'][0][0]:.3f}", "5.50", "5.50"]]
    cells = "return [...document.querySelectorAll('#readout div')].map(d => [...d.children].map(c => c.innerText))"
    bid, ask = book["bids"][0][0], book["asks"][0][0]
    values = {"Price": price["p"], "Bid": bid, "Ask": ask, "Mid": (bid + ask) / 2, "Spread": ask - bid}
    digits = {"Price": 4, "Mid": 4}  # of a mean: one more than those of the tick
    assert dict(page.run(cells)) == {name: f"{value:.{digits.get(name, 3)}f}" for name, value in values.items()}
    assert 'client.books("will-it-rain"' in page.text("#python")
    assert bars(page, "#bids tr") == [
        pytest.approx(level[1] / book["bids"][9][1], abs=0.01) for level in book["bids"][:10]
    ]
    assert page.text("#bar") == f"Bars show the size; a full bar is {book['bids'][9][1]:.2f} shares."
    assert "3 more bids" in page.text("#middle")
    page.press("Left", "Right", "Right", "Right")
    assert page.text("#at") == "2026-01-05 02:49 UTC"
    page.press("Left")
    assert page.text("#middle").strip() == "no bids"
    assert "Mid\n\u2013" in page.text("#readout")
    assert page.run("return document.querySelector('#chart .price').getAttribute('d').split('M').length - 1") == 2
    gaps = page.run("return [...document.querySelectorAll('#chart .gap')].map(g => +g.getAttribute('width'))")
    plot = page.run("return document.querySelector('#chart svg').clientWidth") - 52
    assert [width / plot for width in gaps] == [pytest.approx(15 / 170, abs=0.003)]
    # Values are those under the pointer.
    hover = "const [x] = arguments; const b = document.querySelector('#chart').getBoundingClientRect();"
    hover += "document.querySelector('#chart').dispatchEvent(new PointerEvent('pointermove', {clientX: b.left + x}))"
    page.run(hover, 44 + plot * 10.5 / 170)
    assert page.text("#at") == "2026-01-05 00:10 UTC"


PLANS = {
    "all": {},
    "no-books": {"views": ["prices", "metrics"]},
    "metrics": {"views": ["metrics"]},
    "half-a-day": {"max_history_days": 0.5},
    "daily": {"resolutions": ["1d"]},
    "slow": {"requests_per_minute": 3},
}


@pytest.fixture(scope="module")
def planned() -> Iterator[Service]:
    """Eleven markets, one with a crossed book and one without history, and a key of each kind of plan."""
    archive = MemoryArchive()
    for k in range(11):
        name = f"question-{k}-that-is-as-long-as-questions-are-and-a-little-longer"
        archive.add_market(f"m{k:02}", {"Yes": f"t{k}"}, slug=name, end_date=f"2026-02-{28 - k}T00:00:00Z")
        archive._records["markets"][-1]["question"] = name.replace("-", " ").capitalize() + "?"
        for minute in range(30 if k else 0):
            book = ([(0.5001, 10.5)], [(0.5, 0.5)]) if k == 1 else ([(0.4, 10.5)], [(0.5, 0.5), (0.6, 20.25)])
            archive.put("books", f"m{k:02}", f"t{k}", START + minute * MINUTE, book)
            archive.put("prices", f"m{k:02}", f"t{k}", START + minute * MINUTE, 0.45)
    with serve(archive, keys={f"key-{name}": name for name in PLANS}, plans=PLANS) as service:
        yield service


def opened(window: Browser, service: Service, plan: str) -> Browser:
    """The page with the key of a plan."""
    window.open_anew(service.base_url + "/")
    give_key(window, f"key-{plan}")
    window.wait(lambda: listed(window) == 11)
    return window


def choose(page: Browser, number: int) -> None:
    """A market, until it is drawn or the page says why it is not."""
    page.run("document.querySelectorAll('#markets button')[arguments[0]].click()", number)
    page.wait(lambda: page.text("#busy") not in {"", "Loading\u2026"} or loaded(page) or page.text("#message"))


def requests_of(page: Browser) -> list[str]:
    return [
        name.partition("?")[0] for name in page.run("return performance.getEntriesByType('resource').map(e => e.name)")
    ]


@pytest.mark.docs
@pytest.mark.parametrize(
    ("plan", "said", "asked"),
    [
        ("all", "", "/books?"),
        ("no-books", "", "/prices?"),
        ("metrics", "Your plan does not allow books or prices of this market.", "/metrics?"),
        ("half-a-day", "Your plan reaches back 12 hours, to ", "/books?"),
        ("daily", "", "resolution=1d"),
    ],
)
def test_each_kind_of_plan_is_shown_what_it_allows(
    window: Browser, planned: Service, plan: str, said: str, asked: str
) -> None:
    """No request is made that the plan refuses, what cannot be shown is said, and the example is an allowed one."""
    page = opened(window, planned, plan)
    page.wait(lambda: asked in page.text("#curl"))
    assert "/v1/markets/question-" in page.text("#curl")
    for market in (1, 2):
        choose(page, market)
        assert page.text("#busy").startswith(said)
        assert bool(page.text("#busy")) == bool(said)
        assert page.text("#message") == ""
        assert page.run("return document.querySelector('#view').hidden") == bool(said)
    assert asked in page.text("#curl")
    start, end = re.findall(r"_ts=([^&']+)", page.text("#curl"))
    assert start < end
    refused = {"no-books": "/books", "metrics": "/v1/tokens", "half-a-day": "/v1/tokens"}
    assert [name for name in requests_of(page) if refused.get(plan, "?") in name] == []
    assert ("12 hours" in page.text("#plans")) == (plan == "half-a-day")
    assert page.run("return document.querySelector('#ladder').offsetHeight > 0") == (plan in {"all", "daily"})
    assert page.log() == []


@pytest.mark.docs
@pytest.mark.parametrize(("width", "scheme"), [(375, "dark"), (1280, "light")])
def test_the_page_fits_its_screen(window: Browser, planned: Service, width: int, scheme: str) -> None:
    """At 375 and 1280 pixels, light and dark: nothing is wider, eleven markets take 1,000, and no field is cut."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    window.call("POST", "/goog/cdp/execute", cmd="Emulation.setEmulatedMedia", params={"features": features})
    window.phone(width, 800)
    try:
        page = opened(window, planned, "all")
        choose(page, 2)
        assert page.run("return document.documentElement.scrollWidth") <= width
        assert page.run("return document.querySelector('#markets').offsetHeight") <= 1_000
        inks = page.run("const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]")
        light = [sum(map(int, re.findall(r"\d+", ink)[:3])) for ink in inks]
        assert (light[0] < light[1]) == (scheme == "light")
        cut = (
            "return [...document.querySelectorAll('input, button, dd, #ladder td')]"
            ".filter(e => e.scrollWidth > e.clientWidth + 1 || e.placeholder).map(e => e.outerHTML)"
        )
        assert page.run(cut) == []
    finally:
        window.phone(0, 0)
        window.call("POST", "/goog/cdp/execute", cmd="Emulation.setEmulatedMedia", params={"features": []})


@pytest.fixture(scope="module")
def long() -> Iterator[Service]:
    """Three days of one market, and a market of twelve outcomes whose favourite is the fifth."""
    archive = MemoryArchive(simulated=True)
    archive.add_market("m-1", {"Yes": "11", "No": "12"}, slug="three-days", end_date="2026-02-02T00:00:00Z")
    for minute in range(0, 3 * 1440, 10):
        archive.put("books", "m-1", "11", START + minute * MINUTE, ([(0.4, 10.0)], [(0.6, 10.0)]))
        archive.put("prices", "m-1", "11", START + minute * MINUTE, 0.5)
    chances = [0.02, 0.05, 0.03, 0.1, 0.5, *[0.01] * 7]
    archive.add_market("m-2", {f"Runner {i}": f"2{i}" for i in range(12)}, slug="who-wins")
    for i, chance in enumerate(chances):
        archive.put("prices", "m-2", f"2{i}", START, chance)
    with serve(archive, requests_per_minute=1000) as service:
        yield service


def three_days(window: Browser, service: Service, address: str = "") -> Browser:
    """The page of the first market, with its key typed, at what an address names."""
    window.open_anew(f"{service.base_url}/{address}")
    give_key(window, str(service.api_key))
    window.wait(lambda: loaded(window))
    return window


def drag(page: Browser, start: float, end: float) -> None:
    """The mouse, over parts of the plot of the chart from 0 to 1."""
    left, top, plot = page.run(
        "const c = document.querySelector('#chart'); c.scrollIntoView({ block: 'center' });"
        "const b = c.getBoundingClientRect();"
        "return [b.left + 44, b.top + 100, b.width - 52]"
    )
    moves: list[dict[str, Any]] = [
        {"type": "pointerMove", "x": round(left + plot * start), "y": round(top), "duration": 0},
        {"type": "pointerDown", "button": 0},
        {"type": "pointerMove", "x": round(left + plot * end), "y": round(top), "duration": 0},
        {"type": "pointerUp", "button": 0},
    ]
    page.call("POST", "/actions", actions=[{"type": "pointer", "id": "mouse", "actions": moves}])


def ranges(page: Browser) -> list[str]:
    return re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d", page.text("#range"))


def pick_window(page: Browser, text: str) -> None:
    page.run(
        "const s = document.querySelector('#span');"
        "s.value = [...s.options].find((o) => o.text === arguments[0]).value; s.dispatchEvent(new Event('change'))",
        text,
    )
    page.wait(lambda: loaded(page))


def test_another_width_of_the_window_keeps_the_chosen_time(window: Browser, long: Service) -> None:
    """A click keeps a time, which every width shows in its bucket; a pointer that only passes keeps none."""
    page = three_days(window, long)
    end = page.text("#at")
    hover = "document.querySelector('#chart').dispatchEvent(new PointerEvent(arguments[0], {clientX: 300}))"
    page.run(hover, "pointermove")
    assert page.text("#at") != end
    page.run(hover, "pointerleave")
    assert page.text("#at") == end
    pick_window(page, "3 hours")
    assert ranges(page) == ["2026-01-07 20:51", "2026-01-07 23:51"]
    pick_window(page, "1 week")
    drag(page, 0.5, 0.5)
    chosen = page.text("#at")
    assert "2026-01-06 10:" <= chosen < "2026-01-06 13:00"
    for text in ("3 hours", "1 week", "1 day", "3 hours"):
        pick_window(page, text)
        start, end = ranges(page)
        assert start < chosen < end
        assert page.text("#at")[:13] == chosen[:13]
    assert page.text("#at") == chosen


def test_an_address_opens_a_market_at_a_time(window: Browser, long: Service) -> None:
    """Dragging zooms; the address names market, window and time without the key, after a reload too; Back leaves it."""
    page = three_days(window, long)
    whole = ranges(page)
    page.wait(lambda: "market=three-days" in page.run("return location.href"))
    assert "buckets of 1h" in page.text("#range")
    drag(page, 0.25, 0.75)
    page.wait(lambda: loaded(page) and ranges(page) != whole)
    start, end = ranges(page)
    assert "2026-01-05 16:" < start < "2026-01-05 19:"
    assert "2026-01-07 04:" < end < "2026-01-07 07:"
    assert "buckets of 10m" in page.text("#range")
    page.run("document.querySelectorAll('#outcomes input')[1].click()")
    page.run("document.querySelectorAll('#outcomes input')[0].click()")
    page.wait(lambda: loaded(page))
    drag(page, 0.5, 0.5)
    chosen = page.text("#at")
    page.wait(lambda: f"at={chosen[:10]}" in page.run("return location.href"))
    address = page.run("return location.hash")
    assert str(long.api_key) not in page.run("return location.href")
    page = three_days(window, long, address)
    assert (page.text("#at"), ranges(page)) == (chosen, [start, end])
    assert page.text("#names").startswith("three-days")
    page.run("[...document.querySelectorAll('#markets button')].at(-1).click()")
    page.wait(lambda: loaded(page) and "market=who-wins" in page.run("return location.href"))
    page.run("history.back()")
    page.wait(lambda: loaded(page) and page.text("#at") == chosen)
    page.run("location.hash = 'market=of-nobody'")
    page.wait(lambda: "no market of-nobody" in page.text("#message"))
    page.log()  # the browser notes what its own tools did to the pointer


def test_the_favourite_of_many_outcomes_is_the_first(window: Browser, long: Service) -> None:
    """Of more than two outcomes that with the greatest last price is drawn; Yes and No stay as they are."""
    page = three_days(window, long, "#market=who-wins")
    options = "return [...document.querySelectorAll('#outcomes option')].map(o => o.text)"
    assert page.run(options)[:4] == ["Runner 4", "Runner 3", "Runner 1", "Runner 2"]
    assert "Price\n0.5000" in page.text("#readout")
    page = three_days(window, long)
    assert re.findall(r"Yes|No", page.text("#outcomes")) == ["Yes", "No"]
    plans = {"recent": {"max_history_days": 1}, "books": {"views": ["books"]}, "all": {}}
    archive = MemoryArchive()
    archive.add_market("m", {"Yes": "1"})
    archive.put("prices", "m", "1", START, 0.25)
    for plan, prices in (("recent", {}), ("books", {}), ("all", {"1": 0.25})):
        web = in_process(archive, keys={"k": plan}, plans=plans).as_key("k")
        assert web.get("/coverage", market="slug-of-m").body["last_prices"] == prices
    assert web.get("/coverage", market="nobody").body["data"] == []


def test_what_a_search_found_is_said_with_what_there_is(window: Browser, long: Service) -> None:
    """One text names the number that was found and the number of all."""
    page = three_days(window, long)
    assert page.text("#totals").startswith("2 markets. Recorded of all: books of 1 market,")
    for words, said in (("days", "1 of 2 markets has these words."), ("snow", "None of 2 markets have these words.")):
        page.run("document.querySelector('#search').value = arguments[0]", words)
        page.click("#search-form button")
        page.wait(lambda said=said: page.text("#totals").startswith(said))
    assert page.run("return document.querySelectorAll('#markets li').length") == 0


def test_on_a_phone_the_chart_comes_first(window: Browser, long: Service) -> None:
    """At 390 pixels the chart and its time are on the first screen, above the list; the book is below it."""
    window.phone(390, 844)
    try:
        page = three_days(window, long)
        places = "return arguments[0].map((s) => document.querySelector(s).getBoundingClientRect().bottom)"
        chart, slider, markets, ladder = page.run(places, ["#chart", "#time", "#markets", "#ladder"])
        assert chart < slider < 844 < markets < ladder
        assert page.run("return document.documentElement.scrollWidth") <= 390
        page.run("document.querySelectorAll('#markets button')[0].scrollIntoView()")
        page.run("document.querySelectorAll('#markets button')[0].click()")
        page.wait(lambda: page.run("return document.querySelector('#question').getBoundingClientRect().top") >= 0)
    finally:
        window.phone(0, 0)


@pytest.mark.docs
def test_figures_are_rounded_alike(window: Browser, planned: Service) -> None:
    """Prices have the digits of the tick, a mean of two has one more, and a sum has those of its sizes."""
    page = opened(window, planned, "all")
    choose(page, 1)
    assert "Spread\n-0.0001" in page.text("#readout")
    choose(page, 2)
    page.wait(lambda: page.run(ROWS, "#asks tr") == [["0.60", "20.25", "20.75"], ["0.50", "0.50", "0.50"]])
    assert page.run(ROWS, "#bids tr") == [["0.40", "10.50", "10.50"]]
    assert "Mid\n0.450" in page.text("#readout")


@pytest.mark.docs
def test_more_than_ten_outcomes_are_a_list_to_choose_from(window: Browser) -> None:
    """Below that they are radio buttons; what is chosen is drawn, and one level more is "1 more ask"."""
    archive = MemoryArchive(simulated=True)
    for name, count in (("few", 10), ("many", 11)):
        archive.add_market(name, {f"Team {i}": f"{name}{i}" for i in range(count)})
        asks = [(0.5 + k / 100, 1.0) for k in range(11)]
        archive.put("books", name, f"{name}{count - 1}", START, ([(0.4, 8.0)], asks))
    with serve(archive) as service:
        window.open_anew(f"{service.base_url}/#key={service.api_key}")
        window.wait(lambda: loaded(window) or window.text("#busy"))
        shapes = []
        for place in (0, 1):
            window.run("document.querySelectorAll('#markets button')[arguments[0]].click()", place)
            kinds = ("input[type=radio]", "select", "option")
            shapes.append(
                [window.run("return document.querySelectorAll(arguments[0]).length", f"#outcomes {k}") for k in kinds]
            )
        assert sorted(shapes) == [[0, 1, 11], [10, 0, 0]]
        window.run("document.querySelectorAll('#markets button')[arguments[0]].click()", shapes.index([0, 1, 11]))
        window.run(
            "const s = document.querySelector('#outcomes select'); s.value = 10; s.dispatchEvent(new Event('change'))"
        )
        window.wait(lambda: window.run(ROWS, "#bids tr") == [["0.40", "8.00", "8.00"]])
        assert window.text("#middle").strip() == "spread 0.10 \u00b7 1 more ask"


def test_names_are_text(page: Browser) -> None:
    """Markup in questions, slugs, ids and labels is shown as it is and never runs; no such name is in a snippet."""
    page.run("document.querySelectorAll('#markets button')[1].click()")
    page.wait(lambda: loaded(page))
    assert EVIL in page.text("#question")
    assert EVIL in page.text("#outcomes")
    assert "rm -rf" not in page.text("#curl") + page.text("#python")
    assert page.run("return window.hacked") is None
    assert page.run("return document.images.length + document.querySelectorAll('main script').length") == 0
    assert page.log() == []
    assert len(page.run(ROWS, "#bids tr")) == 10


def test_a_key_is_kept_for_its_tab_alone(page: Browser, shown: Service) -> None:
    """It is in no address, element or cookie, nothing outside is asked, and a reload keeps it until it is forgotten.

    A wrong one opens nothing and is not kept.
    """
    key = str(shown.api_key)
    assert key not in page.run("return document.documentElement.outerHTML + location.href + document.cookie")
    assert page.run("return document.querySelector('#key').value") == ""
    assert page.run("return localStorage.length") == 0
    page.run("location.reload()")
    page.wait(lambda: listed(page) == 2)
    assert page.run("return document.querySelector('#access').hidden")
    asked = page.run("return performance.getEntriesByType('resource').map(e => e.name)")
    assert asked
    assert all(name.startswith(shown.base_url) and key not in name for name in asked)
    assert page.log() == []
    page.click("#forget")
    assert page.run("return document.querySelectorAll('#markets li').length") == 0
    for given in ("wrong", "no\u00e9"):
        give_key(page, given)
        assert page.wait(lambda: page.text("#message"))
    assert page.run("return document.querySelector('#held').hidden")
    assert page.run("return sessionStorage.length") == 0


def test_another_key_in_the_same_tab_takes_the_place_of_the_first(window: Browser, planned: Service) -> None:
    """The last key that was given is used and kept, whichever answer comes first; a refused one is forgotten."""
    page = opened(window, planned, "all")
    page.run("open('key-no-books'); open('key-metrics')")
    page.wait(lambda: "metrics" in page.text("#plans") and "prices" not in page.text("#plans"))
    assert page.run("return sessionStorage.getItem('key')") == "key-metrics"
    page.run("sessionStorage.setItem('key', 'of-a-service-before'); location.reload()")
    page.wait(lambda: page.text("#message"))
    assert page.run("return sessionStorage.length") == 0
    give_key(page, "key-no-books")
    page.wait(lambda: "metrics" in page.text("#plans") and "prices" in page.text("#plans"))
    page.log()  # the browser notes the key that was refused


def test_a_link_to_simulated_data_opens_its_first_market(
    window: Browser, shown: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link carries the key, which leaves the address; the lines name its variable, run as they are, and have data.

    It may be pasted into a tab that shows the page. A link to data that is not simulated is not used.
    """
    window.open_anew(f"{shown.base_url}/#key={shown.api_key}")
    window.wait(lambda: loaded(window))
    assert str(shown.api_key) not in window.run("return location.href + document.documentElement.outerHTML")
    assert window.text("#markets [aria-current] button") == window.text("#question")
    names: dict[str, Any] = {}
    monkeypatch.setenv("MARKETDATA_API_KEY", str(shown.api_key))
    lines = window.text("#python").splitlines()
    assert sum("books.md.plot" in line for line in lines) == 1
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)
    exec("\n".join(lines), names)
    assert names["books"]["market_id"].unique().tolist() == ["m-77"]
    assert 'client.books("will-it-rain", "2026-01-05", "2026-01-05T02:50:00Z", "1m")' in window.text("#python")
    assert window.log() == []
    window.click("#forget")
    window.run("location.hash = arguments[0]", f"key={shown.api_key}")
    window.wait(lambda: loaded(window))
    assert str(shown.api_key) not in window.run("return location.href + document.documentElement.outerHTML")
    with serve(MemoryArchive(), keys={"a-real-key": "local"}) as real:
        window.open_anew(f"{real.base_url}/#key=a-real-key")
        assert window.run("return location.href") == real.base_url + "/"
        assert window.run("return document.querySelector('#held').hidden")
        assert "a-real-key" not in window.run("return document.documentElement.outerHTML")


def test_the_interface_is_described_on_a_readable_page(window: Browser, shown: Service) -> None:
    """Each route with its parameters, what they allow, and its statuses; the start page links to it."""
    window.open_anew(shown.base_url + "/")
    window.click("header a")
    window.wait(lambda: "GET /v1/usage" in window.text("main"))
    assert window.run("return document.querySelectorAll('section').length") == 12
    text = window.text("main")
    assert "Order book snapshots of all tokens of a market; the last book of each bucket." in text
    assert "1m, 10m, 1h, 6h, 1d" in text
    assert window.log() == []
