// The map of GPUs on a canvas: nodes in groups, GPUs coloured by what runs there, parts of a GPU as parts of a cell.

import { inkOn, palette } from "./colours.js";
import { once } from "./dom.js";

const PAD = 16;
const COLUMNS_MAX = 8;
const SIZES = [[32, 46], [128, 30], [640, 20], [2500, 13], [Infinity, 9]];

export class ClusterMap {
  /** `colour(job)` gives a job's colour; `look(spot)` is told where the pointer or the keys are, `open(job)` what is opened. */
  constructor({ colour, look, open }) {
    Object.assign(this, { colour, look, open });
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", "Map of GPUs: arrow keys move, Enter opens the job");
    this.spacer = document.createElement("div");
    this.spacer.className = "spacer";
    this.box = document.createElement("div");
    this.box.className = "map card";
    this.box.append(this.canvas, this.spacer);
    this.tiles = [];
    this.groups = [];
    this.focus = null;
    this.lit = null;
    this.later = once(() => this.draw());
    this.box.addEventListener("scroll", this.later, { passive: true });
    new ResizeObserver(() => { this.arrange(); this.later(); }).observe(this.box);
    this.listen();
  }

  /** Shows these groups of nodes: `[{ name, nodes }]`. */
  set(groups, shares) {
    const shape = JSON.stringify(groups.map(group => [group.name, group.nodes.map(node => node.gpus.length)]));
    this.groups = groups;
    this.shares = shares;
    if (shape !== this.shape) {
      this.shape = shape;
      this.wide = 0;
      this.arrange();
    } else {
      let index = 0;
      for (const group of groups) for (const node of group.nodes) this.tiles[index++].node = node;
    }
    this.later();
  }

  /** Lights all GPUs of a job. */
  light(job) {
    if (this.lit === job) return;
    this.lit = job;
    this.later();
  }

  /** Where everything stands, for the width there is. */
  arrange() {
    const wide = this.box.clientWidth;
    if (!wide || wide === this.wide || !this.groups.length) return;
    this.wide = wide;
    const total = this.groups.reduce((sum, group) => sum + group.nodes.reduce((all, node) => all + node.gpus.length, 0), 0);
    this.cell = SIZES.find(([most]) => total <= most)[1];
    this.gap = this.cell >= 20 ? 3 : this.cell >= 13 ? 2 : 1;
    const named = this.cell >= 13;
    const labelled = this.groups.length > 1 || this.groups[0].name !== "";
    const [step, label] = [this.cell + this.gap, named ? 17 : 0];
    const between = this.cell >= 20 ? 18 : this.cell >= 13 ? 12 : 7;
    this.tiles = [];
    this.labels = [];
    const shaped = node => {
      const columns = Math.max(1, Math.min(COLUMNS_MAX, node.gpus.length));
      const rows = Math.max(1, Math.ceil(node.gpus.length / columns));
      return { node, columns, label, w: columns * step - this.gap, h: rows * step - this.gap + label };
    };
    // Narrow groups stand side by side, wide ones below each other.
    let [left, y, bottom] = [PAD, PAD, PAD];
    for (const group of this.groups) {
      const shapes = group.nodes.map(shaped);
      const whole = shapes.reduce((sum, shape) => sum + shape.w + between, 0);
      const needed = Math.max(labelled ? 130 : 0, Math.min(whole, wide - 2 * PAD));
      if (left > PAD && left + needed > wide - PAD) {
        y = bottom + between + 8;
        left = PAD;
      }
      let [x, down, tallest] = [left, y, 0];
      if (labelled) {
        this.labels.push({ text: group.name, note: `${group.nodes.length} node${group.nodes.length === 1 ? "" : "s"}`, x, y });
        down += 24;
      }
      for (const shape of shapes) {
        if (x > left && x + shape.w > wide - PAD) {
          [x, tallest, down] = [left, 0, down + tallest + between];
        }
        this.tiles.push({ ...shape, x, y: down });
        x += shape.w + between;
        tallest = Math.max(tallest, shape.h);
      }
      bottom = Math.max(bottom, down + tallest);
      left += needed + 2 * between;
    }
    this.high = bottom + PAD;
    this.spacer.style.height = "0px";
  }

  draw() {
    if (!this.wide || !this.tiles.length) return;
    const shown = Math.min(this.high, this.limit());
    const scale = devicePixelRatio || 1;
    const [w, h] = [Math.round(this.wide * scale), Math.round(shown * scale)];
    if (this.canvas.width !== w || this.canvas.height !== h) {
      this.canvas.width = w;
      this.canvas.height = h;
      this.canvas.style.height = `${shown}px`;
      this.spacer.style.height = `${Math.max(0, this.high - shown)}px`;
    }
    const top = this.box.scrollTop;
    const pen = this.canvas.getContext("2d");
    const colours = palette();
    pen.setTransform(scale, 0, 0, scale, 0, -top * scale);
    pen.clearRect(0, top, this.wide, shown);
    pen.textBaseline = "top";
    for (const label of this.labels) {
      pen.font = "600 13px system-ui, sans-serif";
      pen.fillStyle = colours.ink;
      pen.fillText(label.text, label.x, label.y);
      const after = label.x + pen.measureText(label.text).width + 8;
      pen.font = "12px system-ui, sans-serif";
      pen.fillStyle = colours.soft;
      pen.fillText(label.note, after, label.y + 1);
    }
    for (const tile of this.tiles) {
      if (tile.y + tile.h >= top && tile.y <= top + shown) this.drawTile(pen, tile, colours);
    }
  }

  limit() {
    const most = parseFloat(getComputedStyle(this.box).maxHeight);
    return Math.max(80, Number.isFinite(most) ? most - 2 : innerHeight * 0.6);
  }

  drawTile(pen, tile, colours) {
    const { node } = tile;
    const out = node.state !== "up";
    if (tile.label) {
      pen.font = "12px system-ui, sans-serif";
      pen.fillStyle = out ? colours.bad : colours.soft;
      pen.fillText(fitted(pen, out ? `${node.name} · ${node.state}` : node.name, tile.w), tile.x, tile.y);
    }
    node.gpus.forEach((jobs, index) => {
      const [x, y] = this.corner(tile, index);
      this.drawCell(pen, { x, y, jobs, node, index }, colours);
    });
    if (this.focus?.tile === tile || (this.focus && this.focus.node === node.name)) {
      const [x, y] = this.corner(tile, this.focus.gpu);
      pen.lineWidth = 2;
      pen.strokeStyle = colours.ink;
      pen.strokeRect(x - 2, y - 2, this.cell + 4, this.cell + 4);
    }
  }

  corner(tile, gpu) {
    const step = this.cell + this.gap;
    return [tile.x + (gpu % tile.columns) * step, tile.y + tile.label + Math.floor(gpu / tile.columns) * step];
  }

  drawCell(pen, { x, y, jobs, node, index }, colours) {
    const size = this.cell;
    pen.globalAlpha = this.lit !== null && !jobs.includes(this.lit) ? 0.3 : 1;
    pen.fillStyle = colours.free;
    pen.fillRect(x, y, size, size);
    const parts = jobs.map(job => this.shares.get(job) ?? 1000);
    const whole = Math.max(1000, parts.reduce((sum, part) => sum + part, 0));
    let from = 0;
    jobs.forEach((job, place) => {
      const colour = this.colour(job);
      const wide = (parts[place] / whole) * size;
      pen.fillStyle = colour;
      pen.fillRect(x + from, y, Math.max(1, wide - (place < jobs.length - 1 ? 1 : 0)), size);
      if (size >= 30 && wide >= 28) {
        pen.fillStyle = inkOn(colour);
        pen.font = "12px system-ui, sans-serif";
        pen.fillText(fitted(pen, String(job), wide - 6), x + from + 4, y + 4);
      }
      from += wide;
    });
    const claimed = node.claimed?.includes(index);
    if (node.state !== "up" && !jobs.length) hatch(pen, x, y, size, node.state === "drained" ? colours.hatch : colours.bad);
    else if (node.ill?.some((one) => one.gpu === index)) hatch(pen, x, y, size, colours.bad);
    else if (claimed && !jobs.length) hatch(pen, x, y, size, colours.warm);
    else if (!jobs.length && size >= 13) {
      pen.strokeStyle = colours["free-line"];
      pen.lineWidth = 1;
      pen.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    } else if (node.state !== "up") {
      pen.strokeStyle = node.state === "drained" ? colours.hatch : colours.bad;
      pen.lineWidth = 2;
      pen.strokeRect(x + 1, y + 1, size - 2, size - 2);
    }
    pen.globalAlpha = 1;
  }

  /** The GPU at a place of the canvas. */
  at(x, y) {
    const down = y + this.box.scrollTop;
    const step = this.cell + this.gap;
    for (const tile of this.tiles) {
      if (x < tile.x - 2 || x > tile.x + tile.w + 2 || down < tile.y - 2 || down > tile.y + tile.h + 2) continue;
      const column = Math.max(0, Math.min(tile.columns - 1, Math.floor((x - tile.x) / step)));
      const row = Math.max(0, Math.floor((down - tile.y - tile.label) / step));
      const gpu = Math.min(tile.node.gpus.length - 1, row * tile.columns + column);
      return this.spot(tile, Math.max(0, gpu), x);
    }
    return null;
  }

  spot(tile, gpu, x = null) {
    const jobs = tile.node.gpus[gpu] ?? [];
    let job = jobs[0] ?? null;
    if (x !== null && jobs.length > 1) {
      const part = (x - this.corner(tile, gpu)[0]) / this.cell;
      job = jobs[Math.max(0, Math.min(jobs.length - 1, Math.floor(part * jobs.length)))];
    }
    return { tile, node: tile.node.name, gpu, jobs, job };
  }

  listen() {
    const place = event => {
      const box = this.canvas.getBoundingClientRect();
      return this.at(event.clientX - box.left, event.clientY - box.top);
    };
    this.canvas.addEventListener("pointermove", event => event.pointerType === "mouse" && this.look(place(event), false));
    this.canvas.addEventListener("pointerleave", () => this.look(null, false));
    this.canvas.addEventListener("click", event => {
      this.focus = place(event);
      this.look(this.focus, true);
      this.later();
    });
    this.canvas.addEventListener("dblclick", event => {
      const spot = place(event);
      if (spot?.job != null) this.open(spot.job);
    });
    this.canvas.addEventListener("keydown", event => this.key(event));
    this.canvas.addEventListener("focus", () => {
      if (!this.focus && this.tiles.length && this.canvas.matches(":focus-visible")) this.go(this.tiles[0], 0);
    });
  }

  go(tile, gpu) {
    this.focus = this.spot(tile, gpu);
    if (tile.y < this.box.scrollTop) this.box.scrollTop = tile.y - PAD;
    const bottom = tile.y + tile.h - this.box.clientHeight;
    if (bottom > this.box.scrollTop) this.box.scrollTop = bottom + PAD;
    this.look(this.focus, true);
    this.later();
  }

  key(event) {
    const index = this.tiles.findIndex(tile => tile.node.name === this.focus?.node);
    const tile = this.tiles[index];
    if (event.ctrlKey || event.metaKey || event.altKey || !this.tiles.length) return;
    if (!tile) {
      if (!event.key.startsWith("Arrow")) return;
      event.preventDefault();
      return this.go(this.tiles[0], 0);
    }
    const gpu = this.focus.gpu;
    if (event.key === "ArrowRight") {
      if (gpu + 1 < tile.node.gpus.length) this.go(tile, gpu + 1);
      else if (index + 1 < this.tiles.length) this.go(this.tiles[index + 1], 0);
    } else if (event.key === "ArrowLeft") {
      if (gpu > 0) this.go(tile, gpu - 1);
      else if (index > 0) this.go(this.tiles[index - 1], this.tiles[index - 1].node.gpus.length - 1);
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      this.goVertically(tile, gpu, event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Enter" && this.focus.job !== null) {
      this.open(this.focus.job);
    } else {
      return;
    }
    event.preventDefault();
  }

  goVertically(tile, gpu, way) {
    const other = gpu + way * tile.columns;
    if (other >= 0 && other < tile.node.gpus.length) return this.go(tile, other);
    const [x, y] = this.corner(tile, gpu);
    const ahead = this.tiles.filter(one => (one.y - tile.y) * way > 0);
    const far = one => Math.abs(one.y - y) * 4 + Math.abs(one.x - tile.x);
    const next = ahead.reduce((best, one) => (!best || far(one) < far(best) ? one : best), null);
    if (next) this.go(next, Math.min(next.node.gpus.length - 1, Math.max(0, Math.floor((x - next.x) / (this.cell + this.gap)))));
  }
}

function hatch(pen, x, y, size, colour) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, size, size);
  pen.clip();
  pen.beginPath();
  const step = Math.max(4, size / 4);
  for (let d = -size; d < size; d += step) {
    pen.moveTo(x + d, y + size);
    pen.lineTo(x + d + size, y);
  }
  pen.strokeStyle = colour;
  pen.lineWidth = 1.5;
  pen.stroke();
  pen.restore();
}

/** As much of a text as fits. */
function fitted(pen, text, wide) {
  if (pen.measureText(text).width <= wide) return text;
  let cut = text;
  while (cut.length > 1 && pen.measureText(`${cut}…`).width > wide) cut = cut.slice(0, -1);
  return `${cut}…`;
}
