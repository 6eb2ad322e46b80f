// All that is known of the cluster: what the feed brought, by name and number.

import { get, has } from "./api.js";

const RANKS = ["viewer", "user", "operator", "admin"];
const ETA_EVERY = 8;

export class Yard {
  constructor() {
    this.clear();
    this.listeners = new Set();
  }

  clear() {
    this.jobs = new Map();
    this.nodes = new Map();
    this.racks = [];
    this.tenants = [];
    this.shares = new Map();
    this.status = null;
    this.lastEvent = 0;
    this.leftOut = 0;
    this.skew = 0;
    this.etas = new Map();
    this.etasDue = 0;
    this.noEtas = false;
    this.jobsVersion = 0;
  }

  /** Now, by the daemon's clock, in seconds of Unix time. */
  now() {
    return Date.now() / 1000 + this.skew;
  }

  /** Takes an answer of the board in and tells who listens. */
  apply(board) {
    if (board.whole) {
      this.jobs.clear();
      this.nodes.clear();
      this.racks = [];
      this.shares.clear();
    }
    this.skew = board.at - Date.now() / 1000;
    this.status = board.status;
    this.lastEvent = board.last_event;
    this.leftOut = board.jobs_left_out;
    for (const node of board.nodes) this.nodes.set(node.name, node);
    for (const job of board.jobs) this.jobs.set(job.id, Object.assign(job, { seen: board.at }));
    for (const id of board.dropped) this.jobs.delete(id);
    if (board.racks.length) this.racks = board.racks;
    if (board.tenants.length || board.whole) this.tenants = board.tenants;
    if (board.shares) this.shares = new Map(board.shares.map(share => [share.job, share.permille]));
    if (board.whole || board.jobs.length || board.dropped.length) this.jobsVersion++;
    this.tell();
  }

  tell() {
    for (const listener of this.listeners) listener();
  }

  /** Seconds a job has held GPUs by now. */
  ran(job) {
    const goes = job.state === "running" || job.state === "saving" || job.state === "starting";
    return job.ran_seconds + (goes ? Math.max(0, this.now() - job.seen) : 0);
  }

  /** Seconds a job waits, or waited for its first start. */
  waited(job) {
    return (job.started ?? job.ended ?? this.now()) - job.submitted;
  }

  /** Whether the user of the page has a role, or a higher one. */
  is(role) {
    return RANKS.indexOf(this.status?.role ?? "viewer") >= RANKS.indexOf(role);
  }

  /** Whether the user of the page may change a job and read its logs. */
  rules(job) {
    return this.is("operator") || (this.is("user") && job.user === this.status?.user);
  }

  /** Brings what is expected of all jobs up to date, where the daemon can tell. */
  async refreshEtas() {
    if (this.now() < this.etasDue || this.noEtas) return;
    this.etasDue = this.now() + ETA_EVERY;
    if (!(await has("/v1/eta"))) return;
    const began = performance.now();
    try {
      const { jobs } = await get("/v1/eta?limit=10000");
      this.etas = new Map(jobs.map(row => [row.job, row]));
      this.tell();
    } catch (problem) {
      // A daemon that cannot look ahead is not asked again; one that is gone is told of by the banner.
      this.noEtas = problem.status >= 400 && problem.status < 500 && problem.status !== 429;
    }
    // What takes long is asked for less often.
    this.etasDue = this.now() + Math.max(ETA_EVERY, ((performance.now() - began) / 1000) * 20);
  }
}
