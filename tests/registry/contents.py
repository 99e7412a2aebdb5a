"""Contents of registries for the tests of backups."""

from __future__ import annotations

from recalib.registry import Capture, Model, Registry
from recalib.stats.logit_scale import LogitScale
from tests.registry.scenes import a_lease
from tests.registry.test_labels import prediction
from tests.training.watched import Stream, a_champion
from training.monitoring_job import watch


def store_blob(registry: Registry, content: bytes) -> str:
    with registry.blobs.writer() as blob:
        blob.write(content)
        return blob.commit()


def fill_all_tables(registry: Registry) -> None:
    """Fill every table: traffic, labels, evidence, keys, jobs of every state."""
    model = a_champion(registry)
    Stream(registry, model).send(400, ago=1_000)
    watch(registry, model)
    with registry.transaction() as tx:
        digest = store_blob(registry, b"rows" * 1000)
        tx.datasets.create(model, "validation", digest, 5, 4, 4000, "text/csv", "logits", {"a": 1})
        tx.captures.add(model.id, Capture(store_blob(registry, b"kept"), 5, 4, 1e9, 1e9 + 1))
        tx.labels.add(model, [(prediction(1), 2)])
        tx.labels.add(model, [(prediction(1), 3)])  # disputed, which is a boolean
        tx.monitors.record(model, 1, "stale", "monitor", "drift", {"ece": 0.1 + 0.2})
        tx.signing_keys.rotate()
        tx.api_keys.create("web", ["predict", "label"], models=["resnet"], lifetime_seconds=1e6)
        tx.idempotency.store("key", "scope", "\x7f\N{SNOWMAN}", 201, bytes(range(256)))
        tx.logit_scales.put(model, "validation", LogitScale({3: 5}, refused=True))
        tx.edits.dataset(model, "validation", "anna", description="of May", tags=["a"])
        tx.edits.calibrator(model, 1, "anna", tags=["\N{SNOWMAN}"])
        tx.aliases.set(model, "old", 1, "anna", "")
        tx.aliases.delete(model, "old", "anna")
        tx.jobs.enqueue("fit", {"text": 'a "quoted"\nline \N{SNOWMAN}', "pi": 0.1 + 0.2})
    delivered = a_lease(registry)
    with registry.transaction() as tx:
        file = {"digest": store_blob(registry, b"weights"), "bytes": 7}
        tx.jobs.succeed(delivered, {"files": {"model.safetensors": file}})
    running = a_lease(registry)
    with registry.transaction() as tx:
        tx.jobs.checkpoint(running, {"digest": store_blob(registry, b"half a run")})


def add_dataset(registry: Registry) -> Model:
    """Add a model with a data set and a file of captured logits."""
    with registry.transaction() as tx:
        model = tx.models.create("resnet", None, 4, "anna")
        digest = store_blob(registry, b"rows" * 1000)
        tx.datasets.create(model, "validation", digest, 5, 4, 4000, "text/csv", "logits", {})
        tx.captures.add(model.id, Capture(store_blob(registry, b"kept"), 5, 4, 1e9, 1e9 + 1))
    return model
