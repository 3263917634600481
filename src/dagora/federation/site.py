"""The process at a site: connects to the server and answers it until it is told to stop."""

import logging
from pathlib import Path

from dagora.data.tables import check_file
from dagora.errors import InputError
from dagora.federated.policy import Policy
from dagora.federation.desk import Desk
from dagora.federation.kits import SERVER, SITE, Kit
from dagora.federation.member import Member
from dagora.federation.probe import Refusal, why_not
from dagora.federation.process import Refusals, alone_in, leave, say_in_lines, stop_signals
from dagora.transport.nvflare import Cell

_LOG = logging.getLogger("dagora.site")
_GLANCE = 0.5  # seconds between looks at the connection
_GRACE = 3.0  # seconds without a connection before a reason is looked for


def serve_site(folder: Path, data: Path, policy: Policy | None, threads: int = 1) -> None:
    """Answer the server of the kit's federation.  Returns never: the process ends with a signal, or with an error."""
    kit = Kit.read(folder, SITE)
    check_file(kit.name, data)  # a wrong path is told now, not in the first run
    alone_in(kit.state)
    say_in_lines(kit.name)
    stop = stop_signals()
    if isinstance(reason := why_not(kit), Refusal):
        raise InputError(reason)
    member = Member(kit, data, policy, threads)
    desk, refused = Desk(member.answer), Refusals(member.ledger, _LOG)

    def handle(who: str, topic: str, request: bytes) -> tuple[str, bytes]:
        if who != SERVER:
            refused.note(who, "only the server may ask")
            raise InputError(f"site {kit.name!r}: only the server may ask")
        return desk.take(topic, request)

    _LOG.info("site %s of federation %s, data %s", kit.name, kit.federation, data)
    cell = Cell(kit, handle, lambda who: refused.note(who, "a message that is not for this site"))
    was, waited, told = False, 0.0, ""
    while not stop.wait(_GLANCE):
        now = cell.connected(SERVER)
        if now and not was:
            _LOG.info("connected to the server at %s", kit.address)
            told = ""
        if was and not now:
            _LOG.warning("the connection to the server at %s is lost; trying again", kit.address)
        was, waited = now, 0.0 if now else waited + _GLANCE
        if waited >= _GRACE:
            waited, reason = 0.0, why_not(kit)
            if reason is not None and reason != told:
                _LOG.warning("%s; trying again", reason)
                told = reason
    _LOG.info("stopped")
    desk.close()
    cell.close()
    leave()
