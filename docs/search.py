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
    "csv": ("guides/own_data", "## A file"),
    "own data": ("guides/own_data", "# Your own data"),
    "my own data": ("guides/own_data", "# Your own data"),
    "import csv": ("guides/own_data", "## A file"),
    "excel": ("guides/own_data", "## A file"),
    "timezone": ("guides/own_data", "## Local time"),
    "time zone": ("guides/own_data", "## Local time"),
    "pnl": ("recipes", "## Profit and loss of your own fills"),
    "profit and loss": ("recipes", "## Profit and loss of your own fills"),
    "sharpe": ("recipes", "## Profit and loss of your own fills"),
    "sharpe ratio": ("recipes", "## Profit and loss of your own fills"),
    "my fills": ("recipes", "## Profit and loss of your own fills"),
    "own fills": ("recipes", "## Profit and loss of your own fills"),
    "yfinance": ("coming_from", "## yfinance"),
    "databento": ("coming_from", "## databento"),
    "tardis": ("coming_from", "## tardis"),
    "polymarket-client": ("coming_from", "## The SDKs of Polymarket and Kalshi"),
    "ohlc": ("recipes", "## Candles"),
    "brier score of a market": ("recipes", "## The Brier score of a market"),
    "survivorship bias": ("guides/backtest_wrong", "## Survivors"),
    "latency": ("guides/backtest_wrong", "## Latency"),
    "fees": ("analytics", "## Fees"),
    "sql": ("guides/archive_engines", "## SQL"),
    "duckdb": ("guides/archive_engines", "# Read an archive with other engines"),
    "cron": ("guides/keep_up", "## cron"),
    "systemd": ("guides/keep_up", "## systemd"),
    "record": ("guides/record", "# Record your own history"),
    "websocket": ("guides/record", "# Record your own history"),
    "exit codes": ("guides/command_line", "## Exit codes"),
    "cli": ("guides/command_line", "# Command line"),
    "command line": ("guides/command_line", "# Command line"),
    "api key": ("install", "## With a key"),
    "without a key": ("install", "## Without a key"),
    "install": ("install", "# Install"),
    "pip install": ("install", "# Install"),
    "nautilus": ("guides/other_engines", "## nautilus_trader"),
    "hftbacktest": ("guides/other_engines", "## hftbacktest"),
    "mcp": ("guides/mcp", "# Tools for other programs"),
    "mypy": ("guides/typing", "# Types and completion"),
    "pytest": ("guides/testing", "# Test your own code"),
    "gaps": ("guides/archive_gaps", "# Coverage and gaps"),
    "two venues": ("guides/two_venues", "# Compare two venues"),
    "polymarket vs kalshi": ("guides/two_venues", "# Compare two venues"),
    "pair spread": ("guides/two_venues", "## What a pair is worth"),
    "lead lag": ("guides/two_venues", "## Who moves first"),
    "local time": ("guides/own_data", "## Local time"),
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
