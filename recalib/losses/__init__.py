"""Training losses. A new loss is one file in this folder and one line in the catalogue below.

Importing this package loads no torch: a server checks a recipe by the names alone. The first use of
`LOSSES[name]` imports the file of that loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recalib.core.lazy_import import LazyClasses, LazyModule

if TYPE_CHECKING:
    from recalib.losses.base import Loss, Regulariser

__all__ = [
    "LOSSES",
    "PRIMARY",
    "QUADRATIC",
    "SECONDARY",
    "SOFT_LABELS",
    "WHOLE_BATCH",
    "Loss",
    "Regulariser",
]

#: Losses that can be trained on alone, name to ``module:class``.
PRIMARY = {
    "cross_entropy": "cross_entropy:CrossEntropy",
    "label_smoothing": "label_smoothing:LabelSmoothing",
    "brier": "brier:Brier",
    "focal": "focal:Focal",
    "focal_scheduled": "focal:FocalScheduled",
    "focal_sample_dependent": "focal:FocalSampleDependent",
    "inverse_focal": "inverse_focal:InverseFocal",
    "dual_focal": "dual_focal:DualFocal",
    "dual_focal_released": "dual_focal:DualFocalReleased",
    "aurc": "aurc:Aurc",
    "selective_risk": "selective_risk:SelectiveRisk",
}
#: Regularisers, which are added to a primary loss.
SECONDARY = {
    "entropy_penalty": "entropy_penalty:EntropyPenalty",
    "mmce": "mmce:Mmce",
    "avuc": "avuc:Avuc",
    "avuc_gs": "avuc:AvucGradientStopping",
    "s_avuc": "avuc:SoftAvuc",
    "sb_ece": "sb_ece:SoftBinnedEce",
    "mdca": "mdca:Mdca",
    "cpc": "cpc:Cpc",
    "mbls": "mbls:Mbls",
    "crl": "crl:Crl",
    "acls": "acls:Acls",
    "kde_ece": "kde_ece:KernelError",
}
#: Losses of a whole batch: not a mean over rows, so parts of a batch have another loss.
WHOLE_BATCH = frozenset(
    {
        "aurc",
        "selective_risk",
        "mmce",
        "avuc",
        "avuc_gs",
        "s_avuc",
        "sb_ece",
        "mdca",
        "crl",
        "kde_ece",
    }
)
#: Losses whose labels may be probabilities, as after mixup.
SOFT_LABELS = frozenset(
    {
        "cross_entropy",
        "label_smoothing",
        "brier",
        "focal",
        "focal_scheduled",
        "focal_sample_dependent",
        "inverse_focal",
        "entropy_penalty",
        "mdca",
        "mbls",
        "acls",
        "kde_ece",
    }
)
#: Losses whose cost grows with the square of the rows. Dense predictions give them some pixels.
QUADRATIC = frozenset({"mmce", "crl", "kde_ece"})
LOSSES: LazyClasses[Loss] = LazyClasses(__name__, {**PRIMARY, **SECONDARY})


def __getattr__(name: str) -> Any:
    if name in ("Loss", "Regulariser"):
        return getattr(LazyModule("recalib.losses.base"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
