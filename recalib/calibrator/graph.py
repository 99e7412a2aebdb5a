"""The graph of a calibrator for ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recalib.core.packages import optional_packages
from recalib.maps.venn_abers import VennAbers
from recalib.sets.conformal import set_members
from recalib.sets.rejection import accepted_rows
from recalib.sets.venn_abers import intervals

if TYPE_CHECKING:
    from recalib.calibrator.calibrator import Calibrator


def onnx_graph(calibrator: Calibrator, *, probabilities_only: bool) -> bytes:
    """Return the graph of a calibrator without segments; see `Calibrator.to_onnx`."""
    with optional_packages("to_onnx"):
        from recalib.ops.onnx_ops import OnnxOps

    ops, card = OnnxOps(), calibrator.card
    constants = calibrator.map.constants(ops, calibrator.parameters)
    logits = calibrator.apply_mask(ops, ops.input("logits"))
    output = calibrator.map.probabilities(ops, logits, constants)
    others = {}
    if card.sets is not None and not probabilities_only:
        masked = ops.is_masked(logits)
        others["sets"] = set_members(ops, output, masked, card.classes, card.sets)
    if card.rejection is not None and not probabilities_only:
        others["accepted"] = accepted_rows(ops, output, card.rejection)
    if isinstance(calibrator.map, VennAbers) and not probabilities_only:
        others["intervals"] = intervals(ops, calibrator.map, logits, constants)
    metadata = [("recalib.core.card", card.to_json())]
    return ops.model(output, classes=card.classes, **others, metadata=metadata).SerializeToString()
