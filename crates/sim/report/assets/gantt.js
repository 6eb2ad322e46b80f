// The chart of GPUs over time. Bars are written into pixels directly, so that hundreds of thousands are quick; what is
// narrower than a pixel is merged with what is already there.

const LIGHT = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b8950b", "#b07aa1", "#ff9da7", "#9c755f", "#6b8fd6", "#86b04a", "#d37295", "#3f9aa8", "#c98a4b", "#8074c9", "#a0a34a"];
const DARK = ["#6fa3d8", "#ffa64d", "#7cc470", "#f27c7e", "#8fd3cd", "#e0bf45", "#cf9cc2", "#ffb8c0", "#c29a80", "#90b0f0", "#a9d36b", "#ee97b6", "#62bfce", "#e6ac70", "#a89cf0", "#c6c96d"];
const TIME_STEPS = [1, 5, 15, 60, 300, 900, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000];

/** A colour as the number that a pixel holds. */
function pixel(hex) {
  const number = parseInt(hex.slice(1), 16);
  return ((255 << 24) | ((number & 255) << 16) | (number & 0xff00) | (number >> 16)) >>> 0;
}

/** A colour, a part of it, over another. */
function mix(over, under, part) {
  const channel = shift => Math.round(((over >>> shift) & 255) * part + ((under >>> shift) & 255) * (1 - part));
  return ((255 << 24) | (channel(16) << 16) | (channel(8) << 8) | channel(0)) >>> 0;
}

class Gantt {
  constructor(jobs, cluster) {
    this.jobs = jobs;
    this.cluster = cluster;
    this.canvas = document.getElementById("gantt");
    this.context = this.canvas.getContext("2d", { alpha: false });
    this.time = null;
    this.chosen = -1;
    this.by = "job";
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.dark.addEventListener("change", () => this.later());
    new ResizeObserver(() => this.later()).observe(this.canvas.parentElement);
  }

  /** Shows another run: the same part of it if the reader has zoomed in, so that policies compare; else all of it. */
  show(time) {
    const { view } = this;
    const zoomed = view && this.time && (view.t1 - view.t0 < this.time.end || view.r1 - view.r0 < this.cluster.rows);
    this.time = time;
    if (zoomed && time) this.keepInside();
    else this.reset();
  }

  reset() {
    const end = this.time ? this.time.end : 1;
    this.view = { t0: 0, t1: end, r0: 0, r1: this.cluster.rows };
    this.later();
  }

  later() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  /** The sizes of the drawing, in real pixels. */
  measure() {
    const scale = Math.min(2, devicePixelRatio || 1);
    const wide = this.canvas.parentElement.clientWidth;
    const tall = Math.round(Math.max(200, Math.min(innerHeight * 0.6, 560, this.cluster.rows * 9 + 30)));
    const width = Math.max(1, Math.round(wide * scale));
    const height = Math.round(tall * scale);
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
      this.canvas.style.height = `${tall}px`;
    }
    const left = Math.round((wide < 500 ? 48 : 92) * scale);
    const bottom = Math.round(24 * scale);
    this.size = { scale, width, height, left, right: Math.round(8 * scale), bottom };
    this.size.bodyWidth = Math.max(1, width - left - this.size.right);
    this.size.bodyHeight = Math.max(1, height - bottom);
  }

  draw() {
    this.measure();
    const style = getComputedStyle(document.documentElement);
    const colour = name => style.getPropertyValue(name).trim();
    const { context, size } = this;
    this.ink = { paper: colour("--card"), soft: colour("--soft"), line: colour("--line"), faint: colour("--faint"), strong: colour("--ink") };
    context.fillStyle = this.ink.paper;
    context.fillRect(0, 0, size.width, size.height);
    context.font = `${12 * size.scale}px system-ui, sans-serif`;
    if (!this.time) {
      context.fillStyle = this.ink.soft;
      context.fillText("Who held which GPU under this policy does not fit into this page.", 16 * size.scale, 40 * size.scale);
      return;
    }
    this.drawBars();
    this.drawNodes();
    this.drawTimes();
    this.drawCut();
  }

  palette(paper) {
    const colours = (this.dark.matches ? DARK : LIGHT).map(pixel);
    return this.chosen < 0 ? colours : colours.map(one => mix(one, paper, 0.22));
  }

  drawBars() {
    const { size, view, time, jobs } = this;
    const { bodyWidth, bodyHeight } = size;
    const image = this.context.createImageData(bodyWidth, bodyHeight);
    const pixels = new Uint32Array(image.data.buffer);
    const paper = pixel(this.ink.faint);
    pixels.fill(paper);
    const colours = this.palette(paper);
    const byTenant = this.by === "tenant";
    const target = { pixels, bodyWidth, bodyHeight, across: bodyWidth / (view.t1 - view.t0), down: bodyHeight / (view.r1 - view.r0) };
    // The last pixel taken in each row: what falls on it again adds nothing.
    const taken = new Int32Array(this.cluster.rows).fill(-1);
    const { from, to, row, gpus, job, shared } = time;
    const chosen = [];
    for (let i = 0; i < time.count; i++) {
      if (from[i] >= view.t1) break;
      if (to[i] <= view.t0 || row[i] >= view.r1 || row[i] + gpus[i] <= view.r0) continue;
      if (job[i] === this.chosen) chosen.push(i);
      const x0 = Math.max(0, Math.floor((from[i] - view.t0) * target.across));
      const x1 = Math.min(bodyWidth, Math.max(x0 + 1, Math.floor((to[i] - view.t0) * target.across)));
      if (x1 - x0 === 1 && taken[row[i]] >= x0) continue;
      taken[row[i]] = x1 - 1;
      const number = byTenant ? jobs.tenant[job[i]] : Math.imul(job[i], 0x9e3779b1) >>> 16;
      const colour = colours[number % colours.length];
      this.bar(target, { x0, x1, row: row[i], gpus: gpus[i] }, shared[i] ? mix(colour, paper, 0.6) : colour);
    }
    const strong = pixel(this.dark.matches ? "#ffffff" : "#111418");
    for (const i of chosen) {
      const x0 = Math.max(0, Math.floor((from[i] - view.t0) * target.across));
      const x1 = Math.min(bodyWidth, Math.max(x0 + 3, Math.floor((to[i] - view.t0) * target.across)));
      this.bar(target, { x0, x1, row: row[i], gpus: gpus[i] }, strong);
    }
    this.context.putImageData(image, size.left, 0);
  }

  bar({ pixels, bodyWidth, bodyHeight, down }, { x0, x1, row, gpus }, colour) {
    const gap = down >= 4 ? 1 : 0;
    const y0 = Math.max(0, Math.floor((row - this.view.r0) * down));
    const y1 = Math.min(bodyHeight, Math.max(y0 + 1, Math.floor((row + gpus - this.view.r0) * down) - gap));
    const end = x1 - x0 > 3 ? x1 - 1 : x1;
    for (let y = y0; y < y1; y++) {
      const start = y * bodyWidth;
      if (end - x0 > 24) pixels.fill(colour, start + x0, start + end);
      else for (let x = x0; x < end; x++) pixels[start + x] = colour;
    }
  }

  drawNodes() {
    const { context, size, view, cluster, ink } = this;
    const down = size.bodyHeight / (view.r1 - view.r0);
    context.textAlign = "right";
    context.textBaseline = "middle";
    let free = -Infinity;
    for (let node = cluster.nodeOf(Math.floor(view.r0)); node < cluster.count && cluster.first[node] < view.r1; node++) {
      const top = (cluster.first[node] - view.r0) * down;
      const bottom = (cluster.first[node + 1] - view.r0) * down;
      if (bottom - top >= 6 && top > 0) {
        context.fillStyle = ink.line;
        context.fillRect(0, Math.round(top) - 1, size.width - size.right, 1);
      }
      const middle = Math.max(8 * size.scale, (Math.max(0, top) + Math.min(size.bodyHeight, bottom)) / 2);
      if (middle - free < 15 * size.scale) continue;
      free = middle;
      context.fillStyle = ink.soft;
      const room = size.left - 8 * size.scale;
      context.fillText(this.fit(cluster.names[node], room), size.left - 6 * size.scale, middle);
    }
  }

  /** As much of a text as fits. */
  fit(text, room) {
    if (this.context.measureText(text).width <= room) return text;
    let short = text.slice(0, 24);
    while (short.length > 1 && this.context.measureText(`${short}…`).width > room) short = short.slice(0, -1);
    return `${short}…`;
  }

  drawTimes() {
    const { context, size, view, ink } = this;
    const room = 76 * size.scale;
    const least = ((view.t1 - view.t0) * room) / size.bodyWidth;
    const step = TIME_STEPS.find(one => one >= least) ?? Math.ceil(least / 31536000) * 31536000;
    context.textBaseline = "alphabetic";
    for (let at = Math.ceil(view.t0 / step) * step; at <= view.t1; at += step) {
      const x = size.left + ((at - view.t0) / (view.t1 - view.t0)) * size.bodyWidth;
      context.fillStyle = ink.line;
      context.fillRect(Math.round(x), size.bodyHeight, 1, 5 * size.scale);
      context.fillStyle = ink.soft;
      const nearEnd = x > size.width - 30 * size.scale;
      context.textAlign = nearEnd ? "right" : "center";
      context.fillText(at === 0 ? "0" : spanText(at).replace(/(?<=[a-z])00[a-z]$/, ""), nearEnd ? size.width - 2 : x, size.height - 7 * size.scale);
    }
  }

  /** Where the recording ends, if it ends before the run does. */
  drawCut() {
    const { context, size, view, time, ink } = this;
    if (time.until === null || time.until >= view.t1) return;
    const x = size.left + Math.max(0, (time.until - view.t0) / (view.t1 - view.t0)) * size.bodyWidth;
    const wide = size.left + size.bodyWidth - x;
    context.globalAlpha = 0.85;
    context.fillStyle = ink.paper;
    context.fillRect(x, 0, wide, size.bodyHeight);
    context.globalAlpha = 1;
    context.fillStyle = ink.soft;
    context.textAlign = "center";
    if (wide > 90 * size.scale) context.fillText("left out from here", x + wide / 2, size.bodyHeight / 2);
  }

  /** The moment and the row under a point of the canvas; null outside the bars. */
  at(x, y) {
    const { size, view } = this;
    const across = (x * size.scale - size.left) / size.bodyWidth;
    const down = (y * size.scale) / size.bodyHeight;
    if (across < 0 || across > 1 || down < 0 || down >= 1) return null;
    return { time: view.t0 + across * (view.t1 - view.t0), row: Math.floor(view.r0 + down * (view.r1 - view.r0)) };
  }

  /** The bar under a point, or the nearest within two pixels; -1 for none. */
  find(point) {
    if (!this.time || !point) return -1;
    const slack = (2 * (this.view.t1 - this.view.t0)) / this.size.bodyWidth;
    const { from, to, row, gpus } = this.time;
    let best = -1;
    let nearest = slack;
    for (let i = 0; i < this.time.count && from[i] <= point.time + slack; i++) {
      if (point.row < row[i] || point.row >= row[i] + gpus[i]) continue;
      const away = Math.max(0, from[i] - point.time, point.time - to[i]);
      if (away < nearest || (away === 0 && nearest === 0)) {
        best = i;
        nearest = away;
      }
    }
    return best;
  }

  /** Zooms by a factor around a part of the view (0 to 1 in each direction). */
  zoom(factor, { across = 0.5, down = 0.5, rows = false } = {}) {
    const { view } = this;
    const [low, high, part] = rows ? ["r0", "r1", down] : ["t0", "t1", across];
    const most = rows ? this.cluster.rows : this.time?.end ?? 1;
    const least = rows ? Math.min(4, most) : Math.min(10, most);
    const before = view[high] - view[low];
    const after = Math.max(least, Math.min(most, before / factor));
    if (after === before) return false;
    view[low] += (before - after) * part;
    view[high] = view[low] + after;
    this.keepInside();
    return true;
  }

  /** Moves by parts of the view. */
  pan(across, down) {
    const { view } = this;
    const [wide, tall] = [view.t1 - view.t0, view.r1 - view.r0];
    view.t0 += across * wide;
    view.t1 += across * wide;
    view.r0 += down * tall;
    view.r1 += down * tall;
    this.keepInside();
  }

  keepInside() {
    const { view } = this;
    for (const [low, high, most] of [["t0", "t1", this.time?.end ?? 1], ["r0", "r1", this.cluster.rows]]) {
      const size = Math.min(most, view[high] - view[low]);
      view[low] = Math.max(0, Math.min(most - size, view[low]));
      view[high] = view[low] + size;
    }
    this.later();
  }

  /** Chooses a job, -1 for none, and brings it into view if asked to. */
  choose(job, bring) {
    this.chosen = job;
    if (bring && job >= 0 && this.time) this.bring(job);
    this.later();
  }

  bring(job) {
    const { time, view } = this;
    let [first, last, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
    for (let i = 0; i < time.count; i++) {
      if (time.job[i] !== job) continue;
      first = Math.min(first, time.from[i]);
      last = Math.max(last, time.to[i]);
      top = Math.min(top, time.row[i]);
      bottom = Math.max(bottom, time.row[i] + time.gpus[i]);
    }
    if (last < first) return;
    const wide = view.t1 - view.t0;
    if (first < view.t0 || last > view.t1 || last - first < wide / 100) {
      const room = Math.max(30, (last - first) * 2);
      Object.assign(view, { t0: first - room, t1: last + room });
    }
    if (top < view.r0 || bottom > view.r1) Object.assign(view, { r0: 0, r1: this.cluster.rows });
    this.keepInside();
  }
}
