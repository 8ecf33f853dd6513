// The list of tables: a row for each, with its topic, its replica table and its view.

import {$, Pool, children, h, mark, say} from "./dom.js";
import {DASH, count, plural, rate, seconds} from "./format.js";

const TONES = {
  exact: "good", whole: "good", loading: "busy", catching_up: "busy", rebuilding: "busy", waiting: "busy", running: "busy",
  paused: "warn", excepted: "warn", incomplete: "bad", stopped: "bad", failed: "bad", suspect: "warn", degraded: "warn", behind: "warn",
};
const COLUMNS = [
  {name: "table", title: "Table", text: true, of: (row) => row.table},
  {name: "topic", title: "Topic", text: true, of: (row) => row.state ?? ""},
  {name: "changes_s", title: "Changes/s", of: (row) => row.changes_s ?? -1},
  {name: "changes", title: "Changes", of: (row) => row.changes ?? -1},
  {name: "replica", title: "Replica", text: true, needs: "sink", of: (row) => row.replica?.state ?? ""},
  {name: "applied_s", title: "Rows/s", needs: "sink", of: (row) => row.replica?.rows_applied_s ?? -1},
  {name: "applied", title: "Rows applied", needs: "sink", of: (row) => row.replica?.rows_applied ?? -1},
  {name: "view", title: "View", text: true, needs: "view", of: (row) => row.view ?? ""},
  {name: "rows", title: "Rows", needs: "view", of: (row) => row.rows ?? -1},
];

let order = {name: "", down: false};
let again = () => {};

const chip = () => h("span", {class: "chip"});

function state(node, text) {
  say(node, text ? text.replaceAll("_", " ") : DASH);
  mark(node, "data-tone", TONES[text] ?? "idle");
}

const pool = new Pool((row) => {
  const cells = Object.fromEntries(COLUMNS.map(({name, title, text}) => [name, h(name === "table" ? "th" : "td", {class: text ? null : "number", "data-title": title, scope: name === "table" ? "row" : null})]));
  const chips = {topic: chip(), replica: chip(), view: chip()};
  for (const [name, each] of Object.entries(chips)) cells[name].append(each);
  const bar = h("progress", {max: "1", "aria-label": `backfill of ${row.table}`});
  const note = h("span", {class: "small note"});
  cells.topic.append(bar, note);
  const why = h("span", {class: "small note"});
  cells.replica.append(why);
  return {node: h("tr", {}, ...Object.values(cells)), cells, chips, bar, note, why};
});

function fill(made, row, columns) {
  const {cells, chips} = made;
  say(cells.table, row.table);
  mark(cells.table, "title", row.topic);
  const backfill = row.backfill;
  const open = backfill && ["waiting", "running", "paused"].includes(backfill.state);
  state(chips.topic, open ? backfill.state === "running" ? "loading" : backfill.state : row.state ?? "");
  made.bar.hidden = !open;
  if (open) made.bar.value = backfill.done;
  say(made.note, open ? progress(backfill) : "");
  say(cells.changes_s, rate(row.changes_s));
  say(cells.changes, count(row.changes));
  state(chips.replica, row.replica?.state ?? "");
  say(made.why, row.replica?.reason?.split("\n")[0] ?? row.replica?.under_way ?? "");
  say(cells.applied_s, rate(row.replica?.rows_applied_s));
  say(cells.applied, count(row.replica?.rows_applied));
  state(chips.view, row.view ?? "");
  say(cells.rows, count(row.rows));
  children(made.node, columns.map(({name}) => cells[name]));
}

function progress(backfill) {
  const parts = [`${Math.floor(backfill.done * 100)} %`, `${count(backfill.rows)} of about ${count(backfill.estimated_rows)}`];
  if (backfill.rows_per_second) parts.push(`${rate(backfill.rows_per_second)}/s`);
  if (backfill.seconds_left !== null) parts.push(`${seconds(backfill.seconds_left)} left`);
  if (backfill.reason) parts.push(backfill.reason.split("\n")[0]);
  return parts.join(", ");
}

const heads = new Map(COLUMNS.map((column) => {
  const button = h("button", {type: "button", onclick: () => {
    order = {name: column.name, down: order.name === column.name ? !order.down : !column.text};
    again();
  }}, column.title);
  return [column.name, h("th", {scope: "col", class: column.text ? null : "number"}, button)];
}));
const head = h("tr", {});
const body = h("tbody", {});

function isSettled(row) {
  const states = [row.state, row.view, row.replica?.state].filter(Boolean);
  return states.every((each) => TONES[each] === "good") && (row.backfill?.state ?? "done") === "done";
}

export function showTables(look) {
  again = () => showTables(look);
  const columns = COLUMNS.filter(({needs}) => !needs || look.has[needs]);
  children(head, columns.map(({name}) => {
    mark(heads.get(name), "aria-sort", order.name === name ? (order.down ? "descending" : "ascending") : null);
    return heads.get(name);
  }));
  const wanted = $("find").value.trim().toLowerCase();
  let rows = look.tables.rows.filter((row) => row.table.toLowerCase().includes(wanted));
  if ($("unsettled").checked) rows = rows.filter((row) => !isSettled(row));
  const column = COLUMNS.find(({name}) => name === order.name);
  if (column) {
    const sign = order.down ? -1 : 1;
    const by = (a, b) => (column.text ? column.of(a).localeCompare(column.of(b)) : column.of(a) - column.of(b));
    rows = [...rows].sort((a, b) => sign * by(a, b) || a.table.localeCompare(b.table));
  }
  children(body, pool.of(rows, (row) => row.topic, (made, row) => fill(made, row, columns)));
  const {count: all, rows: sent} = look.tables;
  const hidden = sent.length < all ? `, ${count(all - sent.length)} quiet ones not shown` : "";
  say($("tables-count"), rows.length < sent.length ? `${count(rows.length)} of ${plural(all, "table")}` : `${plural(all, "table")}${hidden}`);
}

export function prepareTables() {
  $("tables").append(h("thead", {}, head), body);
  $("find").addEventListener("input", () => again());
  $("unsettled").addEventListener("change", () => again());
}
