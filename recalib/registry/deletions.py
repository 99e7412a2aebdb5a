"""Deletion of models, data sets, versions and training runs.

A deletion hides the resource at once, and its content is erased after a retention period
(`recalib.registry.purge`). A deleted model or data set loses its name, so the name is free, and
every query by name misses the row. A version's number is not used again.

A deletion holds the model exclusively, and what creates something in a model holds it too
(`Models.hold`). So no job begins to use what a deletion has found unused, and no job publishes into
a deleted model: the publication finds no model of that name.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, update

from recalib.errors import ConflictError
from recalib.registry import tables
from recalib.registry.aliases import CHAMPION, Aliases
from recalib.registry.audit import Audit
from recalib.registry.base import Queries
from recalib.registry.calibrators import Calibrators
from recalib.registry.candidates import Candidates
from recalib.registry.clock import now
from recalib.registry.datasets import Datasets, id_of
from recalib.registry.events import Events
from recalib.registry.jobs import Jobs
from recalib.registry.models import Models
from recalib.registry.records import Job, Model

_NAME_LENGTH = 128


class Deletions(Queries):
    """Hides resources until their content is erased.

    With `force`, the unfinished jobs that use the resource are cancelled first. A running job stops
    at its next step; it cannot publish into what was deleted.
    """

    def model(self, model: Model, actor: str, *, force: bool = False) -> None:
        """Delete a model with everything in it; its name is free again.

        Raises
        ------
        NotFoundError: it was deleted meanwhile.
        ConflictError: it has a champion or unfinished jobs, and `force` is not given.
        """
        jobs = Jobs(self._connection)
        self._lock(model, jobs.unfinished(model), actor, force=force)
        champion = Aliases(self._connection).find(model, CHAMPION)
        if champion is not None and not force:
            raise ConflictError(
                f"model {model.name!r} serves version {champion.version} as its champion; delete "
                "the alias first, or delete the model with `force`"
            )
        self._check_unused(f"model {model.name!r}", jobs.unfinished(model), actor, force=force)
        aliases, models = tables.aliases, tables.models
        self._connection.execute(delete(aliases).where(aliases.c.model_id == model.id))
        Aliases(self._connection).bury(model.name)
        self._connection.execute(
            update(models)
            .where(models.c.id == model.id)
            .values(name=_deleted_name(model.id, model.name), deleted_at=now())
        )
        self._record("model", actor, model.name, model.name)

    def dataset(self, model: Model, name: str, actor: str, *, force: bool = False) -> None:
        """Delete a data set; its name is free again. Versions that were fitted on it stay.

        Raises
        ------
        NotFoundError: there is no such data set.
        ConflictError: an unfinished job uses it, and `force` is not given.
        """
        self._lock(model, self._jobs_with_dataset(model, name), actor, force=force)
        dataset = Datasets(self._connection).get(model, name)
        title = f"data set {name!r} of model {model.name!r}"
        self._check_unused(title, self._jobs_with_dataset(model, name), actor, force=force)
        table = tables.datasets
        dataset_id = self._connection.execute(id_of(model, name)).scalar_one()
        self._connection.execute(
            update(table)
            .where(table.c.id == dataset_id)
            .values(name=_deleted_name(dataset_id, name), deleted_at=now())
        )
        detail = f"{dataset.rows} rows, sha256 {dataset.digest}"
        self._record("dataset", actor, model.name, name, detail)

    def calibrator(self, model: Model, version: int, actor: str, *, force: bool = False) -> None:
        """Delete a version; its number is not used again.

        Raises
        ------
        NotFoundError: there is no such version.
        ConflictError: an alias points at it, it is a candidate in comparison, or an unfinished job
            uses it and `force` is not given.
        """
        self._lock(model, self._jobs_with_version(model, version), actor, force=force)
        aliases = Aliases(self._connection)
        aliases.lock_revision()
        Calibrators(self._connection).get(model, version)
        title = f"version {version} of model {model.name!r}"
        names = [alias.alias for alias in aliases.all(model) if alias.version == version]
        if names:
            raise ConflictError(
                f"{title} is served as {', '.join(names)}; point the alias at another version "
                "first, or delete the alias"
            )
        candidate = Candidates(self._connection).open(model)
        if candidate is not None and candidate.version == version:
            raise ConflictError(
                f"{title} is the candidate that is compared with the champion; drop it first"
            )
        self._check_unused(title, self._jobs_with_version(model, version), actor, force=force)
        table = tables.calibrators
        self._connection.execute(
            update(table)
            .where(table.c.model_id == model.id, table.c.version == version)
            .values(deleted_at=now())
        )
        aliases.bury(model.name, str(version))
        self._record("calibrator", actor, model.name, str(version))

    def run(self, job: Job, actor: str, *, kind: str = "training_run", force: bool = False) -> None:
        """Delete a job with its files; a version that it published stays.

        Parameters
        ----------
        kind: what the job is for its user: `training_run`, `evaluation` or `batch`.

        Raises
        ------
        NotFoundError: it was deleted meanwhile.
        ConflictError: it is unfinished, and `force` is not given.
        """
        jobs = Jobs(self._connection)
        if force and job.state in ("queued", "running"):
            self._cancel(job, actor)
        job = jobs.get(job.id, hold=True)
        self._check_unused(f"{kind.replace('_', ' ')} {job.id}", [job], actor, force=force)
        jobs.delete(job.id)
        self._record(kind, actor, job.model, job.id)

    def _lock(self, model: Model, jobs: Sequence[Job], actor: str, *, force: bool) -> None:
        """Cancel jobs with `force`, and hold the model: in this order, as publications do."""
        if force:
            for job in jobs:
                self._cancel(job, actor)
        Models(self._connection).hold(model, exclusively=True)

    def _cancel(self, job: Job, actor: str) -> None:
        if not job.cancel_requested:
            Jobs(self._connection).cancel(job.id)
            detail = f"a {job.kind} job"
            Audit(self._connection).record(actor, "cancel_job", job.model, job.id, detail)

    def _check_unused(self, title: str, jobs: Sequence[Job], actor: str, *, force: bool) -> None:
        """Raise `ConflictError` if a job is unfinished; with `force`, if it is not cancelled."""
        for job in jobs:
            if force and job.state == "queued":  # created before the model was held
                self._cancel(job, actor)
            elif job.state in ("queued", "running") and not (force and job.cancel_requested):
                advice = (
                    "it was created meanwhile; try again"
                    if force
                    else "wait for its end, cancel it, or delete with `force`, which cancels it"
                )
                user = f"{job.kind} job {job.id} ({job.state})"
                raise ConflictError(f"{title} is in use by {user}; {advice}")

    def _jobs_with_dataset(self, model: Model, name: str) -> list[Job]:
        jobs = Jobs(self._connection).unfinished(model)
        return [job for job in jobs if job.payload.get("dataset") == name]

    def _jobs_with_version(self, model: Model, version: int) -> list[Job]:
        jobs = Jobs(self._connection).unfinished(model)
        return [
            job
            for job in jobs
            if version in (job.payload.get("version"), *job.payload.get("versions", []))
        ]

    def _record(
        self, kind: str, actor: str, model: str | None, name: str, detail: str = ""
    ) -> None:
        """Add a deletion to the audit trail and to the events."""
        Audit(self._connection).record(actor, f"delete_{kind}", model, name, detail)
        Events(self._connection).record(f"{kind}.deleted", model, {"name": name, "actor": actor})


def _deleted_name(identifier: int, name: str) -> str:
    """Return the content of the name's column from now on; it is no name, since it has a `~`."""
    return f"{identifier}~{name}"[:_NAME_LENGTH]
