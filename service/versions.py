"""Versions that a request names, resolved once, so that a job is independent of later changes."""

from __future__ import annotations

from recalib.calibrator import Calibrator
from recalib.errors import InputError, NotFoundError
from recalib.registry import Model, Transaction
from recalib.registry.records import InputKind


def resolve_version(
    tx: Transaction, model: Model, name: int | str, input: InputKind, field: str
) -> int:
    """Return the number of a version of a model that takes rows of the kind `input`.

    The other parameters are those of `find_version`.

    Raises
    ------
    NotFoundError: the model has no such version or alias.
    InputError: the version cannot take such rows.
    CorruptError: its parameters are damaged.
    """
    number = find_version(tx, model, name, field)
    calibrator = Calibrator.from_bytes(tx.calibrators.parameters(model, number))
    if not calibrator.accepts(input):
        found = f"version {number} on {input}"
        map_input = calibrator.card.input
        accepted = (
            f"versions that take {input}; its map, {calibrator.card.map}, takes {map_input} only"
        )
        raise InputError(field, found=found, accepted=accepted)
    return number


def find_version(tx: Transaction, model: Model, name: int | str, field: str) -> int:
    """Return the number of a version of a model, which may be deleted.

    Parameters
    ----------
    name: a number, also as text, or an alias, such as `champion`.
    field: the name of the argument, for errors.

    Raises
    ------
    NotFoundError: the model has no such version or alias.
    """
    text = str(name)
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    number = int(text) if is_number else None
    if number is None:
        alias = tx.aliases.find(model, text)
        number = None if alias is None else alias.version
    if number is None or not 1 <= number <= model.latest_version:
        latest = model.latest_version
        hint = f"the newest of {model.name} is {latest}" if latest else f"{model.name} has none"
        raise NotFoundError("version", text[:80], hint=f"{field}: {hint}")
    return number
