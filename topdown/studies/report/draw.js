// Draws every chart in its place, again when the window's width changes, and opens what is folded on paper.
// charts: name -> Vega-Lite specification. sources: name -> function that gives its data by name.
const drawCharts = (charts, sources) => {
  // Where the place is narrow, panels stand one below the other and are as wide as it is, with shorter labels.
  const fitted = (value, room, key) => {
    if (Array.isArray(value)) return value.map(one => fitted(one, room));
    if (key === "width" && typeof value === "number") return Math.min(value, room);
    if (key === "labelLimit") return Math.min(value, 110);
    if (key === "columns") return 1;
    if (!value || typeof value !== "object" || key === "datasets") return value;
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, fitted(v, room, k)]));
  };
  const draw = (place, less = 0, again = 3) => {
    const key = place.dataset.chart, whole = charts[key], width = place.clientWidth;
    if (!whole) return Promise.resolve();
    let spec = whole;
    if (width < 560) {
      const room = key === "map" ? width - 10 : width - (whole.concat ? 150 : 80);
      spec = fitted(whole, Math.max(room - less, 100));
      if (key === "map") spec.height = Math.round(0.62 * spec.width);
      spec.config = {...spec.config, legend: {...spec.config.legend, columns: 1, labelLimit: width - 60},
        title: {...spec.config.title, limit: width - 40}};
    }
    const given = sources[key] ? sources[key]() : {};
    return vegaEmbed(place, {...spec, datasets: {...spec.datasets, ...given}},
      {mode: "vega-lite", renderer: key === "bias" || key === "map" ? "canvas" : "svg",
       actions: {export: true, source: false, compiled: false, editor: false}})
      .then(() => {
        // Long labels take more room than was left for them: again, narrower by what is too much.
        const svg = place.querySelector("svg.marks"), over = svg ? svg.viewBox.baseVal.width - width : 0;
        return over > 0 && spec !== whole && again > 0 ? draw(place, less + over, again - 1) : null;
      });
  };
  const drawAll = () => Promise.all([...document.querySelectorAll("[data-chart]")].map(place => draw(place)))
    .then(() => { document.body.dataset.drawn = "yes"; })
    .catch(error => { document.body.dataset.drawn = "failed"; console.error(error); });
  drawAll();
  let drawnFor = document.documentElement.clientWidth, later = 0;
  addEventListener("resize", () => {
    clearTimeout(later);
    later = setTimeout(() => {
      if (drawnFor === document.documentElement.clientWidth) return;
      drawnFor = document.documentElement.clientWidth;
      drawAll();
    }, 200);
  });

  // On paper everything that can be folded is open.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("main details:not([open]), header details:not([open])")]
      .filter(one => !one.closest(".chart"));
    opened.forEach(one => { one.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach(one => { one.open = false; }));
};
