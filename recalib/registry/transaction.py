"""A transaction, with the queries of each table as an attribute."""

from __future__ import annotations

from sqlalchemy import Connection

from recalib.registry.adaptations import Adaptations
from recalib.registry.aliases import Aliases
from recalib.registry.api_keys import ApiKeys
from recalib.registry.audit import Audit
from recalib.registry.blob_references import BlobReferences
from recalib.registry.calibrators import Calibrators
from recalib.registry.candidates import Candidates
from recalib.registry.captures import Captures
from recalib.registry.clock import read_clock
from recalib.registry.datasets import Datasets
from recalib.registry.deletions import Deletions
from recalib.registry.edits import Edits
from recalib.registry.events import Events
from recalib.registry.health_checks import HealthChecks
from recalib.registry.idempotency import Idempotency
from recalib.registry.jobs import Jobs
from recalib.registry.labels import Labels
from recalib.registry.logit_scales import LogitScales
from recalib.registry.models import Models
from recalib.registry.monitors import Monitors
from recalib.registry.overview import Overview
from recalib.registry.sessions import Sessions
from recalib.registry.signing_keys import SigningKeys
from recalib.registry.traffic import Traffic, TrafficByClass
from recalib.registry.webhooks import Webhooks


class Transaction:
    """The result of `Registry.transaction` and `Registry.reading`; valid inside their block only.

    Writers lock rows in this order, so that they cannot deadlock: job, blob, model, alias revision,
    event sequence; and a webhook before its deliveries.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        Events.start(connection)
        self.models = Models(connection)
        self.overview = Overview(connection)
        self.datasets = Datasets(connection)
        self.calibrators = Calibrators(connection)
        self.aliases = Aliases(connection)
        self.deletions = Deletions(connection)
        self.edits = Edits(connection)
        self.jobs = Jobs(connection)
        self.labels = Labels(connection)
        self.adaptations = Adaptations(connection)
        self.api_keys = ApiKeys(connection)
        self.sessions = Sessions(connection)
        self.audit = Audit(connection)
        self.events = Events(connection)
        self.webhooks = Webhooks(connection)
        self.signing_keys = SigningKeys(connection)
        self.traffic = Traffic(connection)
        self.logit_scales = LogitScales(connection)
        self.class_traffic = TrafficByClass(connection)
        self.monitors = Monitors(connection)
        self.captures = Captures(connection)
        self.candidates = Candidates(connection)
        self.idempotency = Idempotency(connection)
        self.blob_references = BlobReferences(connection)
        self.health = HealthChecks(connection)

    def clock(self) -> float:
        """Return the time of the database, in seconds since 1970-01-01 UTC."""
        return read_clock(self.connection)
