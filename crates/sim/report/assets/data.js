// The data of the page: JSON with packed columns, read only when it is needed.
// A number is five bits to a character, the lowest first; the sixth bit says that more follow (see pack.rs).

const DIGITS = (() => {
  const table = new Uint8Array(128);
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  for (let i = 0; i < alphabet.length; i++) table[alphabet.charCodeAt(i)] = i;
  return table;
})();

/** A column of numbers that are not negative. Beyond 2^31 bits are added as real numbers. */
function unpack(text, count, Type = Int32Array) {
  const values = new Type(count);
  let at = 0;
  for (let i = 0; i < count; i++) {
    let digit = DIGITS[text.charCodeAt(at++)];
    let value = digit & 31;
    let scale = 32;
    while (digit & 32) {
      digit = DIGITS[text.charCodeAt(at++)];
      value += (digit & 31) * scale;
      scale *= 32;
    }
    values[i] = value;
  }
  return values;
}

/** A column of differences from the number before. */
function unpackDifferences(text, count, Type = Int32Array) {
  const values = unpack(text, count, Float64Array);
  const sums = new Type(count);
  let sum = 0;
  for (let i = 0; i < count; i++) {
    const value = values[i];
    sum += value % 2 ? -(value + 1) / 2 : value / 2;
    sums[i] = sum;
  }
  return sums;
}

/** Reads an element once and lets its text go; null where there is none. */
function readJson(id) {
  const element = document.getElementById(id);
  if (!element) return null;
  const value = JSON.parse(element.textContent);
  element.remove();
  return value;
}

/** What all runs have in common. */
function loadJobs() {
  const raw = readJson("data-jobs");
  if (!raw) return null;
  const count = raw.count;
  const labels = raw.labels.length ? raw.labels : null;
  return {
    count,
    tenants: raw.tenants,
    models: raw.models,
    ends: raw.ends,
    tenant: unpack(raw.tenant, count),
    model: unpack(raw.model, count),
    gpus: unpack(raw.gpus, count),
    submitted: unpackDifferences(raw.submitted, count, Float64Array),
    labels,
    label: labels ? job => labels[job] : job => String(job),
  };
}

/** Nodes, and the row of each one's first GPU. */
function loadCluster() {
  const raw = readJson("data-cluster");
  const count = raw.nodes.length;
  const gpus = unpack(raw.gpus, count);
  const kind = unpack(raw.kind, count);
  const first = new Int32Array(count + 1);
  for (let i = 0; i < count; i++) first[i + 1] = first[i] + gpus[i];
  const nodeOf = row => {
    let low = 0;
    let high = count - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (first[middle] <= row) low = middle; else high = middle - 1;
    }
    return low;
  };
  return { count, names: raw.nodes, kindName: node => raw.kinds[kind[node]], first, rows: first[count], nodeOf };
}

const runTables = new Map();
const runTimes = new Map();

/** What came of each job in a run; -1 for what never was; null where it was left out. */
function runTable(index, count) {
  if (!runTables.has(index)) {
    const raw = readJson(`data-run-${index}`);
    runTables.set(index, raw && {
      started: unpack(raw.started, count, Float64Array).map(value => value - 1),
      jct: unpack(raw.jct, count, Float64Array).map(value => value - 1),
      wait: unpack(raw.wait, count, Float64Array),
      restarts: unpack(raw.restarts, count),
      preemptions: unpack(raw.preemptions, count),
      end: unpack(raw.end, count, Uint8Array),
    });
  }
  return runTables.get(index);
}

/** Who held which GPUs in a run, by beginning; null where it was left out. */
function runTime(index) {
  if (!runTimes.has(index)) {
    const raw = readJson(`data-time-${index}`);
    runTimes.set(index, raw && decodeTime(raw));
  }
  return runTimes.get(index);
}

function decodeTime(raw) {
  const count = raw.count;
  const gpus = unpack(raw.gpus, count, Uint8Array);
  const from = unpackDifferences(raw.from, count, Float64Array);
  const length = unpack(raw.length, count, Float64Array);
  const to = length;
  const shared = new Uint8Array(count);
  for (let i = 0; i < count; i++) {
    to[i] = from[i] + length[i];
    shared[i] = gpus[i] & 1;
    gpus[i] >>= 1;
  }
  const job = unpackDifferences(raw.job, count);
  const row = unpack(raw.row, count);
  return { count, from, to, job, row, gpus, shared, until: raw.until, end: Math.max(1, raw.end) };
}

/** A span as people say it, with its two largest units. */
function spanText(seconds) {
  if (seconds < 0) return "–";
  const whole = Math.round(seconds);
  const two = number => String(number).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  const minutes = Math.round(whole / 60);
  if (minutes < 1440) return `${Math.floor(minutes / 60)}h${two(minutes % 60)}m`;
  const hours = Math.round(whole / 3600);
  return `${Math.floor(hours / 24)}d${two(hours % 24)}h`;
}
