"""Edits of descriptions, tags, names and settings of models, data sets and versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Table, update

from recalib.core.card import PredictionPolicy
from recalib.core.resource_names import check_name
from recalib.core.retention_settings import RetentionSettings
from recalib.errors import ConflictError
from recalib.registry import tables
from recalib.registry.aliases import CHAMPION, Aliases
from recalib.registry.audit import Audit
from recalib.registry.base import Queries
from recalib.registry.calibrators import Calibrators
from recalib.registry.datasets import Datasets
from recalib.registry.details import check_description, check_tags
from recalib.registry.events import Events
from recalib.registry.jobs import Jobs
from recalib.registry.models import Models, check_predictions
from recalib.registry.records import CalibratorVersion, Dataset, Model
from recalib.registry.webhooks import Webhooks


class Edits(Queries):
    """Names, descriptions, tags and settings; None leaves a value as it is."""

    def model(
        self,
        model: Model,
        actor: str,
        *,
        name: str | None = None,
        description: str | None = None,
        tags: Sequence[str] | None = None,
        retention: RetentionSettings | None = None,
        predictions: PredictionPolicy | None = None,
        serve_uncalibrated: bool | None = None,
    ) -> Model:
        """Change a model and return it.

        A new name leaves the old one free, and nothing redirects to it.

        Raises
        ------
        NotFoundError: the model was deleted meanwhile.
        InputError: a value is not valid.
        ConflictError: a new name, and the model has a champion or unfinished jobs.
        ExistsError: another model has the new name.
        """
        models = Models(self._connection)
        models.hold(model, exclusively=True)
        values = _texts(description, tags)
        if retention is not None:
            # The settings of monitoring may have changed before the model was held.
            retention.check_monitoring(models.get(model.name).monitoring)
            values["retention"] = retention.to_dict()
        if predictions is not None:
            check_predictions(predictions, model.classes, model.task)
            values["predictions"] = predictions
        if serve_uncalibrated not in (None, model.serve_uncalibrated):
            values["serve_uncalibrated"] = serve_uncalibrated
            # Servers look the champion up again, and then read the setting.
            Aliases(self._connection).bury(model.name, CHAMPION)
        statement = update(tables.models).where(tables.models.c.id == model.id)
        if values:
            self._connection.execute(statement.values(**values))
        changes = sorted(values)
        current = model.name
        if name is not None and name != model.name:
            self._check_unused(model)
            renamed = statement.values(name=check_name("name", name))
            self._insert(renamed, conflict=f"a model named {name!r} already exists")
            Aliases(self._connection).bury(model.name)
            Events(self._connection).rename(model.name, name)
            Webhooks(self._connection).rename(model.name, name)
            changes.append(f"name to {name}")
            current = name
        self._record("model", actor, model.name, current, changes)
        return models.get(current)

    def dataset(
        self,
        model: Model,
        name: str,
        actor: str,
        *,
        description: str | None = None,
        tags: Sequence[str] | None = None,
    ) -> Dataset:
        """Change a data set and return it; `NotFoundError` if there is none."""
        Models(self._connection).hold(model)
        datasets = Datasets(self._connection)
        datasets.get(model, name)
        values = _texts(description, tags)
        table = tables.datasets
        self._describe(table, values, table.c.model_id == model.id, table.c.name == name)
        self._record("dataset", actor, model.name, name, sorted(values))
        return datasets.get(model, name)

    def calibrator(
        self,
        model: Model,
        version: int,
        actor: str,
        *,
        description: str | None = None,
        tags: Sequence[str] | None = None,
    ) -> CalibratorVersion:
        """Change a version and return it; `NotFoundError` if there is none."""
        Models(self._connection).hold(model)
        calibrators = Calibrators(self._connection)
        calibrators.get(model, version)
        values = _texts(description, tags)
        table = tables.calibrators
        self._describe(table, values, table.c.model_id == model.id, table.c.version == version)
        self._record("calibrator", actor, model.name, str(version), sorted(values))
        return calibrators.get(model, version)

    def _check_unused(self, model: Model) -> None:
        """Raise `ConflictError` if requests or jobs use the name of a model."""
        champion = Aliases(self._connection).find(model, CHAMPION)
        if champion is not None:
            raise ConflictError(
                f"model {model.name!r} serves version {champion.version} as its champion, and "
                "requests name the model; delete the alias first, and set it again after the change"
            )
        for job in Jobs(self._connection).unfinished(model):
            raise ConflictError(
                f"model {model.name!r} is in use by {job.kind} job {job.id} ({job.state}); wait "
                "for its end, or cancel it"
            )

    def _describe(self, table: Table, values: dict[str, Any], *where: ColumnElement[bool]) -> None:
        if values:
            self._connection.execute(update(table).where(*where).values(values))

    def _record(self, kind: str, actor: str, model: str, name: str, changes: Sequence[str]) -> None:
        """Add a change to the audit trail and to the events."""
        if changes:
            Audit(self._connection).record(actor, f"update_{kind}", model, name, ", ".join(changes))
            data = {"name": name, "actor": actor}
            Events(self._connection).record(f"{kind}.updated", model, data)


def _texts(description: str | None, tags: Sequence[str] | None) -> dict[str, Any]:
    """Return the columns of a description and tags, each unless it is None."""
    values: dict[str, Any] = {}
    if description is not None:
        values["description"] = check_description(description)
    if tags is not None:
        values["tags"] = check_tags(tags)
    return values
