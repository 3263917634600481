"""Learn one network from eight sites, and compare it with the truth and with what pooling would have found."""

import dagora

truth, sites = dagora.simulate(d=20, edges=20, n=256, sites=8, seed=0)
result = dagora.learn(sites)
for source, target, weight in result.edges()[:5]:
    print(f"{source} -> {target}  {weight:+.2f}")
print("federated:", dagora.evaluate(truth, result)["shd"], "wrong edges in", result.rounds, "rounds")
print("pooled:   ", dagora.evaluate(truth, dagora.learn(sites, method="pooled"))["shd"], "wrong edges")
for entry in result.ledger:
    print("left the sites, as a total:", entry.phase, dict(entry.fields), f"{entry.rounds} rounds")
