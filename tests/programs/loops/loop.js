// Asks its upstream for /slow, through connections that it keeps; answers everything else itself. Says `ready`.
const http = require("http");

const [port, upstream] = process.argv.slice(2).map(Number);
const agent = new http.Agent({ keepAlive: true });

const server = http.createServer((request, response) => {
  if (request.url !== "/slow") {
    response.end("answer");
    return;
  }
  http.get({ agent, port: upstream, host: "127.0.0.1" }, (result) => result.pipe(response));
});

server.listen(port, "127.0.0.1", () => console.log("ready"));
