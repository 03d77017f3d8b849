"""The demo replaces what a demo left, and nothing else."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from privacy.errors import ConfigurationError
from sealsum.demo.folder import MARKER, prepare_folder
from sealsum.demo.ports import free_ports


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigurationError, match="other files"):
        prepare_folder(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_in_its_place_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("a file")
    with pytest.raises(ConfigurationError, match="expected a directory, got a file"):
        prepare_folder(target)
    assert target.read_text() == "a file"


def test_an_earlier_run_is_replaced_whole_but_links_out_of_it_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    folder = prepare_folder(tmp_path / "out")
    (folder.party("cleveland")).mkdir()
    (folder.party("cleveland") / "identity.key").write_text("old")
    (folder.root / "link").symlink_to(outside)
    again = prepare_folder(tmp_path / "out")
    assert sorted(entry.name for entry in again.root.iterdir()) == [MARKER, "harness", "logs", "parties"]
    assert list(again.parties.iterdir()) == []
    assert (outside / "kept").read_text() == "kept"


def test_what_belongs_to_parties_is_closed_to_other_users(tmp_path: Path) -> None:
    folder = prepare_folder(tmp_path / "out")
    for private in (folder.parties, folder.harness):
        assert stat.S_IMODE(private.stat().st_mode) == 0o700


def test_ports_are_distinct_and_can_be_bound() -> None:
    ports = free_ports(4)
    assert len(set(ports)) == 4
    for port in ports:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
