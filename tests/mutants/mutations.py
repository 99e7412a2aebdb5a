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
    #: The test file that detects it, which runs first.
    test: str


def _file(file: str, test: str, *replacements: tuple[str, str]) -> list[Mutation]:
    """Return mutations of a file that one test file detects."""
    return [Mutation(file, old, new, test) for old, new in replacements]


MUTATIONS = [
    *_file(
        "recalib/maps/temperature.py",
        "tests/maps/test_ensemble_temperature.py",
        ('return logits / parameters["temperature"]', 'return logits * parameters["temperature"]'),
    ),
    *_file(
        "recalib/maps/class_temperature.py",
        "tests/fitting/test_fit.py",
        ('return logits / parameters["temperature"]', 'return logits * parameters["temperature"]'),
    ),
    *_file(
        "recalib/maps/vector.py",
        "tests/fitting/test_linear_nll.py",
        ('parameters["scale"] + parameters["bias"]', 'parameters["scale"] - parameters["bias"]'),
    ),
    *_file(
        "recalib/maps/matrix.py",
        "tests/fitting/test_linear_nll.py",
        (' + parameters["bias"]', ""),
    ),
    *_file(
        "recalib/maps/structured_matrix.py",
        "tests/fitting/test_linear_nll.py",
        ("share * (classes - 1) * self.off_diagonal", "share * classes * self.off_diagonal"),
    ),
    *_file(
        "recalib/maps/structured_vector.py",
        "tests/fitting/test_linear_nll.py",
        ("numbers=2 * classes", "numbers=classes"),
    ),
    *_file(
        "recalib/maps/spline.py",
        "tests/fitting/test_spline.py",
        ("bump = (1.0 - t) * t", "bump = (1.0 + t) * t"),
        ("rise - m1 * ", "rise + m1 * "),
    ),
    *_file(
        "recalib/maps/beta.py",
        "tests/fitting/test_beta.py",
        ('parameters["high"] - parameters["bias"]', 'parameters["high"] + parameters["bias"]'),
    ),
    *_file(
        "recalib/maps/ensemble_temperature.py",
        "tests/maps/test_ensemble_temperature.py",
        ("return logits * slope", "return logits / slope"),
    ),
    *_file(
        "recalib/maps/parameterized_temperature.py",
        "tests/fitting/test_parameterized_temperature.py",
        ("return temperature * ops.exp(change)", "return temperature + ops.exp(change)"),
    ),
    *_file(
        "recalib/maps/ridge.py",
        "tests/fitting/test_fit.py",
        ("((diagonal - diagonal.mean()) ** 2)", "(diagonal**2)"),
    ),
    *_file(
        "recalib/maps/ridge.py",
        "tests/fitting/test_linear_nll.py",
        ("off_diagonal / (classes * (classes - 1))", "off_diagonal / classes"),
    ),
    *_file(
        "recalib/maps/dirichlet.py",
        "tests/fitting/test_linear_nll.py",
        ("strength / classes**2", "strength / classes"),
    ),
    *_file(
        "recalib/maps/top_label.py",
        "tests/maps/test_top_label.py",
        ("largest - second + level", "largest - second - level"),
    ),
    *_file(
        "recalib/maps/base.py",
        "tests/maps/test_contract.py",
        ('"log" and not (value > 0)', '"log" and not (value >= 0)'),
    ),
    *_file(
        "recalib/objectives/hard_binned_ece.py",
        "tests/fitting/test_search.py",
        ("* self.bins).astype(np.int64) - 1", "* self.bins).astype(np.int64)"),
    ),
    *_file(
        "recalib/objectives/label_smoothing.py",
        "tests/objectives/test_objectives.py",
        ("Interval(ge=0, lt=1)", "Interval(ge=0, le=1)"),
    ),
    *_file(
        "recalib/stats/bin_indices.py",
        "tests/metrics/test_definitions.py",
        ("values <= lower[", "values < lower["),
    ),
    *_file(
        "recalib/stats/sums.py",
        "tests/metrics/test_definitions.py",
        ("squares, right, right_p)", "squares, wrong, right_p)"),
    ),
    *_file(
        "recalib/stats/class_bins.py",
        "tests/metrics/test_definitions.py",
        ("wide.ravel()[at] = 0", "pass"),
    ),
    *_file(
        "recalib/stats/sums.py",
        "tests/metrics/test_properties.py",
        (
            "getattr(self, name) + getattr(other, name)",
            "getattr(self, name) - getattr(other, name)",
        ),
    ),
    *_file(
        "recalib/core/array_bytes.py",
        "tests/test_states.py",
        ("if digest != array_digest(text, arrays):", "if False:"),
        ("if text not in known:", "if False:"),
    ),
    *_file(
        "recalib/metrics/confidence_groups.py",
        "tests/metrics/test_ece_sweep.py",
        ("before + np.minimum(part, s)", "before + part * s / n"),
    ),
    *_file(
        "recalib/stats/sums.py",
        "tests/metrics/test_calibration_gaps.py",
        ("self.correct - 2 * self", "self.correct - self"),
    ),
    *_file(
        "recalib/metrics/ece_debiased.py",
        "tests/metrics/test_ece_debiased.py",
        ("residual_squares()) / (n - 1)", "residual_squares()) / n"),
    ),
    *_file(
        "recalib/metrics/classwise_ce.py",
        "tests/metrics/test_classwise_ce.py",
        ("(self.sums.weight - 1)", "self.sums.weight"),
        ("starts[:, b] = total > 1", "starts[:, b] = total > 0"),
    ),
    *_file(
        "recalib/metrics/classwise_equal_mass.py",
        "tests/metrics/test_classwise_equal_mass.py",
        ("total / (rows * classes)", "total / rows"),
    ),
    *_file(
        "recalib/metrics/confidence.py",
        "tests/metrics/test_edges.py",
        ("p > p.dtype.type(", "p >= p.dtype.type("),
    ),
    *_file(
        "recalib/metrics/kernels.py",
        "tests/metrics/test_ece_kde.py",
        ("alpha = p / bandwidth + 1", "alpha = p / bandwidth"),
    ),
    *_file(
        "recalib/metrics/calibration_gaps.py",
        "tests/metrics/test_brier_decomposition.py",
        ("lambda gaps_sb: gaps_sb**2 @", "lambda gaps_sb: np.abs(gaps_sb) @"),
    ),
    *_file(
        "recalib/metrics/aurc.py",
        "tests/metrics/test_aurc.py",
        ("np.diff(u - scipy", "np.diff(u + scipy"),
        ("xlog1py(1 - share, -share)", "xlog1py(share, -share)"),
    ),
    *_file(
        "recalib/metrics/ks_error.py",
        "tests/metrics/test_ks_error.py",
        ("return float(largest) / len(p)", "return float(largest)"),
    ),
    *_file(
        "recalib/metrics/ks_error.py",
        "tests/metrics/test_streaming.py",
        ("(start + rises).max()", "start.max()"),
    ),
    *_file(
        "recalib/metrics/equal_mass.py",
        "tests/metrics/test_equal_mass.py",
        ("** (1 / order))", "** order)"),
    ),
    *_file(
        "recalib/metrics/ece_sweep.py",
        "tests/metrics/test_ece_sweep.py",
        ("np.diff(accuracies) >= 0", "np.diff(accuracies) <= 0"),
    ),
    *_file(
        "recalib/metrics/smooth_ece.py",
        "tests/metrics/test_smooth_ece.py",
        ("weights * (predictions.correct - p)", "weights * (predictions.correct + p)"),
        ("-x * (x - 1) * (x - 2) / 6", "x * (x - 1) * (x - 2) / 6"),
    ),
    *_file(
        "recalib/metrics/roc_auc.py",
        "tests/metrics/test_binary.py",
        ("- shares / 2", "- shares"),
        ("np.maximum(sizes - 1, 1)", "sizes"),
    ),
    *_file(
        "recalib/metrics/top5_accuracy.py",
        "tests/metrics/test_edges.py",
        ("before = scores > label_scores", "before = scores >= label_scores"),
    ),
    *_file(
        "recalib/metrics/mean_metrics.py",
        "tests/metrics/test_intervals.py",
        ("* rows / (rows - 1)", ""),
        ("centre = (k + z2 / 2)", "centre = (k + z2)"),
    ),
    *_file(
        "recalib/metrics/mean_metrics.py",
        "tests/metrics/test_weights.py",
        ("mean**2 * v, 0.0) / w**2", "mean**2 * v, 0.0) / w"),
    ),
    *_file(
        "recalib/metrics/calibration_gaps.py",
        "tests/metrics/test_weights.py",
        ("(v.correct - v.confidence)", "(w.correct - v.confidence)"),
    ),
    *_file(
        "recalib/metrics/classwise_loss_std.py",
        "tests/metrics/test_definitions.py",
        ("np.std(", "np.var("),
    ),
    *_file(
        "recalib/metrics/calibration_gaps.py",
        "tests/metrics/test_calibration_gaps.py",
        ("return self.accuracies - self.confidences", "return self.confidences - self.accuracies"),
    ),
    *_file(
        "recalib/metrics/calibration_gaps.py",
        "tests/metrics/test_intervals.py",
        ("+ gaps**2 * v.weight", "- gaps**2 * v.weight"),
    ),
    *_file(
        "recalib/metrics/ece_label_binned.py",
        "tests/metrics/test_calibration_gaps.py",
        ("- 2 * sums[below]", "- sums[below]"),
    ),
    *_file(
        "recalib/losses/focal.py",
        "tests/losses/test_gradients.py",
        ("a ** (1 - a / b)", "a ** (1 + a / b)"),
        ("torch.where(p < end,", "torch.where(p <= end,"),
        ("self._progress + 1e-9 >= end", "self._progress + 1e-9 < end"),
    ),
    *_file(
        "recalib/losses/dual_focal.py",
        "tests/losses/test_losses.py",
        ("1 - log_p.exp() + rival.exp()", "1 - log_p.exp() - rival.exp()"),
        ("log_p >= rival", "log_p < rival"),
    ),
    *_file(
        "recalib/losses/inverse_focal.py",
        "tests/losses/test_gradients.py",
        ("(1 + log_p.exp())", "(1 - log_p.exp())"),
    ),
    *_file(
        "recalib/losses/label_smoothing.py",
        "tests/losses/test_gradients.py",
        ("(~masked).sum(dim=1) - 1", "(~masked).sum(dim=1)"),
    ),
    *_file(
        "recalib/losses/mmce.py",
        "tests/losses/test_losses.py",
        ("** 2\n", "\n"),
    ),
    *_file(
        "recalib/losses/mdca.py",
        "tests/losses/test_gradients.py",
        (".abs().sum()", ".square().sum()"),
    ),
    *_file(
        "recalib/losses/avuc.py",
        "tests/losses/test_gradients.py",
        ("certain = h <= kappa", "certain = h >= kappa"),
        ("functional.logsigmoid(-log_odds)", "functional.logsigmoid(log_odds / 2)"),
    ),
    *_file(
        "recalib/losses/crl.py",
        "tests/losses/test_crl.py",
        ("(-order * (confidence", "(order * (confidence"),
        ("torch.sign(history", "torch.abs(history"),
    ),
    *_file(
        "recalib/losses/selective_risk.py",
        "tests/losses/test_losses.py",
        ("bins + 0.5)", "bins)"),
    ),
    *_file(
        "recalib/losses/acls.py",
        "tests/losses/test_gradients.py",
        ("return total / 2 if", "return total if"),
    ),
    *_file(
        "recalib/losses/cpc.py",
        "tests/losses/test_gradients.py",
        ("+ 2 * self.lambda2", "+ self.lambda2"),
    ),
    *_file(
        "recalib/losses/kde_ece.py",
        "tests/losses/test_losses.py",
        ("(alpha - 1).T - log_beta", "(alpha - 1).T + log_beta"),
    ),
    *_file(
        "recalib/losses/brier.py",
        "tests/losses/test_losses.py",
        ("logits.log_softmax(dim=1)", "(-logits).log_softmax(dim=1)"),
    ),
    *_file(
        "recalib/losses/base.py",
        "tests/losses/test_losses.py",
        ("(labels < classes)", "(labels <= classes)"),
    ),
    *_file(
        "recalib/losses/base.py",
        "tests/losses/test_batches.py",
        ("losses.sum() / torch.where(total > 0, total, 1.0)", "losses.mean()"),
        ("log_p.exp() * torch.where(is_masked(log_p), 0.0, log_p)", "log_p.exp() * log_p"),
    ),
    *_file(
        "recalib/drift/psi.py",
        "tests/drift/test_label_free_signals.py",
        ("np.log(s / r)", "np.log(r / s)"),
        ("1 / before.sum() + 1 / now.sum()", "1 / before.sum()"),
        ("chdtri(len(before) - 1,", "chdtri(len(before),"),
    ),
    *_file(
        "recalib/drift/calibration_test.py",
        "tests/drift/test_calibration_test.py",
        ("right = correct == 1", "right = correct == 0"),
        ("self.labels + int(reached[0]) + 1", "self.labels + int(reached[0])"),
        ("evidence >= self.threshold", "evidence >= 2 * self.threshold"),
        ("math.log2(blocks + 1)", "math.log2(blocks + 2)"),
    ),
    *_file(
        "recalib/drift/bettors.py",
        "tests/drift/test_calibration_test.py",
        ("onsets * rates[:, None]", "onsets"),
        ("[np.ones((1, after.shape[1])), after[:-1]]", "[after[:1], after[:-1]]"),
        ("confidences * (1 - confidences), correct", "confidences, correct"),
        ("min(1.0, self.max_odds", "max(1.0, self.max_odds"),
    ),
    *_file(
        "recalib/drift/target.py",
        "tests/replay/test_positive_class.py",
        ("predicted == 1, wide", "predicted == 0, wide"),
        ("probabilities[:, 1] if", "probabilities[:, 0] if"),
    ),
    *_file(
        "recalib/drift/score_test.py",
        "tests/drift/test_score_test.py",
        ("d = before - after", "d = after - before"),
        ("self._squares / self.labels - mean**2", "self._squares / self.labels"),
    ),
    *_file(
        "recalib/drift/windows.py",
        "tests/drift/test_windows.py",
        ("squared.residual_squares()", "squared.confidence_squared"),
    ),
    *_file(
        "recalib/drift/coverage.py",
        "tests/drift/test_windows.py",
        ("variance = n - of * share, share * (1 - share)", "variance = n - of * share, share"),
    ),
    *_file(
        "recalib/drift/selection.py",
        "tests/drift/test_selection.py",
        ("accuracies / scale, accuracies * rates", "accuracies / scale, accuracies * rates**2"),
        ("np.maximum(-np.minimum(below, above), 0)", "np.maximum(-np.maximum(below, above), 0)"),
        ("2 * ratio * (ratio - 1)", "ratio * (ratio - 1)"),
    ),
    *_file(
        "recalib/drift/silence.py",
        "tests/drift/test_silence.py",
        ("shares * means + (1 - shares) * high,", "shares * means + (1 - shares) * low,"),
    ),
    *_file(
        "recalib/drift/calibration_sums.py",
        "tests/drift/test_calibration_sums.py",
        ('confidences, side="right")', 'confidences, side="left")'),
        ("moments(where, p, y == 1", "moments(where, p, y == 0"),
    ),
    *_file(
        "recalib/drift/monitor.py",
        "tests/drift/test_monitor.py",
        ("(math.pi * number) ** 2", "(math.pi * number)"),
    ),
    *_file(
        "recalib/drift/class_monitor.py",
        "tests/drift/test_class_monitor.py",
        ("(rows.labels[index] == k)", "(rows.labels[index] != k)"),
        ("float(np.logaddexp.reduce(values)) - math", "float(np.logaddexp.reduce(values)) + math"),
    ),
    *_file(
        "recalib/drift/class_rows.py",
        "tests/drift/test_class_monitor.py",
        ("is_stored &= watched !=", "is_stored &= watched =="),
    ),
    *_file(
        "recalib/drift/class_traffic.py",
        "tests/drift/test_class_traffic.py",
        ("np.append(counts, max(total - counts.sum(), 0))", "np.append(counts, 0)"),
        ("self.max_errors[where].sum()", "self.max_errors[where].max(initial=0)"),
    ),
    *_file(
        "recalib/drift/windows.py",
        "tests/drift/test_class_traffic.py",
        ("max(low - share, 0.0)", "low"),
        ("min(high + error, 1.0)", "min(high + share / 2, 1.0)"),
    ),
    *_file(
        "recalib/replay/segment_search.py",
        "tests/replay/test_segment_search.py",
        ("alpha / max(tried, 1)", "alpha"),
        ("np.maximum(low, -high) > tolerance", "np.maximum(low, -high) > 0"),
    ),
    *_file(
        "recalib/drift/monitor_state.py",
        "tests/drift/test_monitor.py",
        ("enough and (evidence.error_low or 0.0) > objective", "False"),
    ),
    *_file(
        "recalib/registry/jobs.py",
        "tests/registry/test_jobs.py",
        ("attempts=_TABLE.c.attempts - 1", "attempts=_TABLE.c.attempts"),
        ("fence=_TABLE.c.fence + 1", "fence=_TABLE.c.fence"),
        ("_TABLE.c.priority.desc()", "_TABLE.c.priority.asc()"),
        ("lease.job.attempts >= lease.job.max_attempts", "lease.job.attempts > 99"),
        ("_TABLE.c.lease_expires < now()", "_TABLE.c.lease_expires > now()"),
    ),
    *_file(
        "recalib/registry/labels.py",
        "tests/registry/test_labels.py",
        ("_TABLE.c.predicted_at < end,", "_TABLE.c.predicted_at <= end,"),
        ("_TABLE.c.predicted_at < before,", "_TABLE.c.predicted_at > before,"),
    ),
    *_file(
        "recalib/registry/base.py",
        "tests/registry/test_aliases.py",
        ("column < after if newest_first", "column > after if newest_first"),
    ),
    *_file(
        "recalib/registry/api_keys.py",
        "tests/service/test_access.py",
        ("(_TABLE.c.expires_at > now())", "(_TABLE.c.expires_at < now())"),
    ),
    *_file(
        "recalib/registry/api_keys.py",
        "tests/cli/test_keys.py",
        ("0 < lifetime_seconds < 1e10", "0 <= lifetime_seconds < 1e10"),
    ),
    *_file(
        "recalib/registry/traffic.py",
        "tests/registry/test_traffic.py",
        ("time - time % seconds for version", "time for version"),
        ("case(times, value=self._table.c.version, else_=rest) if times else rest", "rest"),
        (
            "column + statement.excluded[column.name]",
            "statement.excluded[column.name]",
        ),
    ),
    *_file(
        "recalib/registry/audit.py",
        "tests/service/test_audit.py",
        ("_TABLE.c.at < now() - older_than_seconds", "_TABLE.c.at > now() - older_than_seconds"),
    ),
    *_file(
        "recalib/registry/signing_keys.py",
        "tests/registry/test_signing_keys.py",
        ("else newest.number + 1", "else newest.number"),
        ("_TABLE.c.number < newest.number", "_TABLE.c.number <= newest.number"),
    ),
    *_file(
        "recalib/registry/models.py",
        "tests/registry/test_models.py",
        ("if classes < 2:", "if classes < 1:"),
    ),
    *_file(
        "recalib/registry/calibrators.py",
        "tests/registry/test_calibrators.py",
        (
            "latest_version=models.c.latest_version + 1",
            "latest_version=models.c.latest_version + 2",
        ),
    ),
    *_file(
        "recalib/registry/idempotency.py",
        "tests/registry/test_idempotency.py",
        ("created_at < now() - older_than_seconds", "created_at > now() - older_than_seconds"),
    ),
    *_file(
        "recalib/core/access.py",
        "tests/service/test_access.py",
        (
            'scope not in self.scopes and "admin" not in self.scopes',
            'scope not in self.scopes or "admin" not in self.scopes',
        ),
        ("self.models is None or model in self.models", "self.models is None or model is not None"),
    ),
    *_file(
        "recalib/core/access.py",
        "tests/cli/test_keys.py",
        ("time.time() < self.expires_at", "time.time() > self.expires_at"),
    ),
    *_file(
        "service/access/limits.py",
        "tests/service/test_limits.py",
        ("until + count / rate", "until + 1 / rate"),
        ("self._row(principal)) >= limit", "self._row(principal)) > limit"),
        (".packed[:8] + bytes(8), 64)", ".packed[:16], 128)"),
    ),
    *_file(
        "service/access/authenticator.py",
        "tests/service/test_access.py",
        ("entry[1] <= time.time()", "entry[1] <= 0"),
        ('kind.lower() != "bearer"', 'kind != "Bearer"'),
    ),
    *_file(
        "service/models/rest.py",
        "tests/service/test_access.py",
        ('"POST", "", "admin"', '"POST", "", "fit"'),
    ),
    *_file(
        "service/labels/rest.py",
        "tests/service/test_access.py",
        ('    "label",\n', '    "predict",\n'),
    ),
    *_file(
        "service/health/rest.py",
        "tests/service/test_access.py",
        ('"/metrics", "any"', '"/metrics", "open"'),
    ),
    *_file(
        "service/arguments.py",
        "tests/service/test_same_refusals.py",
        ("self._model.model_validate(values)", "self._model.model_construct(**values)"),
    ),
    *_file(
        "service/access/oidc_tokens.py",
        "tests/service/test_tokens.py",
        ('claims["exp"] + self.oidc.leeway_seconds', 'claims["exp"] + 1e9'),
        ("if len(token) > ", "if -len(token) > "),
    ),
    *_file(
        "recalib/core/prediction_ids.py",
        "tests/test_prediction_ids.py",
        ("if of_model != model:", "if False:"),
        ("made_at < now - lifetime_seconds", "made_at < now + lifetime_seconds"),
    ),
    *_file(
        "service/http/bodies.py",
        "tests/service/test_bad_input.py",
        ("self.announced > self.lowest:", "self.announced >= self.lowest:"),
        ("if self._size > self.lowest:", "if False:"),
    ),
    *_file(
        "service/idempotency.py",
        "tests/service/test_idempotency.py",
        ("stored.fingerprint != fingerprint", "stored.fingerprint is None"),
    ),
    *_file(
        "service/serving/clock_cache.py",
        "tests/service/test_caches.py",
        ("len(self._values) > 1:", "len(self._values) > 2:"),
    ),
    *_file(
        "service/predict/top_k.py",
        "tests/service/test_formats.py",
        ("keys[:, classes - k :]", "keys[:, :k]"),
        ("likeliest[:, ::-1]", "likeliest"),
    ),
    *_file(
        "service/serving/json_numbers.py",
        "tests/service/test_formats.py",
        (' or text.count(b"[") != 1 + len(array):', ":"),
    ),
    *_file(
        "service/inference/tensors.py",
        "tests/service/test_inference.py",
        ("not size == expected == len(binary)", "not size == len(binary)"),
    ),
    *_file(
        "service/labels/observations.py",
        "tests/service/test_observations.py",
        ("if made_at < now - maturity:", "if False:"),
    ),
    *_file(
        "recalib/core/time_buckets.py",
        "tests/service/test_traffic.py",
        ("math.ceil(cohort))", "0)"),
    ),
    *_file(
        "recalib/fitting/row_digests.py",
        "tests/fitting/test_row_digests.py",
        ('values[start : start + step], "<f4"', 'values[start : start + step], "<f8"'),
        ("block + np.float32(0)", "block * np.float32(1)"),
    ),
    *_file(
        "recalib/fitting/validation_error.py",
        "tests/fitting/test_validation_error.py",
        ("error.low > tolerance", "error.value > tolerance"),
    ),
    *_file(
        "training/champion_comparison.py",
        "tests/training/test_champion_comparison.py",
        ("2 * unseen >= total", "unseen >= 0"),
        ("== digests, places, -1)", "== digests, places, places)"),
    ),
    *_file(
        "training/publish_job.py",
        "tests/training/test_publish_job.py",
        ("seen |= of_champion", "seen &= of_champion"),
        ("unseen < MIN_UNSEEN", "unseen < 1"),
    ),
    *_file(
        "service/calibrators/parameter_file.py",
        "tests/service/test_uploaded_calibrators.py",
        ("not (is_legal and error <= _TOLERANCE)", "not is_legal and error > _TOLERANCE"),
        ("confidences=unmeasured_histogram(card),", "confidences=card.confidences,"),
    ),
    *_file(
        "training/refit_map.py",
        "tests/training/test_refit_map.py",
        ('test.verdict == "no better"', 'test.verdict != "better"'),
    ),
    *_file(
        "recalib/torch.py",
        "tests/test_torch_modules.py",
        ("torch.promote_types(values.dtype, torch.float32)", "values.dtype"),
        ("if converted.dtype in _NARROW", "if converted.dtype not in _NARROW"),
        ("torch.autocast(kind, enabled=False)", "torch.autocast(kind, enabled=True)"),
        ("min=SMALLEST_PROBABILITY", "min=1e-3"),
    ),
    *_file(
        "recalib/ops/torch_ops.py",
        "tests/test_torch_modules.py",
        ("torch.where(masked, 0.0, x) * factors", "x * factors"),
        (
            "dtype=self.dtype, device=self.device)\n\n    def softmax",
            "dtype=self.dtype)\n\n    def softmax",
        ),
        ("torch.as_tensor(x, dtype=self.dtype, device=self.device)", "torch.as_tensor(x)"),
    ),
    *_file(
        "recalib/torchmetrics.py",
        "tests/test_torchmetrics.py",
        ('f"sums_of_{self._metric.state_kind}"', '"sums"'),
        ("total + _sums(state)", "_sums(state)"),
    ),
    *_file(
        "recalib/transformers.py",
        "tests/test_transformers.py",
        ("np.argsort(-probabilities", "np.argsort(probabilities"),
        ("y != ignored_label", "y != None"),
    ),
    *_file(
        "recalib/llm.py",
        "tests/test_llm.py",
        ("np.logaddexp(logits[k], value)", "max(logits[k], value)"),
        ("return min([math.log", "return max([math.log"),
        ("return min(max(probability, limit), 1 - limit)", "return probability"),
        ("or _SUFFIX.match(text[match.end() :])", "or None"),
        ("if value > _NOT_RETURNED", "if value > -np.inf"),
        ("np.isin(question, ", "np.isin(np.arange(len(values)), "),
    ),
    *_file(
        "recalib/fitting/cross_validation.py",
        "tests/fitting/test_groups.py",
        ("group_sums(groups, by_row)", "by_row"),
    ),
]
