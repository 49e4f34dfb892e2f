// SPDX-License-Identifier: Apache-2.0
// Draws the report of one or several runs from the JSON that muster-report puts into the page
// (runs/report.c says what it holds). Text from the runs only ever becomes textContent.
"use strict";

const report = JSON.parse(document.getElementById("report").textContent);
const runs = report.runs;

// ---- words ----

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  for (const child of children) made.append(child);
  return made;
}

const count = (n, one) => `${n.toLocaleString("en")} ${one}${n === 1 ? "" : "s"}`;

function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 100) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  const minutes = Math.round(value / 60);
  if (minutes < 100) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${(hours / 24).toFixed(1)} days`;
}

function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit++; }
  return `${unit ? value.toFixed(1) : value} ${units[unit]}`;
}

function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e4) return Math.round(value).toLocaleString("en");
  return size !== 0 && size < 1e-3 ? value.toExponential(2) : String(+value.toPrecision(digits));
}

const percent = (value) => value === null ? "–" : `${(100 * value).toFixed(1)} %`;
const moment = (value) => new Date(value * 1000).toLocaleString();
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const runColour = (index) => `--run${index % 8}`;
const attemptName = (attempt) => attempt.job
  ? `attempt ${attempt.number} (job ${attempt.job}, start ${attempt.attempt})`
  : `attempt ${attempt.number}`;

const ends = {
  finished: "finished", stopped: "saved after a notice, and left", lost: "lost a peer or the disk",
  failed: "failed", killed: "killed without a word", running: "still running",
};
const parts = {
  training: "steps that count", redone: "steps done again", queued: "in Slurm's queue",
  waiting: "between attempts otherwise: Slurm ends and starts the job",
  starting: "starting: from an attempt's start to its first step", saving: "standing still to save",
  other: "validation, and from the last step to the end",
};

function key(colour, text, hatched) {
  return element("span", {}, element("span",
    { class: hatched ? "key hatched" : "key", style: `background-color: var(${colour})` }), text);
}

function table(heads, rows) {
  const cell = (name, value, numeric) =>
    element(name, numeric ? { class: "number" } : {}, value === null ? "–" : value);
  const body = element("tbody");
  for (const row of rows) {
    const line = element("tr", row.differs ? { class: "differs" } : {});
    row.cells.forEach((value, i) => line.append(cell("td", value, heads[i].numeric)));
    body.append(line);
  }
  const head = element("tr");
  heads.forEach((one) => head.append(cell("th", one.text, one.numeric)));
  return element("div", { class: "scroll" },
    element("table", {}, element("thead", {}, head), body));
}

// ---- what happened ----

function lastValue(run, name) {
  const points = run.series[name];
  return points && points.length ? points[points.length - 1][2] : null;
}

const interruptions = (run) =>
  run.attempts.filter((attempt) => attempt.end !== "finished" && attempt.end !== "running");

function cost(run, index) {
  const next = run.attempts[index + 1];
  const attempt = run.attempts[index];
  if (!next) return null;
  return (attempt.lost || 0) + Math.max(attempt.waited || 0, 0) + (next.starting || 0);
}

function story(run) {
  const cut = interruptions(run).length;
  const last = run.attempts[run.attempts.length - 1];
  const begin = `${run.name} has done ${count(run.steps, "step")} in ` +
    `${count(run.attempts.length, "attempt")} and ${seconds(run.time.wall)}; the last attempt ` +
    `${last.end === "running" ? "still runs" : "ended: " + ends[last.end]}.`;
  const total = run.attempts.reduce((sum, attempt, i) => sum + (cost(run, i) || 0), 0);
  const middle = cut === 0 ? " Nothing interrupted it."
    : ` ${count(cut, "interruption")} cost ${seconds(total)}.`;
  return begin + middle + (run.time.goodput === null ? "" :
    ` ${percent(run.time.goodput)} of the time went into steps that count (its goodput).`);
}

function tiles(run) {
  const made = element("div", { class: "tiles" });
  const tile = (name, value) => value === null || value === "–" ? null
    : made.append(element("div", { class: "tile" }, element("b", {}, value),
      element("span", {}, name)));
  tile("steps", run.steps.toLocaleString("en"));
  tile("loss of the last step", number(lastValue(run, "loss")));
  tile("last validation loss", number(lastValue(run, "validation_loss")));
  tile("goodput", percent(run.time.goodput));
  tile("tokens a second, median", number(run.medians.tokens_per_second));
  tile("milliseconds a step, median", number(run.medians.milliseconds));
  tile("MFU, median", run.medians.mfu === null ? null : percent(run.medians.mfu));
  tile("attempts", String(run.attempts.length));
  tile("interruptions", String(interruptions(run).length));
  tile("in steps done again", seconds(run.time.redone));
  return made;
}

// ---- the timeline ----

function lane(run, wall) {
  const made = element("div", { class: "lane", role: "img", "aria-label": story(run) });
  const at = (from, to, attributes, title) => {
    const left = 100 * from / wall, width = 100 * Math.max(to - from, 0) / wall;
    attributes.style = `left: ${left}%; width: ${width}%; ${attributes.style || ""}`;
    made.append(element("div", { ...attributes, title }));
  };
  run.attempts.forEach((attempt) => {
    const from = attempt.began - run.began, to = from + (attempt.seconds || 0);
    at(from, to, { style: `background-color: var(--${attempt.end})`, class: "attempt" },
      `${attemptName(attempt)}: ${seconds(attempt.seconds)}, ${ends[attempt.end]}`);
    if (attempt.lost)
      at(Math.max(to - attempt.lost, from), to,
        { class: "redone", style: "background-color: var(--redone)" },
        `${seconds(attempt.lost)} of steps that the next attempt did again`);
    if (attempt.waited > 0)
      at(to, to + attempt.waited,
        { class: "wait hatched", style: "background-color: var(--waiting)" },
        `${seconds(attempt.waited)} until the next attempt`);
    for (const save of attempt.saves)
      at(save.at, save.at, { class: "save", style: "width: 2px" },
        `checkpoint of step ${save.step}: training stood still ${seconds(save.stall)}, ` +
        `durable after ${seconds(save.flush)}, ${bytes(save.bytes)}`);
    for (const notice of attempt.notices)
      at(notice.at, notice.at, { class: "notice", style: "width: 0" },
        `notice: ${notice.why}`);
  });
  return made;
}

function timeline() {
  const made = element("section", { id: "timeline" }, element("h2", {}, "Attempts"),
    element("p", { class: "faint" }, "A run is all that was trained into one checkpoint " +
      "directory. An attempt is one start of it. When Slurm takes its nodes away, a node dies or " +
      "a process fails, the next attempt goes on from the newest checkpoint; steps after that " +
      "checkpoint are done again."));
  const wall = Math.max(...runs.map((run) => run.time.wall), 1e-3);
  const seen = new Set(runs.flatMap((run) => run.attempts.map((attempt) => attempt.end)));
  const scroll = element("div", { class: "scroll" });
  runs.forEach((run) => {
    if (runs.length > 1) scroll.append(element("div", {}, run.name));
    scroll.append(lane(run, wall));
  });
  scroll.append(element("div", { class: "scale" },
    ...[0, 0.25, 0.5, 0.75, 1].map((part) => element("span", {}, seconds(part * wall)))));
  const legend = element("div", { class: "legend" },
    ...Object.keys(ends).filter((end) => seen.has(end)).map((end) => key(`--${end}`, ends[end])),
    key("--redone", "steps done again"), key("--waiting", "waiting", true),
    key("--saving", "checkpoint"), element("span", {}, "▼ notice: a signal that asks to stop"));
  made.append(scroll, legend);
  return made;
}

// On which machines, and by which version: "AMD EPYC (2 CPUs, 25 GB), Muster 0.2.0".
function machines(run) {
  const all = run.attempts.filter((a) => a.machine).map((a) => `${a.machine}, Muster ${a.version}`);
  const each = [...new Set(all)];
  return each.length ? `Rank 0 ran on ${each.join("; ")}. ` : "";
}

function attemptsTable(run) {
  const heads = ["attempt", "began", "nodes"].map((text) => ({ text })).concat(
    ["ranks", "from step", "last step"].map((text) => ({ text, numeric: true })),
    [{ text: "end" }, { text: "notice" }],
    ["queued", "ran", "starting", "saves", "longest stall", "longest until durable", "done again",
      "then waited", "cost"].map((text) => ({ text, numeric: true })), [{ text: "reason" }]);
  const most = (saves, name) => saves.length ? seconds(Math.max(...saves.map((s) => s[name]))) : "–";
  const rows = run.attempts.map((a, i) => ({ cells: [
    a.job ? `${a.job}.${a.attempt}` : String(a.number), moment(a.began), a.nodes, String(a.ranks),
    a.from < 0 ? "fresh" : String(a.from), a.last < 0 ? "–" : String(a.last), a.end,
    a.notices.length ? a.notices[0].why : "–", seconds(a.queued), seconds(a.seconds),
    seconds(a.starting),
    String(a.saves.length), most(a.saves, "stall"), most(a.saves, "flush"), seconds(a.lost),
    seconds(a.waited), seconds(cost(run, i)), a.why || "–"] }));
  return element("details", run.attempts.length < 12 ? { open: "" } : {},
    element("summary", {}, `The attempts of ${run.name}, one by one`), table(heads, rows),
    element("p", { class: "faint" }, machines(run) + "What an interruption cost: the steps done " +
      "again, the wait, and the next attempt's time to its first step."));
}

function samples(run) {
  const rows = run.samples.map(([step, text]) => ({ cells: [step.toLocaleString("en"), text] }));
  return rows.length === 0 ? null : element("details", rows.length < 12 ? { open: "" } : {},
    element("summary", {}, `What ${run.name} wrote while it was trained`),
    table([{ text: "step", numeric: true }, { text: "text" }], rows));
}

// ---- where the time went ----

function times() {
  const made = element("section", { id: "time" }, element("h2", {}, "Where the time went"),
    element("p", { class: "faint" }, "All seconds since the first attempt began. Goodput is the " +
      "part in steps that count."));
  runs.forEach((run) => {
    const stack = element("div", { class: "stack", role: "img",
      "aria-label": `goodput ${percent(run.time.goodput)}` });
    const legend = element("div", { class: "legend" });
    const total = Object.keys(parts).reduce((sum, part) => sum + run.time[part], 0) || 1;
    for (const part of Object.keys(parts)) {
      const share = run.time[part] / total;
      stack.append(element("div", { title: `${parts[part]}: ${seconds(run.time[part])}`,
        style: `width: ${100 * share}%; background-color: var(--${part})` }));
      legend.append(key(`--${part}`, `${parts[part]}: ${seconds(run.time[part])}, ` +
        percent(share)));
    }
    if (runs.length > 1) made.append(element("div", {}, run.name));
    made.append(stack, legend);
  });
  return made;
}

// ---- charts ----

const known = [
  { title: "Loss", about: "Mean loss over the targets of each step; dots: over the validation set.",
    series: [["loss", ""], ["validation_loss", "validation"]], log: true },
  { title: "Learning rate", about: "", series: [["learning_rate", ""]] },
  { title: "Gradient norm", about: "Norm of the whole gradient, before clipping.",
    series: [["norm", ""]], log: true },
  { title: "Tokens a second", about: "Targets of a step over all ranks, by its seconds.",
    series: [["tokens_per_second", ""]] },
  { title: "MFU", about: "Part of the GPUs' peak that the model used.", series: [["mfu", ""]] },
  { title: "Milliseconds a step", about: "Whole step, communication, and the part of " +
    "communication that training waited for (exposed).",
    series: [["milliseconds", ""], ["communication_milliseconds", "communication"],
      ["exposed_milliseconds", "exposed"]] },
];

const state = { x: "steps", charts: [], zooming: false };

// The lines of one chart: {label, run, points, dots, dash}.
function lines(chart) {
  const found = [];
  chart.series.forEach(([name, word], place) => runs.forEach((run, index) => {
    const points = run.series[name];
    if (points && points.length)
      found.push({ label: [runs.length > 1 ? run.name : "", word].filter(Boolean).join(" ") ||
        chart.title.toLowerCase(), index, points, dots: name === "validation_loss",
      dash: place === 0 || name === "validation_loss" ? null : place === 1 ? [6, 3] : [2, 2] });
  }));
  const labels = new Set();
  for (const line of found) { // dygraphs tells its lines apart by their labels
    while (labels.has(line.label)) line.label += " ";
    labels.add(line.label);
  }
  return found;
}

// One row for each x, with a value or null for each line. Over wall time a line breaks where an
// attempt began.
function grid(found) {
  const rows = new Map();
  const put = (x, place, value) => {
    if (!rows.has(x)) rows.set(x, [x, ...found.map(() => null)]);
    rows.get(x)[place + 1] = value;
  };
  found.forEach((line, place) => {
    const column = state.x === "steps" ? 0 : 1;
    if (column === 1)
      for (const attempt of runs[line.index].attempts.slice(1))
        put(attempt.began - runs[line.index].began, place, NaN);
    for (const point of line.points)
      if (point[column] !== null) put(point[column], place, point[2]);
  });
  return [...rows.values()].sort((a, b) => a[0] - b[0]);
}

// A line across the chart where each attempt resumed.
function drawResumes(canvas, area, graph) {
  canvas.save();
  canvas.setLineDash([3, 3]);
  runs.forEach((run, index) => run.attempts.slice(1).forEach((attempt) => {
    const x = graph.toDomXCoord(state.x === "steps" ? Math.max(attempt.from, 0)
      : attempt.began - run.began);
    if (!(x >= area.x && x <= area.x + area.w)) return;
    canvas.strokeStyle = style(runs.length > 1 ? runColour(index) : "--faint");
    canvas.globalAlpha = 0.6;
    canvas.beginPath();
    canvas.moveTo(x, area.y);
    canvas.lineTo(x, area.y + area.h);
    canvas.stroke();
  }));
  canvas.restore();
}

function follow(from, range) {
  if (state.zooming) return;
  state.zooming = true;
  for (const chart of state.charts)
    if (chart.graph && chart.graph !== from) chart.graph.updateOptions({ dateWindow: range });
  state.zooming = false;
}

const axisX = (value) => state.x === "steps" ? value.toLocaleString("en") : seconds(value);

function draw(chart) {
  const found = lines(chart);
  if (chart.graph) chart.graph.destroy();
  const positive = found.every((line) => line.points.every((point) => !(point[2] <= 0)));
  chart.graph = new Dygraph(chart.plot, grid(found), {
    labels: ["x", ...found.map((line) => line.label)],
    colors: found.map((line) => style(runColour(line.index))),
    series: Object.fromEntries(found.map((line) => [line.label, {
      strokePattern: line.dash, drawPoints: line.dots, pointSize: 3,
      // below the others, where they are equal
      strokeWidth: line.dots ? 1 : runs.length > 1 && line.index === 0 ? 2.4 : 1.2 }])),
    connectSeparatedPoints: true, legend: "never", logscale: Boolean(chart.logged && positive),
    gridLineColor: style("--line"), axisLineColor: style("--line"), axisLabelWidth: 60,
    underlayCallback: drawResumes,
    axes: { x: { axisLabelFormatter: axisX, pixelsPerLabel: 90 },
      y: { axisLabelFormatter: (value) => number(value, 3) } },
    highlightCallback: (event, x, points) => {
      chart.readout.textContent = `${state.x === "steps" ? "step " : ""}${axisX(x)}: ` +
        points.map((point) => `${point.name.trim()} ${number(point.yval, 6)}`).join(", ");
    },
    unhighlightCallback: () => { chart.readout.textContent = ""; },
    zoomCallback: (from, to) => follow(chart.graph, [from, to]),
  });
}

function addChart(place, chart) {
  const found = lines(chart);
  if (!found.length) return;
  chart.plot = element("div", { class: "plot" });
  chart.readout = element("div", { class: "readout", "aria-live": "off" });
  const legend = element("div", { class: "legend" },
    ...(found.length > 1 ? found.map((line) => key(runColour(line.index), line.label.trim() +
      (line.dots ? " (dots)" : line.dash ? " (dashed)" : ""))) : []));
  const made = element("div", { class: "chart" }, element("h3", {}, chart.title));
  if (chart.about) made.append(element("div", { class: "faint" }, chart.about));
  if (chart.log) {
    const button = element("button", { "aria-pressed": "false" }, "logarithmic");
    button.addEventListener("click", () => {
      chart.logged = !chart.logged;
      button.setAttribute("aria-pressed", String(chart.logged));
      draw(chart);
    });
    made.append(element("div", { class: "buttons" }, button));
  }
  made.append(legend, chart.plot, chart.readout);
  place.append(made);
  state.charts.push(chart);
}

function charts() {
  const buttons = element("div", { class: "buttons" });
  for (const x of ["steps", "time"]) {
    const button = element("button", { "aria-pressed": String(x === state.x) },
      x === "steps" ? "over steps" : "over time");
    button.addEventListener("click", () => {
      state.x = x;
      for (const other of buttons.children)
        other.setAttribute("aria-pressed", String(other === button));
      state.charts.forEach(draw);
    });
    buttons.append(button);
  }
  const place = element("div", { class: "charts" });
  known.forEach((chart) => addChart(place, chart));
  const named = new Set(known.flatMap((chart) => chart.series.map(([name]) => name)));
  named.add("loss_difference"); // has a section of its own
  const others = new Set(runs.flatMap((run) => Object.keys(run.series)));
  for (const name of others)
    if (!named.has(name))
      addChart(place, { title: name, about: "Logged by the program.", series: [[name, ""]] });
  return element("section", { id: "curves" }, element("h2", {}, "Curves"),
    element("p", { class: "faint" }, "Drag over a chart to look closer, double-click to go back. " +
      "Dashed lines across: an attempt resumed. Steps done again appear once, as they counted."),
    buttons, place);
}

// ---- several runs ----

function differences() {
  const made = element("section", { id: "differences" }, element("h2", {}, "Difference"));
  for (const pair of report.differences) {
    const names = `${runs[pair.run].name} and ${runs[0].name}`;
    made.append(element("p", {}, pair.steps === 0 ? `${names} have no step in common.`
      : pair.equal === pair.steps
        ? `${names}: all ${count(pair.steps, "common step")} have the same loss, bit for bit.`
        : `${names}: ${pair.equal.toLocaleString("en")} of ${count(pair.steps, "common step")} ` +
          `have the same loss, bit for bit; the first that differs is step ${pair.first}, the ` +
          `largest difference is ${number(pair.largest)}.`));
  }
  const place = element("div", { class: "charts" });
  if (report.differences.some((pair) => pair.equal < pair.steps))
    addChart(place, { title: "Difference of the losses",
      about: `The loss minus that of ${runs[0].name} at the same step.`,
      series: [["loss_difference", ""]] });
  made.append(place);
  return made;
}

function flat(object, prefix, out) {
  for (const [name, value] of Object.entries(object || {})) {
    if (value !== null && typeof value === "object" && !Array.isArray(value))
      flat(value, `${prefix}${name} `, out);
    else out.set(`${prefix}${name}`, typeof value === "string" ? value : JSON.stringify(value));
  }
  return out;
}

function settings(title, about, name) {
  const each = runs.map((run) => flat(run[name], "", new Map()));
  const names = [...new Set(each.flatMap((map) => [...map.keys()]))];
  if (!names.length) return null;
  const rows = names.map((one) => {
    const values = each.map((map) => map.has(one) ? map.get(one) : null);
    return { cells: [one, ...values], differs: values.some((value) => value !== values[0]) };
  });
  return element("details", {}, element("summary", {}, title),
    element("p", { class: "faint" }, about),
    table([{ text: "" }, ...runs.map((run) => ({ text: run.name }))], rows));
}

// ---- the page ----

function page() {
  const main = document.getElementById("main");
  main.append(element("h1", {}, report.title),
    element("p", { class: "faint" }, `Made ${moment(report.made)} by muster-report ` +
      `${report.version} from ${runs.map((run) => run.path).join(", ")}`));
  for (const run of runs) main.append(element("p", { class: "story" }, story(run)), tiles(run));
  if (runs.length > 1) main.append(differences());
  main.append(timeline(), ...runs.map(attemptsTable), times(), charts());
  const written = runs.map(samples).filter(Boolean);
  if (written.length)
    main.append(element("section", { id: "samples" }, element("h2", {}, "Sample texts"),
      ...written));
  const tables = [
    settings("Configuration", "As the newest checkpoint has it.", "config"),
    settings("What the bits depend on", "Beside the configuration: where these are equal, so " +
      "are the results, bit for bit.", "numerics")].filter(Boolean);
  if (tables.length)
    main.append(element("section", { id: "settings" }, element("h2", {}, "Settings"), ...tables));
  state.charts.forEach(draw);
  document.body.dataset.charts = String(state.charts.length);
}

page();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change",
  () => state.charts.forEach(draw));
