"""What several test folders share."""

from __future__ import annotations

import gc
import importlib
import itertools
import os
import signal
from functools import partial

# Before torch counts the cores: each worker of pytest-xdist gets one core.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The `Host` of Starlette's test client.
os.environ.setdefault("RECALIB_ALLOWED_HOSTS", "testserver")

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from recalib.metrics.evaluate import measure_all

pytest_plugins = ["tests.registry.fixtures"]

# Shared, noisy machines: a deadline would make slow minutes look like bugs.
# The same examples each time. HYPOTHESIS_PROFILE=deep looks at others, and at forty times as many
# where a test does not say how many itself.
settings.register_profile(
    "recalib",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
# `make test` looks at fewer, unless a test says how many itself.
settings.register_profile("short", settings.get_profile("recalib"), max_examples=15)
settings.register_profile(
    "deep", settings.get_profile("recalib"), derandomize=False, max_examples=2000
)


def pytest_configure(config: pytest.Config) -> None:
    """Load the profile of hypothesis; let programs that tests start receive Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a job in the background of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)
    default = "short" if config.option.markexpr == "not slow" else "recalib"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", default))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print a failure at once: a run that something ends has no summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = crash.message if crash else report.longreprtext
        print(f"\nFAILED {report.nodeid} ({report.when}): {reason[:2000]}", flush=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Any:
    """Ignore modules and collected tests in garbage collection: they live until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # The default of 700 objects costs 9% of the processor time.
        gc.set_threshold(20_000, 20, 100)
        gc.enable()


#: Files that run in one process, by the start of their names.
_GROUPS = {
    "a server": ("tests/client/",),
    "servers": ("tests/hostile/test_browsers", "tests/hostile/test_heads"),
    # Altair, and the bundle of Vega's scripts, which takes 3 s.
    "pictures": (
        "tests/reporting/",
        "tests/cli/test_evaluate",
        "tests/cli/test_replay",
        "tests/cli/test_report",
        "tests/cli/test_train",
        "tests/test_api",
        "tests/test_inputs",
    ),
}


#: Files whose tests mostly wait for programs, by the start of their names.
_WAITING = (
    "tests/clients/",
    "tests/deploy/test_system",
    "tests/end_to_end/",
    "tests/faults/",
    "tests/training/engine/test_tuning",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run all tests of a file in one process, so that its fixtures are made once.

    The same for the files of `_GROUPS`. `--dist loadgroup` of pytest-xdist 3.8 does nothing with
    pytest 9.2: it sets an attribute that is no longer read.

    Every fourth file is one of `_WAITING`, as long as there are any. They have few tests, and
    pytest-xdist would run all of them at the end, when no other tests use the processors meanwhile.
    """
    from xdist.scheduler import LoadScopeScheduling

    turns = itertools.count()

    class Scheduling(LoadScopeScheduling):
        def _assign_work_unit(self, node: Any) -> None:
            waiting = (name for name in self.workqueue if name.startswith(_WAITING))
            if next(turns) % 4 == 0 and (name := next(waiting, None)):
                self.workqueue.move_to_end(name, last=False)
            super()._assign_work_unit(node)

        def _split_scope(self, nodeid: str) -> str:
            for group, starts in _GROUPS.items():
                if nodeid.startswith(starts):
                    return group
            return nodeid.partition("::")[0]

    return Scheduling(config, log)


@pytest.fixture(autouse=True)
def short_cards(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cards of calibrators have two metrics, unless a test uses `full_cards`.

    All of them, with intervals, are nine tenths of a small fit's time; tests/metrics tests them.
    """
    if "full_cards" not in request.fixturenames:
        fitting = importlib.import_module("recalib.fitting.fit_card")
        monkeypatch.setattr(fitting, "measure_all", partial(measure_all, metrics=("nll", "ece")))


@pytest.fixture(autouse=True)
def few_folds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cross-validation has 5 folds, unless a test uses `all_folds`: 20 take four times as long."""
    if "all_folds" not in request.fixturenames:
        folds = importlib.import_module("recalib.fitting.cross_validation")
        monkeypatch.setattr(folds, "_MAX_FOLDS", 5)


@pytest.fixture
def all_folds() -> None:
    """Cross-validation with the number of folds that users get."""


@pytest.fixture
def full_cards() -> None:
    """Cards with all metrics."""


_ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real logits and images, or a skip that says where it was looked for."""
    folder = Path(os.environ.get("RECALIB_DATA", _ROOT.parent / "shared" / "data"))
    if not (folder / "resnet110-cifar10-val.npz").is_file():
        pytest.skip(f"no real data at {folder} (set RECALIB_DATA)")
    return folder
