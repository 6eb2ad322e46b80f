// The policy that decides, what others would make of the jobs of this moment, and the change to another one.

import { get, has, send } from "./api.js";
import { changePolicy } from "./ask.js";
import { el, setText } from "./dom.js";
import { count, figure, percent, span } from "./words.js";

/** Policies that are offered for a comparison; any other can be typed. */
const OFFERED = ["fifo", "srtf", "las", "tiresias", "easy", "fair-share", "gavel", "themis"];

const COLUMNS = [
  { key: "finished", title: "Finish", text: count, best: Math.max },
  { key: "mean_completion_seconds", title: "Mean completion", text: span, best: Math.min },
  { key: "p95_completion_seconds", title: "95\u00a0% within", text: span, best: Math.min },
  { key: "mean_wait_seconds", title: "Mean wait", text: span, best: Math.min },
  { key: "makespan_seconds", title: "All over in", text: span, best: Math.min },
  { key: "utilisation", title: "GPU allocation", text: percent, best: Math.max },
  { key: "worst_rho", title: "Worst ρ", text: figure, best: Math.min },
  { key: "preemptions", title: "Preemptions", text: count, best: Math.min },
  { key: "gpu_hours_lost", title: "GPU-hours lost", text: figure, best: Math.min },
  { key: "deadlines_met", title: "Deadlines", text: (value, row) => `${value} of ${row.deadlines}`, best: Math.max },
];

export function policy(yard) {
  const running = el("b");
  const boxes = OFFERED.slice(0, 8).map((name, index) => el("input", { type: "checkbox", value: name, checked: index < 4 }));
  const more = el("input", { type: "text", size: 34, placeholder: "others, such as las:quantum=10m", "aria-label": "Other policies, separated by spaces", spellcheck: "false", autocomplete: "off" });
  const go = el("button", { type: "submit", class: "main", id: "compare" }, "Compare");
  const told = el("p", { class: "soft small", role: "status" });
  const table = el("div", { class: "scroll", hidden: true, id: "whatif" });
  const form = el("form", { on: { submit: event => { event.preventDefault(); compare(); } } },
    el("div", { class: "pick" }, boxes.map(box => el("label", {}, box, box.value))),
    el("div", { class: "row" }, more, go));
  form.lastChild.style.marginTop = ".7rem";
  const names = el("datalist", { id: "policies" });
  more.setAttribute("list", "policies");
  const next = el("select", { id: "next", "aria-label": "The new policy", required: true }, el("option", { value: "" }, "Choose a policy…"));
  const keys = el("input", { type: "text", size: 34, placeholder: "settings: key=value,…", "aria-label": "Settings of the new policy", spellcheck: "false", autocomplete: "off" });
  const about = el("p", { class: "soft small", id: "about" });
  const wanted = () => (keys.value.trim() ? `${next.value}:${keys.value.trim()}` : next.value);
  const change = el("form", { class: "row", on: { submit: event => { event.preventDefault(); changePolicy(wanted(), yard.status.policy); } } }, next, keys, el("button", { type: "submit", class: "danger" }, "Change"));
  const admin = el("div", { class: "card" }, el("h2", {}, "Change the policy"), change, about, names);
  const absent = el("p", { class: "soft", hidden: true }, "This daemon cannot look ahead.");
  const node = el("section", { class: "view" },
    el("div", { class: "head" }, el("h1", {}, "Policy"), el("span", {}, running, " decides now")),
    el("div", { class: "card" }, el("h2", {}, "What if"),
      el("p", { class: "soft" }, "The jobs of this moment, simulated forward under other policies. Nothing is changed by looking."), absent, form, told, table));
  form.style.margin = ".7rem 0";

  /** All policies there are, by what they optimise. */
  async function fill() {
    if (!(await has("/v1/policies"))) return;
    const { policies } = await get("/v1/policies");
    const groups = new Map();
    for (const one of policies) groups.set(one.objective, [...(groups.get(one.objective) ?? []), one]);
    for (const [objective, rows] of groups) {
      next.append(el("optgroup", { label: objective }, rows.map(one => el("option", { value: one.name }, one.name))));
    }
    names.replaceChildren(...policies.map(one => el("option", { value: one.name })));
    const known = new Map(policies.map(one => [one.name, one]));
    next.addEventListener("change", () => {
      const one = known.get(next.value);
      setText(about, one ? `${one.about}${one.settings.length ? ` Settings: ${one.settings.join(", ")}.` : ""}` : "");
    });
  }

  async function compare() {
    const names = [...boxes.filter(box => box.checked).map(box => box.value), ...more.value.split(/\s+/).filter(Boolean)];
    if (!names.length) return setText(told, "Choose at least one policy.");
    go.disabled = true;
    setText(told, "Simulating…");
    try {
      show(await send("POST", "/v1/whatif", { policies: names }));
    } catch (problem) {
      setText(told, problem.message);
    }
    go.disabled = false;
  }

  function show(answer) {
    setText(told, `${count(answer.jobs)} jobs, ${figure(answer.took_seconds)} s. ${answer.basis}`);
    const shown = COLUMNS.filter(column => column.key !== "deadlines_met" || answer.rows.some(row => row.deadlines));
    // Means over fewer jobs are no better for that: only those that finish as many are compared.
    const most = Math.max(0, ...answer.rows.map(row => row.finished));
    const good = answer.rows.filter(row => !row.trouble && row.finished === most);
    const best = new Map(shown.map(column => [column.key, column.best(...good.map(row => row[column.key]))]));
    const differ = column => new Set(answer.rows.filter(row => !row.trouble).map(row => column.text(row[column.key], row))).size > 1;
    const marked = new Set(shown.filter(differ).map(column => column.key));
    const cell = (column, row) => el("td", { class: marked.has(column.key) && good.includes(row) && row[column.key] === best.get(column.key) ? "best" : "" }, column.text(row[column.key], row));
    const rows = answer.rows.map(row => el("tr", {},
      el("th", { scope: "row", class: "words" }, row.policy, row.runs_now ? el("span", { class: "badge" }, "now") : ""),
      row.trouble ? el("td", { class: "long", colspan: String(shown.length) }, row.trouble) : shown.map(column => cell(column, row)),
      yard.is("admin") ? el("td", {}, row.runs_now || row.trouble ? "" : el("button", { type: "button", on: { click: () => changePolicy(row.policy, yard.status.policy) } }, "Use it")) : ""));
    table.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "words" }, "Policy"), shown.map(column => el("th", { scope: "col" }, column.title)), yard.is("admin") ? el("th", {}, el("span", { class: "unseen" }, "Change")) : "")), el("tbody", {}, rows)));
    for (const badge of table.querySelectorAll(".badge")) badge.style.marginLeft = ".5rem";
    table.hidden = false;
  }

  function update(clockOnly) {
    if (clockOnly) return;
    setText(running, yard.status.policy);
    if (yard.is("admin") !== admin.isConnected) yard.is("admin") ? node.append(admin) : admin.remove();
  }

  fill().catch(() => {});
  has("/v1/whatif").then(can => {
    form.hidden = !can;
    absent.hidden = can;
  });
  return { title: "Policy", node, update };
}

export { get };
