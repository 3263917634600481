"""The aggregations by name."""

from collections.abc import Callable

from dagora.aggregation.cohort import Cohort
from dagora.aggregation.encrypted import Encrypted
from dagora.aggregation.masked import Masked
from dagora.aggregation.plain import Plain
from dagora.aggregation.shared import Shared
from dagora.federated.protocol import Aggregation

AGGREGATIONS: dict[str, Callable[[Cohort], Aggregation]] = {
    "plain": lambda cohort: Plain(),
    "masked": Masked,
    "shared": Shared,
    "encrypted": Encrypted,
}
