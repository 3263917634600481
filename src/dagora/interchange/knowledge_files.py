"""Prior knowledge in files: Tetrad's text, and a CSV of one statement a line.

    /knowledge                       required,age,pressure
    addtemporal                      forbidden,pressure,salt
    1 age sex                        tier,1,age
    2* salt pressure                 tier,1,sex
    forbiddirect                     tier,2,salt
    pressure salt                    tier,2,pressure
    requiredirect                    forbidden-within,2
    age pressure

In Tetrad's, a star after its number forbids edges within a tier, and blanks separate: a name with one, or with a
percent sign, has it as %20 or %25, as in Tetrad's graphs (tetrad.py).
"""

import csv
import io
import os
import re
from pathlib import Path
from urllib.parse import unquote

from dagora.cells import bare, write_rows
from dagora.errors import InputError
from dagora.files import write_text
from dagora.knowledge import Edge, Knowledge

_HEADER = "/knowledge"
_SECTIONS = ("addtemporal", "forbiddirect", "requiredirect")
_FORMS = "required,A,B or forbidden,A,B or tier,NUMBER,A or forbidden-within,NUMBER"
_TIER = re.compile(r"([1-9][0-9]{0,3})(\*?)")
_MOST_TIERS = 9999
_SPECIAL = re.compile(r"[%\s]")


def read_knowledge(path: str | os.PathLike[str]) -> Knowledge:
    """Read either kind of file; its first line tells which it is."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"there is no file {str(path)!r} of knowledge; check the path") from None
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{str(path)!r} cannot be read as text; check the path") from None
    where = f"{str(path)!r}"
    try:
        return parse_tetrad(text, where) if text.lstrip().startswith(_HEADER) else parse_csv(text, where)
    except InputError as error:  # contradictions are found by whoever has it all together
        told = str(error)
        raise InputError(told if told.startswith(where) else f"{where}: {told.removeprefix('knowledge: ')}") from None


def known_as_text(source: Knowledge | str | os.PathLike[str] | None) -> str | None:
    """Knowledge, or what a file holds of it, as the lines of a CSV file, which travel in messages and results."""
    if source is None:
        return None
    if not isinstance(source, Knowledge | str | os.PathLike):
        raise InputError("knowledge: must be a dagora.Knowledge or the path of a file; see docs/knowledge.md")
    return write_csv(source if isinstance(source, Knowledge) else read_knowledge(source))


def write_knowledge(knowledge: Knowledge, path: str | os.PathLike[str]) -> Path:
    """Write a file, whole or not at all; its name's end tells which kind."""
    path = Path(path)
    writers = {".csv": write_csv, ".txt": write_tetrad, ".tetrad": write_tetrad}
    if path.suffix.lower() not in writers:
        raise InputError(f"{str(path)!r}: the format is not known by the file's name; name one of {', '.join(writers)}")
    return write_text(path, writers[path.suffix.lower()](knowledge))


def write_csv(knowledge: Knowledge) -> str:
    """A statement a line; the same knowledge gives the same text."""
    out = io.StringIO()
    write_rows(out, (("required", *edge) for edge in knowledge.required))
    write_rows(out, (("forbidden", *edge) for edge in knowledge.forbidden))
    write_rows(out, (("tier", number, name) for number, tier in enumerate(knowledge.tiers, start=1) for name in tier))
    write_rows(out, (("forbidden-within", number) for number in knowledge.forbidden_within))
    return out.getvalue()


def parse_csv(text: str, where: str = "knowledge") -> Knowledge:
    """The opposite.  Blank lines and lines that start with # say nothing."""
    edges: dict[str, list[Edge]] = {"required": [], "forbidden": []}
    tiers: dict[int, list[str]] = {}
    within = []
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        for row in rows:
            match [cell.strip() for cell in row]:
                case [("required" | "forbidden") as kind, source, target] if source and target:
                    edges[kind].append((bare(source), bare(target)))
                case ["tier", number, name] if name and _is_tier(number):
                    tiers.setdefault(int(number), []).append(bare(name))
                case ["forbidden-within", number] if _is_tier(number):
                    within.append(int(number))
                case cells if any(cells) and not cells[0].startswith("#"):
                    raise InputError(f"{where}, line {rows.line_num}: is not {_FORMS}; correct it")
    except csv.Error:
        raise InputError(f"{where}, line {rows.line_num}: cannot be read as CSV; correct it") from None
    return Knowledge(tuple(edges["required"]), tuple(edges["forbidden"]), _in_order(tiers), tuple(within))


def write_tetrad(knowledge: Knowledge) -> str:
    """As Tetrad writes it."""
    tiers = []
    for number, tier in enumerate(knowledge.tiers, start=1):
        star = "*" if number in knowledge.forbidden_within else ""
        tiers.append(" ".join([f"{number}{star}", *map(_escaped, tier)]))
    lines = [_HEADER, "", "addtemporal", *tiers]
    for section, edges in (("forbiddirect", knowledge.forbidden), ("requiredirect", knowledge.required)):
        lines += ["", section, *(f"{_escaped(source)} {_escaped(target)}" for source, target in edges)]
    return "\n".join([*lines, ""])


def parse_tetrad(text: str, where: str) -> Knowledge:
    """Tiers and single edges; groups, and tiers that act on the next one only, are refused."""
    edges: dict[str, list[Edge]] = {"forbiddirect": [], "requiredirect": []}
    tiers: dict[int, list[str]] = {}
    within = []
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        words = [unquote(word) for word in line.split()]
        if not words or words[0] == _HEADER or line.lstrip().startswith("//"):
            continue
        if len(words) == 1 and not (section == "addtemporal" and _TIER.fullmatch(words[0])):
            if words[0].lower() not in _SECTIONS:
                raise InputError(f"{where}, line {number}: {words[0]!r} is none of {', '.join(_SECTIONS)}; remove it")
            section = words[0].lower()
        elif section == "addtemporal":
            tier = _TIER.fullmatch(words[0])
            if tier is None:
                raise InputError(f"{where}, line {number}: is not a tier's number and its variables; correct it")
            tiers.setdefault(int(tier[1]), []).extend(words[1:])
            within += [int(tier[1])] if tier[2] else []
        elif section == "" or len(words) != 2:
            what = "stands before any section" if section == "" else "is not a pair of variables"
            raise InputError(f"{where}, line {number}: {what}; correct it")
        else:
            edges[section].append((words[0], words[1]))
    used = [number for number in within if tiers[number]]  # Tetrad may forbid edges within a tier of none
    return Knowledge(tuple(edges["requiredirect"]), tuple(edges["forbiddirect"]), _in_order(tiers), tuple(used))


def _is_tier(number: str) -> bool:
    return number.isascii() and number.isdecimal() and 1 <= int(number[:5]) <= _MOST_TIERS


def _in_order(tiers: dict[int, list[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(tiers.get(number, ())) for number in range(1, max(tiers, default=0) + 1))


def _escaped(name: str) -> str:
    return _SPECIAL.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), name)
