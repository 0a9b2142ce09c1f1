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


def in_a_notebook(code: str) -> None:
    """Run these lines in a session of IPython of their own, as notebooks run them: ``shown`` is what a cell shows."""
    pytest.importorskip("IPython")
    head = """
import pandas as pd
from IPython.core.interactiveshell import InteractiveShell
display = InteractiveShell.instance().display_formatter
import marketdata as md
shown = lambda value: display.format(value)[0]
"""
    subprocess.run([sys.executable, "-W", "error", "-c", head + code], check=True)


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
    in_a_notebook(f"""
md.testing.prices({kind!r})
import polars as pl
whole = "0x" + "1" * 22 + "a"
frame = {"pd" if kind == "pandas" else "pl"}.DataFrame({{"market_id": [whole], "price": [0.5]}})
text = lambda: " ".join(shown(frame).values())
assert "…" in text() and whole not in text()
with md.options(id_width=None):
    assert whole in text()
md.options.id_width = 8
assert "0x11…11a" in text()
assert list(frame["market_id"]) == [whole]
""")


def test_frames_of_any_other_work_are_shown_as_ever() -> None:
    """Odd frames of a notebook are shown as without this library: doubled columns, numbers, objects, no columns."""
    in_a_notebook("""
md.testing.prices()
frames = [pd.DataFrame([['a' * 40] * 2], columns=['market_id'] * 2), pd.DataFrame({'a_id': [1, 2]}),
          pd.DataFrame({'a_id': [{}, None]}), pd.DataFrame(), pd.DataFrame({('a', 'b_id'): ['c' * 40]})]
for frame in frames:
    assert shown(frame)['text/html'] == frame._repr_html_()
""")


def test_a_lazy_frame_is_shown_as_polars_shows_it() -> None:
    """A query that was not run is not run to be shown."""
    in_a_notebook("""
lazy = md.testing.prices('polars').lazy()
assert shown(lazy)['text/html'] == lazy._repr_html_() and 'naive plan' in lazy._repr_html_().lower()
""")


def test_the_formatter_of_a_user_is_kept() -> None:
    """Who tells IPython how to show frames keeps that."""
    in_a_notebook("""
display.formatters['text/html'].for_type(pd.DataFrame, lambda frame: 'mine')
assert shown(md.testing.prices())['text/html'] == 'mine'
""")


def test_what_cannot_be_shown_is_refused() -> None:
    """A width that leaves nothing of an id, and a frame that was not collected, are named with what is allowed."""
    with pytest.raises(md.ConfigError, match="id_width=3 is refused; allowed are None and whole numbers from 6"):
        md.options.id_width = 3
    with pytest.raises(md.ConfigError, match="LazyFrame"):
        md.show(md.testing.prices("polars").lazy())


def test_a_misspelt_option_is_refused() -> None:
    """An option that does not exist is no new attribute."""
    with pytest.raises(AttributeError, match="id_widht"):
        md.options.id_widht = 12  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", [5, "text", pl.LazyFrame({"price": [0.5]})])
def test_what_is_no_frame_in_memory_is_not_shown(value: Any) -> None:
    """The error names what came and what is allowed."""
    with pytest.raises(md.ConfigError, match=f"pandas or polars DataFrame, not {type(value).__name__};"):
        md.show(value)


def test_a_notebook_without_widgets_gets_a_bar_and_no_warning() -> None:
    """Where ipywidgets is missing tqdm warns of it; a fetch does not pass that on, and changes no filter."""
    code = """
import sys, warnings
sys.modules["ipywidgets"] = None
class Shell: config = {"IPKernelApp": {}}
import IPython
IPython.get_ipython = Shell
before = list(warnings.filters)
from marketdata.display import progress_bar
with progress_bar(False, total=1) as bar:
    bar.update(1)
assert [one for one in warnings.filters if one not in before] == []
assert "tqdm.autonotebook" in sys.modules
"""
    in_a_notebook(code)
