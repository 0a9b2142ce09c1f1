"""Asks the search of the built site what people ask: each question must lead to its page.

``python docs/search.py docs/_build/html/searchindex.js`` prints the questions that do not, and fails if there is one. A
page is found as the browser finds it: it has every word of the question, by its stem or as a part of a word.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from sphinx.search.en import SearchEnglish

QUESTIONS = {
    "Kalshi": "glossary",
    "Polymarket free data": "guides/services",
    "prices-history": "glossary",
    "order book history": "glossary",
    "who won": "recipes",
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
    "brier score": "glossary",
    "order flow imbalance": "glossary",
    "OBI": "glossary",
    "walk the book": "glossary",
    "price impact": "glossary",
    "Up/Down": "recipes",
    "spot price coin": "recipes",
    "resample 5 minutes": "guides/resample",
    "own CSV": "guides/first_hour",
    "cents": "guides/first_hour",
    "local time zone": "guides/first_hour",
    "join markets slug": "recipes",
    "shorten ids": "recipes",
    "DuckDB Parquet": "recipes",
    "export CSV": "recipes",
    "backtest fees": "guides/backtest",
    "empty or missing": "guides/archive_gaps",
    "rate limit": "guides/limits",
    "resume download": "guides/errors",
    "slippage": "glossary",
    "look-ahead": "glossary",
    "accessor": "glossary",
}


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
    sys.stdout.writelines(f"{question!r} does not lead to {page}\n" for question, page in lost)
    return len(lost)


if __name__ == "__main__":
    sys.exit(main())
