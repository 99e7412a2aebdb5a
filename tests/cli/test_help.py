"""`--help` and `--version`."""

from __future__ import annotations

from typing import Any

import pytest
import typer

import recalib
from recalib.cli import root_command
from tests.cli.running import Cli

#: Each command and what a user finds in its help.
COMMANDS = {
    "fit": [
        "data...",
        "--output",
        "-o",
        "--map",
        "--objective",
        "--option",
        "--input",
        "--cluster",
        "--json",
    ],
    "apply": ["calibrator", "data...", "--output", "-o", "--input", "--cluster", "--json"],
    "calibrate": [
        "data",
        "--server",
        "--key",
        "--model",
        "--output",
        "--calibrator",
        "--input",
        "--json",
    ],
    "export": [
        "calibrator",
        "--output",
        "-o",
        "--triton",
        "--name",
        "--model",
        "--from",
        "--input",
        "--max-batch-size",
        "--json",
    ],
    "publish": [
        "calibrator",
        "--server",
        "--key",
        "--model",
        "--dataset",
        "--fitted-on",
        "--promote",
        "--json",
    ],
    "pull": ["--server", "--key", "--model", "--output", "-o", "--version", "--dataset", "--json"],
    "evaluate": [
        "data...",
        "--calibrator",
        "--bins",
        "--intervals",
        "--diagram",
        "--picture",
        "--input",
        "--cluster",
        "--json",
    ],
    "report": [
        "validation",
        "test",
        "--output",
        "--maps",
        "--objectives",
        "--preserve-accuracy",
        "--title",
        "--task",
        "--input",
        "--add-validation",
        "--add-test",
        "--cluster",
        "--json",
    ],
    "compare": [
        "validation",
        "test",
        "--maps",
        "--objectives",
        "--input",
        "--add-validation",
        "--add-test",
        "--cluster",
        "--json",
    ],
    "train": ["config", "--output", "-o", "--data", "--server", "--key", "--json"],
    "replay": [
        "log",
        "--alpha",
        "--tolerance",
        "--maturity",
        "--objective",
        "--selection-ratio",
        "--window",
        "--cohort",
        "--calibrator",
        "--classes",
        "--find-segments",
        "--adapt",
        "--picture",
        "--into",
        "--server",
        "--key",
        "--version",
        "--to-now",
        "--cluster",
        "--json",
    ],
    "monitoring": ["model", "--server", "--key", "--history", "--json"],
    "api": ["list_models"],
    "api list_models": ["[KEY=VALUE]...", "--server", "--key", "--limit", "--wait", "--json"],
    "promote": ["model", "version", "--server", "--key", "--alias", "--reason", "--json"],
    "rollback": ["model", "--server", "--key", "--alias", "--reason", "--json"],
    "demo": ["--keep", "--examples", "--json"],
    "serve": [
        "--host",
        "--port",
        "--grpc-port",
        "--workers",
        "--job-workers",
        "--require-keys",
        "--insecure",
        "--home",
        "--database-url",
    ],
    "worker": ["--home", "--database-url"],
    "prepare": ["--home", "--database-url", "--json"],
    "rotate-key": ["--revoke", "--home", "--database-url", "--json"],
    "backup": ["to", "--leave-out-damaged", "--home", "--database-url", "--json"],
    "record-backup": ["name", "--home", "--database-url"],
    "restore": ["FROM", "--force", "--home", "--database-url", "--json"],
    "audit": [
        "--actor",
        "--action",
        "--model",
        "--limit",
        "--home",
        "--database-url",
        "--json",
    ],
    "doctor": ["--settings", "--home", "--database-url", "--json"],
    "keys": ["create", "list", "revoke"],
    "keys create": [
        "--scope",
        "--model",
        "--expires-days",
        "--rate",
        "--rows-rate",
        "--concurrency",
        "--max-body",
        "--secret-file",
        "--home",
        "--database-url",
        "--json",
    ],
    "keys limit": [
        "--rate",
        "--rows-rate",
        "--concurrency",
        "--max-body",
        "--reset",
        "--home",
        "--database-url",
        "--json",
    ],
    "keys list": ["--home", "--database-url", "--json"],
    "keys revoke": ["--home", "--database-url", "--json"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_lists_everything(cli: Cli, command: str) -> None:
    result = cli(*command.split(), "--help")
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith(f"Usage: recalib {command} ")
    words = result.out.replace(",", " ").split()
    assert [name for name in COMMANDS[command] if name not in words] == []


def test_every_command_and_option_is_described(cli: Cli) -> None:
    commands: dict[str, Any] = root_command().commands
    groups = {name: entry for name, entry in commands.items() if hasattr(entry, "commands")}
    commands = commands | {
        f"{name} {below}": entry
        for name, group in groups.items()
        for below, entry in group.commands.items()
    }
    assert set(commands) >= set(COMMANDS)
    for name, command in commands.items():
        assert command.help, name
        for parameter in command.params:
            assert parameter.help or getattr(parameter, "hidden", False), (name, parameter.name)


def test_help_shows_each_default(cli: Cli) -> None:
    """Of settings too, which a command reads from variables."""
    for name, command in root_command().commands.items():
        for parameter in command.params:
            if parameter.default and not isinstance(parameter.default, bool):
                _, text = parameter.get_help_record(typer.Context(command))
                assert str(parameter.default) in text, (name, parameter.name)
    serve = cli("serve", "--help").out
    for name, default in (("HOST", "127.0.0.1"), ("PORT", "8000"), ("HOME", "~/.recalib")):
        assert f"[RECALIB_{name}; default: {default}]" in " ".join(serve.split())


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--debug"]])
def test_no_command_lists_all_commands(cli: Cli, arguments: list[str]) -> None:
    result = cli(*arguments)
    assert (result.status, result.err) == (0, "")
    names = [name for name in COMMANDS if " " not in name]
    assert [name for name in names if f"\n  {name} " not in result.out] == []
    assert "\nUse a server:\n  publish " in result.out
    assert "..." not in result.out.partition("Work on data files:")[2]  # no summary is cut


@pytest.mark.parametrize("group", ["api", "keys"])
def test_a_group_without_a_command_prints_its_help(cli: Cli, group: str) -> None:
    """Not the help as an error, in one line."""
    result = cli(group)
    assert (result.status, result.err) == (0, "")
    assert result.out == cli(group, "--help").out


def test_version(cli: Cli) -> None:
    assert cli("--version").out == f"{recalib.__version__}\n"
    assert cli("--version").status == 0
