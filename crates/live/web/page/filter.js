// The filter of jobs: terms that must all hold.
//   word   user:ann   state:wait   gpus>=8   waited>1h30m   mine   -term

import { isOver } from "./words.js";

const UNITS = { s: 1, m: 60, h: 3600, d: 86400, w: 604800 };
const COMPARE = {
  ">=": (a, b) => a >= b,
  "<=": (a, b) => a <= b,
  ">": (a, b) => a > b,
  "<": (a, b) => a < b,
  "=": (a, b) => a === b,
};
const TEXTS = ["name", "user", "tenant", "state", "why"];

/** `90`, `1h`, `1h30m` in seconds; NaN for anything else. */
export function amount(text) {
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text);
  if (!/^(\d+(\.\d+)?[smhdw])+$/.test(text)) return NaN;
  let sum = 0;
  for (const [, number, unit] of text.matchAll(/(\d+(?:\.\d+)?)([smhdw])/g)) sum += number * UNITS[unit];
  return sum;
}

function numbers(yard) {
  return {
    id: job => job.id,
    gpus: job => job.gpus,
    waited: job => yard.waited(job),
    ran: job => yard.ran(job),
    priority: job => job.priority,
    restarts: job => job.restarts,
    progress: job => (job.progress ?? 0) * 100,
  };
}

/** One term as a test of a job; a string says what is wrong with it. */
function term(text, yard) {
  const compared = /^([a-z]+)(>=|<=|>|<|=)(.+)$/.exec(text);
  if (compared) {
    const [, key, sign, value] = compared;
    const columns = numbers(yard);
    if (!columns[key]) return `no number is called “${key}”; there are ${Object.keys(columns).join(", ")}`;
    const least = amount(value);
    if (Number.isNaN(least)) return `“${value}” is no number and no time such as 90, 30m or 1h30m`;
    return job => COMPARE[sign](columns[key](job), least);
  }
  const named = /^([a-z]+):(.*)$/.exec(text);
  if (named && TEXTS.includes(named[1])) {
    const [, key, value] = named;
    return job => job[key].toLowerCase().includes(value);
  }
  if (text === "mine") return job => job.user === yard.status?.user;
  if (text === "ended" || text === "over") return job => isOver(job.state);
  if (/^#?\d+$/.test(text)) {
    const id = text.replace("#", "");
    return job => String(job.id).startsWith(id) || job.name.includes(id);
  }
  return job => job.name.toLowerCase().includes(text) || job.user.toLowerCase().includes(text)
    || job.tenant.toLowerCase().includes(text) || job.state.includes(text) || job.why.toLowerCase().includes(text);
}

/** All terms of a text: `{ test }`, or `{ error }` in words. */
export function parseFilter(text, yard) {
  const tests = [];
  for (const word of text.toLowerCase().split(/\s+/).filter(Boolean)) {
    const turned = word.length > 1 && word.startsWith("-");
    const test = term(turned ? word.slice(1) : word, yard);
    if (typeof test === "string") return { error: test };
    tests.push(turned ? job => !test(job) : test);
  }
  return { test: job => tests.every(test => test(job)) };
}
