"""A run as an administrator has ordered it: the plan and the run's name, signed with the administrator's key.

The server relays orders; it cannot make one.  Every site checks the signature against its kit before anything else, and
writes down whose order it was.  The whole order is part of the run's transcript (aggregation/cohort.py), so that sites
that were shown different orders have nothing in common.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import numpy as np
from cryptography.exceptions import InvalidSignature

from dagora.errors import InputError, MessageError
from dagora.federated.message import Message
from dagora.federation.kits import Kit
from dagora.federation.plan import Plan
from dagora.federation.texts import boxed, text_in

LIFETIME = timedelta(days=30)  # the server must not choose when a run takes place, such as after new rows came in
SKEW = timedelta(days=2)  # clocks of participants may differ


@dataclass(frozen=True)
class Order:
    """What was signed, by whom, and the signature."""

    federation: str
    run: str
    plan: str  # as JSON
    time: str  # UTC, when it was signed; it is good for LIFETIME
    certificate: str  # of the administrator's signing key
    signature: bytes

    @classmethod
    def signed(cls, kit: Kit, run: str, plan: Plan, when: datetime | None = None) -> "Order":
        """With the key in an administrator's kit, now or at another time."""
        text, time = plan.to_json(), (when or datetime.now(UTC)).isoformat(timespec="seconds")
        statement = _statement(kit.federation, run, text, time)
        return cls(kit.federation, run, text, time, kit.signing_certificate, kit.signing_key.sign(statement))

    @classmethod
    def read(cls, message: Message) -> "Order":
        """As it came over the network; `check` says whether it is one."""
        federation, run = text_in(message, "federation"), text_in(message, "run")
        signature = message.get("signature")
        if not isinstance(signature, np.ndarray) or signature.dtype != np.uint8:
            raise MessageError("message refused: no administrator has signed the run")
        plan, time, certificate = (text_in(message, name) for name in ("plan", "ordered", "administrator"))
        return cls(federation, run, plan, time, certificate, signature.tobytes())

    def fields(self) -> Message:
        """For the network."""
        return {
            "federation": self.federation,
            "run": self.run,
            "plan": boxed(self.plan),
            "ordered": self.time,
            "administrator": boxed(self.certificate),
            "signature": np.frombuffer(self.signature, np.uint8),
        }

    def check(self, kit: Kit) -> str:
        """The administrator's name, if this federation's authority vouches for the key that has signed."""
        who, key = kit.administrator(self.certificate)
        try:
            if self.federation != kit.federation:
                raise InvalidSignature
            key.verify(self.signature, _statement(self.federation, self.run, self.plan, self.time))
        except InvalidSignature:
            raise MessageError(
                f"message refused: run {self.run!r} or its plan is not what administrator {who} has signed; the server "
                "may be misbehaving: ask the administrator"
            ) from None
        if not self._is_in_time():
            raise InputError(
                f"run {self.run!r} was ordered on {self.time[:10]}, and an order is good for {LIFETIME.days} days; "
                "check this machine's clock, or order the run again"
            )
        return who

    def _is_in_time(self) -> bool:
        try:
            return -SKEW <= datetime.now(UTC) - datetime.fromisoformat(self.time) <= LIFETIME
        except (ValueError, TypeError):
            return False

    @property
    def digest(self) -> str:
        """A hash of all of it."""
        signed = _statement(self.federation, self.run, self.plan, self.time, self.certificate)
        return sha256(signed + self.signature).hexdigest()


def _statement(*parts: str) -> bytes:
    return json.dumps(["dagora run", *parts], ensure_ascii=True, separators=(",", ":")).encode()
