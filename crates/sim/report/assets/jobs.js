// The table of jobs: only the rows that are seen exist.

const ROW_HEIGHT = 32;
const ROWS_AROUND = 6;

const COLUMNS = [
  { key: "job", title: "job", words: true },
  { key: "tenant", title: "tenant", words: true },
  { key: "model", title: "model", words: true },
  { key: "gpus", title: "GPUs" },
  { key: "submitted", title: "submitted", span: true },
  { key: "started", title: "started", span: true },
  { key: "ended", title: "ended", span: true },
  { key: "wait", title: "waited", span: true },
  { key: "jct", title: "JCT", span: true },
  { key: "restarts", title: "restarts" },
  { key: "preemptions", title: "preempted" },
  { key: "end", title: "end", words: true },
];

/** Ranks of texts, so that texts sort as numbers. */
function ranks(texts) {
  const order = Uint32Array.from(texts, (_, index) => index);
  order.sort((a, b) => (texts[a] < texts[b] ? -1 : texts[a] > texts[b] ? 1 : a - b));
  const rank = new Float64Array(texts.length);
  order.forEach((index, place) => { rank[index] = place; });
  return rank;
}

/** Jobs by a column of numbers, equal ones by number. A number and its job are one real number, so that it is fast. */
function sorted(values, down) {
  const count = values.length;
  const keys = new Float64Array(count);
  const sign = down ? -1 : 1;
  for (let job = 0; job < count; job++) keys[job] = sign * values[job] * 262144 + job;
  keys.sort();
  const order = new Int32Array(count);
  for (let i = 0; i < count; i++) order[i] = ((keys[i] % 262144) + 262144) % 262144;
  return order;
}

/** The numbers of a run by the names that the filter and the headings use. */
function columnsOf(jobs, table) {
  const missing = new Float64Array(jobs.count).fill(-1);
  const after = since => since.map((value, job) => (value < 0 ? -1 : value + jobs.submitted[job]));
  return {
    gpus: jobs.gpus,
    submitted: jobs.submitted,
    started: table ? after(table.started) : missing,
    ended: table ? after(table.jct) : missing,
    wait: table ? table.wait.map((value, job) => (table.jct[job] < 0 ? -1 : value)) : missing,
    jct: table ? table.jct : missing,
    restarts: table ? table.restarts : missing,
    preemptions: table ? table.preemptions : missing,
    end: table ? table.end : new Uint8Array(jobs.count),
  };
}

class JobTable {
  constructor(jobs, choose) {
    this.jobs = jobs;
    this.choose = choose;
    this.box = document.getElementById("rows");
    this.table = document.getElementById("jobs");
    this.body = this.table.tBodies[0];
    this.count = document.getElementById("filter-count");
    this.input = document.getElementById("filter");
    this.sort = { key: "submitted", down: false };
    this.chosen = -1;
    this.current = -1;
    this.rankOf = new Map();
    this.rows = [];
    this.above = this.body.insertRow();
    this.below = this.body.insertRow();
    for (const spacer of [this.above, this.below]) {
      spacer.setAttribute("aria-hidden", "true");
      spacer.className = "spacer";
      spacer.insertCell().colSpan = COLUMNS.length;
    }
    this.addHeads();
    this.listen();
  }

  addHeads() {
    this.heads = COLUMNS.map(column => {
      const head = document.createElement("th");
      head.scope = "col";
      if (column.words) head.className = "words";
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = column.title;
      button.addEventListener("click", () => this.sortBy(column.key));
      head.append(button);
      this.table.tHead.rows[0].append(head);
      return head;
    });
  }

  listen() {
    this.box.addEventListener("scroll", () => this.later(), { passive: true });
    this.box.addEventListener("keydown", event => this.key(event));
    this.input.addEventListener("input", () => this.filter());
    this.body.addEventListener("click", event => {
      const row = event.target.closest("tr[data-job]");
      if (!row) return;
      this.current = Number(row.dataset.place);
      this.choose(Number(row.dataset.job), true);
    });
    new ResizeObserver(() => this.later()).observe(this.box);
  }

  /** Shows another run. */
  show(table) {
    this.columns = columnsOf(this.jobs, table);
    this.order = null;
    this.filter();
  }

  sortBy(key) {
    this.sort = { key, down: this.sort.key === key && !this.sort.down };
    this.order = null;
    this.filter();
  }

  /** The column to sort by, as numbers. */
  sortValues(key) {
    const { jobs } = this;
    const rank = (name, texts) => {
      if (!this.rankOf.has(name)) this.rankOf.set(name, ranks(texts));
      return this.rankOf.get(name);
    };
    if (key === "job") return jobs.labels ? rank("job", jobs.labels) : Float64Array.from({ length: jobs.count }, (_, job) => job);
    const named = { tenant: [jobs.tenant, jobs.tenants], model: [jobs.model, jobs.models], end: [this.columns.end, jobs.ends] }[key];
    if (!named) return this.columns[key];
    const table = rank(key, named[1]);
    return Float64Array.from(named[0], value => table[value]);
  }

  filter() {
    const { key, down } = this.sort;
    this.order ??= sorted(this.sortValues(key), down);
    COLUMNS.forEach((column, index) => {
      this.heads[index].setAttribute("aria-sort", column.key !== key ? "none" : down ? "descending" : "ascending");
    });
    const { test, error } = parseFilter(this.input.value, this.jobs, this.columns);
    this.input.setAttribute("aria-invalid", error ? "true" : "false");
    this.count.classList.toggle("wrong", Boolean(error));
    if (error) {
      this.count.textContent = error;
      return;
    }
    this.shown = this.input.value.trim() ? this.order.filter(test) : this.order;
    const all = this.jobs.count.toLocaleString("en");
    const found = this.shown.length.toLocaleString("en");
    this.count.textContent = this.shown.length === this.jobs.count ? `${all} jobs` : `${found} of ${all} jobs`;
    this.table.setAttribute("aria-rowcount", this.shown.length + 1);
    this.current = -1;
    this.box.scrollTop = 0;
    this.draw();
  }

  later() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  draw() {
    if (!this.shown) return;
    const total = this.shown.length;
    const visible = Math.ceil(this.box.clientHeight / ROW_HEIGHT) + 2 * ROWS_AROUND;
    const wanted = Math.floor(this.box.scrollTop / ROW_HEIGHT) - ROWS_AROUND;
    const first = Math.max(0, Math.min(wanted, total - visible));
    const last = Math.min(total, first + visible);
    while (this.rows.length < last - first) this.addRow();
    while (this.rows.length > last - first) this.rows.pop().remove();
    this.above.cells[0].style.height = `${first * ROW_HEIGHT}px`;
    this.below.cells[0].style.height = `${(total - last) * ROW_HEIGHT}px`;
    this.rows.forEach((row, index) => this.fill(row, first + index));
  }

  addRow() {
    const row = document.createElement("tr");
    for (const column of COLUMNS) {
      const cell = row.insertCell();
      if (column.words) cell.className = "words";
    }
    this.below.before(row);
    this.rows.push(row);
  }

  fill(row, place) {
    const job = this.shown[place];
    row.classList.toggle("chosen", job === this.chosen);
    row.classList.toggle("current", place === this.current);
    row.setAttribute("aria-rowindex", place + 2);
    row.dataset.place = place;
    row.dataset.job = job;
    COLUMNS.forEach((column, index) => {
      row.cells[index].textContent = this.text(column, job);
    });
  }

  text(column, job) {
    const { jobs } = this;
    switch (column.key) {
      case "job": return jobs.label(job);
      case "tenant": return jobs.tenants[jobs.tenant[job]];
      case "model": return jobs.models[jobs.model[job]];
      case "end": return jobs.ends[this.columns.end[job]];
      default: {
        const value = this.columns[column.key][job];
        if (value < 0) return "–";
        return column.span ? spanText(value) : String(value);
      }
    }
  }

  /** Marks a job that was chosen elsewhere. */
  mark(job) {
    this.chosen = job;
    this.later();
  }

  key(event) {
    if (event.target !== this.box || !this.shown?.length) return;
    const page = Math.max(1, Math.floor(this.box.clientHeight / ROW_HEIGHT) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" && this.current >= 0) {
      this.choose(this.shown[this.current], true);
    } else if (event.key in steps) {
      this.current = Math.max(0, Math.min(this.shown.length - 1, this.current + steps[event.key]));
      const head = this.table.tHead.offsetHeight;
      const top = this.current * ROW_HEIGHT;
      const room = this.box.clientHeight - head - ROW_HEIGHT;
      if (top < this.box.scrollTop) this.box.scrollTop = top;
      if (top > this.box.scrollTop + room) this.box.scrollTop = top - room;
      this.draw();
    } else {
      return;
    }
    event.preventDefault();
  }
}
