"""What FLARE's provisioning is made to build for a federation: certificates, signing keys and kit.json."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from nvflare.lighter.constants import CtxKey, ParticipantType
from nvflare.lighter.ctx import ProvisionContext
from nvflare.lighter.entity import Project
from nvflare.lighter.impl.cert import CertBuilder
from nvflare.lighter.spec import Builder
from nvflare.lighter.utils import Identity, generate_cert, serialize_cert

from dagora.federated.message import MAX_BYTES
from dagora.federation.kits import ADMIN, SERVER, SITE, common_name
from dagora.federation.store import PRIVATE

if TYPE_CHECKING:
    from dagora.federation.provision import Federation

_ROLES = {ParticipantType.SERVER: SERVER, ParticipantType.CLIENT: SITE, ParticipantType.ADMIN: ADMIN}
_ORGANISATION = "dagora"
_HEADERS = 1 << 20  # room for FLARE's own around a message

# Frames above the limit are cut off by gRPC; nobody is offered a connection beside the one to the server.
_COMMUNICATION = {
    "max_message_size": MAX_BYTES,
    "allow_adhoc_conns": False,
    "grpc": {
        "options": [
            ["grpc.max_send_message_length", MAX_BYTES + _HEADERS],
            ["grpc.max_receive_message_length", MAX_BYTES + _HEADERS],
            # A line that is cut without a word is noticed within half a minute.
            ["grpc.keepalive_time_ms", 20_000],
            ["grpc.keepalive_timeout_ms", 10_000],
            ["grpc.keepalive_permit_without_calls", 1],
            ["grpc.http2.max_pings_without_data", 0],
            ["grpc.http2.min_recv_ping_interval_without_data_ms", 10_000],
        ],
        "max_workers": 1100,  # one a connection
    },
}


def project_of(federation: "Federation") -> Any:
    """The federation in FLARE's words."""
    project = Project(federation.name, "a Dagora federation")
    ports = {"fed_learn_port": federation.port, "admin_port": federation.port}
    project.set_server(SERVER, _ORGANISATION, {**ports, "default_host": federation.host})
    for site in federation.sites:
        project.add_client(site, _ORGANISATION, {})
    for admin in federation.admins:
        project.add_admin(admin, _ORGANISATION, {"role": "project_admin"})
    return project


class Certificates(CertBuilder):  # type: ignore[misc]
    """FLARE's certificates, valid from some time ago: the clocks of participants need not agree."""

    def __init__(self, days: int, skew: timedelta) -> None:
        super().__init__(root_valid_days=days)
        self._skew = skew

    def _generate_cert(self, *args: Any, not_valid_before: datetime | None = None, **options: Any) -> Any:
        start = (not_valid_before or datetime.now(UTC)) - self._skew
        return CertBuilder._generate_cert(*args, not_valid_before=start, **options)


class Kits(Builder):  # type: ignore[misc]
    """A signing key and its certificate for every site and administrator, and kit.json for all."""

    def __init__(self, federation: "Federation", skew: timedelta) -> None:
        self._federation, self._skew = federation, skew

    def build(self, project: Project, ctx: ProvisionContext) -> None:
        """Write them beside FLARE's own files."""
        for participant in project.get_all_participants():
            about = {
                "federation": self._federation.name,
                "role": _ROLES[participant.type],
                "name": participant.name,
                "host": self._federation.host,
                "port": self._federation.port,
                "listen": self._federation.listen,
                "sites": list(self._federation.sites),
            }
            _write(Path(ctx.get_ws_dir(participant)) / "kit.json", json.dumps(about, indent=2).encode())
            _write(Path(ctx.get_local_dir(participant)) / "comm_config.json", json.dumps(_COMMUNICATION).encode())
            if participant.type in (ParticipantType.CLIENT, ParticipantType.ADMIN):
                self._sign(participant.name, Path(ctx.get_kit_dir(participant)), ctx)

    def _sign(self, name: str, folder: Path, ctx: ProvisionContext) -> None:
        key, root = Ed25519PrivateKey.generate(), ctx[CtxKey.ROOT_CERT]
        certificate = generate_cert(
            Identity(name, _ORGANISATION),
            Identity(common_name(root)),
            ctx[CtxKey.ROOT_PRI_KEY],
            key.public_key(),
            not_valid_before=datetime.now(UTC) - self._skew,
            not_valid_after=root.not_valid_after_utc,
        )
        _write(folder / "signing.crt", serialize_cert(certificate))
        _write(folder / "signing.key", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _write(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE), "wb") as file:
        file.write(data)
