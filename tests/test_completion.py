"""What a person finds by pressing tab, and what the names say when asked."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pandas as pd
import polars as pl
import pytest

import marketdata as md
import marketdata.pandas
import marketdata.polars
from marketdata import typing as names
from marketdata.accessor import Accessor

VERBS = [name for name in dir(Accessor) if not name.startswith("_") and inspect.isfunction(getattr(Accessor, name))]
FRAMES = {"pandas": pd.DataFrame(), "polars": pl.DataFrame(), "lazy": pl.LazyFrame()}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_tab_after_md_offers_every_verb_and_nothing_private(frame) -> None:
    """`df.md.<tab>` lists the verbs."""
    offered = [name for name in dir(frame.md) if not name.startswith("_")]
    assert set(offered) == {*VERBS, "plot"}
    assert "md" in dir(frame)


def test_tab_after_the_package_offers_what_it_exports() -> None:
    """`md.<tab>` lists the public names before any of them was loaded."""
    code = "import marketdata as md; print(*(n for n in dir(md) if not n.startswith('_')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(md.__all__) <= set(done.stdout.split())


def test_a_shell_completes_frames_of_the_client() -> None:
    """IPython, as notebooks use it, completes the verbs of a frame that came from an archive."""
    core = pytest.importorskip("IPython.core.completer", reason="IPython comes with ipykernel")
    archive = md.simulate(events=1, days=0.1, markets=1)
    books = archive.books(archive.records("markets")[0]["id"], on_missing="partial")
    completer = core.IPCompleter(namespace={"books": books, "md": md}, use_jedi=False)
    completer.use_jedi = False
    with core.provisionalcompleter():
        offered = {c.text for text in ("books.md.res", "md.sim") for c in completer.completions(text, len(text))}
    assert any("resample" in text for text in offered), offered
    assert any("simulate" in text for text in offered), offered


@pytest.mark.parametrize(("name", "kind"), [("PandasFrame", pd.DataFrame), ("PolarsFrame", pl.DataFrame)])
def test_names_for_annotations_are_the_frames_themselves(name: str, kind: type) -> None:
    """At run time a frame name of `marketdata.typing` is the class of the frame library."""
    assert getattr(names, name) is kind


@pytest.mark.parametrize("frame", ["pandas", "polars"])
def test_every_frame_that_comes_out_has_the_verbs(frame: str) -> None:
    """Frames of listings, coverage and verification have `.md` in a process that imported no door."""
    code = f"""
import marketdata as md
archive = md.simulate(events=1, days=0.1, markets=1, frame={frame!r})
archive.coverage().md
archive.verify().md
with md.serve(archive) as service:
    md.Client(service.base_url, service.api_key, frame={frame!r}).markets().md
"""
    subprocess.run([sys.executable, "-c", code], check=True)
