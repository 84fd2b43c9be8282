// The console's own script: theme, time zone, keys, charts and live tails. Text from records is only ever set as text.
"use strict";
const html = document.documentElement;

function isDark() {
  const chosen = html.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

document.getElementById("theme")?.addEventListener("click", () => {
  html.dataset.theme = isDark() ? "light" : "dark";
  localStorage.setItem("theme", html.dataset.theme);
  drawCharts();
});

// Times are written in UTC by the server, and here in local time on request.
function showTimes() {
  const isLocal = localStorage.getItem("zone") === "local";
  const button = document.getElementById("zone");
  if (button) button.textContent = isLocal ? "Local" : "UTC";
  for (const time of document.querySelectorAll("time[data-at]")) {
    time.dataset.utc ??= time.textContent;
    time.textContent = isLocal ? new Date(Number(time.dataset.at) * 1000).toLocaleString() : time.dataset.utc;
  }
}
document.getElementById("zone")?.addEventListener("click", () => {
  localStorage.setItem("zone", localStorage.getItem("zone") === "local" ? "utc" : "local");
  showTimes();
  drawCharts();
});

document.addEventListener("keydown", (event) => {
  const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    document.getElementById("search")?.focus();
  } else if (event.key === "Escape" && isTyping) {
    document.activeElement.blur();
  }
});

const menu = document.getElementById("menu");
if (menu && matchMedia("(max-width: 640px)").matches) menu.open = false;

// A form that is being sent is not sent again. The server would not execute it twice either.
document.addEventListener("submit", (event) => {
  if (event.target.method === "post") for (const button of event.target.querySelectorAll("button")) button.disabled = true;
});

// Charts. All charts of a page have one source: the series of the cluster, or what the first of them names.
let charts = [];
async function drawCharts() {
  const places = document.querySelectorAll(".chart[data-series]");
  if (!places.length || !window.uPlot) return;
  const source = places[0].dataset.source ?? "/api/v1/metrics";
  const answer = await fetch(source, { headers: { accept: "application/json" } });
  if (!answer.ok) return;
  const { times, series } = await answer.json();
  const style = getComputedStyle(html);
  for (const chart of charts) chart.destroy();
  charts = [];
  for (const place of places) {
    const names = place.dataset.series.split(" ");
    const colours = [style.getPropertyValue("--link"), style.getPropertyValue("--warn")];
    const text = style.getPropertyValue("--quiet"), line = style.getPropertyValue("--line");
    const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line } };
    const isLocal = localStorage.getItem("zone") === "local";
    const clock = (second) => new Date(1000 * second - (isLocal ? 60_000 * new Date(1000 * second).getTimezoneOffset() : 0)).toISOString().slice(11, 19);
    const moments = { ...axis, space: 80, values: (_, marks) => marks.map(clock) };
    const values = { ...axis, size: 56, values: (_, marks) => marks.map((mark) => Intl.NumberFormat("en", { notation: "compact" }).format(mark)) };
    const lines = names.map((name, number) => ({ label: name.replaceAll("_", " ") + (number ? " (dashed)" : ""), stroke: colours[number], width: 2, dash: number ? [6, 4] : [], points: { show: times.length < 3 } }));
    const scale = { y: { range: (_, low, high) => [0, Math.max(1, (high ?? 1) * 1.1)] } };
    const options = { width: place.clientWidth - 24, height: 150, legend: { show: names.length > 1, live: false }, cursor: { y: false }, scales: scale, axes: [moments, values], series: [{}, ...lines] };
    charts.push(new uPlot(options, [times, ...names.map((name) => series[name])], place.querySelector(".plot")));
    const last = series[names[0]].at(-1);
    place.querySelector("p").textContent = last === null || last === undefined ? place.dataset.lacks : `${Intl.NumberFormat("en", { maximumFractionDigits: 1 }).format(last)} ${place.dataset.unit}`;
  }
}

// The live tail of a topic.
const TAIL_ROWS_MAX = 200;
const tail = document.getElementById("tail");
function tailRow(record) {
  const row = document.createElement("li");
  const head = document.createElement("div");
  head.className = "head";
  const time = document.createElement("time");
  time.dataset.at = record.timestamp / 1000;
  time.textContent = new Date(record.timestamp).toISOString().replace("T", " ").slice(0, 19) + " UTC";
  const key = record.key === null ? "no key" : `key ${record.key}`;
  for (const text of [`partition ${record.partition}`, `offset ${record.offset}`, key, ...(record.schema ? [record.schema] : [])]) {
    const part = document.createElement("span");
    part.textContent = text;
    head.append(part);
  }
  head.append(time);
  const value = document.createElement("pre");
  value.tabIndex = 0;
  value.textContent = record.value === null ? "null" : record.value + (record.is_cut ? " ..." : "");
  row.append(head, value);
  return row;
}
if (tail) {
  const state = document.getElementById("tail-state");
  const button = document.getElementById("tail-stop");
  let source = null, count = 0, skipped = 0;
  const start = () => {
    source = new EventSource(tail.dataset.source);
    source.addEventListener("begun", () => { state.textContent = "Waiting for records."; });
    source.addEventListener("records", (event) => {
      const data = JSON.parse(event.data);
      count += data.records.length + data.skipped;
      skipped += data.skipped;
      const rows = document.createDocumentFragment();
      for (const record of data.records.reverse()) rows.append(tailRow(record));
      tail.prepend(rows);
      while (tail.children.length > TAIL_ROWS_MAX) tail.lastChild.remove();
      state.textContent = `${count} records since the start${skipped ? `, ${skipped} of them not shown because they came too fast` : ""}.`;
      showTimes();
    });
    source.addEventListener("problem", (event) => { state.textContent = JSON.parse(event.data).sentence; stop(); });
    source.onerror = () => { state.textContent = "The console does not answer; the browser tries again."; };
    button.textContent = "Stop";
  };
  const stop = () => { source?.close(); source = null; button.textContent = "Go on"; };
  button.addEventListener("click", () => (source ? stop() : start()));
  start();
}

for (const button of document.querySelectorAll("button[data-copies]"))
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
    button.textContent = "Copied";
  });

// A part is not renewed while a user types in it or walks through it by keyboard.
document.addEventListener("htmx:before:request", (event) => {
  if (document.querySelector("#part :focus-visible")) event.preventDefault();
});
document.addEventListener("htmx:after:swap", () => { showTimes(); drawCharts(); });
showTimes();
drawCharts();
