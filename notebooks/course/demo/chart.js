// A plotly figure that follows the widget's `figure`; the lines before these have loaded the library.
const SETTINGS = { displayModeBar: false, responsive: false, showTips: false };

function render({ model, el }) {
  const place = document.createElement("div");
  el.append(place);
  const paint = () => {
    const { data, layout } = structuredClone(model.get("figure"));
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", model.get("words"));
    globalThis.Plotly.react(place, data, layout, SETTINGS);
  };
  paint();
  model.on("change:figure", paint);
  return () => globalThis.Plotly.purge(place);
}

export default { render };
