// The explorer: choose a benchmark, change its input, watch the prediction follow.

import { Check, percent, typicalInWords } from "./check.js";
import { FieldPanel, rangeOf } from "./field.js";
import { boxAround, GridPanel } from "./grid.js";
import { PaintEditor } from "./paint.js";
import { drawDie, PointsEditor, SlidersEditor } from "./points.js";
import { framesOf, meshOf, pastFrames } from "./scene.js";
import { Timeline } from "./timeline.js";
import { request } from "./api.js";

const EDITORS = { paint: PaintEditor, points: PointsEditor, void: PointsEditor, sliders: SlidersEditor };
const find = (id) => document.getElementById(id);

const page = {
  benchmarks: [], benchmark: null, model: null, editor: null, prediction: null,
  isBusy: false, isOutdated: false, isNew: true,
};
const field = new FieldPanel();
const physical = new GridPanel("Physical grid");
const charted = new GridPanel("Chart ζ");
const check = new Check();
const timeline = new Timeline(find("timeline"), showFrame);
find("prediction").append(field.element);
find("charts").append(physical.element, charted.element);

function showError(error) {
  find("trouble").textContent = error ? error.message : "";
  find("trouble").hidden = !error;
}

/** Run an action and show its error message, if it fails. */
async function attempt(work) {
  try {
    await work();
  } catch (error) {
    showError(error);
    if (!(error instanceof Error) || error.name !== "Error") throw error;
  }
}

/** The input has changed. One request at a time; the latest input wins. */
async function changed() {
  check.outdate();
  page.isOutdated = true;
  if (page.isBusy) return;
  page.isBusy = true;
  while (page.isOutdated) {
    page.isOutdated = false;
    await attempt(predict);
  }
  page.isBusy = false;
  document.body.dataset.settled = String(performance.now());
}

async function predict() {
  const { model, editor } = page;
  const values = { data: editor.values.data.slice(), shape: editor.values.shape };
  if (model.editor.needsSolver) find("speed").textContent = "The solver is computing the given frames …";
  const began = performance.now();
  const { facts, arrays } = await request(`models/${model.name}/predict`, { method: "POST", arrays: { values } });
  if (model !== page.model) return; // another benchmark was selected meanwhile
  showError(null);
  const roundTrip = performance.now() - began;
  // Colours stay comparable while the visitor edits one input.
  const range = page.isNew ? null : page.prediction?.range;
  page.prediction = interpret(model.editor, values, facts, arrays, range);
  find("speed").textContent = speedInWords(facts, roundTrip);
  showRange(model, facts);
  show();
}

function speedInWords({ seconds, inputsSeconds }, roundTrip) {
  const model = `${(1000 * seconds).toFixed(0)} ms by the model`;
  if (inputsSeconds === null) return `${model}, ${roundTrip.toFixed(0)} ms round trip`;
  return `${model}, after ${(1000 * inputsSeconds).toFixed(0)} ms by the solver for the given frames`;
}

/** Whether the input is like the training inputs, and which error is typical for those. */
function showRange(model, { verdict, reason }) {
  const place = find("range");
  const typical = typicalInWords(model.testErrors[0]);
  place.dataset.verdict = verdict;
  place.textContent = {
    inside: `Inside the training range. ${typical}`,
    outside: `Outside the training range: ${reason}. ${typical} It does not apply here: the error may be far larger.`,
    unknown: `It is not known whether this input is inside the training range: ${reason}. ${typical}`,
  }[verdict];
}

/** Frames, mesh and times from the arrays of a response; the range of colours is kept, if given. */
function interpret(editor, values, facts, arrays, range) {
  const { outputs, coords, inputs = null, chart = null, triangles = null } = arrays;
  const mesh = meshOf(editor, coords, triangles);
  const frames = framesOf(editor, mesh, outputs);
  const past = editor.time === "rollout" ? pastFrames(editor, mesh, inputs) : [];
  const overlayAt = (k) => editor.die
    ? (context, place, density) =>
        drawDie(context, place, density, editor, inputs, (editor.die.travel * (k + 1)) / frames.length)
    : null;
  const timeAt = (k) => editor.times[past.length + k];
  return {
    timeAt, values, outputs, mesh, frames, past, overlayAt, coords, chart, inputs,
    seconds: facts.seconds, inputsSeconds: facts.inputsSeconds, verdict: facts.verdict,
    range: range ?? rangeOf([...past, ...frames], editor.signed),
  };
}

function show() {
  const { model, prediction } = page;
  const { shape } = model.editor;
  const { die, deformed } = model.editor;
  const triangles = prediction.mesh.triangles;
  const block = die ? prediction.coords.data.map((value) => die.length * value) : prediction.mesh.positions;
  page.editor.setPrediction({
    mesh: { positions: block, triangles, shape },
    inputs: die ? prediction.inputs : null,
    past: prediction.past,
    isNew: page.isNew,
  });
  const { past, frames, timeAt } = prediction;
  const words = (k) => timeAt(k - past.length)
    + (past.length ? ` (${k < past.length ? "given" : "predicted"})` : "");
  timeline.setUp(past.length + frames.length, words, deformed ? 10 : 5);
  if (page.isNew || past.length) timeline.present();
  page.isNew = false;
  showCharts();
}

function showFrame(number) {
  const { model, prediction } = page;
  if (!prediction) return;
  const { editor } = model;
  const k = number - prediction.past.length;
  field.show({
    frame: k < 0 ? prediction.past[number] : prediction.frames[k],
    range: prediction.range,
    box: editor.view,
    label: editor.label,
    unit: editor.unit,
    map: editor.signed ? "diverging" : "sequential",
    overlay: prediction.overlayAt(k),
  });
  check.show(k);
}

function showCharts() {
  const { model, prediction } = page;
  find("chart-card").hidden = !prediction.chart;
  if (!prediction.chart) return;
  const { shape, view } = model.editor;
  const { triangles } = prediction.mesh;
  const nodes = { positions: prediction.coords.data, triangles, shape };
  const isCloud = model.editor.geometry === "cloud";
  [find("chart-mesh").hidden, find("chart-cloud").hidden] = [isCloud, !isCloud];
  const isWhole = model.editor.geometry === "grid" || model.editor.deformed;
  const window = isWhole ? boxAround(nodes.positions) : view;
  physical.show(nodes, window, "x to the right, y upwards");
  const zeta = { ...nodes, positions: prediction.chart.data };
  const isShown = (k) => {
    const [x, y] = [nodes.positions[k], nodes.positions[k + 1]];
    return window[0] <= x && x <= window[1] && window[2] <= y && y <= window[3];
  };
  const box = boxAround(zeta.positions, isShown);
  const [left, right, bottom, top] = box.map((edge) => edge.toFixed(2).replace("-", "−"));
  charted.show(zeta, box, `ζ₁ from ${left} to ${right}, ζ₂ from ${bottom} to ${top}, each stretched to fit`, true);
}

async function setInput(seed) {
  const { model, editor } = page;
  const query = seed === null ? "" : `?seed=${seed}`;
  const { arrays } = await request(`models/${model.name}/draw${query}`);
  if (model !== page.model) return;
  editor.setValues(arrays.values);
  page.isNew = true;
  await changed();
}

const inWords = ({ field: name, error, mean, hasLearnt }) =>
  `${name} ${percent(error)}${mean === null ? "" : ` (training mean ${percent(mean)})`}`
  + (hasLearnt ? "" : ", no better than the training mean");

const randomSeed = () => Math.floor(Math.random() * 2 ** 32);

async function chooseModel(model) {
  if (page.model === model) return;
  Object.assign(page, { model, prediction: null });
  timeline.pause();
  timeline.root.hidden = true;
  check.clear();
  showError(null);
  find("hint").textContent = model.editor.hint;
  find("test-errors").textContent = model.testErrors.length
    ? `Test error of the model: ${model.testErrors.map(inWords).join("; ")}.` : "";
  if (model.falseAlarms !== null) {
    find("test-errors").textContent +=
      ` ${percent(model.falseAlarms)} of the test samples are called outside the training range.`;
  }
  find("speed").textContent = "…";
  find("range").textContent = "";
  find("editor").replaceChildren();
  page.editor = new EDITORS[model.editor.kind](find("editor"), model.editor, changed);
  await attempt(() => setInput(null));
}

async function chooseBenchmark(benchmark) {
  page.benchmark = benchmark;
  document.title = `${benchmark.title} · cato explorer`;
  find("about").textContent = benchmark.about;
  for (const button of find("benchmarks").children) {
    button.setAttribute("aria-pressed", String(button.dataset.name === benchmark.name));
  }
  find("model-choice").hidden = benchmark.models.length < 2;
  find("model").replaceChildren(...benchmark.models.map(({ name }) => new Option(name, name)));
  await chooseModel(benchmark.models[0]);
}

function followAddress() {
  const wanted = decodeURIComponent(location.hash.slice(1));
  const benchmark = page.benchmarks.find(({ name }) => name === wanted) ?? page.benchmarks[0];
  if (benchmark !== page.benchmark) chooseBenchmark(benchmark);
}

async function runCheck() {
  if (!page.prediction || find("check").disabled) return;
  showError(null);
  await attempt(async () => {
    while (page.isBusy) await new Promise((resolve) => setTimeout(resolve, 30));
    await check.run(page.model, page.prediction);
    check.show(timeline.frame - page.prediction.past.length);
  });
}

function redraw() {
  page.editor?.redraw();
  for (const panel of [field, physical, charted, check]) panel.redraw();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  redraw();
}

function listen() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = localStorage.getItem("theme");
  const follow = () => setTheme(chosen ?? (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", follow);
  follow();
  find("theme").addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem("theme", chosen);
    follow();
  });
  find("about-box").open = window.matchMedia("(min-width: 700px)").matches;
  find("draw").addEventListener("click", () => attempt(() => setInput(randomSeed())));
  find("reset").addEventListener("click", () => attempt(() => setInput(null)));
  find("check").addEventListener("click", runCheck);
  find("model").addEventListener("change", (event) => {
    chooseModel(page.benchmark.models.find(({ name }) => name === event.target.value));
  });
  window.addEventListener("hashchange", followAddress);
  window.addEventListener("pagehide", () => check.cancel(""));
  const keys = { r: () => find("draw").click(), s: () => find("check").click(), p: () => timeline.toggle() };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("select")) return;
    keys[event.key.toLowerCase()]?.();
  });
}

async function start() {
  listen();
  page.benchmarks = (await request("benchmarks")).benchmarks;
  find("benchmarks").append(...page.benchmarks.map(({ name, title }) => {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: title });
    button.dataset.name = name;
    button.addEventListener("click", () => { location.hash = name; });
    return button;
  }));
  document.querySelector("main").hidden = false;
  if (page.benchmarks.length) followAddress();
  else showError(new Error("None of the served models was trained on a benchmark. Use them through the API."));
}

attempt(start);
