"""Trained models over HTTP: `cato serve`.

In reading order: `settings` (the limits), `models` (what is served), `requests` (bytes into checked
arrays and back), `batching` (many requests, one forward), `metrics`, `routes` (the addresses),
`limits` (what every request passes), `app` (all of it put together), `server` (the process).

FastAPI and uvicorn come with `pip install 'cato[serve]'`; `settings`, `models` and `server` can be
imported without them.
"""
