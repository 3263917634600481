"""Findings in words, for people who have to decide, and as JSON for machines."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dagora.audit.finding import COALITION, COALITION_AND_SERVER, LIAR, SERVER, SITE, Finding

_ADVERSARIES = {
    SERVER: "The server, if it keeps to the protocol but looks at all it gets,",
    LIAR: "A server that deviates from the protocol",
    SITE: "A single site",
    COALITION: "All sites but one, together,",
    COALITION_AND_SERVER: "All sites but one, together with the server,",
}
_MEANS = {
    "inversion": "from single replies",
    "rows": "from single replies",
    "consensus": "from the totals",
    "multi-round": "from the sequence of totals",
    "differencing": "from the totals of two runs",
    "collusion": "from the totals and own summands",
    "broadcast": "from a broadcast and own data",
}


@dataclass(frozen=True)
class AuditReport:
    """What was run, and what each attack on it found."""

    method: str
    preset: str
    aggregation: str
    sites: int
    findings: tuple[Finding, ...]
    adversary: str = "honest"

    @property
    def title(self) -> str:
        """What was run."""
        return f"Method {self.method!r}, preset {self.preset!r}, aggregation {self.aggregation!r}, {self.sites} sites"

    @staticmethod
    def means(finding: Finding) -> str:
        """Where the attacker gets it from."""
        return _MEANS.get(finding.name, f"by {finding.name}").removeprefix("from ")

    @property
    def words(self) -> str:
        """A sentence for every adversary and kind of attack, then what to do."""
        return "\n".join([f"{self.title}.", *self._sentences(), *(f"- {advice}" for advice in self.advice)])

    @property
    def advice(self) -> tuple[str, ...]:
        """What would stop the attacks that succeeded."""
        return tuple(_advice({finding.name for finding in self.findings if finding.succeeds}, self))

    def to_json(self) -> dict[str, Any]:
        """Plain values only."""
        return {
            "method": self.method,
            "preset": self.preset,
            "aggregation": self.aggregation,
            "sites": self.sites,
            "adversary": self.adversary,
            "attacks": [
                {
                    "name": finding.name,
                    "adversary": finding.adversary,
                    "target": finding.target,
                    "relative_error": finding.error,
                    "blind_error": finding.blind,
                    "succeeds": finding.succeeds,
                    "detail": finding.detail,
                }
                for finding in self.findings
            ],
            "advice": list(self.advice),
        }

    def _sentences(self) -> Iterable[str]:
        for adversary, who in _ADVERSARIES.items():
            # Where a guess is exact, as of a site with one row about its own mean, there is nothing to find out.
            own = [finding for finding in self.findings if finding.adversary == adversary and finding.blind > 0.0]
            for name in dict.fromkeys(finding.name for finding in own):
                yield from _sentence(who, [finding for finding in own if finding.name == name])
            if adversary == SITE and not own and self.adversary == "honest":
                yield "A single site sees the broadcasts and its own summands; no attack on these alone was tried."


def _sentence(who: str, findings: list[Finding]) -> Iterable[str]:
    """One for what was found out, one for what was not."""
    for verb, some in (
        ("finds out", [finding for finding in findings if finding.succeeds]),
        ("does not find out", [finding for finding in findings if not finding.succeeds]),
    ):
        if some:
            plural = verb if not who.startswith("All") else {"finds out": "find out"}.get(verb, "do not find out")
            shown = (max if some[0].succeeds else min)(some, key=lambda finding: finding.error)
            bound = "at most" if some[0].succeeds else "at least"
            targets = ", ".join(finding.target for finding in some[:3]) + (", ..." if len(some) > 3 else "")
            yield (
                f"{who} {plural} {_MEANS.get(some[0].name, 'by ' + some[0].name)}: {targets} "
                f"(relative error {bound} {shown.error:.1e}; a blind guess has {shown.blind:.1e})."
            )


def _advice(succeeded: set[str], report: AuditReport) -> Iterable[str]:
    if succeeded & {"inversion", "rows", "replies"}:
        yield (
            f"Aggregation {report.aggregation!r} hides nothing from the server: use aggregation 'masked', or keep to "
            "servers that may see every site's covariance."
        )
    if "multi-round" in succeeded:
        yield (
            f"With {report.sites} sites the rounds' totals give single sites away, however they are added: use method "
            "'covariance' with aggregation 'masked', which asks for one total, or have more sites."
        )
    elif report.method == "admm":
        yield "Method 'covariance' with aggregation 'masked' reveals one total and no sequence of them."
    if "consensus" in succeeded:
        yield "The server learns the covariance of all rows; where even that is too much, use differential privacy."
    if (
        any(finding.adversary == LIAR and finding.succeeds for finding in report.findings)
        and "replies" not in succeeded
    ):
        yield (
            "A server that deviates from the protocol obtains a single site's summand: take part only in runs of a "
            "server that keeps to the protocol."
        )
    if succeeded & {"differencing", "another cohort", "runs without one"}:
        yield "Freeze the cohort: refuse a rerun with other sites or rows, or use differential privacy."
    if succeeded & {"collusion", "broadcast"}:
        yield "Take part only if not all others would join against you; against that only noise helps."
    if not succeeded:
        yield "No attack did clearly better than a guess."
