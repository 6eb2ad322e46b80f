// Colours: of the theme, for canvases; of jobs and tenants, evenly bright in every hue.

const cache = new Map();
let theme = null;

/** The colours of the theme that canvases need. */
export function palette() {
  if (theme) return theme;
  const style = getComputedStyle(document.documentElement);
  const read = name => style.getPropertyValue(`--${name}`).trim();
  const names = ["paper", "card", "ink", "soft", "line", "faint", "accent", "free", "free-line", "hatch", "bad", "bad-wash", "warm", "warm-wash"];
  theme = Object.fromEntries(names.map(name => [name, read(name)]));
  theme.dark = style.colorScheme === "dark";
  return theme;
}

/** Forgets the colours: another theme is on. */
export function repaint() {
  theme = null;
  cache.clear();
}

/** The colour of a job. Neighbours in number are far apart in hue. */
export const jobColour = id => coloured(`j${id}`, id * 137.508, id % 3);

/** The colour of a tenant, by its name. */
export function tenantColour(name) {
  let hash = 7;
  for (const letter of String(name)) hash = (hash * 31 + letter.codePointAt(0)) % 100003;
  return coloured(`t${name}`, hash * 137.508, hash % 2);
}

function coloured(key, hue, tint) {
  let found = cache.get(key);
  if (!found) {
    if (cache.size > 40000) cache.clear();
    const light = (palette().dark ? 0.66 : 0.62) + tint * 0.06;
    found = oklch(light, 0.125, (hue * Math.PI) / 180);
    cache.set(key, found);
  }
  return found;
}

/** Text that can be read on a colour. */
export function inkOn(colour) {
  const [r, g, b] = [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#10151a" : "#ffffff";
}

/** OKLCH as a colour of the screen; Ottosson's matrices of OKLab. */
function oklch(light, chroma, hue) {
  const [a, b] = [chroma * Math.cos(hue), chroma * Math.sin(hue)];
  const l = (light + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (light - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (light - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  const shown = linear.map(value => {
    const bound = Math.max(0, Math.min(1, value));
    const curved = bound <= 0.0031308 ? 12.92 * bound : 1.055 * bound ** (1 / 2.4) - 0.055;
    return Math.round(curved * 255).toString(16).padStart(2, "0");
  });
  return `#${shown.join("")}`;
}
