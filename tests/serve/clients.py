"""Many requests at a time, in process."""

import asyncio

import httpx


def concurrently(app, work):
    """Run `work(client)` against an application, then end it."""

    async def run():
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await work(client)

    try:
        return asyncio.run(run())
    finally:
        app.state.service.close()


async def endless_body():
    while True:
        yield b" "
        await asyncio.sleep(0.02)
