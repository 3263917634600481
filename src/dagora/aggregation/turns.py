"""No question twice: the server numbers its attempts at a round, and a site answers each of them once."""

from dagora.aggregation.cohort import Question
from dagora.errors import MessageError
from dagora.federated.message import Message, Value

STARTS = 1 << 16  # attempts at a round before numbers would run into those after the server's next start


class Attempts:
    """The server's side: what to send so that a retry is a new question."""

    def __init__(self) -> None:
        self._last: tuple[Value | None, Value | None] = (None, None)
        self._attempt = 0

    def of(self, message: Message, step: str) -> dict[str, Value]:
        """The message with its attempt and step."""
        turn = message.get("run"), message.get("round")
        self._attempt = self._attempt + 1 if turn == self._last else 0
        self._last = turn
        start = message.get("secure.start", 0)  # a server that starts again has forgotten how often it has asked
        base = start * STARTS if isinstance(start, int) else 0
        return asked(message, step, base + self._attempt)


def asked(message: Message, step: str, attempt: int = 0) -> dict[str, Value]:
    """The message as a question; the server's count of its starts stays with the server."""
    own = {name: value for name, value in message.items() if name != "secure.start"}
    return {**own, "secure.attempt": attempt, "secure.step": step}


class Answered:
    """A site's side: randomness that hid one answer must never hide another, so old questions are refused."""

    def __init__(self) -> None:
        self._newest: dict[str, Question] = {}  # by run

    def once(self, question: Question) -> None:
        """Refuse a question that is not newer than all before it.  Another run must have new keys: check that first."""
        before = self._newest.get(question.run)
        if before is not None and question.turn <= before.turn:
            raise MessageError(
                f"round {question.round}, attempt {question.attempt} was asked for before; an answer is given once"
            )
        self._newest[question.run] = question

    def repeatable(self, question: Question) -> None:
        """The same, but the newest question itself may come again: for answers that are the same bytes every time."""
        if self._newest.get(question.run) != question:
            self.once(question)
