"""Charts: what is drawn is what the frame says, by each backend and from each kind of frame."""

from __future__ import annotations

import importlib.util
import io
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.text import Text

import marketdata as md
from marketdata import plot, testing

mpl.use("Agg")
go = pytest.importorskip("plotly.graph_objects")
BACKENDS = ["matplotlib", "plotly"]
QUESTIONS = {"rain": "Will it rain?", "snow": "Will it snow?", "wind": "Will it blow?", "frost": "Will it freeze?"}


def pair(archive: md.Archive) -> str:
    return next(m["id"] for m in archive.records("markets") if len(m["tokens"]) == 2)


@pytest.fixture(scope="module")
def archive() -> md.Archive:
    return md.simulate(events=1, days=1, markets=1, seed=1, levels=5)


@pytest.fixture(scope="module")
def books(archive) -> pd.DataFrame:
    return archive.books(pair(archive), resolution="10m")


@pytest.fixture(scope="module")
def many() -> pd.DataFrame:
    """Prices of a market of 20 tokens, whose last ones rise with their number."""
    ids = [f"{i:02d}" for i in range(20)]
    rows = [(minute, i, 0.002 * int(i) + 0.001 * minute) for i in ids for minute in range(3)]
    frame = pd.DataFrame(rows, columns=["ts", "token_id", "price"])
    ts = pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(frame["ts"], "min")
    return frame.assign(ts=ts, market_id="m", token_label=frame["token_id"])


@pytest.fixture(scope="module")
def won(archive) -> dict[str, str]:
    """The winning token of each resolved market."""
    return {m["id"]: m["resolved_token_id"] for m in archive.records("markets") if m["resolved_token_id"]}


@pytest.fixture
def ax():
    return plt.subplots()[1]


def times(x: Any) -> list[float]:
    """Seconds of drawn times, of either backend; a break is NaN."""
    stamps = pd.to_datetime(pd.Series(list(x)), utc=True, format="ISO8601" if isinstance(x[0], str) else None)
    return [float("nan") if pd.isna(t) else t.timestamp() for t in stamps]


def lines(figure: Any) -> list[tuple[str, list[float], list[float]]]:
    """The name, times and values of every line of a figure."""
    if isinstance(figure, go.Figure):
        traces = [t for t in figure.data if t.type == "scatter" and t.mode.startswith("lines") and t.fill is None]
        return [(t.name or "", times(t.x), list(np.asarray(t.y, float))) for t in traces]
    out = []
    for ax in getattr(figure, "figure", figure).axes:
        for line in ax.lines:
            name = line.get_label()
            name = "" if name.startswith("_") else name
            out.append((name, times(np.asarray(line.get_xdata(orig=True))), list(np.asarray(line.get_ydata(), float))))
    return out


def bars(figure: Any) -> list[tuple[float, float, float, float, str]]:
    """Left, width, bottom, height and name of every bar of a figure; times in seconds."""
    if isinstance(figure, go.Figure):
        return [
            (times([left])[0], width / 1000, y - height / 2, height, trace.name or "")
            if isinstance(left, str)
            else (left, width, y - height / 2, height, trace.name or "")
            for trace in figure.data
            if trace.type == "bar"
            for left, width, y, height in zip(trace.base, trace.x, trace.y, trace.width, strict=True)
        ]
    drawn = []
    for ax in getattr(figure, "figure", figure).axes:
        unit = 86_400 if isinstance(ax.xaxis.get_major_formatter(), mpl.dates.ConciseDateFormatter) else 1
        for container in ax.containers:
            for bar in container:
                sides = bar.get_x() * unit, bar.get_width() * unit, bar.get_y(), bar.get_height()
                drawn.append((*sides, container.get_label()))
    return drawn


def title_of(figure: Any) -> str:
    """The title of a chart of one panel."""
    return figure.layout.title.text if isinstance(figure, go.Figure) else figure.get_title("left")


def legend_of(figure: Any) -> list[str]:
    """The entries of the legend of a chart of one panel."""
    if isinstance(figure, go.Figure):
        return [trace.name for trace in figure.data if trace.showlegend]
    return [text.get_text() for text in figure.get_legend().get_texts()]


def texts(figure: Any) -> list[str]:
    """Every text of a matplotlib figure, or every annotation of a plotly figure."""
    if isinstance(figure, go.Figure):
        return [annotation.text for annotation in figure.layout.annotations]
    figure = getattr(figure, "figure", figure)
    return [text.get_text() for text in figure.findobj(mpl.text.Text) if text.get_text()]


def shuffled(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows in no order, ids as objects, an index that says nothing, times in another zone."""
    out = frame.sample(frac=1, random_state=5).set_index(np.zeros(len(frame)))
    ids = [c for c in ("market_id", "token_id", "token_label", "side") if c in out]
    return out.astype(dict.fromkeys(ids, object)).assign(ts=out["ts"].dt.tz_convert("Asia/Tokyo"))


FOREIGN = {
    "shuffled pandas": shuffled,
    "lazy polars": lambda f: pl.from_pandas(f).sort("ts", descending=True).lazy(),
    "Arrow": lambda f: pl.from_pandas(f).to_arrow(),
    "NaN for null": lambda f: f.assign(**{c: f[c].astype(object) for c in f if f[c].dtype == "float64"}),
}
CHARTS = {
    "prices": lambda p, m, b, **o: plot.prices(p, **o),
    "mid": lambda p, m, b, **o: plot.prices(md.mid(b), **o),
    "metrics": lambda p, m, b, **o: plot.metrics(m, **o),
}


@pytest.mark.parametrize("name", CHARTS)
def test_a_frame_of_any_kind_and_order_draws_the_same_lines(name: str) -> None:
    """Rows in any order, ids as objects and times in another zone give the lines of the tidy pandas frame."""
    frames, chart = (testing.prices(), testing.metrics(), testing.books()), CHARTS[name]
    wanted = lines(chart(*frames, backend="plotly"))
    for kind, foreign in FOREIGN.items():
        drawn = lines(chart(*map(foreign, frames), backend="matplotlib"))
        assert [line[:2] for line in drawn] == [line[:2] for line in wanted], kind
        for (_, _, y), (_, _, drawn_y) in zip(wanted, drawn, strict=True):
            np.testing.assert_allclose(y, drawn_y, rtol=1e-12)


def test_prices_draw_the_values_of_the_frame(archive) -> None:
    """A line holds the prices of its token in order of time; of best prices it holds the mids."""
    prices = archive.prices(pair(archive), resolution="1h")
    touch = md.bbo(archive.books(pair(archive), resolution="1h"))
    for frame, value in ((prices, "price"), (touch, "mid")):
        for label, _, y in lines(plot.prices(frame, both=True)):
            drawn = np.asarray(y)[~np.isnan(y)]
            assert drawn.tolist() == frame.loc[frame["token_label"] == label, value].dropna().tolist()


def test_a_gap_of_the_data_is_a_gap_of_the_line() -> None:
    """No line is drawn over minutes without data, and other points stay joined."""
    metrics = testing.metrics("polars", buckets=40)
    minute = pl.int_range(pl.len())
    ((_, _, y),) = lines(plot.metrics(metrics.filter((minute < 10) | (minute > 25))))
    assert np.flatnonzero(np.isnan(y)).tolist() == [10]


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_token_of_a_market_of_many_is_drawn(many, backend: str) -> None:
    """The six tokens with the highest last price have a colour and a name, and the legend counts the others."""
    figure = plot.prices(many, backend=backend)
    drawn = lines(figure)
    assert len(drawn) == 20
    assert {name for name, _, _ in drawn} - {""} == {"14 further tokens", *(str(i) for i in range(14, 20))}
    assert sorted(legend_of(figure)) == ["14", "14 further tokens", *map(str, range(15, 20))]
    assert sum(np.isfinite(y).sum() for _, _, y in drawn) == len(many)


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_market_has_a_panel_named_by_its_question(backend: str) -> None:
    """Tokens are grouped by market, panels carry questions, and the axes of time agree."""
    figure = plot.prices(testing.prices(markets=3), markets=QUESTIONS, both=True, backend=backend)
    assert [name for name, _, _ in lines(figure)] == ["Yes", "No"] * 3
    assert legend_of(figure) == ["Yes", "No"]
    if backend == "plotly":
        titles = texts(figure)
        assert {axis.matches for axis in figure.select_xaxes()} == {None, "x"}
    else:
        titles = [one.get_title("left") for one in figure.figure.axes]
        assert len({(one.get_xlim(), one.get_ylim()) for one in figure.figure.axes}) == 1
        assert figure is figure.figure.axes[0]
    assert titles == [QUESTIONS[m] for m in ("rain", "snow", "wind")]


def test_of_two_outcomes_the_first_is_drawn() -> None:
    """One line, of the first token of the record, else of Yes; both if asked for, or where the frame has one only."""
    prices = testing.prices()
    (yes, _, first), (no, _, second) = lines(plot.prices(prices, both=True))
    assert (yes, no) == ("Yes", "No")
    assert [(name, y) for name, _, y in lines(plot.prices(prices))] == [("Yes", first)]
    order = prices.loc[prices["token_label"] == "No", "token_id"].iloc[0], prices["token_id"].iloc[0]
    records = pd.DataFrame({"market_id": ["rain"], "question": ["Rain?"], "token_ids": [list(map(str, order))]})
    drawn = lines(plot.prices(prices, markets=records))
    assert [(name, y) for name, _, y in drawn] == [("No", second)]
    assert len(lines(plot.prices(prices[prices["token_label"] == "No"]))) == 1


def test_a_record_of_a_market_names_it() -> None:
    """A record as ``client.market`` gives it, or a list of them, does what a frame of records does."""
    prices = testing.prices()
    record = {"id": "rain", "question": "Rain?", "tokens": [{"id": "12", "label": "No"}], "simulated": True}
    for markets in (record, [record]):
        shown = " ".join(texts(plot.prices(prices, markets=markets)))
        assert "Rain?" in shown
        assert "simulated" in shown.lower()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_point_without_neighbours_is_a_dot(backend: str) -> None:
    """A line of one point, and a point between two gaps, is marked; others are not."""
    prices = testing.prices("polars", buckets=40).filter(pl.col("token_label").cast(pl.String) == "Yes")
    minutes = pl.int_range(pl.len())
    for frame, at in ((prices[:1], [0]), (prices.filter((minutes < 10) | (minutes == 25)), [11]), (prices[:9], [])):
        figure = plot.prices(frame, backend=backend)
        if backend == "plotly":
            (line,) = figure.data
            marked = [] if line.mode == "lines" else np.flatnonzero(line.marker.size).tolist()
        else:
            (line,) = figure.lines
            marked = [] if line.get_marker() in ("None", None) else line.get_markevery()
        assert marked == at


@pytest.mark.parametrize("backend", BACKENDS)
def test_prices_are_spaced_by_log_odds(backend: str) -> None:
    """Ticks are as far apart as their log-odds, and a price beyond the ends of the axis is drawn at its end."""
    figure = plot.prices(testing.prices().assign(price=[0.02, 0.9999, 1.0] * 2), log_odds=True, backend=backend)
    if backend == "plotly":
        axis, y = figure.layout.yaxis, np.array(figure.data[0].y)
        label, (low, high) = axis.title.text, axis.range
        places = dict(zip(map(float, axis.ticktext), axis.tickvals, strict=True))
        assert places[0.75] - places[0.25] == pytest.approx(2 * np.log(3))
    else:
        label, (low, high), y = figure.get_ylabel(), figure.get_ylim(), figure.lines[0].get_ydata()
        assert (low, high) == (0.02, 0.999)
        assert np.diff(figure.yaxis.get_transform().transform(np.array([0.25, 0.75]))) == pytest.approx(2 * np.log10(3))
    assert low == pytest.approx(y[0])
    assert y[1:].tolist() == pytest.approx([high, high])
    assert label == "price [probability, log-odds scale]"


@pytest.mark.parametrize("backend", BACKENDS)
def test_candles_are_the_bars_of_ohlc(backend: str) -> None:
    """A body reaches from open to close within its bucket, a wick from low to high."""
    rows = md.ohlc(testing.prices("polars", buckets=30), "10m")
    figure = plot.candles(rows, backend=backend)
    yes = rows.filter(pl.col("token_label") == "Yes")
    ((_, _, wick),) = lines(figure)
    np.testing.assert_allclose(np.reshape(wick, (-1, 3))[:, :2], yes.select("low", "high").to_numpy())
    bodies = [(bottom, bottom + height) for _, _, bottom, height, _ in bars(figure)]
    wanted = [(min(first, last), max(first, last)) for first, last in yes.select("open", "close").rows()]
    np.testing.assert_allclose(sorted(bodies), sorted(wanted), atol=1e-3)
    with pytest.raises(md.errors.NotTidyError, match="open"):
        plot.candles(testing.prices(), backend=backend)


OVER_TIME = {
    **CHARTS,
    "candles": lambda p, m, b, **o: plot.candles(md.ohlc(p, "1m"), **o),
    "depth": lambda p, m, b, **o: plot.depth(b, **o),
    "book": lambda p, m, b, **o: plot.book(b, metrics_frame=m, **o),
    "outcomes": lambda p, m, b, **o: plot.outcomes(p, **o),
    "account": lambda p, m, b, **o: plot.account(account_of(testing.books("polars")), **o),
    "coverage": lambda p, m, b, **o: plot.coverage(COVERED, **o),
}
COVERED = pd.DataFrame(
    {"view": "books", "market_id": "rain", "state": "final", "rows": 1}
    | {"start": pd.to_datetime(["2026-01-01"], utc=True), "end": pd.to_datetime(["2026-01-02"], utc=True)}
)


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_chart_over_time_names_moments_and_has_both_themes(backend: str) -> None:
    """A moment is a line with its name, and the theme sets the ground."""
    frames = testing.prices(), testing.metrics(), testing.books()
    charts = [*OVER_TIME][BACKENDS.index(backend) :: 2]
    for name, theme in zip(charts, ("light", "dark") * 3, strict=False):
        moments = {"a jump": "2026-01-01T00:01:00Z"}
        figure = OVER_TIME[name](*frames, moments=moments, theme=theme, backend=backend)
        if backend == "plotly":
            assert any(shape.x0.startswith("2026-01-01T00:01") for shape in figure.layout.shapes), name
            ground = figure.layout.template.layout.paper_bgcolor
        else:
            ground = mpl.colors.to_hex(getattr(figure, "figure", figure).get_facecolor())
        assert "a jump" in texts(figure), name
        assert (ground == "#ffffff") is (theme == "light"), name


def test_a_chart_without_time_takes_no_moments() -> None:
    """A moment that could not be drawn is refused, and so is an option that no chart has."""
    with pytest.raises(md.errors.ConfigError, match="no axis of time"):
        plot.ladder(testing.books(), token="Yes", moments={"a jump": 0})
    with pytest.raises(md.errors.ConfigError, match="tz= is of times"):
        plot.calibration(testing.prices(), {"rain": "Yes"}, tz="UTC")
    with pytest.raises(TypeError, match="colour"):
        plot.prices(testing.prices(), colour="red")
    with pytest.raises(md.errors.ConfigError, match="light, dark"):
        plot.prices(testing.prices(), theme="blue")


def test_names_of_moments_do_not_overlap() -> None:
    """Names of moments are above the panel, and names of close moments are in rows of their own."""
    moments = {f"moment number {i}": f"2026-01-01T00:0{i}:00Z" for i in range(3)}
    ax = plot.prices(testing.prices(buckets=20), moments=moments)
    ax.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) == len(moments)
    assert min(box.y0 for box in boxes) >= ax.get_window_extent().y1
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])


def test_markets_are_named_by_records_too_and_never_by_a_whole_hash() -> None:
    """A frame of market records names the panels; without it a long id is shortened."""
    long = "0x" + "5" * 62
    frame = testing.prices(markets=2).astype({"market_id": str}).replace({"market_id": {"rain": long}})
    records = pd.DataFrame({"market_id": [long, "snow"], "question": ["Will it rain?", "Will it snow?"], "more": 1})
    assert "Will it rain?" in texts(plot.prices(frame, markets=records))
    shown = texts(plot.prices(frame))
    assert "market 0x5555…555555" in shown
    assert not any(long in text for text in shown)
    with pytest.raises(md.errors.ConfigError, match=r"markets=.*question.*token_label"):
        plot.prices(frame, markets=frame)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_title_has_the_market_and_its_range(backend: str) -> None:
    """The title is the question and the range with its zone, unless one is given; "" is none."""
    given, empty, default = (
        title_of(plot.prices(testing.prices(), markets=QUESTIONS, backend=backend, title=title))
        for title in ("Own", "", None)
    )
    assert default.startswith("Will it rain?")
    assert "2026-01-01 00:00 to 2026-01-01 00:02 UTC" in default
    assert (given, empty) == ("Own", "")


def test_a_long_title_fits_the_figure() -> None:
    """The lines of a title are no wider than the figure, on a page and on one panel."""
    question = {"rain": "Will it rain on the day of the vote, or will there be snow? " * 5}
    for chart in (plot.prices(testing.prices(), markets=question), plot.book(testing.books(), markets=question)):
        figure = getattr(chart, "figure", chart)
        figure.draw_without_rendering()
        (title,) = (t for t in figure.findobj(mpl.text.Text) if t.get_text().startswith("Will it rain"))
        assert title.get_window_extent().x1 <= figure.bbox.x1
    drawn = plot.prices(testing.prices(), markets=question, backend="plotly").layout.title.text
    assert max(len(line) for line in drawn.split("<br>")) < 120


def test_markets_that_fit_no_chart_are_refused_by_number(ax) -> None:
    """More than 60 panels, or several on one Axes, are an error that names the number; nothing is left out."""
    prices = testing.prices()
    crowd = pd.concat([prices.assign(market_id=str(i)) for i in range(61)])
    with pytest.raises(md.errors.ConfigError, match="61 markets"):
        plot.prices(crowd)
    with pytest.raises(md.errors.ConfigError, match="has 2"):
        plot.prices(testing.prices(markets=2), ax)
    with pytest.raises(md.errors.ConfigError, match="tokens of 2 markets, and one is drawn"):
        plot.book(testing.books(markets=2))


def test_depth_shades_bids_below_and_asks_above(books, ax) -> None:
    """At each time bids (negative) are below asks (positive), as in the scale; cells without orders are empty."""
    plot.depth(books, ax, token="Yes", bins=480)
    shade = np.ma.filled(ax.collections[0].get_array(), np.nan)
    cells = shade.shape[1]
    assert shade.shape[0] == 100
    middle = np.arange(100)[:, None] * np.ones(cells)
    bids, asks = shade < 0, shade > 0
    assert np.where(bids, middle, 0).sum() / bids.sum() < np.where(asks, middle, 0).sum() / asks.sum()
    assert (np.isnan(shade) | (np.abs(shade) > 0)).all()
    assert np.isnan(shade).all(axis=0).any(), "times without a snapshot"
    assert ax.get_ylabel() == "price of Yes"
    heat = plot.depth(books, token="Yes", bins=480, backend="plotly").data[0]
    np.testing.assert_allclose(heat.z, shade, rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_times_without_a_snapshot_are_hatched(backend: str) -> None:
    """An empty book is an empty column, a missing one is hatched, and the axis says so."""
    books = testing.books("polars", buckets=8, levels=1)
    empty = pl.col("ts") == books["ts"].min() + pd.Timedelta("2min")
    books = books.with_columns(pl.when(~empty).then(c).alias(c) for c in ("level", "price", "size"))
    cut = books.filter(~pl.col("ts").is_between(*(books["ts"].min() + pd.Timedelta(f"{n}min") for n in (4, 5))))
    first = books["ts"].min().timestamp()
    for frame, wanted in ((books, []), (cut, [(first + 240, 120, 0, 1)])):
        figure = plot.depth(frame, token="Yes", backend=backend)
        np.testing.assert_allclose([bar[:4] for bar in bars(figure)], wanted, atol=1e-3)
        if backend == "plotly":
            assert all(t.marker.pattern.shape == "/" for t in figure.data if t.type == "bar")
            label = figure.layout.xaxis.title.text
        else:
            assert all(bar.get_hatch() for bar in figure.patches)
            label = figure.get_xlabel()
        assert ("hatched: no snapshot" in label) is bool(wanted)


def test_no_column_of_depth_is_narrower_than_the_step_of_the_frame() -> None:
    """Three snapshots an hour apart are three columns, each with the shares that rest at its time."""
    books = testing.books(resolution="1h", levels=1)
    heat = plot.depth(books, backend="plotly").data[0]
    assert np.nansum(heat.customdata, axis=0).tolist() == [400.0, 400.0, 400.0]


def test_a_token_is_named_or_the_choice_is_refused(books, ax) -> None:
    """A token that the frame does not have, and a label that several markets share, are refused with what there is."""
    with pytest.raises(md.errors.ConfigError, match=r"Maybe.*No, Yes"):
        plot.depth(books, ax, token="Maybe")
    for draw in (plot.depth, plot.ladder):
        with pytest.raises(md.errors.ConfigError, match=r"'Yes' is of 2 markets"):
            draw(testing.books(markets=2), token="Yes")
        with pytest.raises(md.errors.ConfigError, match=r"tokens of 2 markets"):
            draw(testing.books(markets=2))
        assert "No" in draw(testing.books(markets=2), token="22").get_ylabel()


def test_metrics_have_the_unit_that_the_pages_name(ax) -> None:
    """The service names no unit, so the chart does not either; simulated volume is USD traded so far."""
    frame = testing.metrics()
    labels = {plot.metrics(frame, column=c).get_ylabel() for c in ("volume", "liquidity", "spread")}
    assert labels == {
        "volume [unit of the service]",
        "liquidity [unit of the service]",
        "spread of the market [probability]",
    }
    simulated = testing.markets().assign(simulated=True)
    assert plot.metrics(frame, markets=simulated).get_ylabel() == "volume [USD traded so far]"
    with pytest.raises(md.errors.ConfigError, match=r"weight.*volume"):
        plot.metrics(frame, ax, column="weight")


def test_metrics_of_several_markets_are_a_line_each() -> None:
    """Each market is one line with its question, and its own values in order of time."""
    frame = testing.metrics(markets=3)
    drawn = lines(plot.metrics(frame, markets=QUESTIONS))
    assert [name for name, _, _ in drawn] == ["Will it rain?", "Will it snow?", "Will it blow?"]
    for market, (_, _, y) in zip(("rain", "snow", "wind"), drawn, strict=True):
        assert y == frame.loc[frame["market_id"] == market, "volume"].tolist()


def test_a_frame_of_the_wrong_kind_is_refused(ax) -> None:
    """Metrics are no books, and the error says what is missing, or which frames are taken."""
    with pytest.raises(md.errors.NotTidyError, match="frame of metrics; depth takes books"):
        plot.depth(testing.metrics(), ax)
    with pytest.raises(md.errors.NotTidyError, match="takes metrics"):
        plot.metrics(testing.books(), ax)
    with pytest.raises(md.errors.NotTidyError, match=r"give md.bbo\(books\)"):
        plot.prices(testing.books(), ax)
    with pytest.raises(md.errors.NotTidyError, match="frame of prices; metrics takes metrics"):
        plot.metrics(testing.prices(), ax)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_empty_frame_says_that_there_is_no_data(backend: str) -> None:
    """A frame without rows gives an empty chart that says so."""
    none = testing.books().iloc[:0]
    charts = [draw(none, backend=backend) for draw in (plot.book, plot.depth, plot.ladder)]
    charts.append(plot.prices(testing.prices().iloc[:0], backend=backend))
    charts.append(plot.metrics(testing.metrics().iloc[:0], backend=backend))
    for chart in charts:
        assert "no data in this range" in texts(chart)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_book_is_one_page_marked_as_simulated(books, archive, backend: str) -> None:
    """The page has the book through time and at a moment, and the volume, and says that it is simulated."""
    metrics = archive.metrics(pair(archive), resolution="10m")
    figure = plot.book(books, metrics_frame=metrics, markets=archive.markets(), backend=backend)
    if backend == "plotly":
        assert len(list(figure.select_yaxes())) == 3
        assert "simulated data" in figure.layout.title.text
        assert figure.layout.yaxis2.matches == "y", "both books have one axis of prices"
    else:
        assert len(figure.axes) == 4
        assert not plt.fignum_exists(figure.number), "a notebook would show an open figure twice"
        assert "simulated data" in texts(figure)
        out = io.BytesIO()
        figure.savefig(out, dpi=30)
        assert out.getvalue()[1:4] == b"PNG"


def test_a_book_has_the_mid_and_the_levels_of_its_moment(books) -> None:
    """The line is the mid of bbo; the bars are the levels of the moment."""
    yes = books[books["token_label"] == "Yes"]
    touch = md.bbo(yes)
    moment = touch[touch["mid"].notna()]["ts"].iloc[50]
    main, side = plot.book(books, moment, token="Yes").axes[:2]
    _, _, mid = next(line for line in lines(main) if len(line[1]) > 2)
    np.testing.assert_allclose(np.array(mid)[~np.isnan(mid)], touch["mid"].dropna())
    earlier = yes[yes["ts"] <= moment]
    shown = earlier[earlier["ts"] == earlier["ts"].max()].dropna(subset="size")
    widths = sorted(bar.get_width() for bar in side.patches)
    np.testing.assert_allclose(widths, sorted(shown["size"]))
    assert side.get_title("left") == f"book at {moment:%-d %b %H:%M}"


@pytest.mark.parametrize("is_total", [True, False])
def test_volume_is_of_each_hour(is_total: bool) -> None:
    """A cumulative volume is shown as its increase in each hour, another one as its means."""
    ts = pd.date_range("2026-01-01", periods=180, freq="1min", tz="UTC")
    volume = np.arange(180.0) * 2 if is_total else np.tile([5.0, 15.0], 90)
    metrics = pd.DataFrame({"ts": ts, "market_id": "rain", "volume": volume, "liquidity": 1.0, "spread": 0.01})
    figure = plot.book(testing.books(buckets=180), metrics_frame=metrics)
    path = figure.axes[2].collections[0].get_paths()[0].vertices
    assert sorted({round(y, 9) for y in path[:, 1]} - {0.0}) == ([118.0, 120.0] if is_total else [10.0])


def test_a_book_is_hatched_where_only_the_volume_has_data(archive) -> None:
    """The book is hatched while only the metrics have data."""
    metrics = archive.metrics(pair(archive), resolution="10m")
    middle = metrics["ts"].iloc[[40, -40]]
    inside = archive.books(pair(archive), *middle, resolution="10m", on_missing="partial")
    figure = plot.book(inside, metrics_frame=metrics, backend="plotly")
    hatched = [bar for bar in bars(figure) if bar[3] == 1.0]
    hours = metrics["ts"].dt.floor("1h")
    ends = min(bar[0] for bar in hatched), max(bar[0] + bar[1] for bar in hatched)
    np.testing.assert_allclose(ends, [hours.min().timestamp(), hours.max().timestamp() + 3240], atol=1e-3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_ladder_draws_the_levels_of_one_book(books, backend: str) -> None:
    """Each level is one bar at its price, bids to the left and asks to the right, as long as its size."""
    ts = books["ts"].min()
    figure = plot.ladder(books, ts, token="Yes", backend=backend)
    one = books[(books["ts"] == ts) & (books["token_label"] == "Yes")].dropna(subset="price")
    sign = one["side"].map({"bid": -1.0, "ask": 1.0}).astype(float)
    wanted = sorted(zip(one["price"].round(9), (sign * one["size"]).round(9), strict=True))
    drawn = [(round(bottom + height / 2, 9), round(width, 9)) for _, width, bottom, height, _ in bars(figure)]
    assert sorted(drawn) == wanted
    assert f"Yes at {ts:%Y-%m-%d %H:%M:%S} UTC" in title_of(figure)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_ladder_is_of_the_last_book_with_both_sides(backend: str) -> None:
    """Without a time one-sided books at the end are passed over, and no label of shares has a sign."""
    books = testing.books("polars", buckets=3)
    last = (pl.col("ts") == pl.col("ts").max()) & (pl.col("side") == "ask")
    figure = plot.ladder(books.filter(~last), token="Yes", backend=backend)
    labels = figure.layout.xaxis.ticktext if backend == "plotly" else [t.get_text() for t in figure.get_xticklabels()]
    assert "2026-01-01 00:01:00 UTC" in title_of(figure)
    assert labels
    assert not any(label.startswith(("-", "−")) for label in labels)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_line_of_a_ladder_is_the_total_up_to_a_price(backend: str) -> None:
    """Between two levels, and at the better of them, it is at the sum of the levels up to there, and nowhere above."""
    books = testing.books("polars", levels=3).filter(pl.col("ts") == pl.col("ts").min(), token_label="Yes")
    figure = plot.ladder(books, backend=backend)
    if backend == "plotly":
        totals = [(np.array(t.x), np.array(t.y)) for t in figure.data if t.type == "scatter"]
    else:
        totals = [line.get_data() for line in figure.lines]
    for (x, y), side, sign in zip(totals, ("bid", "ask"), (-1.0, 1.0), strict=True):
        rows = books.filter(side=side)
        for price in rows["price"]:
            better = rows.filter(pl.col("price") >= price if side == "bid" else pl.col("price") <= price)
            worse = sign * (y - price) > 1e-9
            assert max(sign * x[~worse]) == better["size"].sum()
            assert not worse.any() or min(sign * x[worse]) == better["size"].sum()


def test_an_empty_ladder_has_the_axes_of_a_ladder() -> None:
    """Without rows, and where both sides are empty, the chart says so on axes of shares and price, not of time."""
    books = testing.books("polars", buckets=1, levels=1)
    empty = books.with_columns(pl.lit(None).cast(books.schema[c]).alias(c) for c in ("level", "price", "size"))
    for frame, label, text in (
        (books.clear(), "price [probability]", "no data in this range"),
        (empty, "price of Yes", "the book is empty at this time"),
    ):
        axes = plot.ladder(frame)
        assert axes.get_xlabel().startswith("shares")
        assert (axes.get_ylabel(), axes.texts[-1].get_text()) == (label, text)


def test_calibration_draws_its_table(archive, won, ax) -> None:
    """Each bin has one dot at its mean price and the share of its forecasts that came true."""
    prices = archive.prices(list(won), resolution="1h", on_missing="partial")
    plot.calibration(prices, won, ax, bins=5)
    table = md.calibration(prices, won, bins=5, interval=None)
    assert np.allclose(np.asarray(ax.collections[0].get_offsets()), table[["forecast", "outcome"]].to_numpy())
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("share that came true", "price [probability]")
    dots = next(t for t in plot.calibration(prices, won, bins=5, backend="plotly").data if "markers" in t.mode)
    assert np.allclose(np.column_stack([dots.x, dots.y]), table[["forecast", "outcome"]].to_numpy())
    assert np.asarray(dots.customdata)[:, 0].tolist() == table["points"].tolist()


@pytest.mark.filterwarnings("ignore::marketdata.errors.FewMarketsWarning")
@pytest.mark.parametrize("backend", BACKENDS)
def test_calibration_has_a_histogram_of_forecasts(archive, won, backend: str) -> None:
    """A bar for each bin, from its start to its end, as high as it has forecasts, and the intervals as a band above."""
    prices = archive.prices(list(won), resolution="1h", on_missing="partial")
    table = md.calibration(prices, won, bins=4, interval=0.9)
    drawn = plot.calibration(prices, won, bins=4, interval=0.9, backend=backend)
    if backend == "plotly":
        band = np.asarray(next(one for one in drawn.data if one.fill == "toself").y, float)
    else:
        above, below = drawn.figure.axes
        assert below.get_xlim() == above.get_xlim() == above.get_ylim()
        assert above.get_aspect() == 1.0
        band = np.concatenate([path.vertices[:, 1] for path in above.collections[0].get_paths()])
    want = [table["bin_start"], table["bin_end"] - table["bin_start"], 0 * table["points"], table["points"]]
    np.testing.assert_allclose([bar[:4] for bar in bars(drawn)], np.column_stack(want).astype(float))
    ends = table[["outcome_low", "outcome_high"]].to_numpy(float).ravel()
    assert {*np.round(band[np.isfinite(band)], 9)} == {*np.round(ends[np.isfinite(ends)], 9)}
    assert np.isfinite(ends).any()


def test_calibration_without_a_resolved_market_says_so(ax) -> None:
    """No dot is drawn, and the chart says why."""
    plot.calibration(testing.prices(), {}, ax)
    assert "no resolved market in the frame" in [text.get_text() for text in ax.texts]


def test_coverage_draws_a_bar_for_each_range(archive) -> None:
    """Every row of the coverage frame is a bar from its start to its end, of however many markets."""
    held = archive.coverage()
    held = pd.concat([held.assign(market_id=f"{i}", state="provisional" if i % 2 else "final") for i in range(4)])
    figure = plot.coverage(held, backend="plotly")
    wanted = [(a.timestamp(), (b - a).total_seconds()) for a, b in zip(held["start"], held["end"], strict=True)]
    assert legend_of(figure) == ["final", "provisional"]
    np.testing.assert_allclose(sorted(bar[:2] for bar in bars(figure)), sorted(wanted), atol=1e-3)
    with pytest.raises(md.errors.NotTidyError, match="state"):
        plot.coverage(held.drop(columns="state"), backend="plotly")


def test_a_range_below_a_pixel_is_seen() -> None:
    """Five minutes that are missing among 200 days are a mark above the others, with one entry in the legend."""
    start, minutes = pd.Timestamp("2026-01-01", tz="UTC"), [0, 144_000, 144_005, 288_000]
    at = [start + pd.Timedelta(minutes=n) for n in minutes]
    rows = [(at[i], at[i + 1], s) for i, s in enumerate(("final", "missing", "final"))]
    held = pd.DataFrame(rows, columns=["start", "end", "state"]).assign(view="prices", market_id="m")
    figure = plot.coverage(pd.concat([held, held.assign(view="books", state="final")]), backend="plotly")
    assert legend_of(figure) == ["final", "missing"]
    *wide, narrow, also_narrow = bars(figure)
    assert all(width > 86_400 for _, width, *_ in wide)
    for left, width, *_ in (narrow, also_narrow):
        assert left + width / 2 == pytest.approx(start.timestamp() + 60 * 144_002.5, abs=1)
        assert width == pytest.approx(60 * 288_000 / 400, rel=1e-3)


def test_the_accessor_draws_the_same_charts(ax) -> None:
    """df.md.plot has every chart, and passes its options on."""
    prices, books, metrics = testing.prices(), testing.books(), testing.metrics()
    won = {"rain": prices["token_id"].iloc[0]}
    charts = (
        prices.md.plot.prices(ax),
        books.md.plot.depth(ax),
        books.md.plot.ladder(None, ax),
        books.md.plot.calibration(won, ax),
        metrics.md.plot.metrics(ax, column="liquidity"),
        COVERED.md.plot.coverage(ax),
        prices.md.plot.outcomes(ax),
        md.ohlc(prices, "1h").md.plot.candles(ax),
    )
    assert all(chart is ax for chart in charts)
    assert len(account_of(testing.books("polars")).md.plot.account().figure.axes) == 2
    assert isinstance(books.md.plot.book(backend="plotly"), go.Figure)
    assert {name for name in dir(books.md.plot) if not name.startswith("_")} == set(plot.__all__)


def account_of(books: pl.DataFrame) -> pl.DataFrame:
    """The account of one order on books of `testing`."""
    orders = books.md.mid().head(1).select("ts", "market_id", "token_id", side=pl.lit("buy"), size=150.0)
    return md.account(md.execute(orders, books, "1m", fees=md.Fees.flat(0.01)).fills, books, "1m").total


@pytest.mark.parametrize("backend", BACKENDS)
def test_outcomes_are_stacked_to_one(archive, backend: str) -> None:
    """Each edge is the sum of the probabilities below it, the greatest at the end lowest; the last edge is 1."""
    three = next(m for m in archive.records("markets") if len(m["tokens"]) == 3)
    prices = md.Archive(archive.location, frame="polars").prices(three["id"], resolution="10m")
    drawn = lines(plot.outcomes(prices, backend=backend))
    assert len(drawn) == 3
    shares = md.probabilities(prices).drop_nulls("probability")
    at = dict.fromkeys(shares["ts"].unique().sort().to_list(), 0.0)
    for name, x, y in drawn:
        label = name.rpartition(" ")[0].replace("&amp;", "&")
        token = shares.filter(pl.col("token_label").cast(pl.String) == label)
        share = dict(token.select("ts", "probability").rows())
        at = {ts: below + share[ts] for ts, below in at.items()}
        got = {ts: v for ts, v in zip(x, y, strict=True) if v == v}  # noqa: PLR0124 NaN is a gap
        assert got == pytest.approx({ts.timestamp(): v for ts, v in at.items()})
    assert list(at.values()) == pytest.approx([1.0] * len(at))


def test_the_legend_of_a_stack_is_in_its_order() -> None:
    """The topmost area is the first of the legend."""
    ax = plot.outcomes(testing.prices())
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [line.get_label() for line in reversed(ax.lines)]
    assert plot.outcomes(testing.prices(), backend="plotly").layout.legend.traceorder == "reversed"


def test_a_time_without_one_outcome_is_a_gap_of_all() -> None:
    """Neither is a missing price taken from before, nor are the others scaled up."""
    prices = testing.prices("polars", buckets=5)
    gone = (pl.col("ts") == prices["ts"][2]) & (pl.col("token_label") == "No")
    for _, _, y in lines(plot.outcomes(prices.filter(~gone))):
        assert np.isnan(y).tolist() == [False, False, True, False, False]


def test_outcomes_of_an_event_are_named_by_their_questions() -> None:
    """The areas are the Yes of each market; several markets without their records are refused."""
    prices, records = testing.prices("polars", markets=3), testing.markets("polars", markets=3)
    events = records.with_columns(exclusive=True, open_list=False)
    names = [name.rpartition(" ")[0] for name, _, _ in lines(plot.outcomes(prices, markets=events))]
    assert names == [f"Will there be {m} tomorrow?" for m in ("wind", "snow", "rain")]
    with pytest.raises(md.errors.ConfigError, match="the frame has 3"):
        plot.outcomes(prices)


def test_outcomes_of_many_are_six_and_the_rest(many) -> None:
    """Six of 20 outcomes have colours of their own, and all others are one area."""
    drawn = lines(plot.outcomes(many))
    assert len(drawn) == 7
    assert drawn[-1][0].startswith("14 further outcomes")
    assert drawn[-1][2] == pytest.approx([1.0] * 3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_account_draws_its_profit_and_its_drawdown(backend: str) -> None:
    """At the mid, if sold, and the fall below zero; a row that is not known is a gap."""
    total = account_of(testing.books("polars", buckets=6))
    total = total.with_columns(pl.when(pl.int_range(pl.len()) != 3).then(pl.col("profit")).alias("profit"))
    (_, _, profit), (_, _, sold), (_, _, fall) = lines(plot.account(total, backend=backend))
    np.testing.assert_allclose(profit, total["profit"].to_numpy())
    np.testing.assert_allclose(sold, total["profit_sold"].to_numpy())
    np.testing.assert_allclose(fall, -total["drawdown"].to_numpy())
    assert np.isnan(profit[3])
    with pytest.raises(md.errors.NotTidyError, match="drawdown"):
        plot.account(total.drop("drawdown"), backend=backend)
    assert lines(plot.account(total.head(0), backend=backend)) == []


def test_dollars_and_tags_are_drawn_as_they_are(archive) -> None:
    """Titles, labels and names with dollars or tags are no formulas and no markup, and nothing fails."""
    text = "$90k, $x_$ <b>5 & 6</b>"
    books = testing.books("polars").with_columns(pl.lit(text).alias("token_label"))
    yes = books.filter(token_id="11")
    prices = md.mid(books)
    charts = (
        plot.prices(prices, title=text, both=True),
        plot.book(yes, title=text),
        plot.ladder(yes),
        plot.coverage(archive.coverage().assign(market_id=text[-12:])),
    )
    for chart in charts:
        figure = getattr(chart, "figure", chart)
        figure.draw_without_rendering()
        shown = [one for one in figure.findobj(mpl.text.Text) if text[-5:] in one.get_text()]
        assert shown
        assert not any(one.get_parse_math() for one in shown)
    assert title_of(charts[0]) == legend_of(charts[0])[0] == text
    drawn = plot.prices(prices, title=text, backend="plotly")
    for shown in (drawn.layout.title.text, drawn.data[-1].name, drawn.data[-1].hovertemplate):
        assert "$" not in shown.replace("%{", "")
        assert "<b>" not in shown


def test_a_backend_is_one_of_two(ax) -> None:
    """An unknown backend is refused with those there are, and plotly takes no Axes."""
    with pytest.raises(md.errors.ConfigError, match=r"bokeh.*matplotlib, plotly"):
        plot.prices(testing.prices(), backend="bokeh")
    with pytest.raises(md.errors.ConfigError, match="ax="):
        plot.prices(testing.prices(), ax, backend="plotly")


def test_a_backend_that_is_not_installed_says_what_installs_it(monkeypatch) -> None:
    """The error has the command that installs the library."""
    there = importlib.util.find_spec
    monkeypatch.setattr("marketdata.plot.chart.find_spec", lambda name: None if name == "plotly" else there(name))
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'plotly>="):
        plot.prices(testing.prices(), backend="plotly")


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_account_has_no_dots_at_gaps(backend: str) -> None:
    """A moment with a price between two without one is no dot: the account did not trade there."""
    times = pd.date_range("2026-01-01", periods=9, freq="1min", tz="UTC")
    values = np.where(np.arange(9) % 4 == 3, np.nan, 1.0)
    values[6] = np.nan
    frame = pd.DataFrame({"ts": times, "profit": values, "profit_sold": values, "drawdown": 0 * values})
    figure = plot.account(frame, backend=backend)
    if backend == "plotly":
        assert {trace.mode for trace in figure.data} == {"lines"}
    else:
        assert {line.get_marker() for axes in figure.figure.axes for line in axes.lines} == {"None"}


def test_coverage_names_a_market_whole() -> None:
    """The name of a market of sixty letters is whole where there is room."""
    question = "Will it rain on the last Monday of the month of November?"
    frame = pd.DataFrame({
        "view": ["books"], "market_id": ["m"], "start": [pd.Timestamp("2026-01-01", tz="UTC")],
        "end": [pd.Timestamp("2026-01-02", tz="UTC")], "state": ["final"],
    })  # fmt: skip
    assert any(question in text for text in texts(plot.coverage(frame, markets={"m": question})))


@settings(max_examples=8)
@given(st.text(st.sampled_from("ab -?"), min_size=1, max_size=200).filter(str.strip), st.integers(2, 5))
def test_titles_of_plotly_panels_fit_their_columns_on_a_phone(question: str, count: int) -> None:
    """Panels side by side have titles of at most three lines of 23 letters."""
    frames = [testing.prices().assign(market_id=f"{number}") for number in range(count)]
    prices = pd.concat([frame.assign(token_id=frame["market_id"] + frame["token_id"].astype(str)) for frame in frames])
    figure = plot.prices(prices, markets={str(number): question for number in range(count)}, backend="plotly")
    titles = [note.text.split("<br>") for note in figure.layout.annotations]
    assert len(titles) == count
    assert all(len(lines) <= 3 and max(map(len, lines)) <= 23 for lines in titles)


def test_a_line_breaks_where_the_width_says_that_a_bucket_is_missing() -> None:
    """One missing bucket is a gap for a frame that carries its width; another frame bridges up to ten usual steps."""
    whole = testing.prices(buckets=12)
    rows = whole[whole["ts"].dt.minute != 5]
    for frame, is_broken in ((rows, True), (rows.assign(), True), (pd.DataFrame(rows.to_dict("list")), False)):
        (line,) = plot.prices(frame).lines
        assert np.isnan(line.get_ydata()).any() == is_broken


def test_a_book_without_a_time_is_the_one_with_the_most_levels() -> None:
    """The fullest two-sided snapshot is drawn, the last of equal ones; one-sided and emptier ones are passed over."""
    books = testing.books("polars", buckets=5, levels=3)
    times = books["ts"].unique().sort().to_list()
    is_left_out = (pl.col("ts") == times[4]) & (pl.col("level") > 0) | (pl.col("ts") == times[3]) & (
        pl.col("side") == "ask"
    )
    side = plot.book(books.filter(~is_left_out), token="Yes").axes[1]
    assert side.get_title("left") == f"book at {times[2]:%-d %b %H:%M}"


def test_texts_of_charts_are_at_least_eight_points(books) -> None:
    """Ticks, labels, legends and titles can be read in a notebook."""
    figure = plot.book(books, token="Yes")
    figure.draw_without_rendering()
    texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    assert texts
    assert min(text.get_fontsize() for text in texts) >= 8


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_scale_of_the_data_holds_all_prices_and_little_more(backend: str) -> None:
    """Small moves are seen with ylim="data"; without it the scale is that of probabilities."""
    prices = testing.prices("polars")
    drawn = plot.prices(prices, both=True, ylim="data", backend=backend)
    low, high = drawn.layout.yaxis.range if backend == "plotly" else drawn.get_ylim()
    least, most = prices["price"].min(), prices["price"].max()
    assert low < least < most < high
    assert high - low == pytest.approx(1.1 * (most - least))
    with pytest.raises(md.errors.ConfigError, match="ylim='data' is for prices on a plain scale"):
        plot.prices(prices, ylim="data", log_odds=True, backend=backend)


def labels_of_time(figure: Any) -> list[str]:
    if isinstance(figure, go.Figure):
        return [figure.layout.xaxis.title.text, figure.layout.title.text, figure.data[0].x[0]]
    figure.figure.draw_without_rendering()
    offset = figure.xaxis.get_offset_text().get_text()
    return [figure.get_xlabel(), figure.get_title("left"), figure.get_xticklabels()[0].get_text() + offset]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_axis_of_time_shows_the_clocks_of_a_zone(backend: str) -> None:
    """Axis, title, hover and the name of a ladder have local times; another name than that of a zone is refused."""
    zone, books = "Asia/Kolkata", testing.books()
    axis, title, first = labels_of_time(plot.prices(testing.prices(), tz=zone, backend=backend))
    assert axis == f"time [{zone}]"
    assert "2026-01-01 05:30" in title
    assert zone.split("/", maxsplit=1)[0] in title
    assert "05:30" in first
    ladder = plot.ladder(books, token="Yes", ts="2026-01-01T00:01", tz=zone, backend=backend)
    name = ladder.layout.title.text if backend == "plotly" else ladder.get_title("left")
    assert "05:31:00 Asia/Kolkata" in name.replace("<br>", " ")
    for value in ("Mars", "America", "", 3):
        with pytest.raises(md.errors.ConfigError, match="America/New_York"):
            plot.prices(testing.prices(), tz=value, backend=backend)


@given(st.sampled_from(["America/New_York", "Europe/London", "Australia/Lord_Howe"]), st.integers(0, 8759))
@settings(max_examples=20)
def test_times_of_plotly_are_those_of_a_clock(zone: str, hour: int) -> None:
    """Each point is where the clock of the zone stands; a range with an hour that the clock shows twice is refused."""
    ts = pd.date_range("2026-01-01", periods=6, freq="30min", tz="UTC") + pd.Timedelta(hours=hour)
    frame = pd.DataFrame({"ts": ts, "market_id": "m", "token_id": "t", "token_label": "Yes", "price": 0.5})
    local = ts.tz_convert(zone).tz_localize(None)
    if not local.is_monotonic_increasing or local.has_duplicates:
        with pytest.raises(md.errors.ConfigError, match="has an hour twice"):
            plot.prices(frame, tz=zone, backend="plotly")
        return
    drawn = plot.prices(frame, tz=zone, backend="plotly").data[0].x
    assert [pd.Timestamp(one) for one in drawn] == local.tolist()


@pytest.mark.parametrize("inches", [1, 2, 4])
def test_no_tick_is_over_another_one(inches: int) -> None:
    """Ticks of log-odds are left out where an axis is too low for all of them."""
    prices = testing.prices(buckets=50).assign(price=np.linspace(0.0005, 0.9995, 100))
    figure, ax = plt.subplots(figsize=(4, inches))
    plot.prices(prices, ax, log_odds=True)
    figure.draw_without_rendering()
    boxes = [tick.get_window_extent() for tick in ax.get_yticklabels() if tick.get_text()]
    assert len(boxes) >= inches + 1
    assert not any(box.overlaps(other) for i, box in enumerate(boxes) for other in boxes[:i])


@pytest.mark.parametrize("backend", BACKENDS)
def test_trades_are_drawn_print_by_print(backend: str) -> None:
    """Each token has its own line, with prints that share a time; bars are drawn as candles, which the error says."""
    trades = testing.trades("polars")
    trades = pl.concat([trades, trades.head(1).with_columns(price=pl.lit(0.5))])
    figure = plot.prices(trades, backend=backend)
    lines = [line.y for line in figure.data] if backend == "plotly" else [line.get_ydata() for line in figure.lines]
    drawn = np.concatenate(lines)
    assert sorted(drawn[np.isfinite(drawn)]) == sorted(trades["price"])
    assert len(lines) == trades["token_id"].n_unique()
    bars = md.resample(trades, "1m")
    with pytest.raises(md.errors.NotTidyError, match=r"md\.plot\.candles\(bars\)"):
        plot.prices(bars, backend=backend)
    plot.candles(bars, backend=backend)
