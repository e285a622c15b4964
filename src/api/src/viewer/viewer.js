// Shows the description of the API, and sends requests by hand. The page consists of text nodes only: responses of a
// service are never interpreted as markup.
"use strict";

const METHODS = ["get", "post", "put", "delete"];
const TOKEN = "anabranch.token";
let description;

/** Creates an element. Attributes that begin with `on` are listeners; children are texts, elements or undefined. */
function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null));
  return element;
}

/** Converts text with `code` in backticks to nodes. */
function prose(text) {
  return String(text ?? "").split("`").map((part, index) => (index % 2 ? make("code", {}, part) : part));
}

/** Paragraphs. */
function paragraphs(text, className) {
  return String(text ?? "").split(/\n\s*\n/).filter(Boolean).map((part) => make("p", { class: className }, prose(part)));
}

/** What a reference stands for, with the name that it has. */
function resolve(schema) {
  const reference = schema?.$ref;
  if (!reference) return { schema: schema ?? {}, name: undefined };
  const steps = reference.slice(2).split("/").map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
  return { schema: steps.reduce((value, step) => value?.[step], description) ?? {}, name: steps.at(-1) };
}

/** A schema in a few words. */
function kind(given) {
  const { schema, name } = resolve(given);
  if (name) return name;
  const options = schema.oneOf ?? schema.anyOf;
  if (options) return options.map(kind).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  const types = [schema.type ?? "anything"].flat();
  return types
    .map((type) => {
      if (type === "array") return `list of ${kind(schema.items)}`;
      if (type === "object" && schema.additionalProperties) return `map of ${kind(schema.additionalProperties)}`;
      return type;
    })
    .join(" or ");
}

/** The schema that has fields: of the list, map or option that leads to it. */
function inner(given) {
  const { schema } = resolve(given);
  if (schema.properties) return schema;
  const options = (schema.oneOf ?? schema.anyOf ?? schema.allOf ?? []).filter((option) => option.type !== "null");
  if (options.length === 1) return inner(options[0]);
  if (schema.items) return inner(schema.items);
  if (schema.additionalProperties) return inner(schema.additionalProperties);
  return undefined;
}

/** The fields of a schema; those below are made when they are opened, as schemas may hold themselves. */
function fields(given) {
  const schema = inner(given);
  if (!schema) return make("p", { class: "quiet" }, kind(given));
  const required = new Set(schema.required);
  const items = Object.entries(schema.properties).map(([name, value]) => {
    const line = [
      make("code", {}, name), " ", make("span", { class: "quiet" }, kind(value) + (required.has(name) ? "" : ", optional")),
      value.description ?? resolve(value).schema.description ? [" – ", prose(value.description ?? resolve(value).schema.description)] : undefined,
    ].flat();
    if (!inner(value)) return make("li", {}, line);
    const below = make("details", {}, make("summary", {}, line));
    below.addEventListener("toggle", () => below.open && below.children.length === 1 && below.append(fields(value)));
    return make("li", {}, below);
  });
  return make("ul", { class: "fields" }, items);
}

/** Something to begin with. */
function example(given, depth = 0) {
  const { schema } = resolve(given);
  if (schema.example !== undefined) return schema.example;
  if (schema.examples?.length) return schema.examples[0];
  if (schema.default !== undefined) return schema.default;
  if (schema.enum) return schema.enum[0];
  const option = (schema.oneOf ?? schema.anyOf ?? schema.allOf ?? []).find((option) => option.type !== "null");
  if (option) return example(option, depth);
  const type = [schema.type].flat().find((type) => type !== "null");
  if (schema.properties && depth < 4) {
    return Object.fromEntries(Object.entries(schema.properties).map(([name, value]) => [name, example(value, depth + 1)]));
  }
  return { string: "", integer: 0, number: 0, boolean: false, array: [], object: {} }[type] ?? null;
}

function parameters(operation) {
  if (!operation.parameters?.length) return { element: undefined, inputs: [] };
  const inputs = [];
  const rows = operation.parameters.map((given) => {
    const parameter = resolve(given).schema;
    const list = [parameter.schema?.type].flat().includes("array");
    const input = make("input", { "aria-label": parameter.name, placeholder: list ? "one, two" : undefined, spellcheck: "false" });
    inputs.push({ parameter, input, list });
    return make("tr", {},
      make("td", {}, make("code", {}, parameter.name), parameter.required ? " *" : ""),
      make("td", { class: "quiet" }, `${parameter.in}, ${kind(parameter.schema)}`),
      make("td", {}, prose(parameter.description)),
      make("td", {}, input));
  });
  const head = make("tr", {}, ["Name", "Type", "Meaning", "Value"].map((text) => make("th", { scope: "col" }, text)));
  return { element: [make("h3", {}, "Parameters"), make("table", { class: "parameters" }, head, rows)], inputs };
}

function address(path, inputs) {
  const query = new URLSearchParams();
  for (const { parameter, input, list } of inputs) {
    if (parameter.in === "path") {
      if (!input.value) throw new Error(`${parameter.name} is required`);
      path = path.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    } else if (parameter.in === "query" && input.value) {
      const values = list ? input.value.split(",").map((value) => value.trim()) : [input.value];
      for (const value of values) query.append(parameter.name, value);
    }
  }
  const text = query.toString();
  return ".." + path + (text ? `?${text}` : "");
}

async function send(method, path, inputs, body, type, shown) {
  const headers = {};
  const token = document.getElementById("token").value;
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = type;
  const from = performance.now();
  try {
    const answer = await fetch(address(path, inputs), { method: method.toUpperCase(), headers, body });
    const text = await answer.text();
    let pretty = text;
    try { pretty = JSON.stringify(JSON.parse(text), null, 2); } catch { /* It is not JSON. */ }
    shown.replaceChildren(
      make("p", {}, make("span", { class: answer.ok ? "status" : "status failed" }, `${answer.status} ${answer.statusText}`),
        ` ${answer.headers.get("content-type") ?? ""}, ${(performance.now() - from).toFixed(0)} ms`),
      make("pre", { tabindex: "0" }, pretty || "(empty)"));
  } catch (error) {
    shown.replaceChildren(make("p", { class: "failed" }, `Not sent: ${error.message}`));
  }
}

function details(path, method, operation) {
  const { element, inputs } = parameters(operation);
  const [type, content] = Object.entries(operation.requestBody?.content ?? {})[0] ?? [];
  const body = type && make("textarea", { "aria-label": "Body", spellcheck: "false" });
  if (body) body.value = JSON.stringify(content.example ?? example(content.schema), null, 2);
  const answers = Object.entries(operation.responses ?? {}).map(([status, given]) => {
    const response = resolve(given).schema;
    const [media, content] = Object.entries(response.content ?? {})[0] ?? [];
    return make("tr", {}, make("td", {}, make("code", {}, status)), make("td", {}, prose(response.description),
      media ? [make("span", { class: "quiet" }, ` ${media}`), fields(content.schema)] : undefined));
  });
  const shown = make("div", { "aria-live": "polite" });
  const stream = operation.responses?.["101"];
  const form = make("form", {
    async onsubmit(event) {
      event.preventDefault();
      const button = form.querySelector("button");
      button.disabled = true;
      await send(method, path, inputs, body?.value || undefined, type, shown);
      button.disabled = false;
    },
  },
    element,
    body && [make("h3", {}, "Body"), make("p", { class: "quiet" }, type), fields(content.schema), body],
    stream ? make("p", { class: "quiet" }, "This is a websocket: it cannot be tried here.") : make("p", {}, make("button", {}, "Send")),
    shown);
  return make("div", {},
    paragraphs(operation.description), form,
    make("h3", {}, "Responses"), make("table", {}, answers));
}

function entry(path, method, operation) {
  const id = operation.operationId;
  const element = make("details", { class: "operation", id },
    make("summary", {},
      make("span", { class: `method ${method}` }, method),
      make("span", { class: "path" }, path),
      make("span", { class: "quiet" }, operation.summary ?? "")));
  element.addEventListener("toggle", () => {
    if (element.open && element.children.length === 1) element.append(details(path, method, operation));
  });
  return element;
}

function open() {
  const element = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!element) return;
  if (element.tagName === "DETAILS") element.open = true;
  element.scrollIntoView();
  (element.querySelector("summary") ?? element).focus();
}

function find(words) {
  const asked = words.toLowerCase().split(/\s+/).filter(Boolean);
  for (const item of document.querySelectorAll("[data-text]")) {
    item.hidden = !asked.every((word) => item.dataset.text.includes(word));
  }
  for (const group of document.querySelectorAll("[data-group]")) {
    group.hidden = !group.querySelector("[data-text]:not([hidden])");
  }
}

function show() {
  document.getElementById("version").textContent = description.info.version;
  const groups = new Map((description.tags ?? []).map((tag) => [tag.name, { tag, found: [] }]));
  for (const [path, item] of Object.entries(description.paths)) {
    for (const method of METHODS.filter((method) => item[method])) {
      const operation = item[method];
      const name = operation.tags?.[0] ?? "other";
      if (!groups.has(name)) groups.set(name, { tag: { name }, found: [] });
      groups.get(name).found.push({ path, method, operation });
    }
  }
  const main = document.getElementById("main");
  const index = document.getElementById("index");
  main.replaceChildren(...paragraphs(description.info.description, "quiet"));
  for (const { tag, found } of groups.values()) {
    if (!found.length) continue;
    const section = make("section", { "data-group": true }, make("h2", {}, tag.name), paragraphs(tag.description, "quiet"));
    const links = make("ul", {});
    for (const { path, method, operation } of found) {
      const text = `${method} ${path} ${operation.summary ?? ""}`.toLowerCase();
      const element = entry(path, method, operation);
      element.dataset.text = text;
      section.append(element);
      links.append(make("li", { "data-text": text },
        make("a", { href: `#${operation.operationId}`, title: `${method} ${path}` }, operation.summary ?? path)));
    }
    main.append(section);
    index.append(make("div", { "data-group": true }, make("strong", {}, tag.name), links));
  }
  const schemas = make("section", { "data-group": true }, make("h2", {}, "schemas"));
  for (const [name, schema] of Object.entries(description.components?.schemas ?? {})) {
    const element = make("details", { class: "operation", id: `schema-${name}`, "data-text": `schema ${name}`.toLowerCase() },
      make("summary", {}, make("span", { class: "path" }, name), make("span", { class: "quiet" }, prose(schema.description))));
    element.addEventListener("toggle", () => {
      if (element.open && element.children.length === 1) element.append(make("div", {}, fields(schema)));
    });
    schemas.append(element);
  }
  main.append(schemas);
  open();
}

async function start() {
  const token = document.getElementById("token");
  token.value = sessionStorage.getItem(TOKEN) ?? "";
  token.addEventListener("change", () => sessionStorage.setItem(TOKEN, token.value));
  document.getElementById("access").addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("find").addEventListener("input", (event) => find(event.target.value));
  window.addEventListener("hashchange", open);
  try {
    const answer = await fetch("../openapi.json");
    if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
    description = await answer.json();
    show();
  } catch (error) {
    document.getElementById("loading").textContent = `The description could not be read: ${error.message}`;
  }
}

start();
