"""What a network is trained on: a new loss is one file and one line here."""

from recalib.losses.acls import Acls
from recalib.losses.aurc import Aurc
from recalib.losses.avuc import Avuc, AvucGradientStopping, SoftAvuc
from recalib.losses.base import Loss, Regulariser
from recalib.losses.brier import Brier
from recalib.losses.cpc import Cpc
from recalib.losses.crl import Crl
from recalib.losses.cross_entropy import CrossEntropy
from recalib.losses.dual_focal import DualFocal, DualFocalReleased
from recalib.losses.entropy_penalty import EntropyPenalty
from recalib.losses.focal import Focal, FocalSampleDependent, FocalScheduled
from recalib.losses.inverse_focal import InverseFocal
from recalib.losses.kde_ece import KernelError
from recalib.losses.label_smoothing import LabelSmoothing
from recalib.losses.mbls import Mbls
from recalib.losses.mdca import Mdca
from recalib.losses.mmce import Mmce
from recalib.losses.sb_ece import SoftBinnedEce
from recalib.losses.selective_risk import SelectiveRisk

__all__ = ["LOSSES", "Loss", "Regulariser"]

LOSSES: dict[str, type[Loss]] = {
    "cross_entropy": CrossEntropy,
    "label_smoothing": LabelSmoothing,
    "brier": Brier,
    "focal": Focal,
    "focal_scheduled": FocalScheduled,
    "focal_sample_dependent": FocalSampleDependent,
    "inverse_focal": InverseFocal,
    "dual_focal": DualFocal,
    "dual_focal_released": DualFocalReleased,
    "entropy_penalty": EntropyPenalty,
    "mmce": Mmce,
    "avuc": Avuc,
    "avuc_gs": AvucGradientStopping,
    "s_avuc": SoftAvuc,
    "sb_ece": SoftBinnedEce,
    "mdca": Mdca,
    "cpc": Cpc,
    "mbls": Mbls,
    "crl": Crl,
    "acls": Acls,
    "kde_ece": KernelError,
    "aurc": Aurc,
    "selective_risk": SelectiveRisk,
}
