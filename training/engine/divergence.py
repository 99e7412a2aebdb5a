"""The error of a run that diverges."""

from __future__ import annotations

from recalib.errors import InputError


class DivergedError(InputError):
    """An objective, or logits, that are not finite.

    Parameters
    ----------
    found: what is not finite, and when.
    """

    def __init__(self, found: str) -> None:
        super().__init__(
            "optimiser.learning_rate",
            found=found,
            accepted="a run that converges: try a smaller rate, or a warm-up",
        )
