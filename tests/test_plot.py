"""Charts: what is drawn is what the frame says."""

from __future__ import annotations

import io

import matplotlib as mpl
import numpy as np
import polars as pl
import pytest

import marketdata as md
from marketdata import plot

mpl.use("Agg")


def pair(archive: md.Archive) -> str:
    return next(m["id"] for m in archive.records("markets") if len(m["tokens"]) == 2)


@pytest.fixture(scope="module")
def archive() -> md.Archive:
    return md.simulate(events=1, days=2, markets=1, seed=1)


@pytest.fixture(scope="module", params=["pandas", "polars"])
def frames(archive, request):
    market = pair(archive)
    return tuple(getattr(archive, view)(market, frame=request.param) for view in ("books", "metrics"))


@pytest.fixture
def ax():
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def test_price_band_draws_mid_and_band_of_each_token(frames, ax) -> None:
    """One line per token holds its mids, one band per token its bids and asks; the Axes given is returned."""
    books, _ = frames
    assert plot.price_band(books, ax, title="A title") is ax
    assert [line.get_label() for line in ax.lines] == ["Yes", "No"]
    assert len(ax.collections) == 2
    bbo = md.bbo(books)
    yes = bbo[bbo["token_label"] == "Yes"] if hasattr(bbo, "loc") else bbo.filter(token_label="Yes")
    drawn = np.asarray(ax.lines[0].get_ydata(), float)
    mid = yes["mid"].to_numpy().astype(float)
    assert np.array_equal(np.sort(drawn[~np.isnan(drawn)]), np.sort(mid[~np.isnan(mid)]))
    assert ax.get_ylabel() == "probability"
    assert ax.get_xlabel() == "time [UTC]"
    assert ax.get_title("left") == "A title"


def test_price_band_takes_books_and_bbo_alike(frames, ax) -> None:
    """A bbo frame gives the lines that its books give."""
    books, _ = frames
    plot.price_band(books, ax)
    plot.price_band(md.bbo(books), ax)
    assert np.array_equal(ax.lines[0].get_ydata(), ax.lines[2].get_ydata(), equal_nan=True)


def test_a_gap_of_the_data_is_a_gap_of_the_line(archive, ax) -> None:
    """No line is drawn over hours without data."""
    market = pair(archive)
    metrics = archive.metrics(market, frame="polars")
    steps = np.diff(metrics["ts"].dt.timestamp("us").to_numpy())
    plot.metrics(metrics, ax)
    assert steps.max() > 3600e6
    assert np.isnan(ax.lines[0].get_ydata()).sum() == (steps > 10 * np.median(steps)).sum()


def test_depth_shades_bids_below_and_asks_above(frames, ax) -> None:
    """In each stretch of time bids (positive) lie below asks (negative), and nothing is drawn in a gap."""
    books, _ = frames
    plot.depth(books, ax, token="Yes", bins=480)
    shade = np.asarray(ax.collections[0].get_array())
    assert shade.shape == (100, 480)
    middle = np.arange(100)[:, None] * np.ones(480)
    bids, asks = shade > 0, shade < 0
    assert np.where(bids, middle, 0).sum() / bids.sum() < np.where(asks, middle, 0).sum() / asks.sum()
    assert (shade == 0).all(axis=0).any()
    assert ax.get_ylabel() == "price of Yes"


def test_depth_of_an_unknown_token_names_the_known_ones(frames, ax) -> None:
    """A token that the frame does not have is refused, and those it has are named."""
    with pytest.raises(md.ConfigError, match=r"Maybe.*No|Maybe.*Yes"):
        plot.depth(frames[0], ax, token="Maybe")


def test_metrics_of_an_unknown_column_names_the_known_ones(frames, ax) -> None:
    """A metric that the frame does not have is refused, and those it has are named."""
    with pytest.raises(md.ConfigError, match=r"weight.*volume"):
        plot.metrics(frames[1], ax, column="weight")


def test_a_frame_of_the_wrong_kind_is_refused(frames, ax) -> None:
    """Metrics are no books, and the error says what is missing."""
    with pytest.raises(md.NotTidyError, match="side"):
        plot.depth(frames[1], ax)
    with pytest.raises(md.NotTidyError, match="volume"):
        plot.metrics(frames[0], ax)


def test_only_six_tokens_are_drawn_of_many(archive, ax) -> None:
    """Of a market of 210 tokens the six with the highest last mid are drawn."""
    market = next(m for m in archive.records("markets") if len(m["tokens"]) > 200)
    plot.price_band(archive.books(market["id"]), ax)
    assert len(ax.lines) == 6


def test_an_empty_frame_says_that_there_is_no_data(archive, ax) -> None:
    """A frame without rows gives an empty chart that says so."""
    market = pair(archive)
    none = archive.books(market).iloc[:0]
    for draw in (plot.price_band, plot.depth):
        draw(none, ax)
    plot.metrics(archive.metrics(market).iloc[:0], ax)
    assert {text.get_text() for text in ax.texts} == {"no data in this range"}


def test_overview_is_one_page_marked_as_simulated(frames) -> None:
    """The page has price, depth with its scale and three metrics, says that it is simulated, and saves as PNG."""
    figure = plot.overview(*frames, title="Simulated: a market", simulated=True)
    assert len(figure.axes) == 6
    assert any("simulated" in text.get_text() for text in figure.texts)
    out = io.BytesIO()
    figure.savefig(out)
    assert out.getvalue()[1:4] == b"PNG"


def test_overview_without_metrics_has_two_panels(frames) -> None:
    """Books alone give price and depth."""
    assert len(plot.overview(frames[0]).axes) == 3


def test_a_ladder_draws_the_levels_of_one_book(frames, ax) -> None:
    """Each level is one bar at its price, bids to the left and asks to the right, as long as its size."""
    books, _ = frames
    ts = next(iter(books["ts"].sort_values() if hasattr(books, "loc") else books["ts"].sort()))
    plot.ladder(books, ts, ax, token="Yes")
    rows = md.ladder(books, ts)
    rows = rows[rows["token_label"] == "Yes"] if hasattr(rows, "loc") else rows.filter(token_label="Yes")
    sizes = {c: [v for v in rows[c].to_list() if str(v) not in {"None", "nan"}] for c in ("bid_size", "ask_size")}
    drawn = [bar.get_width() for bar in ax.patches]
    assert sorted(drawn) == sorted([-s for s in sizes["bid_size"]] + sizes["ask_size"])
    assert ax.get_ylabel() == "price of Yes"
    assert "UTC" in ax.get_title("left")


def test_an_empty_ladder_has_the_axes_of_a_ladder(frames, ax) -> None:
    """Without rows, and where both sides are empty, the chart says so on axes of shares and price, not of time."""
    books, _ = frames
    plot.ladder(books[:0], ax=ax)
    assert ("shares" in ax.get_xlabel(), ax.get_ylabel()) == (True, "price [probability]")
    stamps = pl.Series(["2026-01-01"] * 2).str.to_datetime(time_zone="UTC")
    nothing = {"level": None, "price": None, "size": None}
    who = {"market_id": "m", "token_id": "1", "token_label": "Yes"}
    empty = pl.DataFrame({"ts": stamps, **who, "side": ["bid", "ask"], **nothing})
    plot.ladder(empty.cast({"level": pl.Int32, "price": pl.Float64, "size": pl.Float64}), ax=ax)
    assert ("shares" in ax.get_xlabel(), ax.get_ylabel()) == (True, "price of Yes")
    assert "empty" in ax.texts[-1].get_text()


def test_calibration_draws_its_table(archive, ax) -> None:
    """One dot per bin at its mean price and the share that came true; the diagonal is drawn too."""
    markets = [m for m in archive.records("markets") if m["resolved_token_id"]]
    won = {m["id"]: m["resolved_token_id"] for m in markets}
    prices = archive.prices(list(won), resolution="1h", on_missing="partial")
    plot.calibration(prices, won, ax, bins=5)
    table = md.calibration(prices, won, bins=5)
    dots = np.asarray(ax.collections[0].get_offsets())
    assert np.allclose(dots, table[["forecast", "outcome"]].to_numpy())
    assert ax.get_ylabel() == "share that came true"
    assert ax.get_xlabel() == "price [probability]"


def test_calibration_without_a_resolved_market_says_so(archive, ax) -> None:
    """No dot is drawn, and the chart says why."""
    plot.calibration(archive.prices(pair(archive)), {}, ax)
    assert any("no resolved market" in text.get_text() for text in ax.texts)


def test_coverage_draws_a_bar_for_each_stretch(archive, ax) -> None:
    """Every row of the coverage frame is a bar from its start to its end."""
    coverage = archive.coverage()
    plot.coverage(coverage, ax)
    assert len(ax.patches) == len(coverage)
    assert len(ax.get_yticks()) == len(coverage[["market_id", "view"]].drop_duplicates())
    with pytest.raises(md.NotTidyError, match="state"):
        plot.coverage(coverage.drop(columns="state"), ax)


def test_the_accessor_draws_the_same_charts(frames, archive, ax) -> None:
    """df.md.plot has every chart but the page, and gives back the Axes."""
    books, metrics = frames
    won = {m["id"]: m["resolved_token_id"] for m in archive.records("markets") if m["resolved_token_id"]}
    coverage = archive.coverage()
    assert books.md.plot.price_band(ax) is ax
    assert books.md.plot.depth(ax) is ax
    assert books.md.plot.ladder(None, ax) is ax
    assert books.md.plot.calibration(won, ax) is ax
    assert metrics.md.plot.metrics(ax, column="liquidity") is ax
    assert coverage.md.plot.coverage(ax) is ax
    charts = {name for name in dir(books.md.plot) if not name.startswith("_")}
    assert charts == set(plot.__all__) - {"Page", "overview"}


@pytest.mark.parametrize("text", ["between $90k and $100k?", "A $x_$ b"])
def test_dollars_are_drawn_as_dollars(archive, ax, text: str) -> None:
    """Titles, labels and names with dollars are no formulas: they are shown as they are, and nothing fails."""
    import matplotlib.pyplot as plt

    market = pair(archive)
    books = archive.books(market, frame="polars")
    dear = books.with_columns(pl.lit(text).alias("token_label"))
    coverage = archive.coverage(frame="polars").with_columns(pl.lit(text[-12:]).alias("market_id"))
    plot.price_band(dear, ax, title=text)
    charts = (
        ax.figure,
        plot.overview(dear, archive.metrics(market), title=text),
        plot.depth(dear, title=text).figure,
        plot.ladder(dear).figure,
        plot.metrics(archive.metrics(market), title=text).figure,
        plot.calibration(books, {}, title=text).figure,
        plot.coverage(coverage, title=text).figure,
    )
    for figure in charts:
        figure.canvas.draw()
        shown = [one for one in figure.findobj(mpl.text.Text) if "$" in one.get_text()]
        assert shown
        assert not any(one.get_parse_math() for one in shown)
    assert ax.get_title("left") == ax.get_legend().get_texts()[0].get_text() == text
    plt.close("all")
