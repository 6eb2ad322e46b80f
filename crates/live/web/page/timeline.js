// Who ran where over the last hours, and until when those that run are expected to.

import { get } from "./api.js";
import { jobColour, tenantColour } from "./colours.js";
import { choice, el, renew } from "./dom.js";
import { Gantt } from "./gantt.js";
import { count, expected, isOver, isPlaced, moment, span } from "./words.js";

const SPANS = [[900, "15 min"], [3600, "1 h"], [21600, "6 h"], [86400, "24 h"], [604800, "7 d"]];
const AHEAD = 0.25;
const EVERY_LEAST = 2;
const COMING = 10;

export function timeline(yard) {
  let length = firstLength(yard);
  let follows = true;
  let by = "job";
  let launches = [];
  let known = null;
  let asked = 0;
  let pause = EVERY_LEAST;
  let version = -1;
  let drawn = [];
  const tip = el("div", { class: "tip", hidden: true });
  const told = el("span", { class: "soft", role: "status" });
  const chart = new Gantt({
    colour: bar => (by === "job" ? jobColour(bar.job) : tenantColour(bar.tenant)),
    point,
    open: bar => { location.hash = `#/job/${bar.job}`; },
    moved: () => { follows = false; spans.press(null); refresh(true); },
  });
  const spans = choice("How far back", SPANS, length, value => { length = value; follows = true; refresh(true); show(); });
  const colours = choice("Colour by", [["job", "By job"], ["tenant", "By tenant"]], by, value => { by = value; chart.later(); });
  const button = (title, text, act) => el("button", { type: "button", title, "aria-label": title, on: { click: act } }, text);
  const none = el("div", { class: "card empty", hidden: true }, el("b", {}, "Nothing ran in this time"), "Jobs appear here as soon as they are launched: ", el("code", {}, "trainyard run -- python train.py"));
  const coming = el("ul", { class: "list" });
  const next = el("div", { class: "card", hidden: true }, el("h2", {}, "Expected to start"), coming);
  const node = el("section", { class: "view" },
    el("div", { class: "head" }, el("h1", {}, "Timeline"), spans.box,
      el("div", { class: "choice" }, button("Zoom in (+)", "+", () => chart.zoom(1.6)), button("Zoom out (−)", "−", () => chart.zoom(1 / 1.6)), button("Now", "Now", () => { follows = true; spans.press(length); show(); })),
      colours.box, told),
    none, chart.box,
    el("p", { class: "soft small" }, "The red line is now; pale bars reach to the latest expected end. Drag to move, Ctrl and the wheel to zoom."), next, tip);

  function point(bar, x, y) {
    chart.lit = bar?.job ?? null;
    chart.later();
    tip.hidden = !bar;
    if (!bar) return;
    const job = yard.jobs.get(bar.job);
    const until = bar.to ?? yard.now();
    tip.textContent = `job ${bar.job}${job ? ` ${job.name}` : ""} · ${bar.user} · launch ${bar.attempt} · ${moment(bar.from)} for ${span(until - bar.from)}${bar.outcome ? ` · ${bar.outcome}` : bar.to ? "" : " · runs"}`;
    tip.style.left = `${Math.min(x + 12, innerWidth - 260)}px`;
    tip.style.top = `${y + 16}px`;
  }

  function bars() {
    const found = [];
    for (const launch of launches) {
      const live = launch.ended === null ? yard.jobs.get(launch.job) : null;
      const over = launch.ended === null && live && live.attempt !== launch.attempt;
      const high = live && !over ? yard.etas.get(launch.job)?.ends?.high : undefined;
      for (const { node: name, gpus } of launch.holds) {
        for (const [gpu, many] of runs(gpus)) {
          found.push({ ...launch, holds: null, node: name, gpu, gpus: many, from: launch.launched, to: launch.ended, high });
        }
      }
    }
    return found;
  }

  function show() {
    const now = yard.now();
    if (follows) chart.view = { from: now - length, to: now + length * AHEAD };
    // Bars are made anew only for another answer; in between only the moment moves.
    const from = [launches, yard.etas, yard.nodes.size];
    if (from.some((one, index) => one !== drawn[index])) chart.set([...yard.nodes.values()], bars(), now);
    else chart.tick(now);
    drawn = from;
    none.hidden = launches.length > 0 || known === null;
    told.textContent = known === null ? "" : `${count(launches.length)} launch${launches.length === 1 ? "" : "es"}`;
  }

  /** Those that wait, the first to start first. */
  function plan() {
    const now = yard.now();
    const waits = [];
    for (const [id, { starts }] of yard.etas) {
      const job = yard.jobs.get(id);
      if (starts && job && !isOver(job.state) && !isPlaced(job.state)) waits.push([job, starts]);
    }
    waits.sort((a, b) => a[1].likely - b[1].likely || a[0].id - b[0].id);
    next.hidden = !waits.length;
    renew(coming, [waits.slice(0, COMING).map(([job]) => job.id), Math.floor(now / 5)], () => waits.slice(0, COMING).map(([job, starts]) => el("li", {},
      el("a", { href: `#/job/${job.id}` }, `${job.id} ${job.name}`), el("span", { class: "soft" }, `${job.user} · ${count(job.gpus)} GPU${job.gpus === 1 ? "" : "s"}`),
      el("span", { class: "rest" }, expected(starts, now)))));
  }

  async function refresh(force) {
    const now = yard.now();
    const { from, to } = follows ? { from: now - length, to: now } : chart.view;
    const inside = known && from >= known.from && to <= known.to + 1;
    const changed = version !== yard.jobsVersion;
    if (!(force && !inside) && !(changed && now - asked > pause) && known) return;
    asked = now;
    version = yard.jobsVersion;
    const began = performance.now();
    const since = from - (to - from) * 0.5;
    try {
      const answer = await get(`/v1/timeline?since=${since.toFixed(1)}`);
      launches = answer.launches;
      known = { from: since, to: yard.now() + 1e9 };
      show();
    } catch {
      // The banner tells of a daemon that is gone.
    }
    // A large answer is asked for less often.
    pause = Math.max(EVERY_LEAST, ((performance.now() - began) / 1000) * 10);
  }

  function update() {
    yard.refreshEtas();
    refresh(false);
    if (known) show();
    plan();
  }

  return { title: "Timeline", node, update, close: () => tip.remove() };
}

/** As far back as the daemon has run, by the next of the lengths that are offered, up to six hours. */
function firstLength(yard) {
  const up = yard.status ? yard.now() - yard.status.since : 3600;
  return SPANS.find(([seconds]) => seconds >= Math.min(up, 21600))[0];
}

/** Neighbouring GPUs as first and number. */
function runs(gpus) {
  const found = [];
  for (const gpu of [...gpus].sort((a, b) => a - b)) {
    const last = found.at(-1);
    if (last && last[0] + last[1] === gpu) last[1]++;
    else found.push([gpu, 1]);
  }
  return found;
}
