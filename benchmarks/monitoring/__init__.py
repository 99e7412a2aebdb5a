"""`python -m benchmarks.monitoring`: how often the test is wrong, how soon it is right, what of
intervals, and what a label costs; beside other detectors on the same streams.

`streams` says what is watched, `detectors` who watches, `intervals` and `cost` measure the rest.
"""
