"""Bytes that nobody meant to send: seeded mutations of valid inputs, for all that reads from the wire or a torn file.

A reader may accept an input or refuse it with a DagoraError of one line, within SECONDS and within FACTOR bytes of
memory for every byte of the input, plus ALLOWANCE.  What it accepts must be sound: it can be said again, and means the
same.  `crafted` makes an input again from its seed.
"""

import json
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks import tables
from benchmarks.mutations import Mutation, as_message, as_text, as_text_within, blindly
from benchmarks.tables import publish
from dagora.aggregation.cohort import Cohort, Question
from dagora.aggregation.layout import Layout, common_layout
from dagora.errors import DagoraError
from dagora.federated.message import MAX_BYTES, MAX_FIELDS, Message, decode, encode
from dagora.federated.run import Departure
from dagora.federation.plan import Plan
from dagora.federation.results import from_bytes, to_bytes
from dagora.federation.schema import names_from, schema_hash
from dagora.federation.store import Records
from dagora.federation.texts import boxed, text_in
from dagora.result import Result
from dagora.wide import Wide

INPUTS = {"message.decode": 120_000, "store.Records": 5_000}
OTHERS = 20_000  # inputs to every other reader
SECONDS = 1.0  # of a core, an input, with memory being traced
FACTOR, ALLOWANCE = 64, 1 << 20  # [] is two bytes of JSON and some 64 of memory; a thousand frames are half a MiB


@dataclass(frozen=True)
class Reader:
    """Valid inputs, what is done to them, what reads them, and what must hold of all that it accepts."""

    samples: Sequence[bytes]
    mutation: Mutation
    read: Callable[[bytes], Any]
    sound: Callable[[Any], bool]


@dataclass
class Tally:
    """What became of a reader's inputs."""

    accepted: int = 0
    refused: int = 0
    slowest: float = 0.0
    peak: int = 0
    size: int = 0  # of the input with the largest peak
    failures: list[str] = field(default_factory=list)


SITE = "Zürich"
KEY = Ed25519PrivateKey.from_private_bytes(sha256(b"fuzz").digest())  # inputs with signatures can be made again
COHORT = Cohort({SITE: KEY.public_key()}, {SITE: KEY})
ASKED: Message = {"run": "r", "round": 3, "phase": "path", "W": np.eye(3), "secure.attempt": 1, "secure.step": "sum"}
QUESTION = Question.of(ASKED)
LAYOUTS = ("rows:;sum:5;squares:5,5", "position:20,20", "a:", "é:1,2,3;b:0", ";".join(f"f{i}:{i}" for i in range(40)))
CONTENT: Message = {"layout": LAYOUTS[0], "words": np.arange(62, dtype=np.uint64).reshape(2, 31)}
MESSAGES: tuple[Message, ...] = (
    {},
    ASKED,
    CONTENT,
    COHORT.seal(SITE, QUESTION, CONTENT),
    {"f": np.arange(6.0).reshape(2, 3), "i": np.arange(4), "u": np.arange(5, dtype=np.uint64), "b": boxed("abc")},
    {"scalar": np.array(1.5), "empty": np.zeros((0, 7)), "deep": np.zeros((1, 2, 1, 2, 1, 2, 1, 2), np.uint8)},
    {"yes": True, "n": 2**70, "x": -0.0, "tiny": 5e-324, "text": 'é😀\n\0"\\', "": "no name", "lone": "\ud800"},
    {f"field-{i}": i for i in range(MAX_FIELDS)},
    {"large": np.zeros(30_000), "bytes": np.zeros(50_000, np.uint8)},
    {"long": "x" * 20_000, "n": 1},
)
COLUMNS = (["a"], ["a", "b", "c"], [f"x{i}" for i in range(200)], ["é", "😀", "", "two words"])
PLANS: tuple[dict[str, Any], ...] = (
    {},
    {"method": "covariance", "aggregation": "shared", "sites": ["a", "b"], "deadline": 60.5},
    {"method": "covariance", "aggregation": "gaussian", "epsilon": 1.0, "delta": 1e-6, "colluders": 1},
    {"method": "covariance", "learner": "pc", "alpha": 0.05, "aggregation": "plain"},
    {"model": "mlp", "hidden": [20, 10], "seed": 3, "lam": 0.01, "polish": False, "ridge": 0.1},
    {"model": "dynamic", "lags": 2, "lag_lam": 0.1, "series": "person", "time": "day", "preset": "default"},
)
RESULTS = (
    Result(
        weights=np.eye(3),
        adjacency=np.zeros((3, 3), int),
        names=("a", "b", "c"),
        history=({"round": 1, "h": 0.5},),
        ledger=(Departure("path", {"sum": (3,), "rows": ()}, 2, 100, 200),),
        seconds=1.5,
        settings={"method": "admm", "lam": 0.1, "hidden": [10]},
        site_rows={},
        warnings=("slow",),
        removed=((0, 1),),
        sites=("s", "t"),
    ),
    Result(
        weights=np.eye(2),
        adjacency=np.zeros((2, 2), int),
        names=("a", "b"),
        history=(),
        ledger=(),
        seconds=0.0,
        settings={},
        site_rows={},
        identified=np.eye(2, dtype=int),
        lag_weights=np.zeros((1, 2, 2)),
        lag_adjacency=np.zeros((1, 2, 2), int),
    ),
)


def readers(folder: Path) -> dict[str, Reader]:
    """All of them, by name; files go to the folder."""
    messages, results = [encode(message) for message in MESSAGES], [to_bytes(result) for result in RESULTS]
    layouts = [encode({**CONTENT, "layout": text}) for text in LAYOUTS]
    asked = [encode({**ASKED, **more}) for more in ({}, {"round": 2**40, "x": 1.5}, {"secure.body": np.zeros(9)})]
    texts = [encode({"text": value}) for value in ("abc", "é😀", boxed("é😀" * 99), boxed(""))]
    file, within = folder / "records", partial(as_text_within, name="about")
    return {
        "message.decode": Reader(messages, as_message, decode, _comes_back),
        "Layout.read": Reader([text.encode() for text in LAYOUTS], as_text, _layout, _can_be_filled),
        "common_layout": Reader(layouts, as_message, partial(_layout_of_two, layouts[0]), _can_be_filled),
        "Question.of": Reader(asked, as_message, _question, lambda question: bool(COHORT.context(question, SITE))),
        "Cohort.open, altered": Reader(messages[3:4], as_message, _opened, _is_what_was_signed),
        "Cohort.open, signed": Reader(messages, as_message, _signed_and_opened, _comes_back),
        "texts.text_in": Reader(texts, as_message, _text, lambda text: isinstance(text, str)),
        "schema.names_from": Reader(
            [json.dumps(names).encode() for names in COLUMNS],
            as_text,
            lambda data: names_from(_any_text(data)),
            lambda names: schema_hash(names) == schema_hash(names_from(json.dumps(names))),
        ),
        "Plan.from_json": Reader(
            [json.dumps(plan).encode() for plan in PLANS],
            as_text,
            lambda data: Plan.from_json(_any_text(data)),
            lambda plan: Plan.from_json(plan.to_json()).to_json() == plan.to_json(),
        ),
        "results.from_bytes": Reader(results, as_message, from_bytes, _is_sent_again),
        "results.from_bytes, text": Reader(results, within, from_bytes, _is_sent_again),
        "store.Records": Reader(_files(file), blindly, partial(_recovered, file), partial(_goes_on, file)),
    }


def crafted(reader: Reader, seed: int) -> bytes:
    """The input of a seed."""
    draw = Random(seed)
    return reader.mutation(draw, draw.choice(reader.samples), reader.samples)


def fuzz(name: str, reader: Reader, seeds: Sequence[int]) -> Tally:
    """Read the samples, which must be accepted, and then an input for every seed."""
    for sample in reader.samples:
        assert reader.sound(reader.read(sample)), f"{name}: a valid input did not come back as it was"
    tally = Tally()
    for seed in seeds:
        data = crafted(reader, seed)
        try:
            _try(reader, data, tally)
        except Exception as error:  # whatever it is: it is what is looked for
            tally.failures.append(f"{name}, seed {seed}, {len(data)} bytes: {type(error).__name__}: {str(error)[:99]}")
    return tally


def _try(reader: Reader, data: bytes, tally: Tally) -> None:
    found, refusal = None, ""
    tracemalloc.reset_peak()
    before, start = tracemalloc.get_traced_memory()[0], time.process_time()
    try:
        found = reader.read(data)
    except DagoraError as error:
        refusal = str(error) or "nothing was said"
    seconds, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1] - before
    tally.slowest = max(tally.slowest, seconds)
    if peak > tally.peak:
        tally.peak, tally.size = peak, len(data)
    assert seconds < SECONDS, f"took {seconds:.1f} s"
    assert peak <= FACTOR * len(data) + ALLOWANCE, f"allocated {peak} bytes"
    if refusal:
        assert len(refusal.splitlines()) == 1, "the refusal is not one line"
        tally.refused += 1
    else:
        assert reader.sound(found), "what was accepted is not sound"
        tally.accepted += 1


def main(runs: int, jobs: int) -> None:
    rows: list[list[str]] = []
    failures: list[str] = []
    tracemalloc.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name, reader in readers(Path(folder)).items():
                inputs = INPUTS.get(name, OTHERS)
                tally = fuzz(name, reader, range(tables.first_seed, tables.first_seed + inputs))
                failures += tally.failures[:5]
                counts = map("{:,}".format, (inputs, tally.accepted, tally.refused, len(tally.failures)))
                memory = map("{:.0f}".format, (tally.peak / 1e3, tally.size / 1e3))
                rows.append([name, *counts, f"{tally.slowest * 1e3:.1f}", *memory])
    finally:
        tracemalloc.stop()
    publish(
        "fuzz",
        "Mutated and random inputs to all that reads bytes",
        ["reader", "inputs", "accepted", "refused", "failures", "slowest ms", "largest peak kB", "of an input of kB"],
        rows,
        f"A failure is an error that is no DagoraError of one line, {SECONDS:g} s or more, a peak of memory over "
        f"{FACTOR} bytes a byte of the input plus {ALLOWANCE >> 20} MiB, or something accepted that is not sound: "
        "it does not come back when it is sent again, there is no room for it, or it is not what was signed. Times are "
        "of a core, with memory traced. store.Records cuts off what is torn at the end, and refuses damage before it.",
    )
    assert not failures, "\n".join(["inputs failed, among them:", *failures])


def _comes_back(message: Message) -> bool:
    again = decode(encode(message))
    return list(again) == list(message) and all(map(_equal, again.values(), message.values()))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and repr(a) == repr(b)


def _any_text(data: bytes) -> str:
    """A header can hold any text, lone surrogates too."""
    return data.decode(errors="surrogateescape")


def _layout(data: bytes) -> Layout:
    return Layout.read(_any_text(data), SITE)


def _layout_of_two(other: bytes, data: bytes) -> Layout:
    """A site that differs from another, and then two of one mind."""
    content = decode(data)
    with suppress(DagoraError):
        common_layout({"other": decode(other), SITE: content})
    return common_layout({SITE: content, "other": dict(content)})


def _can_be_filled(layout: Layout) -> bool:
    """What a server does with it: two words for every number that it announces, and its fields back from them."""
    size = layout.size
    if not 0 <= size <= MAX_BYTES // 16:
        return False
    return size > 10_000 or Layout.of(layout.total(Wide(np.zeros(size), np.zeros(size)))).text == layout.text


def _question(data: bytes) -> Question:
    return Question.of(decode(data))


def _opened(data: bytes) -> Message:
    return COHORT.open(SITE, QUESTION, decode(data))


def _is_what_was_signed(found: Message) -> bool:
    return encode(found) == encode(CONTENT)


def _signed_and_opened(data: bytes) -> Message:
    """A site's own nonsense."""
    signature = KEY.sign(COHORT.context(QUESTION, SITE) + sha256(data).digest())
    reply: Message = {"body": np.frombuffer(data, np.uint8), "signature": np.frombuffer(signature, np.uint8)}
    return COHORT.open(SITE, QUESTION, reply)


def _text(data: bytes) -> str:
    return text_in(decode(data), "text")


def _is_sent_again(result: Result) -> bool:
    data = to_bytes(result)
    return to_bytes(from_bytes(data)) == data


def _files(path: Path) -> list[bytes]:
    found = [b""]
    for sizes in ((0,), (1, 2, 3), (100, 0, 5000), (10,) * 30):
        records = Records(path)
        for size in sizes:
            records.append(bytes(i % 251 for i in range(size)))
        found.append(path.read_bytes())
        path.unlink()
    return found


def _recovered(path: Path, data: bytes) -> list[bytes]:
    path.write_bytes(data)
    return list(Records(path))


def _goes_on(path: Path, found: list[bytes]) -> bool:
    """What was torn is gone, and the file can grow again."""
    records = Records(path)
    records.append(b"new")
    return list(Records(path)) == [*found, b"new"]
