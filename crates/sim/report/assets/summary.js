// Tables that sort and say where they go on, legends that hide runs, and the choice of a series.

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button")?.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach(other => other.hasAttribute("aria-sort") && other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = row => row.cells[column].dataset.v ?? row.cells[column].textContent;
    const compare = (a, b) => isNaN(key(a)) || isNaN(key(b)) ? key(a).localeCompare(key(b)) : key(a) - key(b);
    const rows = [...table.tBodies[0].rows].sort((a, b) => down ? compare(b, a) : compare(a, b));
    table.tBodies[0].append(...rows);
  }));
}

for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => {
    const shown = button.getAttribute("aria-pressed") === "false";
    for (const same of document.querySelectorAll(`.legend button[data-of="${button.dataset.of}"]`)) {
      same.setAttribute("aria-pressed", shown);
    }
    for (const part of document.querySelectorAll(`[data-run="${button.dataset.of}"]`)) {
      part.style.display = shown ? "" : "none";
    }
  });
}

const series = document.getElementById("series");
series?.addEventListener("change", () => {
  for (const figure of document.querySelectorAll("[data-series]")) {
    figure.hidden = figure.dataset.series !== series.value;
  }
});

// A table that is wider than its place fades where it goes on.
for (const place of document.querySelectorAll(".scroll")) {
  const tell = () => {
    const left = place.scrollLeft > 2;
    const right = place.scrollLeft + place.clientWidth < place.scrollWidth - 2;
    place.dataset.more = `${left ? "left" : ""} ${right ? "right" : ""}`.trim();
  };
  place.addEventListener("scroll", tell, { passive: true });
  new ResizeObserver(tell).observe(place);
  tell();
}
