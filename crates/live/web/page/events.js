// What happened, newest first.

import { get } from "./api.js";
import { el, setText } from "./dom.js";
import { Table } from "./table.js";
import { count, moment } from "./words.js";

const FIRST = 500;
const KEPT = 5000;
const TONES = { finished: "good", failed: "bad", "policy-failed": "bad", started: "busy", launched: "busy", stopping: "warm", stopped: "warm", node: "warm", policy: "warm" };

export function events(yard) {
  let rows = [];
  let newest = null;
  let asking = false;
  const columns = [
    { key: "seq", title: "No.", width: "5rem", class: "number seq", fill: (cell, row) => setText(cell, String(row.seq)) },
    { key: "at", title: "When", width: "8rem", class: "at soft", fill: (cell, row) => setText(cell, moment(row.at)) },
    { key: "kind", title: "What", width: "8rem", class: "kind", fill: fillKind },
    { key: "text", title: "Event", width: "minmax(10rem, 1fr)", class: "text", fill: fillText },
  ];
  const table = new Table({ label: "Events", columns, empty: () => [el("b", {}, "Nothing happened yet"), "Submissions, launches, stops and ends appear here."], open: row => { if (row.job !== null) location.hash = `#/job/${row.job}`; } });
  const filter = el("input", { type: "search", placeholder: "Filter: a kind, a job, a word", "aria-label": "Filter events", spellcheck: "false", autocomplete: "off", on: { input: show } });
  const told = el("span", { class: "soft", role: "status" });
  const node = el("section", { class: "view events" }, el("div", { class: "head" }, el("h1", {}, "Events"), filter, told), table.box);

  function fillKind(cell, row) {
    if (!cell.firstChild) cell.append(el("span", { class: "badge" }));
    cell.firstChild.dataset.tone = TONES[row.kind] ?? "";
    setText(cell.firstChild, row.kind);
  }

  function fillText(cell, row) {
    if (!cell.firstChild) cell.append(el("a"), " ", el("span"));
    const [link, , words] = cell.childNodes;
    link.hidden = row.job === null;
    if (row.job !== null) {
      link.href = `#/job/${row.job}`;
      setText(link, `job ${row.job}`);
    }
    const said = row.job === null ? row.text : row.text.replace(new RegExp(`^job ${row.job}\\b:? ?`), "");
    setText(words, said);
    cell.title = row.text;
  }

  function show() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? rows.filter(row => words.every(word => row.kind.includes(word) || row.text.toLowerCase().includes(word))) : rows;
    setText(told, `${count(found.length)}${rows.length >= KEPT ? " newest" : ""}`);
    table.set(found);
  }

  async function refresh() {
    if (asking || newest === yard.lastEvent) return;
    asking = true;
    try {
      const after = newest ?? Math.max(0, yard.lastEvent - FIRST);
      const answer = await get(`/v1/events?after=${after}&max=1000`);
      newest = answer.events.at(-1)?.seq ?? Math.max(after, yard.lastEvent);
      if (answer.events.length || !rows.length) {
        rows = [...answer.events.reverse(), ...rows].slice(0, KEPT);
        show();
      }
    } catch {
      // The next change asks again.
    }
    asking = false;
  }

  return { title: "Events", node, update: refresh, escape: () => { if (!filter.value) return false; filter.value = ""; show(); return true; } };
}
