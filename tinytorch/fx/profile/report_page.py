"""The page of a profile's report: @TITLE@, @SUMMARY@ and @DATA@ are filled in by `report.py`."""

PAGE = r"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>@TITLE@</title>
<style>
body { font: 14px system-ui, sans-serif; margin: 1.5em; color: #222; background: #fff; }
pre { background: #f4f4f4; padding: .7em; overflow-x: auto; }
svg { background: #fcfcfc; border: 1px solid #ddd; width: 100%; display: block; }
#graph { height: 70vh; cursor: grab; }
#graph text { font: 11px monospace; pointer-events: none; }
#graph.far text { display: none; }
#graph rect { stroke: #666; stroke-width: .5; }
#graph rect.found { stroke: #d00; stroke-width: 4; }
table { border-collapse: collapse; font-size: 12px; }
th, td { padding: 2px 8px; text-align: right; border-bottom: 1px solid #eee; }
th { cursor: pointer; background: #f4f4f4; position: sticky; top: 0; }
td:first-child, th:first-child { text-align: left; }
.scroll { max-height: 24em; overflow: auto; }
.key span { display: inline-block; margin-right: 1em; }
.key i { display: inline-block; width: 1em; height: 1em; margin-right: .3em; }
#tip { position: fixed; background: #222; color: #fff; padding: .4em .6em; font: 12px monospace;
  white-space: pre; pointer-events: none; display: none; max-width: 60em; z-index: 1; }
</style>
</head>
<body>
<h1>@TITLE@</h1>
<pre>@SUMMARY@</pre>
<h2>Memory</h2>
<p class="key" id="key"></p>
<svg id="memory" viewBox="0 0 1000 280" preserveAspectRatio="none" style="height:280px"></svg>
<h2>Time of each node</h2>
<svg id="time" viewBox="0 0 1000 120" preserveAspectRatio="none" style="height:120px"></svg>
<h2>Graph</h2>
<p><input id="search" type="search" size="40" placeholder="name, op or line">
<button id="next">next</button> <span id="hits"></span>
wheel: zoom; drag: move; point at a node for what it does</p>
<svg id="graph"><g id="scene"></g></svg>
<h2>Activations</h2>
<div class="scroll"><table id="activations"></table></div>
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
const MiB = b => (b / 1048576).toFixed(2) + " MiB";
const x = rank => 1000 * rank / count;

function phases(chart, height) {
  for (const [name, [start]] of Object.entries(data.phases)) {
    svg(chart, "line", {x1: x(start), x2: x(start), y1: 0, y2: height, stroke: "#000",
      "stroke-dasharray": "3 3", "vector-effect": "non-scaling-stroke"});
    svg(svg(chart, "g", {}), "title", {}, name);
  }
}

function drawMemory() {
  const chart = el("memory"), total = new Array(count).fill(0);
  const peak = Math.max(data.limit || 0, ...nodes.map(n => Math.max(n.live, n.measured))) || 1;
  const y = b => 275 - 265 * b / peak;
  for (const [name, fill, row] of data.categories) {
    let upper = "", lower = "";
    for (let i = 0; i < count; i++) {
      lower = `L${x(i + 1)} ${y(total[i])}L${x(i)} ${y(total[i])}` + lower;
      total[i] += row[i];
      upper += `${i ? "L" : "M"}${x(i)} ${y(total[i])}L${x(i + 1)} ${y(total[i])}`;
    }
    svg(chart, "path", {d: upper + lower + "Z", fill});
    const label = document.createElement("span"), box = document.createElement("i");
    box.style.background = fill;
    label.append(box, name);
    el("key").append(label);
  }
  const measured = nodes.map((n, i) => `${i ? "L" : "M"}${x(i)} ${y(n.measured)}`).join("");
  svg(chart, "path", {d: measured, fill: "none", stroke: "#000", "vector-effect":
    "non-scaling-stroke"});
  if (data.limit) svg(chart, "line", {x1: 0, x2: 1000, y1: y(data.limit), y2: y(data.limit),
    stroke: "red", "stroke-dasharray": "6 4", "vector-effect": "non-scaling-stroke"});
  phases(chart, 280);
  pointAt(chart);
}

function drawTime() {
  const chart = el("time"), longest = Math.max(...nodes.map(n => n.us)) || 1;
  const d = nodes.map((n, i) => `M${x(i + .5)} 118V${118 - 110 * n.us / longest}`).join("");
  svg(chart, "path", {d, stroke: "#4c72b0", "vector-effect": "non-scaling-stroke"});
  phases(chart, 120);
  pointAt(chart);
}

function describe(n) {
  return `${n.name}\n${n.op}\n${n.phase} ${n.type}\n${n.us} us, ${n.flops} FLOP\nmakes ` +
    `${MiB(n.made)}\nalive ${MiB(n.live)} predicted, ${MiB(n.measured)} measured\n${n.line}`;
}
function tip(event, text) {
  const box = el("tip");
  box.style.display = text ? "block" : "none";
  box.textContent = text;
  box.style.left = Math.min(event.clientX + 12, innerWidth - 420) + "px";
  box.style.top = Math.min(event.clientY + 12, innerHeight - 140) + "px";
}
function pointAt(chart) {
  chart.onmousemove = e => {
    const box = chart.getBoundingClientRect();
    const rank = Math.floor(count * (e.clientX - box.left) / box.width);
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
  svg(scene, "path", {d: edges, fill: "none", stroke: "#999", "stroke-width": .7});
  nodes.forEach((n, i) => {
    const [left, top] = place(n);
    rects.push(svg(scene, "rect", {x: left, y: top, width: w - 16, height: 24, rx: 3,
      fill: color[n.type], "fill-opacity": n.phase === "forward" ? .35 : .75, "data-i": i}));
    svg(scene, "text", {x: left + 5, y: top + 16}, n.name.slice(0, 25));
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
    `${n.name} ${n.op} ${n.line}`.toLowerCase().includes(wanted)).map(([, i]) => i);
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

function drawTable() {
  const table = el("activations"), rows = data.activations;
  if (!rows.length) return;
  const columns = Object.keys(rows[0]);
  const cell = v => typeof v === "number" && !Number.isInteger(v) ? v.toExponential(2) : v;
  function fill(by, sign) {
    table.replaceChildren();
    const head = table.insertRow();
    for (const c of columns) {
      const th = document.createElement("th");
      th.textContent = c;
      th.onclick = () => fill(c, c === by ? -sign : 1);
      head.append(th);
    }
    const sorted = [...rows].sort((a, b) => a[by] === b[by] ? 0 : (a[by] < b[by] ? sign : -sign));
    for (const row of sorted) {
      const tr = table.insertRow();
      for (const c of columns) tr.insertCell().textContent = cell(row[c]);
    }
  }
  fill("nbytes", 1);
}
drawMemory();
drawTime();
drawGraph();
drawTable();
</script>
</body>
</html>
"""
