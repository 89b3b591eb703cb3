// The page of a release: what is shown, which units are chosen, and what is found of them.
const $ = id => document.getElementById(id);
if (!("DecompressionStream" in window)) $("said").textContent = "This browser is too old for this page's data; a newer one shows it.";
const D = await unpacked("data");
const jq = window.jQuery;
const n = D.geoid.length;
const levelsOf = sizes => sizes.flatMap((size, k) => new Array(size).fill(k));
const beginsOf = sizes => sizes.reduce((all, size) => [...all, all[all.length - 1] + size], [0]);
const level = levelsOf(D.sizes), begins = beginsOf(D.sizes), spine = D.errors?.spine;
const tree = spine ? {begins: beginsOf(spine.sizes), level: levelsOf(spine.sizes), parent: spine.parent, sums: spine.sums} : {begins, level, parent: D.parent};
const sums = D.errors === null ? null : makeSums(D.errors, tree);
const known = D.errors === null ? 0 : begins[D.errors.told] ?? n;
const nameOf = i => D.name && D.name[i] !== null ? D.name[i] : "";
const titleOf = i => nameOf(i) ? `${nameOf(i)} (${D.geoid[i]})` : D.geoid[i];
const whole = x => x === null ? "no limit" : Math.round(x).toLocaleString("en-US").replace("-", "\u2212");
const state = {table: 0, column: 0, a: new Map(), b: new Map()};
const column = () => D.tables[state.table].columns[state.column];
const total = D.tables[0].columns[0];
const lowerOf = (c, i) => c.down[i] === null ? null : c.count[i] - c.down[i];
const upperOf = (c, i) => c.up[i] === null ? null : c.count[i] + c.up[i];
const cvOf = (c, i) => c.sd[i] === null ? null : c.sd[i] === 0 ? 0 : c.count[i] === 0 ? Infinity : Math.round(1e4 * c.sd[i] / Math.abs(c.count[i])) / 1e4;
const reliabilityOf = (c, i) => {
  const cv = cvOf(c, i);
  if (cv === null) return i < known ? "low" : ""; // without an end where nothing determines it; else it has no margin
  return (Object.entries(D.classes).find(([, most]) => cv <= most) ?? ["low"])[0];
};
const option = (select, value, text) => { const o = document.createElement("option"); o.value = value; o.textContent = text; select.append(o); };

// The look of the table's library follows the page's.
const dark = matchMedia("(prefers-color-scheme: dark)"), follow = () => document.documentElement.classList.toggle("dark", dark.matches);
dark.addEventListener("change", follow);
follow();

// -- what is shown ---------------------------------------------------------------------------------------------------
D.tables.forEach((table, k) => option($("query"), k, table.name));
const fillCells = () => {
  $("cell").replaceChildren();
  // A field of a published table is called by a code, beside which it is said who is counted.
  const titled = c => c.meaning === "everybody" || c.meaning.includes(c.name) || c.label !== c.name ? c.label : `${c.label}: ${c.meaning}`;
  D.tables[state.table].columns.forEach((c, k) => option($("cell"), k, titled(c)));
};
D.levels.forEach((name, k) => option($("level"), k, name));
$("level").prepend(new Option("all", ""));
$("level").value = "";
const MOST_LISTED = 20000;
for (let i = 0; i < Math.min(n, MOST_LISTED); i++) option($("units"), titleOf(i), "");
for (let i = 0; i < Math.min(begins[D.sizes.length - 1], MOST_LISTED); i++) option($("parents"), titleOf(i), "");

const inside = (i, top) => { for (let k = i; k >= 0; k = D.parent[k]) if (k === top) return true; return false; };
const safe = text => text === null || text === undefined ? "" : String(text).replace(/[&<>"']/g, c => `&#${c.charCodeAt(0)};`);
// DataTables reads what it searches in as markup where there is a "&" in it.
const text = {display: safe, filter: safe, sort: value => value};
const numeric = {display: x => x === null ? "–" : whole(x), sort: x => x === null ? Infinity : x, filter: x => x};
const row = ([k, i]) => {
  const c = D.tables[state.table].columns[k];
  return {k, i, geoid: D.geoid[i], name: nameOf(i), level: D.levels[level[i]], parent: D.parent[i] < 0 ? "" : D.geoid[D.parent[i]], cell: c.label,
    count: c.count[i], lower: lowerOf(c, i), upper: upperOf(c, i), reliability: reliabilityOf(c, i)};
};
const columns = [
  {title: '<span class="hidden">Choose</span>', data: null, orderable: false, searchable: false,
    render: (_, kind, r) => kind === "display" ? `<button type="button" data-node="${r.i}" aria-label="Choose ${safe(titleOf(r.i))}">+</button>` : ""},
  {title: "Code", data: "geoid", className: D.name ? "t spare" : "t"}, {title: "Name", data: "name", className: "t name"}, {title: "Level", data: "level", className: "t spare"},
  {title: "Parent", data: "parent", className: "t spare"}, {title: "Count of", data: "cell", className: "t"},
  {title: "Count", data: "count"}, {title: "Lower", data: "lower"}, {title: "Upper", data: "upper"}, {title: "Reliability", data: "reliability", className: "t"},
].map(c => c.render ? c : c.className ? {...c, render: text, type: "string"} : {...c, render: numeric})
  .filter(c => (D.name || c.data !== "name") && (D.errors || !["lower", "upper", "reliability"].includes(c.data)));
const place = key => columns.findIndex(c => c.data === key);
const mark = () => document.querySelectorAll("#rows button[data-node]").forEach(button => {
  const i = +button.dataset.node, chosen = state.a.has(i) ? "a" : state.b.has(i) ? "b" : "";
  button.closest("tr").classList.toggle("chosen-row", chosen !== "");
  button.textContent = chosen ? "−" : "+";
  button.setAttribute("aria-label", `${chosen ? "Remove" : "Choose"} ${titleOf(i)}`);
});
const grid = jq("#rows").DataTable({
  data: [], columns, deferRender: true, autoWidth: false, pageLength: 15, lengthMenu: [15, 50, 200], order: [[place("geoid"), "asc"]], rowId: r => `r${r.k}-${r.i}`,
  language: {search: "Search codes and names", emptyTable: "no unit matches", zeroRecords: "no unit matches", lengthMenu: "_MENU_ rows a page"},
  createdRow: (tr, r) => { if (r.reliability === "low") tr.classList.add("low"); },
  drawCallback: () => mark(),
});
const fillTable = () => {
  const only = $("level").value, top = $("within").value.trim() ? unitCalled($("within").value.trim()) : null;
  $("said").textContent = top && top.problem ? top.problem : "";
  const picked = [];
  for (let i = 0; i < n; i++)
    if ((only === "" || level[i] === +only) && (!top || (top.node !== undefined && inside(i, top.node)))) picked.push(i);
  const all = $("cells").value === "all", places = all ? D.tables[state.table].columns.map((_, k) => k) : [state.column];
  grid.clear();
  grid.rows.add(picked.flatMap(i => places.map(k => [k, i])).map(row));
  grid.column(place("cell")).visible(all);
  grid.draw();
};
const refresh = () => {
  const counted = column().meaning === "everybody" ? "everybody" : `those with ${column().meaning}`;
  $("meaning").textContent = `Shown: ${column().label}, of the table ${D.tables[state.table].name}. It counts ${counted}.`;
  const all = column().meaning === total.meaning;
  document.querySelector("input[value=total]").disabled = all;
  if (all && document.querySelector("input[value=total]").checked) document.querySelector("input[value=sum]").checked = true;
  fillTable();
  drawMap();
  find();
};
$("query").addEventListener("input", () => { state.table = +$("query").value; state.column = 0; fillCells(); refresh(); });
$("cell").addEventListener("input", () => { state.column = +$("cell").value; refresh(); });
["level", "cells"].forEach(id => $(id).addEventListener("input", fillTable));
$("within").addEventListener("change", fillTable);

// -- the map -----------------------------------------------------------------------------------------------------------
const SHADES = ["#d4e6f4", "#9cc5e3", "#5d9bcb", "#2b6ba6", "#0f3c73"];
let view = null, drawAll = null;
const classesOf = () => {
  const c = column(), counts = D.outlines.map(one => c.count[one.unit]).sort((x, y) => x - y);
  const cuts = [...new Set([0.2, 0.4, 0.6, 0.8].map(p => counts[Math.floor(p * (counts.length - 1))]))];
  const names = [...cuts.map((cut, k) => k ? `${whole(cuts[k - 1] + 1)} to ${whole(cut)}` : `up to ${whole(cut)}`), `more than ${whole(cuts[cuts.length - 1])}`];
  return {names, of: count => names[cuts.filter(cut => count > cut).length]};
};
const outlines = () => {
  const c = column(), classes = classesOf();
  return D.outlines.map(one => {
    const i = one.unit, reliability = reliabilityOf(c, i), interval = c.down[i] === null && c.up[i] === null ? "" : `${whole(lowerOf(c, i))} to ${whole(upperOf(c, i))}`;
    return {type: "Feature", geometry: one.geometry, unit: i, code: D.geoid[i], name: nameOf(i), count: c.count[i], interval, reliability,
      class: reliability === "low" ? "low reliability" : classes.of(c.count[i]), chosen: state.a.has(i) || state.b.has(i)};
  }).sort((one, other) => one.chosen - other.chosen); // those chosen are drawn last, above their neighbours
};
const drawMap = () => {
  if (!D.charts.map) return;
  const names = classesOf().names;
  D.charts.map.encoding.color.scale = {domain: [...names, "low reliability"], range: [...SHADES.slice(0, names.length), "#b9bcc2"]};
  if (drawAll) drawAll();
  else drawAll = drawCharts(D.charts, {map: () => ({outlines: outlines()})}, {map: drawn => {
    view = drawn;
    view.addEventListener("click", (_, item) => { if (item && item.datum && item.datum.unit !== undefined) toggle(item.datum.unit); });
  }});
};

// -- which units are chosen ------------------------------------------------------------------------------------------------
const byCode = new Map(D.geoid.map((code, i) => [code, i])), byName = new Map();
for (let i = 0; i < n; i++) {
  const name = nameOf(i).toLowerCase();
  if (name) byName.set(name, [...(byName.get(name) ?? []), i]);
}
// The unit that a text names: by its code, by its name in any case, or by what the page's own lists say.
const unitCalled = called => {
  if (byCode.has(called)) return {node: byCode.get(called)};
  const code = called.match(/\(([^()]*)\)$/);
  if (code && byCode.has(code[1]) && titleOf(byCode.get(code[1])) === called) return {node: byCode.get(code[1])};
  let found = byName.get(called.toLowerCase()) ?? [];
  if (!found.length) found = [...byName.entries()].filter(([name]) => name.startsWith(called.toLowerCase() + ",")).flatMap(([, nodes]) => nodes);
  const exact = found.filter(i => nameOf(i) === called);
  if (exact.length) found = exact;
  if (found.length === 1) return {node: found[0]};
  if (found.length > 1) return {problem: `${found.length} units are called ${called}: ${found.slice(0, 5).map(i => `${D.geoid[i]} (${D.levels[level[i]]})`).join(", ")}; give the code of one.`};
  return {problem: `No unit ${called} on this page; give codes with their leading zeros, or names.`};
};
const meant = given => {
  const nodes = [], problems = [];
  for (const line of given.split(/[\n;\t]+/).map(one => one.trim()).filter(Boolean)) {
    const pieces = line.split(",").map(one => one.trim());
    for (let k = 0; k < pieces.length;) {
      let end = Math.min(pieces.length, k + 4), found = null;
      for (; end > k; end--) { found = unitCalled(pieces.slice(k, end).join(", ")); if (found.node !== undefined) break; }
      if (found.node === undefined) { if (pieces[k]) problems.push(found.problem); k += 1; }
      else { nodes.push(found.node); k = end; }
    }
  }
  return {nodes, problems};
};
const say = message => { $("said").textContent = message; };
const toggle = i => {
  const target = document.querySelector("input[name=target]:checked").value;
  const there = ["a", "b"].filter(key => state[key].has(i));
  if (there.length) there.forEach(key => state[key].delete(i));
  else state[target].set(i, 1);
  say(`${titleOf(i)} ${there.length ? "removed" : "chosen"}.`);
  chosen();
};
const MOST_CHIPS = 60;
const chosen = () => {
  for (const key of ["a", "b"]) {
    const nodes = [...state[key].keys()];
    $(`count-${key}`).textContent = `(${nodes.length.toLocaleString("en-US")})`;
    $(`chips-${key}`).replaceChildren(...nodes.slice(0, MOST_CHIPS).map(i => {
      const item = document.createElement("li"), button = document.createElement("button");
      button.type = "button"; button.textContent = `${nameOf(i) || D.geoid[i]} ×`; button.setAttribute("aria-label", `Remove ${titleOf(i)}`);
      button.addEventListener("click", () => { state[key].delete(i); say(`${titleOf(i)} removed.`); chosen(); });
      item.append(button);
      return item;
    }));
    if (nodes.length > MOST_CHIPS) { const more = document.createElement("li"); more.textContent = `and ${(nodes.length - MOST_CHIPS).toLocaleString("en-US")} more`; $(`chips-${key}`).append(more); }
  }
  mark();
  if (view) view.data("outlines", outlines()).runAsync();
  find();
};
const addText = (id, key) => {
  const given = $(id).value, {nodes, problems} = id.startsWith("list") && unitCalled(given.trim()).node !== undefined
    ? {nodes: [unitCalled(given.trim()).node], problems: []} : meant(given);
  nodes.forEach(i => state[key].set(i, 1));
  say([nodes.length ? `${nodes.length === 1 ? titleOf(nodes[0]) : `${nodes.length.toLocaleString("en-US")} units`} chosen.` : "", ...problems.slice(0, 5), problems.length > 5 ? `and ${problems.length - 5} more.` : ""].filter(Boolean).join(" "));
  if (!problems.length) $(id).value = "";
  chosen();
};
document.querySelectorAll("[data-add]").forEach(button => button.addEventListener("click", () => addText(button.dataset.add, button.dataset.to)));
["a", "b"].forEach(key => $(`list-${key}`).addEventListener("keydown", event => { if (event.key === "Enter") { event.preventDefault(); addText(`list-${key}`, key); } }));
document.querySelectorAll("[data-clear]").forEach(button => button.addEventListener("click", () => { state[button.dataset.clear].clear(); say("All removed."); chosen(); }));
$("rows").addEventListener("click", event => { const button = event.target.closest("button[data-node]"); if (button) toggle(+button.dataset.node); });
const areas = D.areas.flatMap(area => area.districts.map(one => ({...one, title: D.areas.length > 1 ? `${area.name}: ${one.name}` : one.name})));
["a", "b"].forEach(key => {
  const select = $(`area-${key}`);
  if (!select) return;
  option(select, "", "choose one");
  areas.forEach((one, k) => option(select, k, one.title));
  select.addEventListener("input", () => {
    if (select.value === "") return;
    state[key] = new Map(areas[+select.value].units.map(i => [i, 1]));
    say(`The ${state[key].size.toLocaleString("en-US")} units of ${areas[+select.value].title} chosen.`);
    chosen();
  });
});

// -- what is found of them ---------------------------------------------------------------------------------------------------
const confidence = () => D.errors === null ? D.confidence : +$("confidence").value;
if (D.errors !== null) {
  [...new Set([D.confidence, 0.9, 0.95, 0.99])].sort().forEach(c => option($("confidence"), c, `${+(100 * c).toPrecision(6)} %`));
  $("confidence").value = D.confidence;
  $("confidence").addEventListener("input", () => find());
}
document.querySelectorAll("input[name=kind]").forEach(one => one.addEventListener("input", () => find()));
const kindNow = () => document.querySelector("input[name=kind]:checked").value;
const twice = nodes => {
  for (const i of nodes.keys()) for (let k = D.parent[i]; k >= 0; k = D.parent[k]) if (nodes.has(k)) return `${titleOf(i)} lies in ${titleOf(k)} and is counted twice.`;
  return "";
};
const less = (a, b) => { const found = new Map(a); for (const [i, amount] of b) found.set(i, (found.get(i) ?? 0) - amount); return found; };
const nBelow = D.parent.reduce((found, k) => { if (k >= 0) found[k]++; return found; }, new Array(D.parent.length).fill(0));
// Whether the whole counts every unit at least as often as the part does: where all children are looked at, their parent need not be.
const holds = (whole, part) => {
  const beside = less(whole, part), touched = new Map();
  const touch = k => { if (touched.has(k)) return; touched.set(k, 0); const up = D.parent[k]; if (up >= 0) { touch(up); touched.set(up, touched.get(up) + 1); } };
  [...beside.keys()].forEach(touch);
  const along = i => { let found = 0; for (let k = i; k >= 0; k = D.parent[k]) found += beside.get(k) ?? 0; return found; };
  return [...touched].every(([i, children]) => (children > 0 && children === nBelow[i]) || along(i) >= 0);
};
// As topdown query: {estimate, sd, lower, upper, note}, and what was released.
const answerOf = (kind, a, b, c) => {
  const released = nodes => [...nodes].reduce((s, [i, amount]) => s + amount * c.count[i], 0);
  const values = i => c.count[i] + (c.more[i] ?? 0), amounts = kind === "difference" ? less(a, b) : a;
  const asked = [...a.keys(), ...(kind === "difference" || kind === "share" ? b.keys() : [])];
  const count = kind === "share" ? released(a) / released(b) : kind === "total" ? released(a) / [...a.keys()].reduce((s, i) => s + total.count[i], 0) : released(amounts);
  if (sums === null || asked.some(i => i >= known)) return {estimate: null, sd: null, lower: null, upper: null, count, note: "released count, no margin"};
  const found = kind === "share" ? sums.share(a, c, values, b, null, confidence())
    : kind === "total" ? sums.share(a, c, values, null, {...total, values: i => total.count[i] + total.more[i]}, confidence())
    : sums.region(amounts, c, values, confidence(), kind === "difference");
  return {...found, count};
};
const finite = x => x === null || !Number.isFinite(x) ? null : x;
const NAMES = {sum: "The sum", difference: "The difference", share: "The share", total: "The share of the total"};
let last = null;
const find = () => {
  const kind = kindNow(), {a, b} = state, c = column();
  last = null;
  const lines = [];
  const put = (words, name) => { const p = document.createElement("p"); if (name) p.className = name; words.forEach(one => { if (typeof one === "string") p.append(one); else { const b = document.createElement("b"); b.textContent = one.bold; p.append(b); } }); lines.push(p); };
  if (!a.size) put(["Choose at least one unit to see the sum with its margin of error."]);
  else if ((kind === "difference" || kind === "share") && !b.size) put(["Choose units to compare with, too."]);
  else if (kind === "share" && !holds(b, a)) put(["A share is of a part in a whole that holds it: choose units to compare with that hold the others."]);
  else {
    const r = answerOf(kind, a, b, c), part = kind === "share" || kind === "total";
    last = {kind, ...r};
    const digits = r.sd && Number.isFinite(r.sd) ? Math.min(12, Math.max(part ? 4 : 1, 1 - Math.floor(Math.log10(r.sd)))) : part ? 4 : 0;
    const shown = (x, d = digits) => x === null || !Number.isFinite(x) ? (x === null || Number.isNaN(x) ? "unknown" : "no limit") : (part ? (100 * x).toLocaleString("en-US", {minimumFractionDigits: Math.max(d - 2, 1), maximumFractionDigits: Math.max(d - 2, 1)}) + " %" : x.toLocaleString("en-US", {maximumFractionDigits: d})).replace("-", "\u2212");
    const of = `${NAMES[kind]}, ${c.label}, of ${a.size.toLocaleString("en-US")} ${a.size === 1 ? "unit" : "units"}${kind === "difference" ? " less " : kind === "share" ? " in " : ""}${kind === "difference" || kind === "share" ? b.size.toLocaleString("en-US") : ""}`;
    if (r.estimate === null) {
      put([`${of}: `, {bold: shown(r.count)}], "number");
      put([kind === "sum" || kind === "difference" ? "Of released counts, without a margin of error." : "Of released counts, without a margin of error; it may be far off where these are small."]);
    } else {
      put([`${of}: `, {bold: shown(r.estimate)}], "number");
      if (r.note === "exact") put(["Exact: what it is made of was published without noise."]);
      else put([`With ${+(100 * confidence()).toPrecision(6)} % confidence the true ${part ? "share" : kind === "sum" ? "count" : "difference"} is between `, {bold: shown(r.lower, part ? digits : 0)}, " and ", {bold: shown(r.upper, part ? digits : 0)}, `. Standard deviation of the estimate: ${shown(r.sd, Math.max(digits, 2))}.`]);
      if (!part) put([`Of the released counts: ${shown(r.count, 0)}.`], "small");
      if (kind === "difference" && r.lower <= 0 && r.upper >= 0 && r.note !== "exact") put([{bold: "The interval holds 0: noise alone may have made this difference."}]);
      if (r.note && r.note !== "exact") put([{bold: r.note[0].toUpperCase() + r.note.slice(1) + "."}]);
    }
    const more = twice(a) || (kind === "difference" || kind === "share" ? twice(b) : "");
    if (more) put([{bold: more}]);
  }
  $("answer").replaceChildren(...lines);
};
$("download").addEventListener("click", () => {
  const c = column(), query = D.tables[state.table].name;
  const lines = ["what,geoid,name,level,query,cell,estimate,sd,lower,upper,released,confidence,note"];
  for (const [key, what] of [["a", "unit"], ["b", "unit to compare with"]])
    for (const i of state[key].keys())
      lines.push(csvLine([what, D.geoid[i], nameOf(i), D.levels[level[i]], query, c.name, c.more[i] === null ? null : c.count[i] + c.more[i], c.sd[i], lowerOf(c, i), upperOf(c, i), c.count[i], c.sd[i] === null ? null : D.confidence, ""]));
  if (last) lines.push(csvLine([last.kind === "total" ? "share of the total" : last.kind, "", "", "", query, c.name, finite(last.estimate), finite(last.sd), finite(last.lower), finite(last.upper), finite(last.count), last.sd === null ? null : confidence(), last.note]));
  saveCsv(lines, "choice.csv");
});

// What tests ask.
const each = nodes => new Map(nodes.map(i => [i, 1]));
window.topdownPage = {data: D, state, reliability: (table, k) => D.geoid.map((_, i) => reliabilityOf(D.tables[table].columns[k], i)), ask: (kind, a, b, table, k) => answerOf(kind, each(a), each(b), D.tables[table].columns[k])};
fillCells();
refresh();
chosen();
document.body.dataset.ready = "yes";
