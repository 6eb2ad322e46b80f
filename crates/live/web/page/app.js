// The start: which user, which view, and what is said about the connection.

import { dropToken, findToken, onUnknown } from "./api.js";
import { cluster } from "./cluster.js";
import { repaint } from "./colours.js";
import { announce, once, setText } from "./dom.js";
import { events } from "./events.js";
import { Feed } from "./feed.js";
import { job } from "./job.js";
import { help, listen } from "./keys.js";
import { policy } from "./policy.js";
import { queue } from "./queue.js";
import { signIn } from "./signin.js";
import { tenants } from "./tenants.js";
import { timeline } from "./timeline.js";
import { Yard } from "./yard.js";

const VIEWS = { cluster, queue, timeline, tenants, policy, events, job };
const THEMES = ["auto", "light", "dark"];
const find = id => document.getElementById(id);

const yard = new Yard();
const feed = new Feed(yard, told);
let view = null;
let ready = false;

/** Another view, by the address. */
function route() {
  if (!findToken()) return leave();
  const [, name, part] = /^#\/([a-z]+)\/?(.*)$/.exec(location.hash) ?? [];
  if (!name && location.hash && location.hash !== "#") return;
  const make = VIEWS[name] ?? VIEWS.cluster;
  view?.close?.();
  mount(make(yard, decodeURIComponent(part ?? "")));
  for (const link of document.querySelectorAll("#nav a")) {
    const here = link.hash === `#/${name ?? "cluster"}` || (name === "job" && link.hash === "#/queue");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  feed.start();
}

function mount(next) {
  view = next;
  document.title = `${view.title} · Trainyard`;
  find("main").replaceChildren(view.node);
  if (yard.status) view.update();
  if (ready) announce(view.title);
  view.focus?.();
}

/** Back to the box for a token. */
function leave(why) {
  feed.stop();
  view?.close?.();
  yard.clear();
  find("leave").hidden = true;
  setText(find("who"), "");
  told("out");
  mount(signIn(() => {
    if (!location.hash.startsWith("#/")) history.replaceState(null, "", "#/cluster");
    route();
  }, why));
}

const update = once(() => {
  if (!yard.status) return;
  const { user, role } = yard.status;
  setText(find("who"), `${user} (${role})`);
  find("leave").hidden = false;
  banner();
  view?.update();
  if (!ready) {
    ready = true;
    document.documentElement.dataset.ready = "yes";
  }
});

let lost = null;

/** What the feed says about the connection. */
function told(state, problem, retryAt) {
  const words = { live: "live", lost: "not connected", paused: "paused", out: "signed out" };
  find("live").dataset.state = state;
  setText(find("live").lastElementChild, words[state]);
  lost = state === "lost" ? { problem, retryAt } : null;
  banner();
}

function banner() {
  const box = find("banner");
  const trouble = yard.status?.policy_trouble ? [`The policy is in trouble: ${yard.status.policy_trouble}`] : [];
  const warnings = [...trouble, ...(yard.status?.warnings ?? [])];
  const seconds = lost && Math.max(1, Math.ceil((lost.retryAt - Date.now()) / 1000));
  const text = lost
    ? `Connection lost: ${lost.problem.message}. What is shown may be old; trying again in ${seconds} s.`
    : yard.status ? warnings.join(" · ") : "";
  // A warning that was read is not shown again in this tab, until there is another one.
  box.hidden = !text || (!lost && sessionStorage.getItem("trainyard-read") === text);
  box.dataset.kind = lost ? "bad" : "";
  setText(box.firstElementChild, text);
  setText(box.lastElementChild, lost ? "Try now" : "Dismiss");
}

function answerBanner() {
  if (lost) return feed.retry();
  sessionStorage.setItem("trainyard-read", find("banner").firstElementChild.textContent);
  banner();
}

function theme(next) {
  const now = localStorage.getItem("trainyard-theme") ?? "auto";
  const chosen = next ?? THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  localStorage.setItem("trainyard-theme", chosen);
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  find("theme").textContent = { auto: "◐", light: "☀", dark: "☾" }[chosen];
  find("theme").setAttribute("aria-label", `Theme: ${chosen === "auto" ? "as the system" : chosen}`);
  repaint();
  if (yard.status) view?.update();
}

function escape() {
  if (view?.escape?.()) return;
  if (location.hash.startsWith("#/job/")) location.hash = "#/queue";
}

yard.listeners.add(update);
onUnknown(problem => leave(`The daemon does not take this token: ${problem.message}`));
addEventListener("hashchange", route);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme(localStorage.getItem("trainyard-theme") ?? "auto"));
find("theme").addEventListener("click", () => theme());
find("help").addEventListener("click", help);
find("leave").addEventListener("click", () => { dropToken(); leave(); });
find("skip").addEventListener("click", event => { event.preventDefault(); find("main").focus(); });
find("banner").lastElementChild.addEventListener("click", answerBanner);
// Times go on by themselves, between two answers of the daemon.
setInterval(() => { if (!document.hidden && (yard.status || lost)) { banner(); view?.update?.(true); } }, 1000);
listen({ theme: () => theme(), escape });
theme(localStorage.getItem("trainyard-theme") ?? "auto");
if (!location.hash) history.replaceState(null, "", "#/cluster");
route();
