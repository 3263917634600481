"""Time series at several sites: effects within a time step and from the steps before, learned from sums alone."""

from pathlib import Path

import dagora
from dagora.report.unrolled import draw_unrolled

# Twenty sites with one series of 50 rows each; `sites` is a list of lists of arrays, rows in time order.
truth, sites = dagora.simulate_series(d=8, edges=8, series=20, length=50, sites=20, lags=2, seed=0)

order = dagora.select_lags(sites, most=4, aggregation="masked")  # one round: the BIC of 0 to 4 lags
print("lags:", order.lags)

result = dagora.learn(sites, model="dynamic", lags=order.lags, aggregation="masked")
print("within a step:", *(f"{a} -> {b} ({w:+.2f})" for a, b, w in result.edges()[:3]), "...")
for source, target, lag, weight in result.lagged_edges()[:3]:
    print(f"of the past:   {source}, {lag} step{'s' * (lag > 1)} before -> {target} ({weight:+.2f})")

scores = dagora.evaluate(truth, result)
print(f"F1 within a step {scores['f1']:.2f}, of the past {scores['lag_f1']:.2f}")
alone = dagora.evaluate(truth, dagora.learn(sites, model="dynamic", lags=order.lags, method="voting"))
print(f"if every site learned alone, and voted: {alone['f1']:.2f}, {alone['lag_f1']:.2f}")

result.save("time-series")
draw_unrolled(result, Path("time-series") / "network.png")
