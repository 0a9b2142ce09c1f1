"""Rows that a result leaves out, counted by reason, and the one warning about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.errors import MissingValuesWarning, warn
from marketdata.points.columns import Floats, Ints, Token
from marketdata.points.mirrors import Records, mirrors
from marketdata.points.order import distinct

# Above this share of the rows, those that are missing may decide a mean.
MOST = 0.05
# A mean may be off by this share of half its interval, which then covers 92 percent; and by this much without one.
_SHARE_OF_HALF, _WITHOUT_INTERVAL = 0.25, 1e-3


class Reason(NamedTuple):
    """Why rows are left out, in words, and what to do; ``biases`` says that the rest may be no fair sample."""

    why: str
    biases: bool = False
    hint: str = ""


REASONS: Mapping[str, Reason] = {
    "left_out": Reason("repeat a row of the other token of their market"),
    "nulls": Reason(
        "have no {value}", True, "Rows without a value are rarely missing at random: look at which they are."
    ),
    "after_close": Reason("begin after the close of their market"),
    "not_observed": Reason("were filled in, and repeat an earlier value"),
    "unpaired": Reason("have no reference of their token and time", True, "Give a reference for each forecast."),
    "without_book": Reason(
        "met no book of their token when they were known",
        True,
        "Give the books of these tokens and times. A book that was filled in with md.resample is none.",
    ),
    "filled_in": Reason(
        "met a book that was filled in (observed is false), of which nobody knows whether its orders still rested",
        True,
        "Where a missing bucket means that nothing changed, drop the column observed.",
    ),
    "no_signal": Reason("have no value of the signal"),
    "no_side": Reason("do not say what the taker did", True, "Leave out a source that lacks sides, or find them."),
    "open": Reason("are of markets that have not resolved"),
    "at_end": Reason("would exit after the last book"),
}


def warn_of_exits(net: Floats, worst: Floats, half: Floats) -> None:
    """MissingValuesWarning where missing exits may move a mean of ``net``, given half the width of its interval.

    ``worst`` is the mean in which they count at their worst, without those that the end of the books explains.
    """
    apart = net - worst
    off = apart > np.where(np.isnan(half), _WITHOUT_INTERVAL, _SHARE_OF_HALF * half)
    if off.any():
        warn(
            f"Trades without an exit may lower net by up to {np.nanmax(apart[off]):.2g} in {int(off.sum())} of "
            f"{len(off)} groups: so far apart are the means of net and net_low.",
            MissingValuesWarning,
            hint="A missing exit is not missing at random: give the mean of net_low beside that of net.",
        )


def warn_of_left_out(value: str, reason: str, counts: Floats | Ints, rows: Floats | Ints) -> None:
    """MissingValuesWarning where so many rows are left out for a reason that the mean of the others may be wrong.

    ``counts`` are left out of each group, and ``rows`` stay in it.
    """
    said = REASONS[reason]
    shares = counts / np.maximum(counts + rows, 1)
    often = shares[shares > MOST]
    if said.biases and len(often):
        warn(
            f"Up to {often.max():.0%} of the rows {said.why.format(value=value)}, in {len(often)} of {len(shares)} "
            "groups; the result leaves them out.",
            MissingValuesWarning,
            hint=said.hint,
        )


def warn_of_unmet(what: str, reason: str, count: int, given: int) -> None:
    """`warn_of_left_out` of signals and orders, which are in no groups."""
    if count > MOST * given:
        said = REASONS[reason]
        warn(f"{count:,} of {given:,} {what} {said.why}, and count nowhere.", MissingValuesWarning, hint=said.hint)


class Chosen(NamedTuple):
    """The rows that count, whether each repeats one of the other token, and the rows left out with their reasons."""

    rows: Ints
    repeated: NDArray[np.bool_]
    left: Ints
    why: NDArray[np.object_]


def choose(
    tokens: Sequence[Token],
    token: NDArray[np.integer],
    ts: Ints,
    *,
    known: NDArray[np.bool_],
    out: Mapping[str, NDArray[np.bool_]],
    records: Records,
    each_token: bool = False,
) -> Chosen:
    """The rows among ``known`` that count: those of no reason ``out``, of the first which counts.

    Of two tokens one row counts at each time, unless ``each_token``. What one token lacks and the other one has is not
    left out, and what both lack is left out once.
    """
    why = np.full(len(token), "", object)
    for reason, rows in reversed([*out.items()]):
        why[rows] = reason
    good, bad = (np.flatnonzero(known & one) for one in (why == "", why != ""))
    if each_token:
        return Chosen(good, np.zeros(len(good), bool), bad, why[bad])
    of_good = mirrors(tokens, token[good], ts[good], records)
    if len(bad):
        market = np.unique([one.market_id for one in tokens], return_inverse=True)[1]
        times, time = distinct(ts)
        moment = market[token] * len(times) + time
        # In a market of three tokens and more every row is a forecast.
        is_pair = (np.bincount(market) == 2)[market][token[bad]]
        bad = bad[~(is_pair & np.isin(moment[bad], moment[good]))]
        bad = bad[~mirrors(tokens, token[bad], ts[bad], records).left_out]
    kept = ~of_good.left_out
    return Chosen(good[kept], of_good.repeated[kept], bad, why[bad])
