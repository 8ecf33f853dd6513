// Small charts of the last hours, drawn as SVG. One slider, or the pointer, reads all of them at the same moment.

import {$, children, h, mark, s, say} from "./dom.js";
import {DASH, bytes, clock, rate, seconds} from "./format.js";

const WIDTH = 600;
const HEIGHT = 96;
const SPANS = [["15 min", 900], ["1 h", 3600], ["4 h", 14400]];
const GAP_S = 60;
const KEPT_S = 14400;

const persec = (value) => (Number.isFinite(value) ? `${bytes(value)}/s` : DASH);
const CHARTS = [
  {name: "changes_s", title: "Changes published", unit: "/s", text: rate},
  {name: "wal_bytes_s", title: "WAL written", text: persec},
  {name: "lag_bytes", title: "Not confirmed by the bridge", text: bytes},
  {name: "retained_bytes", title: "WAL kept for the slot", text: bytes, limit: (look) => look?.status?.source?.slot?.max_slot_wal_keep_size},
  {name: "replica_lag_s", title: "Replica behind the topics", text: seconds},
  {name: "applied_s", title: "Rows applied in the replica", unit: "/s", text: rate},
  {name: "fed_s", title: "Rows applied in the view", unit: "/s", text: rate},
  {name: "topics_bytes", title: "Topics on disk", text: bytes},
];

let span = 900;
let back = 1;
let shown = null;

class Chart {
  constructor(kind) {
    this.kind = kind;
    this.value = h("span", {class: "value"});
    this.range = h("span", {class: "small range"});
    this.area = s("path", {class: "area"});
    this.path = s("path", {class: "curve"});
    this.limit = s("line", {class: "limit", x1: 0, x2: WIDTH});
    this.cursor = s("line", {class: "cursor", y1: 0, y2: HEIGHT});
    this.svg = s("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img"}, this.area, this.path, this.limit, this.cursor);
    this.svg.addEventListener("pointermove", (event) => {
      const box = this.svg.getBoundingClientRect();
      lookBack((event.clientX - box.left) / box.width);
    });
    this.svg.addEventListener("pointerleave", () => lookBack(1));
    this.node = h("figure", {class: "chart"}, h("figcaption", {}, h("span", {class: "chart-title"}, kind.title), this.value), this.svg, this.range);
  }

  show(at, values, from, to, look) {
    const points = [];
    for (let i = 0; i < at.length; i += 1) if (at[i] >= from) points.push([at[i], values[i]]);
    const known = points.filter(([, value]) => Number.isFinite(value)).map(([, value]) => value);
    this.node.hidden = known.length === 0;
    if (!known.length) return;
    const limit = this.kind.limit?.(look);
    const most = Math.max(...known);
    const least = Math.min(...known);
    // The axis begins at zero, so that heights can be compared. A limit is drawn only if the values come near it.
    const top = (limit && most > limit / 4 ? limit : most) * 1.08 || 1;
    const x = (time) => ((time - from) / (to - from)) * WIDTH;
    const y = (value) => HEIGHT - 1 - (value / top) * (HEIGHT - 4);
    const {curve, area} = drawn(points, x, y);
    mark(this.path, "d", curve);
    mark(this.area, "d", area);
    mark(this.limit, "y1", limit ? y(limit) : null);
    mark(this.limit, "y2", limit ? y(limit) : null);
    this.limit.style.display = limit && limit <= top ? "" : "none";
    const moment = from + back * (to - from);
    const there = back >= 1 ? points.at(-1) : points.reduce((best, each) => (Math.abs(each[0] - moment) < Math.abs(best[0] - moment) ? each : best));
    mark(this.cursor, "x1", x(there[0]));
    mark(this.cursor, "x2", x(there[0]));
    this.cursor.style.display = back >= 1 ? "none" : "";
    const text = (value) => this.kind.text(value) + (Number.isFinite(value) ? this.kind.unit ?? "" : "");
    say(this.value, text(there[1]));
    say(this.range, `${text(least)} to ${text(most)}${limit ? `, limit ${text(limit)}` : ""}`);
    mark(this.svg, "aria-label", `${this.kind.title}: ${text(points.at(-1)[1])} now, ${text(least)} to ${text(most)} since ${clock(Math.max(from, at[0]))}`);
  }
}

function drawn(points, x, y) {
  let curve = "";
  let area = "";
  let start = null;
  let last = null;
  const close = () => {
    if (start !== null) area += `L${x(last[0]).toFixed(1)} ${HEIGHT}L${x(start).toFixed(1)} ${HEIGHT}Z`;
    start = null;
  };
  for (const point of points) {
    const [time, value] = point;
    if (!Number.isFinite(value)) {
      close();
      continue;
    }
    if (start !== null && time - last[0] > GAP_S) close();
    const at = `${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
    curve += `${start === null ? "M" : "L"}${at}`;
    area += `${start === null ? "M" : "L"}${at}`;
    start ??= time;
    last = point;
  }
  close();
  return {curve, area};
}

const charts = CHARTS.map((kind) => new Chart(kind));

/** What a page knows about the past: the server's samples, and the looks since the last sample. */
export class Past {
  constructor() {
    this.at = [];
    this.series = Object.fromEntries(CHARTS.map(({name}) => [name, []]));
  }

  begin({at, series}) {
    this.at = [...at];
    for (const {name} of CHARTS) this.series[name] = [...(series[name] ?? [])].map((each) => each ?? NaN);
  }

  add(at, figures) {
    this.at.push(at);
    for (const {name} of CHARTS) this.series[name].push(figures?.[name] ?? NaN);
    // Looks come every two seconds, samples every 15. Older looks are thinned out to the pace of samples.
    const recent = this.at.findIndex((each) => each > at - 900);
    let place = 1;
    while (place < recent) {
      if (this.at[place] - this.at[place - 1] < 12) this.drop(place);
      else place += 1;
      if (this.at.length <= place || this.at[place] > at - 900) break;
    }
    while (this.at.length && this.at[0] < at - KEPT_S) this.drop(0);
  }

  drop(place) {
    this.at.splice(place, 1);
    for (const each of Object.values(this.series)) each.splice(place, 1);
  }
}

function lookBack(share) {
  back = Math.min(Math.max(share, 0), 1);
  $("back").value = String(Math.round(back * 1000));
  if (shown) showCharts(shown.past, shown.look);
}

export function showCharts(past, look) {
  shown = {past, look};
  const to = past.at.at(-1) ?? Date.now() / 1000;
  // A process that has just started has only a short past, which then fills the width.
  const from = Math.max(to - span, Math.min(past.at[0] ?? to, to - 120));
  for (const chart of charts) chart.show(past.at, past.series[chart.kind.name], from, to, look);
  say($("moment"), back >= 1 ? "now" : clock(from + back * (to - from)));
}

export function prepareCharts() {
  children($("charts"), charts.map((each) => each.node));
  for (const [text, length] of SPANS) {
    const radio = h("input", {type: "radio", name: "span", value: length, checked: length === span, onchange: () => {
      span = length;
      lookBack(1);
    }});
    $("span").append(h("label", {}, radio, h("span", {}, text)));
  }
  $("back").addEventListener("input", (event) => lookBack(Number(event.target.value) / 1000));
}
