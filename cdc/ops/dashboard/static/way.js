// The way of a row: source, bridge, topics, replica and view as boxes, with what is known about each.

import {$, children, h, mark, say} from "./dom.js";
import {DASH, bytes, count, rate, seconds} from "./format.js";

/** Older figures are marked as old. Looks come every two seconds, and within six if a server hangs. */
const OLD_S = 8;

const STATES = {
  good: "good", running: "good", exact: "good", streaming: "good", answers: "good", published: "good",
  loading: "busy", catching_up: "busy", rebuilding: "busy", suspect: "busy", behind: "busy",
  degraded: "warn", excepted: "warn", old: "warn", "kept waiting": "warn", waiting: "bad", retrying: "bad", hangs: "bad", unknown: "idle",
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

  show(state, facts, why = null) {
    this.known = state;
    say(this.state, state.replaceAll("_", " "));
    mark(this.state, "data-tone", STATES[state] ?? "idle");
    mark(this.state, "title", why);
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

/** Words for the states of cdc status. The caller has a better word for running. */
const STANDING = {waiting: "waiting", still: "hangs", blocked: "kept waiting"};
/** A view's tables can be used without cdc serve, so nobody can tell whether a service is missing. */
const NO_SERVICE = "not running";

function standing(of, well) {
  return of?.state === "running" ? well : STANDING[of?.state] ?? of?.state ?? "unknown";
}

class Link {
  constructor(place) {
    this.text = h("span", {class: "flow"});
    this.unit = h("span", {class: "flow-unit"});
    this.node = h("div", {class: `link ${place}`}, h("p", {}, this.text, this.unit), h("span", {class: "line", "aria-hidden": "true"}));
  }

  show(value, unit, flows, held = false) {
    if (held) [value, flows] = [DASH, null];  // while nothing takes the rows, none flow, whatever was counted before
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

/** Mark boxes whose figures are too old, and show how old they are. */
export function showAges(look, now) {
  const age = look ? now - look.at : 0;
  for (const box of Object.values(boxes)) {
    if (!box.known) continue;
    const isOld = age > OLD_S;
    say(box.state, isOld ? `${seconds(age)} old` : box.known.replaceAll("_", " "));
    mark(box.state, "data-tone", isOld ? "warn" : STATES[box.known] ?? "idle");
    mark(box.node, "data-old", isOld ? "yes" : null);
  }
}

export function showWay(look) {
  const wanted = [boxes.source, links.read, boxes.bridge, links.publish, boxes.topics];
  if (look.has.sink) wanted.push(links.apply, boxes.sink);
  if (look.has.view) wanted.push(links.feed, boxes.view);
  mark($("way"), "data-ends", Number(look.has.sink) + Number(look.has.view));
  children($("way"), wanted.map((each) => each.node));
  const {status, figures} = look;
  source(status, figures, status.bridge?.state);
  bridge(status, figures, look);
  topics(status, figures, look);
  if (look.has.sink) replica(status, figures);
  if (look.has.view) view(look, figures);
}

const HEALTHY = new Set(["running"]);

function source({source: from}, figures, bridgeState) {
  const slot = from.slot;
  const state = !from.reachable ? "unreachable" : !("wal_lsn" in from) ? "unknown" : "good";
  boxes.source.show(state === "good" ? "answers" : state, [
    ["WAL written", perSecond(figures.wal_bytes_s)],
    ["WAL end", from.wal_lsn ?? DASH],
    ["kept for the slot", slot ? bytes(slot.retained_bytes) : DASH],
    ["its limit", limit(slot), "max_slot_wal_keep_size"],
  ]);
  const isHeld = !slot || !HEALTHY.has(bridgeState);
  links.read.show(slot ? bytes(slot.lag_bytes) : DASH, "not confirmed", isHeld ? null : figures.wal_bytes_s);
}

function limit(slot) {
  if (!slot) return DASH;
  if (slot.max_slot_wal_keep_size === null) return "none";
  return `${bytes(slot.max_slot_wal_keep_size)}, ${bytes(slot.safe_wal_size)} left`;
}

function bridge({source: from, topics: to}, figures, look) {
  const slot = from.slot;
  const stands = look.status.bridge;
  boxes.bridge.show(standing(stands, "streaming"), [
    ["behind", slot ? seconds(slot.lag_seconds) : DASH],
    ["slot", slot ? slot.wal_status ?? DASH : DASH],
    ["stand-by", slot ? count(slot.waiting_bridges) : DASH, "bridges that wait for the slot"],
    ["retries", count(look.single.cdc_bridge_restarts_total)],
  ], stands?.why);
  const changes = figures.changes_s;
  const isHeld = !to.reachable || !HEALTHY.has(stands?.state);
  if (changes !== null) links.publish.show(rate(changes), "changes/s", changes, isHeld);
  else links.publish.show(perSecond(figures.published_bytes_s), "of WAL", figures.published_bytes_s, isHeld);
}

function topics({topics: to, backfills}, figures, look) {
  const whole = backfills.filter((each) => each.whole).length;
  const state = !to.reachable ? "unreachable" : "published_lsn" in to ? (whole < backfills.length ? "loading" : "published") : "missing";
  boxes.topics.show(state, [
    ["published to", to.published_lsn ?? DASH],
    ["newest commit", to.age_seconds === null || to.age_seconds === undefined ? DASH : `${seconds(to.age_seconds)} ago`],
    ["whole", to.reachable ? `${count(whole)} of ${count(backfills.length)}` : DASH, "topics that hold every row of their table"],
    ["on disk", bytes(look.topics?.bytes)],
  ]);
}

function replica({sink}, figures) {
  const states = sink.tables?.map((each) => each.state) ?? [];
  const exact = states.filter((each) => each === "exact").length;
  const worst = ["stopped", "excepted", "catching_up", "rebuilding", "loading"].find((each) => states.includes(each));
  let state = standing(sink, worst ?? (sink.cut_lsn ? "exact" : "loading"));
  if (!sink.reachable) state = "unreachable";
  boxes.sink.show(state, [
    ["behind", sink.lag_seconds === null || sink.lag_seconds === undefined ? DASH : `${seconds(sink.lag_seconds)}, ${bytes(sink.lag_bytes)}`],
    ["cut at", sink.cut_lsn ?? DASH, "the replica equals the source at this LSN"],
    ["exact", states.length ? `${count(exact)} of ${count(states.length)}` : DASH],
  ], sink.why);
  links.apply.show(rate(figures.applied_s), "rows/s", figures.applied_s, !HEALTHY.has(sink.state) || !sink.reachable);
}

function view(look, figures) {
  const states = look.tables.rows.map((each) => each.view).filter(Boolean);
  const worst = ["degraded", "suspect", "loading", "behind"].find((each) => states.includes(each));
  const stands = look.status.view;
  const known = states.length ? worst ?? "exact" : "unknown";
  const state = stands?.state === "down" ? NO_SERVICE : standing(stands?.state === "unknown" ? null : stands, known);
  boxes.view.show(state, [
    ["age", seconds(look.single.cdc_serve_age_seconds), "since it was known to show everything that the topics hold"],
    ["requests", `${rate(figures.requests_s)}/s`],
    ["watches", count(look.single.cdc_serve_watches)],
  ], stands?.why);
  links.feed.show(rate(figures.fed_s), "rows/s", figures.fed_s, !["running", "unknown"].includes(stands?.state));
}

function perSecond(value) {
  const text = bytes(value);
  return text === DASH ? DASH : `${text}/s`;
}
