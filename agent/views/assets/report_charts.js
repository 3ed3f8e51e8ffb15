// Draws charts in the colours of the page once they scroll into view, and again when the colours change.

const charts = new Map();
// Width in pixels that fits on paper even with wide margins. Scripts cannot determine the paper width before printing.
const PAPER = 560;
// On a narrow page, each legend entry takes one line of this height in pixels.
const LEGEND_LINE = 19;

function readPalette() {
  const probe = document.body.appendChild(make("span", { hidden: true }));
  const resolve = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const names = ["text", "quiet", "line", "surface", "accent", "accent-2", "good", "bad", "warn", "error", "muted", "inside"];
  const palette = Object.fromEntries(names.map((name) => [name, resolve(name)]));
  probe.remove();
  return palette;
}

// Return a copy of the data with colour names (`@name`) resolved.
function resolveColours(value, palette, key = "") {
  if (Array.isArray(value)) return value.map((item) => resolveColours(item, palette, key));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, resolveColours(item, palette, name)]));
  }
  return key === "color" && typeof value === "string" && value.startsWith("@") ? palette[value.slice(1)] : value;
}

const getHeight = (chart) => chart.height + (NARROW && chart.layout.showlegend ? LEGEND_LINE * chart.traces.length : 0);

function buildLayout(chart, palette) {
  const axis = { gridcolor: palette.line, linecolor: palette.line, zerolinecolor: palette.line };
  const layout = resolveColours(chart.layout, palette);
  return {
    ...layout,
    height: getHeight(chart),
    autosize: true,
    width: document.documentElement.dataset.print ? PAPER : undefined,
    margin: { l: 8, r: 16, t: 8, b: 44 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 13, color: palette.text },
    hoverlabel: { bgcolor: palette.surface, bordercolor: palette.line, font: { color: palette.text } },
    legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", traceorder: "normal", maxheight: 1 },
    xaxis: { ...axis, automargin: true, ...layout.xaxis, title: { ...layout.xaxis.title, font: { size: 12, color: palette.quiet } } },
    yaxis: { ...axis, automargin: true, ...layout.yaxis, title: { ...layout.yaxis.title, font: { size: 12, color: palette.quiet } } },
  };
}

function draw(container) {
  const chart = charts.get(container);
  const palette = readPalette();
  const options = { responsive: true, displaylogo: false, displayModeBar: false };
  const drawing = Plotly.react(container, resolveColours(chart.traces, palette), buildLayout(chart, palette), options);
  if (!container.dataset.drawn) addListeners(container);
  container.dataset.drawn = "yes";
  return drawing;
}

// Return the filter of the bar that received an event, or null if the table cannot list the bar's pairs.
function getFilter({ points: [point] }) {
  const filter = point?.customdata;
  return filter && (!filter.marks || REPORT.marks.includes(filter.marks)) ? filter : null;
}

function addListeners(container) {
  container.on("plotly_hover", (event) => container.classList.toggle("lists", getFilter(event) !== null));
  container.on("plotly_unhover", () => container.classList.remove("lists"));
  container.on("plotly_click", (event) => { if (getFilter(event)) listPairs(getFilter(event)); });
}

const observer = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    observer.unobserve(target);
    loaded.then(() => draw(target));
  }
}, { rootMargin: "300px" });

function buildChart(chart) {
  const container = make("div", { class: "chart", role: "img", "aria-label": chart.alt });
  container.style.height = `${getHeight(chart)}px`;
  charts.set(container, chart);
  observer.observe(container);
  return container;
}

function redraw(all = false) {
  for (const container of charts.keys()) if (all || container.dataset.drawn) draw(container);
}

// The theme follows the system until the reader chooses one.
const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";

function showTheme() {
  byId("theme").setAttribute("aria-pressed", String(isDark()));
  redraw();
}

byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  showTheme();
});
dark.addEventListener("change", showTheme);
for (const [event, print] of [["beforeprint", "yes"], ["afterprint", ""]]) {
  addEventListener(event, () => {
    document.documentElement.dataset.print = print;
    redraw(print);
    showPage();
  });
}
