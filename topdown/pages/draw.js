// Draws every chart in its place, again when the window's width changes, and lets the reader pick rows of tables.
// charts: name -> Vega-Lite specification. sources: name -> function that gives its data by name. ready: name -> what is
// done with the view that was drawn. Returns a function that draws all again.
const drawCharts = (charts, sources, ready = {}) => {
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
    const full = typeof whole.width === "number" ? whole.width + 260 : 560;
    if (width < full) {
      const room = key === "map" ? width - 10 : width - (whole.concat || full > 560 ? 150 : 80);
      spec = fitted(whole, Math.max(room - less, 100));
      if (key === "map") spec.height = Math.round(0.62 * spec.width);
      spec.config = {...spec.config, legend: {...spec.config.legend, columns: 1, labelLimit: width - 60},
        axis: {...spec.config.axis, titleLimit: width - 90}, title: {...spec.config.title, limit: width - 40}};
    }
    const given = sources[key] ? sources[key]() : {};
    return vegaEmbed(place, {...spec, datasets: {...spec.datasets, ...given}},
      {mode: "vega-lite", renderer: key === "bias" || key === "map" ? "canvas" : "svg",
       actions: {export: true, source: false, compiled: false, editor: false}})
      .then(drawn => {
        if (ready[key]) ready[key](drawn.view);
        // Long labels take more room than was left for them: again, narrower by what is too much.
        const svg = place.querySelector("svg.marks"), over = svg ? svg.viewBox.baseVal.width - width : 0;
        return over > 0 && spec !== whole && again > 0 ? draw(place, less + over, again - 1) : null;
      });
  };
  // What is folded is drawn when it is opened: a place without a width has nothing to fit.
  const open = () => [...document.querySelectorAll("[data-chart]")].filter(place => !place.closest("details:not([open])"));
  const drawAll = () => Promise.all(open().map(place => draw(place)))
    .then(() => { document.body.dataset.drawn = "yes"; })
    .catch(error => { document.body.dataset.drawn = "failed"; console.error(error); });
  drawAll();
  document.querySelectorAll("details").forEach(one => one.addEventListener("toggle", () => {
    if (one.open) [...one.querySelectorAll("[data-chart]:not(.vega-embed)")]
      .filter(place => !place.closest("details:not([open])")).forEach(place => draw(place));
  }));
  // A link to what is folded opens it.
  const follow = () => {
    const place = location.hash.length > 1 ? document.getElementById(location.hash.slice(1)) : null;
    for (let one = place && place.closest("details"); one; one = one.parentElement.closest("details")) one.open = true;
    if (place) place.scrollIntoView();
  };
  addEventListener("hashchange", follow);
  follow();
  let drawnFor = document.documentElement.clientWidth, later = 0;
  addEventListener("resize", () => {
    clearTimeout(later);
    later = setTimeout(() => {
      if (drawnFor === document.documentElement.clientWidth) return;
      drawnFor = document.documentElement.clientWidth;
      drawAll();
    }, 200);
  });

  // On a phone cards show their headlines, so that all are on the first screen; on paper they show everything.
  const folds = document.querySelectorAll(".card details"), narrow = matchMedia("(max-width: 600px)");
  const fold = () => folds.forEach(one => { one.open = !narrow.matches; });
  narrow.addEventListener("change", fold);
  addEventListener("beforeprint", () => folds.forEach(one => { one.open = true; }));
  addEventListener("afterprint", fold);
  fold();

  // Tables whose columns say so are shown by the value that the reader picks, the first one to begin with.
  document.querySelectorAll("table.pick").forEach(table => {
    const heads = [...table.tHead.rows[0].cells], rows = [...table.tBodies[0].rows], bar = document.createElement("div");
    const choices = heads.map((head, k) => ({k, head, values: [...new Set(rows.map(row => row.cells[k].textContent))]}))
      .filter(one => one.head.hasAttribute("data-pick") && one.values.length > 1)
      .map(one => {
        const label = document.createElement("label"), select = document.createElement("select");
        label.textContent = one.head.textContent + " ";
        [["", "all"], ...one.values.map(v => [v, v])].forEach(([value, text]) => {
          const option = document.createElement("option");
          option.value = value; option.textContent = text; select.append(option);
        });
        label.append(select); bar.append(label);
        return {...one, select};
      });
    if (choices.length) choices[0].select.value = choices[0].values[0];
    const said = document.createElement("span");
    const show = () => {
      rows.forEach(row => { row.hidden = choices.some(c => c.select.value && row.cells[c.k].textContent !== c.select.value); });
      const shown = rows.filter(row => !row.hidden).length;
      said.textContent = shown < rows.length ? `${shown.toLocaleString("en-US")} of ${rows.length.toLocaleString("en-US")} rows` : "";
    };
    if (!choices.length) return;
    bar.className = "controls"; said.className = "small"; said.setAttribute("role", "status");
    bar.append(said);
    table.parentElement.before(bar);
    choices.forEach(c => c.select.addEventListener("input", show));
    show();
  });
  return drawAll;
};
// What `packed` made, from the script element called so.
const unpacked = name => {
  const bytes = Uint8Array.from(atob(document.getElementById(name).textContent), c => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
};
