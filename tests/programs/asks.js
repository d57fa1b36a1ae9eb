// A server, a client that asks it, timers, and files that are read by the threads of the pool. Says `ready`.
const fs = require("fs/promises");
const http = require("http");

const server = http.createServer(async (request, response) => {
  response.end(await fs.readFile(__filename));
});

function ask(agent, port) {
  http.get({ agent, port, host: "127.0.0.1" }, (response) => {
    response.resume();
    response.on("end", () => setTimeout(ask, 1, agent, port));
  });
}

server.listen(0, "127.0.0.1", () => {
  ask(new http.Agent({ keepAlive: true }), server.address().port);
  console.log("ready");
});
