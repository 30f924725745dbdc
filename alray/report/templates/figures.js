// Draws every figure of the page with Vega-Lite, in the colours of page.css, and again when these change.
// An entry of the legend hides and shows the rows of its series.
(() => {
  const theme = JSON.parse(document.getElementById("theme").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");

  // A drawing with colours in the place of their names, such as --ink, and without legends, which the page has itself.
  // The rows are left as they are.
  function coloured(value, style) {
    if (typeof value === "string") return /^--\w+$/.test(value) ? style.getPropertyValue(value).trim() || value : value;
    if (Array.isArray(value)) return value.map(each => coloured(each, style));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, each]) =>
      [key, key === "datasets" ? each : key === "legend" ? null : coloured(each, style)]));
  }

  function hidden(figure) {
    return [...figure.querySelectorAll("button[aria-pressed=false]")].map(button => button.value);
  }

  async function draw(figure) {
    const spec = JSON.parse(figure.querySelector("script").textContent);
    const config = {...theme, background: "transparent"};
    const sized = {width: "container", height: 320, autosize: {type: "fit", contains: "padding"}};
    const style = getComputedStyle(document.documentElement);
    const tooltip = {theme: dark.matches ? "dark" : "light"};
    const drawn = await vegaEmbed(
      figure.querySelector(".drawing"), coloured({...spec, ...sized, config}, style),
      {actions: false, renderer: "svg", tooltip});
    if (figure.view) figure.view.finalize();
    figure.view = drawn.view;
    show(figure);
  }

  function show(figure) {
    if (figure.querySelector("button")) figure.view.signal("hidden", hidden(figure)).runAsync();
  }

  const figures = [...document.querySelectorAll("figure.drawn")];
  for (const figure of figures) {
    for (const button of figure.querySelectorAll("button")) {
      button.addEventListener("click", () => {
        button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") === "true" ? "false" : "true");
        show(figure);
      });
    }
    draw(figure);
  }
  dark.addEventListener("change", () => figures.forEach(draw));
})();
