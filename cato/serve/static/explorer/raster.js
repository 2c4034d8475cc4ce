// Fields on triangles as pixels: every pixel inside a triangle gets the linear interpolation of its
// corners, so grids, bent meshes and triangulated clouds are drawn alike and can be read off again.

const triangleCache = new Map();

/** Corners of the two triangles of every cell of an h × w mesh, nodes numbered row by row. */
export function gridTriangles(h, w) {
  const key = `${h}x${w}`;
  if (!triangleCache.has(key)) {
    const triangles = new Uint32Array(6 * (h - 1) * (w - 1));
    let at = 0;
    for (let i = 0; i < h - 1; i += 1) {
      for (let j = 0; j < w - 1; j += 1) {
        const node = i * w + j;
        triangles.set([node, node + w, node + 1, node + w, node + w + 1, node + 1], at);
        at += 6;
      }
    }
    triangleCache.set(key, triangles);
  }
  return triangleCache.get(key);
}

/** Edges of triangles that belong to one triangle only, as pairs of nodes. */
export function boundaryEdges(triangles) {
  const seen = new Map();
  for (let t = 0; t < triangles.length; t += 3) {
    for (const [a, b] of [[0, 1], [1, 2], [2, 0]]) {
      const [low, high] = [triangles[t + a], triangles[t + b]].sort((x, y) => x - y);
      const key = low * 2 ** 26 + high;
      seen.set(key, seen.has(key) ? null : [low, high]);
    }
  }
  return [...seen.values()].filter(Boolean);
}

/** From the plane to pixels: box = [left, right, bottom, top], y upwards. */
export function placing([left, right, bottom, top], width, height) {
  const sx = width / (right - left);
  const sy = height / (top - bottom);
  return {
    x: (x) => (x - left) * sx,
    y: (y) => (top - y) * sy,
    backX: (px) => left + px / sx,
    backY: (py) => top - py / sy,
  };
}

/** Values at the centres of width × height pixels; NaN where there is no triangle. */
export function rasterise({ positions, triangles, values }, box, width, height) {
  const out = new Float32Array(width * height).fill(NaN);
  const place = placing(box, width, height);
  for (let t = 0; t < triangles.length; t += 3) {
    const [a, b, c] = [triangles[t], triangles[t + 1], triangles[t + 2]];
    const ax = place.x(positions[2 * a]) - 0.5, ay = place.y(positions[2 * a + 1]) - 0.5;
    const bx = place.x(positions[2 * b]) - 0.5, by = place.y(positions[2 * b + 1]) - 0.5;
    const cx = place.x(positions[2 * c]) - 0.5, cy = place.y(positions[2 * c + 1]) - 0.5;
    const left = Math.max(0, Math.ceil(Math.min(ax, bx, cx)));
    const right = Math.min(width - 1, Math.floor(Math.max(ax, bx, cx)));
    const top = Math.max(0, Math.ceil(Math.min(ay, by, cy)));
    const bottom = Math.min(height - 1, Math.floor(Math.max(ay, by, cy)));
    const area = (bx - ax) * (cy - ay) - (cx - ax) * (by - ay);
    if (left > right || top > bottom || area === 0) continue;
    for (let y = top; y <= bottom; y += 1) {
      let wb = ((left - ax) * (cy - ay) - (cx - ax) * (y - ay)) / area;
      let wc = ((bx - ax) * (y - ay) - (left - ax) * (by - ay)) / area;
      const stepB = (cy - ay) / area, stepC = -(by - ay) / area;
      for (let x = left; x <= right; x += 1) {
        if (wb >= -1e-6 && wc >= -1e-6 && wb + wc <= 1 + 1e-6) {
          out[y * width + x] = values[a] + wb * (values[b] - values[a]) + wc * (values[c] - values[a]);
        }
        wb += stepB;
        wc += stepC;
      }
    }
  }
  return out;
}

/** Values as colours, on a canvas of the same size; NaN stays clear. */
export function paint(context, values, width, height, [low, high], colours) {
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const scale = high > low ? 255 / (high - low) : 0;
  for (let k = 0; k < values.length; k += 1) {
    const value = values[k];
    if (value === value) {
      pixels[k] = colours[Math.max(0, Math.min(255, Math.round((value - low) * scale)))];
    }
  }
  context.putImageData(image, 0, 0);
}

/** Size a canvas to its place on the page, at the screen's resolution; returns [width, height]. */
export function fit(canvas) {
  const density = Math.min(2, window.devicePixelRatio || 1);
  const { width, height } = canvas.getBoundingClientRect();
  const size = [Math.max(1, Math.round(width * density)), Math.max(1, Math.round(height * density))];
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  return size;
}

/** Give a stage the proportions of a box; the style sheet says how high it may be. */
export function shapeStage(stage, [left, right, bottom, top]) {
  stage.style.setProperty("--ratio", String((right - left) / (top - bottom)));
}
