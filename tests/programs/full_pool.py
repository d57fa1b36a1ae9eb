"""A pool whose jobs wait for jobs that they have put into the same pool, or for one that sleeps."""

import concurrent.futures
import sys
import threading
import time

JOBS = 3
what = sys.argv[1]
pool = concurrent.futures.ThreadPoolExecutor(max_workers=JOBS)
other = concurrent.futures.ThreadPoolExecutor(max_workers=JOBS)
begun = threading.Barrier(JOBS + 1)


def fetch_rates():
    time.sleep(3600)


def price_order():
    begun.wait()
    return {"full": pool, "sleeping": other}[what].submit(fetch_rates).result()


def collect():
    orders = [pool.submit(price_order) for _ in range(JOBS)]
    begun.wait()
    # The jobs are on their way into their own waits.
    time.sleep(0.2)
    print("ready", flush=True)
    for order in orders:
        order.result()


collect()
