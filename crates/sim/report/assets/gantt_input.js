// Wheel, drag, pinch, keys and the tip of the chart.

/** How long after the page was scrolled the wheel still scrolls it. */
const WHEEL_REST_MS = 300;

function listenToGantt(gantt, facts, choose) {
  const { canvas } = gantt;
  const tip = document.getElementById("tip");
  const pointers = new Map();
  let moved = 0;
  let scrolledAt = -Infinity;
  addEventListener("scroll", () => { scrolledAt = performance.now(); }, { passive: true });

  const part = event => {
    const box = canvas.getBoundingClientRect();
    const { size } = gantt;
    return {
      across: Math.max(0, Math.min(1, ((event.clientX - box.left) * size.scale - size.left) / size.bodyWidth)),
      down: Math.max(0, Math.min(1, ((event.clientY - box.top) * size.scale) / size.bodyHeight)),
    };
  };
  const barAt = event => {
    const box = canvas.getBoundingClientRect();
    const point = gantt.at(event.clientX - box.left, event.clientY - box.top);
    return { bar: gantt.find(point), point };
  };

  canvas.addEventListener("wheel", event => {
    // A page that is being scrolled goes on scrolling when the chart comes under the pointer.
    const meant = event.ctrlKey || event.shiftKey || document.activeElement === canvas || performance.now() - scrolledAt > WHEEL_REST_MS;
    if (!meant || !gantt.time) return;
    const sideways = !event.shiftKey && Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (sideways) {
      gantt.pan(event.deltaX / 800, 0);
      event.preventDefault();
      return;
    }
    const delta = event.deltaY || event.deltaX;
    const lines = event.deltaMode === 1 ? 24 : 1;
    const factor = Math.exp(-Math.max(-240, Math.min(240, delta * lines)) / 320);
    if (gantt.zoom(factor, { ...part(event), rows: event.shiftKey })) event.preventDefault();
  }, { passive: false });

  canvas.addEventListener("pointerdown", event => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event);
    moved = 0;
    tip.hidden = true;
  });
  canvas.addEventListener("pointermove", event => {
    const before = pointers.get(event.pointerId);
    if (!before) {
      showTip(event);
      return;
    }
    const { size } = gantt;
    const dx = event.clientX - before.clientX;
    const dy = event.clientY - before.clientY;
    moved += Math.abs(dx) + Math.abs(dy);
    if (pointers.size === 2) {
      const [a, b] = [...pointers.values()];
      const other = a.pointerId === event.pointerId ? b : a;
      const apart = one => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
      const middle = { clientX: (event.clientX + other.clientX) / 2, clientY: (event.clientY + other.clientY) / 2 };
      gantt.zoom(apart(event) / Math.max(8, apart(before)), part(middle));
      gantt.pan((-dx * size.scale) / size.bodyWidth / 2, 0);
    } else if (moved > 3) {
      canvas.classList.add("dragged");
      gantt.pan((-dx * size.scale) / size.bodyWidth, (-dy * size.scale) / size.bodyHeight);
    }
    pointers.set(event.pointerId, event);
  });
  const lift = event => {
    if (pointers.delete(event.pointerId) && event.type === "pointerup" && moved <= 3) {
      const { bar } = barAt(event);
      choose(bar < 0 ? -1 : gantt.time.job[bar], false);
      if (event.pointerType === "touch") showTip(event);
    }
    canvas.classList.remove("dragged");
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });

  function showTip(event) {
    const { bar, point } = barAt(event);
    tip.hidden = bar < 0;
    if (bar < 0) return;
    const { time, cluster } = gantt;
    const node = cluster.nodeOf(point.row);
    const lines = [
      ...facts(time.job[bar]),
      `${cluster.names[node]} (${cluster.kindName(node)}), GPU ${point.row - cluster.first[node]}${time.shared[bar] ? ", shared" : ""}`,
      `held ${spanText(time.from[bar])} – ${spanText(time.to[bar])}, ${spanText(time.to[bar] - time.from[bar])}`,
    ];
    tip.replaceChildren(...lines.map((line, index) => {
      const element = document.createElement(index ? "span" : "b");
      element.textContent = line;
      return element;
    }));
    const box = canvas.parentElement.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    tip.style.left = `${Math.max(4, Math.min(x + 14, box.width - tip.offsetWidth - 6))}px`;
    tip.style.top = `${y + 18 + tip.offsetHeight > box.height ? Math.max(4, y - tip.offsetHeight - 12) : y + 18}px`;
  }

  canvas.addEventListener("keydown", event => {
    const rows = event.shiftKey;
    const act = {
      ArrowLeft: () => gantt.pan(-0.15, 0),
      ArrowRight: () => gantt.pan(0.15, 0),
      ArrowUp: () => gantt.pan(0, -0.15),
      ArrowDown: () => gantt.pan(0, 0.15),
      "+": () => gantt.zoom(1.5),
      "=": () => gantt.zoom(1.5, { rows }),
      "-": () => gantt.zoom(1 / 1.5),
      _: () => gantt.zoom(1 / 1.5, { rows: true }),
      0: () => gantt.reset(),
      Home: () => gantt.reset(),
      Escape: () => choose(-1, false),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    act();
    event.preventDefault();
  });
  document.getElementById("zoom-in").addEventListener("click", () => gantt.zoom(1.8));
  document.getElementById("zoom-out").addEventListener("click", () => gantt.zoom(1 / 1.8));
  document.getElementById("zoom-all").addEventListener("click", () => gantt.reset());
}
