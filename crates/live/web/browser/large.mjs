// Opens the page of a daemon with 1,000 nodes of 8 GPUs and 10,000 jobs and measures how long it keeps the browser busy.
//   node large.mjs LARGE_YARD [FOLDER FOR SCREENSHOTS]

import { spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { LOOKS, bound, check, filterTime, finish, firstPaint, go, launch, open, overflow, ready, settle, until } from "./page.mjs";

const BOUNDS = { first_paint_ms: 1000, filter_ms: 200, longest_task_ms: 500 };
const [yard, folder = mkdtempSync(join(tmpdir(), "trainyard-web-"))] = process.argv.slice(2);
if (!yard) {
  console.error("usage: node large.mjs LARGE_YARD [FOLDER]");
  process.exit(2);
}

async function checkFilter(page) {
  await go(page, "queue");
  await page.click(".choice >> text=All");
  let slowest = 0;
  for (const text of ["bert", "gpus>=8 team-03", "waited>1s -unet", "state:running priority>=2", "nothing-is-called-so", ""]) {
    // The better of two: the bound is on the page, not on what else the machine does.
    const first = await filterTime(page, text);
    const { ms, count } = await filterTime(page, text).then(second => (second.ms < first.ms ? second : first));
    slowest = Math.max(slowest, ms);
    console.log(`     filter “${text}”: ${count}, ${ms.toFixed(1)} ms`);
  }
  bound("slowest filter of 10,000 jobs", slowest, BOUNDS.filter_ms);
  await page.screenshot({ path: join(folder, "large-queue-light.png") });
  for (const column of ["name", "waited", "gpus", "why"]) await page.click(`.grid-head [data-key=${column}] button`);
  await page.evaluate(() => { document.querySelector(".grid-body").scrollTop = 1e9; });
  await settle(page);
  check((await page.locator(".grid-row").count()) < 80, "only rows that are seen exist");
}

async function checkMap(page) {
  await go(page, "cluster");
  check(await until(page, () => document.querySelector(".tiles b").textContent.includes("8,000")), "8,000 GPUs are there");
  const box = await page.locator(".map canvas").boundingBox();
  for (let step = 0; step < 40; step++) await page.mouse.move(box.x + 30 + step * 20, box.y + 60 + step * 5);
  await page.evaluate(() => { document.querySelector(".map").scrollTop = 1e9; });
  await settle(page);
  await page.evaluate(() => { document.querySelector(".map").scrollTop = 0; });
  await page.mouse.move(5, 5);
  await page.waitForTimeout(1500);
  await page.screenshot({ path: join(folder, "large-cluster-light.png") });
  await page.click("text=By tenant");
  await settle(page);
}

async function checkTimeline(page) {
  await go(page, "timeline");
  check(await until(page, () => /\d launch/.test(document.querySelector("main").textContent)), "the timeline of 8,000 GPUs is drawn");
  await page.waitForTimeout(1500);
  await page.focus(".gantt canvas");
  for (const key of ["+", "+", "ArrowLeft", "-", "ArrowRight"]) await page.keyboard.press(key);
  await page.evaluate(() => { document.querySelector(".gantt").scrollTop = 5000; });
  await settle(page);
  await page.screenshot({ path: join(folder, "large-timeline-light.png") });
}

/** This daemon has no forecaster: what is expected of all jobs is made up here, as large as it would be. */
async function foretell(page) {
  await page.route("**/v1/eta*", route => {
    const now = Date.now() / 1000;
    const around = (at, by) => ({ low: now + at - by, likely: now + at, high: now + at + by });
    const jobs = Array.from({ length: 10000 }, (_, index) => ({
      job: index + 1, state: "waiting", confidence: 0.8, starts: around(600 + index, 300), ends: around(4000 + index, 900),
      basis: "`priority` from now on, with 2,000 estimates of the past beside what came of them",
    }));
    return route.fulfill({ json: { schema_version: 1, jobs } });
  });
}

const server = spawn(yard, [], { stdio: ["pipe", "pipe", "inherit"] });
const browser = await launch();
try {
  const [url] = await new Promise((done, failed) => {
    createInterface({ input: server.stdout }).once("line", line => done([line]));
    server.once("exit", code => failed(new Error(`the large yard ended with ${code}`)));
  });
  const { page, trouble, close } = await open(browser, url, LOOKS.light, foretell);
  await ready(page);
  bound("first paint of the large yard", await firstPaint(page), BOUNDS.first_paint_ms);
  // The first placements come in the first seconds: the page follows them.
  await until(page, () => !document.querySelector(".tiles b").textContent.startsWith("0 "), null, 60000);
  await page.waitForTimeout(4000);
  await checkMap(page);
  await checkFilter(page);
  await checkTimeline(page);
  for (const view of ["tenants", "events", "policy", "cluster", "queue"]) {
    await go(page, view);
    await page.waitForTimeout(1200);
  }
  const tasks = await page.evaluate(() => window.longTasks);
  console.log(`     long tasks: ${tasks.map(([at, ms]) => `${ms.toFixed(0)} ms at ${at}`).join(", ") || "none"}`);
  bound("longest task", Math.max(0, ...tasks.map(([, ms]) => ms)), BOUNDS.longest_task_ms);
  check(trouble.length === 0, `large: nothing on the console, nothing from elsewhere ${trouble.join("; ")}`);
  await close();
  const phone = await open(browser, url, LOOKS.phone, foretell);
  await ready(phone.page);
  await phone.page.waitForTimeout(1500);
  check((await overflow(phone.page)) <= 0, "large phone: no sideways scrolling");
  await phone.page.screenshot({ path: join(folder, "large-cluster-phone.png") });
  await phone.close();
} finally {
  await browser.close();
  server.stdin.end();
}
finish();
