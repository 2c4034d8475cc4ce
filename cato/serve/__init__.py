"""Trained models over HTTP: `cato serve`.

Modules in reading order: `settings` (limits), `models` (what is served), `clients` (who asks, and
what one client may hold), `batching` (many requests, one forward pass), `bodies` (bytes to arrays
that fit a model, and back), `metrics`, `service` (what the routes share), `routes` (the API),
`jobs` (solvers in other processes), `explorer` (routes of the page), `middleware` (what every
request passes), `app` (the FastAPI application), `connections` (limits below HTTP), `server` (the
process).

FastAPI, uvicorn and prometheus_client are installed by `pip install 'cato-pde[serve]'`; `settings`,
`models` and `server` can be imported without them.
"""
