"""Trained models over HTTP: `cato serve`.

Modules of the API in reading order: `settings` (limits), `models` (what is served), `codecs` (bytes
to arrays and back), `validation` (arrays against a model's problem), `batching` (many requests, one
forward pass), `metrics`, `service` (what the routes share), `schemas` (the OpenAPI description),
`routes`.

The explorer: `jobs` (solvers in processes of their own), `explorer` (routes of the page).

Both: `middleware`, `app` (the FastAPI application), `server` (the process).

FastAPI, uvicorn and prometheus_client are installed by `pip install 'cato-pde[serve]'`; `settings`,
`models` and `server` can be imported without them.
"""
