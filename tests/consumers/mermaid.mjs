// Parses a Mermaid diagram from standard input with Mermaid itself; prints what kind it is.
import { text } from "node:stream/consumers";
import { JSDOM } from "jsdom";

const { window } = new JSDOM("<!DOCTYPE html>");
globalThis.window = window;
globalThis.document = window.document;
const { default: mermaid } = await import("mermaid");
console.log((await mermaid.parse(await text(process.stdin))).diagramType);
