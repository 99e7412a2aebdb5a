"""What a server accepts of a recipe beyond the rules of `recalib.recipe`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from recalib.errors import InputError
from recalib.recipe import Recipe


def check_server_recipe(
    recipe: Recipe,
    allowed: Collection[str] = (),
    max_workers: int = 0,
    max_epochs: int | None = None,
) -> None:
    """Raise `InputError` for a recipe that a server does not run.

    Parameters
    ----------
    allowed: packages, whose functions recipes may name; or functions, `package.module:function`.
    max_workers: the largest number of `workers` of a recipe.
    max_epochs: the largest number of its `epochs`; None for no limit.
    """
    if max_epochs is not None and recipe.epochs > max_epochs:
        accepted = f"at most {max_epochs}, as RECALIB_MAX_EPOCHS of the server allows"
        raise InputError("epochs", found=f"{recipe.epochs}", accepted=accepted)
    if recipe.workers > max_workers:
        accepted = f"0 to {max_workers}, as RECALIB_TRAINING_WORKERS of the server allows"
        raise InputError("workers", found=f"{recipe.workers}", accepted=accepted)
    names = {"model.name": recipe.model.name}
    if recipe.data.get("source") == "dataset":
        options = recipe.data.get("options")
        factory = options.get("factory") if isinstance(options, Mapping) else None
        if isinstance(factory, str):  # a missing one is refused with the other options
            names["data.options.factory"] = factory
    for field, name in names.items():
        if ":" in name and not _is_allowed(name, allowed):
            accepted = (
                "a registered name, or a function that RECALIB_TRAINING_IMPORTS of the server "
                "allows; `recalib train` without --server imports any"
            )
            raise InputError(field, found=repr(name), accepted=accepted)


def _is_allowed(name: str, allowed: Collection[str]) -> bool:
    module, _, function = name.rpartition(":")
    parts = module.split(".")
    # A file, as in `pkg.py:f` or `pkg/a.b:f`, is not in a package.
    if parts[-1] == "py" or not all(part.isidentifier() for part in parts):
        return False
    # With dots, a function may be reached in any package that this one imports.
    packages = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
    return name in allowed or ("." not in function and not packages.isdisjoint(allowed))
