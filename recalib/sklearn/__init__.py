"""scikit-learn estimators and scorers; needs `pip install 'recalib[sklearn]'`.

>>> from recalib.sklearn import CalibratedClassifier
>>> model = CalibratedClassifier(estimator, cv=5).fit(X, y)     # doctest: +SKIP
>>> model.predict_proba(X_test)                                 # doctest: +SKIP
>>> model.calibrator_.save("model.calib")                       # doctest: +SKIP
"""

from recalib.errors import InputError

try:
    from recalib.sklearn.calibrator import Calibrator
    from recalib.sklearn.classifier import CalibratedClassifier
    from recalib.sklearn.scorers import Scorer, make_scorer
except ModuleNotFoundError as error:
    if str(error.name).partition(".")[0] != "sklearn":
        raise
    raise InputError(
        "recalib.sklearn",
        found="no package scikit-learn",
        accepted="pip install 'recalib[sklearn]'",
    ) from None

__all__ = ["CalibratedClassifier", "Calibrator", "Scorer", "make_scorer"]
