// Shows one key: its row in the topic and in the source, side by side, where the record lies, and its history.

import {$, children, h, mark, say} from "./dom.js";
import {DASH} from "./format.js";
import {Refused, ask} from "./stream.js";

let deployment = 0;

export function showKeys(look, number) {
  deployment = number;
  const names = look.tables.rows.map((row) => row.table).sort();
  const text = names.join("\n");
  if ($("key-tables").dataset.names === text) return;
  $("key-tables").dataset.names = text;
  children($("key-tables"), names.map((name) => h("option", {value: name})));
}

export function prepareKeys() {
  $("key-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const [table, key] = [$("key-table").value.trim(), $("key").value.trim()];
    say($("key-busy"), "reading the partition of the key …");
    try {
      const answer = await ask(`/dashboard/key?${new URLSearchParams({deployment, table, key})}`);
      answered(await answer.json());
      say($("key-busy"), "");
    } catch (error) {
      children($("key-answer"), []);
      say($("key-busy"), error instanceof Refused ? error.message : "the server does not answer");
    }
  });
}

function answered(found) {
  children($("key-answer"), [rows(found), evidence(found), past(found)].filter(Boolean));
}

const value = (text) => (text === undefined ? DASH : text === "null" ? "NULL" : text);

function rows({topic, source}) {
  const names = [...new Set([...Object.keys(topic.row ?? {}), ...Object.keys(source.row ?? {})])];
  const body = names.map((name) => {
    const [left, right] = [topic.row?.[name], source.row?.[name]];
    const differs = topic.row && source.row && left !== right;
    return h("tr", {"data-differs": differs ? "yes" : null},
      h("th", {scope: "row"}, name), h("td", {}, value(left)),
      h("td", {}, value(right), differs ? h("span", {class: "chip", "data-tone": "warn"}, "differs") : null));
  });
  const none = (side) => (side.row ? "" : side.why ?? "no such row");
  return h("div", {class: "scroll", tabindex: "0", role: "group", "aria-label": "The row"},
    h("table", {class: "grid"},
      h("thead", {}, h("tr", {}, h("th", {scope: "col"}, "Column"), h("th", {scope: "col"}, "Topic"), h("th", {scope: "col"}, "Source, now"))),
      h("tbody", {}, body, names.length && topic.row && source.row ? null : h("tr", {}, h("th", {scope: "row"}, "row"), h("td", {}, none(topic)), h("td", {}, none(source))))));
}

function evidence({topic}) {
  const facts = [
    ["what", topic.op], ["topic", topic.topic], ["partition", topic.partition], ["offset", topic.offset],
    ["LSN", topic.lsn], ["transaction", topic.xid], ["committed", topic.committed],
  ].filter(([, value]) => value !== null && value !== undefined);
  return h("dl", {class: "facts row"}, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, String(value)))));
}

function past({history}) {
  if (!history) return null;
  if (history.why) return h("p", {class: "small"}, history.why);
  const items = history.entries.map((each) => h("li", {},
    h("p", {}, h("time", {}, each.time), " ", h("b", {}, each.op), h("span", {class: "small"}, ` ${each.lsn}, transaction ${each.xid ?? DASH}`)),
    h("p", {class: "small"}, each.changes.join("; ") || "nothing changed")));
  return h("details", {open: items.length <= 5}, h("summary", {}, `History: ${items.length} of ${history.count} changes, the newest first`), h("ol", {class: "history"}, items));
}
