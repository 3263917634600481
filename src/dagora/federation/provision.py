"""From federation.toml to startup kits, through FLARE's provisioning.

FLARE makes the certificate authority and the certificates for mutual TLS; two builders of ours add each site's signing
key and kit.json.  FLARE's scripts are left out: they would start its job engine, which is not used here.
"""

import json
import logging
import re
import shutil
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from dagora.errors import InputError
from dagora.federation.kits import SERVER
from dagora.federation.requirements import require_nvflare
from dagora.federation.store import write_whole
from dagora.files import make_folder

_SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_ADMIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,}")
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,40}")
_SKEW = timedelta(days=2)  # clocks of participants may differ: certificates are valid from so long ago
_DAYS = 360
_LOG = logging.getLogger(__name__)  # FLARE would print
_AUTHORITY = "authority"  # the folder with the root key: whoever has it can make kits


@dataclass(frozen=True)
class Federation:
    """Who takes part, and where the server is."""

    name: str
    host: str
    port: int
    sites: tuple[str, ...]
    admins: tuple[str, ...]
    listen: str = "0.0.0.0"

    def __post_init__(self) -> None:
        if not _PROJECT.fullmatch(self.name):
            raise InputError("federation: name must be letters, digits, - and _, 41 at most")
        if not 0 < self.port < 65536:
            raise InputError("federation: server must be host:port, with a port from 1 to 65535")
        if not self.sites:
            raise InputError("federation: sites is empty; name at least one")
        for site in self.sites:
            # A site named as the server's host could pass for it: names are in certificates.
            if not _SITE_NAME.fullmatch(site) or site.lower() in (SERVER, _AUTHORITY, self.host.lower()):
                raise InputError(
                    f"federation: {site!r} cannot be a site's name; use letters, digits, - and _, not the server's name"
                )
        for admin in self.admins:
            if not _ADMIN_NAME.fullmatch(admin):
                raise InputError(f"federation: {admin!r} cannot be an administrator; give an e-mail address")
        if not self.admins:
            raise InputError("federation: admins is empty; name who may submit jobs, by e-mail address")
        everyone = [*self.sites, *self.admins]
        if twice := [name for name in everyone if everyone.count(name) > 1]:
            raise InputError(f"federation: {twice[0]!r} appears twice; name each once")

    @classmethod
    def read(cls, path: Path) -> "Federation":
        """Read federation.toml."""
        where = f"federation {str(path)!r}"
        try:
            found = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"{where}: cannot be read: {error.strerror}; check the path") from None
        except ValueError as error:
            raise InputError(f"{where}: is not valid TOML: {error}; correct it") from None
        known = ("name", "server", "sites", "admins", "listen")
        for key in found:
            if key not in known:
                raise InputError(f"{where}: there is no key {key!r}; choose from {', '.join(known)}")
        for key in ("name", "server", "sites", "admins"):
            if key not in found:
                raise InputError(f"{where}: {key} is missing; add it")
        host, _, port = str(found["server"]).rpartition(":")
        lists = {key: found[key] for key in ("sites", "admins")}
        if not host or not (port.isascii() and port.isdigit()):
            raise InputError(f'{where}: server must be host:port, such as "dagora.example.org:8002"')
        if not all(isinstance(v, list) and all(isinstance(one, str) for one in v) for v in lists.values()):
            raise InputError(f'{where}: sites and admins are lists of names, such as ["north", "south"]')
        return cls(
            str(found["name"]), host, int(port), tuple(lists["sites"]), tuple(lists["admins"]),
            str(found.get("listen", "0.0.0.0")),
        )  # fmt: skip


def provision(federation: Federation, folder: Path) -> list[Path]:
    """Make a kit for everyone who has none yet, under a folder; returns the new ones.

    The authority stays in the folder: run it again with more sites, and only their kits are new.
    """
    require_nvflare()
    from nvflare.lighter.impl.workspace import WorkspaceBuilder
    from nvflare.lighter.provisioner import Provisioner

    from dagora.federation.builders import Certificates, Kits, project_of

    made = []
    authority = make_folder(folder / _AUTHORITY)
    authority.chmod(0o700)
    kept = authority / federation.name / "state" / "cert.json"
    _check_earlier(federation, folder, kept)
    builders = [WorkspaceBuilder(), Certificates(_DAYS, _SKEW), Kits(federation, _SKEW)]
    context = Provisioner(str(authority), builders).provision(project_of(federation), logger=_LOG)
    ready = context.get_result_location()
    if ready is None or context.get("build_error"):
        raise InputError(f"kits could not be made: {'; '.join(context.get_errors()) or 'FLARE gave no reason'}")
    for kit in sorted(Path(ready).iterdir()):
        if not (folder / kit.name).exists():
            shutil.move(kit, folder / kit.name)
            made.append(folder / kit.name)
    shutil.rmtree(ready)
    _forget_keys(kept)
    return made


def _check_earlier(federation: Federation, folder: Path, kept: Path) -> None:
    """What was made before must still be good for what is asked now."""
    for kit in folder.glob("*/kit.json"):
        about = json.loads(kit.read_text(encoding="utf-8"))
        known = about["federation"], about["host"], about["port"]
        if known != (federation.name, federation.host, federation.port):
            raise InputError(
                f"{str(folder)!r} holds kits of federation {known[0]!r} with the server at {known[1]}:{known[2]}; name "
                "a new folder for another federation or address"
            )
    if kept.exists():
        root = x509.load_pem_x509_certificate(json.loads(kept.read_text())["root_cert"].encode())
        if datetime.now(UTC) > root.not_valid_after_utc:
            raise InputError(
                f"the authority in {str(folder)!r} expired on {root.not_valid_after_utc:%Y-%m-%d}; make kits for all "
                "in a new folder"
            )


def _forget_keys(kept: Path) -> None:
    """Private keys are their owners': FLARE would keep a copy of each beside the root's."""
    found = json.loads(kept.read_text())
    write_whole(kept, json.dumps({name: value for name, value in found.items() if isinstance(value, str)}).encode())
