"""Deliberate errors that the short tests must catch, each a replacement of text in one file.

Choose text that is unlikely to be reworded: formulas, comparisons, constants. `old` occurs exactly
once in its file, and the mutated file is valid Python with another meaning.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MUTATIONS", "Mutation"]


class Mutation(NamedTuple):
    """One error."""

    file: str
    old: str
    new: str
    #: Paths of the tests that run first; the rest of the short suite runs for survivors only.
    tests: tuple[str, ...]


def _group(*tests: str, **files: list[tuple[str, str]]) -> list[Mutation]:
    """Return the mutations of files of one package, named by their path with `__` for `/`."""
    return [
        Mutation(f"{name.replace('__', '/')}.py", old, new, tests)
        for name, replacements in files.items()
        for old, new in replacements
    ]


_MAPS = _group(
    "tests/maps",
    "tests/fitting",
    recalib__maps__temperature=[
        ('return logits / parameters["temperature"]', 'return logits * parameters["temperature"]')
    ],
    recalib__maps__class_temperature=[
        ('return logits / parameters["temperature"]', 'return logits * parameters["temperature"]')
    ],
    recalib__maps__vector=[
        ('parameters["scale"] + parameters["bias"]', 'parameters["scale"] - parameters["bias"]')
    ],
    recalib__maps__matrix=[(' + parameters["bias"]', "")],
    recalib__maps__structured_matrix=[
        ("share * (classes - 1) * self.off_diagonal", "share * classes * self.off_diagonal")
    ],
    recalib__maps__structured_vector=[("parameters = 2 * classes", "parameters = classes")],
    recalib__maps__spline=[
        ("bump = (1.0 - t) * t", "bump = (1.0 + t) * t"),
        ("rise - m1 * ", "rise + m1 * "),
    ],
    recalib__maps__beta=[
        ('parameters["high"] - parameters["bias"]', 'parameters["high"] + parameters["bias"]')
    ],
    recalib__maps__ensemble_temperature=[("return logits * slope", "return logits / slope")],
    recalib__maps__parameterized_temperature=[
        ("return temperature * ops.exp(change)", "return temperature + ops.exp(change)")
    ],
    recalib__maps__ridge=[
        ("((diagonal - diagonal.mean()) ** 2)", "(diagonal**2)"),
        ("off_diagonal / (classes * (classes - 1))", "off_diagonal / classes"),
    ],
    recalib__maps__dirichlet=[("2_500, rows) / classes**2", "2_500, rows) / classes")],
    recalib__maps__top_label=[("largest - second + level", "largest - second - level")],
    recalib__maps__base=[('"log" and not (value > 0)', '"log" and not (value >= 0)')],
    recalib__objectives__hard_binned_ece=[
        ("* bins).astype(np.int64) - 1, 0", "* bins).astype(np.int64), 0")
    ],
    recalib__objectives__label_smoothing=[
        ("0 <= self.smoothing < 1,", "0 <= self.smoothing <= 1,")
    ],
)

_METRICS = _group(
    "tests/metrics/test_definitions.py",
    "tests/metrics",
    recalib__metrics__binning=[
        ("values <= lower[", "values < lower["),
        ("self.correct += counts[:, 1]", "self.correct += counts[:, 0]"),
        ("self.confidence += other.confidence", "self.confidence -= other.confidence"),
    ],
    recalib__metrics__ece_debiased=[("/ (n * (n - 1))", "/ (n * n)")],
    recalib__metrics__classwise_equal_mass=[("total / (rows * classes)", "total / rows")],
    recalib__metrics__confidence=[("p > p.dtype.type(", "p >= p.dtype.type(")],
    recalib__metrics__kernels=[("alpha = p / bandwidth + 1", "alpha = p / bandwidth")],
    recalib__metrics__brier_decomposition=[("squares - 2 * products", "squares - products")],
    recalib__metrics__aurc=[
        ("rows * np.diff(u - scipy", "rows * np.diff(u + scipy"),
        ("xlog1py(1 - share, -share)", "xlog1py(share, -share)"),
    ],
    recalib__metrics__ks_error=[("return float(largest) / len(p)", "return float(largest)")],
    recalib__metrics__equal_mass=[("** (1 / order))", "** order)")],
    recalib__metrics__ece_sweep=[("sizes * gaps**2) / len(p)", "gaps**2) / len(p)")],
    recalib__metrics__smooth_ece=[
        ("(predictions.correct - p) / len(p)", "(predictions.correct + p) / len(p)"),
        ("-x * (x - 1) * (x - 2) / 6", "x * (x - 1) * (x - 2) / 6"),
    ],
    recalib__metrics__top5_accuracy=[("scores > label_scores", "scores >= label_scores")],
    recalib__metrics__mean_metrics=[
        ("/ (state.count - 1)", "/ state.count"),
        ("centre = (k + z2 / 2)", "centre = (k + z2)"),
    ],
    recalib__metrics__classwise_loss_std=[("np.std(", "np.var(")],
    recalib__metrics__calibration_gaps=[
        ("return self.accuracies - self.confidences", "return self.confidences - self.accuracies"),
        ("residual = y * (1 - y)", "residual = y * y"),
    ],
    recalib__metrics__ece_label_binned=[("- 2 * sums[below]", "- sums[below]")],
)

_LOSSES = _group(
    "tests/losses",
    recalib__losses__focal=[
        ("a ** (1 - a / b)", "a ** (1 + a / b)"),
        ("ends, right=True)", "ends, right=False)"),
        ("self._progress + 1e-9 >= end", "self._progress + 1e-9 < end"),
    ],
    recalib__losses__dual_focal=[
        ("1 - log_p.exp() + rival.exp()", "1 - log_p.exp() - rival.exp()"),
        ("log_p >= rival", "log_p < rival"),
    ],
    recalib__losses__inverse_focal=[("(1 + log_p.exp())", "(1 - log_p.exp())")],
    recalib__losses__label_smoothing=[("(logits.shape[1] - 1)", "logits.shape[1]")],
    recalib__losses__mmce=[("** 2\n", "\n")],
    recalib__losses__mdca=[(".abs().sum()", ".square().sum()")],
    recalib__losses__avuc=[
        ("certain = h <= kappa", "certain = h >= kappa"),
        ("(1 - t) * (1 - h.tanh())", "t * (1 - h.tanh())"),
    ],
    recalib__losses__crl=[
        ("(-order * (confidence", "(order * (confidence"),
        ("torch.sign(history", "torch.abs(history"),
    ],
    recalib__losses__selective_risk=[("bins + 0.5)", "bins)")],
    recalib__losses__acls=[("return total / 2 if", "return total if")],
    recalib__losses__cpc=[("+ 2 * self.lambda2", "+ self.lambda2")],
    recalib__losses__kde_ece=[("(alpha - 1).T", "alpha.T")],
    recalib__losses__brier=[("logits.log_softmax(dim=1)", "(-logits).log_softmax(dim=1)")],
    recalib__losses__base=[("(labels < classes)", "(labels <= classes)")],
)

_DRIFT = _group(
    "tests/drift",
    recalib__drift__psi=[
        ("np.log(s / r)", "np.log(r / s)"),
        ("1 / before.sum() + 1 / now.sum()", "1 / before.sum()"),
        ("chdtri(len(before) - 1,", "chdtri(len(before),"),
    ],
    recalib__drift__calibration_test=[
        ("right = correct == 1", "right = correct == 0"),
        ("self.labels + int(reached[0]) + 1", "self.labels + int(reached[0])"),
        ("evidence >= self.threshold", "evidence >= 2 * self.threshold"),
        ("math.log2(blocks + 1)", "math.log2(blocks + 2)"),
    ],
    recalib__drift__bettors=[
        ("weights, off = q * (1 - q), correct - q", "weights, off = q * (1 - q), q - correct"),
        ("by_bin(confidences * (1 - confidences))", "by_bin(confidences)"),
        ("c * x - b * y", "c * x + b * y"),
    ],
    recalib__drift__score_test=[
        ("d = before - after", "d = after - before"),
        ("self._squares / self.labels - mean**2", "self._squares / self.labels"),
    ],
    recalib__drift__windows=[
        ("residuals = y - 2 * py + p2", "residuals = y - py + p2"),
        ("variance = n - of * share, share * (1 - share)", "variance = n - of * share, share"),
    ],
    recalib__drift__calibration_sums=[
        ('confidences, side="right")', 'confidences, side="left")'),
        ("total(p * y)", "total(p * p * y)"),
    ],
    recalib__drift__monitor=[("(math.pi * number) ** 2", "(math.pi * number)")],
    recalib__drift__monitor_state=[("(evidence.ece_low or 0.0) > objective", "False")],
)

_REGISTRY = _group(
    "tests/registry",
    recalib__registry__jobs=[
        ("attempts=_TABLE.c.attempts - 1", "attempts=_TABLE.c.attempts"),
        ("fence=_TABLE.c.fence + 1", "fence=_TABLE.c.fence"),
        ("_TABLE.c.priority.desc()", "_TABLE.c.priority.asc()"),
        ("lease.job.attempts >= lease.job.max_attempts", "lease.job.attempts > 99"),
        ("_TABLE.c.lease_expires < now()", "_TABLE.c.lease_expires > now()"),
    ],
    recalib__registry__labels=[
        ("_TABLE.c.predicted_at < end,", "_TABLE.c.predicted_at <= end,"),
        ("_TABLE.c.predicted_at < before,", "_TABLE.c.predicted_at > before,"),
    ],
    recalib__registry__aliases=[("_CHANGE.c.revision < after", "_CHANGE.c.revision > after")],
    recalib__registry__api_keys=[
        ("(_TABLE.c.expires_at > now())", "(_TABLE.c.expires_at < now())"),
        ("0 < lifetime_seconds < 1e10", "0 <= lifetime_seconds < 1e10"),
    ],
    recalib__registry__traffic=[
        ("before - before % seconds,", "before,"),
        (
            "total = _TABLE.c.predictions + statement.excluded.predictions",
            "total = statement.excluded.predictions",
        ),
    ],
    recalib__registry__audit=[
        ("_TABLE.c.at < now() - older_than_seconds", "_TABLE.c.at > now() - older_than_seconds")
    ],
    recalib__registry__signing_keys=[
        ("else newest.number + 1", "else newest.number"),
        ("_TABLE.c.number < newest.number", "_TABLE.c.number <= newest.number"),
    ],
    recalib__registry__models=[("if classes < 2:", "if classes < 1:")],
    recalib__registry__calibrators=[
        ("latest_version=models.c.latest_version + 1", "latest_version=models.c.latest_version + 2")
    ],
    recalib__registry__idempotency=[
        ("created_at < now() - older_than_seconds", "created_at > now() - older_than_seconds")
    ],
)

_ACCESS = _group(
    "tests/service/test_access.py",
    "tests/service/test_access_tokens.py",
    "tests/service/test_limits.py",
    "tests/service/test_tokens.py",
    "tests/registry",
    recalib__access=[
        (
            'scope not in self.scopes and "admin" not in self.scopes',
            'scope not in self.scopes or "admin" not in self.scopes',
        ),
        ("self.models is None or model in self.models", "self.models is None or model is not None"),
        ("time.time() < self.expires_at", "time.time() > self.expires_at"),
    ],
    service__access__limits=[
        ("until + count / rate", "until + 1 / rate"),
        ("self._row(principal)) >= limit", "self._row(principal)) > limit"),
        (".packed[:8] + bytes(8), 64)", ".packed[:16], 128)"),
    ],
    service__access__authenticator=[
        ("entry[1] <= time.time()", "entry[1] <= 0"),
        ('kind.lower() != "bearer"', 'kind != "Bearer"'),
    ],
    service__access__permissions=[
        ('"create_model": "admin"', '"create_model": "fit"'),
        ('"add_labels": "label"', '"add_labels": "predict"'),
        ('"metrics": "any"', '"metrics": "open"'),
    ],
    service__access__oidc_tokens=[
        ('claims["exp"] + self._oidc.leeway_seconds', 'claims["exp"] + 1e9'),
        ("if len(token) > ", "if -len(token) > "),
    ],
)

_PREDICTION_IDS = _group(
    "tests/test_prediction_ids.py",
    "tests/service/test_prediction_ids.py",
    recalib__prediction_ids=[
        ("if of_model != model:", "if False:"),
        ("made_at < now - lifetime_seconds", "made_at < now + lifetime_seconds"),
    ],
)

_SERVICE = _group(
    "tests/service",
    service__http__bodies=[
        (
            "if announced is not None and announced <= lowest:",
            "if announced is not None and announced < lowest:",
        ),
        ("if size > lowest:", "if False:"),
    ],
    service__idempotency=[("stored.fingerprint != fingerprint", "stored.fingerprint is None")],
    service__serving__clock_cache=[("len(self._values) > 1:", "len(self._values) > 2:")],
    service__predict__top_k=[
        ("keys[:, classes - k :]", "keys[:, :k]"),
        ("likeliest[:, ::-1]", "likeliest"),
    ],
    service__serving__json_numbers=[("if len(numbers) == count else None", "")],
    service__inference__tensors=[
        ("not size == expected == len(binary)", "not size == len(binary)")
    ],
    service__labels__observations=[
        ("if made_at < now - maturity:", "if False:"),
        ("// bucket_seconds) * bucket_seconds", "// bucket_seconds)"),
    ],
)

MUTATIONS: list[Mutation] = [
    *_MAPS,
    *_METRICS,
    *_LOSSES,
    *_DRIFT,
    *_REGISTRY,
    *_ACCESS,
    *_PREDICTION_IDS,
    *_SERVICE,
]
