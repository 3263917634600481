"""Attacks by a coordinator that deviates from the protocol, on one run or several.

Each attack is a few scripts (lies.py) that are played on a stage (conversation.py), and the harvest of all that was
heard (harvest.py).  An attack succeeds where the coordinator recovers one site's summand, which the honest total does
not give.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dagora.aggregation import residues
from dagora.aggregation.cohort import Cohort
from dagora.aggregation.ledger import Ledger
from dagora.aggregation.registry import AGGREGATIONS, Privacy
from dagora.aggregation.shared import Shared
from dagora.arrays import FloatArray
from dagora.audit.conversation import Conversation, Guarded, Protect, Stage, converse
from dagora.audit.finding import LIAR, Finding, relative_error
from dagora.audit.harvest import Recovery, at_zero, recoveries
from dagora.audit.inversion import second_moments
from dagora.audit.lies import IN_ROUNDS, Lie, Script, View
from dagora.audit.recovery import centre_of, recover
from dagora.data.moments import Moments
from dagora.errors import DagoraError
from dagora.federated.guard import Guard
from dagora.federated.message import Message
from dagora.federated.policy import Job, Policy
from dagora.federated.protocol import Aggregation, Summand
from dagora.wide import without_low

EXACT = ("masked", "shared", "encrypted")  # the protections whose totals are exact
QUESTIONS = 3  # of an honest run that are played: in ADMM the setup, and rounds enough for a site's covariance

_WIDTHS = 7  # narrow widths of words that there were
_Solve = Callable[[Stage, Sequence[Conversation]], Sequence[FloatArray]]


def _nothing(stage: Stage, heard: Sequence[Conversation]) -> Sequence[FloatArray]:
    return ()


@dataclass(frozen=True)
class Attack:
    """Runs by name with their scripts, and candidates for a summand that the general harvest does not compute."""

    says: str
    against: tuple[str, ...]
    scripts: Callable[[Stage], Mapping[str, Script]]
    solve: _Solve = _nothing
    least_sites: int = 3

    def on(self, stage: Stage) -> tuple[Recovery, ...]:
        """Play it, and say for every summand of every site how well it was recovered."""
        heard = [converse(stage, script, run) for run, script in self.scripts(stage).items()]
        return tuple(recoveries(heard, stage.rows, self.solve(stage, heard)))


# Widths of words.


def _narrow_for_one(stage: Stage) -> Mapping[str, Script]:
    lies = [
        Lie("add", "secure.high", width, (stage.victim,), IN_ROUNDS, attempt=width) for width in range(1, _WIDTHS + 1)
    ]
    return {"narrow": Script(tuple(lies), tries=_WIDTHS + 1)}


def _narrow_for_all(stage: Stage) -> Mapping[str, Script]:
    lies = [Lie("add", "secure.high", width, (), IN_ROUNDS, attempt=width - 1) for width in range(1, _WIDTHS + 1)]
    return {"retry": Script(tuple(lies), tries=_WIDTHS + 1)}


# Cohorts.


def _roles(stage: Stage) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The victim, sites that help to single it out, and sites that do not hear of it."""
    others = tuple(site for site in stage.sites if site != stage.victim)
    helpers = 2 if len(others) >= 3 else 1
    return stage.victim, others[:helpers], others[helpers:]


def _split(stage: Stage) -> Mapping[str, Script]:
    """The victim is told a small cohort, its helpers all sites, and the others all but the victim.

    With as many sites outside as their threshold, their points give the polynomial of all summands but the victim's;
    without it the helpers' points give the victim's polynomial.  With seven sites these were the default thresholds.
    """
    victim, helpers, outside = _roles(stage)
    small = View((victim, *helpers), len(helpers))
    large = View((*helpers, *outside, victim), len(outside))
    views = {victim: small} | dict.fromkeys(helpers, large)
    views |= dict.fromkeys(outside, View((*helpers, *outside), len(outside)))
    return {"split": Script(views=tuple(views.items()))}


def _victims_point(stage: Stage, heard: Sequence[Conversation]) -> Sequence[FloatArray]:
    """The victim's polynomial at 0, from the points of a run with split cohorts."""
    _, helpers, outside = _roles(stage)
    found: list[FloatArray] = []
    for number in range(1, len(stage.questions) + 1):
        points: dict[str, residues.Residues] = {
            each.site: np.asarray(each.content["point"], np.uint64)
            for each in heard[0].heard
            if "point" in each.content and each.question.get("round") == number
        }
        if not points.keys() >= {*helpers, *outside} or len({point.shape for point in points.values()}) > 1:
            continue
        order = {site: place for place, site in enumerate((*helpers, *outside), start=1)}
        single = {
            place: (points[helper] + residues.MODULI - _value_at(order[helper], order, points, outside))
            % residues.MODULI
            for place, helper in enumerate(helpers, start=2)
        }
        found.append(residues.to_floats(at_zero(single)))
    return found


def _value_at(
    x: int, order: Mapping[str, int], points: Mapping[str, residues.Residues], sites: Sequence[str]
) -> residues.Residues:
    return at_zero({order[site] - x: points[site] for site in sites})


def _another_cohort(stage: Stage) -> Mapping[str, Script]:
    others = tuple(site for site in stage.sites if site != stage.victim)
    told = tuple((site, View(others)) for site in others)
    return {"whole": Script(), "without": Script(views=told)}


def _without_one_each(stage: Stage) -> Mapping[str, Script]:
    scripts = {}
    for left_out in stage.sites:
        others = tuple(site for site in stage.sites if site != left_out)
        scripts[f"without {left_out}"] = Script(views=tuple((site, View(others)) for site in others), present=others)
    return scripts


def _from_totals_without(stage: Stage, heard: Sequence[Conversation]) -> Sequence[FloatArray]:
    """The sum of all totals holds every summand K - 1 times."""
    found: list[FloatArray] = []
    for number in range(min(len(each.totals) for each in heard)):
        totals = [np.concatenate([np.ravel(v) for v in without_low(each.totals[number]).values()]) for each in heard]
        if len({total.size for total in totals}) == 1:
            whole = np.sum(totals, axis=0) / (len(heard) - 1)
            found += [whole - total for total in totals]
    return found


# Questions.


def _subsets(stage: Stage) -> Mapping[str, Script]:
    victim, other = stage.victim, next(site for site in stage.sites if site != stage.victim)
    left = tuple(site for site in stage.sites if site not in (victim, other))
    lies = (
        Lie("withhold", sites=(victim,), step=IN_ROUNDS, attempt=1),
        Lie("withhold", sites=left, step=IN_ROUNDS, attempt=2),
        Lie("withhold", sites=(victim,), step="combine", attempt=3),
        Lie("withhold", sites=left, step="combine", attempt=4),
    )
    return {"subsets": Script(lies, tries=5)}


def _changed_field(stage: Stage) -> Mapping[str, Script]:
    fields = 2 + max(len(question) for question in stage.questions) + 2
    lies = [Lie("change", f"#{i}", 2.0, (stage.victim,), IN_ROUNDS, attempt=i + 1) for i in range(fields)]
    lies += [Lie("repeat", "secure.attempt", 50, (stage.victim,), IN_ROUNDS, attempt=fields + 1)]
    others = [site for site in stage.sites if site != stage.victim]
    again = [(-1 - i, stage.victim, Lie("change", f"#{i}", 3.0)) for i in range(fields)]
    again += [(-1 - i, site, Lie("add", "secure.attempt", 60)) for i, site in enumerate(others)]
    return {"changed": Script(tuple(lies), tries=fields + 2, again=tuple(again))}


def _swapped_keys(stage: Stage) -> Mapping[str, Script]:
    one, other = [site for site in stage.sites if site != stage.victim][:2]
    return {
        "swap": Script((Lie("swap", sites=(stage.victim,), peer=one), Lie("swap", sites=(one,), peer=other)), tries=2),
        "relay": Script((Lie("relay", sites=(stage.victim,), peer=one),), tries=2),
        "stale": Script((Lie("stale", sites=(stage.victim,)),), tries=2),
    }


def _impostor_key(stage: Stage) -> Mapping[str, Script]:
    others = [site for site in stage.sites if site != stage.victim]
    lies = tuple(Lie("impostor", sites=(stage.victim,), peer=peer) for peer in others)
    reverse = tuple(Lie("impostor", sites=(site,), peer=stage.victim) for site in others)
    return {"to the victim": Script(lies), "of the victim": Script(reverse)}


def _single_ciphertext(stage: Stage) -> Mapping[str, Script]:
    holder, *others = stage.sites
    lies = tuple(Lie("single", sites=(holder,), peer=site, attempt=i) for i, site in enumerate(others, start=1))
    return {"single": Script(lies, tries=len(others) + 1)}


_PAIRWISE = (*EXACT, "gaussian")  # all that hide single summands

ATTACKS: Mapping[str, Attack] = {
    "replies": Attack("the replies are the summands", ("plain",), lambda stage: {"honest": Script()}),
    "narrow words": Attack("one site is asked for words too narrow for its numbers", ("masked",), _narrow_for_one),
    "narrow retry": Attack("all sites are asked for narrow words, then for wide ones", ("masked",), _narrow_for_all),
    "isolated noise": Attack("one site is asked for words too narrow for its noise", ("gaussian",), _narrow_for_one),
    "split cohorts": Attack(
        "sites of one run are told different cohorts and thresholds", _PAIRWISE, _split, _victims_point
    ),
    "another cohort": Attack(
        "in a second run the others are told a cohort without the site", EXACT, _another_cohort, least_sites=4
    ),
    "runs without one": Attack(
        "as many runs as sites, each without one of them", EXACT, _without_one_each, _from_totals_without, least_sites=4
    ),
    "subsets": Attack("questions are withheld from some sites", _PAIRWISE, _subsets),
    "changed field": Attack("one site is asked again with a changed field", _PAIRWISE, _changed_field),
    "swapped keys": Attack("a site gets keys and shares that are meant for others", _PAIRWISE, _swapped_keys),
    "impostor": Attack(
        "keys of the server's own take the place of sites'", ("masked", "shared", "gaussian"), _impostor_key
    ),
    "single ciphertext": Attack(
        "the key holder is asked to open one site's ciphertexts", ("encrypted",), _single_ciphertext
    ),
}


def protection(aggregation: str, privacy: Privacy | None) -> Protect:
    """How a site that was told a view protects its summands."""

    def protect(cohort: Cohort, view: View) -> Aggregation:
        if aggregation == "shared":
            return Shared(cohort, view.threshold)
        return AGGREGATIONS[aggregation](cohort, privacy)

    return protect


def guards(
    aggregation: str,
    privacy: Privacy | None,
    rows: Mapping[str, int],
    method: str = "admm",
    policy: Policy | None = None,
) -> Guarded | None:
    """Default policies with ledgers that last over all runs of an attack; none under `plain`, which policies refuse.

    The rules about the number of rows are switched off: they are about sizes, and hence not about lies.
    """
    if aggregation not in Policy().aggregations or method not in Policy().methods:
        return None
    chosen = Policy(minimum_rows=1, parameters_per_row=1e9) if policy is None else policy
    ledgers = {site: Ledger(site) for site in rows}

    def guarded(site: str, run: str, view: View) -> Guard:
        epsilon, delta = (None, None) if privacy is None else (privacy.epsilon, privacy.delta)
        job = Job(run, method, aggregation, view.sites, epsilon, delta)
        return Guard(job, rows[site], chosen, ledgers[site])

    return guarded


def lying_server(
    aggregation: str,
    privacy: Privacy | None,
    method: str,
    part: Any,
    data: Mapping[str, Any],
    moments: Mapping[str, Moments],
    messages: Sequence[Message],
) -> Iterable[Finding]:
    """One finding for each attack on this aggregation: the site that was recovered best.

    part, data: of the sites.  moments: of their rows, for the truth.  messages: the broadcasts of an honest run.
    """
    rows = {site: own.n for site, own in moments.items()}
    asked = messages[: 1 if aggregation == "encrypted" else QUESTIONS]  # encryption takes long
    questions = tuple({name: v for name, v in m.items() if name not in ("run", "round")} for m in asked)
    stage = Stage(part, data, rows, protection(aggregation, privacy), questions)
    for name, attack in ATTACKS.items():
        if aggregation not in attack.against or len(data) < attack.least_sites:
            continue
        fresh = replace(stage, guarded=guards(aggregation, privacy, rows, method))  # an attack's ledgers are its own
        found = attack.on(fresh)
        if not found:  # all sites have refused
            detail = f"{attack.says}; no summand left a site"
            yield Finding(name, LIAR, f"summand of {stage.victim}", 1.0, 1.0, detail)
            continue
        best = max(found, key=lambda each: (each.recovered, -each.error))
        yield _finding(name, attack, best, _moments_too(found, best.site, moments, messages))


def _finding(name: str, attack: Attack, best: Recovery, moments_error: float | None) -> Finding:
    """What is not recovered counts as noise: the auditor chose the best of thousands of candidates."""
    detail = f"{attack.says}; blind: a share of the honest total"
    if moments_error is not None:
        detail += f"; the site's second moments follow with relative error {moments_error:.0e}"
    error = best.error if best.recovered else max(min(best.error, 1.0), best.guess)
    return Finding(name, LIAR, f"summand of {best.site}", error, best.guess, detail)


def _moments_too(
    found: Sequence[Recovery], site: str, moments: Mapping[str, Moments], messages: Sequence[Message]
) -> float | None:
    """The error of the site's second moments, computed from recovered summands; None if these do not give them."""
    own = [each for each in found if each.site == site]
    answers = [_summand(each) for each in own if each.recovered or not each.guess > 0.0]
    asked = list(messages[: len(own)])
    if not own or len(answers) < len(own) or len(asked) < len(own):
        return None
    try:
        centre = centre_of(asked, len(moments[site].mean))
        estimate = recover(asked, answers).second
    except (DagoraError, StopIteration, KeyError, IndexError, UnboundLocalError):  # too few rounds, or another method
        return None
    return relative_error(estimate, second_moments(moments[site], centre))


def _summand(recovery: Recovery) -> Summand:
    """The candidate in the shapes of the summand."""
    assert recovery.truth is not None
    assert recovery.found is not None
    summand, values, start = {}, recovery.found, 0
    for name, like in without_low(recovery.truth.summand).items():
        summand[name] = values[start : start + np.size(like)].reshape(np.shape(like))
        start += np.size(like)
    return summand
