"""What a site is told when it joins a run, and the cohort that server and sites make of it, each for itself."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dagora.aggregation.cohort import Cohort
from dagora.errors import InputError, MessageError
from dagora.federated.message import Message
from dagora.federation.kits import Kit
from dagora.federation.order import Order
from dagora.federation.plan import Plan
from dagora.federation.schema import names_from, schema_hash
from dagora.federation.texts import boxed, text_in
from dagora.version import __version__


@dataclass(frozen=True)
class Joining:
    """The order, the columns in their order, and a signing certificate of every site of the plan, in its order."""

    order: Order
    columns: tuple[str, ...]
    certificates: tuple[str, ...]
    version: str = field(default=__version__)

    @classmethod
    def read(cls, message: Message) -> "Joining":
        """As it came over the network."""
        columns = names_from(text_in(message, "columns"))
        if text_in(message, "schema") != schema_hash(columns):
            raise MessageError("message refused: the schema is not what its hash says")
        if len(set(columns)) < len(columns):  # d copies of one column would be d^2 numbers
            raise MessageError("message refused: it names a column twice")
        certificates = names_from(text_in(message, "certificates"))
        return cls(Order.read(message), columns, certificates, text_in(message, "version"))

    def fields(self) -> Message:
        """For the network."""
        return {
            **self.order.fields(),
            "version": self.version,
            "schema": schema_hash(self.columns),
            "columns": boxed(json.dumps(self.columns)),
            "certificates": boxed(json.dumps(self.certificates)),
        }

    def cohort(self, kit: Kit, private: Mapping[str, Ed25519PrivateKey] | None = None) -> Cohort:
        """The sites of the plan with their keys, under all that was ordered and agreed."""
        sites = Plan.from_json(self.order.plan).sites
        if len(self.certificates) != len(sites):
            raise MessageError("message refused: it does not hold one certificate of every site")
        keys = {site: kit.public_key(site, own) for site, own in zip(sites, self.certificates, strict=True)}
        terms = {"order": self.order.digest, "schema": schema_hash(self.columns), "version": self.version}
        return Cohort(keys, private or {}).under(**terms)


def signed_head(cohort: Cohort, site: str, run: str, head: str) -> bytes:
    """A site's signature under the head of its ledger, for the other sites to note."""
    return cohort.private[site].sign(_head_statement(cohort, site, run, head))


def check_head(cohort: Cohort, site: str, run: str, head: str, signature: bytes) -> None:
    """Whether it is that site's."""
    try:
        cohort.public[site].verify(signature, _head_statement(cohort, site, run, head))
    except InvalidSignature:
        raise InputError(
            f"site {site!r}: the head of its ledger is not signed by its key, or it was told other terms of the run; "
            "the server may be misbehaving: ask the administrator"
        ) from None


def _head_statement(cohort: Cohort, site: str, run: str, head: str) -> bytes:
    return json.dumps(["dagora ledger", cohort.transcript.hex(), site, run, head]).encode()
