"""`recalib api`: arguments, output, and each kind of operation on a real server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pytest

from recalib.cli import root_command
from recalib.cli.api import operations
from recalib.cli.api_arguments import parameters_of, parse_arguments
from recalib.errors import InputError
from tests.cli.conftest import cli
from tests.cli.running import Cli
from tests.client.flaky import Flaky, says
from tests.end_to_end.programs import Server

__all__ = ["cli"]

_AT = "2026-03-04T05:06:07.000+00:00"


def _operation(
    session: object,
    name: str,
    size: int | Sequence[str] = 2,
    *,
    order: bool | Literal["newest"] = True,
    types: Sequence[str] | str = (),
    retention: Mapping[str, float | None] | None = None,
    progress: bool = True,
) -> None: ...


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["name=a=b c"], {"name": "a=b c"}),
        (["name=true", "size=3"], {"name": "true", "size": 3}),
        (["name=", "size=ant", "size=bee"], {"name": "", "size": ["ant", "bee"]}),
        (["name=a", "size=ant"], {"name": "a", "size": ["ant"]}),
        (["name=a", 'size:=["ant", "bee"]'], {"name": "a", "size": ["ant", "bee"]}),
        (["name=a", "order=false"], {"name": "a", "order": False}),
        (["name=a", "order=newest"], {"name": "a", "order": "newest"}),
        (["name=a", "types=job", "types=x"], {"name": "a", "types": ["job", "x"]}),
        (["name=@text.txt"], {"name": "of May"}),
        (['name:="@"', "retention:=@r.json"], {"name": "@", "retention": {"a": 3.0, "b": None}}),
    ],
)
def test_arguments_are_converted_to_the_types_of_parameters(
    arguments: list[str], expected: dict[str, Any], cli: Cli
) -> None:
    cli.write("text.txt", b"of May")
    cli.write("r.json", b'{"a": 3, "b": null}')
    assert parse_arguments(_operation, arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["name"], "argument: found 'name'; accepted: key=value or key:=JSON"),
        ([], "name: found nothing; accepted: name=str"),
        (["name=a", "nam=b"], "nam: found no parameter of the operation; accepted: name, size, "),
        (["name=a", "progress=false"], "progress: found no parameter of the operation"),
        (["name=a", "order=3"], "order: found '3'; accepted: bool | Literal['newest']"),
        (["name=a", "name=b"], "name: found 'a' and 'b'; accepted: str"),
        (["name:=3"], "name: found 3; accepted: str"),
        (["name:={"], "name: found '{' ("),
        (["name=@none.txt"], "name: found none.txt ("),
        (["name=a", 'retention:={"a": "x"}'], "retention: found {'a': 'x'}; accepted: Mapping["),
    ],
)
def test_errors_name_the_parameter(arguments: list[str], message: str, cli: Cli) -> None:
    with pytest.raises(InputError) as caught:
        parse_arguments(_operation, arguments)
    assert str(caught.value).startswith(message)


def test_choices_are_named_by_their_values() -> None:
    with pytest.raises(InputError, match=r"found 'x'; accepted: Literal\['lac', 'aps', 'raps'\]"):
        parse_arguments(operations()["fit"], ["model=a", "dataset=b", "sets=x"])


def test_every_operation_is_described_with_its_parameters(cli: Cli) -> None:
    listed = cli("api", "--help").out
    for name, operation in operations().items():
        assert f"\n  {name} " in listed
        result = cli("api", name, "--help")
        assert result.status == 0
        for parameter in parameters_of(operation):
            assert f"\n  {parameter}: " in result.out
        assert "\n  progress: " not in result.out
        with pytest.raises(InputError, match=r"found no parameter|found nothing"):
            parse_arguments(operation, ["unknown=1"])
    assert (
        "No such command 'list_model'. Did you mean 'list_models'" in cli("api", "list_model").err
    )


def test_earlier_commands_name_the_operation(cli: Cli) -> None:
    for name in ("batch", "delete", "describe", "evaluation", "events", "models", "upload"):
        result = cli(name, "x", "--server", "http://127.0.0.1:1")
        assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
        operation = result.err.partition("`recalib api ")[2].split()[0].rstrip("`;")
        assert operation in operations()


def test_shells_complete_operations_and_keys(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_RECALIB_COMPLETE", "complete_bash")
    for words, expected in (
        ("recalib api list_mo", ["list_models", "list_monitoring_history"]),
        ("recalib api list_models st", ["state="]),
    ):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        root_command.cache_clear()
        assert cli().out.split() == expected


def test_lists_are_streamed(cli: Cli, flaky: Flaky, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line for each item, of all pages; `RECALIB_SERVER` and `RECALIB_KEY` are defaults."""
    data = {"job": "j", "error": "no \x1b[31mspace"}
    items = [
        {"id": n, "at": _AT, "type": "job.failed", "model": None, "data": data} for n in (9, 8)
    ]
    first, second = ({"items": [item], "next_cursor": None} for item in items)
    flaky.will(says(200, first | {"next_cursor": "c"}), says(200, second))
    monkeypatch.setenv("RECALIB_SERVER", flaky.url)
    monkeypatch.setenv("RECALIB_KEY", "of-environment")
    result = cli("api", "list_events", "types=job", "types=alias", "models=m")
    assert result.out.splitlines() == [
        f'id={n}  at={_AT}  type=job.failed  data={{"job": "j", "error": "no \\u001b[31mspace"}}'
        for n in (9, 8)
    ]
    assert flaky.received[0].path.startswith("/v1/events?model=m&type=job&type=alias&")
    assert "cursor=c" in flaky.received[1].path
    assert flaky.received[0].headers["authorization"] == "Bearer of-environment"
    flaky.will(says(200, first | {"next_cursor": "c"}))
    result = cli("api", "list_events", "--json", "--limit", "1", "--key", "of-option")
    assert json.loads(result.out) == items[0]
    assert len(flaky.received) == 3
    assert flaky.received[2].headers["authorization"] == "Bearer of-option"


@pytest.mark.slow
def test_operations_of_a_server(cli: Cli, server: Server, name: str) -> None:
    """Uploads, jobs, downloads, changes and deletions."""

    def call(operation: str, *arguments: str) -> Any:
        return cli("api", operation, f"model={name}", *arguments, "--server", server.url)

    there = ("--server", server.url)
    created = cli("api", "create_model", f"name={name}", "classes=4", *there, "--json").json
    assert created["classes"] == 4
    result = call("upload_dataset", "name=val", "data=val.npz")
    assert (result.status, result.err) == (0, "")
    assert "\nrows: 300\n" in result.out
    assert "\n  nll: value=" in result.out
    assert call("fit", "dataset=val", "promote=true", "--wait", "--json").json["result"]["promoted"]
    job = call("create_batch", "data=val.npz", "format=npz", "--wait", "--json").json
    assert call("download_batch", f"batch={job['id']}", "destination=out.npz").status == 0
    assert call("download_calibrator", "destination=t.calib").out == "1\n"
    cli("apply", "t.calib", "val.npz", "-o", "local.npz")
    np.testing.assert_array_equal(cli.probabilities("out.npz"), cli.probabilities("local.npz"))
    job = call("evaluate", "dataset=val", "versions=1", "--wait", "--json").json
    result = call("get_evaluation", f"evaluation={job['id']}")
    assert "\nresults:\n  -\n    version: 1\n    fitted_rows: 300\n    metrics:\n" in result.out
    logits = "[[1, 2, 3, 4], [4, 3, null, 1]]"
    assert np.shape(call("calibrate", f"values:={logits}", "--json").json) == (2, 4)
    assert call("calibrate", f"values:={logits}").out.count("\n- 0.") == 1
    assert call("calibrate_top", f"values:={logits}", "k=1", "--json").json["classes"] == [[3], [0]]

    result = cli("api", "update_model", f"name={name}", "tags=a", f"tags={name}-b", *there)
    assert f"\ntags: a,{name}-b\n" in result.out
    result = cli("api", "list_models", f"tag={name}-b", *there)
    assert result.out.startswith(f"name={name}  classes=4  task=multiclass  created_at=20")
    assert cli("api", "list_models", f"tag={name}-b", "state=stale", *there).out == ""
    result = call("delete_calibrator", "version=1")
    assert (result.status, "served as champion" in result.err) == (2, True)
    assert call("delete_alias", "alias=champion", "force=true").out.startswith("deleted_at: 20")
    result = call("drop_candidate", "version=1")
    assert (result.status, result.out) == (2, "")
    assert "candidate '1' does not exist" in result.err


def test_settings_are_parsed_by_the_types_of_their_fields(cli: Cli) -> None:
    """Each is a keyword; the help has their types, ranges and defaults."""
    set_monitoring = operations()["set_monitoring"]
    arguments = ["model=m", "tolerance=0.1", "least_labels=50", "classes=all", "segments=a"]
    arguments += ["segments=b", "refit=manual", "refit_every_seconds=null", "alpha:=0.01"]
    assert parse_arguments(set_monitoring, arguments) == {
        "model": "m",
        "tolerance": 0.1,
        "least_labels": 50,
        "classes": ["all"],
        "segments": ["a", "b"],
        "refit": "manual",
        "refit_every_seconds": None,
        "alpha": 0.01,
    }
    for argument, message in (
        ("tolerance=low", "tolerance: found 'low'; accepted: float, at least 0 and below 0.5"),
        ("refit=no", "refit: found 'no'; accepted: Literal['on_stale', 'manual']"),
        ("alfa=0.1", "alfa: found no parameter of the operation; accepted: model, objective, "),
    ):
        with pytest.raises(InputError) as caught:
            parse_arguments(set_monitoring, ["model=m", argument])
        assert str(caught.value).startswith(message)
    text = cli("api", "set_monitoring", "--help").out
    assert "  tolerance: float, at least 0 and below 0.5 = 0.02\n" in text
    assert "refit_every_seconds: float, at least 60 and below 1e+10 | None = None\n" in text
