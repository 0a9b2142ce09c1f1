"""The archive: add, pull, read at any resolution, and see what is stored."""

from __future__ import annotations

import copy
import errno
import hashlib
import os
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypedDict, Unpack, cast, get_args, overload

from marketdata.adapters.recordings.paths import files_of
from marketdata.adapters.recordings.renaming import renamed_columns
from marketdata.archive import files, ingest, maintenance, query, recordings, scan, sql, universe
from marketdata.archive.coverage.intervals import CoverageState, gaps
from marketdata.archive.coverage.policy import whole_buckets
from marketdata.archive.follow import Follower, Round
from marketdata.archive.pull import FetchedRange, Pull, wanted_range
from marketdata.archive.query import Missing, checked_views
from marketdata.archive.scan import EngineName, query_of
from marketdata.archive.selection import Selection
from marketdata.archive.storage.errors import reading, unavailable
from marketdata.archive.storage.parquet import is_url
from marketdata.archive.store import ArchiveStore
from marketdata.errors import ConfigError, EmptyRangeWarning, NotArchivedError, warn
from marketdata.points.arguments import choice, names, number, text, whole, with_flags
from marketdata.points.columns import Data
from marketdata.points.records import KINDS, SEARCHED, RecordKind
from marketdata.points.views import VIEWS, View
from marketdata.resolution import UNITS, BucketWidth
from marketdata.tidy.frames import frame_kind
from marketdata.times import Range, TimeLike, to_duration, to_micros, to_range
from marketdata.typing import Frame, FrameKind

if TYPE_CHECKING:
    from marketdata.typing import PandasFrame, PolarsFrame, PolarsLazyFrame

    _Path = str | os.PathLike[str]
    _Names = str | Sequence[str]
    _When = TimeLike | None
    _Pandas = Literal["pandas"]
    _Polars = Literal["polars"]

# The storage library decodes percent signs, and takes backslashes for slashes.
_REFUSED = re.compile(r"%[0-9a-fA-F]{2}|[\x00-\x1f\x7f\ud800-\udfff]" + ("" if os.sep == "\\" else r"|\\"))
# The end of the message that a path has no archive.
_MADE = "Is the path right? The first add or pull makes an archive there."


class _Options(TypedDict, total=False):
    """Keyword arguments of `Archive`, for its overloads."""

    storage_options: dict[str, str] | None
    as_of: TimeLike | None
    base: str | None


class _More(TypedDict, total=False):
    """Keyword arguments of `Archive.prices`, for its overloads."""

    on_missing: Missing | None


class _Books(_More, total=False):
    """Keyword arguments of `Archive.books`, for its overloads."""

    levels: int | None


class _Scan(TypedDict, total=False):
    """Keyword arguments of `Archive.scan`, for its overloads."""

    levels: int | None
    nested: bool


class Archive(Generic[Frame]):
    """History in Delta Lake tables: ``books prices metrics markets events series coverage`` under one root.

    Points are stored at 1m, or own recordings at 1s; coarser ones are derived on reading by the service's rules
    (interface 4.2 to 4.4). The object is cheap to make, and may be used by many threads.

    Parameters
    ----------
    path_or_url : str or path
        A folder, or an object-store address such as ``s3://bucket/prefix``; created by the first write.
    frame : {"pandas", "polars"}
        Kind of the frames that reads return.
    storage_options : dict, optional
        Options of the object store, such as keys, as deltalake takes them.
    as_of : time, optional
        Show the archive as it was then [UTC], read only: at most 30 days ago, and not before the last ``vacuum``.
        ConfigError, with the earliest time, where what was stored then is no longer known.
    base : {"1m", "1s"}, optional
        Width of the points of a new archive, by default 1m; ConfigError if the archive has another one. At "1s" it is
        for own recordings, and takes no pull.

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
        self: Archive[PandasFrame], path_or_url: _Path, *, frame: _Pandas = "pandas", **options: Unpack[_Options]
    ) -> None: ...

    @overload
    def __init__(
        self: Archive[PolarsFrame], path_or_url: _Path, *, frame: _Polars, **options: Unpack[_Options]
    ) -> None: ...

    @overload
    def __init__(self, path_or_url: _Path, *, frame: FrameKind, **options: Unpack[_Options]) -> None: ...

    def __init__(
        self,
        path_or_url: str | os.PathLike[str],
        *,
        frame: FrameKind = "pandas",
        storage_options: dict[str, str] | None = None,
        as_of: TimeLike | None = None,
        base: str | None = None,
    ) -> None:
        self._location = _located(path_or_url)
        self._frame = frame_kind(frame)
        self._client: Any = None
        self._progress: bool | None = None
        width = None if base is None else _base(base)
        then = None if as_of is None else to_micros(as_of, "as_of")
        self._store = ArchiveStore(self._location, storage_options, then, width)
        if base is not None:
            self._store.base  # noqa: B018  an archive of another base is refused here, not at the first read

    def __repr__(self) -> str:
        return f"Archive({self._location!r})"

    @property
    def location(self) -> str:
        """Folder or address of the archive, such as "s3://bucket/markets"; see `Archive`."""
        return self._location

    def _opened(self, *, exists: bool = False) -> ArchiveStore:
        """The store for reading; NotArchivedError for a folder of other files, and where it ``exists`` for none."""
        store, what = self._store, f"The folder {self._location!r}"
        if not is_url(self._location) and (exists or store.stored_base is None):
            with reading(what):
                # One listing: another process may make the archive at this moment.
                try:
                    found = {path.name for path in Path(self._location).iterdir() if path.name[0] not in "._"}
                except (FileNotFoundError, NotADirectoryError):
                    if exists:
                        raise NotArchivedError(f"There is no folder {self._location!r}. {_MADE}") from None
                    return store
            if found and found.isdisjoint({*store.tables, "imports"}):
                raise NotArchivedError(f"{what} holds other files, and no archive. {_MADE}")
        return store

    @with_flags("replace", "complete")
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
        """Add records and points; points of equal token and time are replaced, everything else stays; see `Archive`.

        Added ranges are ``recorded``: not stated to be complete, so that a pull still fetches them. Points finer than
        the base (1m) or irregular are reduced to it: the last book, the mean of prices and metrics. ArchiveError if
        rows have a token of no market in the archive, or a coarser grid than what they would replace; ArchiveFullError
        leaves everything intact.

        Parameters
        ----------
        markets : frame or list of dict, optional
            One row per market: ``market_id slug question event_slug token_ids token_labels``; further columns are kept.
        series, events : frame or list of dict, optional
            Their records; by default derived from ``markets``.
        books, prices, metrics : frame or columns, optional
            Tidy columns in any kind of frame. Missing ``market_id`` and ``token_label`` are looked up by ``token_id``;
            metrics may name the market by ``slug``.
        replace : bool
            Replace all points from the first to the last one of each token.
        complete : bool
            State that no point is missing between the first and the last of each market, with all its tokens: the range
            becomes ``final``, and no pull fetches it.
        """
        ingest.add_records(self._store, markets, events, series)
        for view, data in (("books", books), ("prices", prices), ("metrics", metrics)):
            if data is not None:
                ingest.add_points(self._store, view, data, replace=replace, complete=complete)  # type: ignore[arg-type]

    @with_flags("unchanged", "dry_run", "progress")
    def add_files(
        self,
        paths: Any,
        *,
        format: str | None = None,  # noqa: A002  as the option of the command is called
        columns: Mapping[str, str] | None = None,
        markets: Any = None,
        clock: str = "timestamp",
        token_id: str | None = None,
        keep: Sequence[str] = (),
        max_gap: str = "5m",
        max_age: str = "1h",
        unchanged: bool = True,
        max_disagreement: float = 0.01,
        dry_run: bool = False,
        progress: bool | None = None,
        frame: FrameKind | None = None,
    ) -> Any:
        """Add files of records, of tidy points, and recordings of order books that others published.

        The columns of a file, or its first message, decide what it is; see the guide on recordings. Recordings are
        rebuilt as by `marketdata.rebuild`, file after file in the order of the numbers in their names. A file that was
        added before is left out, and an import that was stopped continues. A token of no known market is a market of
        its own, called as the token.

        Returns a frame with one row per file: ``file kind format why rows stored left_out reasons points replaced
        tokens start end changes gaps disagreements note``. Of the ``rows`` (or messages) read, ``stored`` are in the
        archive, or took part in a book that is; ``left_out`` are not, for these ``reasons``. ``points`` were stored, of
        so many ``tokens``, from ``start`` to ``end`` [UTC]; ``replaced`` of them were there before. ``changes``,
        ``gaps`` and ``disagreements`` with best prices that messages state are those of recordings. A file of a folder
        or pattern that cannot be read is a RecordingWarning, and a row whose ``note`` says why; a path that was given
        is a ConfigError before anything is added. NotTidyError above ``max_disagreement``; other errors as `add`.

        Parameters
        ----------
        paths : path or list of paths
            Files, folders with all that is in them, and patterns such as ``"2026-*/*.parquet"``.
        format : str, optional
            Name of the format of all files, where their columns fit several.
        columns : dict, optional
            The column of the files that has one of our names, such as ``{"ts": "when", "token_id": "asset"}``.
        markets : path, frame or list of dict, optional
            Records of the markets, as `add` takes them.
        clock : str
            "timestamp", the time of the venue, "received", or the name of a column or field.
        token_id : str, optional
            The token of book messages that name none.
        keep : list of str
            Fields of snapshots to store: "hash", "last_trade_price", "tick_size".
        max_gap, max_age : str
            Longest time between two messages, of whatever token, and of one token, over which a book remains valid.
        unchanged : bool
            Whether buckets without a message of the token have its book.
        max_disagreement : float
            Share of books that may have other best prices than messages state.
        dry_run : bool
            Give the report and store nothing; the points are written to a temporary folder meanwhile.
        progress, frame : optional
            As for `pull`.

        Examples
        --------
        >>> import tempfile
        >>> archive = md.Archive(tempfile.mkdtemp())
        >>> path = f"{tempfile.mkdtemp()}/markets.parquet"
        >>> md.testing.markets("polars").write_parquet(path)
        >>> archive.add_files(path)[["kind", "rows", "stored"]].to_numpy().tolist()
        [['markets', 1, 1]]
        """
        chosen, files = self._kind(frame), files_of(paths)
        options = recordings.Options(
            clock,
            to_duration(max_gap, "max_gap", least="1s"),
            to_duration(max_age, "max_age", least="1s"),
            unchanged,
            recordings.kept_fields(keep),
            number("max_disagreement", max_disagreement, least=0.0),
            token_id,
            format,
            renamed_columns(columns),
        )
        if isinstance(markets, str | os.PathLike):
            markets = recordings.market_records(Path(markets))
        if not dry_run:
            self.add(markets=markets)
            added = recordings.add_files(self._store, files, options, progress=progress)
        else:
            with tempfile.TemporaryDirectory() as folder:
                scratch = Archive(folder, base=self._store.base.text)  # type: ignore[arg-type]
                records = {kind: catalog.records() for kind, catalog in self._store.catalog.items()}
                scratch.add(**{kind: rows for kind, rows in records.items() if rows})  # type: ignore[arg-type]
                scratch.add(markets=markets)
                added = recordings.add_files(scratch._store, files, options, progress=progress, real=self._store)
        return query.report(recordings.ImportedFile, added, chosen)

    @with_flags("all_markets", "dry_run", "refresh", "progress")
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
        start: TimeLike,
        end: TimeLike | None = None,
        dry_run: bool = False,
        refresh: bool = False,
        progress: bool | None = None,
        frame: FrameKind | None = None,
    ) -> Any:
        """Fetch what is missing of a range, and only that, at 1m.

        Data is committed as it arrives, so a stopped pull continues where it was. A bucket is final ten minutes after
        its end by the server's clock; younger ones are provisional and fetched again. Ranges without points near now
        are fetched again after an hour, a day and a week.

        Returns a frame ``view market_id start end state rows`` of what was, or with ``dry_run`` would be, fetched.
        NotFoundError if the service does not know a market, once the others are filled; ArchiveBusyError if others keep
        writing the same; ArchiveFullError and the errors of the client leave what was committed intact.

        Parameters
        ----------
        client : Client
            Where to fetch from.
        markets : str or list of str, optional
            Ids or slugs; instead the slug of an ``event`` or ``series`` for all its markets (listed again after ten
            minutes), a ``search`` text, ``all_markets``, or a text ``file`` of ids and slugs, one a line (``#`` begins
            a comment, ``"-"`` is the standard input).
        views, start, end
            Which of books, prices and metrics; the half-open range [UTC], by default up to now by the server's clock.
        refresh : bool
            Fetch also what is final.
        progress, frame : bool, {"pandas", "polars"}
            Show a progress bar, by default in a terminal; kind of the result.

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
        ways = {"event": event, "series": series, "search": search, "all_markets": all_markets or None, "file": file}
        selection = Selection(self._store, client, markets=markets, **ways)
        run = Pull(self._store, client, dry_run=dry_run, refresh=refresh, progress=progress)
        run.run(selection, checked_views(views), wanted_range(start, end, self._store.base.micros))
        return query.report(FetchedRange, sorted(run.fetched), self._kind(frame))

    @with_flags("all_markets")
    def follow(
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
        start: TimeLike,
        every: str | float = "1m",
        stop: threading.Event | None = None,
    ) -> Iterator[Round]:
        """Keep the archive up to date: a pull from ``start`` to now every so often, until stopped; see `pull`.

        Yields one report per round ``at markets ranges points error``: the server's time [UTC], the number of markets,
        fetched ranges and new points, and the error that the next round repairs, or None. Leaving the loop or setting
        ``stop`` (a threading.Event) loses nothing. Raises for the key, its plan, arguments, the archive, or if all
        markets are unknown; failures of service and network end a round only.

        Parameters
        ----------
        every : str or float
            From the start of one round to that of the next: ``"30s"``, ``"1m"``, ``"1h"``, or a number [s].

        Examples
        --------
        >>> import tempfile
        >>> archive = md.Archive(tempfile.mkdtemp())
        >>> done = next(
        ...     archive.follow(
        ...         client, market, views=["prices"], start="2025-12-31T23:00"
        ...     )
        ... )
        >>> done.markets, done.error
        (1, None)
        """
        ways = {"event": event, "series": series, "search": search, "all_markets": all_markets or None, "file": file}
        selection = Selection(self._store, client, markets=markets, **ways)
        follower = Follower(self._store, client, selection, checked_views(views))
        step = to_duration(every, "every", least="1s", most="1d", numbers=True)
        return follower.rounds(wanted_range(start, None, self._store.base.micros), step, stop or threading.Event())

    @overload
    def books(
        self, market: _Names, start: _When = ..., end: _When = ..., resolution: str | None = ..., *,
        frame: None = None, **more: Unpack[_Books],
    ) -> Frame: ...  # fmt: skip

    @overload
    def books(
        self, market: _Names, start: _When = ..., end: _When = ..., resolution: str | None = ..., *,
        frame: _Pandas, **more: Unpack[_Books],
    ) -> PandasFrame: ...  # fmt: skip

    @overload
    def books(
        self, market: _Names, start: _When = ..., end: _When = ..., resolution: str | None = ..., *,
        frame: _Polars, **more: Unpack[_Books],
    ) -> PolarsFrame: ...  # fmt: skip

    def books(
        self,
        market: str | Sequence[str] | None = None,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        resolution: str | None = None,
        *,
        levels: int | None = None,
        frame: FrameKind | None = None,
        on_missing: Missing | None = None,
    ) -> Any:
        """Order books: one row per level of a side, the last book of each bucket; see `marketdata.Client.books`.

        Returns the tidy frame ``ts market_id token_id token_label side level price size``. NotArchivedError for an
        unknown market, or if nothing of the range is stored (``.range``) of any market.

        Parameters
        ----------
        market : str or list of str, optional
            Ids or slugs; by default all that are stored.
        start, end : time, optional
            By default all that is stored.
        resolution : str
            "1m" or a coarser width of `marketdata.resample`, or "1s" where that is the base.
        frame : {"pandas", "polars"}, optional
            Kind of the frame, by default that of the archive.
        on_missing : {"warn", "raise", "partial", "fetch"}, optional
            If part of the range is missing, unverified or provisional: warn (default), raise, stay silent, or `pull` it
            from the attached client.

        Examples
        --------
        >>> books = archive.books(
        ...     market, "2025-12-31", "2025-12-31T06:00", "1h", levels=1
        ... )
        >>> books["ts"].nunique()
        6
        """
        return self._read("books", market, start, end, resolution, on_missing, frame, levels)

    @overload
    def prices(
        self, market: _Names, start: _When = ..., end: _When = ..., resolution: str | None = ..., *,
        frame: None = None, **more: Unpack[_More],
    ) -> Frame: ...  # fmt: skip

    @overload
    def prices(
        self, market: _Names, start: _When = ..., end: _When = ..., resolution: str | None = ..., *,
        frame: _Pandas, **more: Unpack[_More],
    ) -> PandasFrame: ...  # fmt: skip

    @overload
    def prices(
        self, market: _Names, start: _When = ..., end: _When = ..., resolution: str | None = ..., *,
        frame: _Polars, **more: Unpack[_More],
    ) -> PolarsFrame: ...  # fmt: skip

    def prices(
        self,
        market: str | Sequence[str] | None = None,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        resolution: str | None = None,
        *,
        frame: FrameKind | None = None,
        on_missing: Missing | None = None,
    ) -> Any:
        """Prices [probability 0 to 1]: one row per token and bucket, its mean (interface 4.3); see `books`.

        Returns the tidy frame ``ts market_id token_id token_label price``; ``ts`` is the start of the bucket [UTC].
        """
        return self._read("prices", market, start, end, resolution, on_missing, frame)

    @overload
    def metrics(
        self, market: _Names, start: _When = ..., end: _When = ..., resolution: str | None = ..., *,
        frame: None = None, **more: Unpack[_More],
    ) -> Frame: ...  # fmt: skip

    @overload
    def metrics(
        self, market: _Names, start: _When = ..., end: _When = ..., resolution: str | None = ..., *,
        frame: _Pandas, **more: Unpack[_More],
    ) -> PandasFrame: ...  # fmt: skip

    @overload
    def metrics(
        self, market: _Names, start: _When = ..., end: _When = ..., resolution: str | None = ..., *,
        frame: _Polars, **more: Unpack[_More],
    ) -> PolarsFrame: ...  # fmt: skip

    def metrics(
        self,
        market: str | Sequence[str] | None = None,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        resolution: str | None = None,
        *,
        frame: FrameKind | None = None,
        on_missing: Missing | None = None,
    ) -> Any:
        """Market metrics: one row per market and bucket, its mean (interface 4.4); see `books`.

        Returns the tidy frame ``ts market_id volume liquidity spread`` and further metrics.
        """
        return self._read("metrics", market, start, end, resolution, on_missing, frame)

    def columns(
        self,
        view: View,
        market_id: str,
        rng: Range | None = None,
        resolution: str | None = None,
        token_id: str | None = None,
    ) -> Data:
        """Points of one market as Books or Series, sorted by token and time; see `books`.

        Returns empty columns where there is no point, whatever the coverage. ``view`` is "books", "prices" or
        "metrics", ``market_id`` an id, ``token_id`` one token; ``rng`` [microseconds UTC] selects 1m points, which are
        then aggregated.
        """
        view, wanted = choice("view", view, VIEWS), rng or query.ALL_TIME
        what = query_of(self._store, view, [market_id], wanted, resolution, token_id=token_id, counts=False)
        return what.columns()

    def stored_ranges(self, view: View, market_id: str, rng: Range) -> list[Range]:
        """Ranges [microseconds UTC] that may have points of a market, whatever the coverage says; see `columns`.

        ArchiveCorruptError if the coverage is damaged, as of reads of frames: nobody can tell then what is missing.
        """
        store, view = self._store, choice("view", view, VIEWS)
        store.coverage[view].records(market_id)
        return query.stored_ranges(store.points[view], market_id, rng)

    def final_stamp(self, view: View, market_id: str, rng: Range) -> str | None:
        """A text that changes with the points of a range [microseconds UTC]; None if it is not final; see `columns`."""
        store = self._store
        final = (r.range for r in store.coverage[view].records(market_id) if r.state == CoverageState.FINAL)
        if gaps(final, rng):
            return None
        # A file never changes, so other points are in other files.
        found = query.pruned(store.points[view].version(), [market_id], rng)
        paths = sorted(file.path for file in found.files)
        return hashlib.sha256(repr(paths).encode()).hexdigest()

    @with_flags("progress")
    def attach(self, client: Any, *, progress: bool | None = None) -> Self:
        """The same archive with a client for reads with ``on_missing="fetch"``; see `pull`."""
        out = copy.copy(self)
        out.__dict__.update(_client=client, _progress=progress)
        return out

    @property
    def base(self) -> str:
        """Width of the stored points, such as "1m": reads have any resolution that it divides; see `Archive`."""
        return self._store.base.text

    @property
    def simulated(self) -> bool:
        """Whether any market is simulated, as charts show; see `simulate`."""
        return any(record.get("simulated") is True for record in self.records("markets"))

    def version(self, view: View | RecordKind) -> int:
        """Number of the newest commit of a table (``view`` or records), from 0; -1 before it; see `records`."""
        return self._store.tables[choice("view", view, (*VIEWS, *KINDS))].version().number

    def records(self, kind: RecordKind) -> list[dict[str, Any]]:
        """Records as the interface has them (4.5): ``kind`` is "series", "events" or "markets".

        Returns a list of new dicts, by id.

        Examples
        --------
        >>> [len(market["tokens"]) for market in archive.records("markets")]
        [2, 2, 3, 210]
        """
        return [dict(record) for record in self._opened().catalog[choice("kind", kind, KINDS)].records()]

    def find_market(self, id_or_slug: str) -> dict[str, Any] | None:
        """The record of the market with this id, else with this slug (``id_or_slug``), or None; see `records`."""
        found = self._store.catalog["markets"].find(id_or_slug)
        return None if found is None else dict(found)

    def find_token(self, token_id: str) -> tuple[dict[str, Any], str | None] | None:
        """The record of the market that has ``token_id``, and the token's label, or None; see `records`."""
        found = self._store.catalog["markets"].token(token_id)
        return None if found is None else (dict(found[0]), found[1])

    @overload
    def scan(
        self, view: View, market: _Names | None = ..., start: _When = ..., end: _When = ...,
        resolution: str | None = ..., *, engine: Literal["polars"] = "polars", **more: Unpack[_Scan],
    ) -> PolarsLazyFrame: ...  # fmt: skip

    @overload
    def scan(
        self, view: View, market: _Names | None = ..., start: _When = ..., end: _When = ...,
        resolution: str | None = ..., *, engine: EngineName, **more: Unpack[_Scan],
    ) -> Any: ...  # fmt: skip

    @with_flags("nested")
    def scan(
        self,
        view: View,
        market: str | Sequence[str] | None = None,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        resolution: str | None = None,
        *,
        levels: int | None = None,
        engine: EngineName = "polars",
        nested: bool = False,
    ) -> Any:
        """A view as a lazy frame of an engine, for archives larger than memory; other parameters as for `books`.

        Returns the tidy columns of one committed version, ids as text; predicates on ``ts`` and ids, columns and limits
        reach the files. Rows are unordered, but at the base (1m) polars has them sorted within each file. Coarser rows,
        and DuckDB, compare page checksums; for others run `verify`. ModuleNotFoundError if the engine is not installed,
        ConfigError if no Spark session runs.

        Parameters
        ----------
        view : {"books", "prices", "metrics"}
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
        store, view = self._opened(exists=True), choice("view", view, VIEWS)
        engine = choice("engine", engine, get_args(EngineName))
        ids = self._market_ids(market)
        what = query_of(store, view, ids, _range(start, end), resolution, levels=levels, nested=nested)
        if engine == "polars":
            return scan.lazy(what)
        if engine == "arrow":
            return scan.to_arrow(what)
        if engine == "duckdb":
            return sql.relation(what)
        every = ids if ids is not None else [str(record["id"]) for record in store.catalog["markets"].records()]
        parts = scan.by_market(what, every)
        return scan.to_dask(parts) if engine == "dask" else scan.to_spark(parts)

    @overload
    def sql(self, statement: str, *, frame: None = None, stop: Event | None = None) -> Frame: ...

    @overload
    def sql(self, statement: str, *, frame: _Pandas, stop: Event | None = None) -> PandasFrame: ...

    @overload
    def sql(self, statement: str, *, frame: _Polars, stop: Event | None = None) -> PolarsFrame: ...

    def sql(self, statement: str, *, frame: FrameKind | None = None, stop: Event | None = None) -> Any:
        """Run SQL over the archive, by DuckDB in this process.

        Returns the rows of ``statement`` (dialect of DuckDB, times in UTC) as a ``frame``. Tables: ``books`` (tidy
        rows), ``snapshots`` (one row per snapshot), ``prices`` and ``metrics`` at 1m, ``markets events series
        coverage``; ``show tables`` lists them. Columns of one name get numbers, intervals are durations. ConfigError
        if DuckDB refuses it, ModuleNotFoundError if it is not installed.

        A statement sees these tables and nothing else: it cannot write to the archive, open files or databases, or load
        extensions; tables that it makes are gone with its end. It may take any time and memory;
        The ``threading.Event`` ``stop`` ends it, with a ConfigError, once it is set. An event stops one statement.

        Examples
        --------
        >>> archive.sql("select count(distinct ts) as n from prices")["n"].tolist()
        [1440]
        """
        import polars as pl

        connection = sql.connect()
        # Only the tables that the statement names are read; all of them for a statement that names none.
        named = {name for name in sql.TABLES if name in statement.lower()} or set(sql.TABLES)
        views = [view for view in VIEWS if view in named or (view == "books" and "snapshots" in named)]
        points = [query_of(self._opened(), view, None, query.ALL_TIME, None, nested=view == "books") for view in views]
        kinds = named & {"markets", "events", "series", "coverage"}
        records = {name: getattr(self, name)(frame="polars").to_arrow() for name in kinds}
        _made = sql.define(connection, points, records)
        rows = pl.DataFrame(pl.from_arrow(sql.answer(connection, statement, stop)))
        return cast("Frame", query.of_kind(rows, self._kind(frame)))

    @overload
    def markets(
        self, event_slug: str | None = ..., search: str | None = ..., *, at: Any = ..., frame: None = None
    ) -> Frame: ...

    @overload
    def markets(
        self, event_slug: str | None = ..., search: str | None = ..., *, at: Any = ..., frame: _Pandas
    ) -> PandasFrame: ...

    @overload
    def markets(
        self, event_slug: str | None = ..., search: str | None = ..., *, at: Any = ..., frame: _Polars
    ) -> PolarsFrame: ...

    def markets(
        self,
        event_slug: str | None = None,
        search: str | None = None,
        *,
        at: Any = None,
        frame: FrameKind | None = None,
    ) -> Any:
        """Records of markets as a frame, as from `Client.markets`.

        One row per market: ``market_id slug question status start_date end_date token_ids token_labels``, dates [UTC],
        and further fields; of the event ``event_slug``, or with ``search`` in id, slug or question, in any case. With
        ``at``, a time, those that had begun by then, also the closed ones, without the columns that were known only
        later (see `marketdata.without_answers`); what was open then is in `universe`.

        Examples
        --------
        >>> archive.markets(search="harbour")["token_labels"].map(len).tolist()
        [2]
        """
        return self._records("markets", search, frame, at, event_slug=event_slug)

    def universe(self, at: Any, event_slug: str | None = None, search: str | None = None) -> Frame:
        """The markets that could be traded at a time, by what was known then.

        One row per market that had begun by ``at`` and had not closed: its record without outcome, closing time, final
        volume and whatever else was known only later, see `marketdata.without_answers`. A market begins at its
        ``start_date``, else ``created_at``, else with its first stored row; without any of these it is left out. Other
        fields have their newest text; of ``Archive(path, as_of=...)`` that of then. A study that draws its markets from
        here has those too that have not resolved. ``event_slug`` and ``search`` as for `markets`.

        Examples
        --------
        >>> "resolved_token_id" in archive.universe("2025-12-31T12:00").columns
        False
        """
        return self._records("markets", search, None, at, is_open=True, event_slug=event_slug)

    @overload
    def outcomes(self, event_slug: str | None = ..., search: str | None = ..., *, frame: None = None) -> Frame: ...

    @overload
    def outcomes(self, event_slug: str | None = ..., search: str | None = ..., *, frame: _Pandas) -> PandasFrame: ...

    @overload
    def outcomes(self, event_slug: str | None = ..., search: str | None = ..., *, frame: _Polars) -> PolarsFrame: ...

    def outcomes(
        self, event_slug: str | None = None, search: str | None = None, *, frame: FrameKind | None = None
    ) -> Any:
        """The payoff of each token of resolved markets; see `marketdata.outcomes`; arguments as for `markets`."""
        from marketdata.tidy.outcomes import payoffs

        return payoffs(self.markets(event_slug, search, frame=frame))

    @overload
    def events(self, series_slug: str | None = ..., search: str | None = ..., *, frame: None = None) -> Frame: ...

    @overload
    def events(self, series_slug: str | None = ..., search: str | None = ..., *, frame: _Pandas) -> PandasFrame: ...

    @overload
    def events(self, series_slug: str | None = ..., search: str | None = ..., *, frame: _Polars) -> PolarsFrame: ...

    def events(
        self, series_slug: str | None = None, search: str | None = None, *, frame: FrameKind | None = None
    ) -> Any:
        """Records of events as a frame, as from `Client.events`; see `markets`.

        One row per event: ``event_id slug title status start_date end_date tags`` and more; of one ``series_slug``.
        """
        return self._records("events", search, frame, series_slug=series_slug)

    @overload
    def series(self, search: str | None = ..., *, frame: None = None) -> Frame: ...

    @overload
    def series(self, search: str | None = ..., *, frame: _Pandas) -> PandasFrame: ...

    @overload
    def series(self, search: str | None = ..., *, frame: _Polars) -> PolarsFrame: ...

    def series(self, search: str | None = None, *, frame: FrameKind | None = None) -> Any:
        """One row per series: ``series_id slug title status start_date end_date`` and more; see `markets`."""
        return self._records("series", search, frame)

    def _kind(self, frame: FrameKind | None) -> FrameKind:
        """The kind of frames that an argument ``frame`` names, by default that of the archive."""
        return self._frame if frame is None else frame_kind(frame)

    def _records(
        self, kind: RecordKind, search: str | None, frame: FrameKind | None, at: Any = None, *,
        is_open: bool = False, **filters: str | None,
    ) -> Frame:  # fmt: skip
        """The frame of records that a search and filters leave; at a time of those that existed, without answers."""
        from marketdata.accessor import register
        from marketdata.tidy.answers import without_answers
        from marketdata.tidy.records import to_frame

        wanted = "" if search is None else text("search", search, "words").casefold()

        def is_meant(record: dict[str, Any]) -> bool:
            is_named = all(record.get(name) == value for name, value in given.items())
            return is_named and (not wanted or any(wanted in str(record.get(n) or "").casefold() for n in SEARCHED))

        store = self._opened()
        given = {name: text(name, value, "one") for name, value in filters.items() if value is not None}
        stored = list(store.catalog[kind].records())
        for name, value in given.items():
            known = {str(record[name]) for record in stored if record.get(name) is not None}
            if value not in known:
                near = ", ".join(map(repr, get_close_matches(value, known, n=3)))
                hint = f"{near and f'Similar: {near}. '}Give search= to find them by words."
                if store.catalog[kind].find(value) is not None:
                    hint = f"It is one of the {kind} itself, which search={value!r} finds."
                warn(f"No {kind} of the archive have {name}={value!r}.", EmptyRangeWarning, hint=hint)
        records = [record for record in stored if is_meant(record)]
        if at is not None:
            began = partial(universe.first_rows, store.coverage)
            records = universe.existed(records, to_micros(at, "at"), began, is_open=is_open)
        register(chosen := self._kind(frame))
        out = to_frame(kind, records, chosen)
        return cast("Frame", out if at is None else without_answers(out))

    def export(
        self,
        view: View,
        path: str | os.PathLike[str],
        market: str | Sequence[str] | None = None,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        resolution: str | None = None,
    ) -> None:
        """Write tidy rows of a ``view`` to a Parquet, CSV or JSON lines file; parameters and errors as for `books`.

        The suffix of ``path`` sets the format: ``.parquet``, ``.csv``, ``.jsonl`` or ``.ndjson``. Without ``market``
        it is all of the view. Rows are streamed in bounded memory.

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
        if not isinstance(path, str | os.PathLike):
            raise ConfigError("is refused; pass the path of a file.", argument="path", value=path)
        store, view, wanted = self._opened(exists=True), choice("view", view, VIEWS), _range(start, end)
        ids = self._market_ids(market)
        ranges = None if ids is None else query.covered_ranges(store.coverage[view], view, ids, start, end, "warn")
        files.write(scan.computed(query_of(store, view, ranges, ranges or wanted, resolution)), Path(path))

    def files(
        self, view: View, market: str | None = None, start: TimeLike | None = None, end: TimeLike | None = None
    ) -> list[str]:
        """Parquet files of a view (of one market, in a range), for engines that take file lists; see `books`.

        Returns paths, or addresses in the object store, of the newest version, with books as in `scan` with ``nested``.
        Files may have rows beyond the range.

        Examples
        --------
        >>> prices = pl.scan_parquet(archive.files("prices"))
        >>> prices.select(pl.col("token_id").n_unique()).collect().item()
        217
        """
        table, ids = self._opened(exists=True).points[choice("view", view, VIEWS)], self._market_ids(market)
        some = query.pruned(table.version(), None if ids is None else sorted(ids), _range(start, end))
        return [table.store.address(file.path) for file in some.files]

    @overload
    def coverage(self, *, frame: None = None) -> Frame: ...

    @overload
    def coverage(self, *, frame: _Pandas) -> PandasFrame: ...

    @overload
    def coverage(self, *, frame: _Polars) -> PolarsFrame: ...

    def coverage(self, *, frame: FrameKind | None = None) -> Any:
        """The ranges that are stored: one row per range of a market's view.

        Returns a ``frame`` with ``view market_id start end state rows fetched_at``: [start, end) in UTC;
        ``state`` is final, provisional, recorded, unverified or not_allowed.

        Examples
        --------
        >>> archive.coverage()["state"].unique().tolist()
        ['final']
        """
        return cast("Frame", query.coverage_frame(self._opened().coverage, self._kind(frame)))

    def compact(self) -> int:
        """Rewrite small files as few large ones; returns how many fewer there are; see `vacuum`."""
        return maintenance.compact(self._opened())

    def vacuum(self, retention_hours: float = 168) -> list[str]:
        """Remove files that no version of the last ``retention_hours`` [h, rounded up] needs.

        Returns the names of removed files; never of files that the archive did not write. Retain more than running
        readers and ``as_of`` need. ArchiveFullError without the right to write.

        Examples
        --------
        >>> archive = md.simulate(events=1, days=1)
        >>> archive.add(prices=archive.prices().assign(price=0.5))
        >>> archive.vacuum(), len(archive.vacuum(retention_hours=0)) > 0
        ([], True)
        """
        return maintenance.vacuum(self._opened(), retention_hours)

    @with_flags("repair")
    def verify(self, *, repair: bool = False, frame: FrameKind | None = None) -> Any:
        """Read everything back, with the checksums of its pages, and compare it with the row counts of the coverage.

        One row per damaged range: ``view market_id start end problem``; none if all is as it was written. A damaged
        file of coverage or records is a row without a range. With ``repair`` what is surely damaged becomes missing,
        for the next pull or add to fill; lost coverage is made again from the points, as ``recorded``, and records of
        markets from what points know, with the rest for the next pull. ArchiveError if the storage fails, which says
        nothing about the data: nothing is changed.

        Examples
        --------
        >>> len(archive.verify())
        0
        """
        found = maintenance.repair(self._opened()) if repair else maintenance.verify(self._opened())
        return query.report(maintenance.Damage, found, self._kind(frame))

    def _read(
        self,
        view: View,
        market: str | Sequence[str] | None,
        start: TimeLike | None,
        end: TimeLike | None,
        resolution: str | None,
        on_missing: Missing | None,
        frame: FrameKind | None,
        levels: int | None = None,
    ) -> Frame:
        from marketdata.accessor import to_frame

        if levels is not None:
            whole("levels", levels)
        missing: Missing = choice("on_missing", "warn" if on_missing is None else on_missing, get_args(Missing))
        filled: dict[str, Range] = {}
        if missing == "fetch":
            self._store.width(resolution)
            filled = self._filled(view, market, start, end)
        store = self._opened(exists=True)
        width, version = store.width(resolution), store.points[view].version()
        ranges = filled or query.covered_ranges(
            store.coverage[view], view, self._market_ids(market), start, end, missing, version
        )
        points = query_of(store, view, ranges, ranges, width, levels=levels, version=version).columns()
        return cast("Frame", to_frame(points, self._kind(frame)))

    def _filled(self, view: View, market: _Names | None, start: _When, end: _When) -> dict[str, Range]:
        """The range of each market, pulled from the attached client."""
        if self._client is None:
            raise ConfigError(
                "on_missing='fetch' needs a client: use archive.attach(client), or md.Client(..., archive=archive)."
            )
        if start is None or end is None:
            raise ConfigError("on_missing='fetch' needs start= and end=.")
        wanted = to_range(start, end)
        run = Pull(self._store, self._client, progress=self._progress)
        filled = run.run(
            Selection(self._store, self._client, markets=market), [view], whole_buckets(wanted, self._store.base.micros)
        )
        return dict.fromkeys(filled, wanted)

    def _market_ids(self, market: str | Sequence[str] | None) -> dict[str, str] | None:
        """Ids of markets, each with the name that was given; None for all."""
        if market is None:
            return None
        catalog, given = self._opened(exists=True).catalog["markets"], names("market", market)
        if not given:
            raise ConfigError("names nothing; leave it out to read all markets.", argument="market", value=market)
        out = {}
        for name in given:
            record = catalog.find(name)
            if record is None:
                raise catalog.unknown(name)
            out[str(record["id"])] = name
        return out


def _located(path_or_url: object) -> str:
    """The address, or the absolute path, of an archive; ConfigError for one that cannot be an archive's."""
    if not isinstance(path_or_url, str | bytes | os.PathLike):
        problem = "is refused; allowed are a folder or an object-store address, as text or a path."
        raise ConfigError(problem, argument="path_or_url", value=path_or_url)
    location = os.fsdecode(path_or_url)
    if not location:
        raise ConfigError("path_or_url is empty; it is a folder or an object-store address.")
    if is_url(location):
        return location
    path = Path(location.removeprefix("file://")).absolute()
    refused = _REFUSED.search(str(path))
    problem = f"has {refused[0]!r}, which the storage library does not take in a path" if refused else ""
    try:
        if not problem and path.is_file():
            problem = "is a file; an archive is a folder, which the first write makes"
    except OSError as failed:
        if failed.errno != errno.ENAMETOOLONG:
            raise unavailable(f"The folder {location!r}", failed) from failed
        problem = f"has {len(location):,} characters, more than the file system takes"
    if problem:
        raise ConfigError(f"{problem}. Use another folder.", argument="path_or_url", value=location)
    return str(path)


def _base(value: object) -> BucketWidth:
    """The base that a user chose; ConfigError below 250 ms and above a day."""
    width = BucketWidth.of(value, "base")
    if not UNITS["s"] // 4 <= width.micros <= UNITS["d"]:
        raise ConfigError("does not exist; an archive has points of 250ms to 1d.", argument="base", value=value)
    return width


def _range(start: TimeLike | None, end: TimeLike | None) -> Range:
    if start is not None and end is not None:
        return to_range(start, end)
    first = query.ALL_TIME.start if start is None else to_micros(start, "start")
    return Range(first, query.ALL_TIME.end if end is None else to_micros(end, "end"))
