// The box for a token, where none came with the address.

import { keepToken } from "./api.js";
import { el } from "./dom.js";

/** The view; `enter()` is called when there is a token. */
export function signIn(enter, why) {
  const input = el("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false", placeholder: "ty_…", required: true });
  const wrong = el("p", { class: "wrong", role: "alert" }, why ?? "");
  const form = el("form", {
    on: {
      submit: event => {
        event.preventDefault();
        const text = input.value.trim();
        if (/^ty_[0-9a-f]{64}$/.test(text)) {
          keepToken(text);
          enter();
        } else {
          wrong.textContent = "That is no token: expected ty_ and 64 digits from 0 to f.";
        }
      },
    },
  }, el("label", { class: "unseen", for: "token" }, "Token"), input, el("button", { class: "main" }, "Sign in"));
  const node = el("section", { class: "view signin card" },
    el("h1", {}, "Sign in"),
    el("p", { class: "soft" }, "The daemon knows you by a token."),
    form, wrong,
    el("p", {}, "On the machine of the daemon, this opens the page with a token that ends by itself:"),
    el("pre", {}, "trainyard web"),
    el("p", { class: "soft small" }, "An admin makes one for another user with"),
    el("pre", {}, "trainyard token create NAME --user USER --role user --expires 12h"));
  return { title: "Sign in", node, update() {}, focus: () => input.focus() };
}
