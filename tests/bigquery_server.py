"""A BigQuery of one table on this machine: the table's description over HTTP, its rows over gRPC.

It stands in for Google's servers behind Google's own clients.  Conditions are evaluated by SQLite.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import pyarrow as pa
from google.cloud.bigquery_storage_v1 import types

TYPES = {"int64": "INTEGER", "string": "STRING", "double": "FLOAT"}
PAGE_ROWS = 100


class BigQueryServer:
    """Serves ``table`` as project.dataset.table; what it is told to be is plain attributes."""

    def __init__(self, table: pa.Table) -> None:
        self.etag = "1"
        self.kind = "TABLE"
        self.streaming = False
        self.sessions: list[types.ReadSession] = []
        self._found: dict[str, pa.Table] = {}
        self.table = table
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer._describe(self)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        self.http = f"http://127.0.0.1:{self._http.server_port}"
        self._grpc = grpc.server(ThreadPoolExecutor(4))
        service = "google.cloud.bigquery.storage.v1.BigQueryRead"
        handlers = {
            "CreateReadSession": grpc.unary_unary_rpc_method_handler(
                self._create,
                request_deserializer=types.CreateReadSessionRequest.deserialize,
                response_serializer=types.ReadSession.serialize,
            ),
            "ReadRows": grpc.unary_stream_rpc_method_handler(
                self._read,
                request_deserializer=types.ReadRowsRequest.deserialize,
                response_serializer=types.ReadRowsResponse.serialize,
            ),
        }
        self._grpc.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        self.grpc = f"127.0.0.1:{self._grpc.add_insecure_port('127.0.0.1:0')}"
        self._grpc.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._grpc.stop(None)

    def _describe(self, request: Any) -> None:
        if not request.path.split("?")[0].endswith("/projects/project/datasets/dataset/tables/table"):
            request.send_error(404, "Not found: Table")
            return
        fields = [{"name": field.name, "type": TYPES[str(field.type)]} for field in self.table.schema]
        about: dict[str, Any] = {
            "tableReference": {"projectId": "project", "datasetId": "dataset", "tableId": "table"},
            "etag": self.etag,
            "type": self.kind,
            "lastModifiedTime": "1700000000000",
            "numRows": str(self.table.num_rows),
            "numBytes": str(self.table.nbytes),
            "schema": {"fields": fields},
        }
        if self.streaming:
            about["streamingBuffer"] = {"estimatedRows": "1", "estimatedBytes": "1", "oldestEntryTime": "1"}
        body = json.dumps(about).encode()
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def _create(self, request: types.CreateReadSessionRequest, context: Any) -> types.ReadSession:
        assert request.max_stream_count == 1
        session = request.read_session
        table = self._where(session.read_options.row_restriction, context)
        if session.read_options.selected_fields:
            table = table.select(list(session.read_options.selected_fields))
        session.name = f"projects/project/locations/here/sessions/{len(self.sessions)}"
        session.arrow_schema = types.ArrowSchema(serialized_schema=table.schema.serialize().to_pybytes())
        if table.num_rows:
            session.streams = [types.ReadStream(name=f"{session.name}/streams/0")]
            self._found[session.streams[0].name] = table
        self.sessions.append(session)
        return session

    def _where(self, condition: str, context: Any) -> pa.Table:
        with sqlite3.connect(":memory:") as database:
            names = ", ".join(f"`{name}`" for name in self.table.column_names)
            database.execute(f"CREATE TABLE t ({names})")
            marks = ", ".join("?" * self.table.num_columns)
            rows = (tuple(row.values()) for row in self.table.to_pylist())
            database.executemany(f"INSERT INTO t VALUES ({marks})", rows)
            try:
                found = database.execute(f"SELECT rowid - 1 FROM t WHERE {condition or '1 = 1'} ORDER BY rowid")
            except sqlite3.Error as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"row restriction: {error}")
            return self.table.take(pa.array([row for (row,) in found], pa.int64()))

    def _read(self, request: types.ReadRowsRequest, context: Any) -> Any:
        table = self._found[request.read_stream].combine_chunks()
        for batch in table.to_batches(max_chunksize=PAGE_ROWS):
            yield types.ReadRowsResponse(
                row_count=batch.num_rows,
                arrow_record_batch=types.ArrowRecordBatch(serialized_record_batch=batch.serialize().to_pybytes()),
                arrow_schema=types.ArrowSchema(serialized_schema=batch.schema.serialize().to_pybytes()),
            )
