// Jobs: those that wait with why and when, those that run, those that have ended.

import { jobColour } from "./colours.js";
import { choice, el, setText } from "./dom.js";
import { parseFilter } from "./filter.js";
import { Table } from "./table.js";
import { count, expectedShort, isOver, isPlaced, percent, span, stateName, stateTone } from "./words.js";

const SCOPES = {
  open: ["Open", job => !isOver(job.state)],
  waiting: ["Waiting", job => !isOver(job.state) && !isPlaced(job.state)],
  running: ["Running", job => isPlaced(job.state)],
  over: ["Ended", job => isOver(job.state)],
  all: ["All", () => true],
};
const ORDER = ["running", "starting", "saving", "suspended", "waiting", "unadmitted", "blocked"];
const kept = { scope: "open", text: "", sort: null };

export function queue(yard) {
  const text = (cell, value) => setText(cell, value);
  const columns = [
    { key: "id", title: "Job", width: "3.2rem", class: "id", fill: (cell, job) => text(cell, String(job.id)), sort: job => job.id, down: true },
    { key: "name", title: "Name", width: "minmax(8rem, 1.3fr)", class: "name", fill: fillName, sort: job => job.name.toLowerCase() },
    { key: "user", title: "User", width: "minmax(3.5rem, .5fr)", class: "user", fill: (cell, job) => text(cell, job.user), sort: job => job.user },
    { key: "tenant", title: "Tenant", width: "minmax(4rem, .5fr)", class: "tenant", fill: (cell, job) => text(cell, job.tenant), sort: job => job.tenant },
    { key: "state", title: "State", width: "6.2rem", class: "state", fill: fillState, sort: job => ORDER.indexOf(job.state) + (isOver(job.state) ? 100 : 0) },
    { key: "gpus", title: "GPUs", width: "3.2rem", class: "number gpus", fill: (cell, job) => text(cell, String(job.gpus)), sort: job => job.gpus, down: true },
    { key: "priority", title: "Prio", width: "3rem", class: "number", fill: (cell, job) => text(cell, String(job.priority)), sort: job => job.priority, down: true },
    { key: "waited", title: "Waited", width: "4.8rem", class: "number", fill: (cell, job) => text(cell, span(yard.waited(job))), sort: job => yard.waited(job), down: true },
    { key: "ran", title: "Ran", width: "4.8rem", class: "number", fill: (cell, job) => text(cell, yard.ran(job) ? span(yard.ran(job)) : "–"), sort: job => yard.ran(job), down: true },
    { key: "progress", title: "Done", width: "3.6rem", class: "number", fill: (cell, job) => text(cell, percent(job.progress)), sort: job => job.progress ?? -1, down: true },
    { key: "eta", title: "Expected", width: "minmax(10rem, 1fr)", class: "eta", fill: fillEta, sort: job => etaOf(job)?.likely ?? Infinity },
    { key: "why", title: "Where, or why not", width: "minmax(9rem, 2fr)", class: "why", fill: fillWhy, sort: job => job.why },
  ];
  const filter = el("input", { type: "search", id: "filter", value: kept.text, placeholder: "Filter: name, user:ann, gpus>=8, waited>1h, mine, -bert", "aria-label": "Filter jobs", spellcheck: "false", autocomplete: "off" });
  const told = el("span", { id: "filter-count", class: "soft", role: "status" });
  const scopes = choice("Which jobs", Object.entries(SCOPES).map(([key, [title]]) => [key, title]), kept.scope, scope => { kept.scope = scope; table.body.scrollTop = 0; show(); });
  const table = new Table({ label: "Jobs", columns, open: job => { location.hash = `#/job/${job.id}`; }, empty, sort: kept.sort });
  filter.addEventListener("input", () => { kept.text = filter.value; table.body.scrollTop = 0; show(); });
  const node = el("section", { class: "view queue" },
    el("div", { class: "head" }, el("h1", {}, "Jobs"), scopes.box, filter, told), table.box);
  let version = -1;

  function etaOf(job) {
    const eta = yard.etas.get(job.id);
    return isOver(job.state) ? null : isPlaced(job.state) ? eta?.ends : eta?.starts;
  }

  function fillName(cell, job) {
    if (!cell.firstChild) cell.append(el("i", { class: "swatch" }), el("span"));
    const running = isPlaced(job.state);
    cell.firstChild.hidden = !running;
    if (running) cell.firstChild.style.background = jobColour(job.id);
    setText(cell.lastChild, innerWidth <= 760 ? `${job.id} ${job.name}` : job.name);
  }

  function fillState(cell, job) {
    if (!cell.firstChild) cell.append(el("span", { class: "badge" }));
    cell.firstChild.dataset.tone = stateTone(job.state);
    setText(cell.firstChild, stateName(job.state));
  }

  function fillEta(cell, job) {
    const when = etaOf(job);
    const what = isPlaced(job.state) ? "ends in" : "starts in";
    setText(cell, when ? `${what} ${expectedShort(when, yard.now())}` : "");
  }

  function fillWhy(cell, job) {
    const said = job.why || (isPlaced(job.state) ? job.holds.map(one => `${one.node} ×${one.gpus.length}`).join(", ") : "");
    setText(cell, said);
    cell.title = said;
  }

  function empty() {
    if (filter.value.trim()) return [el("b", {}, "No job is like that"), "Try fewer words, or look at all jobs."];
    if (kept.scope === "over" || yard.jobs.size) return [el("b", {}, "None"), "No job stands there now."];
    return [el("b", {}, "No jobs yet"), "Submit one: ", el("br"), el("code", {}, "trainyard run --gpus 1 -- python train.py"), el("br"), el("code", {}, "trainyard submit train.toml")];
  }

  /** Columns in which nothing stands are not there. */
  function arrange(rows) {
    const wanted = { eta: yard.etas.size > 0, priority: rows.some(job => job.priority !== 0), progress: rows.some(job => job.progress !== null) };
    const hidden = columns.filter(column => column.key in wanted && Boolean(column.hidden) === wanted[column.key]);
    for (const column of hidden) column.hidden = !wanted[column.key];
    if (hidden.length) table.arrange();
  }

  function show() {
    version = yard.jobsVersion;
    const { test, error } = parseFilter(filter.value, yard);
    filter.setAttribute("aria-invalid", String(Boolean(error)));
    told.classList.toggle("wrong", Boolean(error));
    if (error) return setText(told, error);
    const inScope = SCOPES[kept.scope][1];
    const scoped = [];
    const rows = [];
    for (const job of yard.jobs.values()) {
      if (!inScope(job)) continue;
      scoped.push(job);
      if (test(job)) rows.push(job);
    }
    const rank = new Map(ORDER.map((state, index) => [state, index]));
    const place = job => rank.get(job.state) ?? ORDER.length;
    if (!table.sort) rows.sort((a, b) => place(a) - place(b) || (place(a) === ORDER.length ? b.since - a.since : a.id - b.id));
    const more = yard.leftOut ? `, ${count(yard.leftOut)} more are not shown` : "";
    const all = `${count(scoped.length)} job${scoped.length === 1 ? "" : "s"}`;
    setText(told, (rows.length === scoped.length ? all : `${count(rows.length)} of ${all}`) + more);
    arrange(scoped);
    table.set(rows);
    kept.sort = table.sort;
  }

  function update(clockOnly) {
    yard.refreshEtas();
    if (yard.etas.size && columns.find(column => column.key === "eta").hidden) show();
    else if (clockOnly || version === yard.jobsVersion) table.draw();
    else show();
  }

  return {
    title: "Jobs",
    node,
    update,
    escape: () => { if (!filter.value) return false; filter.value = kept.text = ""; show(); return true; },
  };
}
