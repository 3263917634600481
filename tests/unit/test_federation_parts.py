"""The parts of a federation, one by one: files, plans, schemas, kits, provisioning, results, the desk, inspections."""

import csv
import json
import os
import re
import shutil
import socket
import ssl
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as new_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

import dagora
from dagora.aggregation.ledger import Ledger, LedgerError, Noted, Sent, read, spent, verify
from dagora.aggregation.plain import Plain
from dagora.aggregation.turns import STARTS, Attempts
from dagora.algorithms.covariance import CovarianceSite
from dagora.algorithms.inspection import InspectedServer, InspectedSite, SiteState
from dagora.data.moments import Moments
from dagora.data.summary import Facts, Prepared, SiteSummary
from dagora.errors import DagoraError, InputError, MessageError
from dagora.federated.guard import Guard
from dagora.federated.message import Message, decode, encode
from dagora.federated.policy import MAX_NAME, Job, Policy, PolicyError
from dagora.federated.protocol import Estimate, Summand, Total
from dagora.federated.run import Kept, run
from dagora.federated.site import Site
from dagora.federated.vault import Memory
from dagora.federation import results, store
from dagora.federation.coordinator import RoundsOnDisk
from dagora.federation.desk import Desk
from dagora.federation.kits import ADMIN, SERVER, SITE, Kit
from dagora.federation.plan import Plan
from dagora.federation.probe import Refusal, answers, free_port, why_not
from dagora.federation.provision import Federation, provision
from dagora.federation.schema import agreed, check_columns, names_from, schema_hash
from dagora.federation.store import (
    FolderVault,
    Records,
    StoreError,
    finish_removing,
    read_records,
    remove_folder,
    write_whole,
)
from dagora.federation.texts import boxed, text_in
from dagora.transport.in_process import InProcess
from dagora.transport.nvflare import COLLECT, DONE, UNKNOWN, WORKING
from tests.federations import (
    ADMINISTRATOR,
    SITES,
    SPARE,
    Hall,
    KilledError,
    Wire,
    kill,
    learned,
    made_kits,
    plan_for,
    without_waiting,
    written_series,
    written_sites,
)
from tests.helpers import sites_with_a_cycle


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    without_waiting(monkeypatch)


def refusal(act: Callable[[], object], kind: type[DagoraError] = InputError) -> str:
    with pytest.raises(kind) as caught:
        act()
    text = str(caught.value)
    assert "\n" not in text
    return text


# Files that survive a crash.

RECORDS = (b"one", b"", b"three" * 9)


def filled(path: Path) -> bytes:
    records = Records(path)
    for record in RECORDS:
        records.append(record)
    return path.read_bytes()


def test_records_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "records"
    assert list(Records(path)) == list(read_records(path)) == []
    filled(path)
    assert tuple(Records(path)) == tuple(read_records(path)) == RECORDS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_torn_tail_is_dropped_wherever_it_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "records"
    whole, ends = filled(path), [0]
    for record in RECORDS:
        ends.append(ends[-1] + 16 + len(record))
    assert ends[-1] == len(whole)
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        complete = sum(end <= cut for end in ends[1:])
        assert tuple(read_records(path)) == RECORDS[:complete]
        records = Records(path)
        assert path.stat().st_size == ends[complete]
        records.append(b"after")
        assert tuple(Records(path)) == (*RECORDS[:complete], b"after")


@pytest.mark.parametrize("tail", [b"\0" * 40, b"\xff" * 40, b"\x05" + b"\0" * 15 + b"other"])
def test_a_tail_that_was_never_written_is_dropped(tail: bytes, tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(filled(path) + tail)
    assert tuple(Records(path)) == RECORDS


def test_a_record_that_was_changed_is_told_unless_it_is_the_last(tmp_path: Path) -> None:
    path = tmp_path / "records"
    whole = filled(path)
    records = len(list(read_records(path)))
    for zeros in (0, 64):  # as a crash may leave it, with zeros that the disk had made room with
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]) + bytes(zeros))
        assert len(list(read_records(path))) == records - 1
    path.write_bytes(whole[:17] + bytes([whole[17] ^ 1]) + whole[18:])  # in the first record
    with pytest.raises(StoreError, match="damaged in the middle"):
        list(read_records(path))


def test_a_folder_goes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    for name in ("join", "secret"):
        (folder / name).write_bytes(b"x")
    monkeypatch.setattr(shutil, "rmtree", lambda *args, **options: None)  # a crash before anything is deleted
    remove_folder(folder)
    assert not folder.exists()  # and not one file of it under its name
    monkeypatch.undo()
    finish_removing(folder.parent)
    assert list(folder.parent.iterdir()) == []


def test_records_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced = tmp_path / "records", []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    records = Records(path)
    records.append(b"one")
    assert synced == [path.stat().st_ino, tmp_path.stat().st_ino]  # a new file's name is in its folder, too
    records.append(b"two")
    assert synced[2:] == [path.stat().st_ino]


def full(*_: object) -> int:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_full_disk_leaves_whole_records_and_is_told(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records"
    filled(path)
    records = Records(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        assert "No space left on device; make room" in refusal(lambda: records.append(b"lost"), StoreError)
    records.append(b"four")
    assert tuple(Records(path)) == (*RECORDS, b"four")


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
@pytest.mark.parametrize("end", [full, kill])
def test_a_file_is_the_old_one_until_it_is_the_new_one(
    end: Callable[..., object], call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, call, end)
        with pytest.raises(KilledError if end is kill else StoreError):
            write_whole(path, b"new and longer")
    assert path.read_bytes() == b"old"
    write_whole(path, b"new and longer")
    assert path.read_bytes() == b"new and longer"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, move = [], os.replace

    def moved(old: Path, new: Path) -> None:
        calls.append("replace")
        move(old, new)

    monkeypatch.setattr(os, "fsync", lambda file: calls.append("sync"))
    monkeypatch.setattr(os, "replace", moved)
    write_whole(tmp_path / "file", b"new")
    assert calls == ["sync", "replace", "sync"]


def test_a_secret_is_made_once_and_is_its_owners(tmp_path: Path) -> None:
    drawn: list[bytes] = []

    def draw() -> bytes:
        drawn.append(os.urandom(32))
        return drawn[-1]

    names = ("x25519 run-1", "x25519 run-2", "../../outside", "a" * 1000)
    first = [FolderVault(tmp_path).once(name, draw) for name in names]
    again = [FolderVault(tmp_path).once(name, draw) for name in names]
    assert first == again == drawn
    files = list(tmp_path.iterdir())
    assert len(files) == len(names)
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_a_secret_is_kept_before_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "write_whole", kill)
    with pytest.raises(KilledError):
        FolderVault(tmp_path).once("key", lambda: b"secret")
    assert list(tmp_path.iterdir()) == []


def test_a_vault_in_memory_keeps_the_newest() -> None:
    vault, made = Memory(room=2), iter(range(100))
    draw = lambda: bytes([next(made)])  # noqa: E731
    assert [vault.once(name, draw) for name in "abab"] == [b"\0", b"\1", b"\0", b"\1"]
    assert [vault.once(name, draw) for name in "cbca"] == [b"\2", b"\1", b"\2", b"\3"]


# Texts.


def test_texts_travel() -> None:
    for text in ("", "kurz", "ß" * 100_000):
        assert text_in({"t": boxed(text)}, "t") == text
    assert text_in({"t": "short"}, "t") == "short"


@pytest.mark.parametrize("value", [7, 1.5, np.zeros(3), np.array([255], dtype=np.uint8)])
def test_what_is_no_text_is_refused(value: Any) -> None:
    assert "no text 't'" in refusal(lambda: text_in({"t": value}, "t"), MessageError)
    assert "no text 'u'" in refusal(lambda: text_in({"t": value}, "u"), MessageError)


# Plans.

NOISY = {"method": "covariance", "aggregation": "gaussian"}


def test_a_plan_survives_the_network() -> None:
    plan = Plan.of({**NOISY, "epsilon": 1.0, "lam": 0.2, "sites": ["b", "a"], "deadline": 5, "working": 7})
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.to_json() == plan.to_json()
    assert (again.sites, again.settings.lam, again.epsilon) == (("b", "a"), 0.2, 1.0)
    assert (again.deadline, again.working, Plan.of({}).working) == (5, 7, 3600.0)
    networks = Plan.of({"model": "mlp", "hidden": [4, 2]})
    assert Plan.from_json(networks.to_json()) == networks


def test_a_plan_is_learns_arguments() -> None:
    job = plan_for(("a", "b"), **NOISY, epsilon=1.0).job("run-1", ADMINISTRATOR)
    assert job == Job("run-1", "covariance", "gaussian", ("a", "b"), 1.0, 1e-5, 0, 1, ADMINISTRATOR)
    assert Plan.of({**NOISY, "epsilon": 1.0}).settings.chosen_learner == "notears"  # one that heeds noise
    assert Plan.of({"method": "covariance"}).settings.chosen_learner == "boss"


def test_a_plan_changes_by_keys_that_are_known() -> None:
    plan = Plan.of({"lam": 0.2})
    assert plan.with_changes({"sites": ["a"], "lam": 0.3}) == Plan.of({"lam": 0.3, "sites": ["a"]})
    assert "there is no key 'site'" in refusal(lambda: plan.with_changes({"site": "a"}))


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"module": "os"}, "there is no key 'module'; choose from model, method"),
        ({"options": {}}, "there is no key 'options'"),
        ({"device": "cuda"}, "there is no key 'device'"),
        ({"threads": 4}, "there is no key 'threads'"),
        ({"policy": "none"}, "there is no key 'policy'"),
        ({"method": "pooled"}, "method: 'pooled' would move rows"),
        ({"method": "fastest"}, "method: there is no 'fastest'"),
        ({"method": ["admm"]}, "method: there is no"),
        ({"model": {}}, "wrong kind"),
        ({"aggregation": "none"}, "aggregation: there is no 'none'"),
        ({"aggregation": {}}, "wrong kind"),
        ({"aggregation": "gaussian", "method": "covariance"}, "epsilon: aggregation 'gaussian' needs it"),
        ({"epsilon": 1.0}, "epsilon: only aggregation 'gaussian'"),
        ({"aggregation": "gaussian", "epsilon": 1.0}, "states no sensitivity"),
        ({"lam": "much"}, "lam: must be a number"),
        ({"lam": float("nan")}, "lam: must be a finite number"),
        ({"alpha": 0.1}, "alpha: method 'admm' with preset 'default' has no use for it"),
        ({"polish": "no"}, "polish: must be True or False"),
        ({"sites": ["a", "a"]}, "sites: must be a list of different names"),
        ({"sites": [3]}, "sites: must be a list of different names"),
        ({"sites": [""]}, "sites: must be a list of different names"),
        ({"sites": 3}, "wrong kind"),
        ({"sites": "abc"}, "sites: is of the wrong kind"),
        ({"deadline": 0}, "deadline: must be a number of seconds"),
        ({"deadline": "600"}, "deadline: is of the wrong kind"),
        ({"deadline": True}, "deadline: is of the wrong kind"),
        ({"deadline": float("nan")}, "deadline: must be a number of seconds"),
        ({"working": 0}, "working: must be a number of seconds over 0"),
        ({"working": "3600"}, "working: is of the wrong kind"),
        ({"working": float("inf")}, "working: must be a number of seconds"),
        ({"series": 3, "model": "dynamic"}, "series"),
        ({**NOISY, "epsilon": "1"}, "epsilon"),
        ({**NOISY, "epsilon": 1.0, "delta": "0"}, "delta"),
        ({**NOISY, "epsilon": 1.0, "colluders": "1"}, "colluders"),
    ],
)
def test_a_plan_of_anything_else_is_refused(keys: dict[str, Any], says: str) -> None:
    assert says in refusal(lambda: Plan.of(keys))


@pytest.mark.parametrize("text", ["", "[]", "3", "null", "{", '"admm"', "[" * 10**5])
def test_a_plan_that_is_none_is_refused(text: str) -> None:
    assert "not a list of keys and values" in refusal(lambda: Plan.from_json(text))


def test_a_job_file(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('method = "covariance"\nlearner = "ges"\npenalty = 2\nsites = ["north", "south"]\n')
    assert Plan.read(path) == Plan.of(
        {"method": "covariance", "learner": "ges", "penalty": 2, "sites": ["north", "south"]}
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("method = ", "is not valid TOML"),
        ('method = "admm"\nmethod = "voting"', "is not valid TOML"),
        ('[tool]\nmethod = "admm"', "there is no key 'tool'"),
        ("lam = 2020-01-01", "lam: must be a number"),
        ('device = "cuda"', "there is no key 'device'"),
    ],
)
def test_a_job_file_that_is_wrong_is_named(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text)
    told = refusal(lambda: Plan.read(path))
    assert told.startswith(f"job {str(path)!r}: ")
    assert says in told


def test_a_job_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "cannot be read: No such file or directory" in refusal(lambda: Plan.read(tmp_path / "none.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    assert "is not valid TOML" in refusal(lambda: Plan.read(tmp_path / "bytes.toml"))


# Columns.


def test_columns_may_come_in_any_order() -> None:
    assert agreed({"north": ("a", "b", "c"), "south": ("c", "a", "b")}) == ("a", "b", "c")
    assert agreed({"north": ("a",)}) == ("a",)


def test_a_mismatch_names_site_and_columns() -> None:
    told = refusal(lambda: agreed({"north": ("a", "b", "c"), "south": ("a", "d", "c"), "east": ("a", "b", "c")}))
    where = "site 'south': lacks column 'b' and adds column 'd', compared with site 'north'"
    assert told == f"{where}; give all sites the same columns"
    assert refusal(lambda: check_columns("east", ("a",), ("a", "b"), "the run")).startswith(
        "site 'east': lacks column 'b', compared with the run"
    )
    assert "adds column 'b'" in refusal(lambda: check_columns("east", ("a", "b"), ("a",), "the run"))


def test_a_schemas_hash_is_of_names_and_order() -> None:
    hashes = {schema_hash(names) for names in ((), ("a",), ("a", "b"), ("b", "a"), ("ab",), ("a", "b", ""))}
    assert len(hashes) == 6
    assert schema_hash(("a", "b")) == schema_hash(("a", "b"))


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1]", '"a"', '["a", null]', "[" * 10**5])
def test_what_is_no_list_of_names_is_refused(text: str) -> None:
    assert "message refused" in refusal(lambda: names_from(text), MessageError)
    assert names_from('["a", "b"]') == ("a", "b")


# Kits.


@dataclass(frozen=True)
class Authority:
    """One that makes certificates, good ones and bad ones."""

    name: str
    key: EllipticCurvePrivateKey
    start: timedelta = timedelta(days=-2)
    end: timedelta = timedelta(days=30)

    @classmethod
    def new(cls, name: str = "trial", start: int = -2, end: int = 30) -> "Authority":
        return cls(name, new_key(SECP256R1()), timedelta(days=start), timedelta(days=end))

    def issue(self, name: str, key: Any, start: int = -2, end: int = 30) -> bytes:
        return self._signed(name, key.public_key(), timedelta(days=start), timedelta(days=end))

    @property
    def root(self) -> bytes:
        return self._signed(self.name, self.key.public_key(), self.start, self.end)

    def _signed(self, name: str, key: Any, start: timedelta, end: timedelta) -> bytes:
        now = datetime.now(UTC)
        subject, issuer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in (name, self.name))
        builder = x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number(), now + start, now + end)
        for extension in (
            x509.SubjectAlternativeName([x509.DNSName("localhost")]),
            x509.BasicConstraints(ca=name == self.name, path_length=None),
        ):
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self.key, SHA256()).public_bytes(Encoding.PEM)


def pem(key: Any) -> bytes:
    return bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


@dataclass(frozen=True)
class Forge:
    """A site's kit made by hand, good until something in it is replaced."""

    folder: Path
    authority: Authority
    keys: dict[str, Any]

    @classmethod
    def new(cls, folder: Path, authority: Authority | None = None, name: str = "north") -> "Forge":
        authority = Authority.new() if authority is None else authority
        forge = cls(folder / name, authority, {"client": new_key(SECP256R1()), "signing": Ed25519PrivateKey.generate()})
        (forge.folder / "startup").mkdir(parents=True)
        about = {"federation": "trial", "role": SITE, "name": name, "host": "localhost", "port": 1, "listen": ""}
        (forge.folder / "kit.json").write_text(json.dumps({**about, "sites": SITES}))
        forge.put("rootCA.pem", authority.root)
        for part, key in forge.keys.items():
            forge.put(f"{part}.crt", authority.issue(name, key))
            forge.put(f"{part}.key", pem(key))
        return forge

    def put(self, file: str, data: bytes) -> None:
        (self.folder / "startup" / file).write_bytes(data)

    def read(self) -> Kit:
        return Kit.read(self.folder, SITE)

    def refused(self, part: str) -> str:
        told = refusal(self.read)
        assert told.startswith(f"kit {str(self.folder)!r}: startup/{part}.crt: ")
        return told


PARTS = pytest.mark.parametrize("part", ["client", "signing"])


def test_a_kit_says_who_it_is(tmp_path: Path) -> None:
    kit = Forge.new(tmp_path).read()
    assert (kit.name, kit.role, kit.address, kit.sites) == ("north", SITE, "localhost:1", SITES)
    assert sorted(kit.credentials) == ["ca_cert", "client_cert", "client_key"]
    assert all(Path(path).exists() for path in kit.credentials.values())
    assert kit.public_key("north", kit.signing_certificate) == kit.signing_key.public_key()
    assert kit.state == tmp_path / "north" / "state"
    assert kit.state.is_dir()


def test_made_kits_are_good() -> None:
    for name, role in ((SERVER, SERVER), (ADMINISTRATOR, ADMIN), *((site, SITE) for site in SITES)):
        kit = Kit.read(made_kits() / name, role)
        assert (kit.name, kit.federation, kit.sites) == (name, "trial", (*SITES, SPARE))
        keys = [path for path in (made_kits() / name / "startup").iterdir() if path.suffix == ".key"]
        assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}


def test_no_kit_and_broken_ones(tmp_path: Path) -> None:
    assert "is no startup kit (there is no kit.json)" in refusal(lambda: Kit.read(tmp_path, SITE))
    for text in ("", "{", "[]", "{}", '{"federation": "trial"}', "\x00"):
        (tmp_path / "kit.json").write_text(text)
        assert "its kit.json is not valid; ask for a new kit" in refusal(lambda: Kit.read(tmp_path, SITE))
    (tmp_path / "kit.json").unlink()
    (tmp_path / "kit.json").mkdir()
    assert "cannot be read: Is a directory" in refusal(lambda: Kit.read(tmp_path, SITE))


@pytest.mark.parametrize(
    ("name", "asked", "says"),
    [
        ("north", SERVER, "is the kit of a site, 'north'; name one of the server"),
        (SERVER, SITE, "is the kit of the server, 'server'; name one of a site"),
        (ADMINISTRATOR, SITE, f"is the kit of an administrator, '{ADMINISTRATOR}'; name one of a site"),
        ("south", ADMIN, "is the kit of a site, 'south'; name one of an administrator"),
    ],
)
def test_a_kit_of_another_role_is_refused(name: str, asked: str, says: str) -> None:
    assert says in refusal(lambda: Kit.read(made_kits() / name, asked))


def test_a_kit_of_no_role_is_refused(tmp_path: Path) -> None:
    forge = Forge.new(tmp_path)
    about = json.loads((forge.folder / "kit.json").read_text())
    (forge.folder / "kit.json").write_text(json.dumps({**about, "role": "queen"}))
    assert "ask for a new kit" in refusal(forge.read)


@PARTS
def test_an_expired_certificate_says_when(part: str, tmp_path: Path) -> None:
    forge = Forge.new(tmp_path)
    forge.put(f"{part}.crt", forge.authority.issue("north", forge.keys[part], -30, -1))
    day = datetime.now(UTC) - timedelta(days=1)
    assert f"expired on {day:%Y-%m-%d}; ask for a new kit" in forge.refused(part)


@PARTS
def test_a_certificate_that_is_not_valid_yet_points_to_the_clock(part: str, tmp_path: Path) -> None:
    forge = Forge.new(tmp_path)
    forge.put(f"{part}.crt", forge.authority.issue("north", forge.keys[part], 1, 30))
    told = forge.refused(part)
    assert re.search(r"is not valid before \d{4}-\d\d-\d\d \d\d:\d\d UTC; check this machine's clock", told)


@pytest.mark.parametrize(("start", "end", "says"), [(-30, -1, "expired on"), (1, 30, "is not valid before")])
def test_an_authority_has_its_time_too(start: int, end: int, says: str, tmp_path: Path) -> None:
    assert says in Forge.new(tmp_path, Authority.new(start=start, end=end)).refused("client")


@PARTS
@pytest.mark.parametrize("name", ["trial", "another federation"])
def test_a_certificate_of_another_authority_is_refused(name: str, part: str, tmp_path: Path) -> None:
    forge = Forge.new(tmp_path)
    forge.put(f"{part}.crt", Authority.new(name).issue("north", forge.keys[part]))
    assert "was not issued by the authority in rootCA.pem; ask for a new kit" in forge.refused(part)


@PARTS
def test_a_key_of_another_certificate_is_refused(part: str, tmp_path: Path) -> None:
    forge = Forge.new(tmp_path)
    other = new_key(SECP256R1()) if part == "client" else Ed25519PrivateKey.generate()
    forge.put(f"{part}.key", pem(other))
    assert "does not belong to the key beside it; ask for a new kit" in forge.refused(part)


@PARTS
def test_a_certificate_of_somebody_else_is_refused(part: str, tmp_path: Path) -> None:
    forge = Forge.new(tmp_path)
    forge.put(f"{part}.crt", forge.authority.issue("south", forge.keys[part]))
    assert "is of 'south', not of 'north'" in forge.refused(part)


@PARTS
@pytest.mark.parametrize("file", ["crt", "key"])
def test_a_file_that_is_broken_or_missing_is_named(file: str, part: str, tmp_path: Path) -> None:
    forge = Forge.new(tmp_path)
    forge.put(f"{part}.{file}", b"no pem")
    assert "is not a certificate with its key; ask for a new kit" in forge.refused(part)
    (forge.folder / "startup" / f"{part}.{file}").unlink()
    assert f"startup/{part}.{file} cannot be read: No such file" in refusal(forge.read)


def test_a_name_on_a_kit_is_not_believed(tmp_path: Path) -> None:
    forge = Forge.new(tmp_path)
    about = json.loads((forge.folder / "kit.json").read_text())
    (forge.folder / "kit.json").write_text(json.dumps({**about, "name": "south"}))
    assert "is of 'north', not of 'south'" in forge.refused("client")


def test_a_signing_certificate_is_its_sites_own(tmp_path: Path) -> None:
    forge = Forge.new(tmp_path)
    kit, key = forge.read(), Ed25519PrivateKey.generate()
    good = forge.authority.issue("south", key)
    assert kit.public_key("south", good.decode()) == key.public_key()
    for shown, says in (
        (good, "site 'east': showed a signing certificate that is not its own; stop it"),
        (forge.authority.issue("east", forge.keys["client"]), "is not for signing"),  # one for TLS
        (Authority.new().issue("east", key), "site 'east': the signing certificate is not good in this federation"),
        (Authority.new("other").issue("east", key), "not good in this federation"),
        (forge.authority.issue("east", key, -30, -1), "not good in this federation"),
        (forge.authority.issue("east", key, 1, 30), "not good in this federation"),
        (b"no pem", "not good in this federation"),
    ):
        assert says in refusal(lambda shown=shown: kit.public_key("east", shown.decode()))  # type: ignore[misc]


# Provisioning.

TRIAL = Federation("trial", "dagora.example.org", 8002, ("north", "south"), (ADMINISTRATOR,))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sites": ("north pole",)}, "'north pole' cannot be a site's name"),
        ({"sites": ("../north",)}, "cannot be a site's name"),
        ({"sites": ("",)}, "cannot be a site's name"),
        ({"sites": ("north\n",)}, "cannot be a site's name"),
        ({"sites": ("-north",)}, "cannot be a site's name"),
        ({"sites": ("n" * 64,)}, "cannot be a site's name"),
        ({"sites": ("server",)}, "'server' cannot be a site's name"),
        ({"sites": ("Server",)}, "cannot be a site's name"),
        ({"sites": ("authority",)}, "cannot be a site's name"),
        ({"sites": ("Dagora",), "host": "dagora"}, "not the server's name"),  # it could pass for the server
        ({"sites": (ADMINISTRATOR,)}, "cannot be a site's name"),
        ({"sites": ()}, "sites is empty"),
        ({"sites": ("north", "south", "north")}, "'north' appears twice"),
        ({"admins": (ADMINISTRATOR, ADMINISTRATOR)}, "appears twice"),
        ({"admins": ("ada",)}, "'ada' cannot be an administrator; give an e-mail address"),
        ({"admins": ()}, "admins is empty"),
        ({"name": "a trial"}, "name must be letters"),
        ({"name": "t" * 42}, "name must be letters"),
        ({"port": 0}, "with a port from 1 to 65535"),
        ({"port": 65536}, "with a port from 1 to 65535"),
    ],
)
def test_names_that_cannot_be_are_refused(change: dict[str, Any], says: str) -> None:
    assert says in refusal(lambda: replace(TRIAL, **change))


GOOD = 'name = "trial"\nserver = "localhost:8002"\nsites = ["north"]\nadmins = ["ada@example.org"]\n'


def test_a_federations_file(tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    path.write_text(GOOD)
    assert Federation.read(path) == Federation("trial", "localhost", 8002, ("north",), ("ada@example.org",))
    path.write_text(GOOD + 'listen = "127.0.0.1"\n')
    assert Federation.read(path).listen == "127.0.0.1"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name = ", "is not valid TOML"),
        (GOOD + "port = 8002", "there is no key 'port'; choose from name, server, sites, admins, listen"),
        (GOOD.replace('sites = ["north"]\n', ""), "sites is missing; add it"),
        (GOOD.replace(":8002", ""), "server must be host:port"),
        (GOOD.replace("localhost", ""), "server must be host:port"),
        (GOOD.replace("8002", "http"), "server must be host:port"),
        (GOOD.replace('["north"]', '"north"'), "sites and admins are lists of names"),
        (GOOD.replace('["north"]', "[3]"), "sites and admins are lists of names"),
        (GOOD.replace('["north"]', '["north", "localhost"]'), "'localhost' cannot be a site's name"),
    ],
)
def test_a_federations_file_that_is_wrong_is_named(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    path.write_text(text)
    assert says in refusal(lambda: Federation.read(path))


def test_a_federations_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refusal(lambda: Federation.read(tmp_path / "none.toml"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_site_that_comes_later_gets_the_only_new_kit(tmp_path: Path) -> None:
    first = provision(TRIAL, tmp_path)
    assert sorted(kit.name for kit in first) == [ADMINISTRATOR, "north", SERVER, "south"]
    before = {kit.name: contents(kit) for kit in first}
    assert provision(replace(TRIAL, sites=("north", "south", "east")), tmp_path) == [tmp_path / "east"]
    assert {kit.name: contents(kit) for kit in first} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, "authority", "east"])
    assert stat.S_IMODE((tmp_path / "authority").stat().st_mode) == 0o700
    old, new = Kit.read(tmp_path / "north", SITE), Kit.read(tmp_path / "east", SITE)
    assert old.public_key("east", new.signing_certificate) == new.signing_key.public_key()
    assert new.public_key("north", old.signing_certificate) == old.signing_key.public_key()
    assert provision(TRIAL, tmp_path) == []


def test_clocks_need_not_agree(tmp_path: Path) -> None:
    for name in ("client.crt", "signing.crt", "rootCA.pem"):
        found = x509.load_pem_x509_certificate((made_kits() / "north" / "startup" / name).read_bytes())
        assert found.not_valid_before_utc < datetime.now(UTC) - timedelta(days=1)
        assert found.not_valid_after_utc > datetime.now(UTC) + timedelta(days=300)


# Why there is no connection.


@contextmanager
def listening(context: ssl.SSLContext) -> Iterator[int]:
    """A TLS server for one visitor, to whom it says one byte."""
    with socket.create_server(("localhost", 0)) as door:

        def greet() -> None:
            try:
                visitor, _ = door.accept()
                with context.wrap_socket(visitor, server_side=True) as secure:
                    secure.sendall(b"!")
            except OSError:
                pass

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        yield int(door.getsockname()[1])
    thread.join(5.0)


def context_of(forge: Forge, trusts: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(forge.folder / "startup" / "client.crt", forge.folder / "startup" / "client.key")
    context.load_verify_locations(cadata=trusts.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_a_server_that_is_there_and_one_that_is_not(tmp_path: Path) -> None:
    here = Forge.new(tmp_path)
    server = Forge.new(tmp_path, here.authority, SERVER)
    with listening(context_of(server, here.authority.root)) as port:
        kit = replace(here.read(), port=port)
        assert why_not(kit) is None
    told = why_not(kit)
    assert told == f"there is no server at localhost:{port}; start it, or check the address"
    assert not isinstance(told, Refusal)


def test_a_server_of_another_authority_is_refused(tmp_path: Path) -> None:
    here = Forge.new(tmp_path)
    server = Forge.new(tmp_path, Authority.new("other"), SERVER)
    with listening(context_of(server, here.authority.root)) as port:
        told = why_not(replace(here.read(), port=port))
    assert isinstance(told, Refusal)
    assert "shows a certificate that is not of this kit" in told


def test_a_server_that_refuses_this_kit_is_told(tmp_path: Path) -> None:
    here = Forge.new(tmp_path)
    server = Forge.new(tmp_path, here.authority, SERVER)
    with listening(context_of(server, Authority.new("other").root)) as port:
        told = why_not(replace(here.read(), port=port))
    assert isinstance(told, Refusal)
    assert "refuses this kit's certificate" in told


def test_a_port_in_use_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = int(door.getsockname()[1])
        assert not free_port("127.0.0.1", port)
    assert free_port("127.0.0.1", port)


def test_a_server_that_listens_late_is_waited_for() -> None:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = int(door.getsockname()[1])
        assert not answers("127.0.0.1", port, time.sleep, patience=0.05)  # bound, but nobody listens
        assert not answers("127.0.0.1", port, lambda _: True)  # and whoever waited was told to stop
        late = threading.Timer(0.2, door.listen)
        late.start()
        assert answers("0.0.0.0", port, time.sleep)
        late.join()


# Policies.


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return written_sites(tmp_path_factory.mktemp("tables"))


@pytest.mark.parametrize(
    ("policy", "keys", "says"),
    [
        (Policy(methods=("covariance",)), {}, r"method 'admm' is not allowed here \(allowed: covariance\)"),
        (Policy(), {"aggregation": "plain"}, "aggregation 'plain' is not allowed here"),
        (Policy(minimum_rows=100), {}, "this site has too few rows for what is asked"),
        (Policy(minimum_sites=4), {}, r"3 sites are too few here \(minimum_sites: 4\)"),
        (Policy(epsilon=1.0, delta=1e-5), {}, "without differential privacy is not allowed here"),
    ],
)
def test_a_refusal_to_join_names_site_and_rule(
    policy: Policy, keys: dict[str, Any], says: str, data: dict[str, Path], tmp_path: Path
) -> None:
    with Hall(tmp_path, data, policy) as hall:
        wire = Wire(hall)
        with pytest.raises(PolicyError, match=f"site 'north'.*policy: .*{says}"):
            hall.run(plan_for(**keys), wire)
        assert {step.topic for step in wire.steps} == {"introduce"}  # before anyone has joined
        assert len(hall.notes("north")) == 1
        assert all(isinstance(entry.what, Noted) for one in hall.members.values() for entry in one.ledger.entries)


def test_two_sites_are_too_few_by_default(data: dict[str, Path], tmp_path: Path) -> None:
    two = {site: data[site] for site in ("north", "south")}
    with Hall(tmp_path, two, Policy()) as hall, pytest.raises(PolicyError, match=r"2 sites .*\(minimum_sites: 3\)"):
        hall.run(plan_for(two))


def test_a_summand_too_large_for_the_rows_does_not_leave(data: dict[str, Path], tmp_path: Path) -> None:
    too_large = pytest.raises(PolicyError, match="site 'north': policy: this site has too few rows")
    with Hall(tmp_path, data, Policy(parameters_per_row=0.01)) as hall, too_large:
        hall.run(plan_for())
    assert not any(isinstance(entry.what, Sent) and entry.what.fields for entry in hall.members["north"].ledger.entries)


JOB = Job("run-1", "admm", "masked", SITES)


def test_a_run_is_entered_once_however_often() -> None:
    ledger = Ledger("north")
    for _ in range(3):
        Guard(JOB, 100, Policy(runs=1), ledger).enter()
    assert [entry.what for entry in ledger.entries] == [JOB]
    with pytest.raises(PolicyError, match=r"one more run after 1 is not allowed here \(runs: 1\)"):
        Guard(replace(JOB, run="run-2"), 100, Policy(runs=1), ledger).enter()


@pytest.mark.parametrize("change", [{"method": "covariance"}, {"aggregation": "shared"}, {"sites": SITES[:2]}])
def test_a_runs_name_does_not_serve_another_job(change: dict[str, Any]) -> None:
    ledger = Ledger("north")
    Guard(JOB, 100, None, ledger).enter()
    with pytest.raises(PolicyError, match="was joined here before"):
        Guard(replace(JOB, **change), 100, None, ledger).enter()
    assert len(ledger.entries) == 1


# Notes in a ledger.


def test_notes_are_in_the_chain(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger("north", path) as ledger:
        ledger.note("refused", "server", "run-1", "policy: no")
        ledger.opened(JOB)
        ledger.note("ended", "server", "run-1", "done")
        assert verify(path) == ledger.head
        assert read(path)[0].what == Noted("refused", "server", "run-1", "policy: no")
        assert spent(read(path)).runs == 1  # a note takes nothing
    with Ledger("north", path) as again:
        assert again.entries == ledger.entries
    text = path.read_text()
    for old, new in (("policy: no", "policy: ok"), ('"event":"ended"', '"event":"aided"'), ("noted", "opened")):
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(LedgerError, match="was changed after it was written"):
            verify(path)
    path.write_text("".join(text.splitlines(keepends=True)[1:]))
    with pytest.raises(LedgerError, match="does not follow the start"):
        verify(path)


def test_what_is_noted_from_outside_has_a_length(tmp_path: Path) -> None:
    entry = Ledger("north").note("refused", "w" * 500, "r" * 500, "d\n" * 500)
    assert isinstance(entry.what, Noted)
    assert [len(text) for text in (entry.what.who, entry.what.run, entry.what.detail)] == [MAX_NAME] * 3
    assert entry.line().count(b"\n") == 1


# The memory of a run.


@dataclass(frozen=True)
class Counting:
    """A server part that asks three times for the sum so far; and its site part."""

    fails_in: int = 0

    def init(self, data: Any = None) -> float:
        return 0.0

    def broadcast(self, state: float) -> Message | None:
        return None if state >= 30.0 else {"phase": "count", "so far": state}

    def global_update(self, state: float, total: Total) -> float:
        if state == 10.0 * (self.fails_in - 1):
            raise KilledError
        return state + float(total["more"][0])

    def progress(self, state: float) -> Mapping[str, float]:
        return {"done": state / 30.0}

    def estimate(self, state: float) -> Estimate:
        return Estimate(np.array([[state]]), np.zeros((1, 1), dtype=bool), np.zeros((1, 1)))

    def local_update(self, state: float, message: Message) -> tuple[float, Summand]:
        return state + 1.0, {"more": np.full(1, 5.0)}


class Listening(InProcess):
    def exchange(
        self, message: Message, own: Mapping[str, Message] | None = None, enough: int | None = None
    ) -> dict[str, Message]:
        heard.append(message)
        return super().exchange(message, own, enough)


heard: list[Message] = []


def transport() -> Listening:
    heard.clear()
    return Listening([Site(name, Counting(), None, Plain()) for name in ("a", "b")])


def test_a_round_is_kept_before_anything_is_made_of_it(tmp_path: Path) -> None:
    whole = run(Counting(), Plain(), transport())
    assert [message["round"] for message in heard] == [1, 2, 3]
    assert not any("secure.start" in message for message in heard)
    line = transport()
    with pytest.raises(KilledError):
        run(Counting(fails_in=2), Plain(), line, name="run-1", memory=RoundsOnDisk(tmp_path))
    assert [message["round"] for message in heard] == [1, 2]
    assert {message["secure.start"] for message in heard} == {0}
    memory = RoundsOnDisk(tmp_path)
    assert memory.starts == 1
    kept = memory.recall(2)
    assert kept is not None
    assert kept.total["more"].tolist() == [10.0]
    assert memory.recall(3) is None
    watched: list[float] = []
    outcome = run(
        Counting(), Plain(), transport(), lambda figures: watched.append(figures["round"]), "run-1", memory=memory
    )
    assert [(message["round"], message["secure.start"]) for message in heard] == [(3, 1)]
    assert watched == [1, 2, 3]
    assert outcome.estimate.weights == whole.estimate.weights == 30.0
    assert outcome.history == whole.history
    (entry,), (expected,) = outcome.ledger, whole.ledger
    assert (entry.phase, entry.fields, entry.rounds, entry.sent) == ("count", {"more": (1,)}, 3, expected.sent)


def test_rounds_come_back_from_the_disk_to_the_bit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    total = {"x": rng.standard_normal((3, 2)), "n": np.array(1.0 / 3.0), "none": np.empty(0)}
    RoundsOnDisk(tmp_path).keep(1, Kept(total, 7, 8, 0.25))
    found = RoundsOnDisk(tmp_path).recall(1)
    assert found is not None
    assert (found.sent, found.received, found.seconds) == (7, 8, 0.25)
    assert found.total.keys() == total.keys()
    for name, values in total.items():
        assert np.array_equal(found.total[name], values)
        assert found.total[name].shape == values.shape
        assert found.total[name].flags.writeable
    assert RoundsOnDisk(tmp_path).starts == 2


def test_the_seconds_of_earlier_starts_count(tmp_path: Path) -> None:
    memory = RoundsOnDisk(tmp_path)
    for number in (1, 2, 3):
        memory.keep(number, Kept({"more": np.full(1, 10.0)}, 1, 1, 100.0))
    again = run(Counting(), Plain(), transport(), name="run-1", memory=RoundsOnDisk(tmp_path))
    assert 300.0 <= again.seconds < 301.0
    assert heard == []


def test_attempts_go_on_after_the_servers_start() -> None:
    asked: Message = {"run": "run-1", "round": 4}
    attempts = Attempts()
    assert [attempts.of(asked, "sum")["secure.attempt"] for _ in range(3)] == [0, 1, 2]
    assert attempts.of({**asked, "round": 5}, "sum")["secure.attempt"] == 0
    later = Attempts()
    found = [later.of({**asked, "secure.start": 3}, "sum")["secure.attempt"] for _ in range(2)]
    assert found == [3 * STARTS, 3 * STARTS + 1]


# A site that replays.


def test_a_replay_is_not_written_down_and_comes_to_the_same() -> None:
    ledger, strict = Ledger("a"), Policy(rounds=1, aggregations=("plain",), minimum_sites=1, parameters_per_row=9.0)
    asked = [encode({"run": "run-1", "round": turn, "so far": 0.0}) for turn in (1, 2)]
    job = Job("run-1", "admm", "plain", ("a",))
    site = Site("a", Counting(), None, Plain(), Guard(job, 100, strict, ledger))
    assert site.fingerprint == ""
    replayed = [site.replay(request) for request in asked]  # the second is over the policy's rounds
    assert [entry.what for entry in ledger.entries] == [job]
    moved = site.fingerprint
    other = Site("a", Counting(), None, Plain())
    assert [other.handle(request) for request in asked] == replayed
    assert other.fingerprint == moved
    assert len(moved) == 64
    with pytest.raises(PolicyError, match="round 2 is not allowed here"):  # the guard is back
        site.handle(asked[1])


# Results.


def round_trip(result: dagora.Result) -> dagora.Result:
    again = results.from_bytes(results.to_bytes(result))
    for name in ("weights", "adjacency", "identified", "lag_weights", "lag_adjacency"):
        one, other = getattr(result, name), getattr(again, name)
        assert (one is None) == (other is None)
        if one is not None:
            assert np.array_equal(one, other)
            assert one.dtype == other.dtype
    assert again.summary() | {"site_rows": None} == result.summary() | {"site_rows": None}
    for name in ("names", "history", "ledger", "settings", "warnings", "removed", "sites", "seconds"):
        assert getattr(again, name) == getattr(result, name), name
    assert again.site_rows == {}
    return again


def test_a_result_survives_the_network(data: dict[str, Path], tmp_path: Path) -> None:
    result = learned(data)
    again = round_trip(result)
    assert again.edges() == result.edges() != []
    assert [path.read_bytes() for path in again.save(tmp_path / "a")[:2]] == [
        path.read_bytes() for path in result.save(tmp_path / "b")[:2]
    ]


def test_an_equivalence_class_survives_the_network(data: dict[str, Path]) -> None:
    again = round_trip(learned(data, method="covariance"))
    assert again.settings["learner"] == "boss"
    assert again.undirected() != []


def test_time_series_survive_the_network(tmp_path: Path) -> None:
    again = round_trip(learned(written_series(tmp_path), model="dynamic", series="series", time="time"))
    assert again.lagged_edges() != []


def test_removed_edges_and_curves_survive_the_network(data: dict[str, Path]) -> None:
    assert round_trip(dagora.learn(sites_with_a_cycle(), method="voting")).removed != ()
    curved = round_trip(learned(data, model="additive", method="covariance"))
    assert "no fitted functions" in refusal(lambda: curved.predict(str(data["north"])))


def test_bytes_that_are_no_result_are_refused(data: dict[str, Path]) -> None:
    whole = results.to_bytes(learned(data, method="covariance"))
    assert "message refused" in refusal(lambda: results.from_bytes(whole[:-1]), MessageError)
    for message in ({}, {"about": boxed("{}")}, {"about": boxed("[")}, {**decode(whole), "weights": 3.0}):
        broken = encode(message)
        assert "holds no result" in refusal(lambda data=broken: results.from_bytes(data), MessageError)  # type: ignore[misc]


# The desk.


class Work:
    """What a site does, under a test's control: a request takes until it is let go."""

    def __init__(self) -> None:
        self.go, self.begun = threading.Event(), threading.Event()
        self.calls: list[tuple[str, bytes]] = []
        self.active = self.most = 0

    def __call__(self, topic: str, request: bytes) -> bytes:
        self.calls.append((topic, request))
        self.begun.set()
        self.active += 1
        self.most = max(self.most, self.active)
        assert self.go.wait(10.0)
        self.active -= 1
        if request.startswith(b"bad"):
            raise InputError("the reason")
        return b"answer to " + request


def ticket(topic: str, request: bytes) -> bytes:
    return sha256(topic.encode() + request).digest()


@contextmanager
def desk(patience: float) -> Iterator[tuple[Desk, Work]]:
    work = Work()
    one = Desk(work, patience)
    try:
        yield one, work
    finally:
        work.go.set()
        one.close()


def test_a_quick_answer_comes_at_once() -> None:
    with desk(10.0) as (one, work):
        work.go.set()
        assert one.take("round", b"x") == (DONE, b"answer to x")


def test_a_slow_answer_is_collected_later() -> None:
    with desk(0.01) as (one, work):
        assert one.take("round", b"x") == (WORKING, b"")
        assert one.take(COLLECT, ticket("round", b"x")) == (WORKING, b"")
        work.go.set()
        one._patience = 10.0
        assert one.take(COLLECT, ticket("round", b"x")) == (DONE, b"answer to x")
        assert one.take(COLLECT, ticket("round", b"x")) == (DONE, b"answer to x")
        assert work.calls == [("round", b"x")]


def test_what_was_never_asked_is_unknown() -> None:
    with desk(10.0) as (one, work):
        assert one.take(COLLECT, ticket("round", b"x")) == (UNKNOWN, b"")
        assert work.calls == []


def test_the_same_request_twice_is_worked_on_once() -> None:
    with desk(0.01) as (one, work):
        assert one.take("round", b"x") == one.take("round", b"x") == (WORKING, b"")
        work.go.set()
        one._patience = 10.0
        assert one.take("round", b"x") == one.take("round", b"x") == (DONE, b"answer to x")
        assert work.calls == [("round", b"x")]
        assert one.take("join", b"x") == (DONE, b"answer to x")  # of another topic
        assert work.calls == [("round", b"x"), ("join", b"x")]


def test_requests_are_worked_on_one_after_the_other() -> None:
    with desk(0.01) as (one, work):
        assert [one.take("round", name) for name in (b"a", b"b", b"c")] == [(WORKING, b"")] * 3
        assert work.begun.wait(10.0)
        assert work.calls == [("round", b"a")]
        work.go.set()
        one._patience = 10.0
        assert one.take(COLLECT, ticket("round", b"c")) == (DONE, b"answer to c")
        assert [request for _, request in work.calls] == [b"a", b"b", b"c"]
        assert work.most == 1


def test_an_error_is_told_and_not_kept() -> None:
    with desk(10.0) as (one, work):
        work.go.set()
        for _ in range(2):
            with pytest.raises(InputError, match="the reason"):
                one.take("round", b"bad")
        assert work.calls == [("round", b"bad")] * 2


def test_an_error_of_slow_work_is_told_to_whoever_collects() -> None:
    with desk(0.01) as (one, work):
        assert one.take("round", b"bad") == (WORKING, b"")
        work.go.set()
        one._patience = 10.0
        with pytest.raises(InputError, match="the reason"):
            one.take("round", b"bad")  # waits for it: now the work is over
        with pytest.raises(InputError, match="the reason"):
            one.take(COLLECT, ticket("round", b"bad"))
        assert COLLECT not in {topic for topic, _ in work.calls}


def test_old_answers_are_forgotten() -> None:
    with desk(10.0) as (one, work):
        work.go.set()
        for number in range(6):
            one.take("round", bytes([number]))
        assert one.take(COLLECT, ticket("round", bytes([5])))[0] == DONE
        assert one.take(COLLECT, ticket("round", bytes([0])))[0] == UNKNOWN


# The inspection before a run.

ROWS = np.random.default_rng(0).standard_normal((60, 3))


def tables(folder: Path, change: Callable[[int, Any], object], rows: int = 20) -> dict[str, Path]:
    """Three sites' rows of a, b and c, each changed."""
    files = {}
    for k, site in enumerate(SITES):
        own = ROWS[k * rows : (k + 1) * rows].copy()
        change(k, own)
        files[site] = folder / f"{site}.csv"
        with files[site].open("w", newline="") as out:
            table = csv.writer(out)
            table.writerow(["a", "b", "c"])
            table.writerows(map(repr, row) for row in own.tolist())
    return files


def put(column: int, values: Callable[[int], float], at: tuple[int, ...] = (0, 1, 2)) -> Callable[[int, Any], None]:
    def change(k: int, own: Any) -> None:
        if k in at:
            own[:, column] = values(k)

    return change


def inspected(folder: Path, data: dict[str, Path], **keys: Any) -> tuple[str, list[str]]:
    """What is wrong with the data, and the phases that were asked for."""
    with Hall(folder / "hall", data) as hall:
        wire = Wire(hall)
        try:
            found = hall.run(plan_for(data, aggregation="plain", **keys), wire)
        except InputError as error:
            told = str(error)
        else:
            told = ""
            assert np.array_equal(found.weights, learned(data, **keys).weights)
        phases = [str(step.message.get("phase")) for step in wire.steps if step.topic == "round"]
        return told, list(dict.fromkeys(phases))


@pytest.mark.parametrize("value", [0.1, 0.0, -1e9, 7.0])
def test_a_column_that_is_constant_everywhere_is_named(value: float, tmp_path: Path) -> None:
    told, phases = inspected(tmp_path, tables(tmp_path, put(1, lambda k: value)))
    assert told == "all sites: the same value in every row of column 'b'; remove it"
    assert phases == ["inspect", "compare"]


def test_several_constant_columns_are_named_and_no_others(tmp_path: Path) -> None:
    def change(k: int, own: Any) -> None:
        own[:, 0], own[:, 1], own[:, 2] = 3.0, float(k), 4.0

    told, _ = inspected(tmp_path, tables(tmp_path, change))
    assert told == "all sites: the same value in every row of column 'a', 'c'; remove it"


@pytest.mark.parametrize("values", [lambda k: float(k), lambda k: 1e8 + k, lambda k: 1e-6 * k])
def test_a_column_that_is_constant_at_each_site_passes(values: Callable[[int], float], tmp_path: Path) -> None:
    told, phases = inspected(tmp_path, tables(tmp_path, put(1, values)), method="covariance")
    assert (told, phases) == ("", ["inspect", "compare", "moments"])


def test_a_column_that_is_constant_at_two_sites_passes_without_comparison(tmp_path: Path) -> None:
    told, phases = inspected(tmp_path, tables(tmp_path, put(1, lambda k: 5.0, (0, 1))), method="covariance")
    assert (told, phases) == ("", ["inspect", "moments"])


def test_columns_that_agree_in_every_row_are_named(tmp_path: Path) -> None:
    def twin(k: int, own: Any) -> None:
        own[:, 2] = own[:, 0]

    told, phases = inspected(tmp_path, tables(tmp_path, twin))
    assert told == "all sites: columns 'a' and 'c' agree in every row; remove one"
    assert phases == ["inspect"]


def test_columns_that_agree_at_two_sites_pass(tmp_path: Path) -> None:
    def twin(k: int, own: Any) -> None:
        if k:
            own[:, 2] = own[:, 0]

    assert inspected(tmp_path, tables(tmp_path, twin), method="covariance")[0] == ""


def test_a_single_row_in_all_is_told(tmp_path: Path) -> None:
    data = {"south": tables(tmp_path, lambda k, own: None, rows=1)["south"]}
    assert inspected(tmp_path, data)[0] == "all sites: a single row in all; add rows"


def test_a_row_a_site_is_enough(tmp_path: Path) -> None:
    assert inspected(tmp_path, tables(tmp_path, lambda k, own: None, rows=1), method="covariance")[0] == ""


def prepared(rows: Any) -> Prepared:
    moments = Moments.of_rows(rows)
    return Prepared(SiteSummary("north", moments, Facts.none(rows.shape[1]).after(rows)), moments)


MIXED = np.column_stack([ROWS[:10, 0], np.full(10, 4.0), np.full(10, 5.0)])


def ask(message: Message) -> Summand:
    state, summand = InspectedSite(CovarianceSite()).local_update(SiteState(prepared(MIXED)), message)
    assert state == SiteState(state.prepared, frozenset([str(message["phase"])]))  # nothing has begun
    with pytest.raises(MessageError, match="is answered once in a run"):
        InspectedSite(CovarianceSite()).local_update(state, message)
    return summand


def test_an_inspection_is_answered_with_flags() -> None:
    found = ask({"phase": "inspect"})
    assert {name: values.tolist() for name, values in found.items()} == {
        "sites": [1.0],
        "rows": [10.0],
        "constant": [0.0, 1.0, 1.0],
        "same": [0.0, 0.0, 0.0],
    }


def test_values_are_told_of_constant_columns_only() -> None:
    found = ask({"phase": "compare", "columns": np.array([1, 2])})
    assert found["value"].tolist() == [4.0, 5.0]
    assert found["square"].tolist() == [16.0, 25.0]
    for columns in ([2, 1], [1, 1]):
        twice: Message = {"phase": "compare", "columns": np.array(columns)}
        assert "a column twice, or out of order" in refusal(lambda asked=twice: ask(asked), MessageError)  # type: ignore[misc]
    for columns in ([0], [0, 1], [-3], [3], [-1]):
        message = {"phase": "compare", "columns": np.array(columns)}
        assert "columns that are not constant here" in refusal(lambda asked=message: ask(asked), InputError)  # type: ignore[misc]


@pytest.mark.parametrize("columns", [None, 1, "b", np.array([1.0]), np.array([[1]]), np.array([True]).view(np.uint8)])
def test_a_comparison_of_no_columns_is_refused(columns: Any) -> None:
    message = {"phase": "compare"} | ({} if columns is None else {"columns": columns})
    assert "names no columns to compare" in refusal(lambda: ask(message), MessageError)


def test_the_server_hands_over_once_data_have_passed() -> None:
    server = InspectedServer(Counting(), ("a", "b"))
    state = server.init()
    assert server.broadcast(state) == {"phase": "inspect"}
    assert server.progress(state) == {"done": 0.0}
    flags = {"sites": np.array([3.0]), "rows": np.array([9.0]), "constant": np.array([2.0, 2.0])}
    state = server.global_update(state, {**flags, "same": np.array([2.0])})
    assert server.broadcast(state) == {"phase": "count", "so far": 0.0}
    assert server.progress(state) == {"done": 0.0}
    state = server.global_update(state, {"more": np.array([15.0])})
    assert server.progress(state) == {"done": 0.5}
    assert server.estimate(state).weights == 15.0


def test_a_server_that_asks_for_a_value_of_a_row_is_refused(data: dict[str, Path], tmp_path: Path) -> None:
    with Hall(tmp_path, data) as hall:
        wire = Wire(hall)
        hall.run(plan_for(aggregation="plain", method="covariance"), wire)
        last = wire.steps[-1].message
        question = {"run": last["run"], "round": 3, "phase": "compare", "columns": np.array([0])}
        told = refusal(lambda: hall.members["south"].answer("round", encode(question)), InputError)
        assert "columns that are not constant here" in told
        assert hall.notes("south") == [told]
        # Which columns are constant is the site's own: it is asked once, and then no more.
        again = {**question, "round": 4, "columns": np.array([1])}
        assert "has not joined" in refusal(lambda: hall.members["south"].answer("round", encode(again)), MessageError)
