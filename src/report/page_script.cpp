// The page's script. Texts of runs reach the page as text only, never as markup.
#include "report/page_assets.h"

namespace lockstep::detail {

const char* const kPageScript = R"js(
(() => {
  'use strict';
  const names = [...document.querySelectorAll('.switch .name')].map(name => name.textContent);
  const make = (kind, classes, text = '') => {
    const element = document.createElement(kind);
    element.className = classes;
    element.textContent = text;
    return element;
  };
  const makeSvg = (kind, attributes) => {
    const element = document.createElementNS('http://www.w3.org/2000/svg', kind);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const tip = document.body.appendChild(make('div', 'tip'));
  tip.hidden = true;

  const numbers = text => text.split(' ').map(Number);
  const isShown = run => document.getElementById('run-' + run).checked;

  // Index of the value that is nearest to `wanted`; values ascend.
  const nearest = (values, wanted) => {
    let low = 0, high = values.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] < wanted) low = middle + 1; else high = middle;
    }
    return low > 0 && wanted - values[low - 1] < values[low] - wanted ? low - 1 : low;
  };

  // What stands at the place `wanted` of the axis, of each run that is shown.
  const found = (series, axis, wanted) => series.filter(one => isShown(one.run) && one.step.length > 0).map(one => {
    const index = nearest(one[axis], wanted);
    return {run: one.run, at: one[axis][index], step: one.step[index], value: one.value[index]};
  });

  const placeTip = event => {
    const beyond = event.clientX + 24 + tip.offsetWidth > innerWidth;
    tip.style.left = (beyond ? event.clientX - 16 - tip.offsetWidth : event.clientX + 16) + 'px';
    tip.style.top = Math.max(8, Math.min(event.clientY + 12, innerHeight - tip.offsetHeight - 8)) + 'px';
  };

  const colours = run => 'r' + run + ' c' + run % 8 + ' d' + Math.floor(run / 8) % 3;

  const fillTip = points => {
    tip.replaceChildren(make('div', 'head', 'step ' + [...new Set(points.map(point => point.step))].join(', ')));
    for (const point of points) {
      const line = tip.appendChild(make('div', ''));
      line.append(make('span', 'swatch ' + colours(point.run)), make('span', 'name', names[point.run]),
                  make('b', '', String(Number(point.value.toPrecision(6)))));
    }
  };

  const watch = (svg, series) => {
    const [left, top, right, bottom] = numbers(svg.dataset.box);
    const [first, last] = numbers(svg.dataset.across), [low, high] = numbers(svg.dataset.up);
    const scale = svg.dataset.log ? Math.log : value => value;
    const across = value => left + (right - left) * (value - first) / (last - first);
    const up = value => bottom - (bottom - top) * (scale(value) - scale(low)) / (scale(high) - scale(low));
    const marks = svg.appendChild(makeSvg('g', {}));
    const leave = () => { tip.hidden = true; marks.replaceChildren(); };
    svg.addEventListener('pointerleave', leave);
    svg.addEventListener('pointermove', event => {
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
      const wanted = first + (last - first) * (Math.min(Math.max(x, left), right) - left) / (right - left);
      const points = found(series, svg.dataset.axis, wanted);
      if (points.length === 0) return leave();
      const here = across(wanted);
      marks.replaceChildren(makeSvg('line', {class: 'here', x1: here, x2: here, y1: top, y2: bottom}));
      for (const point of points)
        marks.append(makeSvg('circle', {class: 'spot ' + colours(point.run), cx: across(point.at), cy: up(point.value), r: 4}));
      fillTip(points);
      tip.hidden = false;
      placeTip(event);
    });
  };

  for (const figure of document.querySelectorAll('figure.chart')) {
    const {series} = JSON.parse(figure.querySelector('script.points').textContent);
    for (const svg of figure.querySelectorAll('svg')) watch(svg, series);
  }
})();
)js";

}  // namespace lockstep::detail
