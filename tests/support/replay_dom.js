// Runs the script of a replay in node, on just as much of a document as it asks for; prints what can be seen as JSON.
// Usage: node replay_dom.js DATA.json SCRIPT.js PARTS POSITION ...  Each position is gone to with the slider.
"use strict";
const fs = require("fs");
const [data, script, layout, ...positions] = process.argv.slice(2);
const parts = JSON.parse(fs.readFileSync(layout, "utf8"));

class Element {
  constructor(tag) {
    this.tagName = tag.toUpperCase();
    this.children = []; this.attributes = {}; this.dataset = {}; this.style = {}; this.listeners = {}; this.names = new Set();
    this.words = ""; this.clientWidth = 900; this.clientHeight = 600; this.offsetTop = 0; this.scrollTop = 0;
    this.viewBox = { baseVal: { width: 1000, height: 500 } };
    this.classList = { toggle: (name, on) => (on ? this.names.add(name) : this.names.delete(name)), contains: name => this.names.has(name) };
  }
  get textContent() { return this.words + this.children.map(child => child.textContent).join(""); }
  set textContent(words) { this.words = String(words); this.children = []; }
  set innerHTML(_) { throw new Error("HTML is written"); }
  get firstChild() { return this.children[0]; }
  append(...found) { this.children.push(...found); }
  replaceChildren(...found) { this.words = ""; this.children = found; }
  setAttribute(name, value) { this.attributes[name] = value; }
  addEventListener(name, does) { (this.listeners[name] ||= []).push(does); }
  emit(name, event = {}) { (this.listeners[name] || []).forEach(does => does({ preventDefault() {}, target: this, ...event })); }
  getBoundingClientRect() { return { left: 0, top: 0, right: 10, bottom: 10, width: 10, height: 10 }; }
  querySelector(wanted) { return (this.inside ||= {})[wanted] || this.known(wanted); }
  known(wanted) {
    if (wanted === ".bar" && !this.bar) return null;
    const made = this.inside[wanted] = new Element("g");
    if (wanted === ".bar") made.dataset.full = "100";
    return made;
  }
}
const ids = {};
const by = id => ids[id] ||= new Element("div");
by("data").textContent = fs.readFileSync(data, "utf8");
by("speed").value = "1000";
let made = [], arrows = [];  // of the view that is seen
const views = parts.map(({ keys, arrows: numbers }) => {
  const boxes = Object.entries(keys).map(([key, folded]) => Object.assign(new Element("g"), { dataset: { key }, bar: folded }));
  boxes.filter(part => part.bar).forEach(part => part.names.add("folded"));
  const ways = numbers.map(number => Object.assign(new Element("g"), { dataset: { arrow: String(number) } }));
  return Object.assign(new Element("svg"), { boxes, ways, querySelectorAll: wanted => (wanted.includes("data-key") ? boxes : ways) });
});
const root = new Element("html"), frames = [], page = new Element("document");
const document = Object.assign(page, {
  documentElement: root, getElementById: by, createElement: tag => new Element(tag), createElementNS: (_, tag) => new Element(tag),
  querySelectorAll: () => views,
});
const shown = () => {
  const seen = views.find(view => !view.names.has("off"));
  [made, arrows] = [seen.boxes, seen.ways];
  return look();
};
const look = () => ({
  view: views.findIndex(view => !view.names.has("off")), fold: [by("fold").disabled, by("unfold").disabled],
  ran: made.filter(part => part.names.has("ran")).map(part => part.dataset.key),
  next: made.filter(part => part.names.has("next")).map(part => part.dataset.key),
  freed: made.flatMap(part => Object.entries(part.inside || {}).filter(([, chip]) => chip.names.has("freed")).map(([name]) => [part.dataset.key, name])),
  norms: arrows.map(arrow => arrow.querySelector(".norm").textContent),
  widths: arrows.map(arrow => arrow.querySelector(".way").style.strokeWidth),
  reached: arrows.map(arrow => arrow.names.has("reached")),
  rows: by("steps").children.map(row => [row.names.has("ran"), row.names.has("next"), row.textContent]),
  details: by("details").children.map(child => child.textContent),
  counter: by("counter").textContent, held: by("held").textContent, head: by("tape").children.at(-1).attributes.x1,
  playing: by("play").attributes["aria-label"] || "Play", theme: root.dataset.theme || "",
});
new Function("document", "matchMedia", "location", "requestAnimationFrame", "cancelAnimationFrame", fs.readFileSync(script, "utf8"))(
  document, () => ({ matches: true }), { hash: "" }, does => frames.push(does), () => frames.splice(0));
const told = [];
for (const position of positions) {
  if (position === "play") {
    page.emit("keydown", { key: " ", target: root });
    for (let now = 1; frames.length && now < 1e6; now += 5) frames.shift()(now);
  } else if (/^\d+$/.test(position)) {
    by("slider").value = position;
    by("slider").emit("input");
  } else page.emit("keydown", { key: position, target: root });
  told.push(shown());
}
console.log(JSON.stringify(told));
