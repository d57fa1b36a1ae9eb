"""Waits in ever new functions, each with a name of 4 KiB. Says `ready`."""
import time

print("ready", flush=True)
number = 0
while True:
    number += 1
    name = f"f{number}_".ljust(4000, "x")
    # It waits inside of two of these.
    exec(f"def {name}():\n    time.sleep(0.0002)\n{name}()", {"time": time})
