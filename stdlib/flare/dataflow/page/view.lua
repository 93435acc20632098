--- What the simulator's page shows: its HTML, style and script.
local M = {}

M.html = [=[
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>@TITLE@</title>
<style>@STYLE@</style>
</head>
<body>
<h1>@TITLE@</h1>
<p id="machine"></p>
<div id="top">
  <form id="sliders" autocomplete="off"></form>
  <table id="figures"></table>
  <figure><canvas id="curve" width="360" height="190"></canvas>
  <figcaption id="curve-title"></figcaption></figure>
</div>
<p><code id="command"></code></p>
<canvas id="timeline" width="1100" height="100"></canvas>
<p id="hint">&nbsp;</p>
<table id="memory"></table>
<script id="data" type="application/json">@DATA@</script>
<script id="simulator">@SIMULATOR@</script>
<script id="view">@VIEW@</script>
</body>
</html>
]=]

M.style = [=[
body { font: 14px/1.4 system-ui, sans-serif; margin: 20px auto; max-width: 1120px; color: #222; }
h1 { font-size: 20px; margin: 0 0 4px; }
#machine { color: #555; margin: 0 0 12px; }
#top { display: flex; gap: 28px; flex-wrap: wrap; align-items: flex-start; }
#sliders label { display: grid; grid-template-columns: 150px 150px 100px; gap: 8px;
  align-items: center; }
#sliders output, #figures td + td, #memory td + td { font-variant-numeric: tabular-nums;
  text-align: right; }
table { border-collapse: collapse; }
td, th { padding: 2px 10px 2px 0; text-align: left; }
figure { margin: 0; }
figcaption { color: #555; font-size: 12px; }
canvas { max-width: 100%; }
code { background: #f4f5f7; padding: 2px 6px; }
#hint { color: #555; min-height: 1.4em; margin: 2px 0 10px; }
.stuck { color: #b3261e; }
]=]

M.script = [=[
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
const GIB = 1073741824;
const figuresOf = [
  ["link", "host link", "GB/s", (m) => m.links.host && m.links.host.rate / 1e9],
  ["peer", "link between devices", "GB/s", (m) => m.links.peer && m.links.peer.rate / 1e9],
  ["net", "link between nodes", "GB/s", (m) => m.links.net && m.links.net.rate / 1e9],
  ["memory", "memory of a device", "GiB", (m) => m.memory.bytes / GIB],
  ["bandwidth", "its bandwidth", "GB/s", (m) => m.memory.rate / 1e9],
  ["compute", "compute rate", "x", () => 1],
  ["matrix", "matrix units", "x", (m) => m.matrix],
  ["latency", "latency of a launch", "us", (m) => m.latency * 1e6],
].filter((f) => f[3](data.machine) > 0);

const state = {variant: 0, change: {}, last: "link", result: null};
if (!figuresOf.some((f) => f[0] === state.last)) state.last = figuresOf[0][0];

// Three significant digits, so that the command has the same number.
const round = (x) => Number(x.toPrecision(3));
const scaled = (x, units, base) => {
  let k = 0;
  while (k < units.length - 1 && x >= base) { x /= base; k++; }
  return x.toPrecision(4) + " " + units[k];
};
const timeText = (s) => scaled(s * 1e6, ["us", "ms", "s"], 1000);
const bytesText = (b) => b === Infinity ? "-" : scaled(b, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
const percent = (x) => (100 * x).toFixed(2) + " %";

function row(table, cells, id, value) {
  const tr = table.insertRow();
  for (const text of cells) tr.insertCell().textContent = text;
  if (id) {
    tr.lastChild.id = id;
    tr.lastChild.dataset.value = value;
  }
}

function slider(name, label, unit, initial) {
  const line = document.createElement("label"), input = document.createElement("input");
  const shown = document.createElement("output");
  Object.assign(input, {type: "range", min: -3, max: 3, step: 0.05, value: 0, id: "set-" + name});
  line.append(label, input, shown);
  at("sliders").append(line);
  const show = () => {
    shown.textContent = (state.change[name] || round(initial)) + " " + unit;
  };
  input.oninput = () => {
    state.change[name] = round(initial * Math.pow(2, Number(input.value)));
    state.last = name;
    show();
    update();
  };
  if (state.change[name]) input.value = Math.log2(state.change[name] / initial);
  show();
}

function choice() {
  if (data.schedules.length < 2) return;
  const line = document.createElement("label"), select = document.createElement("select");
  select.id = "variant";
  data.schedules.forEach((s, k) => select.add(new Option(s.label, k)));
  select.value = state.variant;
  line.append("schedule", select);
  select.onchange = () => { state.variant = Number(select.value); update(); };
  at("sliders").append(line);
}

const run = (change) => simulate(data.schedules[state.variant], changed(data.machine, change));

function showFigures(r) {
  const table = at("figures");
  table.textContent = "";
  if (r.stuck) {
    row(table, [r.stuck], "stuck", "1");
    table.className = "stuck";
    return;
  }
  table.className = "";
  row(table, ["time of a step", timeText(r.time)], "time", r.time);
  row(table, ["computing, without repeats", percent(r.useful)], "useful", r.useful);
  row(table, ["idle", percent(r.bubble)], "bubble", r.bubble);
  row(table, ["of the peak", percent(r.utilisation)], "utilisation", r.utilisation);
  if (r.tokens_per_second) {
    row(table, ["tokens a second", r.tokens_per_second.toPrecision(5)], "tokens_per_second",
      r.tokens_per_second);
  }
  if (r.energy > 0) row(table, ["energy", r.energy.toPrecision(4) + " J"], "energy", r.energy);
  const memory = at("memory");
  memory.textContent = "";
  for (const p of r.places.slice(0, 16)) {
    row(memory, [p.name, "cap " + bytesText(p.cap), p.waited > 0 ? "waited " + timeText(p.waited)
      : "", "peak " + bytesText(p.peak)], "peak-" + p.name.replace(" ", "-"), p.peak);
  }
}

const colours = {F: "#4878cf", B: "#e8871e", W: "#2a9d8f", U: "#8e5bb5", L: "#6f9bd1",
  S: "#c9a227", A: "#c0392b"};
const ROW = 17, LEFT = 110;

function showTimeline(r) {
  const canvas = at("timeline"), g = canvas.getContext("2d");
  const streams = r.stuck ? [] : r.streams.filter((s) => s.busy > 0)
    .sort((a, b) => a.device - b.device).slice(0, 64);
  canvas.height = Math.max(streams.length * ROW + 4, 20);
  g.font = "11px system-ui, sans-serif";
  const scale = (canvas.width - LEFT) / (r.time || 1);
  state.rows = streams.map((s, k) => {
    g.fillStyle = "#222";
    g.fillText(s.device + " " + s.name, 2, k * ROW + 13);
    g.fillStyle = "#f4f5f7";
    g.fillRect(LEFT, k * ROW + 1, canvas.width - LEFT, ROW - 2);
    for (const x of s.runs) {
      g.fillStyle = x.task.again ? "#9bb7e0" : colours[x.task.name[0].toUpperCase()] || "#8d99a6";
      g.fillRect(LEFT + x.start * scale, k * ROW + 1, Math.max((x.stop - x.start) * scale, 0.3),
        ROW - 2);
    }
    return s;
  });
  canvas.onmousemove = (e) => {
    const box = canvas.getBoundingClientRect(), zoom = canvas.width / box.width;
    const s = state.rows[Math.floor((e.clientY - box.top) * zoom / ROW)];
    const time = ((e.clientX - box.left) * zoom - LEFT) / scale;
    const x = s && s.runs.find((y) => y.start <= time && time <= y.stop);
    at("hint").textContent = x ? x.task.name + ": " + timeText(x.stop - x.start) + " from "
      + timeText(x.start) : "\u00a0";
  };
}

// The share of useful computing over the figure that was moved last.
function showCurve() {
  const figure = figuresOf.find((f) => f[0] === state.last), initial = figure[3](data.machine);
  const canvas = at("curve"), g = canvas.getContext("2d"), w = canvas.width, h = canvas.height;
  const x = (v) => (Math.log2(v / initial) + 3) / 6 * (w - 40) + 34;
  const y = (v) => h - 20 - v * (h - 30);
  g.clearRect(0, 0, w, h);
  g.font = "11px system-ui, sans-serif";
  for (const share of [0, 0.5, 0.9, 1]) {
    g.fillStyle = "#ddd";
    g.fillRect(34, y(share), w - 40, 1);
    g.fillStyle = "#555";
    g.fillText(100 * share + " %", 0, y(share) + 4);
  }
  for (const k of [-3, 0, 3]) {
    g.fillText(String(round(initial * Math.pow(2, k))), x(initial * Math.pow(2, k)) - 12, h - 4);
  }
  g.beginPath();
  let open = false;
  for (let k = -3; k <= 3.001; k += 0.25) {
    const value = round(initial * Math.pow(2, k));
    const r = run(Object.assign({}, state.change, {[state.last]: value}));
    if (!r.stuck) {
      if (open) g.lineTo(x(value), y(r.useful)); else g.moveTo(x(value), y(r.useful));
      open = true;
    }
  }
  g.strokeStyle = "#4878cf";
  g.lineWidth = 2;
  g.stroke();
  if (!state.result.stuck) {
    g.fillStyle = "#e8871e";
    g.beginPath();
    g.arc(x(state.change[state.last] || initial), y(state.result.useful), 4, 0, 7);
    g.fill();
  }
  at("curve-title").textContent = "useful computing over: " + figure[1] + ", " + figure[2];
}

let waiting = 0;
function update() {
  const r = state.result = run(state.change);
  showFigures(r);
  showTimeline(r);
  const words = Object.entries(state.change).map(([k, v]) => " --" + k + " " + v).join("");
  at("command").textContent = data.command ? data.command + words : words;
  clearTimeout(waiting);
  waiting = setTimeout(showCurve, 120); // not for each step of a slider
}

for (const [key, value] of new URLSearchParams(location.hash.slice(1))) {
  if (key === "variant") state.variant = Number(value);
  else if (figuresOf.some((f) => f[0] === key)) state.change[key] = Number(value);
}
at("machine").textContent = data.machine.name + ". " + data.machine.source;
choice();
for (const [name, label, unit, of] of figuresOf) slider(name, label, unit, of(data.machine));
update();
showCurve();
]=]

return M
