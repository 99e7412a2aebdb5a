"""Evaluate, fit and apply over data in many files, on threads, processes or a cluster.

A source is a file, a folder, a glob, a URL or a list of these (`recalib.fragments`); a cluster is
named as in `recalib.executors`. Every function reads the data in bounded memory. Results are merged
in the order of the fragments, so they do not depend on the number of workers.

>>> import recalib.scale
>>> result = recalib.scale.evaluate("s3://bucket/validation/", cluster="tcp://scheduler:8786")
"""

from recalib.scale.apply import Applied, apply
from recalib.scale.evaluate import evaluate
from recalib.scale.fit import fit

__all__ = ["Applied", "apply", "evaluate", "fit"]
