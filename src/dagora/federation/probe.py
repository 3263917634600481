"""Why there is no connection: one TLS handshake by hand, whose outcome can be put into words."""

import socket
import ssl
import time
from collections.abc import Callable

from dagora.federation.kits import Kit

_SECONDS = 5.0  # for a handshake
_TRIES, _PAUSE = 3, 0.5
_CLOSED = "closed"


class Refusal(str):
    """A reason that waiting does not cure."""


def why_not(kit: Kit) -> str | None:
    """What keeps this participant from the server; None if nothing does.  A Refusal needs another kit or clock."""
    for _ in range(_TRIES):
        reason = _handshake(kit)
        if reason != _CLOSED:
            return reason
        time.sleep(_PAUSE)  # a server that is just going down closes connections, too
    return Refusal(f"the server at {kit.address} refuses this kit's certificate, and closes the connection")


def _handshake(kit: Kit) -> str | None:
    files = kit.credentials
    context = ssl.create_default_context(cafile=files["ca_cert"])
    context.load_cert_chain(files["client_cert"], files["client_key"])
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((kit.host, kit.port), _SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=kit.host) as secure,
        ):
            return _first_word(kit, secure)
    except ssl.SSLCertVerificationError as error:
        return Refusal(
            f"the server at {kit.address} shows a certificate that is not of this kit's federation, or not valid "
            f"now: {error.verify_message}; ask for a new kit, or check the address and the clocks"
        )
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError):
        # A balancer, or a container's port, whose server is down: it may come back.
        return f"the server at {kit.address} closes connections before it says who it is; is it down?"
    except ssl.SSLError as error:
        return _refused(kit, error)
    except TimeoutError:
        return f"the server at {kit.address} does not answer; check the address and the firewall"
    except ConnectionRefusedError:
        return f"there is no server at {kit.address}; start it, or check the address"
    except OSError as error:
        return f"the server at {kit.address} cannot be reached: {error.strerror or error}"


def _first_word(kit: Kit, secure: ssl.SSLSocket) -> str | None:
    """With TLS 1.3 a refusal of our certificate comes after the handshake; else gRPC speaks first."""
    try:
        return None if secure.recv(1) else _CLOSED
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError):
        return _CLOSED
    except ssl.SSLError as error:
        return _refused(kit, error)


def _refused(kit: Kit, error: ssl.SSLError) -> str:
    return Refusal(f"the server at {kit.address} refuses this kit's certificate: {_words(error)}")


def free_port(listen: str, port: int) -> bool:
    """Whether a server could listen there: gRPC does not say when it cannot."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((listen, port))
        except OSError:
            return False
    return True


def answers(listen: str, port: int, wait: Callable[[float], object], patience: float = 30.0) -> bool:
    """Whether somebody accepts connections there before long: gRPC does not say when it can, either.

    wait: for so many seconds; if it says that it is over, so is this.
    """
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen, listen)  # all of this machine's addresses: any will do
    end = time.monotonic() + patience
    while True:
        try:
            with socket.create_connection((host, port), _SECONDS):
                return True
        except OSError:
            if time.monotonic() > end or wait(0.02):
                return False


def _words(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ").replace("alert ", "").removeprefix("tlsv1 ")
