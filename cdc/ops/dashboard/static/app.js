// The page: follows the server's events, and shows the chosen deployment.

import {isLive, showAlarms} from "./alarms.js";
import {Past, prepareCharts, showCharts} from "./charts.js";
import {$, Pool, children, h, mark, say} from "./dom.js";
import {ago, plural} from "./format.js";
import {prepareKeys, showKeys} from "./keys.js";
import {preparePanels, showPanels} from "./panels.js";
import {follow, keepToken} from "./stream.js";
import {prepareTables, showTables} from "./tables.js";
import {prepareTopics, showTopics} from "./topics.js";
import {showAges, showWay} from "./way.js";

const OLD_S = 8;

const known = [];
let lost = "";
let skew = 0;

const now = () => Date.now() / 1000 + skew;
const chosen = () => Math.min(Math.max(Number(location.hash.slice(1)) || 0, 0), Math.max(known.length - 1, 0));

function alarmsOf(deployment) {
  const look = deployment?.look;
  const found = [...(look?.alarms ?? [])];
  if (look?.error) found.unshift({level: "error", part: "dashboard", text: look.error.text, remedy: look.error.remedy ?? ""});
  return found;
}

function show() {
  const deployment = known[chosen()];
  const look = deployment?.look;
  const found = alarmsOf(deployment);
  if (lost) found.unshift({level: "error", part: "dashboard", text: look ? `What you see is old: ${lost}` : lost, remedy: ""});
  showAlarms(found, look, now());
  showFreshness(look);
  showChoice();
  if (!look) return;
  say($("name"), look.name);
  const live = found.filter(isLive);
  const errors = live.filter(({level}) => level === "error").length;
  const warnings = live.length - errors;
  const words = [errors ? plural(errors, "error") : "", warnings ? plural(warnings, "warning") : ""].filter(Boolean).join(", ");
  say($("verdict"), words || "All is well");
  mark($("verdict"), "data-tone", errors ? "bad" : warnings ? "warn" : "good");
  document.title = `${words ? `${words} · ` : ""}${look.name} · cdc`;
  mark($("icon"), "href", errors ? "/dashboard/icon-alarm.svg" : "/dashboard/icon.svg");
  for (const each of document.querySelectorAll("main > :not(#alarms, #standing)")) each.hidden = !look.status;
  if (!look.status) return;
  showWay(look);
  showCharts(deployment.past, look);
  showTables(look);
  showKeys(look, chosen());
  showTopics(look.topics, now());
  showPanels(look);
  say($("cost"), `A look takes ${Math.round(look.took_s * 1000)} ms.`);
}

function showFreshness(look) {
  const isOld = Boolean(look) && now() - look.at > OLD_S;
  mark($("freshness"), "data-tone", lost ? "bad" : isOld ? "warn" : look ? "good" : "idle");
  say($("fresh"), look ? `as of ${ago(look.at, now())}` : lost || "connecting");
  if (look?.status) showAges(look, now());
}

const tabs = new Pool(() => {
  const [dot, text] = [h("span", {class: "dot", "aria-hidden": "true"}), h("span", {})];
  const note = h("span", {class: "unseen"});
  return {node: h("a", {}, dot, text, note), dot, text, note};
});

function showChoice() {
  $("deployments").hidden = known.length < 2;
  if (known.length < 2) return;
  children($("deployments"), tabs.of(known.map((each, number) => ({...each, number})), ({number}) => number, (made, each) => {
    const found = alarmsOf(each).filter(isLive);
    const tone = !each.look ? "idle" : found.some(({level}) => level === "error") ? "bad" : found.length ? "warn" : "good";
    mark(made.node, "href", `#${each.number}`);
    mark(made.node, "aria-current", each.number === chosen() ? "true" : null);
    mark(made.dot, "data-tone", tone);
    say(made.text, each.look?.name ?? "…");
    say(made.note, found.length ? `, ${plural(found.length, "alarm")}` : ", all is well");
  }));
}

function take(name, {deployment: number, data}) {
  if (name !== "past" && name !== "look") return;
  known[number] ??= {past: new Past(), look: null};
  if (lost) lost = "";
  if (name === "past") known[number].past.begin(data);
  if (name === "look" && data) {
    skew = Math.min(data.at - Date.now() / 1000, 0) || Math.max(data.at - Date.now() / 1000, 0);
    const before = known[number].look;
    // If a server is out of reach, keep showing the last look; the page says how old it is.
    known[number].look = data.error && before?.status ? {...before, error: data.error} : data;
    if (!data.error) known[number].past.add(data.at, data.figures);
  }
  if (name === "look") show();
}

function askToken(why) {
  say($("door-why"), why);
  $("token").value = "";
  $("door").showModal();
  return new Promise((resolve) => {
    $("door-form").addEventListener("submit", () => {
      keepToken($("token").value.trim());
      resolve();
    }, {once: true});
  });
}

prepareCharts();
prepareTables();
prepareTopics();
preparePanels();
prepareKeys();
addEventListener("hashchange", show);
$("door").addEventListener("cancel", (event) => event.preventDefault());
setInterval(() => showFreshness(known[chosen()]?.look), 1000);
follow("/dashboard/events", {
  event: take,
  lost: (why) => {
    lost = why;
    show();
  },
  token: askToken,
});
