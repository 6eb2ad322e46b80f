// Keeps the yard up to date: asks the board again and again, and waits there until something changes.

import { get } from "./api.js";

const WAIT_SECONDS = 25;
const PAUSE_FIRST = 500;
const PAUSE_MOST = 15000;

export class Feed {
  /** `tell(state, problem, retryAt)` hears about the connection: `live`, `lost`, `paused`. */
  constructor(yard, tell) {
    this.yard = yard;
    this.tell = tell;
    this.cursor = null;
    this.pause = PAUSE_FIRST;
    this.running = false;
    document.addEventListener("visibilitychange", () => this.wake());
    addEventListener("online", () => this.wake());
  }

  start() {
    if (this.running) return;
    this.running = true;
    this.cursor = null;
    this.loop();
  }

  stop() {
    this.running = false;
    this.abort?.abort();
    this.rouse?.();
  }

  /** A page that is hidden asks for nothing; one that is visible again asks at once. */
  wake() {
    if (document.hidden) this.abort?.abort();
    else this.rouse?.();
  }

  /** Tries again now. */
  retry() {
    this.pause = PAUSE_FIRST;
    this.rouse?.();
  }

  async loop() {
    while (this.running) {
      if (document.hidden) {
        this.tell("paused");
        await this.sleep(3600e3);
        continue;
      }
      try {
        await this.once();
        this.pause = PAUSE_FIRST;
      } catch (error) {
        if (error.name === "AbortError" || !this.running) continue;
        if (error.status === 401) return;
        this.tell("lost", error, Date.now() + this.pause);
        await this.sleep(this.pause);
        this.pause = Math.min(PAUSE_MOST, this.pause * 2);
      }
    }
  }

  async once() {
    this.abort = new AbortController();
    const query = this.cursor === null ? "" : `?since=${this.cursor}&wait=${WAIT_SECONDS}`;
    const board = await get(`/v1/board${query}`, { signal: this.abort.signal });
    this.cursor = board.cursor;
    this.yard.apply(board);
    this.tell("live");
  }

  sleep(milliseconds) {
    return new Promise(done => {
      const timer = setTimeout(done, milliseconds);
      this.rouse = () => {
        clearTimeout(timer);
        done();
      };
    });
  }
}
