"""A calibrator with offsets for segments of rows.

Legend: N rows, K classes, G segments.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, Literal, Self

import msgspec
import numpy as np

from recalib.calibrator import Calibrator
from recalib.core.array_bytes import state_from_bytes, state_to_bytes
from recalib.core.class_names import like
from recalib.core.decoding import decoder_of
from recalib.core.segment_columns import UNNAMED, segment_columns
from recalib.errors import CorruptError, InputError, RecalibWarning
from recalib.files import write_atomically
from recalib.segments.offsets import Matrix, adjust, log_of, membership

#: What the bytes of a parameter file are, and their version.
_KIND, _VERSION = "segments", 1


class Segment(msgspec.Struct, frozen=True):
    """A segment of the rows of a fit."""

    column: str
    value: str
    rows: int
    #: The mean NLL of the common map minus that with offsets, on held-out folds.
    gain: float
    #: Of the gain; None for one row.
    standard_error: float | None = None


class SegmentSummary(msgspec.Struct, frozen=True):
    """The result of `fit_segments`."""

    columns: tuple[str, ...]
    segments: tuple[Segment, ...]
    #: `none`, `temperature` for a factor of log p, or `vector` for a factor and a bias a class.
    form: str
    #: Of the penalty; see `fit_segments`.
    strength: float
    rows: int
    #: As of `Segment`, of all rows, for the best offsets, also if they were not chosen.
    gain: float
    standard_error: float


class SegmentCalibrator:
    """A calibrator whose probabilities have offsets by segment; see `fit_segments`.

    A row without a segment, or with one that the fit has not seen, has the probabilities of
    `common`. Servers, ONNX graphs and torch modules take `common` alone.

    Parameters
    ----------
    common: the calibrator of all rows, not of independent labels.
    summary: what was fitted.
    offsets: (G, 1 + K), in the order of `summary.segments`; see `adjust`.

    Examples
    --------
    >>> country = np.where(labels == 0, "DE", "FR")
    >>> by_country = recalib.fit_segments(calibrator, logits, labels, country)
    >>> by_country.predict(new_logits, np.repeat(["DE", "FR"], 200)).shape
    (400, 3)
    """

    def __init__(self, common: Calibrator, summary: SegmentSummary, offsets: Matrix) -> None:
        self.common, self.summary, self.offsets = common, summary, offsets

    def predict(
        self,
        values: Any,
        segments: Any = None,
        *,
        input: Literal["logits", "probabilities"] | None = None,
    ) -> Any:
        """Return calibrated probabilities (N, K).

        Parameters
        ----------
        values, input: as in `Calibrator.predict`, (N, K) or (N,).
        segments: as in `fit_segments`, with the same columns. Values that the fit has not seen
            cause a `RecalibWarning`.

        Raises
        ------
        InputError: no segments, other columns, or as in `Calibrator.predict`.

        Examples
        --------
        >>> by_country.predict(new_logits, country)  # doctest: +SKIP
        >>> by_country.common.predict(new_logits)  # doctest: +SKIP
        """
        p = np.asarray(self.common.predict(values, input=input))
        if p.ndim > 2:
            raise InputError("values", found=f"shape {p.shape}", accepted="(N, K), or (N,)")
        columns = {} if segments is None else segment_columns(segments, len(p))
        wanted = self.summary.columns
        if len(wanted) == len(columns) == 1 and UNNAMED in (*wanted, *columns):
            columns = dict(zip(wanted, columns.values(), strict=True))
        if missing := [name for name in wanted if name not in columns]:
            found = f"none of {', '.join(missing)}"
            accepted = f"values of {', '.join(wanted)}; `common.predict` takes rows without"
            raise InputError("segments", found=found, accepted=accepted)
        names = [(segment.column, segment.value) for segment in self.summary.segments]
        for name in wanted:
            known = {value for column, value in names if column == name}
            if unseen := {*columns[name].tolist()} - known - {""}:
                message = f"segments: {name} has values that the fit has not seen: "
                message += f"{', '.join(sorted(unseen)[:5])}; these rows get no offset for it"
                warnings.warn(message, RecalibWarning, stacklevel=2)
        members = membership([columns[name] == value for name, value in names])
        adjusted = np.exp(adjust(log_of(p), members, self.offsets))
        return like(values, adjusted.astype(p.dtype), self.common.card.labels)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the parameter file atomically.

        Raises
        ------
        InputError: a name that ends in `.onnx`.

        Examples
        --------
        >>> by_country.save("country.calib")  # doctest: +SKIP
        """
        if Path(path).suffix == ".onnx":
            accepted = "a .calib file; `common.save` writes the graph of the common map"
            raise InputError("path", found=f"{path}, with segments", accepted=accepted)
        texts = {"common": self.common.to_bytes(), "summary": msgspec.json.encode(self.summary)}
        arrays = {name: np.frombuffer(text, np.uint8) for name, text in texts.items()}
        data = state_to_bytes(_KIND, _VERSION, {**arrays, "offsets": self.offsets})
        write_atomically(Path(path), data)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a parameter file of `save`.

        Raises
        ------
        InputError: the file does not exist.
        CorruptError: the file is damaged, or has no segments.

        Examples
        --------
        >>> recalib.SegmentCalibrator.load("country.calib")  # doctest: +SKIP
        """
        try:
            _, arrays = state_from_bytes(_KIND, [_VERSION], Path(path).read_bytes())
            summary = decoder_of(SegmentSummary).decode(arrays["summary"].tobytes())
            common = Calibrator.from_bytes(arrays["common"].tobytes())
            return cls(common, summary, arrays["offsets"])
        except OSError as error:
            found = f"{path} ({error.strerror})"
            raise InputError("calibrator", found=found, accepted="a .calib file") from None
        except CorruptError as error:
            raise CorruptError(f"calibrator {path}, of fit_segments: {error}") from None
