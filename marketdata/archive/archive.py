"""The archive: add, pull, read at any resolution, and see what is stored."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypedDict, Unpack, overload

from marketdata.adapters.names import names
from marketdata.archive import ingest, listings, maintenance, recording, writing
from marketdata.archive.feed import Feed, HasFeed, feed_of
from marketdata.archive.pull.commits import FetchedRange
from marketdata.archive.pull.plan import PullOptions
from marketdata.archive.pull.rounds import Round, rounds
from marketdata.archive.pull.run import Pull, wanted_range
from marketdata.archive.query import Missing, checked_views
from marketdata.archive.reading import Reading
from marketdata.archive.recording import Recording
from marketdata.archive.scan import EngineName
from marketdata.archive.selection import Selection
from marketdata.archive.sources import Sources
from marketdata.archive.storage.files import located
from marketdata.archive.store import ArchiveStore
from marketdata.display import html_table
from marketdata.errors import ConfigError
from marketdata.filters import Selected, Sort, State, takes
from marketdata.points.arguments import choice, number, with_flags
from marketdata.points.records import RECORD_KINDS, RecordKind
from marketdata.points.views import View
from marketdata.recordings import open_files, wanted
from marketdata.recordings.catalogue import open_set
from marketdata.recordings.files import ReadOptions, files_of, refuse_one_token
from marketdata.recordings.format import kept_fields
from marketdata.recordings.roles import given_sides, renamed_columns
from marketdata.resolution import UNITS, BucketWidth
from marketdata.stream.raw import RawFiles
from marketdata.tidy.frames import frame_kind
from marketdata.times import Duration, TimeLike, ends_of, to_duration, to_micros
from marketdata.typing import Frame, FrameKind

if TYPE_CHECKING:
    from marketdata.typing import PandasFrame, PolarsFrame, PolarsLazyFrame

Markets = Any  # ids, slugs, records or rows of markets, or a frame with market_id
Address = str | os.PathLike[str]


class _Options(TypedDict, total=False):
    """Keyword arguments of `Archive`, for its overloads."""

    storage_options: dict[str, str] | None
    as_of: TimeLike | None
    base: str | None


class Archive(Generic[Frame]):
    """History in Delta Lake tables: ``books prices metrics quotes trades markets events series`` under one root.

    Points are stored at one base width. Coarser ones are derived on reading, by the rules of the service. The object is
    cheap to make, and many threads may use it. A market is named by its id or slug, by its record or row, or by a frame
    with ``market_id``; several are a list.

    Parameters
    ----------
    path_or_url : str or path
        A folder, or an object-store address such as ``s3://bucket/prefix``; the first write creates it.
    frame : {"pandas", "polars"}
        Kind of the frames that all methods return.
    storage_options : dict, optional
        Options of the object store, such as keys, as deltalake takes them.
    as_of : time, optional
        Show the archive as it was then [UTC], read only: at most 30 days ago, and not before the last ``vacuum``.
        ConfigError, with the earliest time, where what was stored then is no longer known.
    base : str, optional
        Width of the points of a new archive, from "250ms" to "1d". By default it is that of the first `pull`, or 1m.
        ConfigError if the archive has another one.

    Examples
    --------
    >>> import tempfile
    >>> archive = md.Archive(tempfile.mkdtemp())
    >>> archive.add(markets=md.testing.markets(), prices=md.testing.prices())
    >>> prices = archive.prices("rain-tomorrow", resolution="1h")
    >>> prices["price"].round(3).tolist()
    [0.413, 0.587]
    """

    @overload
    def __init__(
        self: Archive[PandasFrame], path_or_url: Address, *, frame: Literal["pandas"] = ..., **options: Unpack[_Options]
    ) -> None: ...

    @overload
    def __init__(
        self: Archive[PolarsFrame], path_or_url: Address, *, frame: Literal["polars"], **options: Unpack[_Options]
    ) -> None: ...

    def __init__(
        self,
        path_or_url: Address,
        *,
        frame: FrameKind = "pandas",
        storage_options: dict[str, str] | None = None,
        as_of: TimeLike | None = None,
        base: str | None = None,
    ) -> None:
        self._location = located(path_or_url)
        self._frame: FrameKind = frame_kind(frame)
        self._pull: Callable[[], Pull] | None = None
        width = None if base is None else BucketWidth.of(base, "base")
        if width is not None and not UNITS["s"] // 4 <= width.micros <= UNITS["d"]:
            raise ConfigError("does not exist; an archive has points of 250ms to 1d.", argument="base", value=base)
        then = None if as_of is None else to_micros(as_of, "as_of")
        self._store = ArchiveStore(self._location, storage_options, then, width)
        if base is not None:
            self._store.base  # noqa: B018  an archive of another base is refused here, not at the first read

    def __repr__(self) -> str:
        return listings.line(self._store)

    def _repr_html_(self) -> str:
        name = f"Archive({self._location!r})"
        return html_table([(name, repr(self).removeprefix(name).removeprefix(": "))])

    @property
    def location(self) -> str:
        """Folder or address of the archive, such as "s3://bucket/markets"; see `Archive`."""
        return self._location

    @property
    def simulated(self) -> bool:
        """Whether any market is simulated, as charts show; see `simulate`."""
        return any(one is True for one in self._store.catalog["markets"].listing().field("simulated"))

    @property
    def _reading(self) -> Reading[Frame]:
        """Reads frames from the store."""
        return Reading(self._store, self._frame, self._pull)

    @with_flags("replace", "complete")
    def add(
        self,
        *frames: Any,
        markets: Any = None,
        series: Any = None,
        events: Any = None,
        books: Any = None,
        prices: Any = None,
        metrics: Any = None,
        quotes: Any = None,
        trades: Any = None,
        replace: bool = False,
        complete: bool = False,
    ) -> None:
        """Add records and points; points of equal token and time are replaced, and everything else stays.

        Added ranges are ``recorded``: not stated to be complete, so that a pull still fetches them. Points finer than
        the base (1m) or irregular are reduced to it: the last book or quote, the mean of prices and metrics.
        ArchiveError if the archive has no market with the token of a row, or if rows have a coarser grid than what they
        would replace. ArchiveFullError leaves everything intact. For an example see `Archive`.

        Parameters
        ----------
        markets : frame or list of dict, optional
            One row per market: ``market_id slug question event_slug token_ids token_labels``; further columns are kept.
        series, events : frame or list of dict, optional
            Their records; by default derived from ``markets``.
        books, prices, metrics, quotes : frame or columns, optional
            Tidy columns in any kind of frame. Missing ``market_id`` and ``token_label`` are looked up by ``token_id``;
            metrics may name the market by ``slug``. Quotes need ``best_bid`` and ``best_ask``, null where a side is
            missing; sizes may be absent or null. ``mid`` and ``spread`` are computed from them.
        trades : frame, columns or list of dict, optional
            Prints: ``ts``, token, ``side`` ("buy" or "sell", of the taker, or null), ``price``, ``size``, and where
            known ``trade_id transaction_hash log_index maker taker account role is_block fee``. A list has rows as
            venues answer them. Times stay. A print that is stored is not stored again, but completed by what the new
            one tells; see the guide on archives.
        replace : bool
            Replace all points from the first to the last one of each token.
        complete : bool
            State that no point is missing between the first and the last of each market, with all its tokens: the range
            becomes ``final``, and no pull fetches it.
        """
        if frames:
            raise ConfigError(
                "archive.add takes frames by name, as each name says what the rows are: archive.add(prices=frame), or "
                "books=, quotes=, metrics=, trades=, markets=, events=, series=."
            )
        ingest.add_records(self._store, markets, events, series)
        given: dict[View, Any] = {
            "books": books, "prices": prices, "metrics": metrics, "quotes": quotes, "trades": trades
        }  # fmt: skip
        for view, data in given.items():
            if data is not None:
                ingest.add_points(self._store, view, data, replace=replace, complete=complete)

    @with_flags("unchanged", "dry_run", "progress")
    def add_files(
        self,
        paths: Any,
        *,
        only: Markets | None = None,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        format: str | None = None,  # noqa: A002  as the option of the command is called
        columns: Mapping[str, str] | None = None,
        markets: Any = None,
        clock: str = "timestamp",
        token_id: str | None = None,
        time_format: str | None = None,
        sides: Mapping[str, str | None] | None = None,
        keep: Sequence[str] = (),
        max_gap: Duration = "5m",
        max_age: Duration = "1h",
        unchanged: bool = True,
        max_disagreement: float = 0.01,
        dry_run: bool = False,
        progress: bool | None = None,
    ) -> Frame:
        """Add files of records, of tidy points, and recordings of order books that others published.

        The columns of a file, or its first message, decide what it is. Recordings are rebuilt as by
        `marketdata.rebuild`, in the order of the numbers in their names. A file that was added before is left out, and
        an import that was stopped continues. The guide on recordings has the formats.

        Returns a frame with one row per file: ``file kind format why rows stored left_out reasons points replaced
        tokens start end changes gaps disagreements note``.

        - ``rows`` counts what was read: ``stored`` rows are in the archive or took part in a book, and ``left_out``
          ones are not, for these ``reasons``.
        - ``points`` of ``tokens`` were stored from ``start`` to ``end`` [UTC], and ``replaced`` were there before.
        - Recordings have ``changes``, ``gaps``, and ``disagreements`` with best prices that messages state.

        Parameters
        ----------
        paths : path or list of paths
            Files, folders with all that is in them, and patterns such as ``"2026-*/*.parquet"``.
        only : str or list, optional
            The markets and tokens to store, by their ids and slugs. Other rows are left out as ``not wanted``, most of
            them before they are decoded. A name that no file has is a RecordingWarning, and a ConfigError if none has
            one. Of a market that rows call by another name a record must be known.
        start : time, optional
            The first bucket to store [UTC]; by default the first of the files.
        end : time, optional
            The end of the buckets to store [UTC], exclusive; by default that of the files.
        format : str, optional
            Name of the format of all files, where their columns fit several.
        columns : dict, optional
            The column of the files that has one of our names, such as ``{"ts": "when", "token_id": "asset"}``.
        markets : path, frame or list of dict, optional
            Records of the markets, as `add` takes them. A token that no market has becomes a market with its id.
        clock : str
            "timestamp", the time of the venue, "received", the name of a column or field, or "modified": the time of
            the file, for one answer without a time.
        token_id : str, optional
            The token of rows and messages that name none, for one file. ``"{name}"`` is the name of each file.
        time_format : str, optional
            Form of dates that are no ISO 8601, as of ``datetime.strptime``: ``"%m/%d/%Y"`` for 10/31/2026.
        sides : dict, optional
            What words of the files for a side mean, such as ``{"1": "buy", "-1": "sell"}``; others are none.
        keep : list of str
            Fields of snapshots to store: "hash", "last_trade_price", "tick_size".
        max_gap : str or timedelta
            Longest time between two messages, of whatever token, over which books remain valid.
        max_age : str or timedelta
            Longest time without a message of a token over which its book remains valid.
        unchanged : bool
            Whether buckets without a message of the token have its book.
        max_disagreement : float
            Share of books that may have other best prices than messages state.
        dry_run : bool
            Give the report and store nothing; the points are written to a temporary folder meanwhile.
        progress : bool, optional
            As for `pull`.

        Raises
        ------
        ConfigError
            A file that was named itself cannot be read; nothing is added. In a folder or pattern it is a
            RecordingWarning, and its ``note`` says why.
        NotTidyError
            More than ``max_disagreement`` of the books have other best prices than messages state.
        ArchiveError, ArchiveFullError
            As for `add`.

        Examples
        --------
        >>> import tempfile
        >>> archive = md.Archive(tempfile.mkdtemp())
        >>> path = f"{tempfile.mkdtemp()}/markets.parquet"
        >>> md.testing.markets("polars").write_parquet(path)
        >>> archive.add_files(path)[["kind", "rows", "stored"]].to_numpy().tolist()
        [['markets', 1, 1]]
        """
        options = ReadOptions(
            clock, kept_fields(keep), format, renamed_columns(columns), token_id, time_format, given_sides(sides)
        )
        gap, age = (to_duration(v, n, least="1s") for n, v in (("max_gap", max_gap), ("max_age", max_age)))
        share = number("max_disagreement", max_disagreement, least=0.0)
        bounds = [None if at is None else to_micros(at, name) for name, at in (("start", start), ("end", end))]
        if bounds[0] is not None and bounds[1] is not None and bounds[0] >= bounds[1]:
            raise ConfigError("is not before end.", argument="start", value=start)
        selection = wanted.Selection(None if only is None else tuple(names("only", only)), *bounds)
        rule, found = writing.RebuildRule(gap, age, unchanged, share), files_of(paths)
        refuse_one_token(found, options)
        added = writing.add_files(
            self._store, found, options, rule, markets, selection=selection, dry_run=dry_run, progress=progress
        )
        return self._reading.of(added)

    @with_flags("progress")
    def add_recording(
        self,
        name: str,
        *,
        only: Markets | None = None,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        licence: str | None = None,
        address: str | None = None,
        progress: bool | None = None,
    ) -> Frame:
        """Fetch the wanted part of an open recording, and add it: of each file only the row groups that may have it.

        The recordings are those of `marketdata.recordings` that have an ``address``. A fetch that was cut goes on where
        it was, with the row groups in the temporary folder of the machine, which are removed once they are imported.
        The archive keeps what must be cited, and `export` writes it beside its file.

        Returns the report of `add_files`, one row per file. RecordingWarning for an hour that has no file, and for a
        file that has changed since it was fetched or imported, which is fetched again.

        Parameters
        ----------
        name : str
            The name of the recording.
        only : str or list, optional
            The markets and tokens to store, by their ids; by their slugs where the archive has the records.
        start, end : time
            The half-open range of buckets [UTC].
        licence : str, optional
            The licence, to confirm that your use is one that it allows; needed where it does not allow all.
        address : str, optional
            The address of a copy of its files, with ``{hour}`` in the place of the hour.
        progress : bool, optional
            As for `pull`.

        Raises
        ------
        ConfigError
            The name or the range is wrong, the licence does not allow every use, or no file has a name of ``only``.
        NetworkError
            The server cannot be reached.
        """
        found = open_set(name)
        open_files.check_licence(found, licence)
        bounds = [None if at is None else to_micros(at, what) for what, at in (("start", start), ("end", end))]
        given = None if only is None else tuple(names("only", only))
        selection = wanted.Selection(given, *bounds)
        with Sources(self._store).fetched(found, selection, address, progress=progress) as paths:
            return self.add_files(paths, only=given, start=start, end=end, format=found.format, progress=progress)

    @takes(Selected)
    @with_flags("all_markets", "clamp", "dry_run", "refresh", "progress")
    def pull(
        self,
        client: HasFeed | Feed,
        markets: Markets | None = None,
        *,
        all_markets: bool = False,
        file: Address | None = None,
        views: View | Sequence[View] | None = None,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        period: Duration | None = None,
        resolution: str | None = None,
        clamp: bool = False,
        dry_run: bool = False,
        refresh: bool = False,
        progress: bool | None = None,
        **filters: Unpack[Selected],
    ) -> Frame:
        """Fetch what is missing of a range, and only that: one row per range that was fetched.

        Columns: ``view market_id start end state rows resolution odd``. ``odd`` counts prices outside of 0 to 1, which
        are kept as they came, with a warning. Data is committed as it arrives, so a stopped pull continues where it
        was. Choose markets in one way: by ``markets``, a ``file``, ``all_markets``, or filters.

        A bucket is final ten minutes (or two buckets, if that is longer) after its end by the server's clock. Younger
        ones are provisional and fetched again; so are ranges without points near now, after an hour, a day and a week.
        What the plan lacks is ``not_allowed``, and what the venue no longer keeps is ``expired``: both are rows of the
        report, with a warning, and nothing else is lost.

        Parameters
        ----------
        client : Client
            Where to fetch from.
        markets : str, record, frame, or list of these, optional
            Ids, slugs, records or rows, or a frame with ``market_id``, such as ``client.markets(...)``.
        all_markets : bool
            Take every market that the service lists.
        file : path, optional
            A text file of ids and slugs, one a line. ``#`` begins a comment, and ``"-"`` is the standard input.
        views : {"books", "prices", "metrics", "quotes", "trades"} or list of these, optional
            What to fetch; by default what the source has, but for trades.
        start : datetime, date, str or number
            The first time to fetch [UTC if no zone is given; a number is Unix s]; "-1d" is a day before now.
        end : datetime, date, str or number, optional
            The time before which to fetch, exclusive; by default now by the server's clock.
        period : str or timedelta, optional
            The length of the range, such as "7d", in the place of ``start`` or ``end``; without both it ends now.
        resolution : str, optional
            The base of a new archive, by default the finest of 1m and coarser that the plan allows. An existing archive
            has its base: PlanError if the plan does not allow it.
        clamp : bool
            Start at the earliest time that the plan allows, instead of a PlanError.
        dry_run : bool
            Return the ranges that would be fetched, and fetch nothing.
        refresh : bool
            Fetch also what is final.
        progress : bool, optional
            Show a progress bar; by default in terminals and notebooks only.
        **filters
            Those of a listing, such as ``search="fed"``, ``event_slug``, ``series_slug``, ``tags`` and ``state``; all
            are as for `Client.markets`.

        Raises
        ------
        NotFoundError
            The service does not know a market; raised once the others are filled.
        PlanError
            The plan refuses the range or the resolution.
        ArchiveBusyError
            Others keep writing the same.
        ArchiveFullError
            There is no room. What was committed stays, as after all errors of the client.

        Examples
        --------
        >>> import tempfile
        >>> archive = md.Archive(tempfile.mkdtemp())
        >>> what = {
        ...     "markets": market,
        ...     "views": ["prices"],
        ...     "start": "2025-12-31",
        ...     "end": "2026-01-01",
        ... }
        >>> [len(archive.pull(client, **what)) for _ in range(2)]
        [1, 0]
        """
        feed = feed_of(client)
        selection = Selection(self._store, feed, markets, file, all_markets=all_markets, filters=filters)
        start, end = ends_of(start, end, period)
        if start is None:
            raise ConfigError("is missing.", argument="start", hint="Give start= or period=, such as period='7d'.")
        run = Pull(self._store, feed, PullOptions(resolution, clamp, dry_run, refresh, progress))
        run.run(selection, checked_views(views, feed), start, end)
        return self._reading.report(FetchedRange, sorted(run.report.fetched))

    @takes(Selected)
    @with_flags("all_markets", "clamp")
    def follow(
        self,
        client: HasFeed | Feed,
        markets: Markets | None = None,
        *,
        all_markets: bool = False,
        file: Address | None = None,
        views: View | Sequence[View] | None = None,
        start: TimeLike | None = None,
        resolution: str | None = None,
        clamp: bool = False,
        every: str | float = "1m",
        stop: threading.Event | None = None,
        **filters: Unpack[Selected],
    ) -> Iterator[Round]:
        """Yield one report per round of `pull`, from ``start`` to now every so often, until stopped.

        Without ``start`` it begins now. A view without a history at the service, such as the books of "polymarket", is
        recorded: each round stores the points of its moment in the present bucket. Buckets stay missing if this did not
        run meanwhile.

        A report has ``at markets ranges points error``: the server's time [UTC], the number of markets, fetched ranges
        and new points, and the error that the next round repairs, or None. Leaving the loop or setting ``stop`` loses
        nothing. Errors of the key, its plan, arguments and the archive are raised, and so is NotFoundError if no market
        is known; failures of service and network end a round only.

        Parameters
        ----------
        client, markets, all_markets, file, views, resolution, clamp
            As for `pull`, and so are the filters.
        start : datetime, date, str or number, optional
            The first time to fetch in each round; by default the present.
        every : str or float
            From the start of one round to that of the next: ``"30s"``, ``"1m"``, ``"1h"``, or a number [s]. What is
            recorded is asked for in the middle of each such period.
        stop : threading.Event, optional
            Ends the rounds once it is set.

        Examples
        --------
        >>> import tempfile
        >>> archive = md.Archive(tempfile.mkdtemp())
        >>> rounds = archive.follow(
        ...     client, market, views=["prices"], start="2025-12-31T23:00"
        ... )
        >>> report = next(rounds)
        >>> report.markets, report.error
        (1, None)
        """
        feed = feed_of(client)
        selection = Selection(self._store, feed, markets, file, all_markets=all_markets, filters=filters)
        step = to_duration(every, "every", least="1s", most="1d", numbers=True)
        pull = Pull(self._store, feed, PullOptions(resolution, clamp, progress=False))
        ends = stop or threading.Event()
        return rounds(pull, selection, checked_views(views, feed), wanted_range(start), step, ends)

    @takes(Selected)
    @with_flags("all_markets")
    def record(
        self,
        client: HasFeed | Feed,
        markets: Markets | None = None,
        *,
        all_markets: bool = False,
        file: Address | None = None,
        every: str | None = None,
        keep: Sequence[str] = ("tick_size",),
        commit_every: float = 15.0,
        raw: Address | None = None,
        stop: threading.Event | None = None,
        **filters: Unpack[Selected],
    ) -> Iterator[Recording]:
        """Record order books at full depth, and trades, from the stream of a venue; yields a report per commit.

        Each bucket has the last book of each token in it. A bucket is stored if all of it was seen: where the
        connection was lost or silent, where messages were missed or damaged, and where books differ from what the venue
        states, the coverage has no range, and nothing is filled in. What turns out to be wrong later is removed again.

        A report has ``at lag markets known messages gaps books trades disk error``: everything before ``at`` [UTC, the
        venue's clock] is stored or known to be missing, ``lag`` [s] behind now; of ``markets``, the books of ``known``
        are known; messages a second; gaps, books and trades since the beginning; bytes of what is stored; an error that
        is tried again. Leaving the loop, or setting ``stop``, stores what was seen.

        Markets are listed again every ten minutes, so that new ones of an event or a series begin, and closed ones end;
        without an open market it ends. The guide on recording says what is stored.

        Parameters
        ----------
        client : Client
            One of "polymarket", or of "kalshi" with a key in the environment.
        markets, all_markets, file
            The markets, as for `pull`, and so are the filters.
        every : str, optional
            Width of a bucket: the base of the archive, or 1s for a new one; "1s" or coarser.
        keep : list of str
            Fields of snapshots to store: "last_trade_price", "tick_size".
        commit_every : float
            Time between commits [s]; a crash loses what was not committed.
        raw : path, optional
            A folder for the frames as they came, one compressed file a connection. `add_files` with ``max_age="1d"``
            makes the same books of them, and further ones around gaps, of buckets that were seen in part.
        stop : threading.Event, optional
            Ends it once it is set.

        Raises
        ------
        NotFoundError
            The venue does not know a market, or none of them is open.
        AuthenticationError
            The venue refuses the key.
        ArchiveFullError, ArchiveBusyError
            There is no room, or others keep writing. What was committed stays.

        Examples
        --------
        >>> import tempfile
        >>> client = md.Client("polymarket")
        >>> new = md.Archive(tempfile.mkdtemp())
        >>> for report in new.record(client, event_slug="an-event"):  # doctest: +SKIP
        ...     print(report)
        """
        feed = feed_of(client)
        selection = Selection(self._store, feed, markets, file, all_markets=all_markets, filters=filters)
        channel = feed.stream()
        store = recording.store_for(self._store, every)
        ends, seconds = stop or threading.Event(), number("commit_every", commit_every, least=0.1)
        files = None if raw is None else RawFiles(os.fspath(raw))
        return recording.Run(store, feed, channel, selection, ends, kept_fields(keep), seconds, files).reports()

    def books(
        self,
        market: Markets | None = None,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        resolution: str | None = None,
        *,
        period: Duration | None = None,
        levels: int | None = None,
        on_missing: Missing | None = None,
    ) -> Frame:
        """Order books: one row per level of a side, the last book of each bucket, as `marketdata.Client.books`.

        Columns: ``ts market_id token_id token_label side level price size``. NotArchivedError for an unknown market, or
        if nothing of the range is stored (``.range``) of any market.

        Parameters
        ----------
        market : optional
            Ids, slugs, records or rows, or a frame with ``market_id``; by default all that are stored.
        start, end : time, optional
            By default all that is stored. "-1d" is a day before now.
        resolution : str, optional
            The base, or a coarser width of `marketdata.resample`; by default 1m, or the base if that is coarser.
        period : str or timedelta, optional
            The length of the range, such as "7d", in the place of its start or end; without both it ends now.
        levels : int, optional
            The best levels of each side only.
        on_missing : {"warn", "raise", "partial", "fetch"}, optional
            If part of the range is missing, unverified, provisional or not allowed: warn (default), raise, stay silent,
            or `pull` it from the attached client.

        Examples
        --------
        >>> books = archive.books(
        ...     market, "2025-12-31", "2025-12-31T06:00", "1h", levels=1
        ... )
        >>> books["ts"].nunique()
        6
        """
        return self._reading.frame("books", market, *ends_of(start, end, period), resolution, on_missing, levels)

    def prices(
        self,
        market: Markets | None = None,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        resolution: str | None = None,
        *,
        period: Duration | None = None,
        on_missing: Missing | None = None,
    ) -> Frame:
        """Prices [probability 0 to 1]: one row per token and bucket with its mean, as `books`.

        Columns: ``ts market_id token_id token_label price``. ``ts`` is the start of the bucket [UTC].
        """
        return self._reading.frame("prices", market, *ends_of(start, end, period), resolution, on_missing)

    def metrics(
        self,
        market: Markets | None = None,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        resolution: str | None = None,
        *,
        period: Duration | None = None,
        on_missing: Missing | None = None,
    ) -> Frame:
        """Market metrics: one row per market and bucket with its mean, as `books`.

        Columns: ``ts market_id volume liquidity spread`` and further metrics.
        """
        return self._reading.frame("metrics", market, *ends_of(start, end, period), resolution, on_missing)

    def quotes(
        self,
        market: Markets | None = None,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        resolution: str | None = None,
        *,
        period: Duration | None = None,
        on_missing: Missing | None = None,
    ) -> Frame:
        """Best bid and ask: one row per token and bucket with its last quote, as `books`.

        Columns: ``ts market_id token_id token_label best_bid best_bid_size best_ask best_ask_size mid spread``, as
        `marketdata.bbo`. Prices are null where a side is missing, sizes also where they are not known. A market with
        books and no quotes has the top of its books.

        Examples
        --------
        >>> quotes = archive.quotes(market, "2025-12-31", "2026-01-01", "6h")
        >>> quotes["ts"].nunique(), quotes.columns[-2:].tolist()
        (4, ['mid', 'spread'])
        """
        return self._reading.frame("quotes", market, *ends_of(start, end, period), resolution, on_missing)

    def trades(
        self,
        market: Markets | None = None,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        resolution: str | None = None,
        *,
        period: Duration | None = None,
        on_missing: Missing | None = None,
    ) -> Frame:
        """Prints, each once: one row per print at its own time, as `marketdata.Client.trades`; parameters as `books`.

        Columns: ``ts market_id token_id token_label side price size``, and where some row has them ``trade_id
        transaction_hash log_index maker taker account role is_block fee``. With a ``resolution`` they are the bars that
        `marketdata.resample` makes of them: ``open high low close vwap volume signed_volume count``.

        Examples
        --------
        >>> import tempfile
        >>> archive = md.Archive(tempfile.mkdtemp())
        >>> prints = md.testing.trades()
        >>> archive.add(markets=md.testing.markets(), trades=prints)
        >>> archive.add(trades=prints.head(2))
        >>> len(archive.trades("rain-tomorrow")) == len(prints)
        True
        """
        return self._reading.frame("trades", market, *ends_of(start, end, period), resolution, on_missing)

    @with_flags("clamp", "progress")
    def attach(self, client: HasFeed | Feed, *, progress: bool | None = None, clamp: bool = False) -> Self:
        """The same archive with a client for reads with ``on_missing="fetch"``; its frames follow the client.

        Returns an archive; ``progress`` shows a bar for its fetches, and ``clamp`` starts them as in `pull`.

        Examples
        --------
        >>> attached = archive.attach(md.Client("https://data.example", "a-key", frame="polars"))
        >>> type(attached.prices(market)).__module__.startswith("polars")
        True
        """
        feed = feed_of(client)
        options = PullOptions(clamp=clamp, progress=progress, needs_views=True)
        attached = copy.copy(self)
        attached._frame = feed.frame or self._frame  # noqa: SLF001
        attached._pull = partial(Pull, self._store, feed, options)  # noqa: SLF001
        return attached

    def records(self, kind: RecordKind) -> list[dict[str, Any]]:
        """Records as the interface has them: ``kind`` is "series", "events" or "markets".

        Returns a list of new dicts, by id.

        Examples
        --------
        >>> [len(market["tokens"]) for market in archive.records("markets")]
        [2, 2, 3, 210]
        """
        return [dict(record) for record in self._store.opened().catalog[choice("kind", kind, RECORD_KINDS)].records()]

    @overload
    def scan(
        self, view: View, market: Markets | None = ..., start: TimeLike | None = ..., end: TimeLike | None = ...,
        resolution: str | None = ..., *, period: Duration | None = ..., levels: int | None = ...,
        engine: Literal["polars"] = "polars",
        nested: bool = ...,
    ) -> PolarsLazyFrame: ...  # fmt: skip

    @overload
    def scan(
        self, view: View, market: Markets | None = ..., start: TimeLike | None = ..., end: TimeLike | None = ...,
        resolution: str | None = ..., *, period: Duration | None = ..., levels: int | None = ...,
        engine: EngineName, nested: bool = ...,
    ) -> Any: ...  # fmt: skip

    @with_flags("nested")
    def scan(
        self,
        view: View,
        market: Markets | None = None,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        resolution: str | None = None,
        *,
        period: Duration | None = None,
        levels: int | None = None,
        engine: EngineName = "polars",
        nested: bool = False,
    ) -> Any:
        """A view as a lazy frame of an engine, for archives larger than memory; other parameters as for `books`.

        Returns the tidy columns of one committed version, ids as text. At the base later filters, columns and limits
        reach the files. Coarser rows are computed from all points of ``market`` from ``start`` to ``end``: name these
        here. Rows are unordered, but at the base polars has them sorted within each file. Coarser rows, and DuckDB,
        compare page checksums; for others run `verify`. ModuleNotFoundError if the engine is not installed, ConfigError
        if no Spark session runs.

        Parameters
        ----------
        view : {"books", "prices", "metrics", "quotes", "trades"}
        engine : {"polars", "arrow", "duckdb", "dask", "spark"}
            Arrow gives a RecordBatchReader, DuckDB a relation, Dask and Spark frames with whole markets in a partition;
            workers of the running Spark session must reach the files.
        nested : bool
            Books as one row per snapshot, with list columns ``bid_price bid_size ask_price ask_size``.

        Examples
        --------
        >>> archive.scan("prices", resolution="6h").collect()["ts"].n_unique()
        4
        """
        start, end = ends_of(start, end, period)
        return self._reading.lazy(view, market, start, end, resolution, engine, levels=levels, nested=nested)

    def sql(
        self,
        statement: str,
        *,
        stop: threading.Event | None = None,
        max_rows: int | None = None,
        memory_limit: str | None = None,
    ) -> Frame:
        """The rows of a SQL statement over the archive, run by DuckDB in this process.

        DuckDB defines the dialect, and times are UTC. ``books`` has tidy rows and ``snapshots`` one row per snapshot.
        ``prices``, ``metrics`` and ``quotes`` are at 1m or the coarser base. Further tables are ``markets events series
        coverage``, and ``show tables`` lists all. Columns of one name get numbers, intervals are durations. ConfigError
        if DuckDB refuses the statement, ModuleNotFoundError if it is not installed.

        A statement sees these tables and nothing else. It cannot write to the archive, open files or databases, or load
        extensions, and the tables that it makes end with it. It may take any time. A statement that needs more memory
        than it may use is a ConfigError, as are columns that no frame has: unions, infinite times, bit strings.

        Parameters
        ----------
        statement : str
            One that gives rows.
        stop : threading.Event, optional
            Ends the statement with a ConfigError once it is set. An event stops one statement.
        max_rows : int, optional
            Only the first rows; the statement ends once it has them.
        memory_limit : str, optional
            Most memory for sorts, joins and groups, such as "2GB"; 80 % of the machine's without. The rows that are
            returned, and a single value that is made at once, do not count.

        Examples
        --------
        >>> archive.sql("select count(distinct ts) as n from prices")["n"].tolist()
        [1440]
        """
        return self._reading.answer(statement, stop, max_rows, memory_limit)

    def markets(
        self,
        search: str | None = None,
        *,
        event_slug: str | None = None,
        state: State | Sequence[State] | None = None,
        sort: Sort | None = None,
        tags: str | Sequence[str] | None = None,
        max_rows: int | None = None,
        at: TimeLike | None = None,
    ) -> Frame:
        """Records of markets: one row per market, as from `Client.markets`.

        Columns: ``market_id slug question status start_date end_date token_ids token_labels``, dates [UTC], and further
        fields.

        Parameters
        ----------
        search : str, optional
            Only markets with each of these words in id, slug or question, in any case.
        event_slug : str, optional
            Only the markets of this event.
        state, sort, max_rows : optional
            As for `Client.markets`, by what the stored records say, which are as old as their last pull.
        tags : str or list of str, optional
            Only markets with one of these tags.
        at : time, optional
            Only markets that had begun by then, also the closed ones, with the columns that were known when they
            opened (see `marketdata.without_answers`); what was open then is in `universe`. ConfigError beside ``state``
            and ``sort``, which look ahead.

        Examples
        --------
        >>> archive.markets("harbour")["market_id"].tolist() == [market]
        True
        """
        if at is not None and (state is not None or sort is not None):
            name = "state" if state is not None else "sort"
            hint = "archive.universe(at) has what was open then."
            raise ConfigError("is what the newest record says; it looks ahead of at=.", argument=name, hint=hint)
        chosen = listings.Chosen(event_slug, search, state, tags, sort, max_rows)
        return self._reading.markets(chosen, at, is_open=False)

    def universe(
        self, at: TimeLike, search: str | None = None, *, event_slug: str | None = None, keep: str | Iterable[str] = ()
    ) -> Frame:
        """The markets that were open at a time: one row per market, with the columns that were known then.

        ids, slugs, tokens, question, description, tags and scheduled dates, and the columns of ``keep``; other
        arguments as for `markets`. A market begins at its ``start_date``, ``created_at`` or first stored row. It ends
        when it closed or was resolved.

        Examples
        --------
        >>> "status" in archive.universe("2025-12-31T12:00").columns
        False
        """
        return self._reading.markets(listings.Chosen(event_slug, search), at, is_open=True, keep=keep)

    def events(self, search: str | None = None, *, series_slug: str | None = None) -> Frame:
        """Records of events: one row per event, as from `Client.events`.

        Columns: ``event_id slug title status start_date end_date tags`` and more. ``search`` is a text as for
        `markets`, and ``series_slug`` selects a series.
        """
        return self._reading.records("events", search, series_slug=series_slug)

    def series(self, search: str | None = None) -> Frame:
        """Records of series: one row per series, or those with a ``search`` text as for `markets`.

        Columns: ``series_id slug title status start_date end_date`` and more.
        """
        return self._reading.records("series", search)

    def export(
        self,
        view: View,
        path: Address,
        market: Markets | None = None,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        resolution: str | None = None,
        *,
        period: Duration | None = None,
    ) -> None:
        """Write tidy rows of a ``view`` to a Parquet, CSV or JSON lines file; parameters and errors as for `books`.

        The suffix of ``path`` sets the format: ``.parquet``, ``.csv``, ``.jsonl`` or ``.ndjson``. Without ``market`` it
        writes all of the view. Rows are streamed in bounded memory. If the archive has points of open recordings, a
        file ``.citation.txt`` beside it says what must be cited.

        Examples
        --------
        >>> import pandas as pd, tempfile
        >>> archive.export(
        ...     "prices",
        ...     path := f"{tempfile.mkdtemp()}/prices.csv",
        ...     market,
        ...     resolution="1h",
        ... )
        >>> len(pd.read_csv(path))
        48
        """
        self._reading.export(view, path, market, *ends_of(start, end, period), resolution)

    def coverage(self) -> Frame:
        """The ranges that are stored: one row per range of a market's view.

        Columns: ``view market_id start end state rows fetched_at``. Times are UTC and ``end`` is exclusive. ``state``
        is final, provisional, recorded, unverified, not_allowed or expired.

        Examples
        --------
        >>> archive.coverage()["state"].unique().tolist()
        ['final']
        """
        return self._reading.coverage()

    def compact(self) -> int:
        """Rewrite small files as few large ones.

        Returns how many files fewer there are. The old files stay until a vacuum; see `vacuum`.
        """
        return maintenance.compact(self._store.opened())

    def vacuum(self, retention_hours: float = 168) -> list[str]:
        """Remove files that no version of the last ``retention_hours`` [h, rounded up] needs.

        Returns the names of removed files. Hours count back from now by the clock of the storage. Files that the
        archive did not write stay, and so do files of the last day, which may belong to a write in progress. Retain
        more than running readers and ``as_of`` need. ArchiveFullError without the right to write.

        Examples
        --------
        >>> archive = md.simulate(events=1, days=1)
        >>> archive.add(prices=archive.prices().assign(price=0.5))
        >>> archive.vacuum(retention_hours=0)
        []
        """
        return maintenance.vacuum(self._store.opened(), retention_hours)

    @with_flags("repair")
    def verify(self, *, repair: bool = False) -> Frame:
        """Damage: one row per file or range that is not as it was written, and no row if all is well.

        Columns: ``view market_id start end problem``. All files are read, with the checksums of their pages, and the
        number of rows of each range is compared with the coverage. This finds deletes, appends and restores by other
        programs, and names the files that they wrote. With ``repair``, readable parts of damaged files stay, and ranges
        that differ become ``unverified``, so that the next pull fetches them. ArchiveError if the storage fails, which
        says nothing about the data: nothing is changed.

        Examples
        --------
        >>> len(archive.verify())
        0
        """
        damage = maintenance.repair(self._store.opened()) if repair else maintenance.verify(self._store.opened())
        return self._reading.report(maintenance.Damage, damage)
