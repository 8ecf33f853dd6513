// The topics on disk, and whether their settings keep them small and keep deletes long enough.

import {$, Pool, children, h, mark, say} from "./dom.js";
import {ago, bytes, count, lasting, plural} from "./format.js";

const TITLES = [["Topic"], ["On disk", 1], ["Partitions × copies", 1], ["Compacted after", 1], ["Deletes are seen for", 1], ["Settings"]];

const pool = new Pool(() => {
  const name = h("th", {scope: "row"});
  const [size, partitions, lag, window] = TITLES.slice(1, 5).map(([title]) => h("td", {class: "number", "data-title": title}));
  const chip = h("span", {class: "chip"});
  const text = h("span", {class: "small note"});
  return {node: h("tr", {}, name, size, partitions, lag, window, h("td", {"data-title": "Settings"}, h("span", {}, chip, text))), name, size, partitions, window, lag, chip, text};
});
const findings = new Pool(() => {
  const [chip, text] = [h("span", {class: "chip"}), h("span", {})];
  const code = h("pre", {class: "remedy", tabindex: "0", role: "group"});
  return {node: h("li", {}, h("p", {}, chip, text), code), chip, text, code};
});
const body = h("tbody", {});

export function showTopics(topics, now) {
  const found = topics?.topics ?? [];
  children(body, pool.of(found, (each) => each.topic, (made, each) => {
    say(made.name, each.topic);
    say(made.size, bytes(each.bytes));
    say(made.partitions, `${count(each.partitions)} × ${count(each.replicas)}`);
    say(made.lag, each.is_compacted ? `${lasting(each.min_compaction_lag_ms)} to ${lasting(each.max_compaction_lag_ms)}` : "never");
    say(made.window, lasting(each.tombstones_ms));
    const worst = each.findings.find(({level}) => level === "error") ?? each.findings[0];
    say(made.chip, worst ? worst.code.replaceAll("_", " ") : "sound");
    mark(made.chip, "data-tone", worst ? (worst.level === "error" ? "bad" : "warn") : "good");
    say(made.text, each.findings.length > 1 ? `and ${each.findings.length - 1} more` : "");
  }));
  const byCode = new Map();
  for (const each of found) for (const one of each.findings) byCode.set(one.code, [...(byCode.get(one.code) ?? []), {...one, topic: each.topic}]);
  children($("topics-findings"), findings.of([...byCode.values()], ([first]) => first.code, (made, same) => {
    const [first] = same;
    say(made.chip, first.code.replaceAll("_", " "));
    mark(made.chip, "data-tone", first.level === "error" ? "bad" : "warn");
    say(made.text, `${same.length > 1 ? `${plural(same.length, "topic")}, such as ${first.topic}` : first.topic}: ${first.text}`);
    say(made.code, first.remedy);
    mark(made.code, "aria-label", `What to do: ${first.code}`);
  }));
  if (!topics) say($("topics-when"), "not known yet");
  else if (topics.error) say($("topics-when"), `failed ${ago(topics.at, now)}: ${topics.error.text}`);
  else say($("topics-when"), `${bytes(topics.bytes)} in total, ${ago(topics.at, now)}`);
  say($("topics-more"), "To see what the topics hold, how much of it is superseded, and why it is not compacted yet: cdc topics inspect, which reads them.");
}

export function prepareTopics() {
  $("topics").append(
    h("thead", {}, h("tr", {}, TITLES.map(([title, number]) => h("th", {scope: "col", class: number ? "number" : null}, title)))),
    body,
  );
}
