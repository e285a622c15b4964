// Plays the host of a WebAssembly processor: `node host.mjs MODULE COMMAND…`, with the commands in base64. Prints each
// response in base64 on a line `response …`, then what a record costs, in microseconds of CPU time, if REPEAT says how
// often the last but one command is repeated.
import { readFileSync, writeSync } from "node:fs";
import { WASI } from "node:wasi";

const [file, ...given] = process.argv.slice(2);
const repeat = Number(process.env.REPEAT ?? 0);
const queue = given.map((text) => Buffer.from(text, "base64"));
if (repeat) queue.splice(queue.length - 1, 0, ...Array(repeat).fill(queue[queue.length - 2]));
const wasi = new WASI({
  version: "preview1",
  env: {
    CONDUIT_MAGIC_COOKIE: "3stnegqd0x02axggy0vrc4izjeq2zik6g7somyb3ye4vy5iivvjm5s1edppl5oja",
    CONDUIT_PROCESSOR_ID: "p",
    CONDUIT_LOG_LEVEL: "info",
  },
  returnOnExit: true,
});
let memory;
let answered = 0;
let started;
const unexpected = (name) => () => {
  throw new Error(`unexpected call of ${name}`);
};
const conduit = {
  command_request(pointer, length) {
    if (!queue.length) return 0xfffffffe | 0;
    if (length < queue[0].length) return queue[0].length;
    new Uint8Array(memory.buffer, pointer >>> 0).set(queue[0]);
    return queue.shift().length;
  },
  command_response(pointer, length) {
    answered += 1;
    if (answered === given.length - 1) started = process.cpuUsage();
    if (repeat && answered === given.length + repeat - 1) {
      const used = process.cpuUsage(started).user;
      writeSync(1, `microseconds ${used / repeat}\n`);
    }
    if (answered < given.length || answered === given.length + repeat) {
      const bytes = Buffer.from(memory.buffer, pointer >>> 0, length >>> 0);
      writeSync(1, `response ${bytes.toString("base64")}\n`);
    }
    return 0;
  },
  create_schema: unexpected("create_schema"),
  get_schema: unexpected("get_schema"),
  http_request: unexpected("http_request"),
};
const module = new WebAssembly.Module(readFileSync(file));
const instance = new WebAssembly.Instance(module, { ...wasi.getImportObject(), conduit });
memory = instance.exports.memory;
process.exit(wasi.start(instance));
