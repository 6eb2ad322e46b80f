// The cluster: how much is used, the map, and what is at the place one looks at.

import { actOnNode } from "./ask.js";
import { jobColour, tenantColour } from "./colours.js";
import { choice, el, renew, setText, tile } from "./dom.js";
import { ClusterMap } from "./map.js";
import { usageOfAll, usageWords, watchUsage } from "./usage.js";
import { count, isOver, isPlaced, moment, percent, span, stateName, stateTone } from "./words.js";

const LISTED = 6;
const FINGERS = matchMedia("(pointer: coarse)").matches;

export function cluster(yard) {
  let by = "job";
  let pinned = null;
  let hovered = null;
  const tiles = { gpus: tile("GPUs in use"), running: tile("Jobs running"), waiting: tile("Jobs waiting"), nodes: tile("Nodes in service"), policy: tile("Policy"), busy: tile("GPUs busy"), memory: tile("GPU memory in use") };
  let usage = new Map();
  const colour = id => (by === "job" ? jobColour(id) : tenantColour(yard.jobs.get(id)?.tenant ?? "?"));
  const open = id => { location.hash = `#/job/${id}`; };
  const map = new ClusterMap({
    colour,
    open,
    look: (spot, pin) => {
      if (pin) pinned = spot;
      hovered = spot;
      const shown = hovered ?? pinned;
      map.light(shown?.job ?? null);
      panel(shown);
    },
  });
  const aside = el("aside", { class: "panel card", "aria-live": "polite", "aria-label": "What is there" });
  const nothing = el("div", { class: "card empty", hidden: true },
    el("b", {}, "No nodes yet"), "Start the daemon with GPUs: ", el("code", {}, "trainyard serve --gpus 4"));
  const colours = choice("Colour by", [["job", "By job"], ["tenant", "By tenant"]], by, value => { by = value; map.later(); panel(hovered ?? pinned); });
  const next = list("Next in the queue");
  const ended = list("Just ended");
  const swatch = (kind, text) => el("span", {}, el("i", { class: `swatch ${kind}` }), text);
  const node = el("section", { class: "view" },
    el("div", { class: "head" }, el("h1", {}, "Cluster"), el("span", { class: "push" }), colours.box),
    el("ul", { class: "tiles" }, Object.values(tiles).map(one => one.box)),
    el("div", { class: "cluster" }, map.box, aside),
    nothing,
    el("div", { class: "legend" }, swatch("free", "free"), swatch("half", "part of a GPU in use"), swatch("hatched", "drained"), swatch("hatched bad", "lost or quarantined"), swatch("hatched claim", "taken by others")),
    el("div", { class: "halves" }, next.box, ended.box));

  function panel(spot) {
    const row = spot && yard.nodes.get(spot.node);
    if (!row) {
      const idle = yard.status && yard.jobs.size === 0;
      return renew(aside, [idle], () => [
        el("p", { class: "soft" }, idle ? "Nothing was submitted yet." : FINGERS ? "Tap a GPU to see what runs there." : "Point at a GPU, or move over the map with the arrow keys, to see what runs there."),
        idle ? el("p", { class: "small" }, el("code", {}, "trainyard run -- python train.py")) : "",
      ]);
    }
    const jobs = row.gpus[spot.gpu] ?? [];
    const known = jobs.map(id => yard.jobs.get(id));
    renew(aside, [row, spot.gpu, usage.get(`${row.name}:${spot.gpu}`), by, yard.status.role, known.map(job => [job?.state, job?.progress])], () => describe(row, spot, jobs));
    for (const since of aside.querySelectorAll("[data-since]")) setText(since, ` for ${span(yard.now() - Number(since.dataset.since))}`);
  }

  function describe(row, spot, jobs) {
    return [
      el("h2", {}, row.name, el("span", { class: "badge", data: { tone: row.state === "up" ? "good" : row.state === "drained" ? "" : "bad" } }, row.state === "up" ? "in service" : row.state)),
      el("p", { class: "soft small" }, `GPU ${spot.gpu} of ${row.gpus.length} ${row.gpu_type}, ${row.free} free here`),
      usageWords(usage.get(`${row.name}:${spot.gpu}`)) ? el("p", { class: "small" }, usageWords(usage.get(`${row.name}:${spot.gpu}`))) : "",
      row.reason ? el("p", { class: "small" }, row.reason) : "",
      jobs.length ? el("ul", { class: "jobs" }, jobs.map(jobItem)) : el("p", { class: "soft" }, idleWords(row, spot.gpu)),
      yard.is("operator") ? el("div", { class: "buttons" }, nodeButton(row)) : "",
    ];
  }

  function idleWords(row, gpu) {
    const ill = row.ill?.find((one) => one.gpu === gpu);
    if (ill) return `Ill since ${new Date(ill.since * 1000).toLocaleString()}: ${ill.reason}`;
    if (row.claimed?.includes(gpu)) return "Others use this GPU, who are not scheduled here.";
    return row.state === "up" ? "This GPU is free." : "No job uses this GPU.";
  }

  function jobItem(id) {
    const job = yard.jobs.get(id);
    const name = el("a", { href: `#/job/${id}` }, el("i", { class: "swatch" }), job ? `${id} ${job.name}` : `job ${id}`);
    name.firstChild.style.background = colour(id);
    if (!job) return el("li", {}, name);
    const part = yard.shares.get(id);
    return el("li", {},
      el("div", {}, name),
      el("div", { class: "small soft" }, `${job.user}${job.tenant === job.user ? "" : ` · ${job.tenant}`} · ${count(job.gpus)} GPU${job.gpus === 1 ? "" : "s"}${part ? ` · ${percent(part / 1000)} of each` : ""}`),
      el("div", { class: "small" }, el("span", { class: "badge", data: { tone: stateTone(job.state) } }, stateName(job.state)),
        el("span", { data: { since: String(job.since) } }), job.progress === null ? "" : ` · ${percent(job.progress)} done`));
  }

  function nodeButton(row) {
    return row.state === "drained"
      ? el("button", { type: "button", on: { click: () => actOnNode(row, "resume") } }, "Resume")
      : el("button", { type: "button", class: "danger", on: { click: () => actOnNode(row, "drain") } }, "Drain");
  }

  function figures() {
    const { status } = yard;
    const up = [...yard.nodes.values()].filter(one => one.state === "up").length;
    const sum = names => names.reduce((all, name) => all + (status.jobs[name] ?? 0), 0);
    const usable = status.gpus - status.gpus_lost;
    tiles.gpus.set(`${count(status.gpus_used)} of ${count(status.gpus)}`, usable ? `GPUs in use · ${percent(status.gpus_used / Math.max(1, status.gpus))}` : "GPUs in use");
    tiles.running.set(count(sum(["running", "starting", "saving"])));
    tiles.waiting.set(count(sum(["waiting", "suspended", "unadmitted", "blocked"])));
    tiles.nodes.set(`${count(up)} of ${count(yard.nodes.size)}`);
    tiles.policy.set(status.policy);
    const all = usageOfAll(usage);
    tiles.busy.box.hidden = all.busy === null;
    tiles.memory.box.hidden = all.memory === null;
    tiles.busy.set(percent(all.busy));
    tiles.memory.set(percent(all.memory));
  }

  /** The few that are looked for first: who is next, and who just ended. */
  function lists() {
    const [waits, over] = [[], []];
    for (const job of yard.jobs.values()) (isOver(job.state) ? over : isPlaced(job.state) ? [] : waits).push(job);
    const entry = (job, rest) => el("li", {}, el("span", { class: "badge", data: { tone: stateTone(job.state) } }, stateName(job.state)),
      el("a", { href: `#/job/${job.id}` }, `${job.id} ${job.name}`), el("span", { class: "soft" }, job.user), el("span", { class: "rest", title: rest }, rest));
    waits.sort((a, b) => b.priority - a.priority || a.submitted - b.submitted);
    over.sort((a, b) => b.since - a.since);
    next.set(waits.slice(0, LISTED), job => entry(job, job.why));
    ended.set(over.slice(0, LISTED), job => entry(job, `${moment(job.ended)}, ran ${span(job.ran_seconds)}`));
  }

  function update(clockOnly) {
    if (clockOnly) return panel(hovered ?? pinned);
    figures();
    lists();
    const nodes = [...yard.nodes.values()];
    nothing.hidden = nodes.length > 0;
    map.box.parentElement.hidden = nodes.length === 0;
    map.set(groups(yard, nodes), yard.shares);
    panel(hovered ?? pinned);
  }

  const unwatch = watchUsage(told => {
    usage = told;
    if (yard.status) figures();
    panel(hovered ?? pinned);
  });
  return {
    title: "Cluster",
    node,
    update,
    close: unwatch,
    escape: () => { const had = pinned; pinned = null; map.focus = null; map.light(null); map.later(); panel(null); return had; },
  };
}

/** A card with a short list, which is not there while the list is empty. */
function list(title) {
  const items = el("ul", { class: "list" });
  const box = el("div", { class: "card", hidden: true }, el("h2", {}, title), items);
  return { box, set: (jobs, entry) => { box.hidden = !jobs.length; renew(items, jobs.map(job => [job.id, job.state, job.why]), () => jobs.map(entry)); } };
}

/** Racks where there are any, else a group for each type of GPU. */
function groups(yard, nodes) {
  if (yard.racks.length) {
    return yard.racks.map(rack => ({ name: rack.name, nodes: rack.nodes.map(name => yard.nodes.get(name)).filter(Boolean) }));
  }
  const kinds = new Map();
  for (const node of nodes) kinds.get(node.gpu_type)?.push(node) ?? kinds.set(node.gpu_type, [node]);
  return [...kinds].map(([name, members]) => ({ name, nodes: members }));
}

