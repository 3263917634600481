"""How far an estimated graph is from the true one."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from dagora.adjustment import structural_intervention_distance
from dagora.arrays import BoolArray, IntArray
from dagora.errors import InputError
from dagora.graphs import ARROW, UNDIRECTED, dag_to_cpdag, is_dag


class HasAdjacency(Protocol):
    """A result or a truth: its adjacency, and possibly `.names`."""

    @property
    def adjacency(self) -> IntArray:
        """(d, d) array: 1 for an arrow i -> j, -1 (once) for an undirected edge."""


Graph = HasAdjacency | npt.ArrayLike


def evaluate(truth: Graph, estimate: Graph) -> dict[str, float | int]:
    """Compare a true DAG with an estimate: 0/1, cycles allowed, or a CPDAG with -1 once an undirected edge.

    Graphs with `.names` are matched by name.  A ratio over nothing is 0, as in NOTEARS; `cpdag_shd` and `sid`
    are NaN where they are not defined (a cyclic estimate; `sid` also for a CPDAG).  If both have a
    `lag_adjacency`, effects of earlier times are scored, too, under names that begin with "lag_".

    >>> chain = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]])  # x1 -> x2 -> x3
    >>> found = np.array([[0, 0, 0], [1, 0, 1], [0, 0, 0]])  # x1 <- x2 -> x3
    >>> scores = dagora.evaluate(chain, found)
    >>> scores["shd"], scores["skeleton_f1"], scores["cpdag_shd"]  # one arrow is turned; the class is the same
    (1, 1.0, 0)
    """
    true_graph = _as_graph(truth, "truth", {0, ARROW})
    if not is_dag(true_graph):
        raise InputError("The true graph has a cycle; give a DAG.")
    graph = _as_graph(estimate, "estimate", {0, ARROW, UNDIRECTED})
    order = _matching_order(truth, estimate)
    if true_graph.shape != graph.shape:
        raise InputError(f"The truth has {len(true_graph)} variables, the estimate {len(graph)}; use the same.")
    if order is not None:
        graph = graph[np.ix_(order, order)]
    return (
        _edge_errors(true_graph == ARROW, graph == ARROW, graph == UNDIRECTED)
        | _arrow_scores(true_graph == ARROW, graph == ARROW)
        | _skeleton_scores(true_graph, graph)
        | _causal_distances(true_graph, graph, _identified(estimate, order))
        | {"edges": _count(graph), "true_edges": _count(true_graph)}
        | _lag_scores(truth, estimate, order)
    )


def _edge_errors(true: BoolArray, arrows: BoolArray, undirected: BoolArray) -> dict[str, float | int]:
    """SHD, TPR, FDR and FPR as in NOTEARS: an undirected edge is right if either direction is true."""
    joined = true | true.T
    present = arrows | undirected
    right = _count(arrows & true) + _count(undirected & joined)
    backward = _count(arrows & ~true & true.T)
    wrong = backward + _count(present & ~joined)
    d, true_edges = len(true), _count(true)
    return {
        "shd": _count(_pairs(present) != _pairs(true)) + backward,
        "tpr": _ratio(right, true_edges),
        "fdr": _ratio(wrong, _count(present)),
        "fpr": _ratio(wrong, d * (d - 1) // 2 - true_edges),
    }


def _arrow_scores(true: BoolArray, arrows: BoolArray) -> dict[str, float | int]:
    """Precision, recall and F1 of the arrows; unlike TPR, no credit for an undirected edge."""
    return _scores(_count(arrows & true), _count(arrows), _count(true))


def _skeleton_scores(true: IntArray, graph: IntArray) -> dict[str, float | int]:
    """Precision, recall and F1 of the pairs joined, whatever the direction."""
    true_pairs, pairs = _pairs(true != 0), _pairs(graph != 0)
    scores = _scores(_count(true_pairs & pairs), _count(pairs), _count(true_pairs))
    return {f"skeleton_{name}": score for name, score in scores.items()}


def _lag_scores(truth: Graph, estimate: Graph, order: list[int] | None) -> dict[str, float | int]:
    """Of effects of earlier times, lag by lag; time gives their directions, so that an edge is there or not.

    An estimate that reaches back less far has no effects there.
    """
    true, found = (getattr(graph, "lag_adjacency", None) for graph in (truth, estimate))
    if true is None or found is None:
        return {}
    if found.ndim != 3 or found.shape[1:] != true.shape[1:]:
        raise InputError("The lagged effects of truth and estimate differ in shape; give (lags, d, d) arrays.")
    if order is not None:
        found = found[:, order][:, :, order]
    lags = max(len(true), len(found))
    both = np.zeros((2, lags, *true.shape[1:]), dtype=bool)
    both[0, : len(true)], both[1, : len(found)] = true != 0, found != 0
    hits, wrong = _count(both[0] & both[1]), _count(both[1] & ~both[0])
    scores = {
        "shd": _count(both[0] != both[1]),
        "tpr": _ratio(hits, _count(both[0])),
        "fdr": _ratio(wrong, _count(both[1])),
        **_scores(hits, _count(both[1]), _count(both[0])),
        "edges": _count(both[1]),
        "true_edges": _count(both[0]),
    }
    return {f"lag_{name}": score for name, score in scores.items()}


def _identified(estimate: Graph, order: list[int] | None) -> IntArray | None:
    """The class that a result's learner has identified, in the order of the truth's variables."""
    cpdag = getattr(estimate, "identified", None)
    if cpdag is None or order is None:
        return cpdag
    matched: IntArray = _two_way(cpdag)[np.ix_(order, order)]
    return matched


def _causal_distances(true: IntArray, graph: IntArray, identified: IntArray | None) -> dict[str, float | int]:
    """Distance of the equivalence classes (that which the learner has identified), and SID (of the DAG)."""
    sid: float | int = float("nan")
    if not is_dag(graph == ARROW):
        return {"cpdag_shd": float("nan"), "sid": sid}
    if (graph == UNDIRECTED).any():
        found = graph
    else:
        found = dag_to_cpdag(graph) if identified is None else identified
        sid = structural_intervention_distance(true, graph)
    return {"cpdag_shd": _cpdag_distance(dag_to_cpdag(true), found), "sid": sid}


def _cpdag_distance(first: IntArray, second: IntArray) -> int:
    """Number of vertex pairs whose relation (none, ->, <-, undirected) differs."""
    return _count(_pairs(_two_way(first) != _two_way(second)))


def _two_way(cpdag: IntArray) -> IntArray:
    """The same CPDAG with each undirected edge at both [i, j] and [j, i]."""
    undirected = cpdag == UNDIRECTED
    return np.where(undirected | undirected.T, UNDIRECTED, cpdag)


def _pairs(present: BoolArray) -> BoolArray:
    """The lower triangle of the symmetric closure; with its diagonal, where a self-loop counts as an edge."""
    return np.tril(present | present.T)


def _scores(hits: int, found: int, wanted: int) -> dict[str, float | int]:
    # F1 = 2 P R / (P + R) = 2 hits / (found + wanted), which needs no care when P + R = 0.
    return {
        "precision": _ratio(hits, found),
        "recall": _ratio(hits, wanted),
        "f1": _ratio(2 * hits, found + wanted),
    }


def _count(entries: npt.NDArray[np.bool_ | np.int64]) -> int:
    return int(np.count_nonzero(entries))


def _ratio(part: int, whole: int) -> float:
    return part / max(whole, 1)


def _as_graph(source: Graph, role: str, allowed: set[int]) -> IntArray:
    values = np.asarray(getattr(source, "adjacency", source))
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise InputError(f"The {role} must be a square array, not one of shape {values.shape}.")
    if not np.isin(values, list(allowed)).all():
        names = ", ".join(str(value) for value in sorted(allowed))
        raise InputError(f"The {role} may hold only {names}; threshold weights before scoring them.")
    graph = values.astype(np.int64)
    if ((graph == UNDIRECTED) & (graph.T != 0)).any():
        raise InputError(f"The {role} has a pair with -1 and another edge; write an undirected edge once.")
    return graph


def _matching_order(truth: Graph, estimate: Graph) -> list[int] | None:
    """Positions in the estimate of the truth's variables; None when there is nothing to match."""
    true_names, names = _names(truth), _names(estimate)
    if true_names is None or names is None or true_names == names:
        return None
    differing = sorted(set(true_names) ^ set(names))
    if differing:
        raise InputError(f"Truth and estimate differ in the variables {', '.join(differing)}; give the same ones.")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(f"The variable names {', '.join(repeated)} are not unique; rename them to match by name.")
    position = {name: place for place, name in enumerate(names)}
    return [position[name] for name in true_names]


def _names(source: Graph) -> list[str] | None:
    names = getattr(source, "names", None)
    return None if names is None else [str(name) for name in names]
