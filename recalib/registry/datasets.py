"""Queries of the table `datasets`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, insert, literal, select, update

from recalib.core.resource_names import check_name, is_name
from recalib.errors import InputError
from recalib.registry import tables
from recalib.registry.base import Queries, columns_without, select_page
from recalib.registry.clock import now
from recalib.registry.records import Dataset, InputKind, Model

_TABLE = tables.datasets


class Datasets(Queries):
    """Validation logits of a model; the rows are in the blob `digest`, or it lists their files."""

    def create(
        self,
        model: Model,
        name: str,
        digest: str,
        rows: int,
        classes: int,
        size_bytes: int,
        media_type: str,
        input: InputKind,
        metrics: dict[str, Any],
        uri: str | None = None,
    ) -> Dataset:
        """Add a dataset; `ExistsError` if the model has a dataset of that name.

        Parameters
        ----------
        uri: of a data set by reference.
        """
        check_name("name", name)
        if input not in ("logits", "probabilities"):
            raise InputError("input", found=repr(input), accepted="logits, probabilities")
        statement = insert(_TABLE).values(
            model_id=model.id,
            name=name,
            digest=digest,
            rows=rows,
            classes=classes,
            size_bytes=size_bytes,
            media_type=media_type,
            input=input,
            metrics=metrics,
            created_at=now(),
            uri=uri,
        )
        self._insert(statement, conflict=f"{model.name} already has a dataset named {name!r}")
        return self.get(model, name)

    def find(self, model: Model, name: str) -> Dataset | None:
        """Return the dataset, or None."""
        if not is_name(name):
            return None
        return self._find(_dataset, _select(model).where(_TABLE.c.name == name))

    def find_digest(self, model: Model, digest: str | None) -> Dataset | None:
        """Return the first dataset with these bytes, or None."""
        statement = _select(model).where(_TABLE.c.digest == digest).order_by(_TABLE.c.id).limit(1)
        return self._find(_dataset, statement)

    def get(self, model: Model, name: str) -> Dataset:
        """Return the dataset, or raise `NotFoundError`."""
        named = _select(model).where(_TABLE.c.name == name)
        return self._get(_dataset, named, "dataset", name, f"the model is {model.name}")

    def set_row_digests(self, model: Model, dataset: Dataset, digests: bytes) -> None:
        """Record the digests of the rows, unless they are recorded: see `Calibrators.row_digests`.

        Nothing is recorded if other data has the name of the data set now.

        Parameters
        ----------
        digests: 8 bytes for each row, sorted.
        """
        self._connection.execute(
            update(_TABLE)
            .where(
                _TABLE.c.model_id == model.id,
                _TABLE.c.name == dataset.name,
                _TABLE.c.digest == dataset.digest,
                _TABLE.c.row_digests.is_(None),
            )
            .values(row_digests=digests)
        )

    def names_before(self, model: Model, before: float) -> list[str]:
        """Return the names of the data sets that were uploaded before a time."""
        rows = self._connection.execute(_select(model).where(_TABLE.c.created_at < before))
        return [row.name for row in rows]

    def page(self, model: Model, after: str | None, limit: int) -> list[Dataset]:
        """Return up to `limit` datasets sorted by name, after the name `after`."""
        return self._read(_dataset, select_page(_select(model), _TABLE.c.name, limit, after))


def id_of(model: Model, name: str) -> Select[Any]:
    """Return the query of the id of a data set."""
    return select(_TABLE.c.id).where(_TABLE.c.model_id == model.id, _TABLE.c.name == name)


def _dataset(*, tags: list[str] | None, **row: Any) -> Dataset:
    return Dataset(**row, tags=tuple(tags or ()))


def _select(model: Model) -> Select[Any]:
    columns = columns_without(_TABLE, "id", "model_id", "deleted_at", "row_digests")
    return select(literal(model.name).label("model"), *columns).where(
        _TABLE.c.model_id == model.id, _TABLE.c.deleted_at.is_(None)
    )
