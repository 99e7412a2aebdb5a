"""All pages: importing a module adds its routes to the router."""

from service.console import (
    actions,
    compare,
    fitting,
    keys,
    models,
    monitoring_form,
    operations,
    pictures,
    runs,
    server,
    signing_in,
)
from service.console.routing import router
from service.console.signing_in import root

__all__ = [
    "actions",
    "compare",
    "fitting",
    "keys",
    "models",
    "monitoring_form",
    "operations",
    "pictures",
    "root",
    "router",
    "runs",
    "server",
    "signing_in",
]
