"""An administrator's side: submit a plan, follow the run, fetch the result."""

import json
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Any

from dagora.errors import DagoraError, InputError, ResultWarning
from dagora.federated.message import Message, decode, encode
from dagora.federated.run import Watcher
from dagora.federation import results
from dagora.federation.kits import ADMIN, SERVER, Kit
from dagora.federation.order import Order
from dagora.federation.plan import Plan
from dagora.federation.probe import why_not
from dagora.federation.texts import text_in
from dagora.result import Result
from dagora.transport.nvflare import DONE, REFUSED, Cell

_GLANCE = 0.2  # seconds between looks at a run
_PATIENCE = 60.0  # seconds for a server that restarts to come back


def new_run() -> str:
    """A name that no other run has, and that says when it was ordered."""
    now = datetime.now(UTC)
    return f"{now:%Y%m%d-%H%M%S}{now.microsecond // 1000:03d}-{token_hex(4)}"


class Client:
    """A connection to the server, with an administrator's kit."""

    def __init__(self, folder: Path) -> None:
        self._kit = Kit.read(folder, ADMIN)
        if (reason := why_not(self._kit)) is not None:
            raise InputError(reason)
        self._cell = Cell(self._kit)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._cell.close()

    def submit(self, plan: Plan) -> str:
        """Sign a run and have the server start it; its name.  A plan without sites is for all that the kit knows of."""
        asked = plan if plan.sites else plan.with_changes({"sites": list(self._kit.sites)})
        return text_in(self._ask("submit", Order.signed(self._kit, new_run(), asked).fields()), "run")

    def resume(self, run: str) -> str:
        """Have a stopped run go on; one that goes on already, or is done, is left as it is."""
        return text_in(self._ask("resume", {"run": run}), "run")

    def status(self, run: str | None = None) -> dict[str, Any]:
        """Sites, and the newest runs; and this one, if it is older."""
        asked = {} if run is None else {"run": run}
        found: dict[str, Any] = json.loads(text_in(self._ask("status", asked), "status"))
        return found

    def abort(self, run: str) -> None:
        """End a run for good."""
        self._ask("abort", {"run": run})

    def follow(self, run: str, watch: Watcher | None = None, check: Callable[[], None] = lambda: None) -> Result:
        """Wait for a run to end, and fetch its result; a run that ended without one is an error that says why.

        check: called while waiting; may raise.
        """
        seen = 0
        while True:
            about = self.status(run)["runs"].get(run)
            if about is None:
                raise InputError(f"there is no run {run!r} at the server")
            figures = about.get("figures", {})
            if watch is not None and int(figures.get("round", 0)) > seen:
                seen = int(figures["round"])
                watch(figures)
            if about["state"] == "done":
                break
            if about["state"] != "running":
                raise DagoraError(f"run {run} was {about['state']}: {about['detail']}")
            check()
            time.sleep(_GLANCE)
        result = results.from_bytes(encode(self._ask("result", {"run": run})))
        if watch is not None and result.rounds > seen:  # rounds that went by between two looks
            watch(result.history[-1])
        for text in result.warnings:
            warnings.warn(text, ResultWarning, stacklevel=2)
        return result

    def _ask(self, topic: str, message: Message) -> Message:
        end = time.monotonic() + _PATIENCE
        while True:
            answer = self._cell.ask(SERVER, topic, encode(message)) if self._cell.wait_for(SERVER, 1.0) else None
            if answer is not None and answer[0] == DONE:
                return decode(answer[1])
            if answer is not None and answer[0] == REFUSED:
                raise DagoraError(answer[1].decode(errors="replace"))
            if time.monotonic() > end:
                raise DagoraError(why_not(self._kit) or f"the server at {self._kit.address} does not answer")
