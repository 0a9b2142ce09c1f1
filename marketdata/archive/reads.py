"""The reading half of an archive: its views, records, scans and files, and what is held."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast, overload

from marketdata.archive import points
from marketdata.archive.catalog import KINDS, Kind
from marketdata.archive.coverage import gaps, held
from marketdata.archive.imports import write
from marketdata.archive.reading import checked_markets, checked_view, coverage_frame
from marketdata.archive.scan import scan, scan_coarse, stretches, within
from marketdata.archive.views import Views
from marketdata.errors import ConfigError
from marketdata.resolution import Resolution
from marketdata.times import Range, to_micros
from marketdata.typing import Frame, FrameKind
from marketdata.wire.columns import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from marketdata.typing import PandasFrame, PolarsFrame, PolarsLazyFrame


class Reads(Views[Frame]):
    """What an archive answers."""

    def attach(self, client: Any, *, progress: bool | None = None) -> Self:
        """The same archive with a client, from which reads with ``on_missing="fetch"`` fill what is missing.

        Parameters
        ----------
        client : Client
        progress : bool, optional
            A progress bar while it fetches; without it, where a terminal is.

        Returns
        -------
        Archive
            Another object for the same data; this one stays without a client.

        Examples
        --------
        >>> import marketdata as md, tempfile
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client = md.Client(service.base_url, service.api_key)
        ...     archive = md.Archive(tempfile.mkdtemp()).attach(client)
        ...     market = client.markets(max_rows=1)["slug"][0]
        ...     prices = archive.prices(market, "2025-12-31", "2025-12-31T06:00", "1h", on_missing="fetch")
        >>> prices["ts"].nunique()
        6
        """
        out = copy.copy(self)
        out.__dict__.update(_client=client, _progress=progress)
        return out

    @property
    def simulated(self) -> bool:
        """Whether any market in it is simulated; shown wherever its data is shown.

        Examples
        --------
        >>> import marketdata as md
        >>> md.simulate(events=1, days=1).simulated
        True
        """
        return any(record.get("simulated") is True for record in self.records("markets"))

    def version(self, view: View | Kind) -> int:
        """Number of the newest commit of a table; -1 before the first. It changes when data does.

        Parameters
        ----------
        view : {"books", "prices", "metrics", "series", "events", "markets"}

        Returns
        -------
        int
            Counted from 0 in each table.

        Raises
        ------
        ConfigError
            If ``view`` does not exist.

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> before = archive.version("prices")
        >>> archive.add(prices=archive.prices(archive.records("markets")[0]["id"]))
        >>> archive.version("prices") > before
        True
        """
        if view in KINDS:
            return self._holdings.catalog[view].table.state().version
        return self._holdings.points[checked_view(view)].state().version

    def records(self, kind: Kind) -> list[dict[str, Any]]:
        """Records of ``"series"``, ``"events"`` or ``"markets"`` in the shape of the wire, by id.

        Parameters
        ----------
        kind : {"series", "events", "markets"}

        Returns
        -------
        list of dict
            One per record, with the fields of interface 4.5; new dicts, which may be changed.

        Raises
        ------
        ConfigError
            If ``kind`` does not exist.

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> [len(market["tokens"]) for market in archive.records("markets")]
        [2, 2, 3, 210]
        """
        if kind not in KINDS:
            raise ConfigError(f"records of {kind!r} do not exist; allowed are {', '.join(KINDS)}.")
        return [dict(record) for record in self._holdings.catalog[kind].records()]

    def find_market(self, id_or_slug: str) -> dict[str, Any] | None:
        """The record of the market with this id, else with this slug.

        Parameters
        ----------
        id_or_slug : str

        Returns
        -------
        dict or None
            As in ``records``; None where the archive has no such market.

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> slug = archive.records("markets")[0]["slug"]
        >>> archive.find_market(slug)["question"]
        'Simulated: Will the Harbour Party win district 1-1?'
        """
        found = self._holdings.catalog["markets"].find(id_or_slug)
        return None if found is None else dict(found)

    def find_token(self, token_id: str) -> tuple[dict[str, Any], str | None] | None:
        """The record of the market that has this token, and the token's label.

        Parameters
        ----------
        token_id : str

        Returns
        -------
        tuple of (dict, str or None), or None
            The record as in ``records``, and the label; None where no market has such a token.

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> token_id = archive.records("markets")[0]["tokens"][0]["id"]
        >>> market, label = archive.find_token(token_id)
        >>> label
        'Yes'
        """
        found = self._holdings.catalog["markets"].token(token_id)
        return None if found is None else (dict(found[0]), found[1])

    def scan(
        self,
        view: View,
        market: str | Sequence[str] | None = None,
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
    ) -> PolarsLazyFrame:
        """A lazy polars frame of a view: tidy rows, one marker row per empty side of a book.

        It shows one committed version, and is made for archives larger than memory: filter, aggregate and write it
        with ``sink_parquet``. At 1m, predicates on ``ts`` and ids, the choice of columns and limits reach the files;
        rows stand by market, token and time within each file. Coarser buckets are made market by market, some days
        at a time, and come in that order; say here which markets and which range are wanted. (``lf.md.resample`` of
        the 1m rows gives the same rows too, but polars has to hold all of them for it.)

        Parameters
        ----------
        view : {"books", "prices", "metrics"}
        market : str or list of str, optional
            Ids or slugs; all markets without it.
        start, end : time, optional
            Start inclusive, end exclusive [UTC].
        resolution : {"1m", "10m", "1h", "6h", "1d"}

        Returns
        -------
        polars.LazyFrame
            The columns of the view; ids are plain text.

        Raises
        ------
        NotArchivedError
            If a market is not known.
        ConfigError
            If an argument is refused.

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> archive.scan("prices", resolution="6h").collect()["ts"].n_unique()
        4
        """
        width, table = Resolution.of(resolution), self._holdings.points[checked_view(view)]
        ids = None if market is None else [self._market_id(one) for one in checked_markets(market)]
        first = points.ALL_TIME.start if start is None else to_micros(start, "start")
        last = points.ALL_TIME.end if end is None else to_micros(end, "end")
        if width is not Resolution.M1:
            return cast("PolarsLazyFrame", scan_coarse(table, view, width, self._stretches(view, ids, first, last)))
        return cast("PolarsLazyFrame", within(scan(table, view, self._holdings.options), ids, start, end))

    def _stretches(self, view: View, ids: Sequence[str] | None, first: int, last: int) -> Iterator[tuple[str, Range]]:
        known, ledger = self._holdings.catalog["markets"], self._holdings.ledger
        for kind, market_id in ledger.keys():  # noqa: SIM118  not a dict
            if kind != view or (ids is not None and market_id not in ids):
                continue
            have = held(ledger.pieces(view, market_id))
            if have:
                tokens = 1 if view == "metrics" else len((known.find(market_id) or {}).get("tokens", ()))
                whole = Range(max(have[0].start, first), min(have[-1].end, last))
                for part in stretches(whole, tokens):
                    if gaps(have, part) != [part]:
                        yield market_id, part

    def export(
        self,
        view: View,
        path: str | os.PathLike[str],
        market: str | Sequence[str] | None = None,
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
    ) -> None:
        """Write tidy rows to a Parquet, CSV or JSON lines file.

        Without ``market``, all of the view is streamed in bounded memory.

        Parameters
        ----------
        view : {"books", "prices", "metrics"}
        path : path
            The end of its name says what is written: ``.parquet``, ``.csv``, ``.jsonl`` or ``.ndjson``.
        market : str or list of str, optional
            Ids or slugs; all markets without it.
        start, end : time, optional
            Start inclusive, end exclusive [UTC].
        resolution : {"1m", "10m", "1h", "6h", "1d"}

        Raises
        ------
        ConfigError
            If the end of the name is not known.
        NotArchivedError
            As ``books``.

        Examples
        --------
        >>> import marketdata as md, pandas as pd, tempfile
        >>> archive, path = md.simulate(events=1, days=1), f"{tempfile.mkdtemp()}/prices.csv"
        >>> archive.export("prices", path, archive.records("markets")[0]["id"], resolution="1h")
        >>> len(pd.read_csv(path))
        48
        """
        if market is not None:
            frame = getattr(self, checked_view(view))(market, start, end, resolution, frame="polars")
            return write(frame, Path(path))
        return write(self.scan(view, None, start, end, resolution), Path(path))

    def files(self, view: View, market: str | None = None, start: Any = None, end: Any = None) -> list[str]:
        """Parquet files that hold a view (of one market, in a range), for engines that take file lists.

        A file may hold more than was asked: filter again. Books lie one row per snapshot, with the list
        columns ``bid_price bid_size ask_price ask_size``.

        Parameters
        ----------
        view : {"books", "prices", "metrics"}
        market : str, optional
            Id or slug; all markets without it.
        start, end : time, optional
            Start inclusive, end exclusive [UTC].

        Returns
        -------
        list of str
            Paths, or addresses in the object store, of the newest version.

        Raises
        ------
        NotArchivedError
            If the market is not known.
        ConfigError
            If an argument is refused.

        Examples
        --------
        >>> import marketdata as md, polars as pl
        >>> archive = md.simulate(events=1, days=1)
        >>> pl.scan_parquet(archive.files("prices")).select(pl.col("token_id").n_unique()).collect().item()
        217
        """
        table = self._holdings.points[checked_view(view)]
        market_id = None if market is None else self._market_id(market)
        first = points.ALL_TIME.start if start is None else to_micros(start, "start")
        last = points.ALL_TIME.end if end is None else to_micros(end, "end")
        return [table.store.uri(f.path) for f in table.state().files if f.may_hold(market_id, first, last)]

    @overload
    def coverage(self, *, frame: None = None) -> Frame: ...

    @overload
    def coverage(self, *, frame: Literal["pandas"]) -> PandasFrame: ...

    @overload
    def coverage(self, *, frame: Literal["polars"]) -> PolarsFrame: ...

    def coverage(self, *, frame: FrameKind | None = None) -> Any:
        """What is held: one row per range of a market's view.

        Parameters
        ----------
        frame : {"pandas", "polars"}, optional
            Another kind than the archive's own.

        Returns
        -------
        frame
            ``view market_id start end state rows content_hash fetched_at``: [start, end) in UTC; ``state`` is
            final, provisional, empty_observed, unproven or missing; ``rows`` and ``content_hash`` of the
            points at 1m (null where a later write has cut the range).

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> held = archive.coverage()
        >>> len(held), held["state"].unique().tolist()
        (12, ['final'])
        """
        return coverage_frame(self._holdings.ledger, frame or self._frame)

    def plot_coverage(self, ax: Axes | None = None, *, title: str | None = None) -> Axes:
        """Draw what is held: one bar per market and view, coloured by state.

        Parameters
        ----------
        ax : Axes, optional
            Where to draw; a new figure without it.
        title : str, optional

        Returns
        -------
        Axes
            x: time [UTC]; y: market and view.

        Examples
        --------
        >>> import marketdata as md
        >>> from matplotlib.figure import Figure
        >>> ax = md.simulate(events=1, days=1).plot_coverage(Figure().subplots())
        >>> len(ax.get_yticklabels())
        12
        """
        from marketdata import plot

        drawn: Axes = plot.coverage(self.coverage(), ax, title=title, simulated=self.simulated)
        return drawn
