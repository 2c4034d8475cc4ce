// "Check with the solver": a job on the server, then reference, prediction and error side by side.

import { request } from "./api.js";
import { figure } from "./colour.js";
import { FieldPanel, rangeOf } from "./field.js";
import { errorFrame, framesOf, relativeError } from "./scene.js";

const POLL = 200;
const TITLES = ["Solver", "Model", "Error"];
const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const find = (id) => document.getElementById(id);

const inWords = (seconds) =>
  seconds < 1 ? `${figure(1000 * seconds)} ms` : `${figure(seconds)} s`;

export const percent = (error) => (error === null ? "not finite" : `${figure(100 * error)} %`);

/** The median error on the test split, and the worst, of one field; empty if it was not measured. */
export function typicalInWords(measured) {
  if (!measured || measured.median === null) return "";
  const warning = measured.hasLearnt ? "" : "; the model is no better than the training mean";
  return `Typical error on the test split ${percent(measured.median)}, worst ${percent(measured.worst)}${warning}.`;
}

/** Errors, what they are of, and what is typical: the headline of the benchmark first, then all outputs. */
function errorsOf({ editor, testErrors }, predicted, truth) {
  const headline = Object.entries(editor.headline);
  const all = [headline.length ? "all outputs" : "", editor.outputs];
  return [...headline, all].map(([name, outputs]) => ({
    error: relativeError(editor, outputs, predicted, truth),
    words: `relative L2 error of the model${name ? `, ${name}` : ""}.`,
    measured: testErrors.find(({ field }) => field === name) ?? (name ? null : testErrors[0]),
  }));
}

/** The times of the predicted frames of a rollout, which model and solver are both timed for. */
const jobInWords = ({ past, frames, timeAt }) =>
  past.length ? `, ${timeAt(0)} to ${timeAt(frames.length - 1).replace("t = ", "")}` : "";

/** The range that includes both. */
const joined = ([low, high], other) =>
  other ? [Math.min(low, other[0]), Math.max(high, other[1])] : [low, high];

export class Check {
  constructor() {
    this.panels = TITLES.map((title) => new FieldPanel(title));
    find("comparison").append(...this.panels.map((panel) => panel.element));
    find("cancel").addEventListener("click", () => this.cancel("Cancelled."));
    this.token = 0;
  }

  /** Reset, for another benchmark. */
  clear() {
    this.cancel("");
    this.result = null;
    find("comparison").hidden = true;
    find("verdict").hidden = true;
    this.#setStale(false);
  }

  /** The input has changed: mark the comparison as outdated. */
  outdate() {
    this.cancel("");
    if (this.result) {
      this.#setStale(true);
      find("check-state").textContent = "The input has changed since this check.";
    }
  }

  cancel(words) {
    if (this.job) request(`jobs/${this.job}`, { method: "DELETE" }).catch(() => {});
    this.job = null;
    this.token += 1;
    this.#setRunning(false, words);
  }

  /** Solve the input of a prediction and compare; throws errors with a message. */
  async run(model, prediction) {
    this.cancel("");
    const token = this.token;
    this.#setRunning(true, "Starting the solver …");
    try {
      const { values } = prediction;
      let job = await request(`models/${model.name}/solve`, { method: "POST", arrays: { values } });
      if (token !== this.token) {
        request(`jobs/${job.id}`, { method: "DELETE" }).catch(() => {});
        return;
      }
      this.job = job.id;
      while (job.state === "waiting" || job.state === "running") {
        const words = job.seconds ? `The solver is running: ${job.seconds.toFixed(1)} s` : "Starting the solver …";
        find("check-state").textContent = words;
        await wait(POLL);
        if (token !== this.token) return;
        job = await request(`jobs/${job.id}`);
        if (token !== this.token) return;
      }
      if (job.state !== "done") throw new Error(`No reference solution: ${job.message}.`);
      const { facts, arrays } = await request(`jobs/${job.id}/result`);
      if (token !== this.token) return;
      this.#finish(model, prediction, facts, arrays.targets);
    } finally {
      if (token === this.token) {
        this.job = null;
        this.#setRunning(false, "");
      }
    }
  }

  #finish(model, prediction, facts, targets) {
    const { editor } = model;
    const truth = framesOf(editor, prediction.mesh, targets);
    const errors = truth.map((frame, k) => errorFrame(editor, prediction.frames[k], frame));
    // While one input is edited, colours of later checks include those of earlier ones.
    const before = this.result?.prediction.range === prediction.range ? this.result : null;
    const range = joined(rangeOf([...truth, ...prediction.frames], editor.signed), before?.range);
    const errorRange = joined(rangeOf(errors, !editor.deformed), before?.errorRange);
    if (editor.deformed) errorRange[0] = 0;
    this.result = { editor, prediction, truth, errors, range, errorRange };
    this.#setStale(false);
    this.#tell(errorsOf(model, prediction.outputs.data, targets.data), facts, prediction);
    find("comparison").hidden = false;
    this.show(this.frame ?? 0);
  }

  #tell(errors, facts, prediction) {
    const [job, given] = [jobInWords(prediction), prediction.inputsSeconds];
    const ratio = figure(Number((facts.seconds / prediction.seconds).toPrecision(2)));
    const outside = prediction.verdict === "outside" ? " This input is outside the training range." : "";
    const parts = [
      ...errors.map(({ error, words, measured }) =>
        ["error", percent(error), `${words} ${typicalInWords(measured)}${outside}`]),
      ["solver", inWords(facts.seconds), `solver${job}${facts.compiled ? "; it was compiled first, check again for its time" : ""}`],
      ["model", inWords(prediction.seconds), `model${job}, same machine`],
      ...(facts.compiled ? [] : [["ratio", `${ratio} ×`, "as fast as the solver"]]),
    ];
    if (given && !facts.compiled) {
      const all = (given + facts.seconds) / (given + prediction.seconds);
      parts.push(["ratio", `${figure(Number(all.toPrecision(2)))} ×`, "including the given frames, which the solver computes"]);
    }
    const verdict = find("verdict");
    verdict.replaceChildren(...parts.map(([name, value, words]) => {
      const part = document.createElement("p");
      const strong = document.createElement("strong");
      [part.dataset.figure, strong.textContent] = [name, value];
      part.append(strong, words);
      return part;
    }));
    verdict.dataset.error = String(errors[0].error);
    verdict.hidden = false;
  }

  /** Show one predicted frame; the given frames before it have no error. */
  show(frame) {
    this.frame = Math.max(0, frame);
    if (!this.result) return;
    const { editor, prediction, truth, errors, range, errorRange } = this.result;
    const k = Math.min(this.frame, truth.length - 1);
    const common = { box: editor.view, unit: editor.unit, overlay: prediction.overlayAt(k) };
    const map = editor.signed ? "diverging" : "sequential";
    const [solver, model, error] = this.panels;
    const time = truth.length > 1 ? ` at ${prediction.timeAt(k)}` : "";
    TITLES.forEach((title, number) => { this.panels[number].caption.textContent = title + time; });
    solver.show({ ...common, frame: truth[k], range, map, label: editor.label });
    model.show({ ...common, frame: prediction.frames[k], range, map, label: editor.label });
    const [errorMap, label] = editor.deformed
      ? ["sequential", "Distance between model and solver"]
      : ["diverging", "Model − solver"];
    error.show({ ...common, frame: errors[k], range: errorRange, map: errorMap, label });
  }

  redraw() {
    for (const panel of this.panels) panel.redraw();
  }

  #setRunning(isRunning, words) {
    find("progress").hidden = find("cancel").hidden = !isRunning;
    find("check").disabled = isRunning;
    find("check-state").textContent = words;
  }

  #setStale(isStale) {
    for (const id of ["comparison", "verdict"]) find(id).classList.toggle("stale", isStale);
  }
}
