// Opens the page of a real daemon with real jobs and checks what a user sees and does.
//   PROGRAM=trainyard TRAINYARD_SERVER=unix:... node check.mjs [FOLDER FOR SCREENSHOTS]

import { execFileSync } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { LOOKS, bound, check, filterTime, finish, firstPaint, go, launch, open, overflow, ready, settle, until } from "./page.mjs";

const BOUNDS = { first_paint_ms: 1000, update_ms: 1000, filter_ms: 200 };
const [folder = mkdtempSync(join(tmpdir(), "trainyard-web-"))] = process.argv.slice(2);
const program = process.env.PROGRAM ?? "trainyard";
const VIEWS = ["cluster", "queue", "timeline", "tenants", "policy", "events"];

const yard = (...words) => execFileSync(program, words, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
const run = (name, gpus, script, ...more) => Number(/\d+/.exec(yard("run", "--detach", "--name", name, "--gpus", String(gpus), ...more, "--", "sh", "-c", script))[0]);
const submit = text => execFileSync(program, ["submit", "-"], { input: text, stdio: ["pipe", "ignore", "ignore"] });
const STEPS = `python3 - <<'PY' || exec sleep 600
import json, os, socket, time
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["TRAINYARD_SOCKET"])
for i in range(1, 600):
    s.sendall((json.dumps({"type": "progress", "done": i * 10, "total": 6000, "rate": 9 + i % 3, "loss": 2 / i}) + "\\n").encode())
    print("step", i * 10, flush=True); time.sleep(1)
PY`;

function submitJobs() {
  run("train-bert", 2, STEPS, "--tenant", "vision");
  run("train-vit", 2, "for i in $(seq 600); do echo epoch $i; sleep 1; done", "--tenant", "speech");
  run("finetune", 1, "sleep 600", "--tenant", "speech");
  const waits = run("needs-eight", 4, "sleep 5", "--type", "a100", "--tenant", "vision");
  run("hello", 1, "echo hello from a short job");
  run("broken", 1, "echo this goes wrong; exit 3", "--retries", "0");
  return waits;
}

/** An update: a job is submitted elsewhere and must be seen here. */
async function checkUpdate(page) {
  await go(page, "queue");
  let best = Infinity;
  for (let tries = 0; tries < 3 && best > BOUNDS.update_ms; tries++) {
    // Only the page's part is measured: the row's own time of submission, by the daemon's clock, to its row on the screen.
    const name = `fresh-${tries}`;
    await page.evaluate(wanted => {
      window.seenAt = null;
      const look = () => {
        if ([...document.querySelectorAll(".grid-row .name")].some(cell => cell.textContent.includes(wanted))) window.seenAt = Date.now();
        else requestAnimationFrame(look);
      };
      look();
    }, name);
    const id = run(name, 4, "sleep 300", "--type", "v100");
    if (!(await until(page, () => window.seenAt !== null))) break;
    const submitted = JSON.parse(yard("job", "show", String(id), "--json")).submitted * 1000;
    best = Math.min(best, (await page.evaluate(() => window.seenAt)) - submitted);
  }
  bound("update after a submission", best, BOUNDS.update_ms);
}

async function checkQueue(page, waits) {
  await go(page, "queue");
  let slowest = 0;
  for (const text of ["bert", "gpus>=2", "state:waiting", ""]) {
    const first = await filterTime(page, text);
    const second = await filterTime(page, text);
    slowest = Math.max(slowest, Math.min(first.ms, second.ms));
    if (text === "bert") check(second.count.startsWith("1 of"), `filter “bert”: ${second.count}`);
  }
  bound("filter", slowest, BOUNDS.filter_ms);
  check((await filterTime(page, "gpus>many")).count.includes("no number"), "a wrong filter says what is wrong");
  await filterTime(page, "");
  const why = await page.evaluate(id => [...document.querySelectorAll(".grid-row")].find(row => row.children[0].textContent === String(id))?.querySelector(".why").textContent, waits);
  check(/needs 4 GPUs|comes first/.test(why ?? ""), `a waiting job says why: ${why}`);
  await page.keyboard.press("Escape");
  await page.click('.choice >> text="Ended"');
  check(await until(page, () => document.body.textContent.includes("finished") && document.body.textContent.includes("broken")), "ended jobs are listed");
  await page.click(".choice >> text=Open");
}

async function checkJob(page, waits) {
  await go(page, "job/1");
  check(await until(page, () => document.querySelector(".log")?.textContent.includes("step 10")), "the log of a job is shown");
  check(await until(page, () => !document.querySelector("canvas.curve").hidden && document.querySelector("canvas.curve").width > 0, null, 30000), "the throughput of a job is drawn");
  check((await page.locator(".job tbody tr").count()) === 1, "its launches are listed");
  await settle(page);
  check(await until(page, () => document.querySelector("#loss canvas")?.clientHeight > 0), "its loss is drawn");
  await page.screenshot({ path: join(folder, "job-light.png"), fullPage: true });
  await go(page, `job/${waits}`);
  check(await until(page, () => document.body.textContent.includes("Why it waits") && document.body.textContent.includes("What would change that")), "a waiting job explains itself");
  await page.screenshot({ path: join(folder, "why-light.png"), fullPage: true });
}

async function checkCancel(page) {
  const id = run("to-cancel", 1, "sleep 600");
  await go(page, `job/${id}`);
  await page.click("button:has-text('Cancel')");
  await page.waitForSelector("dialog[open]");
  await page.screenshot({ path: join(folder, "ask-light.png") });
  await page.click("dialog button:has-text('No')");
  check(!yard("job", "show", String(id)).includes("cancelled"), "a No leaves the job alone");
  await page.click("button:has-text('Cancel')");
  await page.fill("dialog input", "wrong data");
  await page.click("dialog button[type=submit]");
  check(await until(page, () => document.querySelector(".head .badge").textContent === "cancelled"), "a job is cancelled by its button");
  check((await page.locator(".actions button").count()) === 0, "an ended job has no buttons");
}

async function checkPolicy(page) {
  await go(page, "policy");
  const can = await page.evaluate(() => fetch("/openapi.json").then(answer => answer.json()).then(document => "/v1/whatif" in document.paths));
  if (!can) return check(await page.isVisible("text=cannot look ahead"), "without what-if the page says so");
  // Jobs of different lengths that wait, so that the order matters.
  for (const expected of ["40m", "3m", "20m", "1m"]) submit(`name = "waits-${expected}"\ncommand = ["sleep", "5"]\ngpus = 4\nexpected = "${expected}"\n`);
  await page.click("#compare");
  check(await until(page, () => document.querySelectorAll("#whatif tbody tr").length >= 4), "what-if compares policies");
  check((await page.locator("#whatif td.best").count()) > 0, "the best figures are marked");
  await page.screenshot({ path: join(folder, "whatif-light.png") });
  check(await until(page, () => document.querySelectorAll("#next option").length > 20), "all policies are in the list");
  await page.selectOption("#next", "tiresias");
  check((await page.locator("#about").innerText()).includes("Settings:"), "a chosen policy says what it is");
}

async function checkNode(page) {
  await go(page, "cluster");
  await page.focus(".map canvas");
  await page.keyboard.press("ArrowRight");
  check(await until(page, () => document.querySelector(".panel h2")?.textContent.includes("a100")), "the map is walked by keys");
  check(await page.isVisible(".panel li a"), "the job on a GPU is named");
  await page.keyboard.press("Enter");
  check(await until(page, () => location.hash.startsWith("#/job/")), "Enter opens the job");
  await go(page, "cluster");
  await page.click(".map canvas", { position: { x: 40, y: 80 } });
  await page.click(".panel button:has-text('Drain')");
  await page.click("dialog button[type=submit]");
  check(await until(page, () => document.querySelector(".panel h2")?.textContent.includes("drained")), "a node is drained");
  await page.click(".panel button:has-text('Resume')");
  await page.click("dialog button[type=submit]");
  check(await until(page, () => document.querySelector(".panel h2")?.textContent.includes("in service")), "and put back");
}

async function checkKeys(page) {
  await go(page, "cluster");
  await page.evaluate(() => document.activeElement.blur());
  for (const [key, view] of [["q", "queue"], ["t", "timeline"], ["n", "tenants"], ["p", "policy"], ["e", "events"], ["c", "cluster"]]) {
    await page.keyboard.press("g");
    await page.keyboard.press(key);
    check((await page.evaluate(() => location.hash)) === `#/${view}`, `g ${key} goes to ${view}`);
    await settle(page);
  }
  await page.keyboard.press("?");
  check(await page.isVisible("dialog >> text=Keys"), "? shows the keys");
  await page.keyboard.press("Escape");
  await page.keyboard.press("g");
  await page.keyboard.press("q");
  await settle(page);
  await page.keyboard.press("/");
  check((await page.evaluate(() => document.activeElement.id)) === "filter", "/ goes to the filter");
  await page.keyboard.press("Escape");
  await page.focus(".grid-body");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  check(await until(page, () => location.hash.startsWith("#/job/")), "a job is opened by keys");
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("Escape");
  check(await until(page, () => location.hash === "#/queue"), "Escape goes back");
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const before = await paper();
  await page.keyboard.press("d");
  await page.keyboard.press("d");
  check((await paper()) !== before, "d changes the theme");
  await page.keyboard.press("d");
}

/** The token is gone from the address at once; what controls there are has names. */
async function checkManners(page, name) {
  check(!page.url().includes("token"), `${name}: the token is out of the address`);
  for (const view of VIEWS) {
    await go(page, view);
    await page.waitForTimeout(700);
    const wide = await overflow(page);
    check(wide <= 0, `${name} ${view}: no sideways scrolling${wide > 0 ? ` (${wide} px)` : ""}`);
    const unnamed = await page.evaluate(() => [...document.querySelectorAll("button, select, input, canvas, a")]
      .filter(one => one.checkVisibility() && !(one.textContent.trim() || one.ariaLabel || one.labels?.length || one.getAttribute("aria-label"))).map(one => one.outerHTML.slice(0, 80)));
    check(unnamed.length === 0, `${name} ${view}: every control has a name ${unnamed.join(" ")}`);
    await page.screenshot({ path: join(folder, `${view}-${name}.png`) });
  }
}

async function checkViewer(browser) {
  const { page, trouble, close } = await open(browser, yard("web", "--role", "viewer"), LOOKS.light);
  await ready(page);
  for (const view of ["cluster", "job/1", "policy"]) {
    await go(page, view);
    await page.waitForTimeout(500);
    if (view === "cluster") await page.click(".map canvas", { position: { x: 40, y: 80 } });
    const acts = await page.evaluate(() => [...document.querySelectorAll("main button")].map(one => one.textContent).filter(text => /Cancel|Hold|Requeue|Release|Drain|Resume|Change|Use it/.test(text)));
    check(acts.length === 0, `a viewer sees no buttons that act on ${view} ${acts.join(" ")}`);
  }
  check(trouble.length === 0, `viewer: nothing on the console ${trouble.join("; ")}`);
  await close();
}

async function checkSignIn(browser, url) {
  const { page, trouble, close } = await open(browser, url.split("#")[0], LOOKS.light);
  check(await page.isVisible("text=Sign in"), "without a token there is a box for one");
  await page.screenshot({ path: join(folder, "signin-light.png") });
  await page.fill("#token", "nonsense");
  await page.click("main button:has-text('Sign in')");
  check(await page.isVisible("text=That is no token"), "what is no token is not sent");
  check(trouble.length === 0, `sign-in: nothing on the console ${trouble.join("; ")}`);
  await page.fill("#token", url.split("token=")[1]);
  await page.click("main button:has-text('Sign in')");
  await ready(page);
  check(await page.isVisible("text=GPUs in use"), "a token signs in");
  await page.click("text=Sign out");
  check(await page.isVisible("#token"), "and out");
  await close();
}

/** A daemon that cannot be reached is told of, and found again. */
async function checkLost(browser, url) {
  const { page, close } = await open(browser, url, LOOKS.dark);
  await ready(page);
  await page.context().setOffline(true);
  run("unseen", 1, "true");
  check(await until(page, () => document.getElementById("banner").textContent.includes("Connection lost"), null, 40000), "a lost connection is told of");
  await page.screenshot({ path: join(folder, "lost-dark.png") });
  await page.context().setOffline(false);
  check(await until(page, () => document.getElementById("live").dataset.state === "live", null, 40000), "and made again by itself");
  check(await until(page, () => document.body.textContent.includes("unseen")), "what happened meanwhile is shown");
  await close();
}

/** Jobs outlive their daemon, so they are ended before it is. */
async function endJobs() {
  const open = () => JSON.parse(yard("ps", "--json")).jobs.map(job => String(job.id));
  if (open().length) yard("cancel", ...open());
  for (let tries = 0; tries < 100 && open().length; tries++) await new Promise(done => setTimeout(done, 200));
}

const browser = await launch();
try {
  const url = yard("web");
  {
    const { page, close } = await open(browser, url, LOOKS.light);
    await ready(page);
    check(await page.isVisible("text=Nothing was submitted yet"), "an empty yard says how to begin");
    await page.screenshot({ path: join(folder, "empty-light.png") });
    await close();
  }
  const waits = submitJobs();
  for (const [name, look] of Object.entries(LOOKS)) {
    const { page, trouble, close } = await open(browser, yard("web"), look);
    await ready(page);
    bound(`first paint, ${name}`, await firstPaint(page), BOUNDS.first_paint_ms);
    if (name === "light") {
      await checkUpdate(page);
      await checkQueue(page, waits);
      await checkJob(page, waits);
      await checkCancel(page);
      await checkNode(page);
      await checkKeys(page);
      await checkPolicy(page);
    }
    await checkManners(page, name);
    await go(page, "job/1");
    await page.waitForTimeout(900);
    check((await overflow(page)) <= 0, `${name} job: no sideways scrolling`);
    await page.screenshot({ path: join(folder, `job-${name}.png`), fullPage: true });
    check(trouble.length === 0, `${name}: nothing on the console, nothing from elsewhere ${trouble.join("; ")}`);
    await close();
  }
  await checkViewer(browser);
  await checkSignIn(browser, yard("web"));
  await checkLost(browser, yard("web"));
} finally {
  await browser.close();
  await endJobs();
}
finish();
