"""Prints what OpenTelemetry's own messages and DuckDB make of spans: spans.py X.otlp.json X.spans.json"""

import base64
import json
import sys

import duckdb
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

IDS = {"traceId", "spanId", "parentSpanId"}


def in_base64(value):
    """OTLP has ids in hexadecimal where JSON of protobuf has base64."""
    if isinstance(value, list):
        return [in_base64(one) for one in value]
    if not isinstance(value, dict):
        return value
    encode = lambda one: base64.b64encode(bytes.fromhex(one)).decode()
    return {key: encode(one) if key in IDS else in_base64(one) for key, one in value.items()}


def messages(path):
    """A field that the messages don't have is an error."""
    with open(path) as file:
        request = ExportTraceServiceRequest()
        json_format.ParseDict(in_base64(json.load(file)), request)
    return [
        {
            "span_id": span.span_id.hex(),
            "parent_span_id": span.parent_span_id.hex() or None,
            "ns": span.end_time_unix_nano - span.start_time_unix_nano,
        }
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def rows(path):
    spans = duckdb.sql(f"SELECT unnest(spans, recursive := true) FROM read_json('{path}')")
    answer = spans.query("spans", "SELECT span_id, parent_span_id, ended_at - started_at AS ns FROM spans")
    return [dict(zip(answer.columns, row)) for row in answer.fetchall()]


otlp, spans = sys.argv[1:]
print(json.dumps({"otlp": messages(otlp), "spans": rows(spans)}))
