"""A data owner's say at a site: the policy is asked before anything leaves, and the ledger is told what does."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dagora.aggregation.ledger import REFUSED_BY_ROWS, Ledger, Sent, spent
from dagora.errors import InputError
from dagora.federated.message import Message
from dagora.federated.policy import MAX_NAME, NOISY, Job, Policy, PolicyError, RowsPolicyError

Shapes = Mapping[str, tuple[int, ...]]
PolicySource = Policy | str | Path


@dataclass(frozen=True)
class Guard:
    """Stands at one site for one run; without a policy everything passes, and is still written down."""

    job: Job
    rows: int
    policy: Policy | None
    ledger: Ledger
    resumed: bool = False  # the site has kept all that it needs to go on with the run

    def check(self) -> None:
        """Whether the site may join the run, or go on with it; raises a PolicyError."""
        if self.policy is not None:
            before = [entry for entry in self.ledger.entries if entry.what != self.job]  # which is counted once
            with self._charged():
                self.policy.admit(self.job, self.rows, spent(before))

    def enter(self) -> None:
        """Join the run, or raise a PolicyError.

        A run that the ledger knows counts once, but is entered again only by a site that goes on with it, or from which
        nothing has left: else noise would be drawn anew under a name that is paid for.
        """
        earlier = [entry.what for entry in self.ledger.entries if getattr(entry.what, "run", None) == self.job.run]
        jobs, answered = [one for one in earlier if isinstance(one, Job)], any(isinstance(one, Sent) for one in earlier)
        if jobs and (jobs[-1] != self.job or (answered and not self.resumed)):
            raise PolicyError("policy: this run was joined here before, and has ended or was given up; start a new one")
        self.check()
        if not jobs:
            self.ledger.opened(self.job)

    def release(
        self, shapes: Shapes, message: Message, before: int = 0, attempt: int = 1, subset: tuple[str, ...] = ()
    ) -> None:
        """Let a summand go on its way out, or raise a PolicyError.

        before: the last round of the bootstrap replicate before, from which the site counts rounds.
        attempt: how often the site has answered this round, this time included.
        subset: the sites that the total is over; none for all.
        """
        replicate = message.get("replicate", 0)
        due = isinstance(replicate, int) and 0 <= replicate <= self.job.replicates
        if message.get("run") != self.job.run or _round(message) <= before or not due:
            raise PolicyError("policy: this is no round of the run that the site has joined")
        if self.policy is None:
            return
        if subset:
            known = {entry.what.subset for entry in self.ledger.entries if isinstance(entry.what, Sent)}
            self.policy.check_parts(self.job.sites, [frozenset(one) for one in (*sorted(known - {()}), subset)])
        # Of noisy answers the privacy budget is the limit, not their number of values.
        limited = {} if self.job.aggregation in NOISY else shapes
        with self._charged():
            self.policy.release(limited, self.rows, _round(message) - before, attempt)

    def record(self, shapes: Shapes, message: Message, reply: bytes, subset: tuple[str, ...] = ()) -> None:
        """Write down a reply before it leaves; what aggregations exchange themselves goes by the name of its step."""
        parts = [str(message[name])[:MAX_NAME] for name in ("phase", "secure.step") if name in message]
        phase = ", ".join(parts)
        self.ledger.record(self.job.run, _round(message), phase, shapes, reply, self.job.aggregation, subset)

    @contextmanager
    def _charged(self) -> Iterator[None]:
        """A refusal that depends on the data tells of them: it counts as a run."""
        try:
            yield
        except RowsPolicyError:
            self.ledger.note(REFUSED_BY_ROWS, self.job.by or "server", self.job.run)
            raise


def introduce(job: Job, policy: Policy | None, ledger: Ledger) -> None:
    """Before anyone has joined: whether the site could, as far as that does not depend on its data."""
    if policy is not None:
        taken = spent(ledger.entries)
        policy.introduce(taken)
        policy.admit(job, None, spent(entry for entry in ledger.entries if entry.what != job))


def read_policies(
    source: PolicySource | Mapping[str, PolicySource] | None, sites: tuple[str, ...]
) -> dict[str, Policy | None]:
    """Each site's policy: one for all, or one for each that has one, as objects or as files."""
    if not isinstance(source, Mapping):
        source = {} if source is None else dict.fromkeys(sites, source)
    for site in source:
        if site not in sites:
            raise InputError(f"policy: there is no site {site!r}; the sites are {', '.join(sites)}")
        if not isinstance(source[site], PolicySource):
            raise InputError("policy: must be a Policy, the path of its file, or a mapping from site names to these")
    policies = {site: p if isinstance(p, Policy) else Policy.read(p) for site, p in source.items()}
    return {site: policies.get(site) for site in sites}


def _round(message: Message) -> int:
    turn = message.get("round")
    return turn if isinstance(turn, int) else 0
