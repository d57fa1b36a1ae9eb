"""Run by gdb on a process: writes the frames of every thread, leaf first, as JSON."""

import json
import os

import gdb

for setting in ["past-main on", "past-entry on", "limit unlimited"]:
    gdb.execute("set backtrace " + setting)

# A frame like any other, and that of a signal; what is inlined has no frame of its own.
REAL = (gdb.NORMAL_FRAME, gdb.SIGTRAMP_FRAME)


def frames_of(newest):
    frame = newest
    while frame is not None:
        if frame.type() in REAL:
            yield {"address": frame.pc(), "function": frame.name()}
        reason = frame.unwind_stop_reason()
        try:
            frame = frame.older()
        except gdb.error as error:
            yield {"address": 0, "function": str(error)}
            return
    if reason not in (gdb.FRAME_UNWIND_NO_REASON, gdb.FRAME_UNWIND_OUTERMOST):
        yield {"address": 0, "function": gdb.frame_stop_reason_string(reason)}


threads = {}
for thread in gdb.selected_inferior().threads():
    thread.switch()
    threads[thread.ptid[1]] = list(frames_of(gdb.newest_frame()))
with open(os.environ["OFFWAKE_BACKTRACES"], "w") as file:
    json.dump(threads, file)
