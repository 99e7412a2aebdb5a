"""Workers: order, errors, and processes that end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

import numpy as np
import psutil
import pytest
import trustme
from threadpoolctl import ThreadpoolController

from recalib.core.executors import open_workers
from recalib.errors import InputError, UnavailableError


def _square(x: int) -> int:
    if x < 0:
        raise InputError("x", found=str(x), accepted="0 or more")
    return x * x


def _die_once(item: tuple[int, str]) -> int:
    """Kill this process the first time."""
    number, marker = item
    if number == 2 and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("cluster", [None, "threads:3"])
def test_results_come_in_order(cluster: str | None) -> None:
    with open_workers(cluster) as workers:
        assert list(workers.map(_square, range(20))) == [x * x for x in range(20)]


def test_batches_have_the_results_of_single_items() -> None:
    with open_workers("threads:2") as workers:
        sizes = [workers.batch(count) for count in (1, 16, 10_000)]
        assert sizes == [1, 2, 8]
        assert list(workers.map(_square, range(21), batch=8)) == [x * x for x in range(21)]


@pytest.mark.parametrize("cluster", [None, "threads:2"])
def test_blas_has_one_thread_in_each_task(cluster: str | None) -> None:
    """Tasks that overlap do not restore the number of threads of others."""
    controller = ThreadpoolController()
    first_has_ended, second_has_begun = threading.Event(), threading.Event()

    def blas_threads(task: int) -> set[int]:
        if cluster is not None:
            if task == 0:
                second_has_begun.wait(10)
            else:
                second_has_begun.set()
                first_has_ended.wait(10)
        return {library["num_threads"] for library in controller.select(user_api="blas").info()}

    with controller.limit(limits=2, user_api="blas"):
        with open_workers(cluster) as workers:
            results = workers.map(blas_threads, [0, 1])
            numbers = [next(results)]
            first_has_ended.set()
            numbers += results
        assert numbers == [{1}, {1}]
        assert blas_threads(0) == {2}


def test_first_error_ends_the_iteration_and_cancels_the_rest() -> None:
    calls = []

    def count(x: int) -> int:
        calls.append(x)
        return _square(x)

    with open_workers() as workers, pytest.raises(InputError, match="found -1"):
        list(workers.map(count, [-1, *range(1000)]))
    assert len(calls) <= 3


def test_few_items_are_taken_ahead() -> None:
    taken = []

    def items() -> Iterator[int]:
        for x in range(100):
            taken.append(x)
            yield x

    with open_workers("threads:2") as workers:
        results = workers.map(_square, items())
        next(results)
        assert len(taken) <= 5
        results.close()  # type: ignore[attr-defined]
    assert threading.active_count() < 20


@pytest.mark.parametrize(
    "text",
    [
        "", "local", "local:0", "local:x", "threads:99999", "ssh:2", "ray:local:2",
        "tcp://", "tcp://host", "tcp://host:x", "tls://:8786", "tcp:host:99999", "ray://head:10001",
    ],
)  # fmt: skip
def test_unknown_cluster_is_rejected(text: str) -> None:
    with pytest.raises(InputError, match="cluster: found"), open_workers(text):
        pass


@pytest.mark.slow
def test_killed_process_of_a_pool_is_an_error(tmp_path: Path) -> None:
    items = [(number, str(tmp_path / "marker")) for number in range(4)]
    with (
        pytest.raises(UnavailableError, match="a worker process ended"),
        open_workers("processes:1") as workers,
    ):
        list(workers.map(_die_once, items))


@pytest.mark.slow
def test_cluster_repeats_the_work_of_a_killed_worker(tmp_path: Path) -> None:
    items = [(number, str(tmp_path / "marker")) for number in range(6)]
    with open_workers("local:2") as workers:
        assert list(workers.map(_die_once, items)) == list(range(6))
        with pytest.raises(InputError, match="found -1"):
            list(workers.map(_square, [1, -1]))
    assert (tmp_path / "marker").exists()


@pytest.mark.slow
def test_interrupt_ends_a_command_and_its_workers(tmp_path: Path) -> None:
    """Ctrl-C reaches the workers of `local:2` as well."""
    rng = np.random.default_rng(0)
    for part in range(8):
        logits = rng.normal(size=(20_000, 50))
        np.savez(tmp_path / f"{part}.npz", logits=logits, labels=rng.integers(0, 50, 20_000))
    script = (
        "import recalib.scale\n"
        "from recalib.core.executors import open_workers\n"
        "with open_workers('local:2') as workers:\n"
        "    while True:\n"
        "        recalib.scale.evaluate('.', cluster=workers)\n"
        "        print('one', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", f"if __name__ == '__main__':\n{indent(script, '    ')}"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"one\n"
    workers = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=100)
    assert process.returncode != 0
    assert not psutil.wait_procs(workers, timeout=20)[1]


@pytest.mark.slow
def test_scheduler_with_certificates(tmp_path: Path) -> None:
    """`tls://` takes the certificates of Dask's configuration, and is refused without them."""
    import dask
    from distributed import LocalCluster, Security

    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    pair = authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem
    pair.write_to_path(tmp_path / "pair.pem")
    certificates = {
        "distributed.comm.tls.ca-file": str(tmp_path / "ca.pem"),
        **{
            f"distributed.comm.tls.{role}.{kind}": str(tmp_path / "pair.pem")
            for role in ("client", "scheduler", "worker")
            for kind in ("cert", "key")
        },
    }
    with dask.config.set(certificates):
        cluster = LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            protocol="tls://",
            host="127.0.0.1",
            security=Security(require_encryption=True),
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
        )
    with cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        with dask.config.set(certificates), open_workers(address) as workers:
            assert list(workers.map(_square, [2, 3])) == [4, 9]
        with pytest.raises(InputError, match="without certificates"), open_workers(address):
            pass
