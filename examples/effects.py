"""Curved effects over four sites: networks, what they predict, and a panel for each edge in effects.png."""

import dagora
from dagora.report.effects import draw_effects

truth, sites = dagora.simulate(d=6, edges=6, n=512, sites=4, seed=0, model="mlp")
result = dagora.learn(sites, model="mlp", seed=0)
for source, target, norm in result.edges():
    effect = result.effect(source, target)
    rise = effect.expected[-1] - effect.expected[0]
    print(f"{source} -> {target}: norm {norm:.2f}, from end to end {rise:+.2f}")
left = sites[0] - result.predict(sites[0])
print(f"of the first site's variance the network leaves {100 * left.var() / sites[0].var():.0f}%")
draw_effects(result, "effects.png")
