// Arrays of the server as frames to draw: {positions, triangles, values}, one per time.

import { gridTriangles } from "./raster.js";

/** Nodes of one sample without its channels. */
const count = (shape) => shape.reduce((product, size) => product * size, 1);

/** The positions (Float32Array, x and y by turns) and triangles of the nodes. */
export function meshOf(editor, coords, triangles) {
  if (editor.geometry === "cloud") return { positions: coords.data, triangles: triangles.data };
  const [h, w] = editor.shape;
  if (!editor.periodic) return { positions: coords.data, triangles: gridTriangles(h, w) };
  const positions = new Float32Array(2 * (h + 1) * (w + 1));
  for (let i = 0; i <= h; i += 1) {
    for (let j = 0; j <= w; j += 1) positions.set([i / h, j / w], 2 * (i * (w + 1) + j));
  }
  return { positions, triangles: gridTriangles(h + 1, w + 1) };
}

/** A field on a torus with its first row and column once more at the end. */
function wrapped(editor, values) {
  const [h, w] = editor.shape;
  const out = new Float32Array((h + 1) * (w + 1));
  for (let i = 0; i <= h; i += 1) {
    for (let j = 0; j <= w; j += 1) out[i * (w + 1) + j] = values[(i % h) * w + (j % w)];
  }
  return out;
}

const channel = (data, start, nodes, channels, number) =>
  Float32Array.from({ length: nodes }, (_, k) => data[start + k * channels + number]);

/** Frames of outputs (*frames, *mesh, channels). */
export function framesOf(editor, mesh, outputs) {
  const nodes = count(editor.shape);
  const channels = editor.outputs.length;
  const size = nodes * channels;
  const at = (name) => editor.outputs.indexOf(name);
  return Array.from({ length: outputs.data.length / size }, (_, frame) => {
    const read = (number) => channel(outputs.data, frame * size, nodes, channels, number);
    if (editor.deformed) {
      const [x, y, dx, dy] = ["x", "y", "dx", "dy"].map((name) => read(at(name)));
      const positions = Float32Array.from({ length: 2 * nodes }, (_, k) => (k % 2 ? y : x)[k >> 1]);
      return { ...mesh, positions, values: dx.map((value, k) => Math.hypot(value, dy[k])) };
    }
    return { ...mesh, values: editor.periodic ? wrapped(editor, read(0)) : read(0) };
  });
}

/** Past frames, which are the input channels of a rollout. */
export function pastFrames(editor, mesh, inputs) {
  const nodes = count(editor.shape);
  const channels = inputs.shape.at(-1);
  return Array.from({ length: channels }, (_, frame) => {
    const values = channel(inputs.data, 0, nodes, channels, frame);
    return { ...mesh, values: editor.periodic ? wrapped(editor, values) : values };
  });
}

/** How far a predicted frame is from the true one, on the true mesh. */
export function errorFrame(editor, predicted, truth) {
  const values = editor.deformed
    ? truth.values.map((_, k) => Math.hypot(
        predicted.positions[2 * k] - truth.positions[2 * k],
        predicted.positions[2 * k + 1] - truth.positions[2 * k + 1],
      ))
    : truth.values.map((value, k) => predicted.values[k] - value);
  return { ...truth, values };
}

/** ‖prediction − truth‖ / ‖truth‖ over all frames and nodes of some outputs, as `cato evaluate` has it. */
export function relativeError(editor, names, predicted, truth) {
  const isCounted = editor.outputs.map((name) => names.includes(name));
  let [error, size] = [0, 0];
  for (let k = 0; k < truth.length; k += 1) {
    if (!isCounted[k % isCounted.length]) continue;
    error += (predicted[k] - truth[k]) ** 2;
    size += truth[k] ** 2;
  }
  return error === 0 ? 0 : Math.sqrt(error / size);
}
