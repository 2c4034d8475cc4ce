// A field as colours with a colour bar, and its value at the pointer.

import { MAPS, figure } from "./colour.js";
import { fit, paint, placing, rasterise, shapeStage } from "./raster.js";

const template = `
  <figcaption></figcaption>
  <div class="stage"><canvas role="img"></canvas></div>
  <div class="legend"><span></span><canvas></canvas><span></span></div>
  <div class="probe"></div>`;

export class FieldPanel {
  constructor(title = "") {
    this.element = document.createElement("figure");
    this.element.innerHTML = template;
    this.caption = this.element.querySelector("figcaption");
    this.caption.textContent = title;
    this.caption.hidden = !title;
    this.stage = this.element.querySelector(".stage");
    [this.canvas, this.bar] = this.element.querySelectorAll("canvas");
    [this.low, this.high] = this.element.querySelectorAll(".legend span");
    this.probe = this.element.querySelector(".probe");
    this.stage.addEventListener("pointermove", (event) => this.#read(event));
    this.stage.addEventListener("pointerleave", () => this.#rest());
    new ResizeObserver(() => this.redraw()).observe(this.stage);
  }

  /** Show a frame {positions, triangles, values} in a box with a range of values. */
  show(shown) {
    const isNew = this.shown?.map !== shown.map;
    this.shown = shown;
    shapeStage(this.stage, shown.box);
    const [least, most] = rangeOf([shown.frame], false);
    const [low, high] = shown.range.map(figure);
    // Values beyond the colours are shown in the last colour, and the legend says so.
    this.low.textContent = least < shown.range[0] ? `≤ ${low}` : low;
    this.high.textContent = most > shown.range[1] ? `≥ ${high}` : high;
    const what = `${shown.label}${shown.unit ? `, ${shown.unit}` : ""}`;
    const name = `${this.caption.textContent} ${what} from ${figure(shown.range[0])} to ${figure(shown.range[1])}`;
    this.canvas.setAttribute("aria-label", name.trim());
    if (isNew) this.#drawBar();
    if (!this.pointer) this.#rest();
    this.redraw();
  }

  redraw() {
    if (!this.shown || !this.stage.clientWidth) return;
    const { box, range, map, overlay } = this.shown;
    const [width, height] = fit(this.canvas);
    this.values = rasterise(this.shown.frame, box, width, height);
    const context = this.canvas.getContext("2d");
    paint(context, this.values, width, height, range, MAPS[map]);
    overlay?.(context, placing(box, width, height), width / this.stage.clientWidth);
    if (this.pointer) this.#read(this.pointer);
  }

  #drawBar() {
    [this.bar.width, this.bar.height] = [256, 1];
    const ramp = Float32Array.from({ length: 256 }, (_, k) => k);
    paint(this.bar.getContext("2d"), ramp, 256, 1, [0, 255], MAPS[this.shown.map]);
  }

  #rest() {
    this.pointer = null;
    const { label, unit } = this.shown ?? {};
    this.probe.textContent = label ? `${label}${unit ? ` (${unit})` : ""}` : "";
  }

  #read(event) {
    if (!this.values) return;
    this.pointer = { clientX: event.clientX, clientY: event.clientY };
    const frame = this.canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - frame.left) / frame.width) * this.canvas.width);
    const row = Math.floor(((event.clientY - frame.top) / frame.height) * this.canvas.height);
    const inside = column >= 0 && column < this.canvas.width && row >= 0 && row < this.canvas.height;
    const value = inside ? this.values[row * this.canvas.width + column] : NaN;
    const place = placing(this.shown.box, this.canvas.width, this.canvas.height);
    const where = `x = ${place.backX(column + 0.5).toFixed(2)}, y = ${place.backY(row + 0.5).toFixed(2)}`;
    const { label, unit } = this.shown;
    this.probe.textContent = Number.isNaN(value)
      ? `no value at ${where}`
      : `${label} = ${figure(value)}${unit ? ` ${unit}` : ""} at ${where}`;
  }
}

/** Smallest and largest value of several frames; centred at zero for signed fields. */
export function rangeOf(frames, isSigned) {
  let [low, high] = [Infinity, -Infinity];
  for (const { values } of frames) {
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  const most = Math.max(Math.abs(low), Math.abs(high));
  return isSigned ? [-most, most] : [low, high];
}
