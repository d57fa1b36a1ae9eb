// Perfetto's trace processor, as the Perfetto UI runs it: its WebAssembly and the worker around it.
// Takes requests from standard input and gives answers on standard output, each behind its length in
// four bytes, lowest first. What they say is `TraceProcessorRpcStream` of trace_processor.proto.
//
//     node trace_processor.mjs FOLDER-OF-THE-UI

import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { runInContext, createContext } from "node:vm";

const folder = process.argv[2];

// What the worker expects to find around it in a browser. A scope of its own: with Node's it would
// take itself to be in a program of Node, which it was not built for.
const scope = createContext({
  console: { log: console.error, warn: console.error, error: console.error },
  location: { href: "http://localhost/engine_bundle.js" },
  XMLHttpRequest: class {
    open(_method, url) {
      this.url = url;
    }
    send() {
      this.status = 200;
      this.response = own(readFileSync(join(folder, basename(this.url)))).buffer;
    }
  },
  importScripts() {},
  WorkerGlobalScope: class {},
  TextDecoder,
  TextEncoder,
  URL,
  crypto,
  performance,
  setTimeout,
  clearTimeout,
});
scope.self = scope;
const Bytes = runInContext("Uint8Array", scope);
const own = (bytes) => new Bytes(bytes);

runInContext(readFileSync(join(folder, "engine_bundle.js"), "utf8"), scope);

const port = {
  onmessage: null,
  postMessage(answer) {
    const length = Buffer.alloc(4);
    length.writeUInt32LE(answer.length);
    process.stdout.write(length);
    process.stdout.write(Buffer.from(answer));
  },
};
scope.onmessage({ data: port });

let left = Buffer.alloc(0);
process.stdin.on("data", (bytes) => {
  left = Buffer.concat([left, bytes]);
  while (left.length >= 4 && left.length >= 4 + left.readUInt32LE()) {
    const end = 4 + left.readUInt32LE();
    port.onmessage({ data: own(left.subarray(4, end)) });
    left = left.subarray(end);
  }
});
