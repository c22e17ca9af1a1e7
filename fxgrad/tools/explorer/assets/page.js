"use strict";
// The explorer: draws the graph in the data on a canvas, folds and unfolds it, and plays the film of its stages.
(() => {
const started = performance.now();
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const canvas = byId("canvas"), pen = canvas.getContext("2d");
const MOST_LAID_OUT = 400;  // boxes for which dagre is quick; more stand in levels
const CHARACTER = 7.0, LONGEST_LABEL = 38, HEIGHT = 40, LEVEL = 74, GAP = 26, ROW = 60;
const FONT = "12px ui-monospace, Menlo, Consolas, monospace", SMALL = "10.5px ui-monospace, Menlo, Consolas, monospace";
const TOP = -1, READABLE = 0.9, CARRY = 6;  // READABLE: letters of 11 px; CARRY: between lines that go back

// --- the graph: what folds into what ------------------------------------------------------------------------

function prepared(graph) {
  graph.items.forEach((item, id) => { item.id = id; item.children = []; });
  graph.top = [];
  for (const item of graph.items) (item.in === TOP ? graph.top : graph.items[item.in].children).push(item.id);
  graph.into = graph.items.map(() => []);
  graph.outof = graph.items.map(() => []);
  for (const [from, place, to] of graph.edges) { graph.into[to].push([from, place]); graph.outof[from].push(to); }
  for (const item of graph.items) if (item.of !== undefined) (graph.items[item.of].cotangents ??= []).push(item.id);
  for (let id = graph.items.length - 1; id >= 0; id--) {  // what is inside comes after what is around it, but for scopes
    const item = graph.items[id];
    if (item.kind === "scope" || item.kind === "region") sum(graph, item);
  }
  graph.open = new Set();
  graph.inside = TOP;
  for (const item of graph.items) if (item.kind === "region") graph.open.add(item.id);
  const few = graph.items.length <= 120;
  for (const item of graph.items) if (few && item.kind === "scope") graph.open.add(item.id);
  return graph;
}

function sum(graph, item) {
  const all = inside(graph, item.id).map((id) => graph.items[id]).filter((each) => each.kind === "op");
  item.flops = all.reduce((total, each) => total + (each.flops || 0), 0);
  item.bytes = all.reduce((total, each) => total + (each.bytes || 0), 0);
  item.norm = all.reduce((most, each) => Math.max(most, each.norm || 0), 0);
  item.count = all.length;
}

function inside(graph, id) {
  const found = [], pending = [...graph.items[id].children];
  while (pending.length) { const next = pending.pop(); found.push(next); pending.push(...graph.items[next].children); }
  return found;
}

const folds = (item) => item.children.length > 0;
const isOpen = (id) => graph.open.has(id) && folds(graph.items[id]);

function ancestors(id) {
  const found = [];
  for (let up = graph.items[id].in; up !== TOP; up = graph.items[up].in) found.push(up);
  return found;
}

const regions = (id) => ancestors(id).filter((up) => graph.items[up].kind === "region").length;

function shownAs(id) {  // the outermost closed item around it, or itself; null outside of what is shown
  let shown = id, reached = graph.inside === TOP;
  if (id === graph.inside) return null;
  for (const up of ancestors(id)) {
    if (up === graph.inside) { reached = true; break; }
    if (!graph.open.has(up)) shown = up;
  }
  return reached ? shown : null;
}

function sourcesOf(from, place) {  // an open operation's output comes from what makes it inside
  const item = graph.items[from];
  if (!isOpen(from) || !item.outs) return [from];
  return (item.outs[place] || []).flatMap((id) => graph.items[id].kind === "op" ? sourcesOf(id, 0) : [id]);
}

// --- layout ---------------------------------------------------------------------------------------------------

let graph, boxes, clusters, lines, selected = null, view = {x: 0, y: 0, scale: 1}, heat = "", most = {};

function label(item) {
  const text = item.kind === "op" ? item.label : item.kind === "leaf" ? item.label : `${item.label}  (${item.count})`;
  return text.length > LONGEST_LABEL ? text.slice(0, LONGEST_LABEL - 1) + "…" : text;
}

function boxOf(item) {
  const name = label(item), type = (item.type || "").length > 34 ? item.type.slice(0, 33) + "…" : item.type || "";
  const mark = folds(item) ? 2 : 0;
  return {id: item.id, item, name, type, w: Math.max(56, 22 + CHARACTER * Math.max(name.length + mark, type.length * 0.88)),
          h: type ? HEIGHT : 26, x: 0, y: 0};
}

function laidOut() {
  boxes = new Map(); clusters = new Map();
  const pending = graph.inside === TOP ? [...graph.top] : [...graph.items[graph.inside].children];
  const order = [];
  while (pending.length) {
    const id = pending.shift(), item = graph.items[id];
    if (isOpen(id)) { clusters.set(id, {id, item, name: clusterName(item)}); pending.unshift(...item.children); }
    else { boxes.set(id, boxOf(item)); order.push(id); }
  }
  const seen = new Set(); lines = [];
  for (const [from, place, to, kind] of graph.edges) {
    const target = shownAs(to), carried = kind === "carry";
    if (target === null || clusters.has(target)) continue;  // an open operation: its leaves have the edges
    for (const origin of sourcesOf(from, place)) {
      const source = shownAs(origin);
      if (source === null || source === target || !boxes.has(source) || !boxes.has(target)) continue;
      const key = (carried ? "carry " : "") + source + " " + target;
      if (!seen.has(key)) { seen.add(key); lines.push({source: boxes.get(source), target: boxes.get(target), points: null, carried}); }
    }
  }
  if (boxes.size <= MOST_LAID_OUT) layered(); else inLevels(order);
  bounds(); back();
}

function back() {  // what a loop carries goes back on the right of all boxes, inside of the frame of its body
  const count = new Map();
  for (const line of lines.filter((each) => each.carried)) {
    const cluster = clusters.get(line.target.item.in), number = (count.get(cluster) || 0) + 1;
    count.set(cluster, number);
    const {source, target} = line, right = cluster ? cluster.frame[2] - CARRY * number : Math.max(source.x + source.w / 2, target.x + target.w / 2) + 2 * CARRY;
    const below = source.y + source.h / 2, above = target.y - target.h / 2;
    line.points = [{x: source.x, y: below}, {x: source.x, y: below + CARRY}, {x: right, y: below + CARRY},
      {x: right, y: above - CARRY}, {x: target.x, y: above - CARRY}, {x: target.x, y: above}];
  }
}

function clusterName(item) {
  return item.kind === "op" ? item.label.slice(0, 60) : item.label;
}

function layered() {
  const made = new dagre.graphlib.Graph({compound: true, multigraph: false});
  made.setGraph({ranksep: 34, nodesep: 22, edgesep: 10, marginx: 20, marginy: 20});
  made.setDefaultEdgeLabel(() => ({}));
  for (const id of clusters.keys()) made.setNode(String(id), {});
  for (const box of boxes.values()) made.setNode(String(box.id), {width: box.w, height: box.h});
  for (const id of [...clusters.keys(), ...boxes.keys()]) {
    const around = graph.items[id].in;
    if (clusters.has(around)) made.setParent(String(id), String(around));
  }
  const ahead = lines.filter((line) => !line.carried);
  for (const line of ahead) made.setEdge(String(line.source.id), String(line.target.id));
  dagre.layout(made);
  for (const box of boxes.values()) { const at = made.node(String(box.id)); box.x = at.x; box.y = at.y; }
  for (const line of ahead) line.points = made.edge(String(line.source.id), String(line.target.id)).points;
}

function inLevels(order) {
  const rank = new Map(order.map((id) => [id, 0]));
  const into = new Map();
  for (const line of lines.filter((each) => !each.carried)) {
    if (!into.has(line.target.id)) into.set(line.target.id, []);
    into.get(line.target.id).push(line.source.id);
  }
  for (const id of order) for (const from of into.get(id) || []) rank.set(id, Math.max(rank.get(id), rank.get(from) + 1));
  const levels = [];
  for (const id of order) (levels[rank.get(id)] ??= []).push(boxes.get(id));
  let y = 0;
  for (const level of levels) {
    for (let start = 0; level && start < level.length; start += ROW) {
      const row = level.slice(start, start + ROW);
      const width = row.reduce((total, box) => total + box.w + GAP, -GAP);
      let x = -width / 2;
      for (const box of row) { box.x = x + box.w / 2; box.y = y; x += box.w + GAP; }
      y += LEVEL;
    }
  }
}

function bounds() {  // of clusters, from what is in them, innermost first
  for (const cluster of [...clusters.values()].reverse()) {
    let left = Infinity, top = Infinity, right = -Infinity, bottom = -Infinity;
    for (const child of graph.items[cluster.id].children) {
      const box = boxes.get(child), inner = clusters.get(child);
      const [l, t, r, b] = box ? [box.x - box.w / 2, box.y - box.h / 2, box.x + box.w / 2, box.y + box.h / 2] : inner ? inner.frame : [Infinity, Infinity, -Infinity, -Infinity];
      left = Math.min(left, l); top = Math.min(top, t); right = Math.max(right, r); bottom = Math.max(bottom, b);
    }
    const carries = lines.filter((line) => line.carried && line.target.item.in === cluster.id).length;
    const space = carries && CARRY * (carries + 1);
    cluster.frame = [left - 12, top - 24 - 2 * (carries && CARRY), right + 12 + space, bottom + 12];
  }
}

// --- drawing --------------------------------------------------------------------------------------------------

const color = {};
function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["page", "text", "faint", "box", "box-line", "input", "input-line", "parameter", "parameter-line", "constant", "constant-line",
    "backward", "backward-line", "group", "edge", "on", "line"]) color[name] = style.getPropertyValue("--" + name).trim();
}

function lookOf(item) {
  if (item.kind === "leaf") return item.role === "parameter" ? "parameter" : item.role === "constant" ? "constant" : "input";
  return item.part === "backward" || item.role === "gradient" ? "backward" : "box";
}

function heatOf(item) {
  const value = item[heat];
  return !heat || !value || !most[heat] ? null : heatAt(value / most[heat]);
}

function heatAt(share) {  // of the most: small ones are told apart, too
  const part = Math.log1p(share * 1000) / Math.log1p(1000);
  return `hsl(${50 - 50 * part} ${60 + 35 * part}% ${dark() ? 18 + 22 * part : 94 - 30 * part}%)`;
}
const dark = () => matchMedia("(prefers-color-scheme: dark)").matches;

let asked = false, lastFrame = 0;
function redraw() { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; draw(); }); } }

function draw() {
  const begun = performance.now(), ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
  }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = color.page; pen.fillRect(0, 0, width, height);
  pen.translate(view.x, view.y); pen.scale(view.scale, view.scale);
  const seen = [-view.x / view.scale, -view.y / view.scale, (width - view.x) / view.scale, (height - view.y) / view.scale];
  for (const cluster of clusters.values()) drawCluster(cluster);
  drawLines(seen);
  pen.textAlign = "center"; pen.textBaseline = "middle";
  for (const box of boxes.values()) {
    if (box.x + box.w / 2 < seen[0] || box.x - box.w / 2 > seen[2] || box.y + box.h / 2 < seen[1] || box.y - box.h / 2 > seen[3]) continue;
    drawBox(box);
  }
  lastFrame = performance.now() - begun;
}

function drawCluster(cluster) {
  const [left, top, right, bottom] = cluster.frame;
  pen.beginPath(); pen.roundRect(left, top, right - left, bottom - top, 8);
  pen.fillStyle = color.group; pen.fill();
  pen.strokeStyle = selected === cluster.id ? color.on : color.line; pen.lineWidth = selected === cluster.id ? 2 : 1; pen.stroke();
  if (view.scale > 0.3) {
    pen.fillStyle = color.faint; pen.font = SMALL; pen.textAlign = "left"; pen.textBaseline = "top";
    pen.fillText("▾ " + cluster.name, left + 8, top + 6);
  }
}

function drawLines(seen) {
  const plain = new Path2D(), marked = new Path2D(), carried = new Path2D(), heads = view.scale > 0.25;
  for (const line of lines) {
    const {source, target} = line;
    if (Math.max(source.x, target.x) + 200 < seen[0] || Math.min(source.x, target.x) - 200 > seen[2] ||
        Math.max(source.y, target.y) < seen[1] || Math.min(source.y, target.y) > seen[3]) continue;
    const on = selected !== null && (source.id === selected || target.id === selected);
    trace(on ? marked : line.carried ? carried : plain, line, heads);
  }
  pen.lineWidth = Math.max(1, 0.7 / view.scale); pen.strokeStyle = color.edge; pen.stroke(plain);
  pen.setLineDash([5, 3]); pen.stroke(carried); pen.setLineDash([]);
  pen.lineWidth = 2; pen.strokeStyle = color.on; pen.stroke(marked);
  const item = selected !== null && graph.items[selected];
  for (const other of item ? [item.of, ...(item.cotangents || [])] : []) {
    const one = boxes.get(selected), two = other === undefined ? null : boxes.get(shownAs(other));
    if (!one || !two) continue;
    pen.setLineDash([6, 5]); pen.strokeStyle = color["backward-line"]; pen.lineWidth = 2;
    pen.beginPath(); pen.moveTo(one.x, one.y); pen.lineTo(two.x, two.y); pen.stroke(); pen.setLineDash([]);
  }
}

function trace(path, line, heads) {
  const points = line.points || [{x: line.source.x, y: line.source.y + line.source.h / 2}, {x: line.target.x, y: line.target.y - line.target.h / 2}];
  path.moveTo(points[0].x, points[0].y);
  if (line.carried) for (const point of points) path.lineTo(point.x, point.y);
  else for (let at = 1; at < points.length - 1; at++) {
    const next = points[at + 1], here = points[at];
    path.quadraticCurveTo(here.x, here.y, (here.x + next.x) / 2, (here.y + next.y) / 2);
  }
  const end = points[points.length - 1], before = points[points.length - 2];
  path.lineTo(end.x, end.y);
  if (!heads) return;
  const angle = Math.atan2(end.y - before.y, end.x - before.x);
  for (const turn of [2.7, -2.7]) { path.moveTo(end.x, end.y); path.lineTo(end.x + 7 * Math.cos(angle + turn), end.y + 7 * Math.sin(angle + turn)); }
}

function drawBox(box) {
  const {item} = box, look = lookOf(item), left = box.x - box.w / 2, top = box.y - box.h / 2;
  pen.beginPath();
  pen.roundRect(left, top, box.w, box.h, item.kind === "leaf" ? box.h / 2 : 6);
  pen.fillStyle = heatOf(item) || color[look]; pen.fill();
  const near = selected !== null && (graph.into[selected]?.some(([from]) => from === box.id) || graph.outof[selected]?.includes(box.id));
  pen.strokeStyle = box.id === selected || near ? color.on : color[look + "-line"];
  pen.lineWidth = box.id === selected ? 3 : item.returns ? 2.4 : 1.2; pen.stroke();
  if (folds(item)) { pen.beginPath(); pen.roundRect(left + 3, top + 3, box.w - 6, box.h - 6, 4); pen.lineWidth = 1; pen.stroke(); }
  if (view.scale < 0.3) return;
  pen.fillStyle = color.text; pen.font = FONT;
  const text = (folds(item) ? "▸ " : "") + box.name;
  pen.fillText(text, box.x, box.type ? box.y - 7 : box.y);
  if (box.type) { pen.fillStyle = color.faint; pen.font = SMALL; pen.fillText(box.type, box.x, box.y + 9); }
}

// --- moving about ---------------------------------------------------------------------------------------------

function fit(least = 0) {  // into the window; what would be smaller than `least` from its beginning, so that it can be read
  let left = Infinity, top = Infinity, right = -Infinity, bottom = -Infinity;
  for (const box of boxes.values()) {
    left = Math.min(left, box.x - box.w / 2); right = Math.max(right, box.x + box.w / 2);
    top = Math.min(top, box.y - box.h / 2); bottom = Math.max(bottom, box.y + box.h / 2);
  }
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (!isFinite(left)) { redraw(); return; }
  const whole = Math.min(1.4, (width - 40) / (right - left + 1), (height - 60) / (bottom - top + 1));
  const scale = Math.max(least, whole);
  const tall = scale * (bottom - top) > height - 60, wide = scale * (right - left) > width - 40;
  const first = [...boxes.values()].reduce((one, box) => box.y < one.y ? box : one);  // of the highest
  const middle = wide ? Math.min(Math.max(first.x, left + (width / 2 - 20) / scale), right - (width / 2 - 20) / scale) : (left + right) / 2;
  view = {scale, x: width / 2 - scale * middle, y: tall ? 40 - scale * top : height / 2 - scale * (top + bottom) / 2};
  redraw();
}

function centre(id) {
  const shown = shownAs(id), box = boxes.get(shown), cluster = clusters.get(shown);
  const at = box || (cluster && {x: (cluster.frame[0] + cluster.frame[2]) / 2, y: cluster.frame[1] + 40});
  if (!at) return;
  view.scale = Math.max(view.scale, 0.8);
  view.x = canvas.clientWidth / 2 - view.scale * at.x; view.y = canvas.clientHeight / 2 - view.scale * at.y;
  redraw();
}

function at(event) {
  const place = canvas.getBoundingClientRect();
  const x = (event.clientX - place.left - view.x) / view.scale, y = (event.clientY - place.top - view.y) / view.scale;
  for (const box of boxes.values()) if (Math.abs(box.x - x) <= box.w / 2 && Math.abs(box.y - y) <= box.h / 2) return box.id;
  let found = null;
  for (const {id, frame} of clusters.values()) if (x >= frame[0] && x <= frame[2] && y >= frame[1] && y <= frame[1] + 24) found = id;
  return found;
}

function toggle(id) {
  const item = graph.items[id];
  if (!item || !folds(item)) return;
  if (graph.open.has(id)) graph.open.delete(id);
  else if (boxes.size + item.children.length > MOST_LAID_OUT) { enter(id); return; }
  else { graph.open.add(id); }
  renew(id);
}

function enter(id) { graph.inside = id; selected = null; crumbs(); laidOut(); fit(READABLE); panel(); }

function renew(kept) {  // a new layout, in which the box that was clicked stays where it is
  const before = boxes.get(kept) || clusters.get(kept), old = before && corner(before);
  laidOut();
  const after = boxes.get(kept) || clusters.get(kept);
  if (old && after) { const now = corner(after); view.x += (old[0] - now[0]) * view.scale; view.y += (old[1] - now[1]) * view.scale; }
  panel(); say(); redraw();
}
const corner = (shape) => shape.frame ? [(shape.frame[0] + shape.frame[2]) / 2, shape.frame[1]] : [shape.x, shape.y - shape.h / 2];

function all(open) {
  for (const item of graph.items) if (folds(item) && item.kind !== "region") open ? graph.open.add(item.id) : graph.open.delete(item.id);
  graph.inside = TOP; crumbs(); laidOut(); fit();
}

function crumbs() {
  const holder = byId("crumbs"); holder.replaceChildren();
  if (graph.inside === TOP) return;
  const way = [graph.inside, ...ancestors(graph.inside)].reverse().filter((id) => graph.items[id].kind !== "region");
  holder.append(link("all", () => enter(TOP)));
  for (const id of way) holder.append(" / ", link(graph.items[id].label.slice(0, 30), () => enter(id)));
}

function reveal(id) {  // unfolds what is around it, if there is room
  if (shownAs(id) === null) graph.inside = TOP;
  const closed = ancestors(id).filter((up) => !graph.open.has(up));
  if (closed.length && boxes.size + closed.reduce((sum, up) => sum + graph.items[up].children.length, 0) > MOST_LAID_OUT) {
    graph.inside = graph.items[id].in;
  } else closed.forEach((up) => graph.open.add(up));
  crumbs(); laidOut();
}

function select(id, move) {
  if (id !== null && move) { if (shownAs(id) !== id) reveal(id); }
  selected = id;
  if (id !== null && move) centre(id);
  panel(); markText(); say(); redraw();
}

// --- the panel ------------------------------------------------------------------------------------------------

function link(text, action) {
  const made = document.createElement("a");
  made.textContent = text; made.onclick = action; made.tabIndex = 0; made.setAttribute("role", "link");
  made.onkeydown = (event) => { if (event.key === "Enter") action(); };
  return made;
}

function nameOf(id) { const item = graph.items[id]; return item.name || item.label; }

function panel() {
  const holder = byId("node"); holder.replaceChildren();
  const table = document.createElement("dl");
  const row = (name, ...parts) => {
    const key = document.createElement("dt"), value = document.createElement("dd");
    key.textContent = name; value.append(...parts); value.className = "code"; table.append(key, value);
  };
  const rowOf = (name, ids) => {
    if (ids.length) row(name, ...ids.slice(0, 30).flatMap((id, place) => [place ? ", " : "", link(nameOf(id), () => select(id, true))]),
      ids.length > 30 ? ` and ${ids.length - 30} more` : "");
  };
  const item = selected === null ? null : graph.items[selected];
  const head = document.createElement("p");
  if (!item) {
    const ops = graph.items.filter((each) => each.kind === "op");
    head.textContent = "Click a box to see what it is.";
    row("operations", ops.length.toLocaleString()); row("leaves", graph.items.filter((each) => each.kind === "leaf").length.toLocaleString());
    row("flops", graph.top.reduce((sum, id) => sum + (graph.items[id].flops || 0), 0).toLocaleString());
  } else {
    const code = document.createElement("code"); code.textContent = item.label; head.append(code);
    row("is", item.kind === "leaf" ? `${item.role}, a leaf` : item.kind === "op" ? `made by ${item.op}` : item.kind,
        item.returns ? ", returned" : "");
    if (item.type) row("type", item.type);
    if (item.value) row("value", item.value);
    if (item.grad) row("gradient", item.grad);
    if (item.flops) row("flops", item.flops.toLocaleString());
    if (item.bytes) row("bytes", item.bytes.toLocaleString());
    if (item.line) row("line", `${item.line[0]}:${item.line[1]}`);
    if (item.line && graph.sources[item.line[0]]?.[item.line[1]]) row("", graph.sources[item.line[0]][item.line[1]].trim());
    rowOf("made of", [...new Set(graph.into[item.id].map(([from]) => from))]);
    rowOf("used by", [...new Set(graph.outof[item.id])]);
    if (item.of !== undefined) rowOf("cotangent of", [item.of]);
    rowOf("cotangent", item.cotangents || []);
    const around = ancestors(item.id).filter((id) => graph.items[id].kind !== "region");
    rowOf("inside", around);
    if (folds(item)) {
      const buttons = document.createElement("p");
      for (const [text, action] of [[graph.open.has(item.id) ? "fold" : "unfold", () => toggle(item.id)], ["look inside", () => enter(item.id)]]) {
        const button = document.createElement("button"); button.textContent = text; button.onclick = action; buttons.append(button, " ");
      }
      table.after(buttons); holder.append(head, table, buttons); return;
    }
  }
  holder.append(head, table);
}

function legend() {
  const holder = byId("legend"); holder.replaceChildren();
  const looks = [["input", "input"], ["parameter", "parameter"], ["constant", "constant"], ["box", "operation"], ["backward", "backward"]];
  for (const [look, text] of looks.filter(([look]) => graph.items.some((item) => lookOf(item) === look))) {
    const swatch = document.createElement("span");
    swatch.style.background = color[look]; swatch.style.borderColor = color[look + "-line"];
    holder.append(swatch, text);
  }
  if (lines.some((line) => line.carried)) { const dash = document.createElement("i"); holder.append(dash, "carried to the next step"); }
  if (!heat) return;
  const scale = document.createElement("div"), shares = [0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1];
  scale.className = "scale"; scale.setAttribute("role", "img");
  const [unit, top] = [{norm: "length of the gradient", flops: "flops", bytes: "bytes"}[heat], most[heat]];
  scale.setAttribute("aria-label", `heat: ${unit}, from 0 to ${number(top)}`);
  const bar = document.createElement("b");
  bar.style.background = `linear-gradient(to right, ${shares.map((share) => `${heatAt(share)} ${100 * Math.log1p(share * 1000) / Math.log1p(1000)}%`).join(", ")})`;
  for (const share of [0, 0.01, 0.1, 1]) {
    const tick = document.createElement("em"); tick.textContent = number(share * top);
    tick.style.left = `${100 * Math.log1p(share * 1000) / Math.log1p(1000)}%`; bar.append(tick);
  }
  scale.append(`${unit} `, bar); holder.append(scale);
}
const number = (value) => value === 0 ? "0" : value >= 1e6 ? value.toExponential(1) : value >= 100 ? Math.round(value).toLocaleString() : String(+value.toPrecision(2));


// --- the film -------------------------------------------------------------------------------------------------

let stage = 0, timer = null, compared = null, followed = "";
function showStage(number) {
  stage = (number + data.stages.length) % data.stages.length;
  byId("stages").value = stage; byId("note").textContent = `${stage + 1} of ${data.stages.length}. ${data.stages[stage].note}`;
  write(byId("text"), stage); markText(); markFollowed();
}

function write(holder, number) {
  holder.replaceChildren(...data.stages[number].lines.map(([mark, text, place]) => {
    const made = document.createElement("span");
    made.className = mark === "+" ? "added" : mark === "-" ? "gone" : "same";
    made.textContent = text || " "; made.dataset.place = place;
    if (place) { made.title = place; made.onclick = () => follow(place); }
    return made;
  }));
}

// A second stage beside the first, or none.
function compare(number) {
  compared = number; byId("beside").value = number === null ? "" : number;
  byId("text-beside").hidden = number === null; document.querySelector("aside").classList.toggle("wide", number !== null);
  if (number !== null) write(byId("text-beside"), number);
  markFollowed();
}

// Marks what is of one line of the user's in all stages, until it is asked for again.
function follow(place) { followed = followed === place ? "" : place; markFollowed(); }

function markFollowed() {
  for (const holder of [byId("text"), byId("text-beside")]) {
    let first = null;
    for (const line of holder.children) {
      const on = followed !== "" && line.dataset.place === followed;
      line.classList.toggle("followed", on);
      if (on && !first) first = line;
    }
    if (first && !holder.hidden && !byId("film").hidden) first.scrollIntoView({block: "nearest"});
  }
}

function markText() {
  const item = selected === null ? null : graph.items[selected];
  const names = item && item.kind === "op" ? item.name.split(", ") : [];
  let first = null;
  for (const line of byId("text").children) {
    const start = /^\s*([\w.\[\]'"]+)\s*(:|=|,)/.exec(line.textContent);
    const on = start !== null && names.includes(start[1]) && !line.classList.contains("gone");
    line.classList.toggle("on", on);
    if (on && !first) first = line;
  }
  if (first && !byId("film").hidden) first.scrollIntoView({block: "nearest"});
}

function play() {
  const button = byId("play");
  if (timer) { clearInterval(timer); timer = null; button.textContent = "▶ play"; return; }
  button.textContent = "❚❚ pause"; timer = setInterval(() => showStage(stage + 1), 1800); showStage(stage + 1);
}

// --- searching ------------------------------------------------------------------------------------------------

let matches = [], chosen = 0;
function search(text) {
  const wanted = text.trim().toLowerCase(), holder = byId("found");
  matches = wanted ? graph.items.filter((item) => item.label.toLowerCase().includes(wanted) || (item.op || "").includes(wanted) ||
    (item.name || "").toLowerCase() === wanted).slice(0, 200) : [];
  matches.sort((one, other) => exact(other, wanted) - exact(one, wanted) || regions(one.id) - regions(other.id));
  chosen = 0; holder.hidden = !wanted; byId("search").setAttribute("aria-expanded", String(Boolean(wanted)));
  const shown = matches.slice(0, 30).map((item, place) => {
    const made = document.createElement("li"); made.textContent = item.label.slice(0, 60);
    made.onmousedown = () => choose(place); made.id = `found-${place}`; made.setAttribute("role", "option"); return made;
  });
  if (wanted && !shown.length) { const none = document.createElement("li"); none.textContent = "nothing is called so"; none.setAttribute("role", "option"); shown.push(none); }
  holder.replaceChildren(...shown); point();
}
function point() {
  [...byId("found").children].forEach((entry, place) => { entry.classList.toggle("on", place === chosen); entry.setAttribute("aria-selected", String(place === chosen)); });
  byId("search").setAttribute("aria-activedescendant", matches.length ? `found-${chosen}` : "");
}
const exact = (item, wanted) => (item.name || item.label).toLowerCase() === wanted ? 2 : (item.name || "").toLowerCase().startsWith(wanted) ? 1 : 0;
function choose(place) { byId("found").hidden = true; byId("search").setAttribute("aria-expanded", "false"); if (matches[place]) select(matches[place].id, true); }

// --- tabs and keys --------------------------------------------------------------------------------------------

function tabs(list) {  // arrows go from tab to tab, as people who use no mouse expect
  for (const tab of list.children) tab.setAttribute("role", "tab");
  list.onkeydown = (event) => {
    const all = [...list.children], place = all.indexOf(document.activeElement);
    const next = {ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: all.length - 1}[event.key];
    if (place < 0 || next === undefined) return;
    const tab = all[(next + all.length) % all.length];
    tab.click(); tab.focus(); event.preventDefault(); event.stopPropagation();
  };
}

function mark(list, number) {
  [...list.children].forEach((tab, place) => {
    tab.classList.toggle("on", place === number); tab.tabIndex = place === number ? 0 : -1;
    tab.setAttribute("aria-selected", String(place === number));
    if (place === number && list.id === "graphs") byId("stage").setAttribute("aria-labelledby", tab.id);
  });
}

function beside(direction) {  // the box that an arrow goes to: along a line up and down, else to the nearest in its row
  const here = selected === null ? null : boxes.get(shownAs(selected));
  const all = [...boxes.values()];
  if (!here) return all.reduce((one, box) => !one || box.y < one.y || (box.y === one.y && box.x < one.x) ? box : one, null);
  const near = (found) => found.reduce((one, box) => !one || Math.hypot(box.x - here.x, box.y - here.y) < Math.hypot(one.x - here.x, one.y - here.y) ? box : one, null);
  const ahead = lines.filter((line) => !line.carried);
  if (direction === "ArrowDown") return near(ahead.filter((line) => line.source === here).map((line) => line.target));
  if (direction === "ArrowUp") return near(ahead.filter((line) => line.target === here).map((line) => line.source));
  const side = direction === "ArrowRight" ? 1 : -1;
  return near(all.filter((box) => (box.x - here.x) * side > 0 && Math.abs(box.y - here.y) < HEIGHT)) || near(all.filter((box) => (box.x - here.x) * side > 0));
}

canvas.onkeydown = (event) => {
  const step = {ArrowUp: [0, 60], ArrowDown: [0, -60], ArrowLeft: [60, 0], ArrowRight: [-60, 0]}[event.key];
  if (step && event.shiftKey) { view.x += step[0]; view.y += step[1]; redraw(); }
  else if (step) { const box = beside(event.key); if (box) { select(box.id, true); } }
  else if (event.key === "Enter" || event.key === " ") { if (selected !== null) toggle(selected); }
  else if (event.key === "+" || event.key === "=") zoom(1.25, canvas.clientWidth / 2, canvas.clientHeight / 2);
  else if (event.key === "-") zoom(0.8, canvas.clientWidth / 2, canvas.clientHeight / 2);
  else return;
  event.preventDefault();
};

function zoom(by, x, y) {  // about a point of the window
  const scale = Math.min(4, Math.max(0.004, view.scale * by));
  view.x = x - (x - view.x) * scale / view.scale; view.y = y - (y - view.y) * scale / view.scale; view.scale = scale; redraw();
}

function say() {  // to who does not see the boxes
  const item = selected === null ? null : graph.items[selected];
  byId("said").textContent = item ? `${item.label}${item.type ? ", " + item.type : ""}${folds(item) ? graph.open.has(item.id) ? ", unfolded" : ", folded" : ""}` : "";
}

// --- put together ---------------------------------------------------------------------------------------------

function show(number) {
  graph = data.graphs[number];
  mark(byId("graphs"), number);
  selected = null; most = {};
  for (const name of ["norm", "flops", "bytes"])
    most[name] = graph.items.reduce((top, item) => item.kind === "op" || item.kind === "leaf" ? Math.max(top, item[name] || 0) : top, 0);
  crumbs(); laidOut(); legend(); panel(); fit(READABLE);
}

readColors();
data.graphs.forEach(prepared);
data.graphs.forEach(({name}, number) => {
  const button = document.createElement("button"); button.textContent = name; button.onclick = () => show(number);
  button.id = `graph-${number}`; button.setAttribute("aria-controls", "stage"); byId("graphs").append(button);
});
for (const id of ["stages", "beside"]) data.stages.forEach(({name}, number) => byId(id).append(new Option(name, number)));
byId("beside").onchange = (event) => compare(event.target.value === "" ? null : +event.target.value);
byId("stages").onchange = (event) => showStage(+event.target.value);
byId("back").onclick = () => showStage(stage - 1);
byId("forward").onclick = () => showStage(stage + 1);
byId("play").onclick = play;
byId("fit").onclick = () => fit();
byId("unfold").onclick = () => all(true);
byId("fold").onclick = () => all(false);
byId("heat").onchange = (event) => { heat = event.target.value; legend(); redraw(); };
byId("search").oninput = (event) => search(event.target.value);
byId("search").onblur = () => { byId("found").hidden = true; byId("search").setAttribute("aria-expanded", "false"); };
byId("search").onkeydown = (event) => {
  if (event.key === "Enter") choose(chosen);
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    const entries = [...byId("found").children];
    chosen = Math.max(0, Math.min(matches.length - 1, entries.length - 1, chosen + (event.key === "ArrowDown" ? 1 : -1)));
    point(); event.preventDefault();
  }
};
[...byId("tabs").children].forEach((button, place) => button.onclick = () => {
  mark(byId("tabs"), place);
  for (const each of byId("tabs").children) byId(each.dataset.tab).hidden = each !== button;
  markText();
});
tabs(byId("graphs")); tabs(byId("tabs"));
let drag = null;
canvas.onpointerdown = (event) => { drag = {x: event.clientX, y: event.clientY, moved: false}; canvas.setPointerCapture(event.pointerId); };
canvas.onpointermove = (event) => {
  if (!drag) return;
  const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
  if (!drag.moved && Math.hypot(dx, dy) < 4) return;
  drag = {x: event.clientX, y: event.clientY, moved: true};
  canvas.classList.add("moving"); view.x += dx; view.y += dy; redraw();
};
canvas.onpointerup = (event) => { canvas.classList.remove("moving"); if (drag && !drag.moved) select(at(event), false); drag = null; };
canvas.ondblclick = (event) => { const id = at(event); if (id !== null) toggle(id); };
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const place = canvas.getBoundingClientRect();
  zoom(Math.exp(-event.deltaY * 0.0015), event.clientX - place.left, event.clientY - place.top);
}, {passive: false});
addEventListener("keydown", (event) => {
  if (event.target.matches("input, select")) { if (event.key === "Escape") event.target.blur(); return; }
  if (event.key === "/") { byId("search").focus(); event.preventDefault(); }
  if (event.key === "f") fit();
  if (event.key === "Escape") select(null);
});
new ResizeObserver(redraw).observe(canvas);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColors(); legend(); redraw(); });
show(0); showStage(0); draw();

// What scripts and tests ask: how long it took, what is shown, and the same actions as the mouse has.
window.explorer = {
  opened: performance.now() - started, frame: () => { draw(); return lastFrame; }, view: () => ({...view}),
  boxes: () => [...boxes.values()].map(({id, name}) => ({id, name})), selected: () => selected, lines: () => lines.map(({source, target, points, carried}) =>
    ({source: source.id, target: target.id, carried: Boolean(carried), points})), clusters: () => [...clusters.keys()],
  find: (text) => graph.items.filter((item) => item.name === text || item.label === text)  // outside of loops and calls, if it can be
    .sort((one, other) => regions(one.id) - regions(other.id))[0]?.id ?? null, select, toggle, enter, show, showStage, compare, follow,
  followed: () => [byId("text"), byId("text-beside")].map((holder) => [...holder.querySelectorAll(".followed")].map((line) => line.textContent)),
  position: (id) => { const box = boxes.get(shownAs(id)); const place = canvas.getBoundingClientRect();
    return box && {x: place.left + view.x + box.x * view.scale, y: place.top + view.y + box.y * view.scale}; },
  item: (id) => graph.items[id], beside,
};
})();
