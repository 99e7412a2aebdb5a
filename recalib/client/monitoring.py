"""Whether what is served is still calibrated."""

from __future__ import annotations

from typing import Any

from recalib.client.operations import Plan, Session
from recalib.client.results import Candidate, Job, Model, Monitoring
from recalib.client.retry import fetch, new_key, path

__all__ = ["drop_candidate", "get_monitoring", "refit", "set_monitoring"]


def get_monitoring(session: Session, model: str) -> Plan[Monitoring]:
    """Return how a model's champion holds up: state, evidence, windows and what has happened.

    Raises
    ------
    MissingError: no such model.
    """
    return fetch(session, Monitoring, "GET", path("models", model, "monitoring"))


def refit(session: Session, model: str) -> Plan[Job]:
    """Ask for a candidate, fitted on kept logits; return the job, or the one that is under way.

    It becomes the champion only on evidence: see `get_monitoring`.

    Raises
    ------
    MissingError: no such model.
    ContradictionError: it has no champion.
    """
    return fetch(
        session, Job, "POST", path("models", model, "monitoring", "refit"), headers=new_key()
    )


def drop_candidate(
    session: Session, model: str, version: int, *, reason: str = ""
) -> Plan[Candidate]:
    """Give a candidate up, while it is compared or has proven better; the champion goes on.

    Parameters
    ----------
    reason: kept in the audit trail.

    Raises
    ------
    MissingError: no such model, or a version that was never a candidate.
    ContradictionError: it has been promoted.
    """
    where = path("models", model, "monitoring", "candidates", str(version))
    query = {"reason": reason} if reason else {}
    return fetch(session, Candidate, "DELETE", where, query=query, headers=new_key())


def set_monitoring(session: Session, /, model: str, **settings: Any) -> Plan[Model]:
    """Say what of a model is watched, and how, from now on.

    Parameters
    ----------
    settings: as the server describes them (`objective`, `tolerance`, `alpha`, `segments`, ...);
        what is left out has its default.

    Raises
    ------
    MissingError: no such model.
    RefusedError: a setting that cannot be.
    ContradictionError: segments that would change their numbers.
    """
    where = path("models", model, "monitoring", "settings")
    return fetch(session, Model, "PUT", where, json=settings, headers=new_key())
