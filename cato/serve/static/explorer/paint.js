// A medium of two materials, painted with a round brush: by pointer, or by arrow keys and space.

import { themed } from "./colour.js";
import { fit, shapeStage } from "./raster.js";

const STEP = 0.02;
const SIZES = { min: 0.02, max: 0.25, step: 0.01 };

const template = `
  <div class="brushes">
    <button type="button" data-colour="1"></button>
    <button type="button" data-colour="0"></button>
    <label>Brush <input type="range" min="${SIZES.min}" max="${SIZES.max}" step="${SIZES.step}" value="0.08"
      aria-label="Size of the brush"></label>
  </div>
  <div class="stage paint" tabindex="0" role="application"><canvas></canvas></div>
  <div class="probe keys">Arrow keys move the brush, Space paints, X swaps the colour, [ and ] change the size.</div>`;

export class PaintEditor {
  constructor(root, editor, changed) {
    Object.assign(this, { editor, changed, colour: 1, cursor: [0.5, 0.5], isHeld: false });
    this.size = editor.paint.size;
    root.innerHTML = template;
    this.stage = root.querySelector(".stage");
    this.stage.setAttribute("aria-label", `${editor.paint.label}. Arrow keys move the brush, Space paints.`);
    this.canvas = root.querySelector("canvas");
    this.range = root.querySelector("input");
    this.buttons = [...root.querySelectorAll("button")];
    for (const button of this.buttons) {
      button.textContent = editor.paint.names[Number(button.dataset.colour)];
      button.addEventListener("click", () => this.#choose(Number(button.dataset.colour)));
    }
    this.range.addEventListener("input", () => this.redraw());
    this.tiles = document.createElement("canvas");
    [this.tiles.width, this.tiles.height] = [this.size, this.size];
    shapeStage(this.stage, editor.box);
    this.#choose(1);
    this.#listen();
    new ResizeObserver(() => this.redraw()).observe(this.stage);
  }

  setValues({ data, shape }) {
    this.values = { data: Uint8Array.from(data), shape };
    this.redraw();
  }

  setPrediction() {}

  redraw() {
    if (!this.values || !this.stage.clientWidth) return;
    const n = this.size;
    const tiles = this.tiles.getContext("2d");
    const colours = ["--low", "--high"].map(themed);
    [0, 1].forEach((value) => {
      tiles.fillStyle = colours[value];
      if (!value) tiles.fillRect(0, 0, n, n);
      else this.values.data.forEach((cell, k) => cell && tiles.fillRect(Math.floor(k / n), n - 1 - (k % n), 1, 1));
    });
    const [width, height] = fit(this.canvas);
    const context = this.canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.drawImage(this.tiles, 0, 0, width, height);
    this.#drawBrush(context, width, height);
  }

  #drawBrush(context, width, height) {
    if (!this.isOver && document.activeElement !== this.stage) return;
    const [x, y] = this.cursor;
    for (const [ink, line] of [["#000", 3], ["#fff", 1.5]]) {
      context.strokeStyle = ink;
      context.lineWidth = line * (width / this.stage.clientWidth);
      context.beginPath();
      context.arc(x * width, (1 - y) * height, (Number(this.range.value) * width) / 2, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  /** Colour all nodes within the brush around a point of the unit square. */
  #dab([x, y], colour) {
    const n = this.size;
    const radius = Number(this.range.value) / 2;
    const near = (centre) => [
      Math.max(0, Math.ceil((centre - radius) * (n - 1))),
      Math.min(n - 1, Math.floor((centre + radius) * (n - 1))),
    ];
    const [[left, right], [low, high]] = [near(x), near(y)];
    for (let i = left; i <= right; i += 1) {
      for (let j = low; j <= high; j += 1) {
        if (Math.hypot(i / (n - 1) - x, j / (n - 1) - y) <= radius) this.values.data[i * n + j] = colour;
      }
    }
  }

  /** Paint from the last place of the brush to a new one. */
  #stroke(to, colour) {
    const from = this.cursor;
    const parts = Math.max(1, Math.ceil(Math.hypot(to[0] - from[0], to[1] - from[1]) / 0.01));
    for (let k = 1; k <= parts; k += 1) {
      this.#dab(from.map((start, axis) => start + (k / parts) * (to[axis] - start)), colour);
    }
    this.cursor = to;
    this.redraw();
    this.changed();
  }

  #choose(colour) {
    this.colour = colour;
    for (const button of this.buttons) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.colour) === colour));
    }
  }

  #place(event) {
    const frame = this.canvas.getBoundingClientRect();
    return [(event.clientX - frame.left) / frame.width, 1 - (event.clientY - frame.top) / frame.height];
  }

  #listen() {
    const { stage } = this;
    let colour = null;
    stage.addEventListener("contextmenu", (event) => event.preventDefault());
    stage.addEventListener("pointerdown", (event) => {
      stage.setPointerCapture(event.pointerId);
      colour = event.button === 2 ? 1 - this.colour : this.colour;
      this.cursor = this.#place(event);
      this.#stroke(this.cursor, colour);
    });
    stage.addEventListener("pointermove", (event) => {
      this.isOver = true;
      if (colour !== null) this.#stroke(this.#place(event), colour);
      else {
        this.cursor = this.#place(event);
        this.redraw();
      }
    });
    for (const kind of ["pointerup", "pointercancel"]) stage.addEventListener(kind, () => { colour = null; });
    stage.addEventListener("pointerleave", () => { this.isOver = false; this.redraw(); });
    for (const kind of ["focus", "blur"]) stage.addEventListener(kind, () => this.redraw());
    stage.addEventListener("keydown", (event) => this.#key(event));
    stage.addEventListener("keyup", (event) => { if (event.key === " ") this.isHeld = false; });
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = event.shiftKey ? 4 * STEP : STEP;
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (event.key in moves) {
      const to = this.cursor.map((place, axis) => Math.max(0, Math.min(1, place + moves[event.key][axis])));
      if (this.isHeld) this.#stroke(to, this.colour);
      else {
        this.cursor = to;
        this.redraw();
      }
    } else if (event.key === " ") {
      this.isHeld = true;
      this.#stroke(this.cursor, this.colour);
    } else if (event.key === "x" || event.key === "X") {
      this.#choose(1 - this.colour);
    } else if (event.key === "[" || event.key === "]") {
      this.range.value = String(Number(this.range.value) + (event.key === "[" ? -2 : 2) * SIZES.step);
      this.redraw();
    } else return;
    event.preventDefault();
  }
}
