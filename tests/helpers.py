"""What the contract tests run over, small data, and oracles that share no code with the package."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import dagora
from dagora.arrays import FloatArray
from dagora.federated.message import Message, decode, encode
from dagora.federated.site import Site
from dagora.transport.in_process import InProcess

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Case:
    """Arguments of `learn`, what may leave a site under them, and how closely equal problems give equal W.

    The default preset descends to its tolerance, so that rounding stays rounding (observed on `small_sites()`:
    2e-13).  The paper's L-BFGS meets the kinks of the l1 penalty (subgradients, its Section 5.1) and augmented
    Lagrangians with rho up to 1e16, and stops elsewhere for another rounding (observed: 3e-2 for ADMM, whose
    consensus damps it, and 4e-2 for NOTEARS).  Networks have flat valleys, along which a descent ends within its
    tolerance of the objective (observed: 1.1e-1 where weights are 1.2); behind masks they carry rounding on (observed
    on other data: 1e-4).
    """

    method: str
    preset: str
    close: float  # between the W of problems that differ by rounding only
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def arguments(self) -> dict[str, Any]:
        return {"method": self.method, "preset": self.preset, **self.extra}

    def arguments_for(self, names: Sequence[str]) -> dict[str, Any]:
        """The same where x1, x2, ... have other names: what is known of them is known by these."""
        known = self.extra.get("knowledge")
        if known is None:
            return self.arguments
        new = {f"x{place}": name for place, name in enumerate(names, start=1)}
        required, forbidden, tiers = (
            [[new[name] for name in group] for group in kind] for kind in (known.required, known.forbidden, known.tiers)
        )
        return self.arguments | {"knowledge": dagora.Knowledge(required, forbidden, tiers)}

    @property
    def learner(self) -> str | None:
        """The learner at work."""
        if self.method == "admm" or self.model == "additive" or self.networks:
            return None
        if self.model == "dynamic":
            return "notears"
        by_default = "boss" if (self.method, self.preset) == ("covariance", "default") else "notears"
        return str(self.extra.get("learner", by_default))

    @property
    def model(self) -> str:
        """What is fitted."""
        return str(self.extra.get("model", "linear"))

    @property
    def classes(self) -> bool:
        """Whether an equivalence class is learned, of which `adjacency` is some DAG."""
        return self.learner in CLASS_LEARNERS or (self.method, self.extra.get("score")) == ("admm", "likelihood")

    @property
    def networks(self) -> bool:
        """Whether every variable has a network, in which case its start is random."""
        return self.model in ("mlp", "masked")

    @property
    def threshold(self) -> float:
        """What edges' weights are above."""
        if self.networks:
            return 0.5 if self.preset == "default" else 0.3
        chosen = self.extra.get("threshold") == "auto"
        return 0.3 if self.model == "linear" and not self.classes and not chosen else 0.0

    @property
    def signed(self) -> bool:
        """Whether weights may be negative: curves have none that are."""
        return self.model not in ("additive", "mlp", "masked")

    def leaves(self, d: int) -> dict[str, Shapes]:
        """The summand's fields and shapes by phase: all that the docstrings allow to leave a site."""
        if self.model == "dynamic":
            return self._leaves_of_series(d, int(self.extra["lags"]))
        if self.model == "additive" and self.method != "voting":
            f = 5 * d  # functions of the variables
            spread: Shapes = {"rows": (), "sum": (d,), "squares": (d,)}
            return {"spread": spread, "moments": {"rows": (), "sum": (f,), "squares": (f * (f + 1) // 2,)}}
        if self.networks and self.method in ("admm", "pooled"):
            return self._leaves_of_networks(d)
        if self.method in ("covariance", "pooled"):
            return {"moments": {"rows": (), "sum": (d,), "squares": (d * (d + 1) // 2,)}}
        once: Shapes = {"sites": (), "unfinished": (), "weights": (d, d)}
        if self.method != "admm":
            if self.method == "average":
                return {"learn": once}
            return {"learn": once | {"votes": (d, d)} | ({"joined": (d, d)} if self.classes else {})}
        counts: Shapes = {"rows": (), "sites": ()}
        if self.preset == "paper":
            rows = d + 1 if self.extra.get("intercept") else d
            return {"count": counts, "consensus": {"position": (rows, d), "products": (1,)}}
        return {
            "count": counts | {"sum": (d,)},
            "spread": {"squares": (d,)},
            "consensus": {"position": (d, d), "products": (5,)},
        }

    def _leaves_of_networks(self, d: int) -> dict[str, Shapes]:
        units = int(self.extra["hidden"])
        size = (d + 1) * units + units + 1  # parameters of one network
        if (self.method, self.preset) == ("pooled", "paper"):
            return {"learn": {"weights": (d, d), "h": (), "objective": ()}}
        counts: Shapes = {"rows": (), "sites": ()}
        if self.preset == "paper":
            return {"count": counts, "consensus": {"position": (d, size), "products": (1,)}}
        moving = size + d if self.model == "masked" else size  # with logits
        most = d * (d - 1) if self.polish else d  # networks in a fit: two for each edge that might be turned
        return {
            "count": counts | {"sum": (d,)},
            "spread": {"squares": (d,)},
            "curvature": {"curvature": (d, moving)},
            "consensus": {"position": (d, moving), "products": (1,)},
            FIT: {"squares": (most,), "gradient": (most, size), "products": (most * size * (size + 1) // 2,)},
        }

    @property
    def polish(self) -> bool:
        """Whether networks try edges the other way round."""
        return self.model == "mlp" and bool(self.extra.get("polish", True))

    def may_leave(self, d: int, phase: str, shapes: Shapes) -> bool:
        """Whether a summand, or the largest of a phase, is what `leaves` declares: of a fit, no more than that.

        A fit is of the networks that still move, with products of those that are new, and of their inputs in use.
        """
        declared = self.leaves(d)[phase]
        if "bootstrap" in self.extra:  # in replicates, also whether there is none at this site
            shapes = {name: shape for name, shape in shapes.items() if (name, shape) != ("failed", ())}
        if phase != FIT:
            return shapes == declared
        (most, size), networks = declared["gradient"], shapes["squares"][0]
        return (
            {"squares", "gradient"} <= shapes.keys() <= declared.keys()
            and 0 < networks <= most
            and (shapes["squares"], shapes["gradient"]) == ((networks,), (networks, size))
            and len(shapes.get("products", (0,))) == 1
            and shapes.get("products", (0,)) <= declared["products"]
        )

    def _leaves_of_series(self, d: int, lags: int) -> dict[str, Shapes]:
        z, inputs = d * (lags + 1), d * lags
        counts: Shapes = {"rows": (), "sites": ()}
        if self.method in ("covariance", "pooled"):
            return {"moments": {"rows": (), "sum": (z,), "squares": (z * (z + 1) // 2,)}}
        if self.method != "admm":
            votes: Shapes = {"votes": (z, d)} if self.method == "voting" else {}
            return {"learn": {"sites": (), "unfinished": (), "weights": (z, d)} | votes}
        if self.preset == "paper":
            return {"count": counts, "consensus": {"position": (z, d), "products": (1,)}}
        spread: Shapes = {"squares": (z,)}
        if self.extra.get("polish", True):
            spread["inputs"] = (inputs * (inputs + 1) // 2,)
        return {
            "count": counts | {"sum": (z,)},
            "spread": spread,
            "consensus": {"position": (z, d), "products": (5,)},
        }


FIT = "fit"  # the phase whose summands differ from round to round
KNOWN = dagora.Knowledge([("x5", "x1")], [("x4", "x2"), ("x2", "x4")], [["x3", "x5"], ["x2", "x4"]])
CLASS_LEARNERS = ("boss", "ges", "exact", "pc")
ALGORITHMS = {
    "admm": Case("admm", "default", 1e-6),
    "admm-unpolished": Case("admm", "default", 1e-3, {"polish": False}),
    "admm-auto": Case("admm", "default", 1e-6, {"lam": "auto", "threshold": "auto"}),
    "admm-standardized": Case("admm", "default", 1e-6, {"standardize": True}),
    "admm-likelihood": Case("admm", "default", 1e-6, {"score": "likelihood"}),
    "admm-paper": Case("admm", "paper", 0.1),
    "admm-paper-intercept": Case("admm", "paper", 0.1, {"intercept": True}),
    "admm-knowledge": Case("admm", "default", 1e-6, {"knowledge": KNOWN}),
    "covariance": Case("covariance", "default", 1e-9),
    "covariance-knowledge": Case("covariance", "default", 1e-9, {"knowledge": KNOWN}),
    "covariance-paper": Case("covariance", "paper", 0.1),
    "covariance-auto": Case("covariance", "default", 1e-9, {"learner": "notears", "lam": "auto", "threshold": "auto"}),
    "covariance-bootstrap": Case("covariance", "default", 1e-9, {"bootstrap": 3}),
    "covariance-golem": Case("covariance", "default", 1e-4, {"learner": "golem"}),
    "covariance-golem-likelihood": Case("covariance", "default", 1e-2, {"learner": "golem", "score": "likelihood"}),
    "voting": Case("voting", "default", 1e-6),
    "voting-paper": Case("voting", "paper", 1e-6),
    "average": Case("average", "default", 1e-6),
    "average-paper": Case("average", "paper", 1e-6),
    "average-golem": Case("average", "default", 1e-4, {"learner": "golem"}),
    "pooled": Case("pooled", "default", 1e-6),
    "pooled-paper": Case("pooled", "paper", 0.1),
    "pooled-paper-polished": Case("pooled", "paper", 1e-3, {"polish": True}),
    **{
        f"{method}-{learner}": Case(method, "default", 1e-9, {"learner": learner})
        for method in ("covariance", "voting", "pooled")
        for learner in ("notears", *CLASS_LEARNERS)
        if (method, learner) not in (("covariance", "boss"), ("voting", "notears"), ("pooled", "notears"))
    },
    **{
        f"{method}-additive": Case(method, "default", 1e-9, {"model": "additive"})
        for method in ("covariance", "voting", "pooled")
    },
    "mlp": Case("admm", "default", 0.25, {"model": "mlp", "hidden": 3}),
    "mlp-unpolished": Case("admm", "default", 0.25, {"model": "mlp", "hidden": 2, "polish": False}),
    "mlp-paper": Case("admm", "paper", 1e-3, {"model": "mlp", "hidden": 3}),
    "mlp-voting": Case("voting", "default", 1e-6, {"model": "mlp", "hidden": 3}),
    "mlp-average": Case("average", "default", 1e-6, {"model": "mlp", "hidden": 3}),
    "mlp-pooled": Case("pooled", "default", 0.25, {"model": "mlp", "hidden": 3}),
    "mlp-pooled-paper": Case("pooled", "paper", 0.1, {"model": "mlp", "hidden": 2}),
    "masked": Case("admm", "default", 1e-2, {"model": "masked", "hidden": 3}),
    "masked-voting": Case("voting", "default", 1e-6, {"model": "masked", "hidden": 3}),
    "masked-pooled": Case("pooled", "default", 1e-2, {"model": "masked", "hidden": 3}),
}
SERIES_ALGORITHMS = {  # of time series: they need other data than those above
    name: Case(method, preset, close, {"model": "dynamic", "lags": 2, **extra})
    for name, (method, preset, close, extra) in {
        "admm": ("admm", "default", 1e-6, {}),
        "admm-unpolished": ("admm", "default", 1e-3, {"polish": False}),
        "admm-paper": ("admm", "paper", 0.1, {}),
        "covariance": ("covariance", "default", 1e-6, {}),
        "covariance-paper": ("covariance", "paper", 0.1, {}),
        "voting": ("voting", "default", 1e-6, {}),
        "voting-paper": ("voting", "paper", 1e-6, {}),
        "average": ("average", "default", 1e-6, {}),
        "average-paper": ("average", "paper", 1e-6, {}),
        "pooled": ("pooled", "default", 1e-6, {}),
        "pooled-paper": ("pooled", "paper", 0.1, {}),
    }.items()
}
AGGREGATIONS = ("plain", "masked", "shared", "encrypted")


class OverBytes:
    """Sites behind their narrowest door, as on a network: bytes in, bytes out, nothing shared."""

    def __init__(self, sites: Sequence[Site[Any, Any]]) -> None:
        self.sites = tuple(sites)
        self.sent = 0
        self.received = 0

    def exchange(
        self, message: Message, own: Mapping[str, Message] | None = None, enough: int | None = None
    ) -> dict[str, Message]:
        replies: dict[str, Message] = {}
        for site in self.sites:
            if own is not None and site.name not in own:
                continue
            request = bytes(bytearray(encode({**message, **(own[site.name] if own else {})})))
            reply = site.handle(request)
            self.received += len(request)
            self.sent += len(reply)
            replies[site.name] = decode(reply)
        return replies

    def close(self) -> None: ...


class Recording(InProcess):
    """Keeps what crossed: every broadcast with all replies to it."""

    def __init__(self, sites: Sequence[Site[Any, Any]]) -> None:
        super().__init__(sites)
        self.log: list[tuple[Message, dict[str, Message]]] = []

    def exchange(
        self, message: Message, own: Mapping[str, Message] | None = None, enough: int | None = None
    ) -> dict[str, Message]:
        replies = super().exchange(message, own, enough)
        self.log.append((message, replies))
        return replies


TRANSPORTS: dict[str, type[InProcess] | type[OverBytes]] = {"in-process": InProcess, "over-bytes": OverBytes}


def learn_over(
    transport: type[InProcess] | type[OverBytes], sites: Any, case: Case, aggregation: str = "plain"
) -> tuple[dagora.Result, Any]:
    """`dagora.learn` with its messages carried by another transport, which is given back too."""
    made = []

    def make(parts: Sequence[Site[Any, Any]]) -> Any:
        made.append(transport(parts))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        # By import: the package's attribute `learn` is the function, not the module.
        patch.setattr(importlib.import_module("dagora.learn"), "InProcess", make)
        result = dagora.learn(sites, aggregation=aggregation, **case.arguments)
    return result, made[0]


def small_sites(d: int = 5, seed: int = 1, rows: Sequence[int] = (83, 71, 97)) -> list[FloatArray]:
    """Uneven sites of a model with strong effects: by every algorithm all weights are 0.14 or more from 0.3."""
    _, sites = dagora.simulate(d, d, sum(rows), len(rows), seed=seed, split=list(rows), weight_range=(0.8, 1.6))
    return sites


def small_series(seed: int = 3) -> list[list[FloatArray]]:
    """Three sites with 2, 1 and 3 series of unequal lengths, four variables and two lags of strong effects."""
    _, ((*all_series,),) = dagora.simulate_series(
        4, 4, 6, 60, 1, lags=2, lag_edges=3, seed=seed, weight_range=(0.8, 1.4), lag_weight_range=(0.4, 0.5), decay=1.0
    )
    cut = [own[:length] for own, length in zip(all_series, (60, 41, 55, 37, 60, 50), strict=True)]
    return [cut[:2], cut[2:3], cut[3:]]


def sites_with_a_cycle() -> list[FloatArray]:
    """Each of three sites sees two edges of x1 -> x2 -> x3 -> x1, so that each edge has two of three votes."""
    rng = np.random.default_rng(0)
    sites = []
    for start in range(3):
        a, b, c = start, (start + 1) % 3, (start + 2) % 3
        X = rng.standard_normal((500, 3))
        X[:, b] += 1.2 * X[:, a]
        X[:, c] += 1.2 * X[:, b]
        sites.append(X)
    return sites


def covariance(rows: FloatArray) -> FloatArray:
    centred = rows - rows.mean(axis=0)
    S: FloatArray = centred.T @ centred / len(rows)
    return S


def random_covariance(d: int, seed: int, n: int = 200) -> FloatArray:
    """Of rows from a random dense DAG: no two variables independent, nothing near collinear."""
    _, sites = dagora.simulate(d, d * (d - 1) // 2, n, 1, seed=seed, weight_range=(0.4, 1.2))
    return covariance(sites[0])


def penalised_loss(S: FloatArray, W: FloatArray, lam: float, bound: float = np.inf) -> float:
    """With prices that stop growing at a weight of `bound`, if one is given."""
    R = np.eye(len(S)) - W
    counted = np.minimum(np.abs(W), bound)
    return 0.5 * float(np.trace(R.T @ S @ R)) + lam * float((counted - counted * counted / (2.0 * bound)).sum())


def regression(
    S: FloatArray, child: int, parents: Sequence[int], lam: float, bound: float = np.inf
) -> tuple[FloatArray, float]:
    """Lasso of one variable on others by cyclic coordinate descent: coefficients and penalised loss.

    With a bound, from the lasso on: the minimax concave penalty, whose coordinate steps are firm thresholds.
    """
    A = S[np.ix_(parents, parents)]
    b = S[list(parents), child]
    w = np.zeros(len(parents)) if np.isinf(bound) else regression(S, child, parents, lam)[0]
    for _ in range(5000):
        before = w.copy()
        for i in range(len(w)):
            rest = b[i] - A[i] @ w + A[i, i] * w[i]
            inside = np.sign(rest) * max(abs(rest) - lam, 0.0) / (A[i, i] - lam / bound)
            w[i] = inside if abs(inside) <= bound else rest / A[i, i]
        if np.abs(w - before).max(initial=0.0) < 1e-14:
            break
    counted = np.minimum(np.abs(w), bound)
    price = lam * float((counted - counted * counted / (2.0 * bound)).sum())
    return w, float(0.5 * (S[child, child] + w @ A @ w) - w @ b) + price


def best_dag(S: FloatArray, lam: float) -> float:
    """The least penalised loss over all DAGs, exactly: dynamic programming over which variables come first.

    best[F] = min over the last variable j of F of best[F without j] + lasso of j on F without j.
    """
    d = len(S)
    best = {0: 0.0}
    for first in range(1, 1 << d):
        members = [j for j in range(d) if first >> j & 1]
        best[first] = min(
            best[first ^ (1 << j)] + regression(S, j, [i for i in members if i != j], lam)[1] for j in members
        )
    return best[(1 << d) - 1]


def finite_differences(f: Any, x: FloatArray, step: float = 1e-5) -> FloatArray:
    """Central differences of a function from arrays to numbers."""
    gradient = np.empty_like(x)
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = (f(up) - f(down)) / (2.0 * step)
    return gradient
