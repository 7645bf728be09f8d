"""How the client talks to a server, against a real HTTP server that counts."""

import asyncio

from aiohttp import web
from aiohttp.test_utils import TestServer

from decodebench.bench.client import Target, post, session_of


def test_no_connection_is_used_twice() -> None:
    """A server closes a connection that was idle for a while; a request that is sent on it just then is lost."""
    connections = []

    async def answer(request: web.Request) -> web.Response:
        connections.append(request.transport)
        return web.json_response({})

    async def talk() -> None:
        app = web.Application()
        app.router.add_post("/v1/completions", answer)
        async with TestServer(app) as server, session_of(Target(str(server.make_url("/")), "m")) as session:
            for _ in range(3):
                await post(session, {}, None, {"prompt": [1]})

    asyncio.run(talk())
    assert len(connections) == len({id(connection) for connection in connections}) == 3
