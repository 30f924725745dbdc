// Keeps the page up to date with what the server tells of a run. What did not change is left as it is: what a reader has
// opened, hidden, zoomed or focused stays.
(() => {
  const standing = document.getElementById("standing"), told = document.getElementById("told");
  const places = {standing, contents: document.querySelector("nav ul"), content: document.querySelector("main")};
  const rows = {};
  const stale = new Set();  // figures that do not show their rows yet
  let drawing = false;

  // Make an element like another one.
  function follow(old, now) {
    if (old.matches("figure.drawn")) return followFigure(old, now);
    for (const {name, value} of [...now.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const before = [...old.childNodes];
    [...now.childNodes].forEach((node, place) => {
      const there = before[place];
      if (!there) append(old, node);
      else if (there.nodeName !== node.nodeName) replace(there, node);
      else if (node.nodeType === Node.ELEMENT_NODE) follow(there, node);
      else if (there.data !== node.data) there.data = node.data;
      before[place] = null;
    });
    for (const node of before) if (node) remove(node);
  }

  // A figure with another drawing, such as one with a logarithmic axis, keeps its legend. With another legend it is new.
  function followFigure(old, now) {
    const served = servedAs(now);
    if (served.frame !== old.served.frame) return replace(old, now);
    if (served.drawing === old.served.drawing) return;
    old.querySelector("script").textContent = served.drawing;
    old.served = served;
    stale.add(old);
  }

  function servedAs(figure) {
    const copy = figure.cloneNode(true), script = copy.querySelector("script"), drawing = script.textContent;
    script.remove();
    return {frame: copy.outerHTML, drawing};
  }

  function figuresIn(node) {
    if (node.nodeType !== Node.ELEMENT_NODE) return [];
    return node.matches("figure.drawn") ? [node] : [...node.querySelectorAll("figure.drawn")];
  }

  function append(parent, node) {
    for (const figure of figuresIn(node)) {
      figure.served = servedAs(figure);
      figures.adopt(figure);
      stale.add(figure);
      seen.observe(figure);
    }
    parent.append(node);
  }

  function remove(node) {
    for (const figure of figuresIn(node)) {
      stale.delete(figure);
      seen.unobserve(figure);
      figures.drop(figure);
    }
    node.remove();
  }

  function replace(old, now) {
    const here = document.createDocumentFragment();
    append(here, now);
    old.before(here);
    remove(old);
  }

  // Figures are drawn where they are seen, and so that drawing them again takes a fifth of the time at most.
  const seen = new IntersectionObserver(entries => {
    for (const {target, isIntersecting} of entries) target.seen = isIntersecting;
    draw();
  }, {rootMargin: "200px"});
  document.addEventListener("visibilitychange", () => draw());

  async function draw() {
    if (drawing) return;
    drawing = true;
    for (;;) {
      const figure = [...stale].find(each => each.seen && rows[each.dataset.name]);
      if (!figure || document.hidden) break;
      stale.delete(figure);
      const begun = performance.now(), first = !figure.view;
      await figures.update(figure, rows[figure.dataset.name]);
      document.documentElement.dataset.drawn = 1 + Number(document.documentElement.dataset.drawn || 0);
      if (!first) await new Promise(resume => setTimeout(resume, 4 * (performance.now() - begun)));
    }
    drawing = false;
  }

  function take(pieces) {
    for (const [name, value] of Object.entries(pieces)) {
      if (!name.startsWith("rows ")) continue;
      const figure = name.slice("rows ".length);
      rows[figure] = value;
      for (const each of document.querySelectorAll("figure.drawn")) if (each.dataset.name === figure) stale.add(each);
    }
    for (const [name, place] of Object.entries(places)) {
      if (!(name in pieces)) continue;
      const now = place.cloneNode(false);
      now.innerHTML = pieces[name];
      follow(place, now);
    }
    draw();
  }

  function say(...parts) {
    told.replaceChildren(...parts);
  }

  // The report as it was when the run ended. It can be opened after the server has gone.
  function linkTo(report) {
    const link = document.createElement("a");
    link.id = "report";
    link.href = URL.createObjectURL(new Blob([report], {type: "text/html"}));
    link.target = "_blank";
    link.textContent = "Open its report";
    return link;
  }

  const events = new EventSource("events");
  events.addEventListener("open", () => say());
  events.addEventListener("error", () => say("Nobody answers: `alray watch` has ended, or this machine sleeps. This page tries again."));
  events.addEventListener("pieces", event => take(JSON.parse(event.data)));
  events.addEventListener("end", event => {
    events.close();
    const end = JSON.parse(event.data);
    if (!end.report) return say(end.said);
    const file = document.createElement("code");
    file.textContent = end.path;
    say(`${end.said} `, linkTo(end.report), ", or the file ", file);
  });
})();
