// Colour maps as tables of 256 RGBA colours, and colours of the theme.

// Samples of Matplotlib's viridis (perceptually uniform) and RdBu_r (diverging), evenly spaced.
const ANCHORS = {
  sequential:
    "440154 48186a 472d7b 424086 3b528b 33638d 2c728e 26828e 21918c 1fa088 28ae80 3fbc73 5ec962 84d44b addc30 d8e219 fde725",
  diverging: "053061 2065ab 4393c3 90c4dd d1e5f0 f7f6f6 fddbc7 f3a481 d6604d b1182b 67001f",
};

function table(hex) {
  const anchors = hex.split(" ").map((word) => [0, 2, 4].map((at) => parseInt(word.slice(at, at + 2), 16)));
  const colours = new Uint32Array(256);
  const bytes = new Uint8Array(colours.buffer);
  for (let k = 0; k < 256; k += 1) {
    const place = (k / 255) * (anchors.length - 1);
    const left = Math.min(Math.floor(place), anchors.length - 2);
    for (let c = 0; c < 3; c += 1) {
      bytes[4 * k + c] = Math.round(
        anchors[left][c] + (place - left) * (anchors[left + 1][c] - anchors[left][c]),
      );
    }
    bytes[4 * k + 3] = 255;
  }
  return colours;
}

export const MAPS = { sequential: table(ANCHORS.sequential), diverging: table(ANCHORS.diverging) };

/** A colour of the style sheet, such as "--ink". */
export const themed = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Three significant digits, short. */
export function figure(value) {
  if (value === 0 || !Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size < 1e-3 || size >= 1e5) return value.toExponential(1).replace("-", "−").replace("e−", "e-").replace("e+", "e");
  return String(Number(value.toPrecision(3))).replace("-", "−");
}
