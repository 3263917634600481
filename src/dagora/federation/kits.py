"""Startup kits: who somebody is in a federation, and what proves it.

    kit.json        the federation, the role and the name here, the server's address
    startup/        rootCA.pem, and this participant's certificate and key, for mutual TLS
                    at a site also signing.crt and signing.key (Ed25519): the name under its payloads; at an
                    administrator's: the name under the runs that it orders
    local/          comm_config.json: limits on what FLARE takes in
    state/          made at the first start: what a run needs to go on after a crash, and the server's audit log

Certificates are what counts: kit.json says nothing that a certificate would have to be believed for.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from dagora.errors import InputError
from dagora.files import make_folder

SERVER, SITE, ADMIN = "server", "site", "admin"
ROLES = (SERVER, SITE, ADMIN)


@dataclass(frozen=True)
class Kit:
    """A participant's kit, read and checked."""

    folder: Path
    federation: str
    role: str
    name: str
    host: str
    port: int
    listen: str
    sites: tuple[str, ...]  # when the kit was made; more may have joined since

    @classmethod
    def read(cls, folder: Path, role: str) -> "Kit":
        """A kit for this role whose certificate is valid now; else one line that says what is wrong with it."""
        where = f"kit {str(folder)!r}"
        try:
            found = json.loads((folder / "kit.json").read_text(encoding="utf-8"))
            kit = cls(folder.absolute(), **{name: found[name] for name in _FIELDS}, sites=tuple(found["sites"]))
            whose = _ROLE[kit.role]
        except FileNotFoundError:
            raise InputError(
                f"{where}: is no startup kit (there is no kit.json); name a folder that `federation init` made"
            ) from None
        except OSError as error:
            raise InputError(f"{where}: cannot be read: {error.strerror}; check the path") from None
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{where}: its kit.json is not valid; ask for a new kit") from None
        if kit.role != role:
            raise InputError(f"{where}: is the kit of {whose}, {kit.name!r}; name one of {_ROLE[role]}")
        kit._check_certificate(kit._certificate_file, kit._key_file)
        if role in (SITE, ADMIN):
            kit._check_certificate("signing.crt", "signing.key")
        return kit

    @property
    def credentials(self) -> dict[str, str]:
        """What FLARE's network layer wants for mutual TLS."""
        prefix = "server" if self.role == SERVER else "client"
        files = {"ca_cert": "rootCA.pem", f"{prefix}_cert": self._certificate_file, f"{prefix}_key": self._key_file}
        return {name: str(self.folder / "startup" / file) for name, file in files.items()}

    @property
    def local(self) -> Path:
        """Where FLARE finds its limits; without them it would have none."""
        try:
            json.loads((self.folder / "local" / "comm_config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            where = f"kit {str(self.folder)!r}: local/comm_config.json"
            raise InputError(f"{where} is missing or not valid; ask for a new kit") from None
        return self.folder / "local"

    @property
    def state(self) -> Path:
        """Where this participant keeps what must survive it; made if it is not there."""
        return make_folder(self.folder / "state")

    @property
    def address(self) -> str:
        """The server's, as all know it."""
        return f"{self.host}:{self.port}"

    @property
    def signing_key(self) -> Ed25519PrivateKey:
        """A site's or an administrator's own."""
        key = load_pem_private_key(self._startup("signing.key"), password=None)
        assert isinstance(key, Ed25519PrivateKey)
        return key

    @property
    def signing_certificate(self) -> str:
        """Its certificate, as others are shown it."""
        return self._startup("signing.crt").decode()

    def public_key(self, site: str, certificate: str) -> Ed25519PublicKey:
        """The key in a site's signing certificate, if this federation's authority says that it is that site's."""
        name, key = self._vouched(f"site {site!r}", certificate)
        if name != site:
            raise InputError(f"site {site!r}: showed a signing certificate that is not its own; stop it")
        return key

    def administrator(self, certificate: str) -> tuple[str, Ed25519PublicKey]:
        """Name and key of an administrator, if this federation's authority says that it is one."""
        name, key = self._vouched("administrator", certificate)
        if "@" not in name:  # administrators are named by e-mail addresses, sites cannot be
            raise InputError(f"administrator: the run was signed by {name!r}, who is none; stop the server")
        return name, key

    def _vouched(self, whose: str, certificate: str) -> tuple[str, Ed25519PublicKey]:
        try:
            found = x509.load_pem_x509_certificate(certificate.encode())
            key = found.public_key()
            self._check_issued(found)
        except (ValueError, InputError, InvalidSignature) as error:
            why = f" ({error})" if isinstance(error, InputError) else ""
            raise InputError(
                f"{whose}: the signing certificate is not good in this federation{why}; check the kit that it is from"
            ) from None
        if not isinstance(key, Ed25519PublicKey):
            raise InputError(f"{whose}: showed a certificate that is not for signing; stop it")
        return common_name(found), key

    @property
    def _certificate_file(self) -> str:
        return "server.crt" if self.role == SERVER else "client.crt"

    @property
    def _key_file(self) -> str:
        return "server.key" if self.role == SERVER else "client.key"

    def _startup(self, name: str) -> bytes:
        try:
            return (self.folder / "startup" / name).read_bytes()
        except OSError as error:
            raise InputError(
                f"kit {str(self.folder)!r}: startup/{name} cannot be read: {error.strerror}; ask for a new kit"
            ) from None

    def _check_certificate(self, certificate_file: str, key_file: str) -> None:
        where = f"kit {str(self.folder)!r}: startup/{certificate_file}"
        try:
            certificate = x509.load_pem_x509_certificate(self._startup(certificate_file))
            key = load_pem_private_key(self._startup(key_file), password=None)
            own = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            held = certificate.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            self._check_issued(certificate)
        except InvalidSignature:
            raise InputError(f"{where}: was not issued by the authority in rootCA.pem; ask for a new kit") from None
        except (ValueError, TypeError) as error:
            if isinstance(error, InputError):
                raise InputError(str(error) if str(error).startswith("kit ") else f"{where}: {error}") from None
            raise InputError(f"{where}: is not a certificate with its key; ask for a new kit") from None
        if own != held:
            raise InputError(f"{where}: does not belong to the key beside it; ask for a new kit")
        if common_name(certificate) != self.name:
            raise InputError(f"{where}: is of {common_name(certificate)!r}, not of {self.name!r}; ask for a new kit")

    def _check_issued(self, certificate: x509.Certificate) -> None:
        root, now = x509.load_pem_x509_certificate(self._startup("rootCA.pem")), datetime.now(UTC)
        if certificate.issuer != root.subject:
            raise InvalidSignature
        certificate.verify_directly_issued_by(root)
        for one in (certificate, root):
            if now > one.not_valid_after_utc:
                raise InputError(f"expired on {one.not_valid_after_utc:%Y-%m-%d}; ask for a new kit")
            if now < one.not_valid_before_utc:
                raise InputError(
                    f"is not valid before {one.not_valid_before_utc:%Y-%m-%d %H:%M} UTC; check this machine's clock"
                )


def common_name(certificate: x509.Certificate) -> str:
    """Whose certificate it is."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


_FIELDS = ("federation", "role", "name", "host", "port", "listen")
_ROLE = {SERVER: "the server", SITE: "a site", ADMIN: "an administrator"}
