// The panels in words: the last reconciliation, and the processes.

import {$, Pool, children, h, mark, say} from "./dom.js";
import {bytes, moment, plural} from "./format.js";

const VERDICTS = {identical: "good", different: "bad", not_verified: "warn"};
const ROLES = {bridge: "cdc run", sink: "cdc sink", serve: "cdc serve"};
const STATES = {here: ["answers you", "good"], answers: ["answers", "good"], silent: ["silent", "warn"], unasked: ["not asked", "idle"]};

const processes = new Pool(() => {
  const [name, chip, text] = [h("dt", {}), h("span", {class: "chip"}), h("span", {class: "small"})];
  return {node: h("div", {}, name, h("dd", {}, chip, text)), name, chip, text};
});
const list = h("dl", {class: "facts wide"});

const verdict = h("span", {class: "chip"});
const when = h("p", {});
const said = h("p", {class: "small"});
const link = h("a", {}, "Open the report");
const command = h("pre", {class: "remedy", tabindex: "0", "aria-label": "Command that compares", role: "group"});

export function showPanels(look) {
  children(list, processes.of(look.processes, (each) => each.role, (made, each) => {
    const [word, tone] = STATES[each.state];
    say(made.name, ROLES[each.role]);
    say(made.chip, word);
    mark(made.chip, "data-tone", tone);
    say(made.text, each.memory_bytes ? `${each.text}, ${bytes(each.memory_bytes)}` : each.text);
  }));
  proof(look.reconciliation ?? {});
}

function proof({report, command: how}) {
  verdict.hidden = when.hidden = link.hidden = !report;
  if (report) {
    say(verdict, report.verdict.replaceAll("_", " "));
    mark(verdict, "data-tone", VERDICTS[report.verdict] ?? "idle");
    say(when, `${plural(report.tables, "table")} compared, ${moment(report.at)}`);
    mark(link, "href", report.href);
  }
  say(said, report ? "To compare again:" : "This process has no report: cdc reconcile writes the report to the machine where it runs. To compare source, topics and replica row by row:");
  say(command, how ?? "cdc reconcile");
}

export function preparePanels() {
  $("processes").append(list);
  $("proof").append(verdict, when, link, said, command);
}
