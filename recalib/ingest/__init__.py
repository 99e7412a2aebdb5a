"""Labels of predictions from Kafka or from files, to a server: `recalib ingest`."""

from recalib.ingest.files import ingest_files
from recalib.ingest.kafka import Kafka, ingest_kafka
from recalib.ingest.progress import Progress

__all__ = ["Kafka", "Progress", "ingest_files", "ingest_kafka"]
