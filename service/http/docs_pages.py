"""The OpenAPI pages, from files that are installed with the server: they need no internet."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI, Response
from fastapi.openapi.docs import (
    get_redoc_html,
    get_swagger_ui_html,
    get_swagger_ui_oauth2_redirect_html,
)
from starlette.responses import FileResponse

_DOCUMENT, _FOLDER = "/openapi.json", "/docs"
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_FILES = ("swagger-ui-bundle.js", "swagger-ui.css", "redoc.standalone.js", "favicon.png")


def install(app: FastAPI) -> set[str]:
    """Add `/docs`, `/redoc` and their files to an application without FastAPI's own pages.

    FastAPI's pages load scripts from a content delivery network.

    Returns
    -------
    The paths of the pages, their files and the OpenAPI document.
    """

    def with_policy(html: Response) -> Response:
        html.headers["Content-Security-Policy"] = _policy(bytes(html.body).decode())
        return html

    def swagger_ui() -> Response:
        html = get_swagger_ui_html(
            openapi_url=_DOCUMENT,
            title=app.title,
            oauth2_redirect_url=f"{_FOLDER}/oauth2-redirect",
            swagger_js_url=f"{_FOLDER}/swagger-ui-bundle.js",
            swagger_css_url=f"{_FOLDER}/swagger-ui.css",
            swagger_favicon_url=f"{_FOLDER}/favicon.png",
        )
        return with_policy(html)

    def oauth2_redirect() -> Response:
        return with_policy(get_swagger_ui_oauth2_redirect_html())

    def redoc() -> Response:
        html = get_redoc_html(
            openapi_url=_DOCUMENT,
            title=app.title,
            redoc_js_url=f"{_FOLDER}/redoc.standalone.js",
            redoc_favicon_url=f"{_FOLDER}/favicon.png",
            with_google_fonts=False,
        )
        return with_policy(html)

    def file(name: str) -> Response:
        return FileResponse(Path(str(files("fastapi_offline"))) / "static" / name)

    pages: dict[str, Callable[..., Response]] = {
        _FOLDER: swagger_ui,
        f"{_FOLDER}/oauth2-redirect": oauth2_redirect,
        "/redoc": redoc,
        **{f"{_FOLDER}/{name}": partial(file, name) for name in _FILES},
    }
    for path, page in pages.items():
        app.add_api_route(path, page, include_in_schema=False)
    return {*pages, _DOCUMENT}


def _policy(html: str) -> str:
    """Return the policy of a page: files of this server, and the scripts that the page holds."""
    digests = (hashlib.sha256(script.encode()).digest() for script in _SCRIPT.findall(html))
    scripts = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'self'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; worker-src blob:; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    )
