// A curve over time, drawn once a change: how fast a job goes, or its loss.

import { palette } from "./colours.js";
import { el } from "./dom.js";
import { figure, tick } from "./words.js";

const [LEFT, BOTTOM, TOP] = [52, 22, 10];

export class Curve {
  /** With `fits`, the axis begins near the least value, not at 0. */
  constructor(label, fits = false) {
    this.fits = fits;
    this.canvas = el("canvas", { class: "curve", role: "img", "aria-label": label });
    this.points = [];
    this.gaps = [];
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  /** Points `[time, value]` in order; `gaps` are times at which it started anew. */
  set(points, gaps = []) {
    this.points = points;
    this.gaps = gaps;
    this.draw();
  }

  draw() {
    const { canvas, points } = this;
    const [wide, high, scale] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio || 1];
    if (!wide || points.length < 2) return;
    if (canvas.width !== Math.round(wide * scale) || canvas.height !== Math.round(high * scale)) {
      [canvas.width, canvas.height] = [Math.round(wide * scale), Math.round(high * scale)];
    }
    const colours = palette();
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, wide, high);
    const [from, to] = [points[0][0], Math.max(points.at(-1)[0], points[0][0] + 1)];
    const values = points.map(point => point[1]);
    const [low, high0] = [this.fits ? Math.min(...values) : 0, Math.max(...values)];
    const top = high0 > low ? high0 : low + (Math.abs(low) || 1) * 0.1;
    const x = time => LEFT + ((time - from) / (to - from)) * (wide - LEFT - 8);
    const y = value => high - BOTTOM - ((value - low) / (top - low) / 1.1) * (high - BOTTOM - TOP);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.fillStyle = colours.soft;
    pen.strokeStyle = colours.line;
    pen.textAlign = "right";
    for (const part of [0, 0.5, 1]) {
      const value = low + (top - low) * part;
      const at = Math.round(y(value)) + 0.5;
      pen.beginPath();
      pen.moveTo(LEFT, at);
      pen.lineTo(wide - 8, at);
      pen.stroke();
      pen.fillText(figure(value), LEFT - 6, at);
    }
    pen.textAlign = "left";
    pen.fillText(tick(from, 1), LEFT, high - 8);
    pen.textAlign = "right";
    pen.fillText(tick(to, 1), wide - 8, high - 8);
    pen.setLineDash([3, 3]);
    pen.strokeStyle = colours.warm;
    for (const gap of this.gaps.filter(time => time > from && time < to)) {
      pen.beginPath();
      pen.moveTo(x(gap), TOP);
      pen.lineTo(x(gap), high - BOTTOM);
      pen.stroke();
    }
    pen.setLineDash([]);
    pen.strokeStyle = colours.accent;
    pen.lineWidth = 2;
    pen.lineJoin = "round";
    pen.beginPath();
    points.forEach(([time, value], index) => (index ? pen.lineTo(x(time), y(value)) : pen.moveTo(x(time), y(value))));
    pen.stroke();
    pen.lineWidth = 1;
    pen.textAlign = "left";
  }
}
