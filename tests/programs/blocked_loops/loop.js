// A loop of Node's that is asked for something over a connection of its own again and again, and waits for 20 ms
// each time. Says `ready`.
const { execSync } = require("child_process");
const net = require("net");

const tasks = {
  blocks: (done) => {
    execSync("sleep 0.02");
    done();
  },
  yields: (done) => setTimeout(done, 20),
};

const server = net.createServer((asked) => {
  asked.on("data", () => tasks[process.argv[2]](() => asked.write("done")));
});
server.listen(0, "127.0.0.1", () => {
  const asks = net.connect(server.address().port, "127.0.0.1", () => {
    console.log("ready");
    asks.write("task");
  });
  asks.on("data", () => asks.write("task"));
});
