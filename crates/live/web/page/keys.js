// Keys: g and a letter goes somewhere, / filters, ? explains, d changes the theme.

import { el } from "./dom.js";

const PLACES = { c: "cluster", q: "queue", j: "queue", t: "timeline", n: "tenants", p: "policy", e: "events" };
const TOLD = [
  ["g c", "Cluster"], ["g q", "Jobs"], ["g t", "Timeline"], ["g n", "Tenants"], ["g p", "Policy"], ["g e", "Events"],
  ["/", "Filter"], ["↑ ↓ Enter", "Move through rows or GPUs, open the job"], ["+ − ← →", "Zoom and move the timeline"],
  ["d", "Light, dark, or as the system"], ["Esc", "Close, clear, back"], ["?", "This list"],
];
const PAIR_MILLISECONDS = 1200;

/** Listens; `theme()` changes the theme and `escape()` goes back where nothing else is to be closed. */
export function listen({ theme, escape }) {
  let g = 0;
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (document.querySelector("dialog[open]")) return;
    const typing = event.target.closest("input, textarea, select");
    if (event.key === "Escape") {
      if (typing) event.target.blur();
      else escape();
      return;
    }
    if (typing) return;
    if (event.timeStamp - g < PAIR_MILLISECONDS && PLACES[event.key]) {
      location.hash = `#/${PLACES[event.key]}`;
      g = 0;
    } else if (event.key === "g") {
      g = event.timeStamp;
      return;
    } else if (event.key === "/") {
      document.querySelector("main input[type=search]")?.focus();
    } else if (event.key === "?") {
      help();
    } else if (event.key === "d") {
      theme();
    } else {
      return;
    }
    event.preventDefault();
  });
}

/** Shows all keys. */
export function help() {
  const rows = TOLD.flatMap(([keys, what]) => [
    el("span", {}, keys.split(" ").flatMap((key, index) => [index ? " " : "", el("kbd", {}, key)])),
    el("span", {}, what),
  ]);
  const close = el("button", { type: "submit", class: "main" }, "Close");
  const box = el("dialog", { "aria-labelledby": "keys-title" },
    el("h2", { id: "keys-title" }, "Keys"), el("div", { class: "keys" }, rows),
    el("form", { method: "dialog" }, el("div", { class: "buttons" }, close)));
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}
