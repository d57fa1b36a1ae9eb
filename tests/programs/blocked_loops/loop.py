# A loop of asyncio's, with one task that waits for 20 ms again and again. Says `ready`.
import asyncio
import sys
import time


def load_price():
    time.sleep(0.02)


async def blocks():
    load_price()


async def yields():
    await asyncio.get_running_loop().run_in_executor(None, load_price)
    await asyncio.sleep(0.02)


async def main(task):
    print("ready", flush=True)
    while True:
        await task()
        await asyncio.sleep(0.001)


asyncio.run(main({"blocks": blocks, "yields": yields}[sys.argv[1]]))
