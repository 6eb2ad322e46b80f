// The filter of the table of jobs: terms that must all hold.
//   word   name:word   gpus>=8   wait>1h30m   -term

const UNITS = { s: 1, m: 60, h: 3600, d: 86400, w: 604800 };

/** `90`, `1h`, `1h30m` in seconds; NaN for anything else. */
function parseAmount(text) {
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text);
  if (!/^(\d+(\.\d+)?[smhdw])+$/.test(text)) return NaN;
  let sum = 0;
  for (const [, number, unit] of text.matchAll(/(\d+(?:\.\d+)?)([smhdw])/g)) sum += number * UNITS[unit];
  return sum;
}

const COMPARE = {
  ">=": (a, b) => a >= b,
  "<=": (a, b) => a <= b,
  ">": (a, b) => a > b,
  "<": (a, b) => a < b,
  "=": (a, b) => a === b,
};

/** Which names contain a text, as a table by number. */
function namesWith(names, text) {
  return Uint8Array.from(names, name => (name.toLowerCase().includes(text) ? 1 : 0));
}

let lowerLabels = null;

function labelTest(jobs, text) {
  if (!jobs.labels) return job => String(job).includes(text);
  lowerLabels ??= jobs.labels.map(label => label.toLowerCase());
  return job => lowerLabels[job].includes(text);
}

/** One term as a test of a job; a string says what is wrong with it. */
function parseTerm(term, jobs, columns) {
  const number = /^([a-z-]+)(>=|<=|>|<|=)(.+)$/.exec(term);
  if (number) {
    const [, key, sign, text] = number;
    const column = columns[key];
    if (!column) return `no number is called “${key}”; there are ${Object.keys(columns).join(", ")}`;
    const amount = parseAmount(text);
    if (Number.isNaN(amount)) return `“${text}” is no number and no time such as 90, 30m or 1h30m`;
    const compare = COMPARE[sign];
    // What never was is below every number and is not found by one.
    return job => column[job] >= 0 && compare(column[job], amount);
  }
  const named = /^([a-z]+):(.*)$/.exec(term);
  const byTable = (names, column, text) => {
    const table = namesWith(names, text);
    return job => table[column[job]] === 1;
  };
  if (named) {
    const [, key, text] = named;
    if (key === "tenant") return byTable(jobs.tenants, jobs.tenant, text);
    if (key === "model") return byTable(jobs.models, jobs.model, text);
    if (key === "end") return byTable(jobs.ends, columns.end, text);
    if (key === "job") return labelTest(jobs, text);
  }
  const label = labelTest(jobs, term);
  const tenant = byTable(jobs.tenants, jobs.tenant, term);
  const model = byTable(jobs.models, jobs.model, term);
  return job => tenant(job) || model(job) || label(job);
}

/** All terms of a text: `{ test }`, or `{ error }` in words. */
function parseFilter(text, jobs, columns) {
  const tests = [];
  for (const word of text.toLowerCase().split(/\s+/).filter(Boolean)) {
    const turned = word.length > 1 && word.startsWith("-");
    const test = parseTerm(turned ? word.slice(1) : word, jobs, columns);
    if (typeof test === "string") return { error: test };
    tests.push(turned ? job => !test(job) : test);
  }
  return { test: job => tests.every(test => test(job)) };
}
