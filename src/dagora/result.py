"""What a run gives back."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import networkx as nx
import numpy as np

from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.confidence import Confidence
from dagora.data.tables import Source, open_table
from dagora.errors import InputError
from dagora.federated.protocol import Functions
from dagora.federated.run import Departure
from dagora.files import (
    plain,
    write_confidence,
    write_edges,
    write_files,
    write_lag_matrices,
    write_lagged_edges,
    write_matrix,
)
from dagora.gaussian_network import GaussianNetwork
from dagora.graphs import ARROW, UNDIRECTED, dag_to_cpdag
from dagora.interchange.knowledge_files import parse_csv
from dagora.interchange.libraries import to_causallearn, to_networkx, to_pgmpy
from dagora.interchange.named import NamedGraph
from dagora.interchange.registry import write_graph
from dagora.knowledge import Constraints, Knowledge


class Effect(NamedTuple):
    """A curve: the source's values, and what is expected of the target there."""

    values: FloatArray
    expected: FloatArray


@dataclass(frozen=True, eq=False)
class Result:
    """A learned network: its graph, how it was reached, and what left the sites on the way.

    >>> truth, sites = dagora.simulate(d=4, edges=3, n=800, sites=4, seed=3)
    >>> result = dagora.learn(sites, method="covariance")
    >>> for source, target, weight in result.edges():
    ...     print(f"{source} -> {target} {weight:+.1f}")
    x3 -> x4 +2.0
    x2 -> x4 +0.9
    x3 -> x1 +0.5
    >>> result.undirected()  # directions that the data leave open
    [('x1', 'x3')]
    >>> result.network is not None  # with method "admm", ask for it: refit=True
    True
    """

    weights: FloatArray  # [i, j] is the effect of variable i on variable j, before any thresholding
    adjacency: IntArray  # 0/1 after thresholding: always a DAG
    names: tuple[str, ...]
    history: tuple[Mapping[str, float], ...]  # one entry a round
    ledger: tuple[Departure, ...]  # what left the sites, by phase
    seconds: float
    settings: Mapping[str, Any]
    site_rows: Mapping[str, int]  # none under differential privacy, which covers counts, too
    warnings: tuple[str, ...] = ()
    removed: tuple[tuple[int, int], ...] = ()  # edges above the threshold, dropped because they closed a cycle
    extras: Mapping[str, FloatArray] = field(default_factory=dict)
    sites: tuple[str, ...] = ()
    identified: IntArray | None = None  # the class, as a learner of classes gave it; see `cpdag`
    lag_weights: FloatArray | None = None  # (p, d, d): [l - 1, i, j], the effect of i, l steps before, on j
    lag_adjacency: IntArray | None = None  # 0/1 after thresholding; None, like its weights, unless data are series
    sortability: Mapping[str, float] = field(default_factory=dict)  # how far directions follow scale (sortability.py)
    functions: Functions | None = None  # what each variable is of its parents, by a nonlinear model
    network: GaussianNetwork | None = None  # the graph with its parameters (`refit`), to sample from and to query
    confidence: Confidence | None = None  # how often edges were found in rows drawn again (`bootstrap`)

    @property
    def rounds(self) -> int:
        """Exchanges between the coordinator and the sites, setup included."""
        return len(self.history)

    @property
    def sent(self) -> int:
        """Bytes that left the sites, over all of them."""
        return sum(entry.sent for entry in self.ledger)

    @property
    def received(self) -> int:
        """Bytes that the sites were sent, over all of them."""
        return sum(entry.received for entry in self.ledger)

    @property
    def cpdag(self) -> IntArray:
        """The graph's equivalence class: 1 for a compelled arrow i -> j, -1 (once, i < j) for an undirected edge.

        From learners of classes, what they identified (with PC, or by voting, in rare cases the class of no DAG;
        `warnings` then says so); else the class of `adjacency`.  Of a class, only members that keep to prior knowledge
        count, so that it may direct more edges.
        """
        if self.identified is not None:
            return self.identified
        cpdag = dag_to_cpdag(self.adjacency)
        kept = None if self.constraints is None else self.constraints.of_class(cpdag)
        return cpdag if kept is None else kept

    @cached_property
    def knowledge(self) -> Knowledge | None:
        """What was known before learning, and the graph keeps to."""
        text = self.settings.get("knowledge")
        return None if text is None else parse_csv(text)

    @cached_property
    def constraints(self) -> Constraints | None:
        """The same as arrays over the variables."""
        return None if self.knowledge is None else self.knowledge.constraints(self.names)

    @property
    def known_directions(self) -> BoolArray:
        """[i, j]: the direction of the edge i -> j was known before."""
        if self.constraints is None:
            return np.zeros(self.adjacency.shape, dtype=bool)
        return self.constraints.known(self.adjacency == 1)

    def edges(self) -> list[tuple[str, str, float]]:
        """(source, target, weight) of every edge, the largest |weight| first."""
        found = [
            (self.names[i], self.names[j], float(self.weights[i, j]))
            for i, j in zip(*self.adjacency.nonzero(), strict=True)
        ]
        return sorted(found, key=lambda edge: -abs(edge[2]))

    def lagged_edges(self) -> list[tuple[str, str, int, float]]:
        """(source, target, lag, weight) of every effect from an earlier time, the largest |weight| first."""
        if self.lag_weights is None or self.lag_adjacency is None:
            return []
        found = [
            (self.names[i], self.names[j], lag + 1, float(self.lag_weights[lag, i, j]))
            for lag, i, j in np.argwhere(self.lag_adjacency).tolist()
        ]
        return sorted(found, key=lambda edge: -abs(edge[3]))

    def undirected(self) -> list[tuple[str, str]]:
        """Pairs joined by an edge whose direction the learner leaves open; none from methods that claim them all."""
        if self.identified is None:
            return []
        return [(self.names[i], self.names[j]) for i, j in np.argwhere(self.identified == UNDIRECTED).tolist()]

    def predict(self, data: Source) -> FloatArray:
        """Expected values (n, d) of all variables, each given its parents in that row; of a root, its mean.

        data: rows of all variables, an array with columns as in `names`, a data frame or a file.
        """
        functions = self._fitted()
        table = open_table("data", data, self.names if isinstance(data, np.ndarray) else None)
        return np.concatenate([functions.predict(rows) for rows in table.chunks(self.names)])

    def effect(self, source: str, target: str, values: Sequence[float] | FloatArray | None = None) -> Effect:
        """What the target is expected to be as the source runs over values, its other parents at their means.

        values: by default 101 from two standard deviations below the mean of the source to two above.
        """
        functions = self._fitted()
        for name in (source, target):
            if name not in self.names:
                raise InputError(f"there is no variable {name!r}; choose from {', '.join(self.names)}")
        i, j = self.names.index(source), self.names.index(target)
        if not self.adjacency[i, j]:
            raise InputError(f"there is no edge {source!r} -> {target!r}; see edges()")
        centre, reach = functions.centre[i], 2.0 * functions.scale[i]
        at = np.linspace(centre - reach, centre + reach, 101) if values is None else _finite_list(values)
        rows = np.tile(functions.centre, (len(at), 1))
        rows[:, i] = at
        return Effect(at, functions.predict(rows)[:, j])

    def _fitted(self) -> Functions:
        if self.functions is None:
            raise InputError(
                "this result has no fitted functions; learn with model 'additive' (methods 'covariance', 'pooled'), "
                "'mlp' or 'masked' (methods 'admm', 'pooled') and preset 'default'"
            )
        return self.functions

    def graph(self) -> "nx.DiGraph[str]":
        """The network as a networkx graph with edge weights."""
        return to_networkx(self.named())

    def named(self, cpdag: bool = False) -> NamedGraph:
        """The graph with its names, as files and other libraries take it; of its class, if `cpdag`."""
        graph = NamedGraph(np.where(self.adjacency, self.weights, 0.0), self.names, self.lag_weights)
        return graph.with_marks(self.cpdag) if cpdag else graph

    def export(self, path: str | os.PathLike[str], format: str | None = None, cpdag: bool = False) -> Path:
        """Write the graph for another tool: .graphml, .dot, .dagitty, .txt (Tetrad), .json or .csv.

        format: its name, where the file's does not tell.  cpdag: the equivalence class instead of the DAG.
        """
        return write_graph(self.named(cpdag), path, format)

    def report(self, path: str | os.PathLike[str], title: str = "Learned network") -> Path:
        """Write one page, a file of its own: the graph to explore, edges, convergence, and what left the sites."""
        from dagora.report.html import write_report  # reads this module

        return write_report(self, path, title)

    def plot(self, axes: Any = None) -> Any:
        """Draw the network with matplotlib, on given axes or in a new figure; the axes."""
        from dagora.report.figures import draw_network  # matplotlib is slow to import

        return draw_network(self, axes)

    def _repr_html_(self) -> str:
        """The report, where a notebook shows a result."""
        from dagora.report.html import page

        return f'<iframe srcdoc="{escape(page(self))}" style="width:100%;height:46rem;border:0"></iframe>'

    def to_causallearn(self, cpdag: bool = False) -> Any:
        """The graph, or its class, as a GeneralGraph of causal-learn."""
        return to_causallearn(self.named(cpdag).without_lags("causal-learn's graph"))

    def to_pgmpy(self) -> Any:
        """The network with its parameters, as a LinearGaussianBayesianNetwork of pgmpy."""
        if self.network is None:
            raise InputError("this result has no parameters; learn model 'linear' with refit=True")
        return to_pgmpy(self.network)

    def summary(self) -> dict[str, Any]:
        """All but the matrices, for machines."""
        lagged = [{"source": s, "target": t, "lag": lag, "weight": w} for s, t, lag, w in self.lagged_edges()]
        return {
            "settings": dict(self.settings),
            "names": list(self.names),
            "edges": [{"source": s, "target": t, "weight": w} for s, t, w in self.edges()],
            **({} if self.lag_weights is None else {"lagged_edges": lagged}),
            **({} if self.network is None else {"parameters": self.network.summary()}),
            **({} if self.confidence is None else {"confidence": self._frequencies(self.confidence)}),
            "undirected": [list(pair) for pair in self.undirected()],
            "class": [
                {"source": self.names[i], "target": self.names[j], "directed": bool(self.cpdag[i, j] == ARROW)}
                for i, j in np.argwhere(self.cpdag).tolist()
            ],
            "sortability": dict(self.sortability),
            "removed_to_break_cycles": [[self.names[i], self.names[j]] for i, j in self.removed],
            "warnings": list(self.warnings),
            "rounds": self.rounds,
            "seconds": self.seconds,
            "bytes_sent_by_sites": self.sent,
            "bytes_received_by_sites": self.received,
            "sites": list(self.sites),
            "site_rows": dict(self.site_rows),
            "left_the_sites": [
                {
                    "phase": entry.phase,
                    "totals_of": {name: list(shape) for name, shape in entry.fields.items()},
                    "rounds": entry.rounds,
                    "bytes": entry.sent,
                }
                for entry in self.ledger
            ],
            "history": [dict(entry) for entry in self.history],
        }

    def _frequencies(self, found: Confidence) -> dict[str, Any]:
        lagged = [
            {"source": s, "target": t, "lag": lag, "arrow": share}
            for s, t, lag, share in found.lagged_frequencies(self.names)
        ]
        return {
            "replicates": found.replicates,
            "failed": found.failed,
            "edges": [pair._asdict() for pair in found.frequencies(self.names)],
            **({} if found.lagged is None else {"lagged_edges": lagged}),
        }

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write edges.csv, weights.csv and result.json, whole or not at all.

        Of time series also lag_weights.csv; where there are frequencies, confidence.csv.
        """
        past = {} if self.lag_weights is None else {"lag_weights.csv": self._write_lag_weights}
        sure = {} if self.confidence is None else {"confidence.csv": self._write_confidence}
        return write_files(
            folder,
            {
                "edges.csv": self._write_edges,
                "weights.csv": self._write_weights,
                **past,
                **sure,
                "result.json": self._write_json,
            },
        )

    def _write_edges(self, out: TextIO) -> None:
        if self.lag_weights is None:
            write_edges(out, self.edges())
        else:
            write_lagged_edges(out, [(s, t, 0, w) for s, t, w in self.edges()] + self.lagged_edges())

    def _write_lag_weights(self, out: TextIO) -> None:
        assert self.lag_weights is not None
        write_lag_matrices(out, self.names, self.lag_weights)

    def _write_confidence(self, out: TextIO) -> None:
        assert self.confidence is not None
        pairs = self.confidence.frequencies(self.names)
        past = self.confidence.lagged_frequencies(self.names)
        write_confidence(out, pairs, past if self.confidence.lagged is not None else None)

    def _write_weights(self, out: TextIO) -> None:
        write_matrix(out, self.names, self.weights)

    def _write_json(self, out: TextIO) -> None:
        # JSON has no infinity: what is not known yet in a round becomes null.
        json.dump(plain(self.summary()), out, indent=2, allow_nan=False)
        out.write("\n")


def _finite_list(values: Sequence[float] | FloatArray) -> FloatArray:
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.ndim != 1 or found.size == 0 or not np.isfinite(found).all():
        raise InputError("values: must be a list of finite numbers")
    return found
