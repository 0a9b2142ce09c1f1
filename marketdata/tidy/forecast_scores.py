"""How well prices foresaw the outcomes: Brier score and calibration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import narwhals as nw

from marketdata.errors import ConfigError, NotTidyError
from marketdata.tidy.arguments import whole
from marketdata.tidy.cross_token import forecasts
from marketdata.tidy.kinds import collected, texts
from marketdata.tidy.partitions import at_once, market_by_market
from marketdata.tidy.schema import WHO
from marketdata.tidy.snapshots import closed, opened

F = TypeVar("F")
# Sums of decimal prices miss 1 by a few bits.
_SLACK = 1e-9


@market_by_market
def brier(frame: F, outcomes: Any) -> F:
    """How far the prices of each token were from what came true.

    Parameters
    ----------
    frame
        Tidy prices, books or bbo of any frame kind; of books the mid is taken. Cut it to the forecasts you mean: prices
        shortly before the end are good ones.
    outcomes : mapping, or frame of market records
        Token that won, by market id; or a frame with ``market_id`` and ``resolved_token_id``, as ``client.markets()``
        gives. Markets that are not in it, or have none, are left out.

    Returns
    -------
    frame of the same kind
        One row per token: ``market_id token_id token_label outcome points brier``: 1 or 0, the number of forecasts,
        and their mean squared error [0 to 1; 0.25: always 0.5]. Null values are no forecasts. Tidy order.

    Raises
    ------
    NotTidyError
        If a frame is not of its kind.
    ConfigError
        If ``outcomes`` is neither a mapping nor a frame.

    Notes
    -----
    brier = mean((p - outcome)^2); Brier (1950), "Verification of forecasts expressed in terms of probability".

    Examples
    --------
    >>> import polars as pl, marketdata as md
    >>> prices = pl.DataFrame({
    ...     "ts": ["2026-01-01T00:00"], "market_id": "m", "token_id": "1", "token_label": "Yes", "price": [0.5],
    ... }).with_columns(pl.col("ts").str.to_datetime(time_zone="UTC"))
    >>> md.brier(prices, {"m": "1"}).select("outcome", "points", "brier").row(0)
    (1.0, 1, 0.25)
    """
    data = _scored(frame, outcomes)
    out = data.group_by(*WHO).agg(nw.col("outcome").max(), nw.len().alias("points"), nw.col("__error").sum())
    out = out.with_columns(nw.col("points").cast(nw.Int64), brier=nw.col("__error") / nw.col("points"))
    return closed(out.select(*WHO, "outcome", "points", "brier").sort(*WHO, nulls_last=True), frame)  # type: ignore[no-any-return]


def calibration(frame: F, outcomes: Any, bins: int = 10) -> F:
    """How often what was priced at p came true.

    Parameters
    ----------
    frame
        As `brier`.
    outcomes : mapping, or frame of market records
        As `brier`.
    bins : int
        Number of equal bins from 0 to 1.

    Returns
    -------
    frame of the same kind
        One row per bin that holds a forecast: ``bin_start bin_end points forecast outcome``: borders [start, end) (the
        last with 1), number of forecasts, their mean, and the share that came true. By bin.

    Raises
    ------
    NotTidyError
        If a frame is not of its kind.
    ConfigError
        If ``outcomes`` is neither a mapping nor a frame, or ``bins`` no whole number from 1.

    Notes
    -----
    Forecasts of one market hang together: points are not independent, and a market with many counts for many.

    Examples
    --------
    >>> import marketdata as md
    >>> archive = md.simulate(events=4, days=2)
    >>> won = {m["id"]: m["resolved_token_id"] for m in archive.records("markets")}
    >>> out = md.calibration(archive.prices(list(won), on_missing="partial", resolution="1h"), won, bins=5)
    >>> bool(out["outcome"].between(0, 1).all())
    True
    """
    count = whole("bins", bins)
    return _curve(_bins(frame, outcomes, count), count)


@market_by_market
def _bins(frame: F, outcomes: Any, count: int) -> F:
    """Forecasts of each bin: how many, their sum, and how many came true."""
    data = _scored(frame, outcomes)
    at = (nw.col("__value") * count + _SLACK).floor()
    at = nw.when(at >= count).then(count - 1.0).otherwise(at)
    data = data.select(forecast="__value", outcome="outcome", bin=at).group_by("bin")
    return closed(data.agg(nw.len().alias("points"), nw.col("forecast", "outcome").sum()), frame)  # type: ignore[no-any-return]


@at_once
def _curve(sums: F, count: int) -> F:
    out = opened(sums).group_by("bin").agg(nw.col("points", "forecast", "outcome").sum())
    out = out.with_columns(
        nw.col("points").cast(nw.Int64),
        nw.col("forecast", "outcome") / nw.col("points"),
        bin_start=nw.col("bin") / count,
        bin_end=(nw.col("bin") + 1) / count,
    )
    return closed(out.sort("bin").select("bin_start", "bin_end", "points", "forecast", "outcome"), sums)  # type: ignore[no-any-return]


def _scored(frame: Any, outcomes: Any) -> Any:
    """Forecasts of resolved markets, with what came true and the squared error."""
    won = _winners(outcomes)
    data, value = forecasts(frame)
    known = nw.col("market_id").cast(nw.String).is_in(sorted(won)) & ~nw.col(value).is_null()
    winner = nw.col("token_id").cast(nw.String).is_in(sorted(set(won.values())))
    data = data.filter(known).with_columns(__value=nw.col(value), outcome=nw.when(winner).then(1.0).otherwise(0.0))
    return data.with_columns(__error=(nw.col("__value") - nw.col("outcome")) ** 2)


def _winners(outcomes: Any) -> dict[str, str]:
    if isinstance(outcomes, Mapping):
        pairs: Iterable[tuple[Any, Any]] = outcomes.items()
    else:
        try:
            data = collected(outcomes)
        except NotTidyError:
            raise ConfigError(
                f"outcomes is a {type(outcomes).__name__}; allowed are a mapping of market id to token id that won, "
                "or a frame with market_id and resolved_token_id."
            ) from None
        missing = [c for c in ("market_id", "resolved_token_id") if c not in data.columns]
        if missing:
            raise NotTidyError.from_missing("A frame of outcomes", missing, data.columns)
        pairs = zip(texts(data["market_id"]), texts(data["resolved_token_id"]), strict=True)
    return {str(market): str(token) for market, token in pairs if token is not None}
