"""The folder of the store: signed entries of bounded size, used by several processes at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fxgrad.engine.store.folder import Folder
from fxgrad.errors import ArgumentError

ROOT = Path(__file__).resolve().parents[3]
KEY, OTHER = "a" * 64, "b" * 64


def the_file(folder: Folder, key: str) -> Path:
    return folder.path / f"{key}.fxgrad"


def test_an_entry_is_read_back(tmp_path) -> None:
    folder = Folder(tmp_path / "new" / "store", 1000)
    assert folder.read(KEY) is None
    assert folder.write(KEY, b"data")
    assert folder.read(KEY) == Folder(tmp_path / "new" / "store", 1000).read(KEY) == b"data"
    assert folder.read(OTHER) is None
    assert folder.write(KEY, b"other")
    assert folder.read(KEY) == b"other"
    assert sorted(file.name for file in folder.path.iterdir()) == [f"{KEY}.fxgrad", "signing.key"]
    assert {oct(file.stat().st_mode & 0o777) for file in folder.path.iterdir()} == {"0o600"}
    assert folder.path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("place", range(0, 40, 3))
def test_a_changed_byte_is_seen_and_the_entry_removed(tmp_path, place) -> None:
    folder = Folder(tmp_path, 1000)
    folder.write(KEY, b"somedata")
    file = the_file(folder, KEY)
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    assert folder.read(KEY) is None
    assert not file.exists()


def test_cut_longer_and_renamed_entries_are_refused(tmp_path) -> None:
    folder = Folder(tmp_path, 1000)
    for change in (lambda data: data[:-1], lambda data: data + b"x", lambda data: data[:10], lambda _: b""):
        folder.write(KEY, b"data")
        file = the_file(folder, KEY)
        file.write_bytes(change(file.read_bytes()))
        assert folder.read(KEY) is None
    folder.write(KEY, b"data")
    the_file(folder, KEY).rename(the_file(folder, OTHER))
    assert folder.read(OTHER) is None


def test_entries_signed_by_another_folder_are_refused(tmp_path) -> None:
    one, other = Folder(tmp_path / "one", 1000), Folder(tmp_path / "other", 1000)
    one.write(KEY, b"data")
    the_file(other, KEY).write_bytes(the_file(one, KEY).read_bytes())
    assert other.read(KEY) is None


def test_the_entries_not_used_for_longest_are_removed(tmp_path) -> None:
    folder = Folder(tmp_path, 3 * (32 + 100))
    for place, key in enumerate("abc"):
        assert folder.write(key * 64, bytes(100))
        os.utime(the_file(folder, key * 64), (1000 + place, 1000 + place))
    assert folder.read("a" * 64) is not None  # used just now
    assert folder.write("d" * 64, bytes(100))
    assert [file.name[0] for file in sorted(folder.path.glob("*.fxgrad"))] == ["a", "c", "d"]
    assert not folder.write("e" * 64, bytes(1000))
    assert folder.write("e" * 64, bytes(3 * 132 - 32))
    assert [file.name[0] for file in folder.path.glob("*.fxgrad")] == ["e"]


def test_files_of_processes_that_ended_while_they_wrote_are_removed(tmp_path) -> None:
    folder = Folder(tmp_path, 1000)
    for name, age in (("new-old", 1000.0), ("new-recent", None)):
        (tmp_path / name).write_bytes(b"half")
        if age is not None:
            os.utime(tmp_path / name, (age, age))
    folder.write(KEY, b"data")
    assert sorted(file.name for file in tmp_path.glob("new-*")) == ["new-recent"]


def test_folders_that_cannot_be_used_are_refused(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError) as caught:
        Folder(tmp_path / "file" / "store", 1000)
    assert str(caught.value) == (f"the store of executables cannot use the folder {tmp_path}/file/store: "
                                 "Not a directory. Name a folder that can be written to")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(ArgumentError) as caught:
        Folder(shared, 1000)
    assert str(caught.value) == (
        f"the store of executables cannot use the folder {shared}: others may write to it, and entries are code that "
        f"runs. Name a folder of your own, or write chmod 700 {shared}")
    Folder(tmp_path / "own", 1000)
    (tmp_path / "own" / "signing.key").chmod(0o644)
    with pytest.raises(ArgumentError) as caught:
        Folder(tmp_path / "own", 1000)
    assert str(caught.value) == (f"the store of executables cannot use the folder {tmp_path}/own: its signing.key is "
                                 "damaged, or can be read by others. Remove the folder")


def test_a_full_disk_keeps_nothing(tmp_path, monkeypatch) -> None:
    folder = Folder(tmp_path, 1000)

    def full(*_) -> None:
        raise OSError("no space left")
    monkeypatch.setattr(Path, "replace", full)
    assert not folder.write(KEY, b"data")
    assert [file.name for file in tmp_path.iterdir()] == ["signing.key"]


WRITER = """
import sys
from fxgrad.engine.store.folder import Folder
folder, own = Folder(sys.argv[1], 5000), sys.argv[2].encode()
for turn in range(300):
    key = f"{turn % 7:064}"
    data = folder.read(key)
    assert data is None or (len(data) == 500 and len(set(data)) == 1), data
    folder.write(key, own * 500)
"""


@pytest.mark.slow
def test_processes_that_write_at_the_same_time(tmp_path) -> None:
    runs = [subprocess.Popen([sys.executable, "-c", WRITER, tmp_path / "store", letter], cwd=ROOT,
                             env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True)
            for letter in "xyz"]
    assert [run.communicate(timeout=120)[1] for run in runs] == ["", "", ""]
    assert [run.returncode for run in runs] == [0, 0, 0]
    folder = Folder(tmp_path / "store", 5000)
    assert {folder.read(f"{turn:064}") for turn in range(7)} <= {bytes([each]) * 500 for each in b"xyz"}
    assert len([*folder.path.iterdir()]) == 8
