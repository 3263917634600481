"""What sites agree on before a number is sent: the columns' names and kinds, and their order."""

import json
from collections.abc import Mapping
from hashlib import sha256

from dagora.data.wording import listing, place
from dagora.errors import InputError, MessageError

_KIND = "number"  # all that a column of a Dagora table can be


def schema_hash(names: tuple[str, ...]) -> str:
    """One hash for names, kinds and order."""
    return sha256(json.dumps([[name, _KIND] for name in names]).encode()).hexdigest()


def agreed(columns: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The order of the first site, if all have the same columns; else an error that names a site and its columns."""
    (first, names), *others = columns.items()
    for site, own in others:
        check_columns(site, own, names, f"site {first!r}")
    return names


def check_columns(site: str, own: tuple[str, ...], asked: tuple[str, ...], whose: str) -> None:
    """Whether a site has the columns, in whatever order."""
    lacks = [name for name in asked if name not in own]
    adds = [name for name in own if name not in asked]
    parts = [f"{verb} column {listing(names)}" for verb, names in (("lacks", lacks), ("adds", adds)) if names]
    if parts:
        raise InputError(
            f"{place(site)}: {' and '.join(parts)}, compared with {whose}; give all sites the same columns"
        )


def names_from(text: str) -> tuple[str, ...]:
    """Names as they travel: a list of texts."""
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise MessageError("message refused: a list of names in it is none")
    return tuple(names)
