// Opens profiles with the Firefox Profiler's own reading code, as its command line has it, and prints
// what it made of them.
//
//     node firefox.mjs FOLDER-OF-PROFILER-CLI SCRATCH-FOLDER FILE…

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";

const [folder, scratch, ...files] = process.argv.slice(2);
const program = join(folder, "dist/profiler-cli.js");
const env = { ...process.env, PROFILER_CLI_SESSION_DIR: scratch, PROFILER_CLI_NO_SYMBOLICATE: "1" };

// What the command line asks the process that has the profile: a line of JSON each way. A process for
// each question would take ten times as long.
async function ask(socketPath, command) {
  const socket = connect(socketPath);
  socket.end(`${JSON.stringify({ type: "command", command })}\n`);
  const answer = JSON.parse((await socket.setEncoding("utf8").toArray()).join(""));
  if (answer.type !== "success") throw new Error(`${JSON.stringify(command)}: ${answer.error}`);
  return answer.result;
}

// The process is a child of this one, so that it ends with it.
async function open(file, session) {
  const arguments_ = [program, "--daemon", file, "--session", session];
  const reader = spawn(process.execPath, arguments_, { env, stdio: ["ignore", "ignore", "inherit"] });
  const ended = once(reader, "exit");
  try {
    // It writes what it is called when it answers.
    while (reader.exitCode === null && !readdirSync(scratch).includes(`${session}.json`)) {
      await Promise.race([ended, setTimeout(20)]);
    }
    const { socketPath } = JSON.parse(readFileSync(join(scratch, `${session}.json`), "utf8"));
    const meta = await ask(socketPath, { command: "profile", subcommand: "meta" });
    const list = await ask(socketPath, { command: "thread", subcommand: "list", threadListOptions: { limit: 1e9 } });
    const threads = [];
    for (const thread of list.threads) {
      const of = { command: "thread", thread: thread.threadHandle };
      const samples = await ask(socketPath, { ...of, subcommand: "samples", includeIdle: true });
      const markerFilters = { list: true, limit: 1e9 };
      const markers = await ask(socketPath, { ...of, subcommand: "markers", markerFilters });
      threads.push({ ...thread, samples, markers });
    }
    return { meta, threads };
  } finally {
    reader.kill();
    await ended;
  }
}

const opened = [];
for (const [n, file] of files.entries()) opened.push(await open(file, `offwake-${n}`));
console.log(JSON.stringify(opened));
