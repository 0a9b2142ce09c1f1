"""Records of series, events and markets as the interface has them, from frames of any kind."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping
from typing import Any

from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.records import FIELDS, ID_NAMES, TOKEN_LISTS, RecordKind, names

Record = dict[str, Any]


def rows_of(frame: Any) -> list[Record]:
    """Rows of a frame of any kind, or a list of dicts, as plain Python values; else a ConfigError."""
    if isinstance(frame, list | tuple):
        if not all(isinstance(row, Mapping) for row in frame):
            raise ConfigError("a list of records must hold dicts only; pass a frame or a list of dicts.")
        return [{str(k): plain(v) for k, v in row.items()} for row in frame]
    from marketdata.adapters.dispatch import in_memory

    try:
        source = in_memory(frame)
    except NotTidyError:
        raise ConfigError(
            f"{type(frame).__name__} is not a frame; pass pandas, polars, Arrow or a list of dicts."
        ) from None
    columns = [raw if isinstance(raw, list) else raw.to_list() for raw in map(source.raw, source.names)]
    return [dict(zip(source.names, map(plain, row), strict=True)) for row in zip(*columns, strict=True)]


def plain(value: Any) -> Any:
    """A value as JSON has it; missing of any kind is None, times are ISO text in UTC."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            problem = f"The text {value[:60]!r} of a record has half a character (a lone surrogate)."
            raise ConfigError(f"{problem} Repair the text first.") from None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if repr(value) in ("NaT", "<NA>"):
        return None
    if isinstance(value, dt.datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return aware.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, Iterable):
        return [plain(v) for v in value]
    return str(value)


def text_id(value: Any, what: str) -> str | None:
    """An id as text; ConfigError if it went through a float, which has lost digits."""
    if value is None or value == "":
        return None
    if isinstance(value, float):
        if not value.is_integer() or abs(value) >= 2**53:
            raise ConfigError(f"{what} {value!r} is a float and lost digits; ids are text. Read the column as text.")
        value = int(value)
    return str(value)


def read(kind: RecordKind, row: Mapping[str, Any]) -> Record:
    """A record with the fields of its kind, and further ones; ConfigError if nothing identifies it.

    The id of an event or a series without one is its slug.
    """
    given_names, row, id_name = sorted(row), dict(row), ID_NAMES[kind]
    out: Record = {}
    for field in FIELDS[kind]:
        # As in other records, where events have an event_title.
        called = (id_name, "id") if field.name == "id" else (field.name, id_name.replace("_id", f"_{field.name}"))
        given = [row.pop(name) for name in called if name in row]
        if given or field.of in ("listing", "archive"):
            value = next((one for one in given if one is not None), None)
            if value is None:
                # A list that all records have is empty; what some have is null where it is not known.
                out[field.name] = [] if field.type == "texts" and field.of != "some" else None
            else:
                out[field.name] = _typed(field.type, value, called[0])
    if kind != "markets" and out["id"] is None:
        out["id"] = out["slug"]
    if out["id"] is None:
        lacks = "no market_id" if kind == "markets" else "neither an id nor a slug"
        raise ConfigError(f"a row of the {kind} frame has {lacks}; it has {given_names}.")
    if kind == "markets":
        ids, labels = (_listed(name, row.pop(name, None)) for name in TOKEN_LISTS)
        if out["tokens"] is None:
            if len(ids) != len(labels):
                raise ConfigError(
                    f"market {out['id'][:80]!r} has {len(ids)} token_ids and {len(labels)} token_labels; each id needs "
                    "a label."
                )
            pairs = zip(ids, labels, strict=True)
            out["tokens"] = [{"id": text_id(i, "token id"), "label": None if w is None else str(w)} for i, w in pairs]
    if out["status"] is None and row.get("closed") is not None:
        out["status"] = "closed" if row["closed"] else "active"
    return {**out, **row}


def _typed(kind: str, value: Any, what: str) -> Any:
    """A value that is not null as one of a field of this kind."""
    if kind == "texts":
        return [str(one) for one in ([value] if isinstance(value, str) else value) if one is not None]
    if kind == "tokens":
        tokens = []
        for token in value:
            identity, label = token.get("id", token.get("token_id")), token.get("label", token.get("outcome"))
            tokens.append({**token, "id": text_id(identity, "token id"), "label": label})
        return tokens
    return text_id(value, what) if kind == "id" else str(value) if kind == "text" else value


def _listed(name: str, value: Any) -> list[Any]:
    if isinstance(value, str):
        raise ConfigError(f"{name} is the text {value[:80]!r}; it is a list: json.loads makes one of a text of JSON.")
    return list(value or ())


def derive(
    kind: RecordKind, new: Iterable[Record], every: Iterable[Record] = (), groups: Iterable[Record] = ()
) -> list[Record]:
    """The events or series that markets ``new`` name, in that order; each spans all its markets (``every``).

    Ids of known ``groups`` are used. Events have the tags of their markets, and their state if it is one.
    """
    what, new = ID_NAMES[kind].removesuffix("_id"), list(new)
    copied = {"slug": f"{what}_slug", "title": f"{what}_title", **{name: name for name in names(kind, "archive")}}
    ids = {group["slug"]: str(group["id"]) for group in groups if group.get("slug")}
    derived: dict[str | None, Record] = {}
    markets_of: dict[str | None, list[Record]] = {}
    for market in new:
        identity = _group_of(what, ids, market)
        if identity is not None and identity not in derived:
            derived[identity] = read(kind, {"id": identity, "slug": market.get(f"{what}_slug")})
    for market in every or new:
        identity = _group_of(what, ids, market)
        if identity in derived:
            markets_of.setdefault(identity, []).append(market)
            group = derived[identity]
            group |= {name: group.get(name) or market.get(source) for name, source in copied.items()}
    for identity, group in derived.items():
        markets = markets_of.get(identity, [])
        for name, choose in (("start_date", min), ("end_date", max)):
            group[name] = choose((m[name] for m in markets if m.get(name)), default=None)
        if kind == "events":
            states = {m.get("status") for m in markets}
            group["tags"] = list(dict.fromkeys(tag for m in markets for tag in m.get("tags") or ()))
            group["status"] = states.pop() if len(states) == 1 else "active"
    return list(derived.values())


def _group_of(what: str, ids: Mapping[str, str], record: Record) -> str | None:
    """The id of the event or series of a market; its slug where the id is not known."""
    identity, slug = record.get(f"{what}_id"), record.get(f"{what}_slug")
    return identity if identity is not None else ids.get(slug, slug) if slug is not None else None
