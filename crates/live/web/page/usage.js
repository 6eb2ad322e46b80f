// How busy GPUs are and how much of their memory is used, asked for as long as somebody looks.

import { get, has } from "./api.js";
import { count, percent } from "./words.js";

const EVERY = 4000;

/** Asks as long as `changed` is wanted; answers with a way to stop. */
export function watchUsage(changed) {
  let timer = null;
  let over = false;
  async function ask() {
    if (over) return;
    if (!document.hidden) {
      const answer = await get("/v1/gpus").catch(() => null);
      if (over) return;
      if (answer) changed(new Map(answer.gpus.map(gpu => [`${gpu.node}:${gpu.gpu}`, gpu])));
    }
    timer = setTimeout(ask, EVERY);
  }
  has("/v1/gpus").then(can => can && ask());
  return () => {
    over = true;
    clearTimeout(timer);
  };
}

const gib = mib => (mib >= 10240 ? count(Math.round(mib / 1024)) : (mib / 1024).toFixed(1));

/** One GPU in words: how busy, and its memory. */
export function usageWords(gpu) {
  if (!gpu) return "";
  const busy = gpu.busy === null || gpu.busy === undefined ? null : `${percent(gpu.busy)} busy`;
  const known = gpu.memory_used_mib !== null && gpu.memory_used_mib !== undefined && gpu.memory_mib;
  const memory = known ? `${gib(gpu.memory_used_mib)} of ${gib(gpu.memory_mib)} GiB` : null;
  return [busy, memory].filter(Boolean).join(", ");
}

/** The means of all that tell anything; nothing where none does. */
export function usageOfAll(gpus) {
  const rows = [...gpus.values()];
  const busy = rows.filter(gpu => gpu.busy !== null && gpu.busy !== undefined);
  const memory = rows.filter(gpu => gpu.memory_mib);
  const sum = (list, of) => list.reduce((total, gpu) => total + of(gpu), 0);
  return {
    busy: busy.length ? sum(busy, gpu => gpu.busy) / busy.length : null,
    memory: memory.length ? sum(memory, gpu => gpu.memory_used_mib ?? 0) / sum(memory, gpu => gpu.memory_mib) : null,
  };
}
