// Replaces each chart by one with a cursor; without this script the drawn chart stays.
"use strict";
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function draw(figure) {
  const box = figure.querySelector("svg");
  const given = JSON.parse(figure.dataset.chart);
  const times = given.levels.map((_, i) => given.start + (i + 0.5) * given.step);
  const [from, to] = given.span;
  const levels = [...given.levels];
  if (to > times[times.length - 1]) { times.push(to); levels.push(null); }
  const shade = chart => {
    const context = chart.ctx, { top, height } = chart.bbox;
    const x = time => chart.valToPos(time, "x", true);
    context.save();
    context.fillStyle = colour("--bar");
    context.globalAlpha = 0.22;
    context.fillRect(x(from), top, x(to) - x(from), height);
    context.globalAlpha = 1;
    context.strokeStyle = colour("--warn");
    context.setLineDash([4, 3]);
    for (const [at] of given.marks) {
      if (at < given.start) continue;
      context.beginPath(); context.moveTo(x(at), top); context.lineTo(x(at), top + height); context.stroke();
    }
    context.restore();
  };
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 } };
  const holder = document.createElement("div");
  new uPlot({
    width: figure.clientWidth, height: 150, tzDate: ts => uPlot.tzDate(new Date(ts * 1e3), "UTC"),
    series: [{}, { label: given.unit || given.title, stroke: colour("--c1"), width: 2, spanGaps: false }],
    axes: [{ ...axis, values: (_, at) => at.map(t => new Date(t * 1e3).toISOString().slice(5, 10)) }, { ...axis, size: 60 }], hooks: { drawClear: [shade] },
  }, [times, levels], holder);
  box.replaceWith(holder);
}

for (const figure of document.querySelectorAll("figure[data-chart]")) draw(figure);
