"""Pages as HTML: the templates, their filters, and the answers to errors."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

import jinja2
from fastapi import Response
from fastapi.responses import HTMLResponse, RedirectResponse
from markupsafe import Markup

import recalib
from recalib.contract.base import utc
from recalib.errors import RecalibError
from service.audit.rest import list_audit
from service.console.static_files import static_name
from service.console.visits import Visit
from service.failures import log_failure
from service.http.problems import status_of
from service.jobs.rest import list_jobs
from service.models.rest import get_model

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
#: Operations whose permission shows an item of the menu, and where it leads.
_MENU = (
    ("Models", "models", get_model),
    ("Jobs", "jobs", list_jobs),
    ("Training", "training", list_jobs),
    ("Audit", "audit", list_audit),
    ("Keys", "keys", list_audit),
    ("Server", "server", list_audit),
)
#: Pages that concern all models.
_OF_ALL = ("jobs", "training", "audit", "keys", "server")


def page(
    visit: Visit,
    template: str,
    *,
    error: RecalibError | None = None,
    key: str | None = None,
    **values: Any,
) -> Response:
    """Return a page for a visit.

    Parameters
    ----------
    template: the name of its file, without the ending.
    error: why what the page asked for was refused; the page shows it.
    key: idempotency key of a form, by default a new one: a repetition of its request has no effect.
    values: what the template needs, besides what all pages have.
    """
    status, text = 200, ""
    if error is not None:
        log_failure(error)
        (status, _), text = status_of(error), str(error)
    content = (
        _environment()
        .get_template(f"{template}.html")
        .render(
            visit=visit,
            url=visit.url,
            may=visit.may,
            menu=_menu(visit),
            docs_url=visit.state.settings.docs_url,
            prefix=visit.url("").removesuffix("/console/"),
            static=lambda file: visit.url(f"static/{static_name(file)}"),
            form_token=visit.form_token,
            library=recalib.__version__,
            error=text,
            key=key or uuid.uuid4().hex,
            **values,
        )
    )
    answer = HTMLResponse(content, status, headers=_HEADERS)
    visit.add_cookie(answer)
    return answer


def redirect(visit: Visit, path: str) -> Response:
    """Return the answer that leads to another page, by GET."""
    answer = RedirectResponse(visit.url(path), 303)
    visit.add_cookie(answer)
    return answer


def _menu(visit: Visit) -> list[tuple[str, str]]:
    # A key for some models sees those; what concerns all is not offered to it.
    models = visit.principal.models
    some = next(iter(models or ()), None)
    return [
        (title, path)
        for title, path, endpoint in _MENU
        if visit.may(endpoint.__name__, some) and (models is None or path not in _OF_ALL)
    ]


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("service.console"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = {"time": _time, "ago": _ago, "share": _share, "points": _points, "count": _count}
    filters["code"] = _code
    environment.filters.update(filters)
    return environment


def _time(time: datetime | float | None) -> Markup:
    """Return a time in UTC as an element, which a script shows in the zone of the reader."""
    if time is None:
        return Markup("–")
    moment = (utc(time) if isinstance(time, int | float) else time).astimezone(UTC)
    stamp = moment.isoformat(timespec="seconds")
    return Markup('<time datetime="{}">{}</time>').format(stamp, f"{moment:%Y-%m-%d %H:%M} UTC")


def _ago(time: datetime | float | None) -> str:
    """Return how long ago a time was, in one unit."""
    if time is None:
        return "–"
    moment = utc(time) if isinstance(time, int | float) else time
    seconds = max(0, (datetime.now(UTC) - moment).total_seconds())
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _points(evidence: Mapping[str, Any], name: str) -> str:
    """Return a share of the evidence with its interval."""
    value, low, high = (evidence.get(f"{name}{part}") for part in ("", "_low", "_high"))
    if value is None:
        return "–"
    return f"{value:.1%}" + ("" if low is None or high is None else f" [{low:.1%}, {high:.1%}]")


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _code(text: str) -> Markup:
    """Return text whose parts between backticks are code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if position % 2 else part
        for position, part in enumerate(text.split("`"))
    )
