// A chart in a tab that was hidden gets the width of the page once it is shown.
for (const tab of document.querySelectorAll(".sd-tab-set > input")) {
  tab.addEventListener("change", () => dispatchEvent(new Event("resize")));
}

// Interactive charts take the ground and the ink of the page.
const grounds = { light: ["#ffffff", "#24292f", "#eaeef2"], dark: ["#0d1117", "#d7dde4", "#1d242c"] };
function paintCharts() {
  const [ground, ink, grid] = grounds[document.documentElement.dataset.theme === "dark" ? "dark" : "light"];
  for (const chart of document.querySelectorAll(".plotly-chart.js-plotly-plot")) {
    const colours = { paper_bgcolor: ground, plot_bgcolor: ground, "font.color": ink };
    for (const name of Object.keys(chart.layout).filter((key) => /^[xy]axis/.test(key))) {
      colours[`${name}.gridcolor`] = grid;
    }
    Plotly.relayout(chart, colours);
  }
}
new MutationObserver(paintCharts).observe(document.documentElement, { attributeFilter: ["data-theme"] });
addEventListener("load", paintCharts);

// Cells say their column, for a phone; the first cell of a row is its name.
for (const table of document.querySelectorAll(".bd-article table.table")) {
  const names = [...(table.tHead?.rows[0]?.cells ?? [])].map((cell) => cell.textContent.trim());
  for (const cell of table.querySelectorAll("tbody td")) {
    if (cell.cellIndex > 0 && names[cell.cellIndex] && cell.textContent.trim()) {
      cell.dataset.column = names[cell.cellIndex];
    }
  }
}

// Names of columns of frames may break behind an underscore.
for (const cell of document.querySelectorAll("table.dataframe th")) {
  cell.replaceChildren(...cell.textContent.split(/(?<=_)/).flatMap((part) => [part, document.createElement("wbr")]));
}
