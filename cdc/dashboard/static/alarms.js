// What wants somebody, errors first, each with what mends it.

import {$, Pool, children, h, mark, say} from "./dom.js";
import {ago, plural} from "./format.js";

const SIGNS = {error: "Error", warning: "Warning"};

const pool = new Pool(() => {
  const sign = h("span", {class: "sign"});
  const part = h("span", {class: "part"});
  const text = h("p", {class: "alarm-text"});
  const code = h("pre", {class: "remedy", tabindex: "0", role: "group"});
  const copy = h("button", {type: "button", class: "copy", onclick: () => copied(copy, code.textContent)}, "Copy");
  const since = h("span", {class: "since"});
  const mend = h("div", {class: "mend"}, code, copy);
  return {
    node: h("li", {class: "alarm"}, h("p", {class: "alarm-head"}, sign, part, since), text, mend),
    sign, part, text, code, since, mend, copy,
  };
});

async function copied(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    say(button, "Copied");
  } catch {
    say(button, "Select it");
  }
  setTimeout(() => say(button, "Copy"), 2000);
}

export function showAlarms(found, look, now) {
  children($("alarm-list"), pool.of(found, (each) => `${each.part} ${each.text}`, (made, each) => {
    mark(made.node, "data-level", each.level);
    say(made.sign, SIGNS[each.level] ?? each.level);
    say(made.part, each.told_by ? `${each.part} · ${each.told_by}` : each.part);
    say(made.text, each.text);
    say(made.code, each.remedy);
    mark(made.code, "aria-label", `What to do: ${each.part}`);
    mark(made.copy, "aria-label", `Copy what to do: ${each.part}`);
    made.mend.hidden = !each.remedy;
    say(made.since, each.since ? `since ${ago(each.since, now).replace(" ago", "")}`.replace("since just now", "just now") : "");
  }));
  $("no-alarms").hidden = found.length > 0;
  say($("no-alarms"), calm(look, now));
}

function calm(look, now) {
  if (!look?.status) return "Nothing has been looked at yet.";
  const {check} = look;
  if (!check) return "None. The checks of cdc check are being made.";
  if (check.error) return `None in cdc status. cdc check could not be made: ${check.error.text}.`;
  return `None. cdc status is healthy, and ${plural(check.findings.length, "check")} of cdc check passed ${ago(check.at, now)}.`;
}
