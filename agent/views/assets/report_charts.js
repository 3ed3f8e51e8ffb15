// Draws charts in the colours of the page once they scroll into view, and again when the colours change.

const drawn = new Map();
// Width in pixels that fits on paper even with wide margins. Scripts cannot learn the paper width before printing.
const PAPER = 560;
// On a narrow page, each legend entry takes one line of this height in pixels.
const LEGEND_LINE = 19;

function colours() {
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
function coloured(value, palette, key = "") {
  if (Array.isArray(value)) return value.map((item) => coloured(item, palette, key));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, coloured(item, palette, name)]));
  }
  return key === "color" && typeof value === "string" && value.startsWith("@") ? palette[value.slice(1)] : value;
}

const heightOf = (chart) => chart.height + (NARROW && chart.layout.showlegend ? LEGEND_LINE * chart.traces.length : 0);

function layoutOf(chart, palette) {
  const axis = { gridcolor: palette.line, linecolor: palette.line, zerolinecolor: palette.line };
  const layout = coloured(chart.layout, palette);
  return {
    ...layout,
    height: heightOf(chart),
    autosize: true,
    width: document.documentElement.dataset.print ? PAPER : undefined,
    margin: { l: 8, r: 16, t: 8, b: 44 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 13, color: palette.text },
    hoverlabel: { bgcolor: palette.surface, bordercolor: palette.line, font: { color: palette.text } },
    legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", traceorder: "normal", maxheight: 1 },
    xaxis: { ...axis, automargin: true, ...layout.xaxis, title: { ...layout.xaxis.title, font: { size: 12, color: palette.quiet } } },
    yaxis: { ...axis, ...layout.yaxis, title: { ...layout.yaxis.title, font: { size: 12, color: palette.quiet } } },
  };
}

function draw(place) {
  const chart = drawn.get(place);
  const palette = colours();
  const options = { responsive: true, displaylogo: false, displayModeBar: false };
  const done = Plotly.react(place, coloured(chart.traces, palette), layoutOf(chart, palette), options);
  if (!place.dataset.drawn) listen(place);
  place.dataset.drawn = "yes";
  return done;
}

// Return the filter of an event's bar, or null if the table cannot list its pairs.
function filterOf({ points: [point] }) {
  const filter = point?.customdata;
  return filter && (!filter.marks || REPORT.marks.includes(filter.marks)) ? filter : null;
}

function listen(place) {
  place.on("plotly_hover", (event) => place.classList.toggle("lists", filterOf(event) !== null));
  place.on("plotly_unhover", () => place.classList.remove("lists"));
  place.on("plotly_click", (event) => { if (filterOf(event)) list(filterOf(event)); });
}

const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    loaded.then(() => draw(target));
  }
}, { rootMargin: "300px" });

function chartOf(chart) {
  const place = make("div", { class: "chart", role: "img", "aria-label": chart.alt });
  place.style.height = `${heightOf(chart)}px`;
  drawn.set(place, chart);
  seen.observe(place);
  return place;
}

function redraw(all = false) {
  for (const place of drawn.keys()) if (all || place.dataset.drawn) draw(place);
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
