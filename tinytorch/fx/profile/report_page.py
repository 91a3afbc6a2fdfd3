"""The page of a profile's report; what is between two @ is filled in by `report.py`."""

STYLE = r""":root { color-scheme: light dark; --ink: #222; --paper: #fff; --pale: #f3f4f6;
  --line: #d0d3d9; --soft: #667; --accent: #2a5db0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e6ea; --paper: #16181d; --pale: #22252c; --line: #3b4049; --soft: #9aa0ab;
    --accent: #8ab4f8; }
}
body { font: 14px system-ui, sans-serif; margin: 1.5em; color: var(--ink);
  background: var(--paper); }
h2 { margin: 1.6em 0 .4em; font-size: 1.15em; }
pre { background: var(--pale); padding: .7em; overflow-x: auto; }
svg { background: var(--paper); border: 1px solid var(--line); width: 100%; display: block; }
svg text { fill: var(--ink); font: 11px system-ui, sans-serif; }
svg .soft { fill: var(--soft); }
svg .grid { stroke: var(--line); stroke-width: .6; }
svg .phase { stroke: var(--soft); stroke-dasharray: 3 3; }
svg .measured { stroke: var(--ink); fill: none; }
svg .limit { stroke: #d33; stroke-width: 1.5; stroke-dasharray: 6 4; }
svg text.over { fill: #d33; }
svg .bar { stroke: var(--accent); }
svg .edge { stroke: var(--soft); stroke-width: .7; fill: none; }
#graph { height: 70vh; cursor: grab; }
#graph text { font: 11px monospace; pointer-events: none; }
#graph.far text { display: none; }
#graph rect { stroke: var(--soft); stroke-width: .5; }
#graph rect.found { stroke: #d33; stroke-width: 4; }
table { border-collapse: collapse; font-size: 12px; }
th, td { padding: 2px 8px; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { cursor: pointer; background: var(--pale); position: sticky; top: 0; }
th[aria-sort=ascending]::after { content: " \25b2"; }
th[aria-sort=descending]::after { content: " \25bc"; }
td.text, th.text { text-align: left; }
td button { border: 0; background: none; color: inherit; width: 1.4em; padding: 0;
  cursor: pointer; }
.scroll { max-height: 28em; overflow: auto; }
.key span { display: inline-block; margin-right: 1em; }
.key i { display: inline-block; width: 1em; height: 1em; margin-right: .3em; }
#tip { position: fixed; background: var(--ink); color: var(--paper); padding: .4em .6em;
  font: 12px monospace; white-space: pre; pointer-events: none; display: none; max-width: 60em;
  z-index: 1; }
"""

PAGE = r"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>@TITLE@</title>
<style>
@STYLE@</style>
</head>
<body>
<h1>@TITLE@</h1>
<pre>@SUMMARY@</pre>
<h2>Memory</h2>
<p class="key" id="key"></p>
<svg id="memory" height="300"></svg>
<h2>Time of each node</h2>
<svg id="time" height="150"></svg>
<h2>Modules</h2>
<p>A module is the innermost one that is known to hold a node: by the parameters that it and its
neighbours read. <button id="unfold">unfold all</button> <button id="fold">fold all</button></p>
<div class="scroll"><table id="modules"></table></div>
<h2>Nodes</h2>
<div class="scroll"><table id="nodes"></table></div>
<h2>Activations</h2>
<div class="scroll"><table id="activations"></table></div>
<h2>Graph</h2>
<p><input id="search" type="search" size="40" placeholder="name, op or line">
<button id="next">next</button> <span id="hits"></span>
wheel: zoom; drag: move; point at a node for what it does</p>
<svg id="graph"><g id="scene"></g></svg>
<div id="tip"></div>
<script type="application/json" id="data">@DATA@</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const nodes = data.nodes, count = nodes.length;
const color = Object.fromEntries(data.categories.map(([name, c]) => [name, c]));
const el = id => document.getElementById(id);
function svg(parent, tag, attributes, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const k in attributes) e.setAttribute(k, attributes[k]);
  if (text !== undefined) e.textContent = text;
  return parent.appendChild(e);
}
function scaled(value, base, units) {
  let i = 0;
  while (i + 1 < units.length && Math.abs(value) >= base) { value /= base; i++; }
  const whole = Math.floor(Math.log10(Math.abs(value) || 1));
  const digits = Number.isInteger(value) ? 0 : Math.max(0, 2 - whole);
  return `${value.toFixed(Math.min(digits, 2))} ${units[i]}`;
}
const bytes = b => scaled(b, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
const seconds = s => s === 0 ? "0" : scaled(s * 1e9, 1000, ["ns", "us", "ms", "s"]);
const amount = n => scaled(n, 1000, ["", "k", "M", "G", "T", "P"]);
const LEFT = 78, BOTTOM = 34, TOP = 18;

// Round steps of an axis from 0 to its end: 1, 2 or 5 times a power of the base of the units.
function ticks(end, count) {
  const rough = end / count, power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 5, 10].map(f => f * power).find(v => v >= rough);
  const found = [];
  for (let v = 0; v <= end * 1.0001; v += step) found.push(v);
  return found;
}

// The frame of a chart: axes with units, the phases, and functions from values to pixels.
function frame(chart, end, unit, label) {
  chart.replaceChildren();
  const width = chart.clientWidth || 1000, height = +chart.getAttribute("height");
  const x = rank => LEFT + (width - LEFT - 12) * rank / count;
  const y = v => height - BOTTOM - (height - BOTTOM - TOP) * v / end;
  for (const v of ticks(end, Math.max(2, height / 60))) {
    svg(chart, "line", {x1: LEFT, x2: width - 12, y1: y(v), y2: y(v), class: "grid"});
    svg(chart, "text", {x: LEFT - 6, y: y(v) + 4, "text-anchor": "end"},
      `${+v.toPrecision(6)} ${unit}`);
  }
  for (const v of ticks(count, 10)) {
    svg(chart, "text", {x: x(v), y: height - BOTTOM + 15, "text-anchor": "middle"}, `${v}`);
  }
  svg(chart, "text", {x: (LEFT + width) / 2, y: height - 4, "text-anchor": "middle", class: "soft"},
    label);
  return {x, y, width, height};
}

// Above all that is drawn: where each phase begins, with its name.
function phases(chart, {x, height}) {
  for (const [name, [start]] of Object.entries(data.phases)) {
    svg(chart, "line", {x1: x(start), x2: x(start), y1: 0, y2: height - BOTTOM, class: "phase"});
    svg(chart, "text", {x: x(start) + 4, y: 12, class: "phase-name"}, name);
  }
}

function drawMemory() {
  const chart = el("memory"), total = new Array(count).fill(0);
  const peak = Math.max(data.limit || 0, ...nodes.map(n => Math.max(n.live, n.measured))) || 1;
  const MiB = 1048576, {x, y, ...box} = frame(chart, 1.05 * peak / MiB, "MiB", "execution rank");
  const at = b => y(b / MiB);
  for (const [, fill, row] of data.categories) {
    let upper = "", lower = "";
    for (let i = 0; i < count; i++) {
      lower = `L${x(i + 1)} ${at(total[i])}L${x(i)} ${at(total[i])}` + lower;
      total[i] += row[i];
      upper += `${i ? "L" : "M"}${x(i)} ${at(total[i])}L${x(i + 1)} ${at(total[i])}`;
    }
    svg(chart, "path", {d: upper + lower + "Z", fill});
  }
  const measured = nodes.map((n, i) => `${i ? "L" : "M"}${x(i)} ${at(n.measured)}`).join("");
  svg(chart, "path", {d: measured, class: "measured"});
  phases(chart, {x, ...box});
  if (data.limit) {
    svg(chart, "line", {x1: LEFT, x2: box.width - 12, y1: at(data.limit), y2: at(data.limit),
      class: "limit"});
    svg(chart, "text", {x: box.width - 16, y: at(data.limit) - 4, "text-anchor": "end",
      class: "over"}, `limit ${bytes(data.limit)}`);
  }
  pointAt(chart, box.width);
}

function drawKey() {
  for (const [name, fill] of [...data.categories, ["measured", "var(--ink)"]]) {
    const label = document.createElement("span"), box = document.createElement("i");
    box.style.background = fill;
    label.append(box, name.replace("_", " "));
    el("key").append(label);
  }
}

function drawTime() {
  const chart = el("time"), longest = Math.max(...nodes.map(n => n.us)) / 1000 || 1;
  const {x, y, ...box} = frame(chart, 1.05 * longest, "ms", "execution rank");
  const d = nodes.map((n, i) => `M${x(i + .5)} ${y(0)}V${y(n.us / 1000)}`).join("");
  svg(chart, "path", {d, class: "bar"});
  phases(chart, {x, ...box});
  pointAt(chart, box.width);
}

function describe(n) {
  return `${n.name}\n${n.op}\n${n.phase} ${n.type} ${n.module}\n${seconds(n.us / 1e6)}, ` +
    `${amount(n.flops)} FLOP\nmakes ${bytes(n.made)}\nalive ${bytes(n.live)} predicted, ` +
    `${bytes(n.measured)} measured\n${n.line}`;
}
function tip(event, text) {
  const box = el("tip");
  box.style.display = text ? "block" : "none";
  box.textContent = text;
  box.style.left = Math.min(event.clientX + 12, innerWidth - 420) + "px";
  box.style.top = Math.min(event.clientY + 12, innerHeight - 140) + "px";
}
function pointAt(chart, width) {
  chart.onmousemove = e => {
    const left = chart.getBoundingClientRect().left + LEFT;
    const rank = Math.floor(count * (e.clientX - left) / (width - LEFT - 12));
    if (nodes[rank]) tip(e, `rank ${rank}\n` + describe(nodes[rank]));
  };
  chart.onmouseleave = e => tip(e, "");
}

const view = {x: 0, y: 0, k: 1}, rects = [];
function drawGraph() {
  const scene = el("scene"), [w, h] = data.size;
  const place = n => [n.at[0] * w, n.at[1] * h];
  let edges = "";
  for (const n of nodes) for (const source of n.from) {
    const [x1, y1] = place(nodes[source]), [x2, y2] = place(n);
    edges += `M${x1 + w / 2 - 8} ${y1 + 24}L${x2 + w / 2 - 8} ${y2}`;
  }
  svg(scene, "path", {d: edges, class: "edge"});
  nodes.forEach((n, i) => {
    const [left, top] = place(n);
    rects.push(svg(scene, "rect", {x: left, y: top, width: w - 16, height: 24, rx: 3,
      fill: color[n.type], "fill-opacity": n.phase === "forward" ? .35 : .75, "data-i": i}));
    const title = n.name.length > 25 ? n.name.slice(0, 24) + "\u2026" : n.name;
    svg(scene, "text", {x: left + 5, y: top + 16}, title);
  });
  scene.onmousemove = e => e.target.dataset.i && tip(e, describe(nodes[e.target.dataset.i]));
  scene.onmouseout = e => tip(e, "");
  const box = el("graph");
  box.onwheel = e => {
    e.preventDefault();
    const r = box.getBoundingClientRect(), f = e.deltaY < 0 ? 1.2 : 1 / 1.2;
    const px = e.clientX - r.left, py = e.clientY - r.top;
    view.x = px - (px - view.x) * f;
    view.y = py - (py - view.y) * f;
    view.k *= f;
    move();
  };
  let held = null;
  box.onmousedown = e => { held = [e.clientX - view.x, e.clientY - view.y]; };
  window.addEventListener("mouseup", () => { held = null; });
  window.addEventListener("mousemove", e => {
    if (!held) return;
    view.x = e.clientX - held[0];
    view.y = e.clientY - held[1];
    move();
  });
  move();
}
function move() {
  el("scene").setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.k})`);
  el("graph").classList.toggle("far", view.k < .45);
}

let hits = [], current = -1;
function search() {
  const wanted = el("search").value.toLowerCase();
  rects.forEach(r => r.classList.remove("found"));
  hits = !wanted ? [] : nodes.map((n, i) => [n, i]).filter(([n]) =>
    `${n.name} ${n.op} ${n.module} ${n.line}`.toLowerCase().includes(wanted)).map(([, i]) => i);
  hits.forEach(i => rects[i].classList.add("found"));
  current = -1;
  el("hits").textContent = wanted ? `${hits.length} found; ` : "";
  show();
}
function show() {
  if (!hits.length) return;
  current = (current + 1) % hits.length;
  const n = nodes[hits[current]], r = el("graph").getBoundingClientRect(), [w, h] = data.size;
  view.k = Math.max(view.k, .8);
  view.x = r.width / 2 - (n.at[0] + .5) * w * view.k;
  view.y = r.height / 2 - (n.at[1] + .5) * h * view.k;
  move();
}
el("search").oninput = search;
el("next").onclick = show;

// A table that is sorted by a click. Columns: [title, key, form]; a form makes text of a number.
function fillTable(table, columns, rows, by, sign) {
  table.replaceChildren();
  const head = table.createTHead().insertRow(), body = table.createTBody();
  for (const [title, key, form] of columns) {
    const th = document.createElement("th");
    th.textContent = title;
    th.className = form ? "" : "text";
    if (key === by) th.ariaSort = sign > 0 ? "descending" : "ascending";
    th.onclick = () => fillTable(table, columns, rows, key, key === by ? -sign : form ? 1 : -1);
    head.append(th);
  }
  const order = (a, b) => a[by] === b[by] ? 0 : (a[by] < b[by] ? sign : -sign);
  for (const row of [...rows].sort(order)) {
    const tr = body.insertRow();
    for (const [, key, form] of columns) {
      const td = tr.insertCell();
      td.textContent = form ? form(row[key]) : row[key];
      if (!form) td.className = "text";
    }
  }
}
const plain = n => `${n}`;
const NODES = [["node", "name"], ["op", "op"], ["module", "module"], ["phase", "phase"],
  ["type", "type"], ["rank", "rank", plain], ["time", "s", seconds], ["FLOP", "flops", amount],
  ["makes", "made", bytes], ["alive", "live", bytes], ["line", "line"]];
const ACTIVATIONS = [["activation", "name"], ["module", "module"], ["bytes", "nbytes", bytes],
  ["made at", "rank", plain], ["last forward", "last_forward", plain],
  ["first backward", "first_backward", plain], ["last backward", "last_backward", plain],
  ["inactive", "inactive_seconds", seconds], ["copy one way", "swap_seconds", seconds],
  ["compute again", "recompute_seconds", seconds], ["bytes for that", "recompute_bytes", bytes],
  ["bytes/s freed", "recompute_ratio", v => `${bytes(v)}/s`]];
function drawTables() {
  const calls = nodes.map((n, rank) => ({...n, rank, s: n.us / 1e6})).filter(n => n.phase);
  fillTable(el("nodes"), NODES, calls, "s", 1);
  const module = Object.fromEntries(nodes.map(n => [n.name, n.module]));
  const rows = data.activations.map(a => ({...a, module: module[a.name]}));
  fillTable(el("activations"), ACTIVATIONS, rows, "nbytes", 1);
}

// The tree of modules, each with all that is inside it; folded below the first level.
function moduleTree() {
  const root = {path: "", name: "(model)", inside: new Map(), depth: 0, open: true};
  const zero = {count: 0, forward: 0, backward: 0, optimizer: 0, flops: 0, made: 0};
  Object.assign(root, zero);
  for (const n of nodes) {
    if (!n.phase) continue;
    let here = root;
    const visited = [root], parts = n.module ? n.module.split(".") : [];
    parts.forEach((part, i) => {
      if (!here.inside.has(part)) {
        here.inside.set(part, {path: parts.slice(0, i + 1).join("."), name: part,
          inside: new Map(), depth: i + 1, open: false, ...zero});
      }
      visited.push(here = here.inside.get(part));
    });
    for (const m of visited) {
      m.count++;
      m[n.phase] = (m[n.phase] || 0) + n.us / 1e6;
      m.flops += n.flops;
      m.made += n.made;
    }
  }
  return root;
}
const tree = moduleTree();
function drawModules() {
  const table = el("modules"), body = document.createElement("tbody");
  const head = document.createElement("tr");
  for (const title of ["module", "nodes", "forward", "backward", "optimizer", "of the time", "FLOP",
    "makes"]) {
    const th = document.createElement("th");
    th.textContent = title;
    th.style.cursor = "default";
    if (title === "module") th.className = "text";
    head.append(th);
  }
  const time = m => m.forward + m.backward + m.optimizer, whole = time(tree) || 1;
  (function add(m) {
    const tr = body.insertRow(), first = tr.insertCell();
    first.className = "text";
    first.style.paddingLeft = `${.5 + 1.2 * m.depth}em`;
    first.title = m.path;
    const button = document.createElement("button");
    button.textContent = m.inside.size ? (m.open ? "\u25be" : "\u25b8") : "";
    button.ariaLabel = `${m.open ? "fold" : "unfold"} ${m.path || "the model"}`;
    button.onclick = () => { m.open = !m.open; drawModules(); };
    first.append(button, m.name);
    for (const text of [m.count, seconds(m.forward), seconds(m.backward), seconds(m.optimizer),
      `${(100 * time(m) / whole).toFixed(1)} %`, amount(m.flops), bytes(m.made)]) {
      tr.insertCell().textContent = text;
    }
    if (m.open) [...m.inside.values()].forEach(add);
  })(tree);
  table.replaceChildren(document.createElement("thead"), body);
  table.tHead.append(head);
}
function setOpen(m, open) {
  m.open = open || m === tree;
  m.inside.forEach(inner => setOpen(inner, open));
}
el("unfold").onclick = () => { setOpen(tree, true); drawModules(); };
el("fold").onclick = () => { setOpen(tree, false); drawModules(); };

function drawCharts() { drawMemory(); drawTime(); }
drawKey();
drawCharts();
window.addEventListener("resize", drawCharts);
drawModules();
drawGraph();
drawTables();
</script>
</body>
</html>
"""
