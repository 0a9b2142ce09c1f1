"""Asks the search of the built site what people ask: each question must lead to its page.

``python docs/search.py docs/_build/html/searchindex.js`` prints the questions that do not, and fails if there is one. A
page is found as the browser finds it: it has every word of the question, by its stem or as a part of a word. Each of
`ANSWERS` must be the first result.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from sphinx.search.en import SearchEnglish

# The page and the heading of the answer, which the search lists first. The pages get these entries as they are built;
# terms of the glossary have theirs.
ANSWERS = {
    "order book of a market": ("tour", "## Fetch order books"),
    "order book history": ("glossary", None),
    "resample to 5 minutes": ("guides/resample", "# Resample"),
    "resample 5 minutes": ("guides/resample", "# Resample"),
    "who won": ("recipes", "## Who won"),
    "Brier score": ("glossary", None),
    "backtest net of fees": ("recipes", "## A backtest net of fees"),
    "backtest fees": ("recipes", "## A backtest net of fees"),
    "free data": ("guides/free_data", "# Free data"),
    "own CSV": ("guides/own_data", "## A file"),
    "Kalshi": ("glossary", None),
    "Polymarket": ("glossary", None),
    "Parquet for DuckDB": ("recipes", "## DuckDB on exported Parquet"),
    "DuckDB Parquet": ("recipes", "## DuckDB on exported Parquet"),
    "empty or missing": ("guides/archive_gaps", "## Fetched, but empty"),
}
QUESTIONS = {
    "Polymarket free data": "guides/services",
    "prices-history": "glossary",
    "winner payout": "glossary",
    "void": "glossary",
    "dutch book": "recipes",
    "sure bet": "glossary",
    "arbitrage net of fees": "recipes",
    "negRiskAugmented": "glossary",
    "OHLCV": "recipes",
    "candlestick": "glossary",
    "candles": "recipes",
    "reliability diagram": "recipes",
    "calibration curve": "glossary",
    "favourite-longshot bias": "recipes",
    "skill score": "glossary",
    "order flow imbalance": "glossary",
    "OBI": "glossary",
    "walk the book": "glossary",
    "price impact": "glossary",
    "Up/Down": "recipes",
    "spot price coin": "recipes",
    "cents": "guides/first_hour",
    "local time zone": "guides/first_hour",
    "join markets slug": "recipes",
    "shorten ids": "recipes",
    "export CSV": "recipes",
    "rate limit": "guides/limits",
    "resume download": "guides/errors",
    "slippage": "glossary",
    "look-ahead": "glossary",
    "accessor": "glossary",
}


def with_entries(page: str, text: str) -> str:
    """The text of a page with an index entry for each question that it answers, below the heading of the answer."""
    for question, (name, heading) in ANSWERS.items():
        if name == page and heading is not None:
            entry = f"{heading}\n\n```{{index}} ! {question}\n```\n"
            text, count = re.subn(f"^{heading}\n", entry, text, flags=re.MULTILINE)
            if count != 1:
                raise ValueError(f"{page} has {count} headings {heading!r}, which answers {question!r}.")
    return text


def first(index: dict[str, Any], question: str) -> set[str]:
    """The pages that the browser lists first: those with a main entry of the index which is the question."""
    entries = index["indexentries"].get(question.lower(), [])
    return {index["docnames"][page] for page, _, is_main in entries if is_main}


def found(index: dict[str, Any], question: str) -> set[str]:
    """The names of the pages that have every word of a question."""
    language, pages = SearchEnglish({}), index["docnames"]
    every = {**index["titleterms"]}
    for term, places in index["terms"].items():
        every[term] = [*_listed(every.get(term, [])), *_listed(places)]
    results = set(range(len(pages)))
    for word in re.findall(r"\w+", question.lower()):
        if word in language.stopwords:
            continue
        stem = language.stem(word)
        places = {place for term, where in every.items() if stem == term or word in term for place in _listed(where)}
        results &= places
    return {pages[place] for place in results}


def _listed(places: int | list[int]) -> list[int]:
    return places if isinstance(places, list) else [places]


def main() -> int:
    """Print what is not found."""
    text = Path(sys.argv[1]).read_text("utf-8")
    index = json.loads(text[text.index("{") : text.rindex("}") + 1])
    lost = [(question, page) for question, page in QUESTIONS.items() if page not in found(index, question)]
    lost += [(question, page) for question, (page, _) in ANSWERS.items() if first(index, question) != {page}]
    sys.stdout.writelines(f"{question!r} does not lead to {page}\n" for question, page in lost)
    return len(lost)


if __name__ == "__main__":
    sys.exit(main())
