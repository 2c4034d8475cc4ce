// The description of the API, drawn from openapi.json.

import { fetchWithToken } from "/explorer/token.js";

const make = (tag, text = "", parent = null) => {
  const element = document.createElement(tag);
  element.textContent = text;
  if (parent) parent.append(element);
  return element;
};

// Resolve the references of a schema.
const written = (schema, all) => {
  if (Array.isArray(schema)) return schema.map(part => written(part, all));
  if (!schema || typeof schema !== "object") return schema;
  if (schema.$ref) return written(all[schema.$ref.split("/").pop()], all);
  return Object.fromEntries(Object.entries(schema)
    .filter(([key]) => key !== "title" || typeof schema.title !== "string")
    .map(([key, value]) => [key, written(value, all)]));
};

const showContent = (content, all, parent) => {
  for (const [type, { schema }] of Object.entries(content ?? {})) {
    const part = make("details", "", parent);
    make("code", type, make("summary", "", part));
    make("pre", JSON.stringify(written(schema, all), null, 1), part);
  }
};

// GET routes can be tried here; the response is shown as text, never as HTML.
const addTrial = (path, parent) => {
  const trial = document.getElementById("try").content.cloneNode(true);
  const [input, button, output] = ["input", "button", "pre"].map(tag => trial.querySelector(tag));
  input.value = path;
  button.onclick = async () => {
    const answer = await fetchWithToken(input.value);
    const text = await answer.text();
    output.hidden = false;
    output.textContent = `${answer.status}\n${text.slice(0, 20000)}`;
  };
  parent.append(trial);
};

const showRoute = (method, path, route, all, parent) => {
  const box = make("details", "", parent);
  const head = make("summary", "", box);
  make("b", method.toUpperCase(), head);
  make("code", path, head);
  head.append(" ", route.description ?? route.summary ?? "");
  if (route.requestBody) {
    make("p", "body: " + (route.requestBody.description ?? ""), box);
    showContent(route.requestBody.content, all, box);
  }
  const table = make("table", "", box);
  for (const [status, answer] of Object.entries(route.responses)) {
    const row = make("tr", "", table);
    make("td", status, row);
    showContent(answer.content, all, make("td", answer.description, row));
  }
  if (method === "get") addTrial(path, box);
};

fetch("/openapi.json").then(answer => answer.json()).then(api => {
  document.getElementById("version").textContent = `${api.info.version}: ${api.info.summary}`;
  const main = document.getElementById("routes");
  main.textContent = "";
  for (const [path, methods] of Object.entries(api.paths))
    for (const [method, route] of Object.entries(methods))
      showRoute(method, path, route, api.components?.schemas ?? {}, main);
});
