// Run an exported surrogate in JavaScript with ONNX Runtime Web: the pressure in a square with a disc
// of another permeability.
//
//   cato export darcy --out darcy.onnx
//   npm install
//   node predict.mjs darcy.onnx 29 > pressure.csv
//
// The metadata are printed to standard error, the nodes and the prediction to standard output.
// Values are physical: normalisation is part of the file. In a browser, fetch the bytes of the file
// instead of reading it; the rest is the same.

import { readFileSync } from "node:fs";
import * as ort from "onnxruntime-web";

// The properties cato.* of an ONNX file, which are JSON. ONNX Runtime Web does not give them, so they
// are taken from the protobuf message: metadata_props is field 14 of the model, and the key and
// the value of each are its fields 1 and 2.
function metadataOf(model) {
  const found = {};
  for (const [field, entry] of fieldsOf(model)) {
    if (field !== 14) continue;
    const [key, value] = [...fieldsOf(entry)].map(([, text]) => new TextDecoder().decode(text));
    if (key.startsWith("cato.")) found[key.slice(5)] = JSON.parse(value);
  }
  return found;
}

// Numbers and bytes of the fields of a protobuf message.
function* fieldsOf(message) {
  let place = 0;
  const varint = () => {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = message[place++];
      value += (byte % 128) * factor;
      if (byte < 128) return value;
    }
  };
  while (place < message.length) {
    const tag = varint();
    const wire = tag % 8;
    if (wire === 0) varint();
    else if (wire === 2) {
      const size = varint();
      yield [Math.floor(tag / 8), message.subarray(place, (place += size))];
    } else place += wire === 1 ? 8 : 4;
  }
}

const [path, size] = process.argv.slice(2);
const n = Number(size);
if (!path || !(n >= 3)) {
  console.error("usage: node predict.mjs MODEL.onnx NODES, for example predict.mjs darcy.onnx 29");
  process.exit(2);
}
const file = new Uint8Array(readFileSync(path));
const about = metadataOf(file);
console.error(`${about.model} on ${about.problem.name}, by cato ${about.cato}: ${about.computes}`);
const { inputs, outputs } = about.layout;
for (const [name, { axes, channels }] of Object.entries({ ...inputs, ...outputs })) {
  console.error(`${name} (${axes.join(", ")}): ${channels.join(", ")}`);
}

// One sample on n × n nodes of the unit square, channels last: positions and permeability.
const coords = new Float32Array(2 * n * n);
const permeability = new Float32Array(n * n);
for (let i = 0; i < n; i++) {
  for (let j = 0; j < n; j++) {
    const [x, y] = [i / (n - 1), j / (n - 1)];
    coords.set([x, y], 2 * (i * n + j));
    permeability[i * n + j] = Math.hypot(x - 0.5, y - 0.5) > 0.4 ? 12 : 3;
  }
}
const session = await ort.InferenceSession.create(file);
const solved = await session.run({
  coords: new ort.Tensor("float32", coords, [1, n, n, 2]),
  inputs: new ort.Tensor("float32", permeability, [1, n, n, 1]),
});
const pressure = solved.outputs.data;
const rows = Array.from(pressure, (u, node) => `${coords[2 * node]},${coords[2 * node + 1]},${u}`);
console.log(["x,y,u", ...rows].join("\n"));
