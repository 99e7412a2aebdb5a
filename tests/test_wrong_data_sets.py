"""Wrong data sets of ten networks are not promoted, and drifted ones are not refused."""

from __future__ import annotations

import pytest

from tests.wrong_data_sets import main


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")  # some networks are trained briefly
def test_wrong_data_sets_are_not_promoted_and_right_ones_not_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main() == 0, capsys.readouterr().out
