"""What people change: each action has a page that states what it does, and asks for a reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import Response

from recalib.errors import NotFoundError, RecalibError
from service.calibrators.rest import get_alias_history, get_calibrator, list_aliases, set_alias
from service.console.rendering import page, redirect
from service.console.routing import router
from service.console.visits import SignedIn, Visit
from service.jobs.rest import cancel_job, get_job
from service.models.rest import get_model
from service.monitoring.rest import create_refit, drop_candidate


@dataclass(frozen=True)
class Action:
    """A change, and what its page says."""

    title: str
    #: What changes, a sentence each.
    effects: list[str]
    #: The label of the button.
    verb: str
    #: Where the person comes from, and goes to.
    back: str
    asks_reason: bool = True
    #: What `force` does; empty without it.
    force: str = ""


async def confirm(visit: Visit, action: Action, error: RecalibError | None = None) -> Response:
    return page(visit, "action", action=action, error=error)


async def act_on(
    visit: Visit, action: Action, act: Callable[[dict[str, str]], Awaitable[Any]]
) -> Response:
    """Do an action and go back to its page; if it fails, show the confirmation with the error."""
    fields = await visit.form()
    try:
        await act(fields)
    except RecalibError as error:
        return await confirm(visit, action, error)
    return redirect(visit, action.back)


async def _promotion(visit: Visit, model: str, version: int) -> Action:
    aliases = await visit.call(list_aliases, model=model)
    found = await visit.call(get_calibrator, model=model, version=version)
    champion = next((item.version for item in aliases.items if item.alias == "champion"), None)
    before = "uncalibrated answers" if champion is None else f"version {champion}"
    effects = [
        f"Every request for the champion of {model} is answered by version {version} "
        f"({found.card['map']}) instead of {before}, from now on and on all servers.",
        f"The state then follows from the labels of version {version}.",
        "The reason is kept in the history of the alias and in the audit trail.",
    ]
    if champion is not None:
        effects.append(f"Version {champion} stays: you can promote it again at any time.")
    force = "Promote although its rows did not look like logits of this model."
    title = f"Promote version {version} of {model}"
    return Action(title, effects, "Promote", f"models/{model}", force=force)


@router.get("/models/{model}/promote/{version}")
async def confirm_promotion(visit: SignedIn, model: str, version: int) -> Response:
    visit.authorise(set_alias, model)
    return await confirm(visit, await _promotion(visit, model, version))


@router.post("/models/{model}/promote/{version}")
async def promote(visit: SignedIn, model: str, version: int) -> Response:
    async def act(fields: dict[str, str]) -> Any:
        reason, key = fields.get("reason", ""), fields.get("key")
        body = {"version": version, "reason": reason, "force": "force" in fields}
        await visit.call(set_alias, model=model, alias="champion", body=body, idempotency_key=key)

    return await act_on(visit, await _promotion(visit, model, version), act)


@router.get("/models/{model}/rollback")
async def rollback(visit: SignedIn, model: str) -> Response:
    """Show the promotion of the version that was the champion before."""
    visit.authorise(set_alias, model)
    history = await visit.call(get_alias_history, model=model, alias="champion", limit=1)
    before = history.items[0].from_version if history.items else None
    if before is None:
        raise NotFoundError("earlier champion of model", model)
    return redirect(visit, f"models/{model}/promote/{before}")


def _refit(model: str) -> Action:
    effects = [
        "A job fits a candidate to the logits that were kept with their labels.",
        "The candidate is compared with the champion on predictions of neither's fit, and "
        "becomes the champion only if the evidence says that it is better.",
        "The champion goes on serving meanwhile.",
    ]
    title = f"Refit {model}"
    return Action(title, effects, "Request a refit", f"models/{model}", asks_reason=False)


@router.get("/models/{model}/refit")
async def confirm_refit(visit: SignedIn, model: str) -> Response:
    visit.authorise(create_refit, model)
    await visit.call(get_model, model=model)
    return await confirm(visit, _refit(model))


@router.post("/models/{model}/refit")
async def refit(visit: SignedIn, model: str) -> Response:
    async def act(fields: dict[str, str]) -> Any:
        await visit.call(create_refit, model=model, idempotency_key=fields.get("key"))

    return await act_on(visit, _refit(model), act)


def _drop(model: str, version: int) -> Action:
    effects = [
        f"Version {version} is no longer compared with the champion, and is not promoted.",
        "The champion goes on serving. The version stays in the registry.",
    ]
    return Action(f"Drop candidate {version} of {model}", effects, "Drop", f"models/{model}")


@router.get("/models/{model}/drop/{version}")
async def confirm_drop(visit: SignedIn, model: str, version: int) -> Response:
    visit.authorise(drop_candidate, model)
    await visit.call(get_calibrator, model=model, version=version)
    return await confirm(visit, _drop(model, version))


@router.post("/models/{model}/drop/{version}")
async def drop(visit: SignedIn, model: str, version: int) -> Response:
    async def act(fields: dict[str, str]) -> Any:
        reason, key = fields.get("reason", ""), fields.get("key")
        arguments = {"version": version, "reason": reason, "idempotency_key": key}
        await visit.call(drop_candidate, model=model, **arguments)

    return await act_on(visit, _drop(model, version), act)


def _cancellation(job: str) -> Action:
    effects = ["A queued job never runs. A running job stops at its next step."]
    return Action("Cancel this job", effects, "Cancel the job", f"jobs/{job}", asks_reason=False)


@router.get("/jobs/{job}/cancel")
async def confirm_cancellation(visit: SignedIn, job: str) -> Response:
    await visit.call(get_job, job_id=job)
    return await confirm(visit, _cancellation(job))


@router.post("/jobs/{job}/cancel")
async def cancel(visit: SignedIn, job: str) -> Response:
    async def act(fields: dict[str, str]) -> Any:
        await visit.call(cancel_job, job_id=job, idempotency_key=fields.get("key"))

    return await act_on(visit, _cancellation(job), act)
