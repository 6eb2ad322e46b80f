// Opens three reports in Chromium and checks what a reader sees and feels.
//   node check.mjs SMALL.html LARGE.html SEEDS.html [FOLDER FOR SCREENSHOTS]

import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const BOUNDS = { usable_ms: 2000, filter_ms: 200, longest_task_ms: 500 };
const [small, large, seeds, folder = mkdtempSync(join(tmpdir(), "trainyard-report-"))] = process.argv.slice(2);
if (!seeds) {
  console.error("usage: node check.mjs SMALL.html LARGE.html SEEDS.html [FOLDER]");
  process.exit(2);
}
const failures = [];
const figures = [];

function check(holds, what) {
  console.log(`${holds ? "ok  " : "FAIL"} ${what}`);
  if (!holds) failures.push(what);
}

function bound(name, value, most) {
  const rounded = Math.round(value * 10) / 10;
  figures.push(`${name} ${rounded} ms`);
  check(value <= most, `${name}: ${rounded} ms, at most ${most} ms`);
}

/** Opens a report; console errors and anything it asks the network for count as failures. */
async function open(browser, path, options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const trouble = [];
  page.on("console", message => message.type() === "error" && trouble.push(message.text()));
  page.on("pageerror", error => trouble.push(String(error)));
  page.on("request", request => !request.url().startsWith("file:") && trouble.push(`asked for ${request.url()}`));
  await page.addInitScript(() => {
    window.longTasks = [];
    new PerformanceObserver(list => window.longTasks.push(...list.getEntries().map(entry => entry.duration)))
      .observe({ type: "longtask", buffered: true });
    const seen = new MutationObserver(() => {
      if (document.querySelector("#jobs tbody tr[data-job]") && document.querySelector("svg polyline.curve")) {
        seen.disconnect();
        requestAnimationFrame(() => setTimeout(() => { window.usableAt = performance.now(); }, 0));
      }
    });
    seen.observe(document, { childList: true, subtree: true });
  });
  await page.goto(pathToFileURL(resolve(path)).href);
  await page.waitForFunction(() => document.documentElement.dataset.ready === "yes" && window.usableAt, null, { timeout: 20000 });
  await settle(page);
  return { page, trouble, close: () => context.close() };
}

const settle = page => page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 60)))));
/** Whether the chart comes to differ from a picture of it within two seconds: a busy machine may be slow to draw. */
async function differs(page, before) {
  for (let tries = 0; tries < 20; tries++) {
    await settle(page);
    if ((await picture(page)) !== before) return true;
    await page.waitForTimeout(100);
  }
  return false;
}

const picture = page => page.evaluate(() => document.getElementById("gantt").toDataURL());

/** By how much the page is wider than its window, and what sticks out of it. */
const overflow = page => page.evaluate(() => {
  const wide = document.documentElement.clientWidth;
  const inScroller = one => one.closest(".scroll, .rows");
  const out = [...document.querySelectorAll("main *")]
    .filter(one => one.getBoundingClientRect().right > wide + 1 && !(inScroller(one) && inScroller(one) !== one));
  return { by: document.documentElement.scrollWidth - wide, who: out.slice(0, 3).map(one => `${one.tagName}.${one.className}`).join(" ") };
});

/** Types a filter and measures until the table shows the answer. */
function filterTime(page, text) {
  return page.evaluate(value => new Promise(done => {
    const input = document.getElementById("filter");
    const start = performance.now();
    input.value = value;
    input.dispatchEvent(new Event("input", { bubbles: true }));
    requestAnimationFrame(() => setTimeout(() => done({
      ms: performance.now() - start,
      count: document.getElementById("filter-count").textContent,
    }), 0));
  }), text);
}

/** Each in turn must change what the chart shows. */
async function checkChart(page, name) {
  await page.locator("#gantt").scrollIntoViewIfNeeded();
  // The wheel zooms only when the page has come to rest.
  await page.waitForTimeout(1000);
  const box = await page.locator("#gantt").boundingBox();
  const middle = [box.x + box.width / 2, box.y + box.height / 3];
  const acts = {
    "the wheel": async () => { await page.mouse.move(...middle); await page.mouse.wheel(0, -400); },
    "a drag": async () => {
      await page.mouse.move(...middle);
      await page.mouse.down();
      await page.mouse.move(middle[0] - 120, middle[1], { steps: 5 });
      await page.mouse.up();
    },
    "a button": () => page.click("#zoom-in"),
    "a key": async () => { await page.focus("#gantt"); await page.keyboard.press("ArrowRight"); },
    "show all": () => page.click("#zoom-all"),
    "colour by tenant": () => page.selectOption("#colour", "tenant"),
  };
  for (const [act, run] of Object.entries(acts)) {
    const before = await picture(page);
    await run();
    check(await differs(page, before), `${name}: ${act} changes the chart`);
  }
  await page.selectOption("#colour", "job");
}

/** Two fingers that move apart, as the browser itself sends them. */
async function checkPinch(page, name) {
  await page.evaluate(() => document.getElementById("gantt").scrollIntoView({ block: "center", behavior: "instant" }));
  await settle(page);
  const before = await picture(page);
  const box = await page.locator("#gantt").boundingBox();
  const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
  const session = await page.context().newCDPSession(page);
  const touch = (type, apart) => session.send("Input.dispatchTouchEvent", {
    type,
    touchPoints: apart === null ? [] : [{ x: x - apart, y, id: 0 }, { x: x + apart, y, id: 1 }],
  });
  await touch("touchStart", 20);
  for (const apart of [30, 45, 60, 80]) await touch("touchMove", apart);
  await touch("touchEnd", null);
  check(await differs(page, before), `${name}: a pinch changes the chart`);
  check(await page.evaluate(() => visualViewport.scale === 1), `${name}: a pinch on the chart leaves the page alone`);
}

async function checkTable(page, name) {
  const text = () => page.locator("#jobs tbody tr[data-job]").first().innerText();
  await page.click("#jobs thead th:nth-child(9) button");
  await page.click("#jobs thead th:nth-child(9) button");
  const slowest = await text();
  await page.evaluate(() => { document.getElementById("rows").scrollTop = 1e9; });
  await settle(page);
  check((await text()) !== slowest, `${name}: the table scrolls to its end`);
  const before = await picture(page);
  await page.locator("#jobs tbody tr[data-job]").nth(3).click();
  check(await differs(page, before), `${name}: a click on a job shows it in the chart`);
  check((await page.locator("#chosen").innerText()).includes("JCT"), `${name}: the chosen job is described`);
  await page.focus("#rows");
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await settle(page);
  check((await page.locator("tr.chosen").count()) === 1, `${name}: a job is chosen by keys`);
}

async function checkLarge(browser) {
  const { page, trouble, close } = await open(browser, large, { viewport: { width: 1280, height: 900 } });
  bound("first rows and distributions", await page.evaluate(() => window.usableAt), BOUNDS.usable_ms);
  let slowest = 0;
  for (const text of ["gpus>=8", "gpus>=8 tenant:1", "99", "wait>1h -model:bert", "nothing-is-called-so", ""]) {
    // The better of two: the bound is on the page, not on what else the machine does.
    const first = await filterTime(page, text);
    const { ms, count } = await filterTime(page, text).then(second => (second.ms < first.ms ? second : first));
    slowest = Math.max(slowest, ms);
    console.log(`     filter “${text}”: ${count}, ${ms.toFixed(1)} ms`);
  }
  bound("slowest filter", slowest, BOUNDS.filter_ms);
  const wrong = await filterTime(page, "gpus>many");
  check(wrong.count.includes("no number"), "large: a wrong filter says what is wrong");
  await filterTime(page, "");
  await checkChart(page, "large");
  await checkTable(page, "large");
  const runs = await page.locator("#policy option").count();
  for (let run = runs - 1; run >= 0; run--) {
    await page.selectOption("#policy", String(run));
    await settle(page);
  }
  for (const column of [1, 2, 4, 8, 12]) await page.click(`#jobs thead th:nth-child(${column}) button`);
  await page.locator("#h-gantt").scrollIntoViewIfNeeded();
  await page.screenshot({ path: join(folder, "large-light.png") });
  const longest = await page.evaluate(() => Math.max(0, ...window.longTasks));
  bound("longest task", longest, BOUNDS.longest_task_ms);
  check(trouble.length === 0, `large: nothing on the console ${trouble.join("; ")}`);
  await close();
}

const LOOKS = {
  light: { viewport: { width: 1280, height: 900 }, colorScheme: "light" },
  dark: { viewport: { width: 1280, height: 900 }, colorScheme: "dark" },
  phone: { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true, colorScheme: "light" },
  "phone-dark": { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true, colorScheme: "dark", reducedMotion: "reduce" },
};

/** A page made with several seeds and a breakdown. */
async function checkSeeds(browser) {
  for (const [name, options] of Object.entries(LOOKS)) {
    const { page, trouble, close } = await open(browser, seeds, options);
    const wide = await overflow(page);
    check(wide.by <= 0, `seeds ${name}: no sideways scrolling ${wide.by > 0 ? `(${wide.by} px, ${wide.who})` : ""}`);
    await page.screenshot({ path: join(folder, `seeds-${name}.png`), fullPage: true });
    if (name === "light") await checkIntervals(page);
    check(trouble.length === 0, `seeds ${name}: nothing on the console ${trouble.join("; ")}`);
    await close();
  }
}

async function checkIntervals(page) {
  const texts = selector => page.locator(selector).allInnerTexts();
  const policies = await texts("#seeds tbody th");
  const cells = await texts("#seeds tbody td:nth-child(3)");
  check(policies.length === 3 && cells.every(text => text.includes("±")), `seeds: ${policies.length} policies, each mean with its interval`);
  check((await page.locator("#seeds td.best").count()) > 0, "seeds: the best means are marked");
  check((await page.locator("#seeds-section svg .whisker").count()) === policies.length, "seeds: every interval is drawn");
  const groups = await texts("#alike dd:first-of-type .group");
  const named = new Set(groups.flatMap(text => text.split(" ~ ").map(one => one.trim())));
  check(policies.every(one => named.has(one)), `seeds: every policy is in a group of the alike: ${groups.join(" | ")}`);
  const first = () => page.locator("#seeds tbody th").first().innerText();
  await page.click("#seeds thead th:nth-child(3) button");
  const ascending = await first();
  await page.click("#seeds thead th:nth-child(3) button");
  check((await first()) !== ascending, "seeds: the table of means sorts");
  const parts = new Set(await texts("#by tbody th"));
  check(parts.size > 1 && (await page.locator("#by tbody tr").count()) === parts.size * policies.length, `by: ${[...parts].join(", ")}, every policy in each`);
  check((await texts("#by tbody td:nth-child(3)")).every(text => text.includes("±")), "by: means with intervals");
  check((await page.locator("#by-section svg .dot").count()) > parts.size, "by: slowdowns are drawn");
  await page.click(".legend button >> nth=0");
  check(await page.locator("#by tbody tr[data-run='0']").first().isHidden(), "by: a hidden policy is hidden in the breakdown");
}

/** What the page says before any table, and the pictures of all policies together. */
async function checkVerdict(page) {
  const said = await page.locator(".verdict").innerText();
  check(/completes jobs soonest/.test(said) && /one seed/.test(said), `a verdict with its doubt: ${said}`);
  const cells = await page.locator("#h-summary ~ .scroll tbody td:nth-child(4)").allInnerTexts();
  check(cells.includes("baseline") && cells.some(text => /^-\d+(\.\d)? %$/.test(text)), `every policy against the baseline: ${cells.join(" ")}`);
  check((await page.locator("#h-trade ~ .charts svg").count()) === 2, "fairness and preemptions over completion time");
  const shown = key => page.locator(`[data-series=${key}]`).isVisible();
  check((await shown("used")) && !(await shown("waiting")), "one series over time is shown");
  await page.selectOption("#series", "waiting");
  check(!(await shown("used")) && (await shown("waiting")), "another series is chosen from the list");
  await page.selectOption("#series", "used");
}

async function checkSmall(browser) {
  const papers = {};
  for (const [name, options] of Object.entries(LOOKS)) {
    const { page, trouble, close } = await open(browser, small, options);
    const wide = await overflow(page);
    check(wide.by <= 0, `${name}: no sideways scrolling ${wide.by > 0 ? `(${wide.by} px, ${wide.who})` : ""}`);
    papers[name] = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    if (name === "light") {
      await checkVerdict(page);
      await checkChart(page, name);
      await checkTable(page, name);
      await page.click("#zoom-all");
    }
    if (name === "phone") {
      check((await page.locator("#h-summary ~ .scroll[data-more~=right]").count()) === 1, "phone: the summary shows that it goes on to the right");
      await checkPinch(page, name);
      await page.click("#zoom-all");
      await page.locator("#gantt").scrollIntoViewIfNeeded();
      await page.locator("#gantt").tap({ position: { x: 150, y: 60 } });
    }
    await page.evaluate(() => scrollTo(0, 0));
    await page.screenshot({ path: join(folder, `top-${name}.png`) });
    await page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });
    const unnamed = await page.evaluate(() => [...document.querySelectorAll("button, select, input, canvas, svg[role=img]")]
      .filter(one => !(one.textContent.trim() || one.ariaLabel || one.labels?.length || one.getAttribute("aria-labelledby"))).length);
    check(unnamed === 0, `${name}: every control has a name`);
    const leaked = await page.evaluate(() => ["JobTable", "Gantt", "unpack", "start"].filter(one => one in window));
    check(leaked.length === 0, `${name}: no globals`);
    check(trouble.length === 0, `${name}: nothing on the console ${trouble.join("; ")}`);
    await close();
  }
  check(papers.light !== papers.dark, "dark and light differ");
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});
try {
  await checkLarge(browser);
  await checkSmall(browser);
  await checkSeeds(browser);
} finally {
  await browser.close();
}
console.log(`\n${figures.join(", ")}\nscreenshots: ${folder}`);
if (failures.length) {
  console.error(`\n${failures.length} checks failed:\n  ${failures.join("\n  ")}`);
  process.exit(1);
}
