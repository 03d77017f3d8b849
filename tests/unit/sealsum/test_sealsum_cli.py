"""The root command: help loads nothing, errors are one message and an exit code, missing extras are named."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

import click
import pytest
from click.testing import CliRunner

from privacy.errors import BudgetExhausted, ConfigurationError, LedgerDamaged, PeerFault, SealsumError
from sealsum import __version__
from sealsum.cli import COMMANDS, EXTRAS, Root, cli
from sealsum.lazy_group import Lazy


class Empty(Root):
    """The root's behaviour with commands of the test's own."""

    table: ClassVar[Mapping[str, Lazy]] = {}


def failing(error: BaseException) -> Root:
    def fail() -> None:
        raise error

    return Empty("sealsum", commands={"fail": click.Command("fail", callback=fail)})


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("mistyped", "meant"), [(["algoritm"], "algorithm"), (["silo", "personalize"], "personalise")]
)
def test_a_mistyped_command_is_told_what_was_meant(mistyped: list[str], meant: str) -> None:
    done = CliRunner().invoke(cli, mistyped)
    assert done.exit_code == 2
    assert f"Did you mean '{meant}'?" in done.output


@pytest.mark.parametrize("group", ["silo", "policy", "algorithm"])
def test_no_summary_of_a_group_is_cut_short_at_80_columns(group: str) -> None:
    done = CliRunner().invoke(cli, [group, "--help"], terminal_width=80)
    assert "..." not in done.output.split("Commands:")[1]


def test_the_catalogue_fits_a_terminal_of_80_columns() -> None:
    done = CliRunner().invoke(cli, ["algorithm", "list"], env={"COLUMNS": "80"})
    assert max(len(line) for line in done.output.splitlines()) <= 80


def test_help_names_every_command_and_loads_none_of_their_modules() -> None:
    code = (
        "import sys\nfrom sealsum.cli import main\nsys.argv = ['sealsum', '--help']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "print(sorted({m.partition('.')[0] for m in sys.modules} & "
        "{'torch', 'fastapi', 'numpy', 'httpx', 'cryptography'}))"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
    for name, lazy in COMMANDS.items():
        assert name in done.stdout
        assert lazy.summary.split(",")[0][:30] in done.stdout


def test_version_is_the_packages() -> None:
    assert CliRunner().invoke(cli, ["--version"]).output == f"sealsum, version {__version__}\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SealsumError("the disk is full"), 1),
        (PeerFault("it answered nonsense"), 2),
        (BudgetExhausted("no budget"), 4),
        (LedgerDamaged("entry 3"), 5),
        (ConfigurationError("listen: expected a port"), 78),
    ],
)
def test_a_refusal_is_one_message_on_stderr_and_its_exit_code(error: SealsumError, code: int) -> None:
    result = CliRunner().invoke(failing(error), ["fail"])
    assert result.exit_code == code
    assert result.stderr == f"Error: {error}\n"
    assert result.stdout == ""


def test_an_interrupt_exits_130() -> None:
    result = CliRunner().invoke(failing(KeyboardInterrupt()), ["fail"])
    assert result.exit_code == 130
    assert result.stderr == "Error: interrupted\n"


def test_a_full_disk_is_said_with_the_file_and_any_other_error_of_the_system_stays_a_bug() -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "state/model.part")
    result = CliRunner().invoke(failing(full), ["fail"])
    assert result.exit_code == 1
    assert result.stderr == "Error: state/model.part: No space left on device; make room and start again\n"
    other = OSError(errno.EIO, "Input/output error")
    assert CliRunner().invoke(failing(other), ["fail"]).exception is other


@pytest.mark.parametrize("missing", sorted(EXTRAS))
def test_a_missing_optional_library_names_the_extra_to_install(missing: str) -> None:
    error = ModuleNotFoundError(f"No module named '{missing}'", name=f"{missing}.part")
    result = CliRunner().invoke(failing(error), ["fail"])
    assert result.exit_code == 78
    assert f"pip install 'sealsum[{EXTRAS[missing]}]'" in result.stderr


def test_a_missing_module_of_our_own_is_a_bug_and_stays_one() -> None:
    error = ModuleNotFoundError("No module named 'sealsum.gone'", name="sealsum.gone")
    result = CliRunner().invoke(failing(error), ["fail"])
    assert result.exception is error


def without(*modules: str) -> str:
    """Code that makes these modules impossible to import, as where they are not installed."""
    return (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {modules!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["aggregator", "--help"],
        ["share-server", "--help"],
        ["aggregator", "enroll", "--help"],
        ["share-server", "enroll", "--help"],
        ["federation", "serve", "--help"],
    ],
)
def test_servers_commands_work_where_no_learning_framework_is(arguments: list[str]) -> None:
    run: Any = f"{without('torch', 'opacus')}sys.argv = {['sealsum', *arguments]!r}\n"
    done = python(run + "from sealsum.cli import main\nmain()")
    assert done.returncode == 0, done.stderr
    assert "Usage: sealsum" in done.stdout


def test_an_officer_needs_no_server_libraries_to_found_a_federation() -> None:
    blocked = without("torch", "opacus", "fastapi", "uvicorn", "sqlalchemy")
    done = python(
        blocked
        + "sys.argv = ['sealsum', 'federation', 'init', '--help']\nfrom sealsum.cli import main\nmain()"
    )
    assert done.returncode == 0, done.stderr
    done = python(
        blocked
        + "sys.argv = ['sealsum', 'federation', 'serve', '--help']\nfrom sealsum.cli import main\nmain()"
    )
    assert done.returncode == 78
    assert "sealsum[aggregator]" in done.stderr
