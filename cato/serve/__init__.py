"""Trained models over HTTP: `cato serve`.

In reading order, the API: `settings` (the limits), `models` (what is served), `requests` (bytes
into arrays and back), `questions` (arrays checked against a model), `batching` (many questions, one
forward), `metrics`, `service` (what the routes share), `schemas` (what the documentation shows),
`routes` (the addresses).

The explorer: `inputs` (what a hand can change), `input_fields` and `input_shapes` (that of each
benchmark), `editors` (which model has which), `wire` (arrays as bytes), `jobs` (solvers in
processes of their own), `explorer` (the addresses of the page).

Both: `limits` (what every request passes), `app` (all of it put together), `server` (the process).

FastAPI and uvicorn come with `pip install 'cato[serve]'`; `settings`, `models` and `server` can be
imported without them.
"""
