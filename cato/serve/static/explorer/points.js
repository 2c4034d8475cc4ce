// Shapes moved by points, and numbers moved by sliders.

import { figure, themed } from "./colour.js";
import { FieldPanel, rangeOf } from "./field.js";
import { drawGeometry } from "./grid.js";
import { fit, placing, shapeStage } from "./raster.js";

const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

/** Points that each move along a line with one value: foil, pipe, die. */
class LinearPoints {
  constructor({ controls }) {
    this.controls = controls;
    this.handles = controls.map((control) => ({ ...control, isSmall: control.is_small }));
  }

  place(values, number) {
    const { anchor, along, follows } = this.controls[number];
    const [x, y] = follows === null ? [0, 0] : this.#offset(values, follows);
    return [anchor[0] + x + values[number] * along[0], anchor[1] + y + values[number] * along[1]];
  }

  /** The values when a point is pulled to (x, y). */
  pull(values, number, [x, y]) {
    const { along, low, high } = this.controls[number];
    const [px, py] = this.place(values, number);
    const length = along[0] ** 2 + along[1] ** 2;
    const step = ((x - px) * along[0] + (y - py) * along[1]) / length;
    values[number] = clamp(values[number] + step, low, high);
  }

  /** The values after some presses of an arrow key, up or outwards. */
  nudge(values, number, presses) {
    const { step, low, high, along } = this.controls[number];
    values[number] = clamp(values[number] + presses * step * Math.sign(along[1] || along[0]), low, high);
  }

  reading(values, number) {
    return values[number];
  }

  #offset(values, number) {
    const { along } = this.controls[number];
    return along.map((direction) => direction * values[number]);
  }
}

/** Points on the edge of a void, r = inner + (outer − inner) / (1 + exp r̃), r̃ a sum of waves. */
class VoidPoints {
  constructor({ controls, void: law }) {
    Object.assign(this, { controls, law });
    this.handles = Array.from({ length: law.points }, (_, j) => ({
      angle: Math.PI / 2 + (2 * Math.PI * j) / law.points,
      label: `Edge of the void, point ${j + 1} of ${law.points}`,
      low: law.inner, high: law.outer, step: 0.005, unit: "",
    }));
  }

  #exponent(values, angle) {
    let sum = 0;
    for (let k = 1; 2 * k <= values.length; k += 1) {
      sum += values[2 * k - 2] * Math.cos(k * angle) + values[2 * k - 1] * Math.sin(k * angle);
    }
    return sum;
  }

  reading(values, number) {
    const { inner, outer } = this.law;
    return inner + (outer - inner) / (1 + Math.exp(this.#exponent(values, this.handles[number].angle)));
  }

  place(values, number) {
    const radius = this.reading(values, number);
    const { angle } = this.handles[number];
    const { centre } = this.law;
    return [centre + radius * Math.cos(angle), centre + radius * Math.sin(angle)];
  }

  pull(values, number, [x, y]) {
    const { angle } = this.handles[number];
    const { centre } = this.law;
    this.#setRadius(values, number, (x - centre) * Math.cos(angle) + (y - centre) * Math.sin(angle));
  }

  nudge(values, number, presses) {
    const radius = this.reading(values, number) + presses * this.handles[number].step;
    this.#setRadius(values, number, radius);
  }

  /** Change r̃ by δ at one point and by −δ / (P − 1) at the others: there is no mean to change. */
  #setRadius(values, number, radius) {
    const { inner, outer, reach, points } = this.law;
    const share = clamp((radius - inner) / (outer - inner), 1e-6, 1 - 1e-6);
    const wanted = clamp(Math.log(1 / share - 1), -reach, reach);
    const { angle } = this.handles[number];
    const part = (2 / (points - 1)) * (wanted - this.#exponent(values, angle));
    for (let k = 1; 2 * k <= values.length; k += 1) {
      const { low, high } = this.controls[2 * k - 2];
      values[2 * k - 2] = clamp(values[2 * k - 2] + part * Math.cos(k * angle), low, high);
      values[2 * k - 1] = clamp(values[2 * k - 1] + part * Math.sin(k * angle), low, high);
    }
  }
}

export class PointsEditor {
  constructor(root, editor, changed) {
    Object.assign(this, { editor, changed });
    this.points = editor.kind === "void" ? new VoidPoints(editor) : new LinearPoints(editor);
    root.innerHTML = `<div class="stage"><canvas></canvas></div><div class="probe"></div>`;
    this.stage = root.querySelector(".stage");
    this.canvas = root.querySelector("canvas");
    this.note = root.querySelector(".probe");
    this.buttons = this.points.handles.map((handle, number) => this.#button(handle, number));
    this.stage.append(...this.buttons);
    shapeStage(this.stage, editor.box);
    new ResizeObserver(() => this.redraw()).observe(this.stage);
  }

  setValues({ data, shape }) {
    this.values = { data: Float64Array.from(data), shape };
    this.#arrange();
    this.redraw();
  }

  /** The mesh of the latest prediction. */
  setPrediction({ mesh, inputs }) {
    Object.assign(this, { mesh, inputs });
    this.redraw();
  }

  redraw() {
    if (!this.values || !this.stage.clientWidth) return;
    const [width, height] = fit(this.canvas);
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, width, height);
    const place = placing(this.editor.box, width, height);
    const density = width / this.stage.clientWidth;
    if (this.mesh) drawGeometry(context, this.mesh, place, density);
    this.#drawStems(context, place, density);
    if (this.inputs && this.mesh) drawDie(context, place, density, this.editor, this.inputs, 0);
  }

  /** From the points that turn to the points they belong to; the sides of the box around a foil. */
  #drawStems(context, place, density) {
    context.strokeStyle = themed("--handle");
    context.lineWidth = 1.3 * density;
    context.setLineDash([4 * density, 4 * density]);
    const { controls } = this.editor;
    this.points.handles.forEach((handle, number) => {
      if (!handle.isSmall) return;
      const from = controls[number].follows === null ? [0, 0] : this.points.place(this.values.data, controls[number].follows);
      const to = this.points.place(this.values.data, number);
      context.beginPath();
      context.moveTo(place.x(from[0]), place.y(from[1]));
      context.lineTo(place.x(to[0]), place.y(to[1]));
      context.stroke();
    });
    for (const side of this.editor.sides ?? []) {
      context.beginPath();
      for (const corner of side) {
        const at = typeof corner === "number" ? this.points.place(this.values.data, corner) : corner;
        context.lineTo(place.x(at[0]), place.y(at[1]));
      }
      context.stroke();
    }
    context.setLineDash([]);
  }

  #button(handle, number) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = handle.isSmall ? "handle small" : "handle";
    button.setAttribute("role", "slider");
    button.setAttribute("aria-label", handle.label);
    button.setAttribute("aria-valuemin", handle.low);
    button.setAttribute("aria-valuemax", handle.high);
    let grip = null;
    button.addEventListener("pointerdown", (event) => {
      button.setPointerCapture(event.pointerId);
      const at = this.points.place(this.values.data, number);
      grip = this.#plane(event).map((place, axis) => at[axis] - place);
      this.#tell(number);
    });
    button.addEventListener("pointermove", (event) => {
      if (!grip) return;
      const to = this.#plane(event).map((place, axis) => place + grip[axis]);
      this.points.pull(this.values.data, number, to);
      this.#moved(number);
    });
    for (const kind of ["pointerup", "pointercancel"]) button.addEventListener(kind, () => { grip = null; });
    button.addEventListener("focus", () => this.#tell(number));
    button.addEventListener("keydown", (event) => {
      const presses = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 5, PageDown: -5 }[event.key];
      if (!presses) return;
      event.preventDefault();
      this.points.nudge(this.values.data, number, event.shiftKey ? 4 * presses : presses);
      this.#moved(number);
    });
    return button;
  }

  #moved(number) {
    this.#arrange();
    this.#tell(number);
    this.redraw();
    this.changed();
  }

  #tell(number) {
    const { label, unit } = this.points.handles[number];
    this.note.textContent = `${label}: ${figure(this.points.reading(this.values.data, number))} ${unit}`;
  }

  #plane(event) {
    const frame = this.canvas.getBoundingClientRect();
    const place = placing(this.editor.box, frame.width, frame.height);
    return [place.backX(event.clientX - frame.left), place.backY(event.clientY - frame.top)];
  }

  #arrange() {
    const [left, right, bottom, top] = this.editor.box;
    this.buttons.forEach((button, number) => {
      const [x, y] = this.points.place(this.values.data, number);
      button.style.left = `${(100 * (x - left)) / (right - left)}%`;
      button.style.top = `${(100 * (top - y)) / (top - bottom)}%`;
      const reading = this.points.reading(this.values.data, number);
      button.setAttribute("aria-valuenow", reading.toPrecision(3));
      button.setAttribute("aria-valuetext", `${figure(reading)} ${this.points.handles[number].unit}`);
    });
  }
}

/** The die above the block, moved down by a distance. */
export function drawDie(context, place, density, editor, inputs, lowered) {
  const [columns, rows] = editor.shape;
  const { length, height } = editor.die;
  context.beginPath();
  // Beyond the block the die goes on flat.
  for (let i = -1; i <= columns; i += 1) {
    const column = clamp(i, 0, columns - 1);
    const x = place.x((length * column) / (columns - 1) + (i - column) * length);
    context.lineTo(x, place.y(height + inputs.data[column * rows] - lowered));
  }
  context.lineTo(place.x(2 * length), -9);
  context.lineTo(place.x(-length), -9);
  context.closePath();
  context.fillStyle = themed("--mesh");
  context.globalAlpha = 0.35;
  context.fill();
  context.globalAlpha = 1;
  context.strokeStyle = themed("--edge");
  context.lineWidth = 2 * density;
  context.stroke();
}

/** A few numbers, and the field that they make. */
export class SlidersEditor {
  constructor(root, editor, changed) {
    Object.assign(this, { editor, changed });
    root.innerHTML = `<div class="sliders"></div>`;
    this.panel = new FieldPanel();
    root.prepend(this.panel.element);
    this.rows = editor.controls.map((control, number) => {
      const label = document.createElement("label");
      const kind = control.step < 1 ? "range" : "number";
      label.innerHTML = `<span></span><output></output><input type="${kind}">`;
      label.querySelector("span").textContent = control.label;
      const input = label.querySelector("input");
      Object.assign(input, { min: control.low, max: control.high, step: control.step });
      input.addEventListener("input", () => {
        if (!input.checkValidity() || input.value === "") return;
        this.values.data[number] = Number(input.value);
        this.#tell();
        changed();
      });
      root.querySelector(".sliders").append(label);
      return { input, output: label.querySelector("output"), unit: control.unit, isTold: kind === "range" };
    });
  }

  setValues({ data, shape }) {
    this.values = { data: Float64Array.from(data), shape };
    this.rows.forEach(({ input }, number) => { input.value = String(data[number]); });
    this.#tell();
  }

  /** The given frames of the latest prediction; colours change with a new input only. */
  setPrediction({ past, isNew }) {
    const { box, label, unit, signed, times } = this.editor;
    const frame = past[0];
    this.panel.element.hidden = !frame;
    if (!frame) return;
    const map = signed ? "diverging" : "sequential";
    if (isNew || !this.range) this.range = rangeOf([frame], signed);
    this.panel.show({ frame, range: this.range, box, label: `${label} at ${times[0]}`, unit, map });
  }

  redraw() {
    this.panel.redraw();
  }

  #tell() {
    this.rows.forEach(({ output, unit, isTold }, number) => {
      output.hidden = !isTold;
      output.textContent = `${figure(this.values.data[number])} ${unit}`;
    });
  }
}
