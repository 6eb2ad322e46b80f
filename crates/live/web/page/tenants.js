// Tenants: what each is entitled to, what it had, and how even that is.

import { get } from "./api.js";
import { tenantColour } from "./colours.js";
import { el, tile } from "./dom.js";
import { count, figure, percent } from "./words.js";

const USE_EVERY = 30;

/** Jain's index of use against what each is entitled to: 1 is even, 1/n is all for one. */
export function jain(rows) {
  const shares = rows.filter(row => row.entitled > 0).map(row => row.used / row.entitled);
  const sum = shares.reduce((all, one) => all + one, 0);
  const squares = shares.reduce((all, one) => all + one * one, 0);
  return squares > 0 ? (sum * sum) / (shares.length * squares) : null;
}

export function tenants(yard) {
  const tiles = { jain: tile("Jain’s index of use"), tenants: tile("Tenants"), most: tile("Furthest above its share"), least: tile("Furthest below its share") };
  const body = el("tbody");
  const use = el("tbody");
  const shares = el("div", { class: "card" },
    el("h2", {}, "Shares"),
    el("div", { class: "scroll" }, el("table", {}, el("thead", {}, heads(["Tenant", "Used against entitled", "Entitled", "Used", "GPUs now", "Ceiling", "Weight", "Running", "Waiting"], 2)), body)));
  const used = el("div", { class: "card" },
    el("h2", {}, "Last 24 hours"),
    el("div", { class: "scroll" }, el("table", {}, el("thead", {}, heads(["User", "Tenant", "GPU-hours", "Jobs", "Launches", "Cost"], 2)), use)));
  const none = el("div", { class: "card empty", hidden: true }, el("b", {}, "No tenants yet"),
    "A tenant appears with its first job; shares and ceilings come from a file: ", el("br"), el("code", {}, "trainyard serve --tenants tenants.toml"));
  const node = el("section", { class: "view" }, el("div", { class: "head" }, el("h1", {}, "Tenants")), el("ul", { class: "tiles" }, Object.values(tiles).map(one => one.box)), none, shares, used);
  let asked = 0;

  function row(tenant, depth) {
    const widest = Math.max(0.001, ...yard.tenants.map(one => Math.max(one.used, one.entitled)));
    const bar = el("span", { class: "bar" }, el("i"), el("b"));
    bar.firstChild.style.width = `${(tenant.used / widest) * 100}%`;
    bar.firstChild.style.background = tenantColour(tenant.tenant);
    bar.lastChild.style.left = `calc(${(tenant.entitled / widest) * 100}% - 1px)`;
    const name = el("th", { scope: "row", class: "words" }, el("i", { class: "swatch" }), tenant.tenant);
    name.firstChild.style.background = tenantColour(tenant.tenant);
    name.style.paddingLeft = `${0.65 + depth * 1.2}rem`;
    const cells = [percent(tenant.entitled), percent(tenant.used), figure(tenant.gpus), tenant.ceiling === null ? "–" : count(tenant.ceiling), figure(tenant.weight), count(tenant.running), count(tenant.waiting)];
    return el("tr", {}, name, el("td", {}, el("span", { class: "shares" }, bar)), cells.map(text => el("td", {}, text)));
  }

  /** Parents before their children. */
  function ordered() {
    const rows = [];
    const add = (parent, depth) => {
      for (const tenant of yard.tenants.filter(one => (one.parent ?? null) === parent)) {
        rows.push([tenant, depth]);
        add(tenant.tenant, depth + 1);
      }
    };
    add(null, 0);
    return rows;
  }

  function update(clockOnly) {
    if (yard.now() - asked > USE_EVERY) refreshUse();
    if (clockOnly) return;
    const leaves = yard.tenants.filter(one => !yard.tenants.some(other => other.parent === one.tenant));
    none.hidden = yard.tenants.length > 0;
    shares.hidden = yard.tenants.length === 0;
    body.replaceChildren(...ordered().slice(0, 500).map(([tenant, depth]) => row(tenant, depth)));
    const even = jain(leaves);
    const off = one => one.used - one.entitled;
    const most = leaves.reduce((best, one) => (!best || off(one) > off(best) ? one : best), null);
    const least = leaves.reduce((best, one) => (!best || off(one) < off(best) ? one : best), null);
    tiles.jain.set(even === null ? "–" : even.toFixed(2));
    tiles.tenants.set(count(leaves.length));
    tiles.most.set(most && off(most) > 0 ? `${most.tenant} +${percent(off(most))}` : "–");
    tiles.least.set(least && off(least) < 0 ? `${least.tenant} −${percent(-off(least))}` : "–");
  }

  async function refreshUse() {
    asked = yard.now();
    try {
      const { usage } = await get(`/v1/acct?since=${(yard.now() - 86400).toFixed(0)}`);
      usage.sort((a, b) => b.gpu_hours - a.gpu_hours);
      const rows = usage.slice(0, 200).map(one => el("tr", {},
        el("th", { scope: "row", class: "words" }, one.user), el("td", { class: "words" }, one.tenant),
        [figure(one.gpu_hours), count(one.jobs), count(one.launches), one.cost ? figure(one.cost) : "–"].map(text => el("td", {}, text))));
      use.replaceChildren(...rows);
      used.hidden = rows.length === 0;
    } catch {
      // It is asked again soon; the banner tells of a daemon that is gone.
    }
  }

  used.hidden = true;
  return { title: "Tenants", node, update };
}

function heads(names, words) {
  return el("tr", {}, names.map((name, index) => el("th", { scope: "col", class: index < words ? "words" : "" }, name)));
}
