// Mesh lines: the geometry in the editor, and the physical grid next to the chart.

import { themed } from "./colour.js";
import { boundaryEdges, fit, placing, shapeStage } from "./raster.js";

const MAX_LINES = 34;

const edgeCache = new WeakMap();

function edgesOf(triangles) {
  if (!edgeCache.has(triangles)) edgeCache.set(triangles, boundaryEdges(triangles));
  return edgeCache.get(triangles);
}

/** Every k-th of the numbers 0 … size − 1 for at most MAX_LINES, and the last. */
function some(size) {
  const stride = Math.ceil((size - 1) / (MAX_LINES - 1));
  const numbers = Array.from({ length: Math.ceil((size - 1) / stride) }, (_, k) => k * stride);
  return [...numbers, size - 1];
}

/** The lines of a mesh by the axis they run along: arrays of node numbers. */
function meshLines({ shape, triangles }) {
  if (shape.length === 1) {
    const sides = [];
    for (let t = 0; t < triangles.length; t += 3) {
      sides.push([triangles[t], triangles[t + 1], triangles[t + 2], triangles[t]]);
    }
    return [sides, []];
  }
  const [h, w] = shape;
  return [
    some(w).map((j) => Array.from({ length: h }, (_, i) => i * w + j)),
    some(h).map((i) => Array.from({ length: w }, (_, j) => i * w + j)),
  ];
}

/** Stroke lines without the parts outside the canvas: a far field would take most of the time. */
function trace(context, lines, positions, place) {
  const { width, height } = context.canvas;
  context.beginPath();
  for (const line of lines) {
    let [px, py, isDown] = [0, 0, false];
    for (let k = 0; k < line.length; k += 1) {
      const x = place.x(positions[2 * line[k]]);
      const y = place.y(positions[2 * line[k] + 1]);
      const isOutside = k === 0
        || (x < 0 && px < 0) || (x > width && px > width) || (y < 0 && py < 0) || (y > height && py > height);
      if (!isOutside) {
        if (!isDown) context.moveTo(px, py);
        context.lineTo(x, y);
      }
      [px, py, isDown] = [x, y, !isOutside];
    }
  }
  context.stroke();
}

/** Mesh lines in faint and the boundary in strong ink. */
export function drawGeometry(context, { positions, triangles, shape }, place, density) {
  context.lineJoin = "round";
  context.strokeStyle = themed("--mesh");
  context.globalAlpha = 0.6;
  context.lineWidth = 0.7 * density;
  for (const lines of meshLines({ shape, triangles })) trace(context, lines, positions, place);
  context.globalAlpha = 1;
  context.strokeStyle = themed("--edge");
  context.lineWidth = 2 * density;
  trace(context, withoutCuts(edgesOf(triangles), positions), positions, place);
}

/** Edges without those that coincide with another: where a mesh meets itself, it has no boundary. */
function withoutCuts(edges, positions) {
  const at = (node) => `${positions[2 * node]} ${positions[2 * node + 1]}`;
  const keys = edges.map((edge) => edge.map(at).sort().join(" "));
  const counts = new Map();
  for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1);
  return edges.filter((_, k) => counts.get(keys[k]) === 1);
}

/** The same nodes in one space. */
export class GridPanel {
  constructor(title) {
    this.element = document.createElement("figure");
    this.element.innerHTML = `<figcaption></figcaption>
      <div class="stage"><canvas role="img"></canvas></div><div class="probe"></div>`;
    this.element.querySelector("figcaption").textContent = title;
    this.title = title;
    this.stage = this.element.querySelector(".stage");
    this.canvas = this.element.querySelector("canvas");
    this.note = this.element.querySelector(".probe");
    new ResizeObserver(() => this.redraw()).observe(this.stage);
  }

  /** Show {positions, triangles, shape} in a box, in true proportions or stretched to a square. */
  show(mesh, box, note, isStretched = false) {
    Object.assign(this, { mesh, box });
    shapeStage(this.stage, isStretched ? [0, 1, 0, 1] : box);
    this.note.textContent = note;
    this.canvas.setAttribute("aria-label", `${this.title}: ${note}`);
    this.redraw();
  }

  redraw() {
    if (!this.mesh || !this.stage.clientWidth) return;
    const [width, height] = fit(this.canvas);
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, width, height);
    const place = placing(this.box, width, height);
    const density = width / this.stage.clientWidth;
    context.lineWidth = 0.9 * density;
    context.globalAlpha = 0.85;
    meshLines(this.mesh).forEach((lines, axis) => {
      context.strokeStyle = themed(`--axis-${axis}`);
      trace(context, lines, this.mesh.positions, place);
    });
    context.globalAlpha = 1;
  }
}

/** The box around the nodes (those for which `isCounted` holds), with a narrow margin. */
export function boxAround(positions, isCounted = () => true) {
  const box = [Infinity, -Infinity, Infinity, -Infinity];
  for (let k = 0; k < positions.length; k += 2) {
    if (!isCounted(k)) continue;
    box[0] = Math.min(box[0], positions[k]);
    box[1] = Math.max(box[1], positions[k]);
    box[2] = Math.min(box[2], positions[k + 1]);
    box[3] = Math.max(box[3], positions[k + 1]);
  }
  const [dx, dy] = [0.03 * (box[1] - box[0] || 1), 0.03 * (box[3] - box[2] || 1)];
  return [box[0] - dx, box[1] + dx, box[2] - dy, box[3] + dy];
}
