// Draws every figure of the page with Vega-Lite, in the colours of page.css, and again when these change.
// The legend hides and shows series; buttons and the slider move along the axes; a figure is saved as SVG or CSV.
(() => {
  const {theme, light} = JSON.parse(document.getElementById("theme").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const figures = document.querySelectorAll("figure.drawn");

  // A drawing with colours in the place of their names, such as --ink. The rows are left as they are. legends: whether it
  // keeps its own; a page has others.
  function coloured(value, colour, legends) {
    if (typeof value === "string") return /^--\w+$/.test(value) ? colour(value) || value : value;
    if (Array.isArray(value)) return value.map(each => coloured(each, colour, legends));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, each]) =>
      [key, key === "datasets" ? each : key === "legend" && !legends ? null : coloured(each, colour, legends)]));
  }

  function hidden(figure) {
    return [...figure.querySelectorAll(".legend button[aria-pressed=false]")].map(button => button.value);
  }

  // What a mark tells, without the fields that it does not have. text: makes a value safe to stand in the page.
  function told(fields, text) {
    const known = Object.entries(fields).filter(([, value]) => value !== "null" && value !== "undefined");
    const line = ([name, value]) => `<tr><td class="key">${text(name)}</td><td class="value">${text(value)}</td></tr>`;
    return `<table><tbody>${known.map(line).join("")}</tbody></table>`;
  }

  async function draw(figure) {
    const spec = JSON.parse(figure.querySelector("script").textContent);
    const config = {...theme, background: "transparent"};
    const autosize = {type: "fit", contains: "padding"};
    const sized = {...spec, width: "container", height: Number(figure.dataset.height), autosize, config};
    const style = getComputedStyle(document.documentElement);
    const drawn = await vegaEmbed(
      figure.querySelector(".drawing"), coloured(sized, name => style.getPropertyValue(name).trim(), false),
      {actions: false, renderer: "svg", tooltip: {theme: dark.matches ? "dark" : "light", formatTooltip: told}});
    if (figure.view) figure.view.finalize();
    figure.view = drawn.view;
    figure.spec = spec;
    // The axes that move, and the signal of each: a pair of values, null for all of the axis.
    figure.axes = (drawn.vgSpec.scales || []).filter(scale => scale.domainRaw).map(scale =>
      ({name: scale.name, signal: scale.domainRaw.signal.replace(/^zoom\["(.*)"\]$/, "zoom_$1")}));
    for (const button of figure.querySelectorAll("[data-act]")) button.hidden = figure.axes.length === 0;
    const along = figure.axes.find(axis => axis.name === "x");
    if (figure.querySelector("[type=range]") && along) {
      figure.view.addSignalListener(along.signal, (signal, shown) => follow(figure, shown));
      follow(figure, figure.view.scale("x").domain());
    }
    show(figure);
  }

  function show(figure) {
    if (figure.querySelector(".legend button")) figure.view.signal("hidden", hidden(figure)).runAsync();
  }

  // What each button does: the pixels that become the ends of the axes, as shares of their lengths.
  const ends = {in: [0.25, 0.75], out: [-0.5, 1.5], left: [-0.25, 0.75], right: [0.25, 1.25]};

  function act(figure, name) {
    for (const axis of figure.axes) {
      const scale = figure.view.scale(axis.name), [start, end] = scale.range();
      const stays = (name === "left" || name === "right") && axis.name !== "x";
      const at = stays ? [0, 1] : ends[name];
      figure.view.signal(axis.signal, at ? at.map(share => scale.invert(start + share * (end - start))) : null);
    }
    figure.view.runAsync();
  }

  // The slider and the horizontal axis follow each other. shown: from where to where, null for all.
  function follow(figure, shown) {
    const slider = figure.querySelector("[type=range]");
    const [start, end] = shown || [Number(slider.min), Number(slider.dataset.end)];
    slider.max = Math.max(Number(slider.min), Number(slider.dataset.end) - (end - start));
    slider.value = start;
    slider.ariaValueText = `from ${start.toFixed(1)} to ${end.toFixed(1)} ms`;
  }

  function scrub(figure, slider) {
    const [start, end] = figure.view.scale("x").domain(), at = Number(slider.value);
    const axis = figure.axes.find(each => each.name === "x");
    figure.view.signal(axis.signal, [at, at + end - start]).runAsync();
  }

  // As a file the drawing is in the colours of light, on white, with its legends.
  async function svg(figure) {
    const title = figure.querySelector("figcaption").textContent;
    const size = {width: Number(figure.dataset.width), height: Number(figure.dataset.height)};
    const spec = {...figure.spec, ...size, title, background: "--paper", config: theme};
    const drawn = await vegaEmbed(
      document.createElement("div"), coloured(spec, name => light[name], true), {actions: false, renderer: "svg"});
    if (figure.querySelector(".legend button")) await drawn.view.signal("hidden", hidden(figure)).runAsync();
    const text = await drawn.view.toSVG();
    drawn.view.finalize();
    return text;
  }

  function csv(rows) {
    const head = [...new Set(rows.flatMap(Object.keys))];
    const field = value => /[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
    return [head, ...rows.map(row => head.map(key => row[key] ?? ""))]
      .map(line => line.map(each => field(String(each))).join(",") + "\n").join("");
  }

  function save(figure, ending, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], {type: ending === "svg" ? "image/svg+xml" : "text/csv"}));
    link.download = `${figure.dataset.name}.${ending}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function adopt(figure) {
    for (const button of figure.querySelectorAll(".legend button")) {
      button.addEventListener("click", () => {
        button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") === "true" ? "false" : "true");
        show(figure);
      });
    }
    for (const button of figure.querySelectorAll("[data-act]")) {
      button.addEventListener("click", () => act(figure, button.dataset.act));
    }
    figure.querySelector("[data-file=svg]").addEventListener("click", async () =>
      save(figure, "svg", await svg(figure)));
    figure.querySelector("[data-file=csv]").addEventListener("click", () => save(figure, "csv", csv(figure.spec.datasets.rows)));
    const slider = figure.querySelector("[type=range]");
    if (slider) {
      slider.dataset.end = slider.max;
      slider.addEventListener("input", () => scrub(figure, slider));
    }
  }

  async function drawAll() {
    for (const figure of figures) await draw(figure);
    document.documentElement.dataset.drawn = figures.length;
  }
  figures.forEach(adopt);
  drawAll();
  dark.addEventListener("change", drawAll);
})();
