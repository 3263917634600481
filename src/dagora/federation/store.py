"""Files that survive a crash: written whole or appended to, and on the disk before a call returns."""

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

from dagora.errors import DagoraError

PRIVATE = 0o600  # what is kept here is nobody else's

_SIZE = struct.Struct("<Q")
_GONE = ".gone"
_CHECK = 8  # bytes of a record's hash, to tell a torn record from a whole one


class StoreError(DagoraError):
    """A file of the federation's state that cannot be written, or is not what was written."""


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file: after a crash it is the old one or the new one."""
    scratch = path.with_name(path.name + ".new")
    try:
        _write(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, data)
        os.replace(scratch, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"{str(path)!r} cannot be written: {error.strerror}; make room, and start again") from None


def remove_folder(folder: Path) -> None:
    """Delete a folder; after a crash all of it is there under its name, or nothing."""
    if folder.exists():
        os.replace(folder, folder.with_name(f"{folder.name}-{token_hex(4)}{_GONE}"))
        _sync_folder(folder.parent)
    finish_removing(folder.parent)


def finish_removing(parent: Path) -> None:
    """Delete what is left of removed folders."""
    for gone in parent.glob(f"*{_GONE}"):
        shutil.rmtree(gone, ignore_errors=True)


def read_records(path: Path) -> Iterator[bytes]:
    """The whole records of a file, from the first one on.  A last one that a crash cut short is left out."""
    if not path.exists():
        return
    with path.open("rb") as file:
        left = path.stat().st_size
        while len(head := file.read(_SIZE.size + _CHECK)) == _SIZE.size + _CHECK:
            (size,) = _SIZE.unpack(head[: _SIZE.size])
            left -= len(head)
            if size > left:
                return
            record = file.read(size)
            left -= size
            if sha256(record).digest()[:_CHECK] != head[_SIZE.size :]:
                if any(file.read(left)):  # zeros are what a crash may leave behind
                    raise StoreError(f"{str(path)!r} is damaged in the middle; abort the run, and start a new one")
                return
            yield record


class Records:
    """A file of records that only grows.  One that a crash cut short was never relied on, and is dropped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._end = sum(_framed(len(record)) for record in self)
        if path.exists() and path.stat().st_size > self._end:
            os.truncate(path, self._end)

    def __iter__(self) -> Iterator[bytes]:
        return read_records(self._path)

    def append(self, record: bytes) -> None:
        """Write a record down for good."""
        framed = _SIZE.pack(len(record)) + sha256(record).digest()[:_CHECK] + record
        try:
            new = not self._path.exists()
            _write(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, framed)
            if new:
                _sync_folder(self._path.parent)
        except OSError as error:
            if self._path.exists():
                os.truncate(self._path, self._end)
            raise StoreError(
                f"{str(self._path)!r} cannot be written: {error.strerror}; make room, and start again"
            ) from None
        self._end += len(framed)


class UsedNames:
    """Names that were used before, whatever else was forgotten; hashes of them, for names come from messages."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = set(path.read_text().split()) if path.exists() else set()

    def known(self, name: str) -> bool:
        """Whether it was used before."""
        return sha256(name.encode()).hexdigest() in self._known

    def add(self, name: str) -> None:
        """Write it down for good."""
        if not self.known(name):
            self._known.add(sha256(name.encode()).hexdigest())
            write_whole(self._path, "\n".join(sorted(self._known)).encode())


class FolderVault:
    """A vault (federated/vault.py) with a file a secret, readable by its owner only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def once(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Names come from messages: a file's name is the hash of one."""
        path = self._folder / f"{sha256(name.encode()).hexdigest()}.secret"
        if not path.exists():
            write_whole(path, make())
        return path.read_bytes()


def _framed(size: int) -> int:
    return _SIZE.size + _CHECK + size


def _write(path: Path, flags: int, data: bytes) -> None:
    file = os.open(path, flags | getattr(os, "O_BINARY", 0), PRIVATE)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(file, left) :]
        os.fsync(file)
    finally:
        os.close(file)


def _sync_folder(folder: Path) -> None:
    """A new name is in its folder for good only when the folder is on the disk, too."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
