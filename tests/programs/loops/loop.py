"""Asks one upstream for /slow and another for /other, through connections that it keeps; answers everything else
itself. With `timer` it computes for a millisecond every 10 ms, and asks the other upstream each fourth time; with
`one-connection` it sends all requests to an upstream through one connection, one behind the other; with `threads` an
executor's threads ask. Says `ready`."""

import asyncio
import http.client
import sys
import threading
import time

PORT, SLOW, OTHER = map(int, sys.argv[1:4])
MODE = sys.argv[4]
UPSTREAMS = {"/slow": SLOW, "/other": OTHER}
REQUEST = b"GET / HTTP/1.1\r\nHost: upstream\r\n\r\n"
idle_connections = {SLOW: [], OTHER: []}
shared_connections = {}
of_thread = threading.local()


async def read_head(reader):
    return (await reader.readuntil(b"\r\n\r\n")).decode()


async def read_result(reader):
    await read_head(reader)
    return await reader.readexactly(6)


async def ask(upstream):
    idle = idle_connections[upstream]
    if idle:
        reader, writer = idle.pop()
    else:
        reader, writer = await asyncio.open_connection("127.0.0.1", upstream)
    writer.write(REQUEST)
    result = await read_result(reader)
    idle.append((reader, writer))
    return result


async def ask_through_shared(upstream):
    writer, asked = shared_connections[upstream]
    result = asyncio.get_running_loop().create_future()
    asked.append(result)
    writer.write(REQUEST)
    return await result


async def take_results(reader, asked):
    while True:
        result = await read_result(reader)
        asked.pop(0).set_result(result)


async def share_connection(upstream):
    reader, writer = await asyncio.open_connection("127.0.0.1", upstream)
    asked = []
    shared_connections[upstream] = writer, asked
    return asyncio.ensure_future(take_results(reader, asked))


def ask_and_block(upstream):
    connections = of_thread.__dict__.setdefault("connections", {})
    connection = connections.setdefault(upstream, http.client.HTTPConnection("127.0.0.1", upstream))
    connection.request("GET", "/")
    return connection.getresponse().read()


async def ask_in_thread(upstream):
    return await asyncio.get_running_loop().run_in_executor(None, ask_and_block, upstream)


ASK = {"one-connection": ask_through_shared, "threads": ask_in_thread}.get(MODE, ask)


async def serve(reader, writer):
    try:
        while True:
            head = await read_head(reader)
            upstream = UPSTREAMS.get(head.split()[1])
            body = await ASK(upstream) if upstream else b"answer"
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n" + body)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def tick():
    own = set()
    ticks = 0
    while True:
        await asyncio.sleep(0.01)
        begun = time.perf_counter()
        while time.perf_counter() < begun + 0.001:
            pass
        ticks += 1
        if ticks % 4 == 0:
            task = asyncio.ensure_future(ask(OTHER))
            own.add(task)
            task.add_done_callback(own.discard)


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", PORT)
    kept = []
    if MODE == "one-connection":
        kept = [await share_connection(upstream) for upstream in UPSTREAMS.values()]
    if MODE == "timer":
        kept = [asyncio.ensure_future(tick())]
    print("ready", flush=True)
    await asyncio.gather(server.serve_forever(), *kept)


asyncio.run(main())
