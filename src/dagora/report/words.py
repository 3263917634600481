"""What left the sites, in sentences for those who own the data."""

from collections.abc import Mapping

from dagora.federated.run import Departure
from dagora.result import Result
from dagora.terminal import count, in_bytes

_PHASES = {
    "inspect": (
        "flags that tell columns from which nothing can be learned (constant at a site, or equal to "
        "another), and the number of rows"
    ),
    "compare": "the values of columns that are constant at every site",
    "deviate": "how far these values are apart",
    "count": "the number of rows and, where data is centred by the mean over all sites, the sum of every variable",
    "spread": "the sum of squares of every variable about the mean over all sites",
    "consensus": (
        "the site's current estimate of the parameters, weighted by its share of the rows, with its dual "
        "variables added, and a few inner products of how far it is from the consensus"
    ),
    "curvature": "sums over the site's rows of squared derivatives of its networks",
    "fit": "sums over the site's rows of squares, gradients and products of derivatives of its networks",
    "moments": "the number of rows, and the sums of the variables and of their products",
    "learn": "the graph or the weights that the site has learned alone",
    "parameters": (
        "the number of rows, and the sums of the variables and of products within each family of the learned graph"
    ),
    "magnitudes": "counts of rows by the size of values, bounded and with noise added",
    "positions": "counts of rows by where values lie, bounded and with noise added",
}

_PROTECTION = {
    "plain": (
        "Nothing hid a single site's contribution: whoever ran the coordinator could read each of them, and "
        "from such contributions the covariance of a site's rows can be computed. "
        "Use this in simulations, or with a coordinator that all sites trust."
    ),
    "masked": (
        "Every contribution was hidden by random masks that sites agreed on in pairs and that cancel in the "
        "sum. The coordinator saw totals over all sites, and nothing of a single one."
    ),
    "shared": (
        "Every contribution was split into shares, no few of which tell anything. The coordinator saw totals "
        "over all sites, and nothing of a single one."
    ),
    "encrypted": (
        "Every contribution was encrypted; only sums were decrypted, by a key holder among the sites. The "
        "coordinator saw totals over all sites, and nothing of a single one."
    ),
    "gaussian": (
        "Every contribution was hidden by masks, and noise was added to the totals, so that they are "
        "differentially private for single rows."
    ),
}

_REMAINS = (
    "Not protected: the totals themselves (except by noise), who took part and when, and what can be "
    "computed from a second run with one site or row more. "
    "If all other sites pool what they know, a total shows the last one. With few sites, many rounds of "
    "totals can determine single sites: "
    "the method covariance with a private sum leaves the least."
)


def departures(result: Result) -> list[dict[str, str]]:
    """Paragraphs with titles: each phase, the protection, and what remains."""
    if result.settings.get("method") == "pooled":
        return [{"title": "All rows", "text": "This run had all rows in one place; nothing was federated."}]
    told = [_phase(entry, len(result.sites)) for entry in result.ledger]
    protection = _PROTECTION.get(str(result.settings.get("aggregation")), "")
    if "epsilon_spent" in result.settings:
        protection += f" Spent: epsilon {result.settings['epsilon_spent']:.3g} at delta {result.settings['delta']:g}."
    return [
        {"title": "Rows", "text": "No row left any site. These sums did:"},
        *told,
        *_again(result),
        {"title": "Who could read them", "text": protection},
        {"title": "What remains", "text": _REMAINS},
    ]


def _phase(entry: Departure, sites: int) -> dict[str, str]:
    times = "once" if entry.rounds == 1 else f"in each of {entry.rounds} rounds"
    what = _PHASES.get(entry.phase, "sums that the method needs")
    return {
        "title": entry.phase,
        "text": f"Each site sent, {times}: {what} ({_shapes(entry.fields)}). {in_bytes(entry.sent)} left "
        f"{count(sites, 'site')}.",
    }


def _again(result: Result) -> list[dict[str, str]]:
    if result.confidence is None:
        return []
    drawn = count(result.confidence.replicates, "time")
    return [
        {
            "title": "bootstrap",
            "text": f"Once for the rows as they are, and {drawn} for as many rows that each site drew from its own, "
            "some twice and some not at all. Whoever knows which could compute single rows from as many totals as "
            "there are rows, so each site draws by a key of its own (in one process: by the seed). Totals of "
            "rows drawn again tell of extreme rows even so.",
        }
    ]


def _shapes(fields: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name}: {_size(shape)}" for name, shape in fields.items())


def _size(shape: tuple[int, ...]) -> str:
    return "1 number" if not shape else f"{' x '.join(map(str, shape))} numbers"
