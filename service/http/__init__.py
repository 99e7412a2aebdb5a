"""HTTP: routes, bodies, errors and the OpenAPI document."""
