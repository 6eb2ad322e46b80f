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

/** Takes a token from the address, where it was never sent to anybody, or from an earlier load of this tab. */
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
  if (answer.ok) return answer.status === 204 ? null : answer.json();
  const said = await answer.json().catch(() => ({}));
  const problem = new Problem(answer.status, said.code ?? "internal", said.detail ?? `HTTP status ${answer.status}`);
  if (answer.status === 401) whenUnknown(problem);
  throw problem;
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
