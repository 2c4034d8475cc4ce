// Play, pause and scrub through frames.

const isStill = window.matchMedia("(prefers-reduced-motion: reduce)");

export class Timeline {
  /** `show` is called with the number of the frame whenever it changes. */
  constructor(root, show) {
    Object.assign(this, { root, show, frame: 0, count: 1, timer: null });
    root.innerHTML = `<button type="button"></button>
      <input type="range" min="0" step="1" aria-label="Time"><output></output>`;
    this.button = root.querySelector("button");
    this.range = root.querySelector("input");
    this.output = root.querySelector("output");
    this.button.addEventListener("click", () => this.toggle());
    this.range.addEventListener("input", () => {
      this.pause();
      this.go(Number(this.range.value));
    });
    this.pause();
  }

  /** Set the number of frames and their labels; hidden for a single frame. */
  setUp(count, words, framesPerSecond) {
    Object.assign(this, { count, words, framesPerSecond });
    this.root.hidden = count < 2;
    this.range.max = String(count - 1);
    this.go(Math.min(this.frame, count - 1));
  }

  go(frame) {
    this.frame = frame;
    this.range.value = String(frame);
    const words = this.words(frame);
    this.output.textContent = words;
    this.range.setAttribute("aria-valuetext", words);
    this.show(frame);
  }

  play() {
    if (this.timer || this.count < 2) return;
    if (this.frame === this.count - 1) this.go(0);
    this.button.textContent = "Pause";
    this.timer = setInterval(() => {
      if (this.frame >= this.count - 1) this.pause();
      else this.go(this.frame + 1);
    }, 1000 / this.framesPerSecond);
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.button.textContent = "Play";
  }

  toggle() {
    if (this.timer) this.pause();
    else this.play();
  }

  /** Play from the start; show the last frame if the visitor prefers reduced motion. */
  present() {
    this.pause();
    if (isStill.matches) this.go(this.count - 1);
    else {
      this.go(0);
      this.play();
    }
  }
}
