// The page says all it has to say without this script, which adds two comforts: a filter, and a word on boxes that scroll.

// A box that scrolls can be reached with the keyboard and says so; one that shows all it holds is no stop on the way.
const boxes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const wide = target.scrollWidth > target.clientWidth;
    target.classList.toggle("wide", wide);
    if (wide || target.scrollHeight > target.clientHeight) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});
document.querySelectorAll(".scroll").forEach((box) => boxes.observe(box));

// One button a verdict shows its rows alone, and hides the headings that are left without rows.
for (const bar of document.querySelectorAll("[data-filters]")) {
  const table = document.querySelector(`#${bar.dataset.filters} table`);
  const rows = [...table.querySelectorAll("tr:has(td)")].map((row) => ({ row, verdict: row.querySelector(".verdict").textContent }));
  const show = (chosen) => {
    rows.forEach(({ row, verdict }) => (row.hidden = chosen !== "all" && verdict !== chosen));
    table.querySelectorAll("tbody").forEach((part) => (part.hidden = !part.querySelector("tr:has(td):not([hidden])")));
    bar.querySelectorAll("button").forEach((button) => button.setAttribute("aria-pressed", button.value === chosen));
    bar.querySelector("[role=status]").textContent = `${rows.filter(({ row }) => !row.hidden).length} of ${rows.length} rows`;
  };
  for (const verdict of ["all", ...new Set(rows.map((one) => one.verdict))]) {
    const button = Object.assign(document.createElement("button"), { type: "button", value: verdict, textContent: verdict });
    button.addEventListener("click", () => show(verdict));
    bar.querySelector("[role=status]").before(button);
  }
  bar.hidden = false;
  show("all");
}
