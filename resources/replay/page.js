"use strict";
(() => {
  const by = id => document.getElementById(id);
  const data = JSON.parse(by("data").textContent);
  const SVG = "http://www.w3.org/2000/svg", total = data.steps.length, DASHED = 1e-4;
  // The same graph, folded and unfolded: each with its own boxes and arrows.
  const views = [...document.querySelectorAll("#paper > svg")].map((svg, place) => ({
    ...data.views[place], svg, ran: data.views[place].parts.map(() => 0), ways: [...svg.querySelectorAll("[data-arrow]")],
    boxes: [...svg.querySelectorAll("[data-key]")].reduce((found, part) => { found[part.dataset.key] = part; return found; }, {}),
  }));
  let view = views[data.view];
  let position = 0, playing = false, clock = 0, asked = 0, scale = 1;

  // -- words and numbers: what is shown is set as text, never as HTML

  const number = value => typeof value === "string" ? { nan: NaN, inf: Infinity, "-inf": -Infinity }[value] : value;
  function figure(given) {
    const value = number(given);
    if (value === null || value === undefined) return "–";
    if (Number.isNaN(value)) return "nan";
    if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
    const size = Math.abs(value);
    let words = "0";
    if (size >= 1e7 || size > 0 && size < 1e-3) words = value.toExponential(2).replace(/\.?0*e\+?/, "e");
    else if (size >= 100) words = Math.round(value).toLocaleString("en");
    else if (size) words = value.toPrecision(3);
    return words.replace(/-/g, "−");
  }
  function bytes(count) {
    if (count < 1024) return `${count} B`;
    const units = ["KiB", "MiB", "GiB", "TiB"];
    let value = count / 1024, unit = 0;
    while (value >= 1023.5 && unit < 3) { value /= 1024; unit += 1; }
    return `${value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0)} ${units[unit]}`;
  }
  // A share that is not quite all, or not quite nothing, is not rounded to it.
  const part = share => share > 0.999 && share < 1 ? "> 99.9 %" : share > 0 && share < 0.001 ? "< 0.1 %"
    : `${Number((100 * share).toFixed(1))} %`;
  const percent = share => share === null ? "–" : `${Math.round(100 * share)} %`.replace("-", "−");
  const finite = value => Number.isFinite(number(value));
  function make(kind, words = "", name = "") {
    const made = document.createElement(kind);
    made.textContent = words;
    if (name) made.className = name;
    return made;
  }
  function drawn(kind, attributes) {
    const made = document.createElementNS(SVG, kind);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
    return made;
  }
  const stepOf = step => `${step.name} of ${step.layer}`;

  // -- the graph

  function width(norm) {
    if (!Number.isFinite(norm)) return 3;
    return norm < DASHED ? 1 : Math.min(Math.max(1.6 + 5 * (Math.log10(norm) + 3) / 3, 1.2), 8);
  }
  function showPart(key, next) {
    const part = view.boxes[key], { count, chips } = view.parts[key], ran = view.ran;
    if (!part) return;
    part.classList.toggle("ran", ran[key] === count);
    part.classList.toggle("next", next);
    const bar = part.querySelector(".bar");
    if (bar) bar.setAttribute("width", String(Number(bar.dataset.full) * ran[key] / count));
    chips.forEach((step, place) => {
      const chip = part.querySelector(`[data-chip="${place}"]`);
      if (chip) chip.classList.toggle("freed", step !== null && step < position);
    });
  }
  function showArrow(place) {
    const arrow = view.ways[place], edges = view.arrows[place];
    const known = edges.filter(edge => edge.step < position && edge.norm !== null).map(edge => number(edge.norm));
    const reached = edges.some(edge => edge.step < position), some = known.length > 0;
    const norm = known.length > 1 ? Math.hypot(...known) : known[0];
    const wrong = some && known.some(each => !Number.isFinite(each));
    arrow.classList.toggle("reached", reached);
    arrow.classList.toggle("faint", some && norm < DASHED);
    arrow.classList.toggle("wrong", wrong);
    arrow.querySelector(".way").style.strokeWidth = `${some ? width(norm) : 1.2}px`;
    arrow.querySelector(".norm").textContent = some ? figure(norm) : reached ? "none" : "";
    const words = known.length > 1 ? `Gradient norm ${figure(norm)} of ${known.length} gradients together`
      : some ? `Gradient norm ${figure(norm)}` : reached ? "No gradient" : "No gradient has passed this edge yet";
    arrow.querySelector("title").textContent = words;
  }

  // -- going

  const next = () => position < total ? view.steps[position].keys[0] : -1;
  function showAll() {
    view.ran.fill(0);
    for (const step of view.steps.slice(0, position)) step.keys.forEach(key => { view.ran[key] += 1; });
    view.parts.forEach((_, key) => showPart(key, key === next()));
    view.arrows.forEach((_, place) => showArrow(place));
  }
  function turnTo(wanted) {
    const place = Math.max(0, Math.min(wanted, views.length - 1));
    view = views[place];
    views.forEach(one => one.svg.classList.toggle("off", one !== view));
    by("fold").disabled = place === 0;
    by("unfold").disabled = place === views.length - 1;
    showAll();
    zoom(scale);
    follow(next());
  }
  function go(wanted) {
    const before = position, touched = new Set(), changed = new Set();
    position = Math.max(0, Math.min(wanted, total));
    const sign = position > before ? 1 : -1;
    for (let place = Math.min(before, position); place < Math.max(before, position); place += 1) {
      const step = view.steps[place];
      step.keys.forEach(key => { view.ran[key] += sign; touched.add(key); });
      step.frees.forEach(key => touched.add(key));
      step.arrows.forEach(arrow => changed.add(arrow));
    }
    [before, position].forEach(place => { if (place < total) view.steps[place].keys.forEach(key => touched.add(key)); });
    const after = next();
    touched.forEach(key => showPart(key, key === after));
    changed.forEach(showArrow);
    for (let place = Math.min(before, position); place <= Math.max(before, position) && place < total; place += 1) {
      rows[place].classList.toggle("ran", place < position);
      rows[place].classList.toggle("next", place === position);
    }
    tell();
    if (position >= total) pause();
    follow(after);
  }
  function tell() {
    by("slider").value = String(position);
    by("counter").textContent = `${position} of ${total} steps have run`;
    by("held").textContent = `${bytes(data.held[position])} of ${bytes(data.held[0])} held for backward`;
    by("start").disabled = by("back").disabled = position === 0;
    by("forth").disabled = by("end").disabled = position === total;
    passed.setAttribute("width", String(position));
    head.setAttribute("x1", String(position));
    head.setAttribute("x2", String(position));
    details();
  }
  function follow(key) {
    const row = rows[Math.min(position, total - 1)], list = by("steps");
    if (row) {
      const top = row.offsetTop - list.offsetTop;
      if (top < list.scrollTop || top > list.scrollTop + list.clientHeight - 44) list.scrollTop = top - list.clientHeight / 2;
    }
    const paper = by("paper"), part = view.boxes[key];
    if (!part || typeof part.getBoundingClientRect !== "function") return;
    const [outer, inner] = [paper.getBoundingClientRect(), part.getBoundingClientRect()];
    if (inner.left < outer.left || inner.right > outer.right) paper.scrollLeft += (inner.left + inner.right - outer.left - outer.right) / 2;
    if (inner.top < outer.top || inner.bottom > outer.bottom) paper.scrollTop += (inner.top + inner.bottom - outer.top - outer.bottom) / 2;
  }
  function play() {
    if (position >= total) go(0);
    playing = total > 0;
    clock = 0;
    showPlaying();
    if (playing) asked = requestAnimationFrame(turn);
  }
  function pause() {
    playing = false;
    cancelAnimationFrame(asked);
    showPlaying();
  }
  function showPlaying() {
    by("play").classList.toggle("playing", playing);
    by("play").setAttribute("aria-label", playing ? "Pause" : "Play");
  }
  function turn(now) {
    if (!playing) return;
    const due = 1000 / Number(by("speed").value);
    if (!clock) clock = now;
    const count = Math.floor((now - clock) / due);
    if (count) {
      clock += count * due;
      go(position + count);
    }
    if (playing) asked = requestAnimationFrame(turn);
  }
  const stepTo = wanted => { pause(); go(wanted); };

  // -- what a step did

  function table(title, heads, lines) {
    const made = make("table"), first = make("tr");
    heads.forEach((words, place) => first.append(make("th", words, place ? "number" : "")));
    made.append(first);
    for (const line of lines) {
      const row = make("tr");
      line.forEach((cell, place) => {
        const words = typeof cell === "object" ? cell.words : cell;
        row.append(make("td", words, [place ? "number" : "", typeof cell === "object" ? cell.look : ""].join(" ").trim()));
      });
      made.append(row);
    }
    return [make("h2", title), made];
  }
  const normOf = stats => stats ? { words: figure(stats.norm), look: finite(stats.norm) ? "" : "bad" } : "none";
  const more = stats => stats ? [stats.shape, part(stats.zeros)] : ["", ""];

  function details() {
    const panel = by("details"), place = Math.max(0, position - 1), step = data.steps[place];
    if (!step) { panel.replaceChildren(make("p", "No step was played.", "quiet")); return; }
    const next = position < total && position ? `Next: ${stepOf(data.steps[position])}` : "";
    const found = [
      make("div", position ? `Step ${position} has run` : "Runs first", "when"),
      make("div", step.name, "title"),
      make("div", [step.layer, step.line === null ? "" : `line ${step.line}`, ...step.parameters].filter(Boolean).join(" · "), "quiet"),
    ];
    if (step.code) found.push(make("code", step.code));
    found.push(...table("Arriving", ["output", "norm", "shape", "zeros"],
      step.arriving.map((stats, nr) => [String(nr), normOf(stats), ...more(stats)])));
    for (const sum of step.sums) {
      if (!sum.shares.length) { found.push(make("p", `${sum.edges} gradients are summed before output ${sum.output}.`, "quiet")); continue; }
      found.push(...table(`A sum before output ${sum.output}: norm ${figure(sum.norm)}`, ["from", "norm", "share", "cosine"],
        sum.shares.map(share => [share.from, figure(share.norm), percent(share.share), share.cosine === null ? "–" : share.cosine.toFixed(2).replace("-", "−")])));
      found.push(make("p", "The share is the part of the sum that points this way; the cosine is to the largest of the others.", "quiet"));
    }
    if (step.leaving.length) {
      found.push(...table("Leaving", ["to", "norm", "shape", "zeros"],
        step.leaving.map(edge => [edge.to, normOf(edge.stats), ...more(edge.stats)])));
    }
    if (step.inside.length) {
      found.push(...table("Written by the node itself", ["parameter", "norm"], step.inside.map(one => [one.name, normOf(one.stats)])));
    }
    if (step.saved.length) {
      found.push(...table("Saved for backward", ["tensor", "shape", "bytes"], step.saved.map(saved => {
        const gone = saved.freed !== null && saved.freed < position;
        return [{ words: saved.name, look: gone ? "freed" : "" }, `${saved.shape} ${saved.dtype}`, saved.kind === "activation" ? bytes(saved.bytes) : saved.kind];
      })));
    }
    const words = [`${figure(step.seconds * 1000)} ms`, step.released ? `frees ${bytes(step.released)}` : "frees nothing"];
    if (step.edited.length) words.push("its gradient was edited by hand");
    if (step.hooked.length) words.push("a hook replaced its gradient");
    found.push(make("p", `${words.join(", ")}.`, "quiet"));
    if (next) found.push(make("p", next, "quiet"));
    panel.replaceChildren(...found);
  }

  // -- the list, the tape and its memory curve

  const rows = data.steps.map((step, place) => {
    const row = make("li"), what = make("span", "", "what"), norm = step.norm;
    what.append(make("span", step.name), make("span", step.layer, "where"));
    row.append(make("span", String(place + 1), "number"), what, make("span", norm === null ? "none" : figure(norm), norm === null || finite(norm) ? "norm" : "norm bad"));
    row.addEventListener("click", () => stepTo(place + 1));
    return row;
  });
  by("steps").append(...rows);

  const tape = by("tape"), most = Math.max(1, data.held[0]), TOP = 26, HIGH = 84;
  tape.setAttribute("viewBox", `0 0 ${Math.max(1, total)} ${HIGH}`);
  const level = held => TOP + 4 + (HIGH - TOP - 6) * (1 - held / most);
  for (const turn of data.turns) {
    const cell = drawn("rect", { class: `cell ${turn.category}`, x: turn.first, y: 0, width: turn.end - turn.first, height: TOP });
    cell.append(drawn("title", {}));
    cell.firstChild.textContent = `${turn.title}: steps ${turn.first + 1} to ${turn.end}`;
    tape.append(cell);
  }
  const passed = drawn("rect", { class: "passed", x: 0, y: 0, width: 0, height: TOP });
  const stairs = data.held.map((held, place) => `${place ? `H${place}V` : "M0 "}${level(held).toFixed(1)}`).join("");
  const head = drawn("line", { class: "head", x1: 0, x2: 0, y1: 0, y2: HIGH });
  tape.append(passed, drawn("path", { class: "area", d: `${stairs}V${HIGH}H0Z` }), drawn("path", { class: "edge", d: stairs }), head);
  tape.addEventListener("click", event => {
    const room = tape.getBoundingClientRect();
    stepTo(Math.round((event.clientX - room.left) / room.width * total));
  });

  // -- controls

  by("slider").max = String(total);
  by("slider").addEventListener("input", () => stepTo(Number(by("slider").value)));
  by("start").addEventListener("click", () => stepTo(0));
  by("back").addEventListener("click", () => stepTo(position - 1));
  by("play").addEventListener("click", () => playing ? pause() : play());
  by("forth").addEventListener("click", () => stepTo(position + 1));
  by("end").addEventListener("click", () => stepTo(total));
  views.forEach((one, level) => {
    const first = new Map();
    one.steps.forEach((step, place) => { if (!first.has(step.keys[0])) first.set(step.keys[0], place + 1); });
    for (const [key, step] of first) {
      if (one.boxes[key]) one.boxes[key].addEventListener("click", () => stepTo(step));
    }
    for (const part of Object.values(one.boxes)) {
      const change = part.classList.contains("folded") ? 1 : part.classList.contains("group") ? -1 : 0;
      if (change) part.addEventListener("dblclick", () => turnTo(level + change));
    }
  });
  function zoom(wanted) {
    const graph = view.svg, box = graph.viewBox.baseVal;
    scale = Math.max(0.1, Math.min(wanted, 4));
    graph.setAttribute("width", String(Math.round(box.width * scale)));
    graph.setAttribute("height", String(Math.round(box.height * scale)));
  }
  function fit() {
    const paper = by("paper"), box = view.svg.viewBox.baseVal;
    zoom(Math.min(1.25, (paper.clientWidth - 18) / box.width, (paper.clientHeight - 18) / box.height));
  }
  by("larger").addEventListener("click", () => zoom(scale * 1.25));
  by("smaller").addEventListener("click", () => zoom(scale / 1.25));
  by("fit").addEventListener("click", fit);
  by("fold").addEventListener("click", () => turnTo(views.indexOf(view) - 1));
  by("unfold").addEventListener("click", () => turnTo(views.indexOf(view) + 1));
  by("levels").classList.toggle("none", views.length < 2);
  function turnTheme() {
    const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = (root.dataset.theme || (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
  }
  by("theme").addEventListener("click", turnTheme);
  const keys = {
    " ": () => playing ? pause() : play(), ArrowLeft: () => stepTo(position - 1), ArrowRight: () => stepTo(position + 1),
    Home: () => stepTo(0), End: () => stepTo(total), "+": () => zoom(scale * 1.25), "-": () => zoom(scale / 1.25), 0: fit, t: turnTheme,
    f: () => turnTo(views.indexOf(view) - 1), u: () => turnTo(views.indexOf(view) + 1),
  };
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
    if (event.key === " " && event.target.tagName === "BUTTON") return;  // it presses the button
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  fit();
  if (scale < 0.5) zoom(0.5);  // small enough to look round in, large enough to read; what runs is scrolled to
  turnTo(data.view);
  go(Math.floor(Number(location.hash.slice(1))) || 0);
})();
