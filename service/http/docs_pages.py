"""The OpenAPI pages, from files that are installed with the server: they need no internet."""

from __future__ import annotations

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
from starlette.responses import FileResponse, RedirectResponse

_DOCUMENT, _FOLDER = "/openapi.json", "/docs"
_FILES = ("swagger-ui-bundle.js", "swagger-ui.css", "redoc.standalone.js", "favicon.png")


def install(app: FastAPI) -> set[str]:
    """Add `/docs`, `/redoc` and their files to an application without FastAPI's own pages.

    FastAPI's pages load scripts from a content delivery network.

    Returns
    -------
    The paths of the pages, their files and the OpenAPI document.
    """

    def redirect() -> Response:
        return RedirectResponse(_FOLDER)

    def swagger_ui() -> Response:
        return get_swagger_ui_html(
            openapi_url=_DOCUMENT,
            title=app.title,
            oauth2_redirect_url=f"{_FOLDER}/oauth2-redirect",
            swagger_js_url=f"{_FOLDER}/swagger-ui-bundle.js",
            swagger_css_url=f"{_FOLDER}/swagger-ui.css",
            swagger_favicon_url=f"{_FOLDER}/favicon.png",
        )

    def redoc() -> Response:
        return get_redoc_html(
            openapi_url=_DOCUMENT,
            title=app.title,
            redoc_js_url=f"{_FOLDER}/redoc.standalone.js",
            redoc_favicon_url=f"{_FOLDER}/favicon.png",
            with_google_fonts=False,
        )

    def file(name: str) -> Response:
        return FileResponse(Path(str(files("fastapi_offline"))) / "static" / name)

    pages: dict[str, Callable[..., Response]] = {
        "/": redirect,
        _FOLDER: swagger_ui,
        f"{_FOLDER}/oauth2-redirect": get_swagger_ui_oauth2_redirect_html,
        "/redoc": redoc,
        **{f"{_FOLDER}/{name}": partial(file, name) for name in _FILES},
    }
    for path, page in pages.items():
        app.add_api_route(path, page, include_in_schema=False)
    return {*pages, _DOCUMENT}
