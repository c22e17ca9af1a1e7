"use strict";
// Trains the network of the page by gradient descent on all points, and draws it; `step` is the generated function.
(() => {
const {sizes, params: start} = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const layers = sizes.slice(1), hidden = layers.reduce((sum, size) => sum + size, 0);
const taps = new Array(hidden).fill(0), COUNT = 120, EXTENT = 1.6;
let params, points, losses, pointed = 0, timer = null;

// --- points -----------------------------------------------------------------------------------------------------

function random(seed) { return () => { seed = (seed * 1664525 + 1013904223) >>> 0; return seed / 4294967296; }; }

const kinds = {
  circles: (at, side, noise) => { const r = side > 0 ? 0.45 : 1.15, a = 2 * Math.PI * at; return [r * Math.cos(a) + noise(), r * Math.sin(a) + noise()]; },
  corners: (at, side, noise, draw) => { const u = 0.15 + draw(), v = 0.15 + draw(), flip = draw() < 0.5 ? 1 : -1; return [flip * u + noise(), flip * side * v + noise()]; },
  moons: (at, side, noise) => { const a = Math.PI * at; return side > 0 ? [Math.cos(a) - 0.5 + noise(), Math.sin(a) - 0.3 + noise()] : [0.5 - Math.cos(a) + noise(), 0.3 - Math.sin(a) + noise()]; },
  spirals: (at, side, noise) => { const r = 0.2 + 1.1 * at, a = 4.5 * at + (side > 0 ? 0 : Math.PI); return [r * Math.cos(a) + noise() / 2, r * Math.sin(a) + noise() / 2]; },
};

function scatter(kind) {
  const draw = random(7), noise = () => 0.12 * (draw() + draw() - 1);
  points = Array.from({length: COUNT}, (_, place) => {
    const side = place % 2 ? 1 : -1;
    return [...kinds[kind](place / COUNT, side, noise, draw), side * 0.9];
  });
}

// --- training ---------------------------------------------------------------------------------------------------

const at = (x, y, label) => step(...params, ...taps, x, y, label);
const rate = () => 10 ** +byId("rate").value;

function descend() {  // the loss before the step
  const sums = new Array(params.length).fill(0);
  let loss = 0;
  for (const [x, y, label] of points) {
    const found = at(x, y, label);
    loss += found[0];
    for (let place = 0; place < sums.length; place++) sums[place] += found[1 + hidden + place];
  }
  params = params.map((value, place) => value - rate() * sums[place] / points.length);
  losses.push(loss / points.length);
  return loss / points.length;
}

function reset() { params = [...start]; losses = []; draw(); }

// --- drawing ----------------------------------------------------------------------------------------------------

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const signed = (value) => css(value >= 0 ? "--plus" : "--minus");
const mixed = (value) => { const part = Math.min(1, Math.abs(value)); return `color-mix(in srgb, ${signed(value)} ${Math.round(100 * part)}%, ${css("--page")})`; };

function nodes(width, height) {
  return sizes.map((size, layer) => Array.from({length: size}, (_, place) => ({
    x: 60 + (width - 120) * layer / (sizes.length - 1), y: height / 2 + (place - (size - 1) / 2) * Math.min(92, (height - 60) / Math.max(...sizes))})));
}

function drawNetwork() {
  const canvas = byId("network"), pen = canvas.getContext("2d"), all = nodes(canvas.width, canvas.height);
  const [x, y, label] = points[pointed], found = at(x, y, label), values = [x, y, ...found.slice(1, 1 + hidden)];
  const slopes = [0, 0, ...found.slice(1 + hidden + params.length)];
  pen.fillStyle = css("--page"); pen.fillRect(0, 0, canvas.width, canvas.height);
  let place = 0;
  for (let layer = 1; layer < sizes.length; layer++) {
    place += sizes[layer];  // the biases come first
    for (let from = 0; from < sizes[layer - 1]; from++) for (let to = 0; to < sizes[layer]; to++) {
      const weight = params[place++], one = all[layer - 1][from], two = all[layer][to];
      pen.strokeStyle = signed(weight); pen.globalAlpha = Math.min(1, 0.15 + Math.abs(weight) / 2); pen.lineWidth = Math.min(7, 0.5 + 2 * Math.abs(weight));
      pen.beginPath(); pen.moveTo(one.x + 24, one.y); pen.bezierCurveTo(one.x + 70, one.y, two.x - 70, two.y, two.x - 24, two.y); pen.stroke();
    }
  }
  pen.globalAlpha = 1; pen.textAlign = "center"; pen.textBaseline = "middle"; pen.font = "12px ui-monospace, Menlo, monospace";
  const top = Math.max(1e-9, ...slopes.map(Math.abs));
  all.flat().forEach((node, number) => {
    pen.beginPath(); pen.arc(node.x, node.y, 21, 0, 2 * Math.PI); pen.fillStyle = mixed(values[number] * 0.7); pen.fill();
    pen.lineWidth = 1 + 5 * Math.abs(slopes[number]) / top; pen.strokeStyle = number < 2 ? css("--line") : signed(slopes[number]); pen.stroke();
    pen.fillStyle = css("--text"); pen.fillText(values[number].toFixed(2), node.x, node.y);
    if (number >= 2) pen.fillText(slopes[number].toExponential(0), node.x, node.y + 32);
  });
  pen.fillText("inputs", all[0][0].x, 16); pen.fillText("output", all[all.length - 1][0].x, 16);
}

function drawSurface() {
  const canvas = byId("surface"), pen = canvas.getContext("2d"), cells = 38, cell = canvas.width / cells;
  const place = (value) => (value + EXTENT) / (2 * EXTENT) * canvas.width;
  for (let row = 0; row < cells; row++) for (let column = 0; column < cells; column++) {
    const x = (column + 0.5) / cells * 2 * EXTENT - EXTENT, y = (row + 0.5) / cells * 2 * EXTENT - EXTENT;
    pen.fillStyle = mixed(0.6 * at(x, -y, 0)[hidden]); pen.fillRect(column * cell, row * cell, cell + 1, cell + 1);
  }
  points.forEach(([x, y, label], number) => {
    pen.beginPath(); pen.arc(place(x), place(-y), number === pointed ? 7 : 3.6, 0, 2 * Math.PI); pen.fillStyle = signed(label); pen.fill();
    pen.lineWidth = number === pointed ? 3 : 1; pen.strokeStyle = css("--page"); pen.stroke();
  });
}

function drawCurve() {
  const canvas = byId("curve"), pen = canvas.getContext("2d"), top = Math.max(...losses, 1e-9);
  pen.fillStyle = css("--page"); pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.beginPath(); pen.strokeStyle = css("--plus"); pen.lineWidth = 2;
  losses.forEach((loss, place) => pen.lineTo(canvas.width * place / Math.max(1, losses.length - 1), canvas.height - 3 - (canvas.height - 6) * loss / top));
  pen.stroke();
}

function draw() {
  drawNetwork(); drawSurface(); drawCurve();
  const right = points.filter(([x, y, label]) => at(x, y, label)[hidden] * label > 0).length;
  byId("status").textContent = `step ${losses.length} · loss ${losses.length ? losses[losses.length - 1].toFixed(4) : "-"} · ${right} of ${points.length} right`;
}

// --- put together -----------------------------------------------------------------------------------------------

function play() {
  const button = byId("play");
  if (timer) { clearInterval(timer); timer = null; button.textContent = "▶ train"; return; }
  button.textContent = "❚❚ pause"; timer = setInterval(() => { for (let times = 0; times < 4; times++) descend(); draw(); }, 40);
}

byId("play").onclick = play;
byId("once").onclick = () => { descend(); draw(); };
byId("reset").onclick = reset;
byId("points").onchange = (event) => { scatter(event.target.value); pointed = 0; reset(); };
byId("rate").oninput = () => { byId("shown").textContent = rate().toFixed(rate() < 0.1 ? 3 : 2); };
byId("surface").onmousemove = (event) => {
  const box = event.target.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * 2 * EXTENT - EXTENT, y = EXTENT - (event.clientY - box.top) / box.height * 2 * EXTENT;
  let best = Infinity;
  points.forEach(([u, v], number) => { const far = (u - x) ** 2 + (v - y) ** 2; if (far < best) { best = far; pointed = number; } });
  drawNetwork(); drawSurface();
};
byId("code").textContent = byId("step").textContent.trim();
scatter("circles"); reset(); byId("rate").oninput();

// What tests ask.
window.playground = {descend: (times) => { const found = []; for (let n = 0; n < times; n++) found.push(descend()); draw(); return found; },
  params: () => params, points: () => points, rate, at: (place) => at(...points[place])};
})();
