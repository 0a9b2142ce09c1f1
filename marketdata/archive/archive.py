"""The archive as a user sees it: add, read at any resolution, and know what is held."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from marketdata.archive import adding, imports, rebuild, upkeep
from marketdata.archive.holdings import Holdings
from marketdata.archive.pull import Pull, asked_frame, chosen, wanted_range
from marketdata.archive.reading import checked_view, frame_of
from marketdata.archive.reads import Reads
from marketdata.archive.storage import is_url
from marketdata.errors import ConfigError
from marketdata.times import to_datetime, to_micros
from marketdata.typing import Frame, FrameKind
from marketdata.wire.columns import VIEWS, View

if TYPE_CHECKING:
    from marketdata.typing import PandasFrame, PolarsFrame


class Archive(Reads[Frame]):
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
        self._holdings = Holdings(self._location, storage_options, None if as_of is None else to_micros(as_of, "as_of"))

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
    ) -> None:
        """Add records and points. Adding the same again changes nothing.

        Points of a token replace its own in the range from the first to the last minute of its market's points; other
        tokens stay as they were. Recordings that are finer than 1m or irregular are first reduced to 1m by the
        service's rules: the last book, the mean of prices and metrics.

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

        Raises
        ------
        NotTidyError
            If a frame lacks columns that its view needs.
        ArchiveError
            If rows name a token that no market of the archive has, or stand on a coarser grid than what they would
            replace.
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
        """
        adding.add_records(self._holdings, markets, events, series)
        for view, data in (("books", books), ("prices", prices), ("metrics", metrics)):
            if data is not None:
                adding.add_points(self._holdings, view, data)  # type: ignore[arg-type]

    def add_files(
        self, paths: Any, *, token_id: str | None = None, clock: str = "timestamp"
    ) -> list[tuple[str, str, int]]:
        """Add files: Parquet, CSV and JSON lines of tidy columns, and raw book messages of a collector.

        What a file holds is seen by its columns. Records are added before points, whatever the order.

        Parameters
        ----------
        paths : path or list of paths
            Files, or folders of files.
        token_id : str, optional
            Whose books raw messages are, where they do not say it.
        clock : str
            Field of raw messages that has their time [Unix ms].

        Returns
        -------
        list of (str, str, int)
            Name of each file, what it holds, and how many rows or messages.

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
        >>> [(kind, rows) for _, kind, rows in archive.add_files(file)]
        [('markets', 1)]
        """
        some = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        read = imports.found(some, token_id, clock)
        for one in read:
            self.add(**{one.kind: one.data})
        return [(str(one.path), one.kind, one.rows) for one in read]

    def pull(
        self,
        client: Any,
        markets: str | Sequence[str] | None = None,
        *,
        event: str | None = None,
        series: str | None = None,
        views: Sequence[View] = VIEWS,
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
            Instead of markets: a slug, for all markets below it.
        views : sequence of {"books", "prices", "metrics"}
        start, end : time
            Start inclusive, end exclusive [UTC]; without an end, up to now.
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
            If an argument is refused.
        ArchiveBusyError, ArchiveFullError
            If others keep writing the same, or there is no room; what was committed before is intact.
        NotFoundError
            If the service does not know a market; the others are filled before.
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
        wanted = wanted_range(start, end)
        run = Pull(self._holdings, client, dry_run=dry_run, refresh=refresh, progress=progress)
        run.run(chosen(self._holdings, client, markets, event, series, refresh=refresh), some, wanted)
        return asked_frame(run.asked, frame or self._frame)

    def compact(self) -> int:
        """Rewrite many small files as few large ones; readers and other versions are not disturbed.

        Returns
        -------
        int
            How many files fewer the newest version has.

        Raises
        ------
        ArchiveError
            If a table can not be read or written; what was there before is intact.

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> archive.compact() > 0, archive.compact()
        (True, 0)
        """
        return upkeep.compact(self._holdings)

    def vacuum(self, retention_hours: float = 168) -> list[str]:
        """Remove files that no version of the last hours needs, and what killed writers left behind.

        Readers that run, and ``as_of``, need the files of their version: keep more hours than they last.
        Files that the archive did not write are never touched.

        Parameters
        ----------
        retention_hours : float
            How far back versions stay readable [h].

        Returns
        -------
        list of str
            Names of the removed files.

        Raises
        ------
        ConfigError
            If ``retention_hours`` is negative or no number.
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
        if not retention_hours >= 0:
            raise ConfigError(f"retention_hours={retention_hours!r} is refused; allowed is a number from 0 on.")
        return upkeep.vacuum(self._holdings, retention_hours)

    def verify(self, *, repair: bool = False, frame: FrameKind | None = None) -> Any:
        """Read everything back and compare it with the row counts and content hashes of the coverage.

        Finds flipped bits, torn, swapped and missing files, and rows that are not those that were written.

        Parameters
        ----------
        repair : bool
            Give up what is damaged: its ranges become missing, what can still be read is kept, and the next
            pull or add fills them.
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
        return self._damage_frame(upkeep.repair(self._holdings) if repair else upkeep.verify(self._holdings), frame)

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
        rebuild.rebuild(self._holdings)
        return self._damage_frame(upkeep.repair(self._holdings), frame)

    def _damage_frame(self, damage: list[upkeep.Damage], frame: FrameKind | None) -> Any:
        columns = {"view": "text", "market_id": "text", "start": "time", "end": "time", "problem": "text"}
        rows = [(d.view, d.market_id, to_datetime(d.range.start), to_datetime(d.range.end), d.problem) for d in damage]
        return frame_of(rows, columns, frame or self._frame)
