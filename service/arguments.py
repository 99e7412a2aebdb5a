"""The arguments of an operation, where FastAPI does not check them: in RPCs and on pages.

The annotations of the endpoint check them, as FastAPI does, so that what REST refuses is refused
everywhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, get_type_hints

from fastapi.exceptions import RequestValidationError
from pydantic import ConfigDict, ValidationError, create_model

#: Parameters of endpoints that no caller sends.
_NOT_SENT = ("state", "request", "response")


class Arguments:
    """The parameters of an endpoint.

    Attributes
    ----------
    defaults: the default of each parameter; `...` where it has none.
    body: the type of the body, or None.
    """

    def __init__(self, endpoint: Callable[..., Any]) -> None:
        hints = get_type_hints(endpoint, include_extras=True)
        self.defaults: dict[str, Any] = {
            name: ... if parameter.default is parameter.empty else parameter.default
            for name, parameter in inspect.signature(endpoint).parameters.items()
            if name not in _NOT_SENT
        }
        self.body: type | None = hints.get("body")
        fields: dict[str, Any] = {name: (hints[name], of) for name, of in self.defaults.items()}
        config = ConfigDict(protected_namespaces=(), extra="forbid")  # `model_state`
        self._model = create_model(endpoint.__name__, __config__=config, **fields)

    def checked(
        self, values: Mapping[str, Any], names: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Return all arguments by name, with their types and defaults.

        Parameters
        ----------
        names: what the sender calls a parameter, where that differs.

        Raises
        ------
        RequestValidationError: REST refuses them.
        """
        try:
            checked = self._model.model_validate(values)
        except ValidationError as error:
            violations = [
                {**item, "loc": ((names or {}).get(str(place), place), *path)}
                for item in error.errors()
                for place, *path in [item["loc"]]
            ]
            raise RequestValidationError(violations, body=values.get("body")) from None
        return {name: getattr(checked, name) for name in self.defaults}


@cache
def arguments_of(endpoint: Callable[..., Any]) -> Arguments:
    """Return the parameters of an endpoint; the same object at each call."""
    return Arguments(endpoint)
