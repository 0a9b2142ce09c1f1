"""Every form of a market record through every door is one record: files, archives, outcomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import marketdata as md
from marketdata.errors import ConfigError
from marketdata.wire import polymarket, records

M, T, T2 = "0x" + "ab" * 32, "7" * 77, "8" * 77
_Q = {"question": "q?", "slug": "q"}
_OF_GAMMA = {"id": "1", "conditionId": M, **_Q, "closed": True}
_CLOB = {"condition_id": M, "question": "q?", "market_slug": "q"}
YES, NO, OPEN = ("resolved", [1.0, 0.0]), ("resolved", [0.0, 1.0]), ("active", None)
# A form, its tokens, and the state and the payoffs that it tells.
FORMS: dict[str, tuple[dict[str, Any], list[str], tuple[str, list[float] | None]]] = {
    "Gamma, lists as texts": (
        {**_OF_GAMMA, "outcomes": '["Yes","No"]', "outcomePrices": '["1","0"]',
         "clobTokenIds": json.dumps([T, T2]), "umaResolutionStatus": "resolved"}, [T, T2], YES,
    ),
    "Gamma, lists": (
        {**_OF_GAMMA, "outcomes": ["Yes", "No"], "outcomePrices": ["1", "0"], "clobTokenIds": [T, T2],
         "umaResolutionStatus": "resolved"}, [T, T2], YES,
    ),
    "Gamma, second version": (
        {**_OF_GAMMA, "outcomes": ["Yes", "No"], "outcomePrices": ["1", "0"], "positionIds": [T[:62], T2[:62]],
         "resolutionStatus": "resolved"}, [T[:62], T2[:62]], YES,
    ),
    "Gamma, snake case": (
        {"condition_id": M, **_Q, "outcomes": '["Yes","No"]', "outcome_prices": '["1","0"]',
         "clob_token_ids": json.dumps([T, T2]), "closed": True, "uma_resolution_status": "resolved"}, [T, T2], YES,
    ),
    "CLOB": (
        {**_CLOB, "closed": True, "tokens": [
            {"token_id": T, "outcome": "Yes", "price": 1, "winner": True},
            {"token_id": T2, "outcome": "No", "price": 0, "winner": False}]}, [T, T2], YES,
    ),
    "Kalshi": (
        {"ticker": "KXA-26JAN01-T5", "event_ticker": "KXA-26JAN01", "title": "q?", "status": "finalized",
         "result": "no", "close_time": "2026-01-01T15:00:00Z"},
        ["KXA-26JAN01-T5:yes", "KXA-26JAN01-T5:no"], NO,
    ),
    "Kalshi, by market_ticker": (
        {"event_ticker": "KXA-26JAN01", "market_ticker": "KXA-26JAN01-T5", "title": "q?", "result": "yes"},
        ["KXA-26JAN01-T5:yes", "KXA-26JAN01-T5:no"], YES,
    ),
    "token1 and token2": (
        {**_CLOB, "token1": T, "token2": T2, "answer1": "Yes", "answer2": "No", "closed": False}, [T, T2], OPEN,
    ),
    "yes_token_id and no_token_id": (
        {"condition_id": M, **_Q, "yes_token_id": T, "no_token_id": T2, "closed": False}, [T, T2], OPEN,
    ),
    "winner of a vendor": (
        {"id": "m", **_Q, "tokens": [{"id": "7", "label": "Yes"}, {"id": "8", "label": "No"}], "winner": "Yes",
         "is_resolved": True, "status": "resolved"}, ["7", "8"], YES,
    ),
    "ours, with winning_outcome": (
        {"market_id": "m", **_Q, "token_ids": ["7", "8"], "token_labels": ["Yes", "No"], "winning_outcome": "No",
         "status": "resolved"}, ["7", "8"], NO,
    ),
    "ours, lists as texts": (
        {"market_id": "m", **_Q, "token_ids": '["7","8"]', "token_labels": '["Yes","No"]', "resolved_token_id": "7"},
        ["7", "8"], YES,
    ),
    "a condition with a winner of its own": (
        {"condition_id": M, **_Q, "clob_token_ids": [T, T2], "outcomes": ["Yes", "No"], "status": "resolved",
         "resolved_token_label": "Yes"}, [T, T2], YES,
    ),
    "a condition with a state of its own": (
        {"condition_id": M, **_Q, "clob_token_ids": [T, T2], "outcomes": ["Yes", "No"], "state": "Closed"},
        [T, T2], ("closed", None),
    ),
    "a condition that is resolved": (
        {"condition_id": M, **_Q, "clob_token_ids": [T, T2], "outcomes": ["Yes", "No"], "resolved": True},
        [T, T2], ("resolved", None),
    ),
}  # fmt: skip
CONTAINERS = ("json", "jsonl", "csv", "parquet")


def written(folder: Path, container: str, rows: list[dict[str, Any]]) -> Path:
    """A file of rows; a CSV file has lists as JSON texts."""
    path = folder / f"m.{container}"
    if container == "json":
        path.write_text(json.dumps(rows))
    elif container == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif container == "csv":
        texts = [{n: json.dumps(v) if isinstance(v, list) else v for n, v in row.items()} for row in rows]
        pl.DataFrame(texts).write_csv(path)
    else:
        pl.DataFrame(rows, strict=False).write_parquet(path)
    return path


def stored(archive: Any) -> tuple[Any, ...]:
    """What an archive has of its one market."""
    (record,) = archive.markets().to_dicts()
    return tuple(
        record.get(name)
        for name in ("market_id", "question", "status", "token_ids", "token_labels", "resolved_token_label")
    )


def paid(frame: Any) -> list[tuple[str, float | None]]:
    """The payoff of each token by `md.outcomes`."""
    return md.outcomes(frame).select(pl.col("token_id").cast(pl.String), "payoff").rows()


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_every_form_through_every_door_is_one_record(
    tmp_path_factory: pytest.TempPathFactory, form: str, data: st.DataObject
) -> None:
    """A file of any kind, archive.add of a list or a frame, and md.outcomes agree, whatever the order of the fields."""
    row, tokens, (status, payoffs) = FORMS[form]
    row = {name: row[name] for name in data.draw(st.permutations([*row]))}
    folder = tmp_path_factory.mktemp("doors")
    container = data.draw(st.sampled_from(CONTAINERS))
    by_file = md.Archive(folder / "file", frame="polars")
    by_file.add_files(written(folder, container, [row]))
    frame = pl.DataFrame([row], strict=False)
    by_hand = md.Archive(folder / "hand", frame="polars")
    by_hand.add(markets=data.draw(st.sampled_from([[row], frame])))
    assert stored(by_file) == stored(by_hand)
    _, question, state, ids, labels, winner = stored(by_hand)
    won = None if payoffs is None else labels[payoffs.index(1.0)]
    assert (question, state, ids, labels, winner) == ("q?", status, tokens, ["Yes", "No"], won)
    wanted = [*zip(tokens, payoffs or [None, None], strict=True)]
    assert paid(by_file.markets()) == paid(by_hand.markets()) == wanted
    if set(row) & {"outcomePrices", "tokens", "ticker", "winner", "resolved_token_id", "condition_id"}:
        assert paid(frame) == wanted


@pytest.mark.parametrize("container", CONTAINERS)
def test_rows_of_tokens_are_markets_of_several_tokens(tmp_path: Path, container: str) -> None:
    """One row a token with its winner is one market; a field that differs from token to token is none of the market."""
    rows = [
        {"condition_id": f"0x{k}", "question": f"Will {k}?", "outcome": label, "token_id": f"7000{k}{i}",
         "winner": (i == k % 2), "price": float(i == k % 2)}
        for k in (1, 2) for i, label in enumerate(("Yes", "No"))
    ]  # fmt: skip
    archive, other = (md.Archive(tmp_path / name, frame="polars") for name in "ab")
    archive.add_files(written(tmp_path, container, [{n: v for n, v in row.items() if n != "price"} for row in rows]))
    other.add(markets=rows)
    wanted = [(f"7000{k}{i}", float(i == k % 2)) for k in (1, 2) for i in (0, 1)]
    assert paid(archive.markets()) == paid(other.markets()) == paid(pl.DataFrame(rows)) == wanted
    assert archive.markets()["status"].to_list() == ["resolved"] * 2
    assert "price" not in other.markets().columns


def test_a_record_that_names_two_winners_is_refused(tmp_path: Path) -> None:
    """The venue's final prices and a winner of the row that differ are two meanings."""
    row = {**FORMS["Gamma, lists"][0], "resolved_token_label": "No"}
    with pytest.raises(ConfigError, match="its winner is 'No', and its prices or its result say 'Yes'"):
        md.Archive(tmp_path / "archive").add(markets=[row])


def test_children_of_an_event_have_its_flags() -> None:
    """Whether outcomes exclude each other, and whether further ones may follow, is said of the event."""
    child = {"id": "1", "conditionId": M, "outcomes": ["Yes", "No"], "clobTokenIds": [T, T2]}
    event = {"id": "9", "slug": "e", "negRisk": True, "negRiskAugmented": True, "markets": [child]}
    for record in (
        *polymarket.markets_of(event),
        polymarket.market({**child, "events": [{"id": "9", "negRisk": True, "negRiskAugmented": True}]}),
    ):
        assert (record["negRisk"], record["negRiskAugmented"]) == (True, True)
    (own,) = polymarket.markets_of({**event, "markets": [{**child, "negRiskAugmented": False}]})
    assert own["negRiskAugmented"] is False


@given(st.sampled_from([*FORMS]))
def test_a_record_that_was_read_is_read_as_itself(form: str) -> None:
    """Reading is done once: a record under our names stays as it is, so an export comes back."""
    once = records.market(FORMS[form][0])
    assert records.market(once) == once
    assert once["status"] is not None
