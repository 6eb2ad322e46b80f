// GPUs over time on a canvas. Only what is seen is drawn.

import { palette } from "./colours.js";
import { once } from "./dom.js";
import { tick } from "./words.js";

const AXIS = 26;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];
const SHORTEST = 20;
const LONGEST = 40 * 86400;

export class Gantt {
  /** `colour(bar)`; `point(bar, x, y)` is told what is pointed at, `open(bar)` what is opened, `moved()` that another time is seen. */
  constructor({ colour, point, open, moved }) {
    Object.assign(this, { colour, point, open, moved });
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", "GPUs over time: plus and minus zoom, arrow keys move");
    this.spacer = document.createElement("div");
    this.spacer.className = "spacer";
    this.box = document.createElement("div");
    this.box.className = "gantt card";
    this.box.append(this.canvas, this.spacer);
    this.rows = 0;
    this.nodes = [];
    this.bars = [];
    this.view = { from: 0, to: 1 };
    this.now = 0;
    this.lit = null;
    this.later = once(() => this.draw());
    this.box.addEventListener("scroll", this.later, { passive: true });
    new ResizeObserver(this.later).observe(this.box);
    this.listen();
  }

  /** Nodes in their order, and bars by node and GPU: `{ job, node, gpu, gpus, from, to, high }`. */
  set(nodes, bars, now) {
    this.now = now;
    this.nodes = [];
    this.rows = 0;
    const first = new Map();
    for (const node of nodes) {
      first.set(node.name, this.rows);
      this.nodes.push({ name: node.name, row: this.rows, gpus: node.gpus.length });
      this.rows += node.gpus.length;
    }
    this.bars = bars.filter(bar => first.has(bar.node)).map(bar => ({ ...bar, row: first.get(bar.node) + bar.gpu }));
    this.bars.sort((a, b) => a.row - b.row || a.from - b.from);
    this.later();
  }

  /** The moment moves on. */
  tick(now) {
    this.now = now;
    this.later();
  }

  high() {
    return this.rows <= 48 ? 20 : this.rows <= 512 ? 12 : 5;
  }

  gutter() {
    return this.canvas.clientWidth < 600 ? 84 : 130;
  }

  draw() {
    const wide = this.box.clientWidth;
    if (!wide || !this.rows) return;
    const all = AXIS + this.rows * this.high() + 8;
    const most = parseFloat(getComputedStyle(this.box).maxHeight);
    const shown = Math.min(all, Math.max(160, Number.isFinite(most) ? most - 2 : innerHeight * 0.6));
    const scale = devicePixelRatio || 1;
    const [w, h] = [Math.round(wide * scale), Math.round(shown * scale)];
    if (this.canvas.width !== w || this.canvas.height !== h) {
      this.canvas.width = w;
      this.canvas.height = h;
      this.canvas.style.height = `${shown}px`;
      this.spacer.style.height = `${Math.max(0, all - shown)}px`;
    }
    const pen = this.canvas.getContext("2d");
    const colours = palette();
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, wide, shown);
    const size = { wide, shown, left: this.gutter(), top: this.box.scrollTop, high: this.high() };
    this.drawRows(pen, size, colours);
    this.drawAxis(pen, size, colours);
    pen.save();
    pen.beginPath();
    pen.rect(size.left, AXIS, wide - size.left, shown - AXIS);
    pen.clip();
    for (const bar of this.bars) this.drawBar(pen, bar, size, colours);
    pen.restore();
    this.drawNow(pen, size, colours);
  }

  x(time, { left, wide }) {
    return left + ((time - this.view.from) / (this.view.to - this.view.from)) * (wide - left);
  }

  y(row, { top, high }) {
    return AXIS + row * high - top;
  }

  drawRows(pen, size, colours) {
    pen.textBaseline = "middle";
    pen.font = "12px system-ui, sans-serif";
    let free = -Infinity;
    this.nodes.forEach((node, index) => {
      const [y, h] = [this.y(node.row, size), node.gpus * size.high];
      if (y + h < AXIS || y > size.shown) return;
      if (index % 2) {
        pen.fillStyle = colours.faint;
        pen.fillRect(size.left, y, size.wide - size.left, h);
      }
      const middle = Math.max(AXIS + 8, y + Math.min(h / 2, size.shown));
      if (middle < free) return;
      free = middle + 15;
      pen.fillStyle = colours.soft;
      let name = node.name;
      while (name.length > 3 && pen.measureText(name).width > size.left - 20) name = `${name.slice(0, -2)}…`;
      pen.fillText(name, 12, middle);
    });
  }

  drawBar(pen, bar, size, colours) {
    const y = this.y(bar.row, size);
    const h = bar.gpus * size.high;
    if (y + h < AXIS || y > size.shown) return;
    const until = bar.to ?? this.now;
    const ahead = Math.max(until, bar.high ?? until);
    if (ahead < this.view.from || bar.from > this.view.to) return;
    const colour = this.colour(bar);
    const inset = size.high >= 12 ? 1 : 0.5;
    const x = this.x(bar.from, size);
    pen.globalAlpha = this.lit !== null && this.lit !== bar.job ? 0.25 : 1;
    pen.fillStyle = colour;
    const end = this.x(until, size);
    pen.fillRect(x, y + inset, Math.max(1, end - x - 0.5), h - 2 * inset);
    if (ahead > until) {
      // What is expected is paler, and open at its end.
      pen.globalAlpha *= 0.3;
      pen.fillRect(end, y + inset, this.x(ahead, size) - end, h - 2 * inset);
    }
    if (size.high >= 12 && end - Math.max(x, size.left) > 34) {
      pen.globalAlpha = this.lit !== null && this.lit !== bar.job ? 0.4 : 1;
      pen.fillStyle = "#10151a";
      pen.fillText(String(bar.job), Math.max(x, size.left) + 5, y + Math.min(h, size.high) / 2 + 0.5);
    }
    pen.globalAlpha = 1;
    pen.strokeStyle = colours.card;
  }

  drawAxis(pen, size, colours) {
    pen.fillStyle = colours.card;
    pen.fillRect(0, 0, size.wide, AXIS);
    const step = STEPS.find(one => (one / (this.view.to - this.view.from)) * (size.wide - size.left) >= 84) ?? 2592000;
    const offset = new Date().getTimezoneOffset() * 60;
    pen.fillStyle = colours.soft;
    pen.strokeStyle = colours.line;
    pen.lineWidth = 1;
    pen.beginPath();
    for (let at = Math.ceil((this.view.from - offset) / step) * step + offset; at <= this.view.to; at += step) {
      const x = Math.round(this.x(at, size)) + 0.5;
      pen.moveTo(x, AXIS - 4);
      pen.lineTo(x, size.shown);
      pen.fillText(tick(at, step), x + 4, AXIS / 2);
    }
    pen.moveTo(0, AXIS - 0.5);
    pen.lineTo(size.wide, AXIS - 0.5);
    pen.globalAlpha = 0.7;
    pen.stroke();
    pen.globalAlpha = 1;
  }

  drawNow(pen, size, colours) {
    const now = this.x(this.now, size);
    if (now >= size.left && now <= size.wide) {
      pen.strokeStyle = colours.bad;
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.moveTo(now, AXIS - 8);
      pen.lineTo(now, size.shown);
      pen.stroke();
    }
  }

  /** The bar at a place of the canvas. */
  at(x, y) {
    const size = { wide: this.canvas.clientWidth, left: this.gutter(), top: this.box.scrollTop, high: this.high() };
    if (x < size.left || y < AXIS) return null;
    const row = Math.floor((y - AXIS + size.top) / size.high);
    const time = this.view.from + ((x - size.left) / (size.wide - size.left)) * (this.view.to - this.view.from);
    const slack = ((this.view.to - this.view.from) / (size.wide - size.left)) * 2;
    const hit = bar => row >= bar.row && row < bar.row + bar.gpus && time >= bar.from - slack && time <= Math.max(bar.to ?? this.now, bar.high ?? 0) + slack;
    return this.bars.findLast(hit) ?? null;
  }

  /** Zooms around a part of the view, 0 to 1. */
  zoom(factor, part = 0.5) {
    const { from, to } = this.view;
    const length = Math.max(SHORTEST, Math.min(LONGEST, (to - from) / factor));
    const at = from + (to - from) * part;
    this.view = { from: at - length * part, to: at + length * (1 - part) };
    this.moved();
    this.later();
  }

  /** Moves by a part of the view. */
  pan(part) {
    const by = (this.view.to - this.view.from) * part;
    this.view = { from: this.view.from + by, to: this.view.to + by };
    this.moved();
    this.later();
  }

  listen() {
    const { canvas } = this;
    const place = event => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    let drag = null;
    canvas.addEventListener("pointerdown", event => { drag = { x: event.clientX, far: 0, id: event.pointerId }; });
    canvas.addEventListener("pointermove", event => {
      if (drag) {
        const by = event.clientX - drag.x;
        drag.x = event.clientX;
        drag.far += Math.abs(by);
        if (drag.far > 4) {
          canvas.setPointerCapture(drag.id);
          this.pan(-by / (canvas.clientWidth - this.gutter()));
        }
      } else if (event.pointerType === "mouse") {
        this.point(this.at(...place(event)), event.clientX, event.clientY);
      }
    });
    const end = event => {
      if (drag && drag.far <= 4 && event.type === "pointerup") this.press(this.at(...place(event)), event);
      drag = null;
    };
    canvas.addEventListener("pointerup", end);
    canvas.addEventListener("pointercancel", end);
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("wheel", event => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      const [x] = place(event);
      this.zoom(Math.exp(-(event.deltaY || event.deltaX) / 300), Math.max(0, (x - this.gutter()) / (canvas.clientWidth - this.gutter())));
    }, { passive: false });
    canvas.addEventListener("keydown", event => {
      const acts = { "+": () => this.zoom(1.5), "=": () => this.zoom(1.5), "-": () => this.zoom(1 / 1.5), ArrowLeft: () => this.pan(-0.15), ArrowRight: () => this.pan(0.15) };
      if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      acts[event.key]();
      event.preventDefault();
    });
  }

  press(bar, event) {
    if (!bar) return;
    if (event.pointerType === "mouse" || this.lit === bar.job) this.open(bar);
    else {
      this.lit = bar.job;
      this.point(bar, event.clientX, event.clientY);
      this.later();
    }
  }
}
