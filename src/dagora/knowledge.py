"""What is known before learning: edges that must be there, edges that cannot be, and tiers of variables in time.

`Knowledge` speaks of variables by name, is checked as it is made, and names what contradicts itself.  `Constraints` are
the same for a list of variables, as arrays: what learners, sites and the server keep to.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.data.wording import listing
from dagora.errors import InputError
from dagora.graphs import (
    ARROW,
    closest_extension,
    descendants,
    restricted_class,
    skeleton,
    strong_components,
    without_known_cycles,
)

Edge = tuple[str, str]


@dataclass(frozen=True)
class Knowledge:
    """Prior knowledge of a network, for `learn(sites, knowledge=...)`.

    required, forbidden: edges (source, target).  tiers: groups of variables in the order in which they come about; no
    variable of a later tier is a cause of one of an earlier tier.  forbidden_within: the numbers, from 1, of tiers in
    which no variable is a cause of another.  What the tiers do not mention they leave free.

    >>> known = dagora.Knowledge(required=[("x1", "x2")], tiers=[["x1"], ["x2", "x3"]])
    >>> print(known)
    required x1 -> x2; tiers x1 | x2, x3
    >>> truth, sites = dagora.simulate(d=3, edges=2, n=300, sites=3, seed=0)
    >>> result = dagora.learn(sites, knowledge=known)
    >>> int(result.adjacency[0, 1]), int(result.adjacency[1:, 0].sum())
    (1, 0)
    """

    # Any lists do; they are kept as tuples, each entry once.
    required: Sequence[Sequence[str]] = ()
    forbidden: Sequence[Sequence[str]] = ()
    tiers: Sequence[Sequence[str]] = ()
    forbidden_within: Sequence[int] = ()

    def __post_init__(self) -> None:
        edges = {kind: _edges(kind, getattr(self, kind)) for kind in ("required", "forbidden")}
        tiers = [_names(f"tier {number}", tier) for number, tier in enumerate(_listed("tiers", self.tiers), start=1)]
        while tiers and not tiers[-1]:
            tiers.pop()
        numbers = _listed("forbidden_within", self.forbidden_within)
        if not all(isinstance(number, int) for number in numbers):
            raise InputError("knowledge: forbidden_within must hold numbers of tiers, from 1; see docs/knowledge.md")
        within = tuple(sorted(set(numbers)))
        for name, value in {**edges, "tiers": tuple(tiers), "forbidden_within": within}.items():
            object.__setattr__(self, name, value)
        self._check_tiers()
        self._check_edges()

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Knowledge":
        """From a file: Tetrad's (/knowledge) or a CSV with lines such as required,a,b and tier,1,a."""
        from dagora.interchange.knowledge_files import read_knowledge  # reads this module

        return read_knowledge(path)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a file: .csv, or .txt and .tetrad for Tetrad."""
        from dagora.interchange.knowledge_files import write_knowledge

        return write_knowledge(self, path)

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return any(getattr(self, field.name) for field in fields(self))

    @cached_property
    def tier_of(self) -> dict[str, int]:
        """The number of each variable's tier, from 1."""
        return {name: number for number, tier in enumerate(self.tiers, start=1) for name in tier}

    def constraints(self, names: Sequence[str]) -> "Constraints":
        """As arrays over these variables."""
        mentioned = [name for edge in (*self.required, *self.forbidden) for name in edge] + list(self.tier_of)
        for name in mentioned:
            if name not in names:
                raise InputError(f"knowledge: there is no variable {name!r}; choose from {listing(names, most=10)}")
        index = {name: position for position, name in enumerate(names)}
        required, forbidden = np.zeros((2, len(names), len(names)), dtype=bool)
        for kind, edges in ((required, self.required), (forbidden, self.forbidden)):
            for source, target in edges:
                kind[index[source], index[target]] = True
        tier = np.array([self.tier_of.get(name, 0) for name in names])
        forbidden |= (tier[:, None] > tier) & (tier > 0)
        forbidden |= (tier[:, None] == tier) & np.isin(tier, self.forbidden_within)
        # What required edges lead to leads not back.
        forbidden |= descendants(required).T
        return Constraints(forbidden, required)

    def __str__(self) -> str:
        """In words, on one line."""
        parts = []
        for kind in ("required", "forbidden"):
            edges = [f"{source} -> {target}" for source, target in getattr(self, kind)]
            parts += [f"{kind} {_first(edges)}"] if edges else []
        if self.tiers:
            closed = ("" if number not in self.forbidden_within else " (none within)" for number in self._numbers)
            told = [f"{_first(tier)}{note}" for tier, note in zip(self.tiers, closed, strict=True)]
            parts.append(f"tiers {' | '.join(told)}")
        return "; ".join(parts)

    @property
    def _numbers(self) -> range:
        return range(1, len(self.tiers) + 1)

    def _check_tiers(self) -> None:
        for number, tier in enumerate(self.tiers, start=1):
            for name in tier:
                if self.tier_of[name] != number:
                    raise InputError(f"knowledge: {name!r} is in tiers {number} and {self.tier_of[name]}; choose one")
        for number in self.forbidden_within:
            if number not in self._numbers or not self.tiers[number - 1]:
                raise InputError(f"knowledge: forbidden within tier {number!r}, which is not there; check its number")

    def _check_edges(self) -> None:
        tier_of, forbidden = self.tier_of, set(self.forbidden)
        for source, target in (*self.required, *self.forbidden):
            if source == target:
                raise InputError(f"knowledge: {source!r} -> {source!r} leads from a variable to itself; remove it")
        for source, target in self.required:
            edge, first, last = f"{source!r} -> {target!r}", tier_of.get(source, 0), tier_of.get(target, 0)
            if (source, target) in forbidden:
                raise InputError(f"knowledge: {edge} is both required and forbidden; remove one")
            if first > last > 0:
                raise InputError(
                    f"knowledge: {edge} is required, but leads from tier {first} back to tier {last}; remove it"
                )
            if first == last and first in self.forbidden_within:
                raise InputError(f"knowledge: {edge} is required, but edges within tier {first} are forbidden; choose")
        graph = nx.DiGraph(list(self.required))
        if not nx.is_directed_acyclic_graph(graph):
            cycle = [source for source, _ in nx.find_cycle(graph)]
            way = " -> ".join(map(repr, [*cycle, cycle[0]]))
            raise InputError(f"knowledge: the required edges {way} form a cycle; remove one of them")


@dataclass(frozen=True, eq=False)
class Constraints:
    """Knowledge about d variables: (d, d) arrays, [i, j] for the edge i -> j.

    forbidden: no edge, also because required edges lead the other way, or because i = j.  required: an edge, of any
    weight.
    """

    forbidden: BoolArray
    required: BoolArray

    @classmethod
    def none(cls, d: int) -> "Constraints":
        """Nothing is known, but that no variable is its own cause."""
        return cls(np.eye(d, dtype=bool), np.zeros((d, d), dtype=bool))

    @property
    def permitted(self) -> BoolArray:
        """Edges that may be there."""
        permitted: BoolArray = ~self.forbidden
        return permitted

    @cached_property
    def blocks(self) -> list[IntArray]:
        """Groups of variables, earlier ones first, between which all directions are known: cycles are within groups."""
        return strong_components(self.permitted)

    @property
    def ordered(self) -> bool:
        """Whether they leave no direction open."""
        return len(self.blocks) == len(self.required)

    def prices(self, lam: float) -> float | FloatArray:
        """The price of each weight: required edges have none."""
        return np.where(self.required, 0.0, lam) if self.required.any() else lam

    def within(self, variables: IntArray) -> "Constraints":
        """The same for some of the variables."""
        some = np.ix_(variables, variables)
        return Constraints(self.forbidden[some], self.required[some])

    def known(self, joined: BoolArray) -> BoolArray:
        """Of pairs that an edge joins, the arrows whose other direction is forbidden."""
        known: BoolArray = joined & self.forbidden.T & ~self.forbidden
        return known

    @cached_property
    def relaxed(self) -> "Constraints":
        """The order of blocks and required edges alone: where a search that would get stuck between forbidden edges
        may start.
        """
        block = np.empty(len(self.required), dtype=np.int64)
        for place, members in enumerate(self.blocks):
            block[members] = place
        return Constraints((block[:, None] > block) | descendants(self.required).T, self.required)

    def of_class(self, cpdag: IntArray) -> IntArray | None:
        """What is left of an equivalence class, as a PDAG; None if nothing is."""
        return restricted_class(cpdag, self.forbidden, self.required)

    def satisfied(self, edges: BoolArray) -> bool:
        """Whether a graph keeps to them."""
        return not (edges & self.forbidden).any() and bool(edges[self.required].all())

    def member(self, cpdag: IntArray, strength: FloatArray) -> IntArray:
        """A DAG with the skeleton of a class, but for edges in the way, that has no forbidden edge.

        strength: which edge goes where those whose direction is known make a cycle.
        """
        joined = skeleton(cpdag) == 1
        joined &= self.permitted | self.permitted.T
        arrows = self.known(joined)
        pdag = np.where(arrows, ARROW, np.where(joined & ~arrows.T, cpdag, 0))
        pdag, _ = without_known_cycles(pdag, strength, arrows, self.required)
        return closest_extension(pdag, strength, self.known(skeleton(pdag) == 1))


def _listed(what: str, found: Any) -> list[Any]:
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise InputError(f"knowledge: {what} must be a list; see docs/knowledge.md")
    return list(found)


def _names(what: str, found: Any) -> tuple[str, ...]:
    names = _listed(what, found)
    if not all(isinstance(name, str) and name for name in names):
        raise InputError(f"knowledge: {what} must hold names of variables; see docs/knowledge.md")
    return tuple(dict.fromkeys(names))


def _edges(what: str, found: Any) -> tuple[Edge, ...]:
    edges = [_listed(what, edge) for edge in _listed(what, found)]
    if not all(len(edge) == 2 and all(isinstance(name, str) and name for name in edge) for edge in edges):
        raise InputError(f"knowledge: {what} must be a list of pairs (source, target) of names; see docs/knowledge.md")
    return tuple(dict.fromkeys((source, target) for source, target in edges))


def _first(items: Sequence[str], most: int = 8) -> str:
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
