"""The process at a site: connects to the server and answers it until it is told to stop."""

import logging
import os
import re
from pathlib import Path

from dagora.aggregation.ledger import Ledger
from dagora.data.tables import check_file
from dagora.errors import InputError
from dagora.federated.policy import Policy
from dagora.federation.desk import Desk
from dagora.federation.kits import SERVER, SITE, Kit
from dagora.federation.member import Member
from dagora.federation.probe import Refusal, why_not
from dagora.federation.process import Refusals, alone_in, leave, say_in_lines, stop_signals
from dagora.files import make_folder
from dagora.transport.nvflare import Cell

_DATA_SET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LOG = logging.getLogger("dagora.site")
_GLANCE = 0.5  # seconds between looks at the connection
_GRACE = 3.0  # seconds without a connection before a reason is looked for


def home_of_ledgers() -> Path:
    """Outside of any kit, so that a new kit goes on with the budget of the data."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "dagora" / "ledgers"


def ledger_of(data_set: str, ledgers: Path | None = None) -> Ledger:
    """The record of a data set, whoever asked for it and with whatever kit."""
    if not _DATA_SET.fullmatch(data_set):
        raise InputError(f"data-set: {data_set!r} is no name; use letters, digits, '-', '_' and '.', 100 at most")
    folder = make_folder(home_of_ledgers() if ledgers is None else ledgers)
    return Ledger(data_set, folder / f"{data_set}.jsonl", mend=True)


def serve_site(
    folder: Path,
    data: Path,
    policy: Policy | None,
    threads: int = 1,
    data_set: str | None = None,
    ledgers: Path | None = None,
) -> None:
    """Answer the server of the kit's federation.  Returns never: the process ends with a signal, or with an error.

    data_set: what its owner calls the data (None: the site's name).  ledgers: where the owner keeps the records of data
    sets, outside of any kit (None: `home_of_ledgers`).
    """
    kit = Kit.read(folder, SITE)
    check_file(kit.name, data)  # a wrong path is told now, not in the first run
    alone_in(kit.state)
    say_in_lines(kit.name)
    stop = stop_signals()
    if isinstance(reason := why_not(kit), Refusal):
        raise InputError(reason)
    ledger = ledger_of(kit.name if data_set is None else data_set, ledgers)
    member = Member(kit, data, policy, ledger, threads)
    desk, refused = Desk(member.answer), Refusals(member.ledger, _LOG)

    def handle(who: str, topic: str, request: bytes) -> tuple[str, bytes]:
        if who != SERVER:
            refused.note(who, "only the server may ask")
            raise InputError(f"site {kit.name!r}: only the server may ask")
        return desk.take(topic, request)

    _LOG.info("site %s of federation %s, data %s, ledger %s", kit.name, kit.federation, data, ledger.path)
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
