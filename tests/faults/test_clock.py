"""Servers whose clock is an hour ahead or behind.

Leases and jobs use the database's clock: `tests/registry/test_clock.py`, and
`test_killed_worker.py` for a database whose clock was set back.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from recalib.core.prediction_ids import Prediction, read_ids
from tests.end_to_end.programs import Programs, Server
from tests.faults.ledger import MODEL, open_ledger
from tests.faults.wrong_clock import command_ahead
from tests.fitting.conftest import draw

pytestmark = pytest.mark.slow

_ROWS = draw(20, 4, 3.0)[0]


# Clocks of both databases: `tests/registry/test_clock.py`.
@pytest.mark.parametrize("empty_database_url", ["postgresql"], indirect=True)
def test_servers_with_wrong_clocks(programs: Programs, empty_database_url: str) -> None:
    """Labels are refused with a reason until the clock has caught up; all else works."""
    settings = {"database_url": empty_database_url, "flush_seconds": 0.1}
    with open_ledger(empty_database_url, programs) as ledger:
        programs.command = partial(command_ahead, 3600)
        with programs.serve("--job-workers", 0, **settings) as server:
            early = server.calibrate(_ROWS)["prediction_ids"]
            _check_too_early(server, early)
            server.promote(2, model=MODEL)
            assert server.calibrate(_ROWS)["calibrator"]["version"] == 2
            assert server.stop() == 0
        with ledger.registry.reading() as tx:
            keys, model = tx.signing_keys.all(), tx.models.get(MODEL)
        later = read_ids(
            early, keys, model=model.id, now=time.time() + 3600, lifetime_seconds=86400
        )
        assert all(isinstance(prediction, Prediction) for prediction in later)

        # The clock is now behind: predictions look old, and labels for them are accepted.
        programs.command = partial(command_ahead, -3600)
        with programs.serve("--job-workers", 0, **settings) as server:
            server.promote(1, model=MODEL)
            with ledger.traffic(server, fits=True):
                ledger.until_acknowledged(3)
            ledger.predicted += 2 * len(_ROWS)  # of the one before
            ledger.check(server)
            _check_too_early(server, early)
            assert server.stop() == 0
            assert "Traceback" not in server.log()


def _check_too_early(server: Server, ids: list[str]) -> None:
    batch = [{"prediction_id": prediction_id, "label": 1} for prediction_id in ids]
    answer: dict[str, Any] = server.ask("POST", f"/v1/models/{MODEL}/labels", json=batch)
    assert answer["counts"]["invalid"] == len(ids)
    assert "the clocks of server and database disagree" in answer["items"][0]["reason"]
