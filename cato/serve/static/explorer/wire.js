// Packed messages (see cato/serve/wire.py) and requests to this server.

const TYPES = { uint8: Uint8Array, uint32: Uint32Array, float32: Float32Array, float64: Float64Array };
const NAMES = new Map(Object.entries(TYPES).map(([name, type]) => [type, name]));
const ALIGN = 8;
const MAX_TRIES = 12;

const padded = (size) => Math.ceil(size / ALIGN) * ALIGN;

export function pack(arrays) {
  const listed = Object.entries(arrays).map(([name, { data, shape }]) => ({
    name, dtype: NAMES.get(data.constructor), shape,
  }));
  let head = JSON.stringify({ arrays: listed });
  head = head.padEnd(padded(4 + head.length) - 4);
  const sizes = Object.values(arrays).map(({ data }) => padded(data.byteLength));
  const bytes = new Uint8Array(4 + head.length + sizes.reduce((sum, size) => sum + size, 0));
  new DataView(bytes.buffer).setUint32(0, head.length, true);
  bytes.set(new TextEncoder().encode(head), 4);
  let start = 4 + head.length;
  Object.values(arrays).forEach(({ data }, index) => {
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), start);
    start += sizes[index];
  });
  return bytes;
}

export function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const { arrays: listed, ...facts } = JSON.parse(
    new TextDecoder().decode(new Uint8Array(buffer, 4, length)),
  );
  const arrays = {};
  let start = 4 + length;
  for (const { name, dtype, shape } of listed) {
    const data = new TYPES[dtype](buffer, start, shape.reduce((product, size) => product * size, 1));
    arrays[name] = { data, shape };
    start += padded(data.byteLength);
  }
  return { facts, arrays };
}

const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Ask the server; an overloaded one (503) is asked again quietly, other refusals are errors in words. */
export async function ask(path, { method = "GET", arrays = null } = {}) {
  const options = { method, keepalive: method === "DELETE" };
  if (arrays) {
    options.body = pack(arrays);
    options.headers = { "content-type": "application/octet-stream" };
  }
  for (let tries = 1; ; tries += 1) {
    let answer;
    try {
      answer = await fetch(`api/${path}`, options);
    } catch {
      throw new Error("The server does not answer. Is `cato serve` still running?");
    }
    if (answer.status === 503 && tries < MAX_TRIES) {
      await wait(150 * tries);
      continue;
    }
    const type = answer.headers.get("content-type") ?? "";
    if (!answer.ok) {
      const words = type.includes("json") ? (await answer.json()).detail : answer.statusText;
      throw new Error(`The server refused: ${words}`);
    }
    return type.includes("json") ? answer.json() : unpack(await answer.arrayBuffer());
  }
}
