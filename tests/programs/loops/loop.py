"""Asks its upstream for /slow, through connections that it keeps; answers everything else itself. Says `ready`."""

import asyncio
import sys

PORT, UPSTREAM = int(sys.argv[1]), int(sys.argv[2])
REQUEST = b"GET / HTTP/1.1\r\nHost: upstream\r\n\r\n"
idle_connections = []


async def read_head(reader):
    return (await reader.readuntil(b"\r\n\r\n")).decode()


async def ask_upstream():
    if idle_connections:
        reader, writer = idle_connections.pop()
    else:
        reader, writer = await asyncio.open_connection("127.0.0.1", UPSTREAM)
    writer.write(REQUEST)
    await read_head(reader)
    result = await reader.readexactly(6)
    idle_connections.append((reader, writer))
    return result


async def serve(reader, writer):
    try:
        while True:
            head = await read_head(reader)
            body = await ask_upstream() if head.startswith("GET /slow ") else b"answer"
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n" + body)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", PORT)
    print("ready", flush=True)
    await server.serve_forever()


asyncio.run(main())
