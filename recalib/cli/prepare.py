"""`recalib prepare`: create what servers and workers need before they start."""

from __future__ import annotations

from recalib.cli import options
from recalib.cli.context import create_home, load_settings, open_registry
from recalib.reporting.terminal import show


def prepare(
    home: options.Home = None,
    database_url: options.DatabaseUrl = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Migrate the database and create the blob store.

    A server also migrates the database when it starts. A deployment with many servers runs this
    command once before them. The command is idempotent.
    """
    from recalib.registry import migrate

    settings = load_settings(home=home, database_url=database_url)
    create_home(settings.home)
    with open_registry(settings) as registry:
        registry.migrate()
        registry.blobs.prepare()
        document = {"schema": migrate.head(), "blobs": registry.blobs.url}
    text = f"the database is at {document['schema']}, blobs go to {document['blobs']}"
    show(document, text, json_output=json_output)
