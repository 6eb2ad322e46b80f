// Numbers, times and states for people.

/** `45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`. */
export function span(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 100) return `${whole} s`;
  const minutes = Math.round(whole / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  const days = Math.floor(hours / 24);
  return hours % 24 ? `${days} d ${hours % 24} h` : `${days} d`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const SHORT = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

/** A moment: the time, with the day where it is another one. */
export function moment(unix) {
  if (!unix) return "–";
  const date = new Date(unix * 1000);
  const today = new Date().toDateString() === date.toDateString();
  return today ? CLOCK.format(date) : `${DAY.format(date)} ${SHORT.format(date)}`;
}

/** A moment on an axis, with as much as the step needs. */
export function tick(unix, step) {
  const date = new Date(unix * 1000);
  if (step < 60) return CLOCK.format(date);
  return step < 86400 ? SHORT.format(date) : DAY.format(date);
}

/** `1,234`. */
export const count = value => Number(value ?? 0).toLocaleString("en");

/** `12 %`; small shares with a digit more. */
export function percent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return "–";
  const value = share * 100;
  return `${value > 0 && value < 9.95 ? value.toFixed(1) : value.toFixed(0)}\u00a0%`;
}

/** A number with three digits that count. */
export function figure(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** When something is expected: `in 5 min (3 to 12 min)`. */
export function expected(when, now) {
  if (!when) return "–";
  const [low, likely, high] = [when.low - now, when.likely - now, when.high - now];
  if (high <= 0 || when.low === when.high) return moment(when.likely);
  if (high - low < 5) return `in ${span(likely)}`;
  return `in ${span(likely)} (${span(low)} – ${span(high)})`;
}

/** The same in a narrow column. */
export function expectedShort(when, now) {
  if (!when) return "";
  const [low, high] = [when.low - now, when.high - now];
  if (high <= 0) return "now";
  return high - low < 5 ? span(when.likely - now) : `${span(low)} – ${span(high)}`;
}

const TONES = {
  running: "good", starting: "busy", saving: "busy", suspended: "warm", waiting: "warm", unadmitted: "warm", blocked: "", finished: "",
  cancelled: "", failed: "bad", "time-limit": "bad", orphaned: "bad", rejected: "bad", pruned: "bad",
};
const NAMES = { "time-limit": "time limit", unadmitted: "not admitted", blocked: "blocked" };

/** What a state is called, and its tone. */
export const stateName = state => NAMES[state] ?? state;
export const stateTone = state => TONES[state] ?? "";

/** Whether a job has ended. */
export const isOver = state => !["blocked", "unadmitted", "waiting", "suspended", "starting", "running", "saving"].includes(state);

/** Whether a job holds GPUs. */
export const isPlaced = state => ["starting", "running", "saving"].includes(state);
