"""The objectives that are compared, with the papers' options where these are published.

β is the paper's where there is one and 1 otherwise; nothing is tuned here, neither for nor against
anything. Where a source averages over classes and the paper writes a sum, β makes up for it. The
forms are those of the papers' text, unless the name says that it is the released one. `summed` is
the loop of paper 004's code: a step minimises the sum over its batch, and clips the gradient.
"""

from __future__ import annotations

from typing import Any

from recalib.recipe import LossPart


def _plain(name: str, **options: Any) -> LossPart:
    return LossPart(primary=name, options=options)


def _with(
    secondary: str, beta: float = 1.0, primary: str = "cross_entropy", **options: Any
) -> LossPart:
    return LossPart(primary=primary, secondary=secondary, secondary_options=options, beta=beta)


def _summed(part: LossPart) -> LossPart:
    return part.model_copy(update={"reduction": "sum"})


OBJECTIVES: dict[str, LossPart] = {
    "CE": _plain("cross_entropy"),
    "label smoothing": _plain("label_smoothing", smoothing=0.05),
    "Brier": _plain("brier"),
    "focal 3": _plain("focal", gamma=3.0),
    "focal 5, 3, 2": _plain("focal_scheduled"),
    "FLSD-53": _plain("focal_sample_dependent"),
    "inverse focal": _plain("inverse_focal"),
    "dual focal": _plain("dual_focal"),
    "dual focal, released": _plain("dual_focal_released"),
    "AURC": _plain("aurc"),
    # With a ν of .1 here, or a bandwidth of .001 of KDE's, nothing is learnt: docs/losses.md.
    "selective risk": _plain("selective_risk", nu=1.0),
    "CE + MMCE": _with("mmce", 2.0),
    "CE + ECP": _with("entropy_penalty", 0.1),
    "CE + AvUC": _with("avuc"),
    "CE + AvUC-GS": _with("avuc_gs"),
    "CE + S-AvUC": _with("s_avuc"),
    "focal + S-AvUC": _with("s_avuc", primary="focal"),
    "CE + SB-ECE": _with("sb_ece"),
    "focal + SB-ECE": _with("sb_ece", primary="focal"),
    "CE + MDCA": _with("mdca"),
    # Sums over 9 classes and 81 pairs; the source averages.
    "CE + CPC": _with("cpc", lambda1=1 / 9, lambda2=1 / 81),
    # A sum over 10 classes; the source averages, with a β of .1.
    "CE + MbLS": _with("mbls", 0.01, margin=6.0),
    "CE + CRL": _with("crl"),
    # Eq. 13 with the paper's λ2, which its authors use for a mean over 9 classes.
    "CE + ACLS": _with("acls", lambda2=0.01, margin=6.0),
    "CE + KDE": _with("kde_ece", 0.3, bandwidth=0.01),
    "CE + SB-ECE, interleaved": _with("sb_ece"),
    "CE + S-AvUC, interleaved": _with("s_avuc"),
    "CE + MMCE, released": _with("mmce", 2.0, weighted=True, variant="released"),
    "CE + SB-ECE, released": _with("sb_ece", variant="released"),
    "CE + S-AvUC, released": _with("s_avuc", variant="released"),
    "CE + CRL, released": _with("crl", variant="released"),
    "CE + ACLS, released": _with("acls", margin=6.0, variant="released"),
    "focal + SB-ECE, released": _with("sb_ece", primary="focal", variant="released"),
    "focal + S-AvUC, released": _with("s_avuc", primary="focal", variant="released"),
}
#: Those of paper 004 by its loop.
SUMMED = ("CE", "FLSD-53", "focal 3", "Brier", "label smoothing", "CE + MMCE, released")
OBJECTIVES |= {f"{name}, summed": _summed(OBJECTIVES[name]) for name in SUMMED}
#: Trained as paper 000, appendix B, has it where training rows are known by heart.
INTERLEAVED = frozenset({"CE + SB-ECE, interleaved", "CE + S-AvUC, interleaved"})
#: The main objectives of the papers, and their baselines: further seeds run these.
LEADING = (
    "CE",
    "FLSD-53",
    "focal 3",
    "Brier",
    "label smoothing",
    "CE + SB-ECE",
    "focal + SB-ECE",
    "CE + S-AvUC",
    "CE + MMCE",
    "CE + ACLS",
    "CE + MbLS",
    "selective risk",
)
#: As the authors' code has them, and their baselines: `--released` runs these.
RELEASED = (
    "CE", "CE + MbLS", "CE, summed", "FLSD-53, summed", "Brier, summed",
    "CE + MMCE, released, summed", "CE + MMCE, released", "CE + SB-ECE, released",
    "CE + S-AvUC, released", "CE + ACLS, released",
)  # fmt: skip
