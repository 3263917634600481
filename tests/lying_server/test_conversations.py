"""Generated conversations with a lying server: no single site's summand is recovered, whatever is asked of whom."""

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.lying_server.kit import LIES, SEED, Case, cases

pytestmark = pytest.mark.soak

PARTS = 4  # for several processes; each has conversations of its own
GENERATED = settings(
    max_examples=LIES // PARTS,
    database=None,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),  # a case is printed as it is: to shrink it takes long and tells little
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_conversation_gives_a_single_site_away(part: int) -> None:
    seed(PARTS * SEED + part)(GENERATED(given(cases())(give_nobody_away)))()


def give_nobody_away(case: Case) -> None:
    played = case.play()
    if case.aggregation == "plain":  # the honest server has all summands already: this is what to protect against
        answered = {truth.site for each in played.conversations for truth in each.truths if truth.vector.any()}
        assert all(played.found[site].error == 0.0 for site in answered)
        return
    errors = {site: played.found[site].error for site in played.recovered}
    assert errors == {}
