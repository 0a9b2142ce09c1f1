"""The archive as a user sees it: add, pull, read at any resolution, and know what is held."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, cast, overload

from marketdata.archive import files, ingest, maintenance, query, sql
from marketdata.archive.catalog import KINDS, RecordKind
from marketdata.archive.coverage.policy import whole_minutes
from marketdata.archive.files import AddedFile
from marketdata.archive.pull import Pull, asked_frame, wanted_range
from marketdata.archive.query import Missing, checked_levels, checked_markets, checked_missing, checked_view
from marketdata.archive.scan import (
    EngineName,
    by_market,
    checked_engine,
    query_of,
    to_arrow,
    to_dask,
    to_spark,
)
from marketdata.archive.selection import Selection
from marketdata.archive.storage.parquet import is_url
from marketdata.archive.store import ArchiveStore
from marketdata.errors import ConfigError
from marketdata.resolution import BucketWidth
from marketdata.times import Range, to_datetime, to_micros, to_range
from marketdata.typing import Frame, FrameKind
from marketdata.wire.columns import VIEWS, AnyColumns, BookColumns, View, empty

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from marketdata.typing import PandasFrame, PolarsFrame, PolarsLazyFrame


class Archive(Generic[Frame]):
    """History in Delta Lake tables: ``books prices metrics markets events series coverage`` under one root.

    Points are held at 1m; coarser ones are derived on reading by the service's rules (interface 4.2 to 4.4).
    The object is cheap to make, keeps no lock and no open file, and may be used by many threads.

    Parameters
    ----------
    path_or_url : str or path
        A folder, or an object-store address such as ``s3://bucket/prefix``. Made by the first write.
    frame : {"pandas", "polars"}
        Kind of the frames that reads answer with.
    storage_options : dict, optional
        What the object store needs (keys, endpoint), as deltalake takes it.
    as_of : time, optional
        Show the archive as it was then [UTC], read only: as far back as the commit log reaches (30 days) and
        ``vacuum`` has left the files.

    Raises
    ------
    ConfigError
        If an argument is refused.

    Examples
    --------
    >>> import tempfile
    >>> archive = Archive(tempfile.mkdtemp())
    >>> archive.add(markets=[{"market_id": "m", "slug": "s", "token_ids": ["1", "2"], "token_labels": ["Yes", "No"]}])
    >>> archive.find_token("2")[1]
    'No'
    """

    @overload
    def __init__(
        self: Archive[PandasFrame],
        path_or_url: str | os.PathLike[str],
        *,
        frame: Literal["pandas"] = "pandas",
        storage_options: dict[str, str] | None = None,
        as_of: Any = None,
    ) -> None: ...

    @overload
    def __init__(
        self: Archive[PolarsFrame],
        path_or_url: str | os.PathLike[str],
        *,
        frame: Literal["polars"],
        storage_options: dict[str, str] | None = None,
        as_of: Any = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        path_or_url: str | os.PathLike[str],
        *,
        frame: FrameKind,
        storage_options: dict[str, str] | None = None,
        as_of: Any = None,
    ) -> None: ...

    def __init__(
        self,
        path_or_url: str | os.PathLike[str],
        *,
        frame: FrameKind = "pandas",
        storage_options: dict[str, str] | None = None,
        as_of: Any = None,
    ) -> None:
        if frame not in ("pandas", "polars"):
            raise ConfigError(f"frame={frame!r} does not exist; allowed are 'pandas' and 'polars'.")
        location = os.fspath(path_or_url)
        if not location:
            raise ConfigError("path_or_url is empty; it is a folder or an object-store address.")
        self._location = location if is_url(location) else str(Path(location.removeprefix("file://")).absolute())
        if not is_url(location) and Path(self._location).is_file():
            raise ConfigError(f"{location!r} is a file; an archive is a folder, which the first write makes.")
        self._frame: FrameKind = frame
        self._client: Any = None
        self._progress: bool | None = None
        then = None if as_of is None else to_micros(as_of, "as_of")
        self._store = ArchiveStore(self._location, storage_options, then)

    def __repr__(self) -> str:
        return f"Archive({self._location!r})"

    @property
    def location(self) -> str:
        """Folder or address of the archive.

        Examples
        --------
        >>> Archive("s3://bucket/markets").location
        's3://bucket/markets'
        """
        return self._location

    def add(
        self,
        *,
        markets: Any = None,
        series: Any = None,
        events: Any = None,
        books: Any = None,
        prices: Any = None,
        metrics: Any = None,
        replace: bool = False,
        complete: bool = False,
    ) -> None:
        """Add records and points. Points of equal token and time are replaced, everything else stays.

        What is added is ``recorded``: held, but not said to be complete, so that a pull still asks for it; ranges that
        were complete before stay so. Recordings that are finer than 1m or irregular are first reduced to 1m by the
        service's rules: the last book, the mean of prices and metrics. Adding the same again changes nothing.

        Parameters
        ----------
        markets : frame or list of dict, optional
            One row per market: ``market_id slug question event_slug token_ids token_labels`` and whatever
            more; further columns become fields of the record.
        series, events : frame or list of dict, optional
            Their records; derived from ``markets`` where not given.
        books, prices, metrics : frame or columns, optional
            Tidy columns in any kind of frame. ``market_id`` and ``token_label`` that are missing are looked up
            by ``token_id``; metrics may name the market by ``slug``.
        replace : bool
            Replace the range from the first to the last point of each token, also where the frame has no point.
        complete : bool
            Say that nothing is missing from the first to the last point of each market: the range becomes ``final``,
            and no pull asks for it. All tokens of the market must be in the frame.

        Raises
        ------
        NotTidyError
            If a frame lacks columns that its view needs, or has different rows of one token and time.
        ArchiveError
            If rows name a token that no market of the archive has, have a coarser grid than what they would replace, or
            lack a token and are said to be complete.
        ArchiveFullError
            If there is no room or right to write; what was there before is intact.

        Examples
        --------
        >>> import marketdata as md, pandas as pd, tempfile
        >>> market = {"market_id": "m", "slug": "s", "token_ids": ["1", "2"], "token_labels": ["Yes", "No"]}
        >>> archive = md.Archive(tempfile.mkdtemp())
        >>> prices = pd.DataFrame({"ts": pd.to_datetime(["2026-01-01"], utc=True), "token_id": "2", "price": [0.25]})
        >>> archive.add(markets=[market], prices=prices)
        >>> archive.prices("s")["token_label"].tolist()
        ['No']
        >>> archive.coverage()["state"].tolist()
        ['recorded']
        """
        ingest.add_records(self._store, markets, events, series)
        for view, data in (("books", books), ("prices", prices), ("metrics", metrics)):
            if data is not None:
                ingest.add_points(self._store, view, data, replace=replace, complete=complete)  # type: ignore[arg-type]

    def add_files(self, paths: Any, *, token_id: str | None = None, clock: str = "timestamp") -> list[AddedFile]:
        """Add files: Parquet, CSV and JSON lines of tidy columns, and raw book messages of a collector.

        What a file holds is seen by its columns. Records are added before points, whatever the order.

        Parameters
        ----------
        paths : path or list of paths
            Files, or folders of files.
        token_id : str, optional
            Whose books raw messages are, where they do not say it.
        clock : str
            Field of raw messages that has their time: Unix seconds, milliseconds, microseconds or nanoseconds, which
            are told apart by their size.

        Returns
        -------
        list of AddedFile
            ``file kind rows points stored``: the file, what it holds, its rows or messages, the points that these are
            (a snapshot of a book is one, doubled rows are one), and those that are stored, at 1m. Records are stored
            as they are.

        Raises
        ------
        ConfigError
            If a file is not there or holds nothing that an archive takes; nothing is added then.
        ArchiveError
            As ``add``.

        Examples
        --------
        >>> import marketdata as md, tempfile
        >>> from pathlib import Path
        >>> file, archive = Path(tempfile.mkdtemp(), "markets.jsonl"), md.Archive(tempfile.mkdtemp())
        >>> _ = file.write_text('{"market_id": "m", "slug": "s", "token_ids": ["1"], "token_labels": ["Yes"]}')
        >>> [(added.kind, added.rows) for added in archive.add_files(file)]
        [('markets', 1)]
        """
        some = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        read = files.found(some, token_id, clock)
        return [self._add_file(one) for one in read]

    def _add_file(self, one: files.Found) -> AddedFile:
        points = stored = one.rows
        if one.kind in VIEWS:
            points, stored = ingest.add_points(self._store, one.kind, one.data, replace=False, complete=False)
        else:
            self.add(**{one.kind: one.data})
        return AddedFile(str(one.path), one.kind, one.rows, points, stored)

    def pull(
        self,
        client: Any,
        markets: str | Sequence[str] | None = None,
        *,
        event: str | None = None,
        series: str | None = None,
        search: str | None = None,
        all_markets: bool = False,
        file: str | os.PathLike[str] | None = None,
        views: Sequence[View] = tuple(VIEWS),
        start: Any,
        end: Any = None,
        dry_run: bool = False,
        refresh: bool = False,
        progress: bool | None = None,
        frame: FrameKind | None = None,
    ) -> Any:
        """Fetch what is missing of a range, and only that, at 1m.

        What has come is committed as it comes, so a stopped pull goes on where it was. Asking again for what is
        final makes no request. Buckets that are open or not yet settled (ten minutes, by the server's clock) are
        provisional and fetched again by later pulls; ranges without points near now are asked again after an
        hour, a day and a week.

        Parameters
        ----------
        client : Client
        markets : str or list of str, optional
            Ids or slugs.
        event, series : str, optional
            Instead of markets: a slug, for all markets below it. What the service lists of it is believed for ten
            minutes, by the server's clock.
        search : str, optional
            Instead: all markets that the service finds by a text.
        all_markets : bool
            Instead: every market that the service lists.
        file : path, optional
            Instead: a text file of ids and slugs, one a line; ``#`` begins a comment, ``"-"`` is the standard input.
        views : sequence of {"books", "prices", "metrics"}
        start, end : time
            Start inclusive, end exclusive [UTC]; without an end, up to now by the server's clock.
        dry_run : bool
            Only say what would be asked.
        refresh : bool
            Ask for everything, also for what is final: the last fetch wins.
        progress : bool, optional
            A progress bar; without it, where a terminal is.
        frame : {"pandas", "polars"}, optional

        Returns
        -------
        frame
            ``view market_id start end state rows``: what was asked, or with ``dry_run`` would be.

        Raises
        ------
        ConfigError
            If an argument is refused, or the markets are not chosen in exactly one way.
        ArchiveBusyError, ArchiveFullError
            If others keep writing the same, or there is no room; what was committed before is intact.
        NotFoundError
            If the service does not know a market, which the message names with those near it; the others are filled
            before.
        RequestError, NetworkError
            As the client raises them; what had come before is kept.

        Examples
        --------
        >>> import marketdata as md, tempfile
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client, archive = md.Client(service.base_url, service.api_key), md.Archive(tempfile.mkdtemp())
        ...     what = {"markets": client.markets(max_rows=1)["slug"][0], "views": "prices", "start": "2025-12-31"}
        ...     [len(archive.pull(client, **what, end="2026-01-01")) for _ in range(2)]
        [1, 0]
        """
        if not hasattr(client, "iter_columns"):
            raise ConfigError(f"client is {type(client).__name__}; pass md.Client(base_url, api_key).")
        some = [checked_view(view) for view in ([views] if isinstance(views, str) else views)]
        selection = Selection(
            self._store, client, markets, event=event, series=series, search=search, all_markets=all_markets, file=file
        )
        run = Pull(self._store, client, dry_run=dry_run, refresh=refresh, progress=progress)
        run.run(selection, some, wanted_range(start, end))
        return asked_frame(run.asked, frame or self._frame)

    def books(
        self,
        market: str | Sequence[str],
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
        *,
        levels: int | None = None,
        frame: FrameKind | None = None,
        on_missing: Missing | None = None,
    ) -> Frame:
        """Order books: one row per level of a side, the last book of each bucket (interface 4.2).

        Parameters
        ----------
        market : str or list of str
            Id or slug.
        start, end : time, optional
            Start inclusive, end exclusive [UTC]; without one, as far as the archive reaches.
        resolution : {"1m", "10m", "1h", "6h", "1d"}
        levels : int, optional
            At most so many best levels of each side.
        frame : {"pandas", "polars"}, optional
        on_missing : {"warn", "raise", "partial", "fetch"}, optional
            When only a part of the range is held, or a part is unproven or provisional: warn (default), raise, stay
            silent, or fetch the rest (at 1m, as ``pull`` does) from the client that is attached.

        Returns
        -------
        frame
            ``ts market_id token_id token_label side level price size``.

        Raises
        ------
        NotArchivedError
            For an unknown market, or a range that is not held; ``.range`` says which.
        ConfigError
            If an argument is refused, or there is no client to fetch from.

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> market = archive.records("markets")[0]["slug"]
        >>> archive.books(market, "2025-12-31", "2025-12-31T06:00", "1h", levels=1)["ts"].nunique()
        6
        """
        return self._read("books", market, start, end, resolution, on_missing, frame, checked_levels(levels))

    def prices(
        self,
        market: str | Sequence[str],
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
        *,
        frame: FrameKind | None = None,
        on_missing: Missing | None = None,
    ) -> Frame:
        """Prices [probability 0 to 1]: one row per token and bucket, the mean of the bucket (interface 4.3).

        Parameters
        ----------
        market, start, end, resolution, frame, on_missing
            As in ``books``.

        Returns
        -------
        frame
            ``ts market_id token_id token_label price``; ``ts`` is the start of the bucket [UTC].

        Raises
        ------
        NotArchivedError, ConfigError
            As ``books``.

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> prices = archive.prices(archive.records("markets")[0]["id"], resolution="6h")
        >>> len(prices), bool(prices["price"].between(0, 1).all())
        (8, True)
        """
        return self._read("prices", market, start, end, resolution, on_missing, frame)

    def metrics(
        self,
        market: str | Sequence[str],
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
        *,
        frame: FrameKind | None = None,
        on_missing: Missing | None = None,
    ) -> Frame:
        """Market metrics: one row per market and bucket, the mean of the bucket (interface 4.4).

        Parameters
        ----------
        market, start, end, resolution, frame, on_missing
            As in ``books``.

        Returns
        -------
        frame
            ``ts market_id volume liquidity spread`` and further metrics; ``ts`` is the start of the bucket [UTC].

        Raises
        ------
        NotArchivedError, ConfigError
            As ``books``.

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> archive.metrics(archive.records("markets")[0]["id"], resolution="6h")["ts"].dt.hour.tolist()
        [0, 6, 12, 18]
        """
        return self._read("metrics", market, start, end, resolution, on_missing, frame)

    def columns(
        self,
        view: View,
        market_id: str,
        rng: Range | None = None,
        resolution: str = "1m",
        token_id: str | None = None,
    ) -> AnyColumns:
        """Points of one market as columns, sorted by token and time.

        Parameters
        ----------
        view : {"books", "prices", "metrics"}
        market_id : str
            The id, never a slug.
        rng : Range, optional
            Selects base points (1m) with start <= ts < end [microseconds UTC], which are then aggregated.
        resolution : str
        token_id : str, optional
            One token only.

        Returns
        -------
        BookColumns, PriceColumns or MetricColumns
            Empty where nothing is held; coverage is not looked at.

        Raises
        ------
        ConfigError
            If ``view`` or ``resolution`` does not exist.

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> points = archive.columns("prices", archive.records("markets")[0]["id"], resolution="6h")
        >>> [token.token_label for token in points.tokens], len(points.ts)
        (['No', 'Yes'], 8)
        """
        width = BucketWidth.of(resolution)
        table = self._store.points[checked_view(view)]
        return query.coarser(query.read(table, view, market_id, rng, token_id), width)

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

    def version(self, view: View | RecordKind) -> int:
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
            return self._store.catalog[view].table.version().number
        return self._store.points[checked_view(view)].version().number

    def records(self, kind: RecordKind) -> list[dict[str, Any]]:
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
        return [dict(record) for record in self._store.catalog[kind].records()]

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
        found = self._store.catalog["markets"].find(id_or_slug)
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
        found = self._store.catalog["markets"].token(token_id)
        return None if found is None else (dict(found[0]), found[1])

    @overload
    def scan(
        self,
        view: View,
        market: str | Sequence[str] | None = None,
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
        *,
        levels: int | None = None,
        engine: Literal["polars"] = "polars",
        nested: bool = False,
    ) -> PolarsLazyFrame: ...

    @overload
    def scan(
        self,
        view: View,
        market: str | Sequence[str] | None = None,
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
        *,
        levels: int | None = None,
        engine: EngineName,
        nested: bool = False,
    ) -> Any: ...

    def scan(
        self,
        view: View,
        market: str | Sequence[str] | None = None,
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
        *,
        levels: int | None = None,
        engine: EngineName = "polars",
        nested: bool = False,
    ) -> Any:
        """A view as a lazy frame of an engine: tidy rows, one marker row per empty side of a book.

        It shows one committed version, and is made for archives larger than memory. Predicates on ``ts`` and ids, the
        choice of columns and limits reach the files. Books are aggregated as whole snapshots, before their levels
        become rows. DuckDB compares page checksums as it reads; polars, and what it computes for Arrow, Dask and Spark,
        does not: run ``verify`` for that.

        Parameters
        ----------
        view : {"books", "prices", "metrics"}
        market : str or list of str, optional
            Ids or slugs; all markets without it.
        start, end : time, optional
            Start inclusive, end exclusive [UTC].
        resolution : str
            "1m", or any coarser width that ``md.resample`` takes.
        levels : int, optional
            At most so many levels of each side of a book.
        engine : {"polars", "arrow", "duckdb", "dask", "spark"}
            ``arrow`` gives a RecordBatchReader, ``duckdb`` a relation, ``dask`` and ``spark`` frames whose partitions
            hold whole markets; Spark is that of the running session, whose workers must reach the files.
        nested : bool
            Books as one row per snapshot, with the list columns ``bid_price bid_size ask_price ask_size``.

        Returns
        -------
        polars.LazyFrame, pyarrow.RecordBatchReader, duckdb.DuckDBPyRelation, or a frame of Dask or Spark
            The columns of the view; ids are plain text. At 1m rows of polars are sorted by market, token and time
            within each file; of coarser resolutions and other engines they are in no order.

        Raises
        ------
        NotArchivedError
            If a market is not known.
        ConfigError
            If an argument is refused, or no Spark session runs.
        ModuleNotFoundError
            If the engine is not installed.

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> archive.scan("prices", resolution="6h").collect()["ts"].n_unique()
        4
        """
        table, engine = self._store.points[checked_view(view)], checked_engine(engine)
        ids = None if market is None else [self._market_id(one) for one in checked_markets(market)]
        wanted, width = _range(start, end), BucketWidth.of(resolution)
        what = query_of(
            table, view, self._store.options, ids, wanted, width, levels=checked_levels(levels), nested=nested
        )
        if engine == "polars":
            return what.lazy()
        if engine == "arrow":
            return to_arrow(what)
        if engine == "duckdb":
            return sql.relation(table, what)
        every = ids if ids is not None else [str(record["id"]) for record in self._store.catalog["markets"].records()]
        parts = by_market(table, what, every)
        return to_dask(parts) if engine == "dask" else to_spark(parts)

    def sql(self, statement: str, *, frame: FrameKind | None = None) -> Frame:
        """Run SQL over the archive, by DuckDB in this process.

        The views are ``books`` (tidy rows), ``snapshots`` (one row per snapshot, with list columns), ``prices`` and
        ``metrics`` at 1m, and ``markets events series coverage``. Each statement sees one version of every table; only
        the views that it names are read.

        Parameters
        ----------
        statement : str
            In the dialect of DuckDB; times are UTC.
        frame : {"pandas", "polars"}, optional

        Returns
        -------
        frame
            The rows and columns of the statement.

        Raises
        ------
        ConfigError
            If DuckDB refuses the statement.
        ModuleNotFoundError
            If DuckDB is not installed.

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1, frame="polars")
        >>> archive.sql("select count(distinct ts) as n from prices").rows()
        [(1440,)]
        """
        import polars as pl

        from marketdata.accessor import register

        connection = sql.connect()
        for view, table in self._store.points.items():
            if re.search("books|snapshots" if view == "books" else view, statement, re.IGNORECASE):
                stored = query_of(table, view, self._store.options, None, query.ALL_TIME)
                connection.register("snapshots" if view == "books" else view, sql.dataset(table, stored))
        if re.search("books", statement, re.IGNORECASE):
            sql.define_books(connection)
        for name in ("markets", "events", "series", "coverage"):
            if re.search(name, statement, re.IGNORECASE):
                records = getattr(self, name)(frame="polars")
                connection.register(name, records.to_arrow())
        rows = pl.DataFrame(pl.from_arrow(sql.answer(connection, statement)))
        kind = frame or self._frame
        register(kind)
        return cast("Frame", rows if kind == "polars" else rows.to_pandas())

    def markets(
        self, event_slug: str | None = None, search: str | None = None, *, frame: FrameKind | None = None
    ) -> Frame:
        """Records of markets as a frame, as `Client.markets` gives them.

        Parameters
        ----------
        event_slug : str, optional
            Only those of one event.
        search : str, optional
            Only those whose id, slug or question holds this text; upper and lower case are equal.
        frame : {"pandas", "polars"}, optional

        Returns
        -------
        frame
            One row per market: ``market_id slug question status start_date end_date token_ids token_labels``, dates
            [UTC], and whatever further fields the records have.

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> archive.markets(search="harbour")["token_labels"].map(len).tolist()
        [2]
        """
        return self._record_frame("markets", {"event_slug": event_slug}, search, frame)

    def outcomes(
        self, event_slug: str | None = None, search: str | None = None, *, frame: FrameKind | None = None
    ) -> Frame:
        """What each token of resolved markets paid, as `marketdata.outcomes` gives it.

        Parameters
        ----------
        event_slug, search, frame
            As in `markets`.

        Returns
        -------
        frame
            One row per token: ``market_id token_id token_label payoff resolved_at``.

        Raises
        ------
        NotTidyError
            If no record says what a market resolved to.

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> bool(archive.outcomes()["payoff"].sum() <= len(archive.markets()))
        True
        """
        from marketdata.tidy.outcomes import outcomes

        return outcomes(self.markets(event_slug, search, frame=frame))

    def events(
        self, series_slug: str | None = None, search: str | None = None, *, frame: FrameKind | None = None
    ) -> Frame:
        """Records of events as a frame, as `Client.events` gives them.

        Parameters
        ----------
        series_slug : str, optional
            Only those of one series.
        search : str, optional
            Only those whose id, slug or title holds this text.
        frame : {"pandas", "polars"}, optional

        Returns
        -------
        frame
            One row per event: ``event_id slug title status start_date end_date tags``, and further fields.

        Examples
        --------
        >>> import marketdata as md
        >>> len(md.simulate(events=2, days=1).events())
        2
        """
        return self._record_frame("events", {"series_slug": series_slug}, search, frame)

    def series(self, search: str | None = None, *, frame: FrameKind | None = None) -> Frame:
        """Records of series as a frame, as `Client.series` gives them.

        Parameters
        ----------
        search : str, optional
            Only those whose id, slug or title holds this text.
        frame : {"pandas", "polars"}, optional

        Returns
        -------
        frame
            One row per series: ``series_id slug title status start_date end_date``, and further fields.

        Examples
        --------
        >>> import marketdata as md
        >>> len(md.simulate(events=1, days=1).series())
        1
        """
        return self._record_frame("series", {}, search, frame)

    def _record_frame(
        self, kind: RecordKind, filters: dict[str, str | None], search: str | None, frame: FrameKind | None
    ) -> Frame:
        from marketdata.accessor import register
        from marketdata.tidy.records import to_frame

        def is_meant(record: dict[str, Any]) -> bool:
            texts = (str(record.get(name) or "") for name in ("id", "slug", "title", "question"))
            found = search is None or any(search.casefold() in text.casefold() for text in texts)
            return found and all(value is None or record.get(name) == value for name, value in filters.items())

        chosen_kind = frame or self._frame
        register(chosen_kind)
        records = [record for record in self._store.catalog[kind].records() if is_meant(record)]
        return cast("Frame", to_frame(kind, records, chosen_kind))

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

        Without ``market``, all of the view is streamed in bounded memory, once its checksums were compared.

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
            return files.write(frame, Path(path))
        rows, table = self.scan(view, None, start, end, resolution), self._store.points[view]
        for file in query.files_of(table.version(), None, _range(start, end)):
            for group in range(table.footer(file).metadata.num_row_groups):
                table.read(file, [group])
        return files.write(rows, Path(path))

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
        table = self._store.points[checked_view(view)]
        ids = None if market is None else [self._market_id(market)]
        return [table.store.address(f.path) for f in query.files_of(table.version(), ids, _range(start, end))]

    def coverage(self, *, frame: FrameKind | None = None) -> Frame:
        """What is held: one row per range of a market's view.

        Parameters
        ----------
        frame : {"pandas", "polars"}, optional
            Another kind than the archive's own.

        Returns
        -------
        frame
            ``view market_id start end state rows content_hash fetched_at``: [start, end) in UTC; ``state`` is
            final, provisional, recorded, empty_observed, unproven or missing; ``rows`` and ``content_hash`` of the
            points at 1m (null where they are not known).

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> held = archive.coverage()
        >>> len(held), held["state"].unique().tolist()
        (12, ['final'])
        """
        return cast("Frame", query.coverage_frame(self._store.coverage, frame or self._frame))

    def plot_coverage(
        self,
        ax: Axes | None = None,
        *,
        title: str | None = None,
        backend: Literal["matplotlib", "plotly"] = "matplotlib",
    ) -> Any:
        """Draw what is held: one bar per market and view, coloured by state.

        Parameters
        ----------
        ax : Axes, optional
            Where to draw; a new figure without it.
        title : str, optional
            Text above.
        backend : "matplotlib" or "plotly"
            plotly draws an interactive figure.

        Returns
        -------
        matplotlib Axes, or plotly Figure
            x: time [UTC]; y: question of the market, and view.

        Examples
        --------
        >>> import marketdata as md
        >>> from matplotlib.figure import Figure
        >>> ax = md.simulate(events=1, days=1).plot_coverage(Figure().subplots())
        >>> len(ax.get_yticklabels())
        12
        """
        from marketdata import plot

        records = self.records("markets")
        named = {r["id"]: text for r in records if (text := r.get("question") or r.get("slug"))}
        held = self.coverage()
        return plot.coverage(held, ax, markets=named, title=title, simulated=self.simulated, backend=backend)

    def compact(self) -> int:
        """Rewrite many small files as few large ones; readers and other versions are not disturbed.

        Returns
        -------
        int
            How many files fewer the newest version has.

        Raises
        ------
        ArchiveError
            If a table cannot be read or written; what was there before is intact.

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> archive.compact() > 0, archive.compact()
        (True, 0)
        """
        return maintenance.compact(self._store)

    def vacuum(self, retention_hours: float = 168) -> list[str]:
        """Remove files that no version of the last hours needs, and what killed writers left behind.

        Readers that run, and ``as_of``, need the files of their version: keep more hours than they last.
        Files that the archive did not write are never touched.

        Parameters
        ----------
        retention_hours : float
            How far back versions stay readable [h]; parts of an hour count as a whole one.

        Returns
        -------
        list of str
            Names of the removed files.

        Raises
        ------
        ConfigError
            If ``retention_hours`` is negative, not finite or no number.
        ArchiveFullError
            If there is no right to write.

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> archive.add(prices=archive.prices(archive.records("markets")[0]["id"]))
        >>> len(archive.vacuum()), len(archive.vacuum(retention_hours=0)) > 0
        (0, True)
        """
        return maintenance.vacuum(self._store, retention_hours)

    def verify(self, *, repair: bool = False, frame: FrameKind | None = None) -> Any:
        """Read everything back and compare it with the row counts and content hashes of the coverage.

        Finds flipped bits, torn, swapped and missing files, and rows that are not those that were written.

        Parameters
        ----------
        repair : bool
            Give up what is proven to be damaged: its ranges become missing, what can still be read is kept, and the
            next pull or add fills them. A failure of the storage proves nothing; it is raised, and nothing is changed.
        frame : {"pandas", "polars"}, optional

        Returns
        -------
        frame
            One row per damaged range, none when all is well: ``view market_id start end problem``.

        Raises
        ------
        ArchiveError
            If the storage does not answer, or there is no right to repair.

        Examples
        --------
        >>> import marketdata as md, os
        >>> archive = md.simulate(events=1, days=1)
        >>> os.truncate(archive.files("prices")[0], 1000)
        >>> archive.verify()["view"].unique().tolist()
        ['prices']
        """
        return self._damage_frame(maintenance.repair(self._store) if repair else maintenance.verify(self._store), frame)

    def rebuild(self, *, frame: FrameKind | None = None) -> Any:
        """Make commit logs that are damaged or gone anew from the data files, then repair as ``verify`` does.

        A table with such a log is read as far as its last good version, with a warning, and not written to. The
        points are in the data files, each of which proves itself; which of them had been replaced is told by what is
        left of the log and by the content hashes of the coverage. Old logs are kept as ``_delta_log.damaged-...``.
        Where no log is damaged only the repair is done. Nothing else should write meanwhile.

        Parameters
        ----------
        frame : {"pandas", "polars"}, optional

        Returns
        -------
        frame
            As ``verify``: ranges that are missing now and that the next pull or add fills.

        Raises
        ------
        ArchiveError
            If the archive lies in an object store.

        Examples
        --------
        >>> import marketdata as md, shutil, warnings
        >>> archive = md.simulate(events=1, days=1)
        >>> shutil.rmtree(f"{archive.location}/prices/_delta_log")
        >>> with warnings.catch_warnings(action="ignore"):  # it says that the log is gone
        ...     len(archive.rebuild())
        0
        """
        maintenance.rebuild(self._store)
        return self._damage_frame(maintenance.repair(self._store), frame)

    def _damage_frame(self, damage: list[maintenance.Damage], frame: FrameKind | None) -> Any:
        columns = {"view": "text", "market_id": "text", "start": "time", "end": "time", "problem": "text"}
        rows = [(d.view, d.market_id, to_datetime(d.range.start), to_datetime(d.range.end), d.problem) for d in damage]
        return query.frame_of(rows, columns, frame or self._frame)

    def _read(
        self,
        view: View,
        market: str | Sequence[str],
        start: Any,
        end: Any,
        resolution: str,
        on_missing: Missing | None,
        frame: FrameKind | None,
        levels: int | None = None,
    ) -> Frame:
        from marketdata.accessor import to_frame

        width, missing = BucketWidth.of(resolution), checked_missing(on_missing)
        if missing == "fetch":
            wanted = self._span(start, end)
            ranges = dict.fromkeys(self._fill(view, market, wanted), wanted)
        else:
            ids = dict.fromkeys(map(self._market_id, checked_markets(market)))
            ranges = {m: query.held_range(self._store.coverage, view, m, start, end, missing) for m in ids}
        columns = query.read(self._store.points[view], view, ranges, ranges) if ranges else empty(view)
        columns = query.coarser(columns, width)
        if levels is not None and isinstance(columns, BookColumns):
            columns = columns.cut(levels)
        return cast("Frame", to_frame(columns, frame or self._frame))

    def _span(self, start: Any, end: Any) -> Range:
        if self._client is None:
            raise ConfigError(
                "on_missing='fetch' needs a client: use archive.attach(client), or md.Client(..., archive=archive)."
            )
        if start is None or end is None:
            raise ConfigError("on_missing='fetch' needs start= and end=.")
        return to_range(start, end)

    def _fill(self, view: View, market: str | Sequence[str], wanted: Range) -> list[str]:
        """Fetch what is missing; the ids of the markets."""
        run = Pull(self._store, self._client, dry_run=False, refresh=False, progress=self._progress)
        return run.run(Selection(self._store, self._client, market), [view], whole_minutes(wanted))

    def _market_id(self, id_or_slug: str) -> str:
        catalog = self._store.catalog["markets"]
        found = catalog.find(id_or_slug)
        if found is None:
            raise catalog.unknown(id_or_slug)
        return str(found["id"])


def _range(start: Any, end: Any) -> Range:
    """A range of which either end may be open."""
    first = query.ALL_TIME.start if start is None else to_micros(start, "start")
    return Range(first, query.ALL_TIME.end if end is None else to_micros(end, "end"))
