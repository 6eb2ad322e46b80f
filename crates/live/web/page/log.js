// The log of a job: one launch and one process, followed to its end.

import { get } from "./api.js";
import { el, setText } from "./dom.js";

const TAIL = 65536;
const SHOWN_MAX = 400000;
const EVERY = 1000;

export class Log {
  constructor(job) {
    this.job = job;
    this.attempt = null;
    this.rank = 0;
    this.next = null;
    this.text = el("pre", { class: "log", tabindex: "0", role: "log", "aria-label": "Log" });
    this.follows = el("input", { type: "checkbox", id: "follow", checked: true });
    this.attempts = el("select", { "aria-label": "Launch", on: { change: () => this.choose() } });
    this.ranks = el("input", { type: "number", min: "0", max: "65535", value: "0", "aria-label": "Process (rank)", on: { change: () => this.choose() } });
    this.ranks.style.width = "5rem";
    this.told = el("span", { class: "soft small push" });
    this.box = el("div", { class: "card" },
      el("div", { class: "head" }, el("h2", {}, "Log"), this.attempts, el("label", { class: "small soft" }, "rank ", this.ranks),
        el("label", { class: "small" }, this.follows, " follow"), this.told),
      this.text);
    this.timer = setInterval(() => this.read(), EVERY);
  }

  /** The launches there are; the newest is shown until another is chosen. */
  launches(attempts) {
    const newest = attempts.at(-1)?.attempt ?? 0;
    if (this.newest === newest) return;
    const stays = this.attempt !== null && this.attempt !== this.newest;
    this.newest = newest;
    this.attempts.replaceChildren(...attempts.toReversed().map(one => el("option", { value: String(one.attempt) }, `launch ${one.attempt}`)));
    this.attempts.hidden = attempts.length < 2;
    if (stays) this.attempts.value = String(this.attempt);
    else this.choose();
  }

  choose() {
    this.attempt = Number(this.attempts.value || 0);
    this.rank = Math.max(0, Number(this.ranks.value) || 0);
    this.next = null;
    this.over = false;
    this.text.textContent = "";
    this.read();
  }

  async read() {
    this.text.hidden = !this.attempt;
    if (!this.attempt) setText(this.told, "not launched yet");
    if (this.reading || this.over || !this.attempt || document.hidden) return;
    this.reading = true;
    const of = `${this.attempt}/${this.rank}`;
    try {
      const from = this.next ?? -TAIL;
      const chunk = await get(`/v1/jobs/${this.job}/logs?attempt=${this.attempt}&rank=${this.rank}&from=${from}&max=${TAIL}`);
      if (of === `${this.attempt}/${this.rank}`) this.add(chunk);
    } catch (problem) {
      setText(this.told, problem.message);
    }
    this.reading = false;
  }

  add(chunk) {
    const first = this.next === null;
    this.next = chunk.next;
    this.over = chunk.over;
    if (chunk.text) {
      this.text.append(chunk.text);
      while (this.text.childNodes.length > 1 && this.text.textContent.length > SHOWN_MAX) this.text.firstChild.remove();
      if (this.follows.checked) this.text.scrollTop = this.text.scrollHeight;
    } else if (first && chunk.over) {
      this.text.textContent = "It wrote nothing.";
    }
    setText(this.told, chunk.over ? "ended" : "live");
    if (chunk.text && chunk.text.length >= TAIL / 2 && !chunk.over) queueMicrotask(() => { this.reading = false; this.read(); });
  }

  close() {
    clearInterval(this.timer);
  }
}
