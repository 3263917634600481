"""The four protocols of which everything is made.  Only sums cross from the sites to the server.

      server                      aggregation             transport            site
    broadcast(state) -> message -> total(...) ---------- exchange ---------> local_update(state, message)
    global_update(state, total) <-- sum of summands <--- replies <---------- at_site(...) protects the summand

A site part knows nothing of the server, a server part nothing of single sites, an aggregation nothing of
the algorithm, and a transport nothing of anything.  States are frozen dataclasses that go in and come out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeGuard, TypeVar, runtime_checkable

from dagora.arrays import BoolArray, FloatArray, IntArray
from dagora.confidence import Confidence
from dagora.data.moments import Moments
from dagora.federated.message import Message
from dagora.federated.vault import Vault

Summand: TypeAlias = Mapping[str, FloatArray]
Total: TypeAlias = Mapping[str, FloatArray]

Data_contra = TypeVar("Data_contra", contravariant=True)
Data = TypeVar("Data")
SiteState = TypeVar("SiteState")
ServerState = TypeVar("ServerState")


class Functions(Protocol):
    """Fitted functions: what each variable is expected to be, given its parents."""

    @property
    def centre(self) -> FloatArray:
        """Means of the variables."""

    @property
    def scale(self) -> FloatArray:
        """Their standard deviations."""

    def predict(self, rows: FloatArray) -> FloatArray:
        """From rows (n, d) to the expected values of all variables, (n, d)."""


@dataclass(frozen=True)
class Estimate:
    """What a server part has learned: weights, the edges it reads off them, and how the run ended.

    (d, d) arrays; of time series, with d rows for every lag below the first d.
    """

    weights: FloatArray
    edges: BoolArray
    strength: FloatArray  # which edge is the weaker one, should a cycle have to be broken
    warnings: tuple[str, ...] = ()
    extras: Mapping[str, FloatArray] = field(default_factory=dict)
    cpdag: IntArray | None = None  # the equivalence class, where directions were not all identified
    functions: Functions | None = None  # what each variable is of its parents, where a nonlinear model fitted that
    moments: Moments | None = None  # of all rows, where the server knows them at least within families
    covariance: FloatArray | None = None  # of all rows, as far as totals tell it; NaN where they do not
    chosen: Mapping[str, float] = field(default_factory=dict)  # options that were left to the method ("auto")
    confidence: Confidence | None = None  # by a bootstrap


class SitePart(Protocol[Data_contra, SiteState]):
    """The half of an algorithm that runs where the data is."""

    def init(self, data: Data_contra) -> SiteState:
        """Prepare the state that never leaves the site."""

    def local_update(self, state: SiteState, message: Message) -> tuple[SiteState, Summand]:
        """Answer a broadcast with what the site adds to the total.

        The step may be taken again from the same state, but not from an earlier one: states may share room to work in.
        So the summand's arrays stand until the next step; whoever keeps them longer copies them.
        """


@runtime_checkable
class JointPart(SitePart[Data_contra, SiteState], Protocol):
    """A site part that can take the steps of several sites of one process at once.

    By numpy they are the steps that each would take alone, to the bit; on an accelerator, but for rounding.
    """

    def joint(self, message: Message) -> bool:
        """Whether this message asks for such a step."""

    def local_updates(self, states: Sequence[SiteState], message: Message) -> Sequence[tuple[SiteState, Summand]]:
        """What `local_update` gives for each state, for such a message."""


def asks_jointly(part: SitePart[Any, Any], message: Message) -> TypeGuard[JointPart[Any, Any]]:
    """Whether the part can take steps together, and the message asks for one."""
    return isinstance(part, JointPart) and part.joint(message)


class ServerPart(Protocol[ServerState]):
    """The half of an algorithm that runs at the coordinator and sees totals only."""

    def init(self) -> ServerState:
        """State before the first round."""

    def broadcast(self, state: ServerState) -> Message | None:
        """What all sites are sent next; None when the work is done."""

    def global_update(self, state: ServerState, total: Total) -> ServerState:
        """Take in the total of a round."""

    def progress(self, state: ServerState) -> Mapping[str, float]:
        """Figures of the last round, for the history and a progress bar; "done" goes from 0 to 1."""

    def estimate(self, state: ServerState) -> Estimate:
        """Read the result off the final state."""


@dataclass(frozen=True)
class Algorithm(Generic[Data, SiteState, ServerState]):
    """A site part and the server part that understands its summands."""

    site: SitePart[Data, SiteState]
    server: ServerPart[ServerState]


class Transport(Protocol):
    """Carries a message to every site and brings the replies back, in a fixed order of sites."""

    def exchange(
        self, message: Message, own: Mapping[str, Message] | None = None, enough: int | None = None
    ) -> Mapping[str, Message]:
        """One message out, one reply from every site; a missing reply is a MissingSiteError, never a smaller sum.

        own: fields that single sites are sent besides the message; only these sites are then asked.
        enough: take what there is if at least so many sites answer (None: all that are asked).
        """

    @property
    def sent(self) -> int:
        """Bytes that have left all sites so far."""

    @property
    def received(self) -> int:
        """Bytes that all sites have been sent so far."""

    def close(self) -> None:
        """Release what the transport holds."""


class Aggregation(Protocol):
    """Turns summands into a total.  Both halves are in one file, so that one can be checked against the other."""

    def at_site(
        self, site: str, answer: Callable[[Message], Summand], vault: Vault | None = None
    ) -> Callable[[Message], Message]:
        """Wrap a site's answers on their way out; what must not be drawn twice is in the vault (None: in memory)."""

    def total(self, transport: Transport, message: Message) -> Total:
        """Ask every site and add up what they answer."""
