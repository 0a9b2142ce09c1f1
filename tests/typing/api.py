"""The public interface as users write it. Never run: mypy and pyright read it (``make lint``)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, assert_type

import pandas as pd
import polars as pl

import marketdata as md
from marketdata.accessor import Accessor
from marketdata.fetch.plans import Plan
from marketdata.typing import PandasFrame, PolarsFrame, PolarsLazyFrame

RANGE = ("2025-12-31", "2026-01-01")


def a_client_answers_with_frames_of_its_kind() -> None:
    client = md.Client("http://127.0.0.1:8000", "my-key")
    assert_type(client, md.Client[PandasFrame])
    assert_type(client.books("slug", *RANGE, "1m"), PandasFrame)
    assert_type(client.books(["a", "b"], dt.date(2026, 1, 1), dt.datetime.now(dt.UTC), "1h", levels=3), PandasFrame)
    assert_type(client.markets(event_slug="e", max_rows=3), PandasFrame)
    polars = md.Client(frame="polars")
    assert_type(polars, md.Client[PolarsFrame])
    assert_type(md.Client(None, None, "polars").series(), PolarsFrame)
    assert_type(polars.prices("slug", 1_767_225_600, 1_767_229_200.5, "10m"), PolarsFrame)
    assert_type(polars.iter_metrics("slug", *RANGE, "1d"), Iterator[PolarsFrame])
    assert_type(client.iter_books("slug", *RANGE, levels=3), Iterator[PandasFrame])
    client.iter_prices("slug", *RANGE, levels=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(polars.tokens("slug"), PolarsFrame)


def a_frame_has_the_report_of_its_fetch() -> None:
    client = md.Client(api_key=lambda: "my-key", frame="polars")
    assert_type(client.token_books("1234", *RANGE, "1m").md.report, md.Report | None)


def a_plan_is_plain_data() -> None:
    plan = md.Client().plan("books", "slug", *RANGE, "1m")
    assert_type(plan, Plan)
    assert_type(plan.minutes, float | None)
    assert_type(plan.refused, tuple[str, ...])


def any_client_fits_a_bare_annotation(client: md.Client) -> None:
    print(client.usage().limits.requests_per_minute, client.market("slug").question, client.tags()[0])


def verbs_keep_the_kind_of_frame() -> None:
    books = md.Client().books("slug", *RANGE, "1m")
    assert_type(books.md, Accessor[PandasFrame])
    assert_type(books.md.resample("1h").md.bbo(), PandasFrame)
    assert_type(books.md.depth(levels=3).md.resample("6h"), PandasFrame)
    assert_type(books.md.sweep("buy", size=100, fees=md.Fees.quadratic(0.05)), PandasFrame)
    assert_type(books.md.arbitrage(books, fees=0, size=100), PandasFrame)
    assert_type(md.Fees.flat(0.01), md.Fees)
    prices = md.Client(frame="polars").prices("slug", *RANGE, "1m")
    assert_type(prices.md.ohlc("1h"), PolarsFrame)


def functions_keep_the_kind_of_frame(pandas: pd.DataFrame, polars: pl.DataFrame, lazy: pl.LazyFrame) -> None:
    assert_type(md.bbo(pandas), pd.DataFrame)
    assert_type(md.resample(polars, "1h"), pl.DataFrame)
    assert_type(md.asof_join(lazy, polars, width="1m"), pl.LazyFrame)
    assert_type(md.imbalance(lazy, within=0.05), pl.LazyFrame)


def a_frame_of_ones_own_has_the_verbs(polars: pl.DataFrame, lazy: pl.LazyFrame) -> None:
    assert_type(md.Accessor(polars).mid(), pl.DataFrame)
    assert_type(md.Accessor(lazy).resample("1h"), pl.LazyFrame)


def names_for_annotations(pandas: PandasFrame, polars: PolarsFrame, lazy: PolarsLazyFrame) -> None:
    assert_type(pandas.md.mid(), PandasFrame)
    assert_type(polars.md.mid(), PolarsFrame)
    assert_type(lazy.md.mid(), PolarsLazyFrame)


def frames_are_put_together_and_shown() -> None:
    books = md.Client().books("slug", *RANGE, "1m")
    assert_type(md.concat([books, books]), PandasFrame)
    md.show(books, id_width=None)


def an_archive_has_the_names_of_the_client() -> None:
    archive = md.Archive("history")
    assert_type(archive, md.Archive[PandasFrame])
    assert_type(archive.books("slug", *RANGE, "1h"), PandasFrame)
    assert_type(md.Archive("history", frame="polars").prices("slug"), PolarsFrame)
    assert_type(md.Archive("s3://bucket/prefix", frame="polars").coverage(), PolarsFrame)
    assert_type(archive.scan("books"), PolarsLazyFrame)
    assert_type(archive.books("slug", levels=3).md.bbo(), PandasFrame)
    assert_type(archive.sql("select 1"), PandasFrame)
    assert_type(archive.markets("words"), PandasFrame)
    assert_type(archive.events(), PandasFrame)
    assert_type(archive.series(), PandasFrame)
    assert_type(archive.coverage(), PandasFrame)
    assert_type(archive.simulated, bool)
    archive.pull(md.Client(), event_slug="slug", start="2025-12-01", dry_run=True)


def simulation_and_service() -> None:
    archive = md.simulate(events=1, days=0.5, frame="polars")
    assert_type(archive, md.Archive[PolarsFrame])
    with md.serve(archive) as service:
        assert_type(service.base_url, str)
        assert_type(service.api_key, str | None)


def pages_without_a_network(pages: list[bytes]) -> None:
    assert_type(md.read_pages("books", pages), PandasFrame)
    assert_type(md.read_pages("prices", pages, frame="polars"), PolarsFrame)


def errors_carry_what_happened() -> None:
    client = md.Client()
    try:
        client.books("slug", *RANGE, "1m")
    except md.errors.RateLimitError as error:
        assert_type(error.retry_at, float | None)
    except md.errors.LimitTooSmallError as error:
        assert_type(error.minimum, int | None)
    except md.errors.RequestError as error:
        assert_type(error.status, int | None)
        assert_type(error.detail, str)
    except md.errors.MarketDataError as error:
        assert_type(error.partial, Any)
        if error.resume is not None:
            assert_type(client.resume(error.resume), PandasFrame)


def mistakes_are_found() -> None:
    md.Client(frame="arrow")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    md.Client().books("slug", "2026-01-01")
    md.Client().books("slug", *RANGE, "1m").md.bboo()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    md.Archive("history").prices("slug", frame="arrow")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue, reportArgumentType]
    md.Archive("history").books("slug").md.resample()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
