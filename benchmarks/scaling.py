"""How the cost of a round grows: sites as K d^2 (times the rank where rows are fewer than columns), server as d^3."""

import time

import numpy as np
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

import dagora
from benchmarks import tables
from benchmarks.tables import publish
from dagora.aggregation.plain import Plain
from dagora.algorithms.options import Options
from dagora.algorithms.presets import build
from dagora.data.moments import Moments
from dagora.federated.site import Site
from dagora.transport.in_process import InProcess

D, K, ROUNDS, WIDTH = (10, 20, 50, 100, 200), (1, 8, 64, 512), 12, 50


def round_times(d: int, k: int, rows_a_site: int) -> tuple[float, float]:
    """Median seconds of all sites' part and of the server's part of a consensus round."""
    _, sites = dagora.simulate(d=d, edges=d, n=rows_a_site * k, sites=k, seed=0)
    algorithm = build(Options(), tuple(f"x{j}" for j in range(d)))
    plain = Plain()
    transport = InProcess([Site(str(i), algorithm.site, Moments.of_rows(x), plain) for i, x in enumerate(sites)])
    server, state = algorithm.server, algorithm.server.init()
    at_sites, at_server = [], []
    for _ in range(ROUNDS):
        message = server.broadcast(state)
        if message is None:
            break
        start = time.perf_counter()
        total = plain.total(transport, message)
        middle = time.perf_counter()
        state = server.global_update(state, total)
        at_sites.append(middle - start)
        at_server.append(time.perf_counter() - middle)
    return float(np.median(at_sites[4:])), float(np.median(at_server[4:]))


def main(runs: int, jobs: int) -> None:
    with threadpool_limits(1):
        full = {d: round_times(d, 8, 2 * d) for d in D}
        thin = {d: round_times(d, 8, 5) for d in D}
        many = {k: round_times(WIDTH, k, 8) for k in K}
    publish(
        "scaling",
        "Milliseconds of a consensus round in process",
        ["setting", "sites (all)", "server"],
        [[f"K = 8, d = {d}, {2 * d} rows a site", *_ms(times)] for d, times in full.items()]
        + [[f"K = 8, d = {d}, 5 rows a site", *_ms(times)] for d, times in thin.items()]
        + [[f"d = {WIDTH}, K = {k}, 8 rows a site", *_ms(times)] for k, times in many.items()],
        f"Slopes on logarithmic axes: sites over d (50 to 200) {_slope(full, 0):.1f} with full rank and "
        f"{_slope(thin, 0):.1f} with 5 rows a site; server over d {_slope(full, 1):.1f}; "
        f"sites over K (8 to 512) {_slope(many, 0, 8):.1f}, server over K {_slope(many, 1, 8):.1f}.",
    )
    figure = Figure(figsize=(8, 3.4), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    left.loglog(D, [1e3 * full[d][0] for d in D], "o-", color="#0072B2", label="8 sites, 2d rows each")
    left.loglog(D, [1e3 * thin[d][0] for d in D], "s-", color="#56B4E9", label="8 sites, 5 rows each")
    left.loglog(D, [1e3 * full[d][1] for d in D], "^-", color="#D55E00", label="server")
    left.loglog(D[2:], [1e3 * full[D[-1]][0] * (d / D[-1]) ** 3 for d in D[2:]], ":", color="#999999", label="$d^3$")
    left.set(xlabel="variables d", ylabel="milliseconds a round", title="K = 8")
    right.loglog(K, [1e3 * many[k][0] for k in K], "o-", color="#0072B2", label="all sites, 8 rows each")
    right.loglog(K, [1e3 * many[k][1] for k in K], "^-", color="#D55E00", label="server")
    right.loglog(K, [1e3 * many[K[-1]][0] * k / K[-1] for k in K], ":", color="#999999", label="K")
    right.set(xlabel="sites K", title=f"d = {WIDTH}")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=8)
        axes.grid(alpha=0.3)
    figure.savefig(tables.RESULTS / "scaling.png")


def _ms(times: tuple[float, float]) -> list[str]:
    return [f"{1e3 * seconds:.2f}" for seconds in times]


def _slope(times: dict[int, tuple[float, float]], which: int, start: int = 50) -> float:
    sizes = [size for size in times if size >= start]
    return float(np.polyfit(np.log(sizes), np.log([times[size][which] for size in sizes]), 1)[0])
