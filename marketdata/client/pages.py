"""Raw page bodies to one tidy frame, without a network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from marketdata.accessor import to_frame
from marketdata.errors import ConfigError
from marketdata.points.arguments import choice
from marketdata.points.duplicates import deduplicate
from marketdata.points.views import VIEWS, View
from marketdata.tidy.frames import FrameKind, frame_kind
from marketdata.wire.decode import decode_pages

if TYPE_CHECKING:
    from marketdata.typing import PandasFrame, PolarsFrame


@overload
def read_pages(view: View, pages: Sequence[bytes], frame: Literal["pandas"] = "pandas") -> PandasFrame: ...


@overload
def read_pages(view: View, pages: Sequence[bytes], frame: Literal["polars"]) -> PolarsFrame: ...


def read_pages(view: View, pages: Sequence[bytes], frame: FrameKind = "pandas") -> Any:
    """Raw page bodies as one tidy frame, without a network (interface 2.2 to 2.6).

    Returns the frame of the `Client` method named like ``view``, with each point once. ContractError if a page breaks
    the interface; the message names the page and the path of the value.

    Parameters
    ----------
    view : {"books", "prices", "metrics"}
    pages : sequence of bytes
        JSON bodies of a market's or a token's history, in any order.

    Examples
    --------
    >>> page = b'''{"market_id": "m", "resolution": "1h", "tokens": {"Yes": "1"},
    ...     "metadata": {"count": 1, "limit": 100},
    ...     "data": {"Yes": [{"t": "2026-01-01T00:00:00Z", "p": 0.25}]}}'''
    >>> md.read_pages("prices", [page])["price"].tolist()
    [0.25]
    """
    choice("view", view, VIEWS)
    given: Any = pages
    if isinstance(given, bytes | str) or not isinstance(given, Iterable):
        raise ConfigError("pages is a list of page bodies, each as bytes.")
    bodies = list(given)
    for k, page in enumerate(bodies):
        if not isinstance(page, bytes):
            raise ConfigError(f"pages[{k}] is a {type(page).__name__}; each page is a body as bytes, as it was sent.")
    kind = frame_kind(frame)
    columns = decode_pages(view, bodies)[0]
    hint = "; pages of one resolution and one state of the service belong together"
    return to_frame(deduplicate(columns, hint=hint).columns, kind)
