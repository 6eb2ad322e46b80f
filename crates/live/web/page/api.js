// The daemon's API: the token, requests, and problems as errors.

const KEPT = "trainyard-token";

/** What the daemon said was wrong. */
export class Problem extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

let token = null;
let whenUnknown = () => {};

/** Takes a token from the fragment of the address, which is never sent, or from an earlier load of this tab. */
export function findToken() {
  const given = /^#token=(ty_[0-9a-f]+)$/.exec(location.hash);
  if (given) {
    keepToken(given[1]);
    history.replaceState(null, "", "#/cluster");
  }
  token ??= sessionStorage.getItem(KEPT);
  return token;
}

export function keepToken(text) {
  token = text;
  sessionStorage.setItem(KEPT, text);
}

export function dropToken() {
  token = null;
  sessionStorage.removeItem(KEPT);
}

/** What to do when the daemon does not know the token. */
export function onUnknown(act) {
  whenUnknown = act;
}

/** Looks something up. */
export const get = (path, options = {}) => ask("GET", path, undefined, options);

/** Sends something. */
export const send = (method, path, body) => ask(method, path, body, {});

async function ask(method, path, body, { signal } = {}) {
  const headers = { authorization: `Bearer ${token}` };
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, signal, cache: "no-store", body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "unreachable", "the daemon does not answer");
  }
  if (answer.ok) return answer.status === 204 ? null : printable(await answer.json());
  const said = await answer.json().catch(() => ({}));
  const problem = new Problem(answer.status, said.code ?? "internal", said.detail ?? `HTTP status ${answer.status}`);
  if (answer.status === 401) whenUnknown(problem);
  throw problem;
}

// Separators of lines, marks and overrides of direction, tags: they change the text around them instead of being seen.
// Control characters do nothing to a page, and logs hold many.
const UNPRINTABLE = /[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

/** The texts of users in an answer with everything written out that would disturb the text around them. */
function printable(value) {
  if (typeof value === "string") {
    return value.search(UNPRINTABLE) >= 0 ? value.replace(UNPRINTABLE, letter => `\\u{${letter.codePointAt(0).toString(16)}}`) : value;
  }
  if (value !== null && typeof value === "object") {
    for (const name of Object.keys(value)) value[name] = printable(value[name]);
  }
  return value;
}

let paths = null;

/** Whether this daemon has an address, by its own document; asked once. */
export async function has(path) {
  paths ??= fetch("/openapi.json").then(answer => answer.json()).then(document => new Set(Object.keys(document.paths)));
  try {
    return (await paths).has(path);
  } catch {
    paths = null;
    return false;
  }
}
