// Puts the parts together: the table first, the chart when there is time.

/** Lets the page paint before it goes on. */
const pause = () => new Promise(resume => setTimeout(resume, 0));

async function start() {
  if (!document.getElementById("data-jobs")) return;
  await pause();
  const jobs = loadJobs();
  const policy = document.getElementById("policy");
  const chosenText = document.getElementById("chosen");
  let gantt = null;

  const table = new JobTable(jobs, choose);
  const facts = job => {
    const value = key => table.columns[key][job];
    const end = jobs.ends[table.columns.end[job]];
    const stops = value("preemptions") > 0 ? `, preempted ${value("preemptions")}×` : "";
    return [
      jobs.label(job),
      `${jobs.models[jobs.model[job]]}, ${jobs.tenants[jobs.tenant[job]]}, ${jobs.gpus[job]} GPU${jobs.gpus[job] === 1 ? "" : "s"}`,
      `submitted ${spanText(value("submitted"))}, waited ${spanText(value("wait"))}, JCT ${spanText(value("jct"))}`,
      `${end}${stops}`,
    ];
  };

  function choose(job, bring) {
    gantt?.choose(job, bring);
    table.mark(job);
    chosenText.textContent = job < 0 ? "" : facts(job).join(" · ");
    if (bring && job >= 0) {
      const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
      document.querySelector(".gantt").scrollIntoView({ block: "nearest", behavior: calm ? "auto" : "smooth" });
    }
  }

  table.show(runTable(Number(policy.value), jobs.count));
  await pause();
  const cluster = loadCluster();
  gantt = new Gantt(jobs, cluster);
  gantt.show(runTime(Number(policy.value)));
  listenToGantt(gantt, facts, choose);

  policy.addEventListener("change", async () => {
    const run = Number(policy.value);
    table.show(runTable(run, jobs.count));
    await pause();
    if (run !== Number(policy.value)) return;
    gantt.show(runTime(run));
    choose(table.chosen, false);
  });
  document.getElementById("colour").addEventListener("change", event => {
    gantt.by = event.target.value;
    gantt.later();
  });
  document.documentElement.dataset.ready = "yes";
}

start();
