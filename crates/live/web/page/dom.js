// Elements without markup in strings: nothing that a user typed is ever read as HTML.

/** An element: `el("a", { class: "x", href: "#/", on: { click } }, "text", child)`. */
export function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    else if (name === "data") Object.assign(made.dataset, value);
    else if (name === "class") made.className = value;
    else if (name in made && typeof value !== "string") made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
  return made;
}

/** Writes a text where it differs. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A row of buttons of which one is pressed. */
export function choice(label, options, chosen, choose) {
  const buttons = options.map(([value, title]) => el("button", {
    type: "button",
    "aria-pressed": String(value === chosen),
    on: { click: () => { press(value); choose(value); } },
  }, title));
  const press = value => buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(options[index][0] === value)));
  const box = el("div", { class: "choice", role: "group", "aria-label": label }, buttons);
  return { box, press };
}

/** A tile with a figure and what it is. */
export function tile(name) {
  const figure = el("b", {}, "–");
  const label = el("span", {}, name);
  return { box: el("li", {}, label, figure), set: (value, about) => { setText(figure, value); if (about) setText(label, about); } };
}

/**
 * Fills an element anew only where `key` differs from the last time, so that a button under the pointer or a link
 * with the focus is not taken away while nothing changed.
 */
export function renew(element, key, make) {
  const text = JSON.stringify(key);
  if (element.renewedBy === text) return;
  element.renewedBy = text;
  element.replaceChildren(...[make()].flat().filter(child => child !== null && child !== ""));
}

/** Says something to users of a screen reader. */
export function announce(text) {
  document.getElementById("say").textContent = text;
}

/** A short note at the edge; what went wrong stays longer. */
export function note(text, kind = "") {
  const made = el("div", { class: "note", data: { kind }, role: kind === "bad" ? "alert" : "status" }, text);
  document.getElementById("notes").append(made);
  setTimeout(() => made.remove(), kind === "bad" ? 9000 : 4000);
}

/** Does something at most once a frame. */
export function once(draw) {
  let frame = null;
  return () => {
    frame ??= requestAnimationFrame(() => {
      frame = null;
      draw();
    });
  };
}
