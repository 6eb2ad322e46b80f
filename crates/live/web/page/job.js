// One job: where it stands and why, its launches, how fast it goes, its log, and what may be done to it.

import { get, has } from "./api.js";
import { actOnJob } from "./ask.js";
import { jobColour } from "./colours.js";
import { Curve } from "./curve.js";
import { el, renew, setText, tile } from "./dom.js";
import { Log } from "./log.js";
import { usageWords, watchUsage } from "./usage.js";
import { count, expected, figure, isOver, isPlaced, moment, percent, span, stateName, stateTone } from "./words.js";

const EVERY = 2;
const POINTS_MAX = 600;

export function job(yard, part) {
  const id = Number(part);
  const title = el("span", {}, `Job ${id}`);
  const badge = el("span", { class: "badge" });
  const swatch = el("i", { class: "swatch" });
  const actions = el("div", { class: "actions push" });
  const tiles = { gpus: tile("GPUs"), waited: tile("Waited"), ran: tile("Ran"), progress: tile("Done"), starts: tile("Expected start"), ends: tile("Expected end") };
  const why = el("div", { class: "card", hidden: true });
  const attempts = el("tbody");
  const launches = el("div", { class: "card" }, el("h2", {}, "Launches"), el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, ["No.", "Where", "Launched", "Ran", "What became of it"].map((name, index) => el("th", { scope: "col", class: index ? "words" : "" }, name)))), attempts)));
  const curve = new Curve("Steps a second over time");
  const pace = el("p", { class: "soft small" });
  const speed = el("div", { class: "card" }, el("h2", {}, "Throughput"), curve.canvas, pace);
  const lossCurve = new Curve("Training loss over time", true);
  const lossNow = el("p", { class: "soft small" });
  const loss = el("div", { class: "card", id: "loss", hidden: true }, el("h2", {}, "Loss"), lossCurve.canvas, lossNow);
  const held = el("ul", { class: "list" });
  const gpus = el("div", { class: "card", id: "gpus", hidden: true }, el("h2", {}, "Its GPUs"), held);
  const facts = el("dl");
  const log = new Log(id);
  const hidden = el("div", { class: "card", hidden: true }, el("h2", {}, "Log"), el("p", { class: "soft" }, "A log is for the owner of the job and for operators."));
  const missing = el("div", { class: "card empty", hidden: true }, el("b", {}, `There is no job ${id}`), el("a", { href: "#/queue" }, "To the list of jobs"));
  const whole = el("div", { class: "view" }, el("ul", { class: "tiles" }, Object.values(tiles).map(one => one.box)), why,
    el("div", { class: "two" }, launches, speed), el("div", { class: "halves" }, loss, gpus), log.box, hidden, el("div", { class: "card" }, el("h2", {}, "As it was submitted"), facts));
  const node = el("section", { class: "view job" },
    el("p", { class: "small" }, el("a", { href: "#/queue" }, "← Jobs")),
    el("div", { class: "head" }, el("h1", {}, swatch, title), badge, actions), missing, whole);
  let detail = null;
  let eta = null;
  let asked = 0;
  let seen = null;
  let acts = "";
  const points = [];
  let usage = new Map();
  const unwatch = watchUsage(told => {
    usage = told;
    if (detail) holds();
  });

  async function refresh() {
    asked = yard.now();
    seen = yard.jobs.get(id);
    try {
      const over = detail && isOver(detail.state);
      detail = await get(`/v1/jobs/${id}`);
      if (!over && !isOver(detail.state) && (await has("/v1/jobs/{id}/eta"))) eta = await get(`/v1/jobs/${id}/eta`).catch(() => null);
      else if (isOver(detail.state)) eta = null;
      const said = isOver(detail.state) || isPlaced(detail.state) ? null : await get(`/v1/jobs/${id}/why`);
      explain(said);
      show();
    } catch (problem) {
      if (problem.status === 404) {
        missing.hidden = false;
        whole.hidden = true;
        log.close();
      }
    }
  }

  function show() {
    const live = yard.jobs.get(id) ?? detail;
    setText(title, `${id} ${detail.name}`);
    document.title = `${id} ${detail.name} · Trainyard`;
    swatch.style.background = jobColour(id);
    badge.dataset.tone = stateTone(live.state);
    setText(badge, stateName(live.state));
    buttons(live);
    const rows = detail.attempts.toReversed().map(launch);
    attempts.replaceChildren(...(rows.length ? rows : [el("tr", {}, el("td", { class: "words soft", colspan: "5" }, "Not launched yet."))]));
    const may = yard.rules(detail);
    log.box.hidden = !may;
    hidden.hidden = may;
    if (may) log.launches(detail.attempts);
    throughput();
    losses();
    holds();
    describe();
    clock();
  }

  function clock() {
    const live = yard.jobs.get(id) ?? detail;
    if (!live) return;
    const now = yard.now();
    const part = yard.shares.get(id);
    tiles.gpus.set(part ? percent(part / 1000) : count(live.gpus), part ? "Of a GPU" : "GPUs");
    tiles.waited.set(span(yard.waited(live)), live.started ? "Waited" : "Waits for");
    tiles.ran.set(span(live.seen ? yard.ran(live) : live.ran_seconds), live.restarts ? `Ran · ${live.restarts} restart${live.restarts === 1 ? "" : "s"}, ${live.preemptions} for others` : "Ran");
    tiles.progress.set(percent(live.state === "finished" ? 1 : live.progress));
    tiles.starts.box.hidden = Boolean(live.started) || isOver(live.state) || !eta?.starts;
    tiles.starts.set(expected(eta?.starts, now), eta ? `Expected start, ${percent(eta.confidence)} sure` : undefined);
    tiles.ends.box.hidden = isOver(live.state) || !eta?.ends;
    tiles.ends.set(expected(eta?.ends, now), "Expected end");
    tiles.ends.box.title = tiles.starts.box.title = eta?.basis ?? "";
  }

  function buttons(live) {
    const may = yard.rules(live);
    const held = live.why.startsWith("is held");
    const over = isOver(live.state);
    const wanted = !may ? [] : over ? (live.state === "failed" ? ["requeue"] : []) : [held ? "release" : "hold", ...(isPlaced(live.state) ? ["requeue"] : []), "cancel"];
    if (acts === wanted.join()) return;
    acts = wanted.join();
    const names = { hold: "Hold", release: "Release", requeue: "Requeue", cancel: "Cancel" };
    actions.replaceChildren(...wanted.map(act => el("button", { type: "button", class: act === "cancel" ? "danger" : "", on: { click: () => actOnJob(yard.jobs.get(id) ?? detail, act) } }, names[act])));
  }

  function explain(said) {
    why.hidden = !said;
    if (!said) return;
    const blockers = said.blockers.slice(0, 12).flatMap((other, index) => [index ? ", " : "", el("a", { href: `#/job/${other}` }, String(other))]);
    renew(why, [said, eta?.basis], () => [el("h2", {}, "Why it waits"),
      el("ul", { class: "reasons" }, said.reasons.map(reason => el("li", {}, reason))),
      el("dl", {},
        said.nearest_change ? [el("dt", {}, "What would change that"), el("dd", {}, said.nearest_change)] : [],
        blockers.length ? [el("dt", {}, "Held by jobs"), el("dd", {}, blockers)] : [],
        eta && !eta.starts ? [el("dt", {}, "No forecast"), el("dd", {}, eta.basis)] : [],
        said.not_before ? [el("dt", {}, "Not before"), el("dd", {}, `${moment(said.not_before)} (in ${span(said.not_before - yard.now())})`)] : [])]);
    why.lastChild.style.marginTop = ".6rem";
  }

  function launch(one) {
    const until = one.ended ?? yard.now();
    const where = one.holds.map(hold => `${hold.node} [${hold.gpus.join(" ")}]`).join(", ");
    return el("tr", {}, el("td", {}, String(one.attempt)), el("td", { class: "words" }, where), el("td", { class: "words" }, moment(one.launched)),
      el("td", { class: "words" }, one.started || one.ended ? span(until - (one.started ?? one.launched)) : "starting"), el("td", { class: "long" }, one.outcome || (one.ended ? "" : "runs")));
  }

  function throughput() {
    const rate = detail.report?.rate ?? detail.measured.rate;
    const told = (detail.pace ?? []).map(point => [point.at, point.rate]);
    if (rate !== null && rate !== undefined && isPlaced(detail.state)) points.push([yard.now(), rate]);
    if (points.length > POINTS_MAX) points.shift();
    const shown = told.length > 1 ? told : points;
    const drawn = shown.length > 1;
    curve.canvas.hidden = !drawn;
    curve.set(shown, detail.attempts.slice(1).map(one => one.launched));
    const { save, start, restore } = detail.measured;
    const costs = [[save, "to save"], [start, "to start"], [restore, "to restore"]].filter(([value]) => value !== null).map(([value, what]) => `${figure(value)} s ${what}`);
    const speedNow = rate === null || rate === undefined ? "It has not told how fast it goes; the Python package or one line on its socket does." : `${figure(rate)} steps a second${detail.report?.loss != null ? `, loss ${figure(detail.report.loss)}` : ""}`;
    setText(pace, [speedNow, ...costs].join(" · "));
  }

  function losses() {
    const told = (detail.pace ?? []).filter(point => point.loss !== null && point.loss !== undefined).map(point => [point.at, point.loss]);
    loss.hidden = told.length < 2;
    if (loss.hidden) return;
    lossCurve.set(told, detail.attempts.slice(1).map(one => one.launched));
    setText(lossNow, `${figure(told.at(-1)[1])} now, ${figure(Math.min(...told.map(point => point[1])))} at the least`);
  }

  function holds() {
    const live = yard.jobs.get(id) ?? detail;
    const own = (detail.holds ?? []).flatMap(hold => hold.gpus.map(gpu => [`${hold.node}:${gpu}`, usage.get(`${hold.node}:${gpu}`)]));
    const known = isPlaced(live.state) ? own.filter(([, gpu]) => usageWords(gpu)) : [];
    gpus.hidden = !known.length;
    renew(held, known, () => known.map(([name, gpu]) => el("li", {}, el("b", {}, name), el("span", { class: "rest" }, usageWords(gpu)))));
  }

  function describe() {
    const { spec } = detail;
    const given = {
      Command: spec.argv.length ? spec.argv.join(" ") : "not shown",
      User: detail.user,
      Tenant: detail.tenant,
      Submitted: moment(detail.submitted),
      GPUs: `${spec.gpus}${spec.gpus_min || spec.gpus_max ? ` (${spec.gpus_min ?? spec.gpus} to ${spec.gpus_max ?? spec.gpus})` : ""}${spec.gpu_types.length ? ` of ${spec.gpu_types.join(" or ")}` : ""}`,
      Priority: String(spec.priority),
      "Runs in": spec.cwd,
      Model: spec.model,
      Steps: spec.steps === null ? null : count(spec.steps),
      "Expected to run": spec.expected_seconds === null ? null : span(spec.expected_seconds),
      Deadline: spec.deadline_seconds === null ? null : moment(detail.submitted + spec.deadline_seconds),
      "Time limit": spec.time_limit_seconds === null ? null : span(spec.time_limit_seconds),
      After: spec.after.length ? spec.after.map(other => `job ${other}`).join(", ") : null,
      "May be stopped": spec.preemptible ? "yes" : "no",
      Environment: Object.entries(spec.env).map(([name, value]) => `${name}=${value}`).join(" ") || null,
    };
    facts.replaceChildren(...Object.entries(given).filter(([, value]) => value).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, name === "Command" && spec.argv.length ? el("code", {}, value) : value)]));
  }

  function update(clockOnly) {
    const stale = yard.now() - asked > EVERY && !(detail && isOver(detail.state));
    if (!missing.hidden) return;
    if (stale || (yard.jobs.get(id) !== seen && yard.now() - asked > 0.2) || !asked) refresh();
    else if (detail && clockOnly) clock();
  }

  return { title: `Job ${id}`, node, update, close: () => { log.close(); unwatch(); } };
}
