// What the checks share: the browser, the page with its troubles, and the list of what held.

import { chromium } from "playwright-core";

export const failures = [];
export const figures = [];

export function check(holds, what) {
  console.log(`${holds ? "ok  " : "FAIL"} ${what}`);
  if (!holds) failures.push(what);
}

export function bound(name, value, most) {
  const rounded = Math.round(value * 10) / 10;
  figures.push(`${name} ${rounded} ms`);
  check(value <= most, `${name}: ${rounded} ms, at most ${most} ms`);
}

export const launch = () => chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});

export const LOOKS = {
  light: { viewport: { width: 1280, height: 860 }, colorScheme: "light" },
  dark: { viewport: { width: 1280, height: 860 }, colorScheme: "dark" },
  phone: { viewport: { width: 360, height: 740 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true, colorScheme: "light", reducedMotion: "reduce" },
};

/** Opens the page; console errors and requests that leave the host are kept as troubles. */
export async function open(browser, url, options, prepare = () => {}) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  await prepare(page);
  const trouble = [];
  const { origin } = new URL(url);
  page.on("console", message => ["error", "warning"].includes(message.type()) && trouble.push(message.text()));
  page.on("pageerror", error => trouble.push(String(error)));
  page.on("request", request => !request.url().startsWith(`${origin}/`) && !request.url().startsWith("data:") && trouble.push(`asked for ${request.url()}`));
  await page.addInitScript(() => {
    window.longTasks = [];
    new PerformanceObserver(list => window.longTasks.push(...list.getEntries().map(entry => [Math.round(entry.startTime), entry.duration])))
      .observe({ type: "longtask", buffered: true });
  });
  await page.goto(url);
  return { page, trouble, close: () => context.close() };
}

export const ready = page => page.waitForFunction(() => document.documentElement.dataset.ready === "yes", null, { timeout: 30000 });
export const settle = page => page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 60)))));
export const go = async (page, route) => { await page.evaluate(to => { location.hash = `#/${to}`; }, route); await settle(page); };

/** The first paint with content, in milliseconds since the page was asked for. */
export const firstPaint = page => page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Infinity);

/** By how much the page is wider than its window. */
export const overflow = page => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

/** Types a filter and measures until the table shows the answer. */
export function filterTime(page, text) {
  return page.evaluate(value => new Promise(done => {
    const input = document.getElementById("filter");
    const start = performance.now();
    input.value = value;
    input.dispatchEvent(new Event("input", { bubbles: true }));
    requestAnimationFrame(() => setTimeout(() => done({ ms: performance.now() - start, count: document.getElementById("filter-count").textContent }), 0));
  }), text);
}

/** Waits until something holds on the page; no failure is thrown, the answer says whether it came. */
export async function until(page, test, argument, timeout = 20000) {
  try {
    await page.waitForFunction(test, argument, { timeout });
    return true;
  } catch {
    return false;
  }
}

export function finish() {
  console.log(`\n${figures.join(", ")}`);
  if (!failures.length) return;
  console.error(`\n${failures.length} checks failed:\n  ${failures.join("\n  ")}`);
  process.exit(1);
}
