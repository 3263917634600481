"""What the attacks of `dagora audit` find out, of a lying server, too: relative errors by method and aggregation."""

import dagora
from benchmarks import tables
from benchmarks.tables import publish
from dagora.audit.finding import Finding
from dagora.audit.run import audit

D, N, SECONDS = 5, 300, 60.0
RUNS = (
    ("admm", "paper", "plain", 3),
    ("admm", "default", "plain", 3),
    ("admm", "paper", "masked", 2),
    ("admm", "paper", "masked", 3),
    ("admm", "paper", "masked", 4),
    ("admm", "default", "masked", 2),
    ("admm", "default", "masked", 3),
    ("admm", "default", "masked", 4),
    ("admm", "default", "masked", 6),
    ("covariance", "default", "plain", 3),
    ("covariance", "default", "masked", 3),
    ("covariance", "default", "shared", 3),
    ("covariance", "default", "encrypted", 3),
    ("covariance", "default", "gaussian", 3),
)
ATTACKS = {
    "inversion": "a site, from its replies",
    "multi-round": "all sites, from totals",
    "consensus": "all rows' covariance",
    "differencing": "a site or row, from two runs",
    "collusion": "a site, by all others and the server",
}
LIES = "a site, by a lying server"


def shown(findings: list[Finding]) -> str:
    """The attacker's best error with the guess beside it; bold where it finds something out."""
    if not findings:
        return "-"
    best = min(findings, key=lambda finding: finding.error / max(finding.blind, 1e-300))
    text = f"{best.error:.0e} ({best.blind:.0e})"
    return f"**{text}**" if best.succeeds else text


def main(runs: int, jobs: int) -> None:
    table = []
    for method, preset, aggregation, sites in RUNS:
        noisy = aggregation == "gaussian"
        _, data = dagora.simulate(d=D, edges=D, n=30 * N if noisy else N, sites=sites, seed=tables.first_seed)
        found = audit(
            data, method=method, preset=preset, aggregation=aggregation, seconds=SECONDS, epsilon=1.0 if noisy else None
        ).findings
        cells = [shown([finding for finding in found if finding.name == name]) for name in ATTACKS]
        lies = audit(
            data, method=method, preset=preset, aggregation=aggregation, epsilon=1.0 if noisy else None,
            adversary="lying-server",
        ).findings  # fmt: skip
        table.append([f"{method} ({preset})", aggregation, sites, *cells, shown(list(lies))])
    publish(
        "leakage",
        f"What attacks find out: relative error, a blind guess's in brackets, bold where found out (d = {D}, n = {N})",
        ["method (preset)", "aggregation", "sites", *ATTACKS.values(), LIES],
        table,
        f"Attacks on sequences of totals stop after {SECONDS:g} s.  gaussian: epsilon 1, n = {30 * N:,}.  The pooled "
        "covariance is what the covariance method gives the server; ADMM's server can compute it too.",
    )
