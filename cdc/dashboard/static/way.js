// The way of a row: source, bridge, topics, replica and view, as boxes with what is known of each.

import {$, children, h, mark, say} from "./dom.js";
import {DASH, bytes, count, rate, seconds} from "./format.js";

const STATES = {
  good: "good", exact: "good", streaming: "good", answers: "good", published: "good",
  loading: "busy", catching_up: "busy", rebuilding: "busy", waiting: "busy", suspect: "busy", behind: "busy",
  degraded: "warn", unknown: "idle",
  stopped: "bad", down: "bad", lost: "bad", unreachable: "bad", missing: "bad",
};

class Box {
  constructor(place, title) {
    this.title = title;
    this.state = h("span", {class: "state"});
    this.list = h("dl", {class: "facts"});
    this.facts = new Map();
    this.node = h("article", {class: `box ${place}`, "aria-label": title}, h("h3", {}, title, this.state), this.list);
  }

  show(state, facts) {
    say(this.state, state.replaceAll("_", " "));
    mark(this.state, "data-tone", STATES[state] ?? "idle");
    children(this.list, facts.map(([name, value, title]) => {
      if (!this.facts.has(name)) {
        const text = h("dd", {});
        this.facts.set(name, {node: h("div", {}, h("dt", {}, name), text), text});
      }
      const made = this.facts.get(name);
      say(made.text, value);
      mark(made.node, "title", title ?? null);
      return made.node;
    }));
  }
}

class Link {
  constructor(place) {
    this.text = h("span", {class: "flow"});
    this.unit = h("span", {class: "flow-unit"});
    this.node = h("div", {class: `link ${place}`}, h("p", {}, this.text, this.unit), h("span", {class: "line", "aria-hidden": "true"}));
  }

  show(value, unit, flows) {
    say(this.text, value);
    say(this.unit, unit);
    mark(this.node, "data-flow", flows === null || flows === undefined ? "unknown" : flows > 0 ? "yes" : "no");
  }
}

const boxes = {
  source: new Box("source", "Source"),
  bridge: new Box("bridge", "Bridge"),
  topics: new Box("topics", "Topics"),
  sink: new Box("replica", "Replica"),
  view: new Box("view", "View"),
};
const links = {read: new Link("read"), publish: new Link("publish"), apply: new Link("apply"), feed: new Link("feed")};

export function showWay(look) {
  const wanted = [boxes.source, links.read, boxes.bridge, links.publish, boxes.topics];
  if (look.has.sink) wanted.push(links.apply, boxes.sink);
  if (look.has.view) wanted.push(links.feed, boxes.view);
  mark($("way"), "data-ends", Number(look.has.sink) + Number(look.has.view));
  children($("way"), wanted.map((each) => each.node));
  const {status, figures} = look;
  source(status, figures);
  bridge(status, figures, look);
  topics(status, figures, look);
  if (look.has.sink) replica(status, figures);
  if (look.has.view) view(look, figures);
}

function source({source: from}, figures) {
  const slot = from.slot;
  const state = !from.reachable ? "unreachable" : !("wal_lsn" in from) ? "unknown" : "good";
  boxes.source.show(state === "good" ? "answers" : state, [
    ["WAL written", perSecond(figures.wal_bytes_s)],
    ["WAL end", from.wal_lsn ?? DASH],
    ["kept for the slot", slot ? bytes(slot.retained_bytes) : DASH],
    ["its limit", limit(slot), "max_slot_wal_keep_size"],
  ]);
  links.read.show(slot ? bytes(slot.lag_bytes) : DASH, "not confirmed", figures.wal_bytes_s);
}

function limit(slot) {
  if (!slot) return DASH;
  if (slot.max_slot_wal_keep_size === null) return "none";
  return `${bytes(slot.max_slot_wal_keep_size)}, ${bytes(slot.safe_wal_size)} left`;
}

function bridge({source: from, topics: to}, figures, look) {
  const slot = from.slot;
  let state = "unknown";
  if (slot === null) state = "missing";
  else if (slot) state = slot.invalidation_reason || slot.wal_status === "lost" ? "lost" : slot.active ? "streaming" : "down";
  boxes.bridge.show(state, [
    ["behind", slot ? seconds(slot.lag_seconds) : DASH],
    ["slot", slot ? slot.wal_status ?? DASH : DASH],
    ["stand-by", slot ? count(slot.waiting_bridges) : DASH, "bridges that wait for the slot"],
    ["retries", count(look.single.cdc_bridge_restarts_total)],
  ]);
  const changes = figures.changes_s;
  if (changes !== null) links.publish.show(rate(changes), "changes/s", changes);
  else links.publish.show(perSecond(figures.published_bytes_s), "of WAL", figures.published_bytes_s);
}

function topics({topics: to, backfills}, figures, look) {
  const whole = backfills.filter((each) => each.whole).length;
  const state = !to.reachable ? "unreachable" : "published_lsn" in to ? (whole < backfills.length ? "loading" : "published") : "missing";
  boxes.topics.show(state, [
    ["published to", to.published_lsn ?? DASH],
    ["newest commit", to.age_seconds === null || to.age_seconds === undefined ? DASH : `${seconds(to.age_seconds)} ago`],
    ["whole", `${count(whole)} of ${count(backfills.length)}`, "topics that hold every row of their table"],
    ["on disk", bytes(look.topics?.bytes)],
  ]);
}

function replica({sink}, figures) {
  const states = sink.tables?.map((each) => each.state) ?? [];
  const exact = states.filter((each) => each === "exact").length;
  let state = "unknown";
  if (!sink.reachable) state = "unreachable";
  else if ("running" in sink) {
    const worst = ["stopped", "catching_up", "rebuilding", "loading"].find((each) => states.includes(each));
    state = !sink.running ? "down" : worst ?? (sink.cut_lsn ? "exact" : "loading");
  }
  boxes.sink.show(state, [
    ["behind", sink.lag_seconds === null || sink.lag_seconds === undefined ? DASH : `${seconds(sink.lag_seconds)}, ${bytes(sink.lag_bytes)}`],
    ["cut at", sink.cut_lsn ?? DASH, "the replica equals the source at this LSN"],
    ["exact", states.length ? `${count(exact)} of ${count(states.length)}` : DASH],
  ]);
  links.apply.show(rate(figures.applied_s), "rows/s", figures.applied_s);
}

function view(look, figures) {
  const states = look.tables.rows.map((each) => each.view).filter(Boolean);
  const worst = ["degraded", "suspect", "loading", "behind"].find((each) => states.includes(each));
  const process = look.processes.find((each) => each.role === "serve");
  const state = states.length ? worst ?? "exact" : process?.state === "silent" ? "down" : "unknown";
  boxes.view.show(state, [
    ["age", seconds(look.single.cdc_serve_age_seconds), "since it was known to show everything that the topics hold"],
    ["requests", `${rate(figures.requests_s)}/s`],
    ["watches", count(look.single.cdc_serve_watches)],
  ]);
  links.feed.show(rate(figures.fed_s), "rows/s", figures.fed_s);
}

function perSecond(value) {
  const text = bytes(value);
  return text === DASH ? DASH : `${text}/s`;
}
