// Asks one upstream for /slow and another for /other, through connections that it keeps; answers everything else
// itself. With `timer` it computes for a millisecond every 10 ms, and asks the other upstream each fourth time; with
// `one-connection` it has only one to each upstream, for which requests wait. Says `ready`.
const http = require("http");

const [port, slow, other] = process.argv.slice(2, 5).map(Number);
const mode = process.argv[5];
const upstreams = { "/slow": slow, "/other": other };
const agent = new http.Agent({ keepAlive: true, maxSockets: mode === "one-connection" ? 1 : Infinity });
const ask = (upstream, take) => http.get({ agent, port: upstream, host: "127.0.0.1" }, take);

const server = http.createServer((request, response) => {
  const upstream = upstreams[request.url];
  if (!upstream) {
    response.end("answer");
    return;
  }
  ask(upstream, (result) => {
    response.writeHead(200, { "Content-Length": result.headers["content-length"] });
    result.pipe(response);
  });
});

let ticks = 0;
const tick = () => {
  const begun = performance.now();
  while (performance.now() < begun + 1);
  ticks += 1;
  if (ticks % 4 === 0) ask(other, (result) => result.resume());
};

server.listen(port, "127.0.0.1", () => console.log("ready"));
if (mode === "timer") setInterval(tick, 10);
