// A table of which only the rows that are seen exist, so that ten thousand are as quick as ten.

import { el, once } from "./dom.js";

const AROUND = 8;

export class Table {
  /**
   * `columns`: `{ key, title, width, class, fill(cell, row), sort(row), down }`; without `sort` a column cannot be
   * sorted by. `open(row)` is called for a click and for Enter. `empty()` gives what is shown instead of no rows.
   */
  constructor({ label, columns, open = null, empty, sort = null }) {
    Object.assign(this, { columns, open, empty, sort });
    this.rows = [];
    this.pool = [];
    this.current = -1;
    this.head = el("div", { class: "grid-head", role: "row" }, columns.map(column => this.headCell(column)));
    this.space = el("div", { class: "grid-space", role: "presentation" });
    this.body = el("div", { class: "grid-body", tabindex: "0", role: "rowgroup", "aria-label": `${label}, rows` }, this.space);
    this.nothing = el("div", { class: "empty", hidden: true });
    this.box = el("div", { class: "grid", role: "grid", "aria-label": label }, this.head, this.nothing, this.body);
    this.arrange();
    this.later = once(() => this.draw());
    this.body.addEventListener("scroll", this.later, { passive: true });
    this.body.addEventListener("keydown", event => this.key(event));
    this.space.addEventListener("click", event => this.click(event));
    new ResizeObserver(this.later).observe(this.body);
  }

  /** Hides columns that say so, such as one that has nothing to say yet. */
  arrange() {
    const shown = this.columns.filter(column => !column.hidden);
    this.box.style.setProperty("--columns", shown.map(column => column.width).join(" "));
    for (const row of [this.head, ...this.pool]) this.columns.forEach((column, index) => { row.children[index].hidden = Boolean(column.hidden); });
  }

  headCell(column) {
    const button = el("button", { type: "button", disabled: !column.sort, on: { click: () => this.sortBy(column) } }, column.title);
    return el("div", { role: "columnheader", class: column.class, data: { key: column.key } }, button);
  }

  sortBy(column) {
    const down = this.sort?.key === column.key ? !this.sort.down : Boolean(column.down);
    this.sort = { key: column.key, down };
    this.set(this.given);
  }

  /** Shows rows in the order of the chosen column, equal ones as they were given. */
  set(rows) {
    this.given = rows;
    const column = this.columns.find(one => one.key === this.sort?.key);
    this.rows = column ? sorted(rows, column.sort, this.sort.down) : rows;
    for (const cell of this.head.children) {
      const mine = cell.dataset.key === this.sort?.key;
      cell.setAttribute("aria-sort", !mine ? "none" : this.sort.down ? "descending" : "ascending");
    }
    this.box.setAttribute("aria-rowcount", String(this.rows.length + 1));
    this.current = Math.min(this.current, this.rows.length - 1);
    const none = this.rows.length === 0;
    this.body.hidden = none;
    this.nothing.hidden = !none;
    if (none) this.nothing.replaceChildren(...[this.empty()].flat());
    this.draw();
  }

  rowHeight() {
    if (!this.pool.length) this.addRow();
    return this.pool[0].offsetHeight || 36;
  }

  draw() {
    const total = this.rows.length;
    if (!total) return;
    const high = this.rowHeight();
    this.space.style.height = `${total * high}px`;
    const seen = Math.ceil(this.body.clientHeight / high) + 2 * AROUND;
    const first = Math.max(0, Math.min(Math.floor(this.body.scrollTop / high) - AROUND, total - seen));
    const last = Math.min(total, first + seen);
    while (this.pool.length < last - first) this.addRow();
    while (this.pool.length > Math.max(1, last - first)) this.pool.pop().remove();
    this.pool.forEach((row, index) => this.fill(row, first + index, high));
  }

  addRow() {
    const row = el("div", { class: "grid-row", role: "row" }, this.columns.map(column => el("div", { role: "gridcell", class: column.class, hidden: Boolean(column.hidden) })));
    this.space.append(row);
    this.pool.push(row);
  }

  fill(row, place, high) {
    row.hidden = place >= this.rows.length;
    if (row.hidden) return;
    row.style.transform = `translateY(${place * high}px)`;
    row.classList.toggle("current", place === this.current);
    row.setAttribute("aria-rowindex", String(place + 2));
    row.id = `${this.columns[0].key}-row-${place}`;
    row.dataset.place = place;
    this.columns.forEach((column, index) => column.fill(row.children[index], this.rows[place]));
  }

  click(event) {
    const row = event.target.closest(".grid-row");
    if (!row || event.target.closest("a, button")) return;
    this.current = Number(row.dataset.place);
    this.draw();
    this.open?.(this.rows[this.current]);
  }

  key(event) {
    if (event.target !== this.body || !this.rows.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const high = this.rowHeight();
    const page = Math.max(1, Math.floor(this.body.clientHeight / high) - 1);
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" && this.current >= 0) this.open?.(this.rows[this.current]);
    else if (event.key in steps) this.move(steps[event.key], high);
    else return;
    event.preventDefault();
  }

  move(by, high) {
    this.current = Math.max(0, Math.min(this.rows.length - 1, this.current + by));
    const top = this.current * high;
    const room = this.body.clientHeight - high;
    if (top < this.body.scrollTop) this.body.scrollTop = top;
    if (top > this.body.scrollTop + room) this.body.scrollTop = top - room;
    this.draw();
    this.body.setAttribute("aria-activedescendant", `${this.columns[0].key}-row-${this.current}`);
  }
}

/** Rows by a number or a text, each asked for once. */
function sorted(rows, by, down) {
  const keys = rows.map(by);
  const order = keys.map((_, index) => index);
  const sign = down ? -1 : 1;
  order.sort((a, b) => (keys[a] < keys[b] ? -sign : keys[a] > keys[b] ? sign : a - b));
  return order.map(index => rows[index]);
}
