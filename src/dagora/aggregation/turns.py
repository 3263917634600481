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
        return {**message, "secure.attempt": base + self._attempt, "secure.step": step}


class Answered:
    """A site's side: randomness that hid one answer must never hide another, so old questions are refused."""

    def __init__(self) -> None:
        self._run = ""
        self._turn = (0, -1)

    def once(self, question: Question) -> None:
        """Refuse a question that is not newer than all before it.  Another run must have new keys: check that first."""
        if question.run == self._run and question.turn <= self._turn:
            raise MessageError(
                f"round {question.round}, attempt {question.attempt} was asked for before; an answer is given once"
            )
        self._run, self._turn = question.run, question.turn
