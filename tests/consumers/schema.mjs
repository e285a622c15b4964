// Checks JSON from standard input against the JSON Schema in the file that is named.
import { readFileSync } from "node:fs";
import { text } from "node:stream/consumers";
import { Ajv2020 } from "ajv/dist/2020.js";

const validate = new Ajv2020({ strict: true, allErrors: true }).compile(JSON.parse(readFileSync(process.argv[2], "utf8")));
if (!validate(JSON.parse(await text(process.stdin)))) {
  console.error(validate.errors);
  process.exit(1);
}
