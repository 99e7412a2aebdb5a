"""`recalib prepare`: what has to be there before servers and workers start."""

from __future__ import annotations

from recalib.cli.arguments import Json
from recalib.cli.operate import Database, Home, make_home, opened, settings_of
from recalib.terminal import print_json, say

__all__ = ["prepare"]


def prepare(
    home: Home = None,
    database_url: Database = None,
    json_output: Json = False,
) -> None:
    """Bring the database up to date and make the folder or bucket for blobs.

    Servers bring the database up to date as well when they start; a deployment that has many does
    it once, before any of them. Done again, nothing happens.
    """
    from recalib.registry import migrate

    settings = settings_of(home=home, database_url=database_url)
    make_home(settings.home)
    with opened(settings) as registry:
        registry.migrate()
        registry.blobs.prepare()
        found = {"schema": migrate.head(), "blobs": registry.blobs.url}
    if json_output:
        print_json(found)
    else:
        say(f"the database is at {found['schema']}, blobs go to {found['blobs']}")
