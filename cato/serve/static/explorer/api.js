// Requests to the routes of the explorer.

import { load, save } from "./safetensors.js";
import { fetchWithToken } from "./token.js";

const MAX_TRIES = 12;
const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Send a request. Retries while there is too much to do (429, 503); other errors throw a message. */
export async function request(path, { method = "GET", arrays = null } = {}) {
  const options = { method, keepalive: method === "DELETE" };
  if (arrays) {
    options.body = save(arrays);
    options.headers = { "content-type": "application/octet-stream" };
  }
  for (let tries = 1; ; tries += 1) {
    let response;
    try {
      response = await fetchWithToken(`api/${path}`, options);
    } catch {
      throw new Error("The server does not respond. Is `cato serve` still running?");
    }
    if ([429, 503].includes(response.status) && tries < MAX_TRIES) {
      await wait(150 * tries);
      continue;
    }
    const type = response.headers.get("content-type") ?? "";
    if (!response.ok) {
      const message = type.includes("json") ? (await response.json()).detail : response.statusText;
      throw new Error(`Error: ${message}`);
    }
    return type.includes("json") ? response.json() : load(await response.arrayBuffer());
  }
}
