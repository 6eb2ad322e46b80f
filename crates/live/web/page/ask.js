// Questions before something is done, and the doing: jobs, nodes, the policy.

import { send } from "./api.js";
import { el, note } from "./dom.js";

/** Asks once. Gives nothing where the answer is no, else what was typed. */
export function ask({ title, text, yes, danger = false, reason = false }) {
  return new Promise(done => {
    const input = reason ? el("input", { type: "text", maxlength: "200", placeholder: "for the record" }) : null;
    const accept = el("button", { type: "submit", class: danger ? "main danger" : "main" }, yes);
    const form = el("form", { method: "dialog" },
      el("h2", { id: "ask-title" }, title),
      el("p", {}, text),
      input && el("label", {}, "Reason", input),
      el("div", { class: "buttons" }, el("button", { type: "button", on: { click: () => box.close() } }, "No"), accept));
    const box = el("dialog", { "aria-labelledby": "ask-title" }, form);
    let answer = null;
    form.addEventListener("submit", () => { answer = { reason: input?.value.trim() || null }; });
    box.addEventListener("close", () => {
      box.remove();
      done(answer);
    });
    document.body.append(box);
    box.showModal();
    (input ?? accept).focus();
  });
}

const JOB_ACTS = {
  cancel: { yes: "Cancel the job", danger: true, reason: true, text: "It ends for good. A running one is stopped first.", done: "is cancelled" },
  hold: { yes: "Hold", text: "It is set aside until it is released. A running one saves and stops.", done: "is held" },
  release: { yes: "Release", text: "It may run again.", done: "is released" },
  requeue: { yes: "Requeue", text: "It saves, stops and goes back into the queue.", done: "is put back" },
};

/** Does something to a job, once it was asked for. */
export async function actOnJob(job, action) {
  const { done, ...question } = JOB_ACTS[action];
  const answer = await ask({ title: `${question.yes.split(" ")[0]} job ${job.id} “${job.name}”?`, ...question });
  if (!answer) return;
  const body = answer.reason ? { action, reason: answer.reason } : { action };
  await tried(() => send("POST", `/v1/jobs/${job.id}/act`, body), `Job ${job.id} ${done}`);
}

/** Drains a node or puts it back. */
export async function actOnNode(node, action) {
  const drain = action === "drain";
  const answer = await ask({
    title: drain ? `Drain ${node.name}?` : `Put ${node.name} back into service?`,
    text: drain ? "It takes no new work. Jobs that run there go on." : "It takes work again at once.",
    yes: drain ? "Drain" : "Resume",
    danger: drain,
    reason: drain,
  });
  if (!answer) return;
  const body = answer.reason ? { action, reason: answer.reason } : { action };
  await tried(() => send("POST", `/v1/nodes/${encodeURIComponent(node.name)}/act`, body), `${node.name} ${drain ? "is drained" : "is back"}`);
}

/** Changes the policy. */
export async function changePolicy(policy, running) {
  const answer = await ask({
    title: `Change the policy to ${policy}?`,
    text: `${running} decides now. Jobs that run go on; from the next decision on they may be moved.`,
    yes: "Change it",
    danger: true,
  });
  return answer ? tried(() => send("PUT", "/v1/policy", { policy }), `${policy} decides from now on`) : null;
}

async function tried(act, told) {
  try {
    const said = await act();
    note(told);
    return said;
  } catch (problem) {
    note(problem.message, "bad");
    return null;
  }
}
