"use strict";
const make = (tag, text = "") => Object.assign(document.createElement(tag), { textContent: text });

const table = (head, rows) => {
  const out = make("table"), line = make("tr");
  line.append(...head.map((name) => make("th", name)));
  out.append(line);
  for (const cells of rows) {
    const row = make("tr");
    row.append(...cells.map((text) => make("td", text)));
    out.append(row);
  }
  return out;
};

// What a value may be, in words: "1 to 200", "asc, desc", "text".
const allowed = (schema) => {
  const one = schema.anyOf?.find((other) => other.type !== "null") ?? schema;
  if (one.enum) return one.enum.join(", ");
  if (one.minimum !== undefined && one.maximum !== undefined) return `${one.minimum} to ${one.maximum}`;
  const kind = { integer: "whole number", number: "number", boolean: "true or false", array: "texts" }[one.type] ?? "text";
  return one.maxLength ? `${kind}, ${one.minLength ?? 0} to ${one.maxLength} characters` : kind;
};

const operation = (path, { summary, description, parameters = [], responses }) => {
  const out = make("section");
  out.append(make("h2", `GET ${path}`), make("p", description ?? summary));
  if (parameters.length) {
    out.append(table(["Parameter", "Allowed", "Default", "Meaning"], parameters.map((one) => [
      one.name, allowed(one.schema), one.required ? "required" : String(one.schema.default ?? "none"),
      one.description ?? one.schema.description ?? "",
    ])));
  }
  out.append(table(["Status", "Meaning"], Object.entries(responses).map(([status, { description: text }]) => [status, text])));
  return out;
};

fetch("/openapi.json").then((answer) => answer.json()).then(({ paths }) => {
  document.querySelector("main").append(...Object.entries(paths).map(([path, item]) => operation(path, item.get)));
});
