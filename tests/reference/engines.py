"""Frames of the engines that run outside of this process or only on demand: Dask, DuckDB, Spark."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl
import pytest
from narwhals.dependencies import is_dask_dataframe
from reference.kinds import ID_COLUMNS, rows

_JAVA = Path("/usr/lib/jvm")


class Engine:
    """One engine: ``frame(polars_frame)`` gives its kind of frame, ``kind`` is that frame's class."""

    def __init__(self, name: str, frame: Callable[[pl.DataFrame], Any], native: Any = None) -> None:
        self.name, self.frame, self.native = name, frame, native

    def __repr__(self) -> str:
        return self.name


@contextmanager
def started() -> Iterator[Callable[[str], Engine]]:
    """Engines by name, each started when it is wanted first and until the end of the block; absent ones skip a test."""
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(_STARTED_BY[name]()))


@contextmanager
def _dask() -> Iterator[Engine]:
    if not (importlib.util.find_spec("dask") and importlib.util.find_spec("distributed")):
        pytest.skip("dask and distributed are not installed: pip install prediction-marketdata[dask]")
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    def frame(data: pl.DataFrame) -> Any:
        # Rows of one token lie in several partitions, and in no order.
        panda = data.to_pandas().sample(frac=1, random_state=3)
        return dd.from_pandas(panda.reset_index(drop=True), npartitions=3, sort=False)

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as two,
        Client(two) as client,
    ):
        yield Engine("dask", frame, client)


@contextmanager
def _duckdb() -> Iterator[Engine]:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: pip install prediction-marketdata[duckdb]")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        yield Engine("duckdb", lambda data: connection.from_arrow(plain(data).to_arrow()), connection)


@contextmanager
def _spark() -> Iterator[Engine]:
    if not importlib.util.find_spec("pyspark"):
        pytest.skip("pyspark is not installed: pip install prediction-marketdata[spark]")
    home = java_home()
    if home is None:
        pytest.skip("Spark needs Java 17 or newer: apt-get install openjdk-17-jre-headless, or set JAVA_HOME")
    os.environ["JAVA_HOME"], os.environ["SPARK_LOCAL_IP"] = str(home), "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable  # its workers need what this process has
    with warnings.catch_warnings():
        # Spark 4 says that it does not know pandas 3 yet; here frames travel as Arrow.
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=ResourceWarning)
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").appName("marketdata")
        for key, value in {
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.log.level": "ERROR",
            # Its processes may be slow to answer each other on a machine that is busy.
            "spark.network.timeout": "3600s",
            "spark.python.authenticate.socketTimeout": "3600s",
            # A few small queries are over before what a compiler made of them pays.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
    try:
        yield Engine("spark", lambda data: session.createDataFrame(plain(data).to_arrow()), session)
    finally:
        session.stop()


_STARTED_BY = {"dask": _dask, "duckdb": _duckdb, "spark": _spark}
ENGINES = list(_STARTED_BY)


def java_home() -> Path | None:
    """The home of Java 17: JAVA_HOME, a package of Debian, or ``java`` on the path."""
    if os.environ.get("JAVA_HOME"):
        return Path(os.environ["JAVA_HOME"])
    for found in sorted(_JAVA.glob("java-17-openjdk-*")):
        if (found / "bin" / "java").exists():
            return found
    java = shutil.which("java")
    return Path(java).resolve().parents[2] if java else None


def plain(data: pl.DataFrame) -> pl.DataFrame:
    """Ids as texts: the engines have no dictionaries."""
    return data.with_columns(pl.col(c).cast(pl.String) for c in (*ID_COLUMNS, "side") if c in data.columns)


def fetched(frame: Any) -> nw.DataFrame[Any]:
    """The rows of any frame; narwhals has no way to Dask's of its own."""
    data = nw.from_native(frame.compute() if is_dask_dataframe(frame) else frame)
    return data.collect("polars") if isinstance(data, nw.LazyFrame) else data


def ordered(frame: Any) -> list[tuple[Any, ...]]:
    """Rows of any frame, with columns by name and rows sorted by token, time, side and level."""
    data = fetched(frame)
    keys = [c for c in (*ID_COLUMNS, "ts") if c in data.columns]
    if "side" in data.columns:
        keys += ["side", "level"]
    out = data.with_columns(nw.col(c).cast(nw.String) for c in (*ID_COLUMNS, "side") if c in data.columns)
    falling = [c == "side" for c in keys]
    return rows(
        out.sort(keys, descending=falling, nulls_last=True)
        .select(["ts", *sorted(set(out.columns) - {"ts"})])
        .to_native()
    )
