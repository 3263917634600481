"""What the attacks and the generated conversations recover, as text: python -m tests.lying_server."""

import time
from collections import Counter

from hypothesis import given, seed

from dagora.audit.lying_server import ATTACKS
from tests.lying_server.kit import LIES, SEED, Case, cases, known_contexts
from tests.lying_server.test_attacks import CATALOGUE, stage_for
from tests.lying_server.test_conversations import GENERATED


def main() -> None:
    """Attacks first, then conversations."""
    for name, aggregation in CATALOGUE:
        begun = time.perf_counter()
        found = ATTACKS[name].on(stage_for(name, aggregation))
        spent = time.perf_counter() - begun
        best = max(found, key=lambda each: (each.recovered, -each.error), default=None)
        sites = sorted({each.site for each in found if each.recovered})
        figures = "no summand left a site" if best is None else f"error {best.error:.1e}  guess {best.guess:.1e}"
        outcome = f"RECOVERS {', '.join(sites)}" if sites else "-"
        print(f"{name:18} {aggregation:10} {figures:32} {outcome:30} {spent:.2f} s")
    held, lost, spent_on, crashes, firsts = Counter[str](), Counter[str](), Counter[str](), Counter[str](), []

    @seed(SEED)
    @GENERATED
    @given(cases())
    def conversations(case: Case) -> None:
        begun = time.perf_counter()
        played = case.play()
        kind = f"{case.aggregation} {case.method or 'echo'}{' from an attack' if case.base else ''}"
        held[kind] += 1
        spent_on[kind] += int(1e6 * (time.perf_counter() - begun))
        for each in played.conversations:
            crashes.update(crash.split(": ", 1)[1][:80] for crash in each.crashes)
        if case.aggregation != "plain" and played.recovered:
            lost[kind] += 1
            firsts.append(sum(held.values()))

    begun = time.perf_counter()
    conversations()
    total = time.perf_counter() - begun
    protected = sum(count for kind, count in held.items() if not kind.startswith("plain"))
    print(f"\n{LIES} conversations (seed {SEED}): {sum(lost.values())} of {protected} protected ones recover a site")
    print(f"first: number {min(firsts, default=0)}; {1e3 * total / max(sum(held.values()), 1):.0f} ms each")
    for kind in sorted(held):
        print(f"  {kind:34} {lost[kind]:4} of {held[kind]:4}  {spent_on[kind] / held[kind] / 1e3:6.1f} ms each")
    for crash, count in crashes.most_common():
        print(f"  fault at a site, {count} times: {crash}")


with known_contexts():
    main()
