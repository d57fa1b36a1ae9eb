// A server that nobody asks, workers in the pool that block, and a main thread that waits for them. Says `ready`.
const dns = require("dns");
const fs = require("fs");
const net = require("net");
const { Worker } = require("worker_threads");

// Opening a FIFO that nobody writes to blocks a thread of the pool.
fs.open(process.argv[2], "r", () => {});
net.createServer().listen(process.argv[2] + ".socket", () => {
  const worker = new Worker(
    "const { parentPort } = require('worker_threads'); parentPort.on('message', () => {}); parentPort.postMessage(1);",
    { eval: true },
  );
  worker.on("message", () => console.log("ready"));
});
