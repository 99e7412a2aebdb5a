"""scikit-learn estimators and scorers; needs `pip install 'recalib[sklearn]'`.

>>> from recalib.sklearn import CalibratedClassifier
>>> model = CalibratedClassifier(estimator, cv=5).fit(X, y)     # doctest: +SKIP
>>> model.predict_proba(X_test)                                 # doctest: +SKIP
>>> model.calibrator_.save("model.calib")                       # doctest: +SKIP
"""

from recalib.core.packages import optional_packages

with optional_packages("recalib.sklearn"):
    from recalib.sklearn.calibrator import Calibrator
    from recalib.sklearn.classifier import CalibratedClassifier
    from recalib.sklearn.scorers import Scorer, make_scorer

__all__ = ["CalibratedClassifier", "Calibrator", "Scorer", "make_scorer"]
