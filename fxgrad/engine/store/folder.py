"""The folder of the store: entries by key, each in a file that is written at once and signed, of bounded size in all.

Several processes use a folder at the same time. An entry is written to a file of its own, and renamed; so a reader
sees all of it or nothing. Each is signed with a key that the folder holds and that its owner alone can read: an entry
that was changed, cut or copied to another name is removed, and made again. The entries that were not used for longest
are removed when all of them together exceed the bound.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from fxgrad.errors import ArgumentError

_SUFFIX, _KEY = ".fxgrad", "signing.key"
_SIGNATURE = hashlib.sha256().digest_size
_ABANDONED = 3600.0
"""The seconds after which a file that was not renamed is one of a process that ended while it wrote."""


class Folder:
    """A folder of signed entries of at most `bound` bytes in all.

    Raises `ArgumentError` if the folder cannot be made, or if others than its owner may write to it.
    """

    def __init__(self, path: str | os.PathLike[str], bound: int) -> None:
        self.path, self.bound = Path(path).expanduser().absolute(), bound
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_owner()
            self._key = self._signing_key()
        except OSError as error:
            raise ArgumentError(f"the store of executables cannot use the folder {self.path}: {error.strerror}. Name a "
                                "folder that can be written to") from None

    def _check_owner(self) -> None:
        status = self.path.stat()
        if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
            raise ArgumentError(
                f"the store of executables cannot use the folder {self.path}: others may write to it, and entries are "
                f"code that runs. Name a folder of your own, or write chmod 700 {self.path}")

    def _signing_key(self) -> bytes:
        """Return the key of the folder; the first process makes it, and others wait for none: it appears whole."""
        file = self.path / _KEY
        if not file.exists():
            made = self._write(secrets.token_bytes(32))
            with suppress(FileExistsError):
                os.link(made, file)  # unlike a renaming, this leaves the key of a faster process
            made.unlink()
        key = file.read_bytes()
        if len(key) != 32 or (hasattr(os, "getuid") and file.stat().st_mode & 0o077):
            raise ArgumentError(f"the store of executables cannot use the folder {self.path}: its {_KEY} is damaged, "
                                "or can be read by others. Remove the folder")
        return key

    def _write(self, data: bytes) -> Path:
        """Write a new file under a name of its own, which nobody else can read."""
        number, name = tempfile.mkstemp(dir=self.path, prefix="new-")
        with os.fdopen(number, "wb") as file:
            file.write(data)
        return Path(name)

    def _sign(self, key: str, data: bytes) -> bytes:
        return hmac.digest(self._key, key.encode() + b"\n" + data, "sha256")

    def _file(self, key: str) -> Path:
        return self.path / f"{key}{_SUFFIX}"

    def read(self, key: str) -> bytes | None:
        """Return the data of an entry, None if there is none; one with a wrong signature is removed."""
        file = self._file(key)
        try:
            content = file.read_bytes()
        except OSError:
            return None
        signature, data = content[:_SIGNATURE], content[_SIGNATURE:]
        if not hmac.compare_digest(signature, self._sign(key, data)):
            self.remove(key)
            return None
        with suppress(OSError):
            os.utime(file)  # it was used now
        return data

    def write(self, key: str, data: bytes) -> bool:
        """Enter data, unless they exceed the bound or the disk is full; return whether they are there."""
        if len(data) + _SIGNATURE > self.bound:
            return False
        made = None
        try:
            made = self._write(self._sign(key, data) + data)
            made.replace(self._file(key))
        except OSError:
            if made is not None:
                with suppress(OSError):
                    made.unlink()
            return False
        self._remove_old()
        return True

    def remove(self, key: str) -> None:
        """Remove an entry, if it is there."""
        with suppress(OSError):
            self._file(key).unlink()

    def entries(self) -> list[tuple[float, int, Path]]:
        """Return the time of last use, the size and the file of each entry, the oldest first."""
        found = []
        for file in self.path.glob(f"*{_SUFFIX}"):
            with suppress(OSError):  # another process removed it
                status = file.stat()
                found.append((status.st_mtime, status.st_size, file))
        return sorted(found)

    def _remove_old(self) -> None:
        for file in self.path.glob("new-*"):
            with suppress(OSError):
                if file.stat().st_mtime < time.time() - _ABANDONED:
                    file.unlink()
        entries = self.entries()
        size = sum(each for _, each, _ in entries)
        for _, each, file in entries:
            if size <= self.bound:
                break
            with suppress(OSError):
                file.unlink()
            size -= each
