"use strict";
// All that is shown is in #data; nothing is fetched.  Texts enter the page as text, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function element(tag, attributes = {}, ...children) {
  const drawn = tag.startsWith("svg:");
  const made = drawn ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
const number = (x) => (Math.abs(x) >= 1e5 || (x !== 0 && Math.abs(x) < 1e-3) ? x.toExponential(2) : String(+x.toPrecision(4)));
const plural = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

// ---- head
byId("title").textContent = data.title;
document.title = `${data.title} (Dagora report)`;
byId("summary").textContent = data.summary;
if (data.warnings.length) {
  byId("warnings").hidden = false;
  byId("warnings").append(...data.warnings.map((text) => element("li", {}, text)));
}

// ---- threshold: a slider over |weight|, whose left end shows all that the method left
const largest = Math.max(...data.edges.map((e) => Math.abs(e.weight)), 1e-12);
const slider = byId("threshold");
let threshold = data.threshold;
const shown = (edge) => (edge.learned && threshold === data.threshold) || Math.abs(edge.weight) > threshold;
slider.value = Math.round((1000 * threshold) / largest);
slider.disabled = data.edges.length === 0;

// ---- graph
const svg = byId("graph");
const view = element("svg:g");
const edgeLayer = element("svg:g"), nodeLayer = element("svg:g");
view.append(edgeLayer, nodeLayer);
svg.append(view);
const HEIGHT = 30;
const longest = Math.min(Math.max(...data.names.map((name) => name.length), 3), 18);
const COLUMN = 8 * longest + 40;
const short = (name) => (name.length > 18 ? `${name.slice(0, 17)}…` : name);
const width = (name) => 8 * short(name).length + 18;
const across = Math.max(...data.places.map(([x]) => x)) - Math.min(...data.places.map(([x]) => x)) + 1;
const ROW = Math.min(Math.max(92, (0.5 * COLUMN * across) / (Math.max(...data.places.map(([, y]) => y)) + 1)), 320); // fill the stage
const at = ([x, y]) => [x * COLUMN, y * ROW];
const centre = data.places.map(at);

const nodes = data.names.map((name, k) => {
  const [x, y] = centre[k], w = width(name);
  const box = element("svg:g", { class: "node", transform: `translate(${x},${y})`, tabindex: 0, role: "button", "aria-label": name },
    element("svg:title", {}, name),
    element("svg:rect", { x: -w / 2, y: -HEIGHT / 2, width: w, height: HEIGHT, rx: 8 }),
    element("svg:text", {}, short(name)));
  box.addEventListener("click", () => select(k));
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); select(k); }
  });
  nodeLayer.append(box);
  return box;
});

// A smooth way through points, upright where it meets vertices that stand above each other.
function way(points) {
  let path = `M${points[0]}`;
  for (let k = 1; k < points.length; k++) {
    const [x0, y0] = points[k - 1], [x1, y1] = points[k], middle = (y0 + y1) / 2;
    path += `C${x0},${middle} ${x1},${middle} ${x1},${y1}`;
  }
  return path;
}
function ends(edge) {
  const [x0, y0] = centre[edge.source], [x1, y1] = centre[edge.target];
  const down = y1 > y0 + 1;
  if (down || y1 < y0 - 1) {
    const side = down ? 1 : -1;
    return { path: way([[x0, y0 + (side * HEIGHT) / 2], ...edge.bends.map(at), [x1, y1 - side * (HEIGHT / 2 + 8)]]),
      tip: [x1, y1 - (side * HEIGHT) / 2], angle: side * 90 };
  }
  const side = Math.sign(x1 - x0) || 1, lift = 18 + Math.abs(x1 - x0) / 8; // within a layer: an arc
  return { path: `M${x0},${y0 - HEIGHT / 2}Q${(x0 + x1) / 2},${y0 - HEIGHT / 2 - 2 * lift} ${x1 - side * 4},${y1 - HEIGHT / 2 - 8}`,
    tip: [x1, y1 - HEIGHT / 2], angle: 90 };
}
// Shares of bootstrap replicates: joined, this way, the other way, open.
const percent = (share) => (share === null ? "–" : `${Math.round(100 * share)}%`);
const joined = (edge) => (edge.shares ? edge.shares[0] : null);
const thisWay = (edge) => (edge.shares && edge.shares[0] ? edge.shares[1] / edge.shares[0] : null);
function told(edge) {
  const lines = [`${data.names[edge.source]} → ${data.names[edge.target]}`, `weight ${number(edge.weight)}`];
  if (edge.coefficient !== undefined) lines.push(`fitted coefficient ${number(edge.coefficient)}`);
  if (edge.shares) {
    const [together, there, back, open] = edge.shares;
    lines.push(edge.direction === "time" ? `found in ${percent(together)} of replicates`
      : `joined in ${percent(together)} of replicates: ${percent(there)} this way, ${percent(back)} the other` + (open ? `, ${percent(open)} open` : ""));
  }
  lines.push(edge.learned ? data.directions[edge.direction] : "below the threshold: not in the learned network");
  return lines.join("\n");
}
const drawn = data.edges.map((edge) => {
  const sign = data.signed ? (edge.weight < 0 ? " minus" : "") : " plain";
  const { path, tip, angle } = ends(edge);
  const width = 1 + (3 * Math.abs(edge.weight)) / largest;
  const group = element("svg:g", { class: "arrow" },
    element("svg:path", { class: `edge${sign}${edge.learned ? "" : " below"}`, d: path, "stroke-width": width }),
    element("svg:path", { class: "hit", d: path }, element("svg:title", {}, told(edge))));
  if (edge.direction !== "open" || !edge.learned) {
    group.append(element("svg:path", { class: `head${sign}${edge.direction === "assumed" ? " assumed" : ""}`, d: "M0,0L-9,4.5L-9,-4.5Z",
      "stroke-width": 1.5, transform: `translate(${tip})rotate(${angle})` }));
  }
  edgeLayer.append(group);
  return group;
});

// ---- view: drag, wheel, pinch, buttons, keys
let scale = 1, offset = [0, 0];
const apply = () => view.setAttribute("transform", `translate(${offset})scale(${scale})`);
function zoom(factor, point) {
  const box = svg.getBoundingClientRect(), [px, py] = point ?? [box.width / 2, box.height / 2];
  const next = Math.min(Math.max(scale * factor, 0.05), 6);
  offset = [px - ((px - offset[0]) * next) / scale, py - ((py - offset[1]) * next) / scale];
  scale = next;
  apply();
}
function fit() {
  const box = svg.getBoundingClientRect(), margin = 30;
  const xs = centre.map((c, k) => [c[0] - width(data.names[k]) / 2, c[0] + width(data.names[k]) / 2]).flat();
  const ys = centre.map((c) => [c[1] - HEIGHT, c[1] + HEIGHT]).flat();
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  scale = Math.min((box.width - 2 * margin) / (right - left), (box.height - 2 * margin) / (bottom - top), 1.25);
  offset = [box.width / 2 - (scale * (left + right)) / 2, box.height / 2 - (scale * (top + bottom)) / 2];
  apply();
}
const pointers = new Map();
svg.addEventListener("pointerdown", (event) => { pointers.set(event.pointerId, [event.clientX, event.clientY]); });
window.addEventListener("pointermove", (event) => {
  if (!pointers.has(event.pointerId)) return;
  const before = pointers.get(event.pointerId), now = [event.clientX, event.clientY];
  if (pointers.size === 1) {
    offset = [offset[0] + now[0] - before[0], offset[1] + now[1] - before[1]];
    apply();
  } else {
    const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    const apart = (p) => Math.hypot(p[0] - other[0], p[1] - other[1]);
    const box = svg.getBoundingClientRect();
    zoom(apart(now) / Math.max(apart(before), 1), [(now[0] + other[0]) / 2 - box.left, (now[1] + other[1]) / 2 - box.top]);
  }
  pointers.set(event.pointerId, now);
});
for (const kind of ["pointerup", "pointercancel"]) window.addEventListener(kind, (event) => pointers.delete(event.pointerId));
svg.addEventListener("wheel", (event) => {
  event.preventDefault();
  const box = svg.getBoundingClientRect();
  zoom(Math.exp(-event.deltaY / 400), [event.clientX - box.left, event.clientY - box.top]);
}, { passive: false });
byId("closer").addEventListener("click", () => zoom(1.3));
byId("farther").addEventListener("click", () => zoom(1 / 1.3));
byId("whole").addEventListener("click", fit);
const STEPS = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
svg.addEventListener("keydown", (event) => {
  if (event.key === "+" || event.key === "=") zoom(1.3);
  else if (event.key === "-") zoom(1 / 1.3);
  else if (event.key === "0") fit();
  else if (event.key in STEPS) { offset = [offset[0] + STEPS[event.key][0], offset[1] + STEPS[event.key][1]]; apply(); }
  else return;
  event.preventDefault();
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape") select(null); });
window.addEventListener("resize", fit);
window.addEventListener("beforeprint", fit);

// ---- a chosen variable: its parents, children and Markov blanket among the edges shown
let chosen = null;
function family(k) {
  const seen = data.edges.filter(shown);
  const parents = seen.filter((e) => e.target === k), children = seen.filter((e) => e.source === k);
  const below = new Set(children.map((e) => e.target));
  const spouses = new Set(seen.filter((e) => below.has(e.target) && e.source !== k).map((e) => e.source));
  for (const e of [...parents, ...children]) { spouses.delete(e.source); spouses.delete(e.target); }
  return { parents, children, spouses: [...spouses] };
}
function select(k) {
  chosen = chosen === k ? null : k;
  refresh();
}
function listed(title, entries) {
  if (!entries.length) return [element("h3", {}, title), element("p", { class: "soft" }, "none")];
  const items = entries.map(([k, weight, share]) => {
    const button = element("button", { type: "button" }, data.names[k]);
    button.addEventListener("click", () => { chosen = null; select(k); nodes[k].focus({ preventScroll: true }); });
    const text = weight === undefined ? "" : ` ${number(weight)}` + (share === undefined || share === null ? "" : `, joined in ${percent(share)}`);
    return element("li", {}, button, ...(text ? [element("span", { class: "weight" }, text)] : []));
  });
  return [element("h3", {}, `${title} (${entries.length})`), element("ul", {}, ...items)];
}
function tellChosen() {
  const panel = byId("panel");
  if (chosen === null) {
    panel.replaceChildren(element("p", { class: "soft" }, "Click a variable for its parents, children and Markov blanket; hover over an edge for its weight. Drag to move, scroll to zoom."));
    return;
  }
  const { parents, children, spouses } = family(chosen);
  const clear = element("button", { type: "button" }, "Clear");
  clear.addEventListener("click", () => select(chosen));
  panel.replaceChildren(element("h3", { id: "chosen" }, data.names[chosen]), clear,
    ...listed("Parents", parents.map((e) => [e.source, e.weight, joined(e)])),
    ...listed("Children", children.map((e) => [e.target, e.weight, joined(e)])),
    ...listed("Other parents of its children", spouses.map((k) => [k])),
    element("p", { class: "soft" }, `Markov blanket: ${plural(new Set([...parents.map((e) => e.source), ...children.map((e) => e.target), ...spouses]).size, "variable")}. Given these, the others tell nothing more about it.`));
}

// ---- search
byId("names").append(...data.names.map((name) => element("option", { value: name })));
const search = byId("search");
const matches = () => {
  const text = search.value.trim().toLowerCase();
  return text ? data.names.map((name, k) => [name.toLowerCase(), k]).filter(([name]) => name.includes(text)) : [];
};
search.addEventListener("input", () => {
  const found = new Set(matches().map(([, k]) => k));
  nodes.forEach((box, k) => box.classList.toggle("found", found.has(k)));
});
search.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  const found = matches(), exact = found.find(([name]) => name === search.value.trim().toLowerCase()) ?? found[0];
  if (!exact) return;
  chosen = null;
  select(exact[1]);
  const box = svg.getBoundingClientRect();
  scale = Math.max(scale, 0.8);
  offset = [box.width / 2 - scale * centre[exact[1]][0], box.height / 2 - scale * centre[exact[1]][1]];
  apply();
});

// ---- table of edges
const columns = [
  ["source", (e) => data.names[e.source]], ["target", (e) => data.names[e.target]], ["weight", (e) => e.weight],
  ...(data.edges.some((e) => e.coefficient !== undefined) ? [["fitted coefficient", (e) => e.coefficient ?? NaN]] : []),
  ...(data.resamples ? [["edge frequency", (e) => joined(e) ?? NaN], ["direction frequency", (e) => thisWay(e) ?? NaN]] : []),
  ["direction", (e) => (e.learned ? data.directions[e.direction] : "below the threshold")],
];
let order = { column: 2, up: false };
const head = element("tr");
columns.forEach(([title, value], k) => {
  const button = element("button", { type: "button" }, title);
  button.addEventListener("click", () => { order = { column: k, up: order.column === k ? !order.up : true }; fill(); });
  head.append(element("th", { scope: "col", class: data.edges.length && typeof value(data.edges[0]) === "number" ? "number" : null }, button));
});
byId("table").tHead.append(head);
function sorted() {
  const value = columns[order.column][1], rows = data.edges.filter(shown);
  const size = (x) => (typeof x === "number" ? (order.column === 2 ? Math.abs(x) : x) : x);
  rows.sort((a, b) => { const x = size(value(a)), y = size(value(b)); return (x < y ? -1 : x > y ? 1 : 0) * (order.up ? 1 : -1); });
  return rows;
}
function fill() {
  [...head.children].forEach((cell, k) => cell.setAttribute("aria-sort", k !== order.column ? "none" : order.up ? "ascending" : "descending"));
  byId("table").tBodies[0].replaceChildren(...sorted().map((edge) => {
    const row = element("tr", { class: edge.source === chosen || edge.target === chosen ? "chosen" : null });
    for (const [, value] of columns) {
      const content = value(edge);
      row.append(typeof content === "number" ? element("td", { class: "number" }, Number.isNaN(content) ? "" : number(content)) : element("td", {}, content));
    }
    return row;
  }));
}
byId("download").addEventListener("click", () => {
  const guarded = (x) => (/^'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/.test(x) ? `'${x}` : x); // as in cells.py: no formula
  const inQuotes = (x) => (/[",\r\n]/.test(x) ? `"${x.replaceAll('"', '""')}"` : x);
  const quoted = (x) => (typeof x === "number" ? (Number.isNaN(x) ? "" : String(x)) : inQuotes(guarded(x)));
  const lines = [columns.map(([title]) => title), ...sorted().map((edge) => columns.map(([, value]) => value(edge)))];
  const text = lines.map((line) => line.map(quoted).join(",")).join("\n") + "\n";
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: "edges.csv" });
  link.click();
  URL.revokeObjectURL(link.href);
});

// ---- all that depends on the threshold or the choice
function refresh() {
  byId("threshold-value").textContent = number(threshold);
  const near = new Set();
  if (chosen !== null) {
    const { parents, children, spouses } = family(chosen);
    for (const k of [chosen, ...parents.map((e) => e.source), ...children.map((e) => e.target), ...spouses]) near.add(k);
  }
  let count = 0, extra = 0;
  data.edges.forEach((edge, k) => {
    const visible = shown(edge);
    drawn[k].style.display = visible ? "" : "none";
    drawn[k].classList.toggle("dim", chosen !== null && edge.source !== chosen && edge.target !== chosen && !(near.has(edge.source) && near.has(edge.target)));
    if (visible) edge.learned ? count++ : extra++;
  });
  nodes.forEach((box, k) => { box.classList.toggle("chosen", k === chosen); box.classList.toggle("dim", chosen !== null && !near.has(k)); });
  byId("count").textContent = `${plural(count, "edge")} of the learned network` + (extra ? `, and ${extra} below its threshold (dotted; they may close cycles)` : "") + ".";
  tellChosen();
  fill();
}
slider.addEventListener("input", () => { threshold = (largest * slider.value) / 1000; refresh(); });
byId("reset").addEventListener("click", () => { threshold = data.threshold; slider.value = Math.round((1000 * threshold) / largest); refresh(); });

// ---- legend
function sample(kind, extra) {
  return element("svg:svg", { viewBox: "0 0 48 16", "aria-hidden": "true" },
    element("svg:path", { class: `edge ${kind}`, d: "M2,8H38", "stroke-width": 2 }),
    ...(extra === null ? [] : [element("svg:path", { class: `head ${kind} ${extra}`, d: "M0,0L-9,4.5L-9,-4.5Z", "stroke-width": 1.5, transform: "translate(46,8)" })]));
}
const legend = [];
if (data.signed) legend.push([sample("", ""), "positive effect"], [sample("minus", ""), "negative effect"]);
for (const kind of new Set(data.edges.filter((e) => e.learned).map((e) => e.direction))) {
  legend.push([sample(data.signed ? "" : "plain", kind === "open" ? null : kind === "assumed" ? "assumed" : ""), data.directions[kind]]);
}
byId("legend").append(...legend.map(([drawing, text]) => element("span", {}, drawing, ` ${text}`)));

if (data.resamples) {
  byId("resamples").hidden = false;
  byId("resamples").textContent = data.resamples;
}

// ---- curves
for (const curve of data.curves) {
  const points = curve.values.map((y, k) => [k + 1, y]).filter(([, y]) => y !== null && (!curve.log || y > 0));
  if (points.length < 2) continue;
  const up = (y) => (curve.log ? Math.log10(y) : y);
  const ys = points.map(([, y]) => up(y)), low = Math.min(...ys), high = Math.max(...ys), range = high - low || 1;
  const last = curve.values.length;
  const x = (k) => 52 + (240 * (k - 1)) / Math.max(last - 1, 1), y = (v) => 132 - (112 * (up(v) - low)) / range;
  const back = (v) => number(curve.log ? 10 ** v : v);
  const picture = element("svg:svg", { viewBox: "0 0 304 160", role: "img", "aria-label": `${curve.title}: from ${number(points[0][1])} to ${number(points.at(-1)[1])}` },
    element("svg:text", { x: 48, y: 24, "text-anchor": "end" }, back(high)), element("svg:text", { x: 48, y: 136, "text-anchor": "end" }, back(low)),
    element("svg:text", { x: 52, y: 152 }, "1"), element("svg:text", { x: 292, y: 152, "text-anchor": "end" }, `round ${last}`),
    element("svg:path", { d: "M" + points.map(([k, v]) => `${x(k).toFixed(1)},${y(v).toFixed(1)}`).join("L") }));
  byId("curves").append(element("figure", {}, picture, element("figcaption", {}, curve.title)));
}
if (!byId("curves").children.length) byId("curves").append(element("p", {}, "One exchange with the sites: nothing to converge."));

// ---- sites, ledger, settings
const most = Math.max(...data.sites.map((s) => s.rows ?? 0), 1);
const rows = data.sites.map((site) => element("tr", {}, element("td", {}, site.name),
  ...(site.rows === null ? [] : [element("td", { class: "number" }, String(site.rows)), element("td", { style: "width:40%" }, element("div", { class: "bar", style: `width:${(100 * site.rows) / most}%` }))])));
byId("site-list").append(element("p", {}, data.siteText), element("table", {}, element("tbody", {}, ...rows)));
byId("ledger").append(...data.ledger.flatMap(({ title, text }) => [element("h3", {}, title), element("p", {}, text)]));
byId("setting-table").tBodies[0].append(...data.settings.map(([name, value]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value))));

fit();
refresh();
