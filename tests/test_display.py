"""How frames are shown: ids are shortened in what is printed, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import marketdata as md
from marketdata.display import shorten

LONG = ["0x" + "1" * 30 + "a", "0x" + "1" * 30 + "b"]
FRAMES: dict[str, Any] = {
    "pandas": pd.DataFrame({"market_id": LONG, "price": [0.1, 0.2]}),
    "pandas categories": pd.DataFrame({"market_id": pd.Categorical(LONG), "price": [0.1, 0.2]}),
    "pandas nulls": pd.DataFrame({"market_id": [*LONG, None], "token_ids": [LONG, None, []]}),
    "polars": pl.DataFrame({"market_id": LONG, "price": [0.1, 0.2]}),
    "polars categories": pl.DataFrame({"market_id": pl.Series(LONG, dtype=pl.Categorical)}),
    "polars enum": pl.DataFrame({"market_id": pl.Series(LONG, dtype=pl.Enum(LONG))}),
    "polars nulls": pl.DataFrame({"market_id": [*LONG, None], "token_ids": [LONG, None, []]}),
}
# A session of IPython as notebooks run it: what a cell shows, as text and as HTML.
SESSION = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
import marketdata as md
frame = md.testing.prices({kind!r})
import polars as pl
long = pl.DataFrame(frame).with_columns(market_id=pl.lit({long!r}))
long = long.to_pandas() if {kind!r} == "pandas" else long
def shown(): return " ".join(shell.display_formatter.format(long)[0].values())
assert "…" in shown() and {long!r} not in shown()
with md.options(id_width=None):
    assert {long!r} in shown()
md.options.id_width = 8
assert "0x11…11a" in shown()
assert list(long["market_id"])[0] == {long!r}
"""


@pytest.mark.parametrize("name", FRAMES)
def test_ids_are_shortened_in_what_is_shown_only(name: str) -> None:
    """Text and HTML have short ids, each different from the others; the frame stays as it was."""
    frame = FRAMES[name]
    before = frame.copy() if isinstance(frame, pd.DataFrame) else frame.clone()
    shown = md.show(frame, id_width=12)
    for text in (repr(shown), shown._repr_html_()):
        assert "0x1111…" in text
        assert "1111a" in text
        assert "1111b" in text
        assert LONG[0] not in text
    assert frame.equals(before)
    whole = md.show(frame, id_width=None)
    assert whole._repr_html_() == frame._repr_html_()


@given(st.sets(st.text(st.sampled_from("ab1"), max_size=30)), st.integers(6, 16))
def test_different_ids_are_shown_differently(ids: set[str], width: int) -> None:
    """No two ids look the same, and short ones stay whole."""
    short = shorten(ids, width)
    assert len({short.get(one, one) for one in ids}) == len(ids)
    assert all(len(one) > width for one in short)
    assert all(len(text) < len(one) for one, text in short.items())


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_notebook_shows_short_ids_by_itself(kind: str) -> None:
    """IPython shows frames with short ids, as the options say, without a call; values are whole."""
    pytest.importorskip("IPython")
    code = SESSION.format(kind=kind, long="0x" + "1" * 22 + "a")
    subprocess.run([sys.executable, "-c", code], check=True)


def test_frames_of_any_other_work_are_shown_as_ever() -> None:
    """Odd frames of a notebook are shown as without this library: doubled columns, numbers, objects, no columns."""
    pytest.importorskip("IPython")
    code = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "import pandas as pd, marketdata as md\n"
        "md.testing.prices()\n"
        "frames = [pd.DataFrame([['a' * 40] * 2], columns=['market_id'] * 2), pd.DataFrame({'a_id': [1, 2]}),\n"
        "          pd.DataFrame({'a_id': [{}, None]}), pd.DataFrame(), pd.DataFrame({('a', 'b_id'): ['c' * 40]})]\n"
        "display = InteractiveShell.instance().display_formatter\n"
        "for frame in frames:\n"
        "    assert display.format(frame)[0]['text/html'] == frame._repr_html_()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_lazy_frame_is_shown_as_polars_shows_it() -> None:
    """A query that was not run is not run to be shown."""
    pytest.importorskip("IPython")
    code = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "import marketdata as md\n"
        "lazy = md.testing.prices('polars').lazy()\n"
        "shown = InteractiveShell.instance().display_formatter.format(lazy)[0]\n"
        "assert shown['text/html'] == lazy._repr_html_() and 'naive plan' in shown['text/html'].lower()\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_the_formatter_of_a_user_is_kept() -> None:
    """Who tells IPython how to show frames keeps that."""
    pytest.importorskip("IPython")
    code = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "import pandas as pd, marketdata as md\n"
        "formatter = InteractiveShell.instance().display_formatter.formatters['text/html']\n"
        "formatter.for_type(pd.DataFrame, lambda frame: 'mine')\n"
        "assert formatter(md.testing.prices()) == 'mine'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_cannot_be_shown_is_refused() -> None:
    """A width that leaves nothing of an id, and a frame that was not collected, are named with what is allowed."""
    with pytest.raises(md.ConfigError, match="id_width=3 is refused; allowed are None and whole numbers from 6"):
        md.options.id_width = 3
    with pytest.raises(md.ConfigError, match="LazyFrame"):
        md.show(md.testing.prices("polars").lazy())
