"""In which market each token of an import is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from marketdata.archive.record_columns import Record
from marketdata.archive.store import ArchiveStore
from marketdata.points.columns import Books, Token

# An id with this many digits names one token, whatever its market is called.
_LONG_ID = 20


class TokenMarkets:
    """The market of each token: that of a record, else the one that the file names, else one with the token's id."""

    def __init__(self, store: ArchiveStore) -> None:
        self._store = store
        self._placed: dict[tuple[str, str | None], tuple[str, str]] = {}
        self._placed_tokens: dict[Token, Token] = {}
        self._markets: defaultdict[str, set[str]] = defaultdict(set)
        self._labels: dict[tuple[str, str | None], str] = {}
        self.without_market: set[str] = set()
        # Tokens that have points in another market too.
        self.elsewhere: dict[tuple[str, str], str] = {}

    def place(self, tokens: Sequence[Token]) -> list[Token]:
        """The tokens in their markets, first those whose market a row names, because other rows may not name it."""
        new = {token for token in tokens if token not in self._placed_tokens}
        for token in sorted(new, key=lambda token: not token.market_id):
            self._placed_tokens[token] = self._place(token)
        return [self._placed_tokens[token] for token in tokens]

    def labelled(self, books: Books) -> Books:
        """The books with the labels of their tokens."""
        tokens = [token._replace(token_label=self._labels.get(token[:2])) for token in books.tokens]
        return books.grouped(tokens, books.token)

    def place_anew(self) -> None:
        """Place all tokens again, as there are new records."""
        self._placed.clear()
        self._placed_tokens.clear()

    def _place(self, token: Token) -> Token:
        """The token in the market of a record, else in the one that the file names, else in one with the token's id.

        Its label is kept apart, because rows of one token may have one or none.
        """
        placed = self._placed_ids(self._recorded(token))
        if token.token_label:
            self._labels[placed] = token.token_label
        return Token(*placed)

    def _recorded(self, token: Token) -> tuple[str, str | None]:
        """The ids of the token; a record gives the id of a token that is named by market and label."""
        market, name, label = token
        if label and name == f"{market}:{label}" and (record := self._store.catalog["markets"].find(market)):
            ids = (t["id"] for t in record["tokens"] if str(t.get("label")).lower() == label.lower())
            return market, next(ids, None) or name
        return market, name

    def _placed_ids(self, key: tuple[str, str | None]) -> tuple[str, str]:
        if key not in self._placed:
            market, name = key[0], str(key[1])
            catalog, is_long = self._store.catalog["markets"], len(name) >= _LONG_ID
            known = {*catalog.markets_of(name), *self._markets[name]}
            owners = known - {name}
            if market and (named := catalog.find(market)):  # by its id or its slug
                market = str(named["id"])
            if market and market not in owners and is_long:
                # A record that says more than ids was given on purpose; short ids repeat among markets.
                told = [owner for owner in owners if is_told(catalog.of_id(owner))]
                market = told[0] if len(told) == 1 else market
            elif not market and len(owners) == 1:
                market = next(iter(owners))
            if not market:
                self.without_market.add(name)
                market = name
            if is_long and known - {market}:
                self.elsewhere[market, name] = min(known - {market})
            self._markets[name].add(market)
            self._placed[key] = market, name
        return self._placed[key]


def is_told(record: Record | None) -> bool:
    """Whether a record says more than the ids and labels that points had."""
    return record is not None and any(record.get(name) for name in ("slug", "question", "event_slug", "status"))
