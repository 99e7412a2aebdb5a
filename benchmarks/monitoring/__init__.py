"""`python -m benchmarks.monitoring`: false alarms, delays and cost of the drift test.

It is compared with other detectors on the same streams; the coverage of intervals is measured too.

Modules: `streams` (data), `detectors`, `guarantees` (false alarms and delays), `intervals`, and
`others` (cost, and labels selected by outcome). `expected` compares expected performance with CBPE.
"""
