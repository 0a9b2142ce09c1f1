"""Open sets of recordings: what each has, under which licence, and where its files are."""

from __future__ import annotations

from typing import Any, NamedTuple

from marketdata.errors import ConfigError

LOOKED_UP = "2026-11-28"


class OpenSet(NamedTuple):
    """A set of recordings that others published; None is not known.

    ``format`` reads its files. ``address`` is that of one file, where ``{hour}`` stands for an hour such as
    2026-04-13T19; without it the ``page`` has the files. ``use`` says for what a licence allows it, if not for all.
    """

    name: str
    content: str
    start: str | None
    end: str | None
    markets: str | None
    size: str | None
    licence: str | None
    use: str | None
    citation: str | None
    format: str | None
    address: str | None
    page: str
    looked_up: str = LOOKED_UP


_PMXT = "PMXT, Polymarket Orderbook Archive (v{}), https://archive.pmxt.dev"
SETS = (
    OpenSet(
        "pmxt-v2", "changes of all books of Polymarket, a file an hour", "2026-04-13T19:00:00Z", "2026-09-09T18:00:00Z",
        "all of Polymarket", "24 to 470 MB an hour", "CC BY 4.0", None, _PMXT.format(2), "event-files",
        "https://r2v2.pmxt.dev/polymarket_orderbook_{hour}.parquet", "https://archive.pmxt.dev/docs/v2-data-overview",
    ),
    OpenSet(
        "pmxt-v1", "books of Polymarket as JSON in a column, a file an hour", None, None, "about half of Polymarket",
        None, None, None, _PMXT.format(1), "market-channel",
        "https://r2.pmxt.dev/polymarket_orderbook_{hour}.parquet", "https://archive.pmxt.dev",
    ),
    OpenSet(
        "polymarket-historical-data", "best bid and ask with the book, and its levels, about every five minutes",
        "2026-07-23T00:00:00Z", None, "Polymarket", None, "CC BY 4.0", None,
        "Trent Kelly (2026), Polymarket Historical Data, Hugging Face, "
        "https://huggingface.co/datasets/trentmkelly/polymarket_historical_data",
        "snapshots", None, "https://huggingface.co/datasets/trentmkelly/polymarket_historical_data",
    ),
    OpenSet(
        "polymarket-crypto-5min-l2", "897,192 snapshots of books, a sample of a vendor", None, None,
        "Polymarket's five-minute markets of crypto", None, "CC BY 4.0", None,
        "PolyOrderbooks, polymarket-crypto-5min-l2, https://doi.org/10.5281/zenodo.22084114", "snapshots", None,
        "https://huggingface.co/datasets/polyorderbooks/polymarket-crypto-5min-l2",
    ),
    OpenSet(
        "polymarket-v1-fills", "fills on chain", "2022-11-01T00:00:00Z", "2026-05-01T00:00:00Z", "Polymarket", None,
        "CC BY 4.0", None, "Polymarket-v1, arXiv:2606.04217", "fills", None, "https://arxiv.org/abs/2606.04217",
    ),
    OpenSet(
        "15btc-eth", "best bids and asks, about each second, without ids of markets", None, None,
        "Polymarket's fifteen-minute markets of BTC and ETH", None, "MIT", None,
        "kaboomfox, 15btc_eth, https://huggingface.co/datasets/kaboomfox/15btc_eth", None, None,
        "https://huggingface.co/datasets/kaboomfox/15btc_eth",
    ),
    OpenSet(
        "polymarket-kalshi-scoresync", "a sample of books of both venues beside scores of games", None, None,
        "sports of Polymarket and Kalshi", "1,000 to 10,000 rows", "CC BY-NC 4.0", "non-commercial use",
        "Coyevans, polymarket-kalshi-scoresync-orderbook-sample, "
        "https://huggingface.co/datasets/Coyevans/polymarket-kalshi-scoresync-orderbook-sample",
        None, None, "https://huggingface.co/datasets/Coyevans/polymarket-kalshi-scoresync-orderbook-sample",
    ),
    OpenSet(
        "rocklabs", "messages of the market channel, in envelopes", None, None, "221,000 of Polymarket",
        "31.6 billion rows", "Rocklabs Polymarket Dataset License",
        "academic and educational use with the citation, and no redistribution",
        "Rocklabs Polymarket Dataset, https://rocklabs.io", "market-channel", None,
        "https://github.com/rocklabs-io/polymarket-dataset",
    ),
    OpenSet(
        "prediction-market-analysis", "markets and trades of both venues, one file of 36 GiB",
        "2021-06-30T20:09:00Z", None, "all of Kalshi and Polymarket", "36 GiB", None, None,
        "Becker, J. (2026), The Microstructure of Wealth Transfer in Prediction Markets, "
        "https://jbecker.dev/research/prediction-market-microstructure",
        "trades", None, "https://jbecker.dev/research/prediction-market-microstructure",
    ),
)  # fmt: skip


def open_set(name: str) -> OpenSet:
    """The set of this name; ConfigError for another one."""
    found = next((one for one in SETS if one.name == name), None)
    if found is None:
        names = ", ".join(one.name for one in SETS)
        raise ConfigError(f"is no open recording; they are {names}.", argument="name", value=name)
    return found


def recordings(*, frame: str = "pandas") -> Any:
    """Open sets of books, prices and trades that others recorded.

    Returns a frame with one row per set: ``name content start end markets size licence use citation format address page
    looked_up``. Times are UTC; null is not known. ``format`` reads the files, ``address`` is that of the file of an
    ``{hour}``, and `marketdata.Archive.add_recording` fetches from there. Files of other sets are on their ``page``:
    download them, and `marketdata.Archive.add_files` reads them. ``use`` is null where the licence allows all use, also
    of a set without a known licence: ask its publisher. Licences were looked up on the day ``looked_up``.

    Parameters
    ----------
    frame : {"pandas", "polars"}
        Kind of the frame.

    Examples
    --------
    >>> md.recordings().set_index("name").loc["pmxt-v2", "licence"]
    'CC BY 4.0'
    """
    import polars as pl

    from marketdata.tidy.frames import frame_kind

    times = [pl.col(name).str.to_datetime(time_unit="us", time_zone="UTC") for name in ("start", "end")]
    day = pl.col("looked_up").str.to_date()
    found = pl.DataFrame(SETS, OpenSet._fields, orient="row", infer_schema_length=None).with_columns(*times, day)
    return found if frame_kind(frame) == "polars" else found.to_pandas()
