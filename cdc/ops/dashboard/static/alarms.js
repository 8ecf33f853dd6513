// What needs attention, errors first, each with its remedy.

import {$, Pool, children, h, mark, say} from "./dom.js";
import {ago, plural} from "./format.js";

const SIGNS = {error: "Error", warning: "Warning"};

const row = () => {
  const sign = h("span", {class: "sign"});
  const part = h("span", {class: "part"});
  const text = h("p", {class: "alarm-text"});
  const prose = h("p", {class: "remedy-text"});
  const code = h("pre", {class: "remedy", tabindex: "0", role: "group"});
  const copy = h("button", {type: "button", class: "copy", onclick: () => copied(copy, code.textContent)}, "Copy");
  const since = h("span", {class: "since"});
  const mend = h("div", {class: "mend"}, code, copy);
  return {
    node: h("li", {class: "alarm"}, h("p", {class: "alarm-head"}, sign, part, since), text, prose, mend),
    sign, prose, part, text, code, since, mend, copy,
  };
};
const pool = new Pool(row);
const standingPool = new Pool(row);

async function copied(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    say(button, "Copied");
  } catch {
    say(button, "Select it");
  }
  setTimeout(() => say(button, "Copy"), 2000);
}

/** Alarms are about what is wrong now. Warnings of cdc check, which harm nothing yet, are listed further down. */
export const isLive = (each) => each.level === "error" || each.told_by === "cdc status" || !each.told_by;

export function showAlarms(found, look, now) {
  const live = found.filter(isLive);
  const standing = found.filter((each) => !isLive(each));
  list($("alarm-list"), pool, live, now);
  list($("standing-list"), standingPool, standing, now);
  $("standing").hidden = standing.length === 0;
  say($("standing-title"), plural(standing.length, "standing warning"));
  $("no-alarms").hidden = live.length > 0;
  say($("no-alarms"), calm(look, now));
}

function list(place, pool, found, now) {
  children(place, pool.of(found, (each) => each.key ?? `${each.part} ${each.text}`, (made, each) => {
    mark(made.node, "data-level", each.level);
    say(made.sign, SIGNS[each.level] ?? each.level);
    say(made.part, each.told_by ? `${each.part} · ${each.told_by}` : each.part);
    say(made.text, each.text);
    const command = each.command ?? "";
    say(made.code, command);
    say(made.prose, each.remedy);
    made.prose.hidden = !each.remedy || each.remedy === command;
    mark(made.code, "aria-label", `What to do: ${each.part}`);
    mark(made.copy, "aria-label", `Copy what to do: ${each.part}`);
    made.mend.hidden = !command;
    say(made.since, each.since ? `since ${ago(each.since, now).replace(" ago", "")}`.replace("since just now", "just now") : "");
  }));
}

function calm(look, now) {
  if (!look?.status) return "There is no status yet.";
  const {check} = look;
  if (!check) return "None in cdc status. cdc check is still running.";
  if (check.error) return `None in cdc status. cdc check failed: ${check.error.text}.`;
  return `None. cdc status is healthy, and cdc check made ${plural(check.findings.length, "check")} ${ago(check.at, now)}.`;
}
