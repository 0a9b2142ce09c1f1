"""What all charts share: colours, axes, and which token is meant."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import narwhals as nw
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from marketdata.errors import ConfigError
from marketdata.tidy.kinds import texts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

TOKENS = ("#2f6df6", "#f0883e", "#8957e5", "#2da44e", "#cf3f8f", "#6e7781")
BID, ASK = "#12908e", "#e5533d"
INK, FAINT = "#24292f", "#8c959f"
_SCREEN_DPI = 80


class Page(Figure):
    """A figure that shows itself in a notebook without pyplot.

    Examples
    --------
    >>> page = Page(figsize=(4, 3))
    >>> ax = page.add_subplot()
    >>> page._repr_png_()[1:4]
    b'PNG'
    """

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.savefig(out, format="png", dpi=_SCREEN_DPI)
        return out.getvalue()


def new_axes(ax: Axes | None, size: tuple[float, float] = (10, 4)) -> Axes:
    """The Axes given, or a new figure's."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=size, layout="constrained")[1]


def finish(ax: Axes, title: str | None, simulated: bool, *, none: str = "no data in this range") -> Axes:
    """Give a chart over time its axis, or say that there is no data."""
    if ax.lines or ax.collections or ax.patches:
        place = AutoDateLocator(minticks=3, maxticks=8)
        ax.xaxis.set_major_locator(place)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(place, tz="UTC"))
    else:
        ax.text(0.5, 0.5, none, transform=ax.transAxes, ha="center", color=FAINT)
    ax.set_xlabel("time [UTC]", fontsize="small", color=FAINT)
    return dress(ax, title, simulated)


def dress(ax: Axes, title: str | None, simulated: bool) -> Axes:
    """Give any chart the look of the house."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color("#d0d7de")
    ax.tick_params(colors=INK, labelsize="small", length=3, color="#d0d7de")
    ax.grid(visible=True, color="#eaeef2", linewidth=0.7)
    ax.set_axisbelow(True)
    legend = ax.get_legend()
    plain(ax.yaxis.label, *(legend.get_texts() if legend else ()))
    if title:
        plain(ax.set_title(title, loc="left", color=INK))
    if simulated:
        ax.set_title("simulated data", loc="right", fontsize="small", color=ASK)
    return ax


def plain(*some: Text) -> None:
    """Show texts as they are: questions and labels hold dollars, which are no formulas."""
    for text in some:
        text.set_parse_math(False)


def mark(figure: Figure) -> None:
    """Say on the page that the data is simulated."""
    style = {"boxstyle": "round,pad=0.35", "facecolor": "white", "edgecolor": ASK}
    figure.text(0.99, 0.985, "simulated data", ha="right", va="top", fontsize="small", color=ASK, bbox=style)


def tokens_of(data: nw.DataFrame[Any]) -> list[tuple[str, str]]:
    """Id and label of each token: Yes, Up and Over first, then by label."""
    pairs = data.select(nw.col("token_id", "token_label").cast(nw.String)).unique()
    ids, labels = texts(pairs["token_id"]), texts(pairs["token_label"])
    both = [(i or "", label or (i or "")[:10]) for i, label in zip(ids, labels, strict=True)]
    return sorted(both, key=lambda both: (both[1].lower() not in {"yes", "up", "over"}, both[1], both[0]))


def chosen(data: nw.DataFrame[Any], token: str | None) -> tuple[str, str]:
    """Id and label of the token that is meant; without one the first."""
    tokens = tokens_of(data)
    if token is None and tokens:
        return tokens[0]
    for both in tokens:
        if token in both:
            return both
    have = ", ".join(label for _, label in tokens) or "no token"
    raise ConfigError(f"token={token!r} is not in the frame; it has {have}.")
