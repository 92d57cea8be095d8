// The whole page of a report: sections, style and script.
#include <algorithm>

#include <fmt/format.h>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/base/version.h>
#include <lockstep/report/report.h>

#include "report/curve.h"
#include "report/page.h"

namespace lockstep {
namespace {

using namespace detail;

// Shows values where the pointer is; the page works without it.
constexpr const char* kPageScript = R"js(
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

// CSS; colours are for eyes that tell few apart, for light and dark.
constexpr const char* kPageStyle = R"css(
:root{color-scheme:light dark;--page:#f5f6f8;--card:#fff;--ink:#1d2330;--dim:#667085;--edge:#dfe3ea;--grid:#e9ecf1;
--mark:#fff6d6;--good:#0a7d4f;--good-back:#dff5ea;--bad:#b3261e;--bad-back:#fde7e5;--open-back:#eceff4;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#c0629a;--c4:#d99000;--c5:#3a9fdb;--c6:#30343c;--c7:#a39200;
--compute:#4477aa;--communication:#ee6677;--data:#ccbb44;--checkpoint:#aa3377;--other:#c3c8d1}
@media(prefers-color-scheme:dark){:root{--page:#12151c;--card:#1a1f29;--ink:#e6e9ef;--dim:#98a2b3;--edge:#2b3240;
--grid:#272e3a;--mark:#3b3415;--good:#5fd6a4;--good-back:#143527;--bad:#ff8a80;--bad-back:#44201f;--open-back:#2a303c;
--c0:#4da3db;--c1:#f0803c;--c2:#2ec49a;--c3:#e09cc2;--c4:#f2b63d;--c5:#86cbf5;--c6:#d6dae2;--c7:#e8dc5a;
--compute:#5b8fc4;--communication:#f07a88;--data:#d8c95a;--checkpoint:#c45b98;--other:#4a5160}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,
"Noto Sans","DejaVu Sans",sans-serif}
header,main,footer{max-width:1560px;margin:0 auto;padding:0 24px}
header{padding-top:26px}
h1{font-size:24px;margin:0;overflow-wrap:anywhere;letter-spacing:-.01em}
h2{font-size:17px;margin:34px 0 12px}
h3{font-size:14px;margin:0 0 10px;overflow-wrap:anywhere}
h4{font-size:13px;margin:14px 0 6px;color:var(--dim);font-weight:600}
.subtitle{margin:2px 0 14px;color:var(--dim)}
footer{color:var(--dim);font-size:12px;padding-top:30px;padding-bottom:30px}
.card{background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:16px 18px;margin:0 0 14px}
.controls{position:sticky;top:0;z-index:2;background:var(--page);border-bottom:1px solid var(--edge);display:flex;
flex-wrap:wrap;gap:8px 28px;justify-content:space-between;padding:10px max(24px,calc(50vw - 756px))}
.switches,.axes{display:flex;flex-wrap:wrap;gap:6px 18px;max-height:30vh;overflow:auto}
label{cursor:pointer;white-space:nowrap}
input{accent-color:var(--c0);vertical-align:-2px;margin:0 6px 0 0}
.switch .name{display:inline-block;max-width:340px;overflow:hidden;text-overflow:ellipsis;vertical-align:bottom}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}
.c4{--c:var(--c4)}.c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}
.swatch{display:inline-block;width:16px;height:0;border-top:3px solid var(--c);border-radius:2px;margin:0 8px 0 0;
vertical-align:4px}
.swatch.d1{border-top-style:dashed}.swatch.d2{border-top-style:dotted}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(400px,100%),1fr));gap:14px;margin-bottom:14px}
.chart{margin:0;padding:12px 12px 8px;min-width:0}
figcaption{font-weight:600;padding:0 4px 6px;overflow-wrap:anywhere}
.hint{color:var(--dim);font-weight:400;font-size:12px;margin-left:8px}
svg{display:block;width:100%;height:auto;touch-action:pan-y}
.by-epoch{display:none}
body:has(#axis-epoch:checked) .by-epoch{display:block}
body:has(#axis-epoch:checked) .by-step{display:none}
svg text{font-size:11px;fill:var(--dim);font-variant-numeric:tabular-nums}
.up{text-anchor:end}.across{text-anchor:middle}.unit{text-anchor:end;font-style:italic}
.grid{stroke:var(--grid)}.mark{stroke:var(--edge)}
svg path{fill:none;stroke:var(--c);stroke-linejoin:round;stroke-linecap:round}
.raw{stroke-width:1.6}.smooth{display:none;stroke-width:2.2}.dots{stroke-width:4.5}
.d1 .raw,.d1 .smooth{stroke-dasharray:7 4}.d2 .raw,.d2 .smooth{stroke-dasharray:1.5 4}
body:has(#smoothing:checked) .smooth{display:inline}
body:has(#smoothing:checked) .raw:not(.alone){opacity:.28}
body:has(#smoothing:checked) .raw:not(.alone)~.dots{opacity:.28}
.here{stroke:var(--dim);stroke-dasharray:3 3}.spot{fill:var(--c);stroke:var(--card);stroke-width:1.5}
.tip{position:fixed;z-index:3;pointer-events:none;background:var(--card);border:1px solid var(--edge);border-radius:8px;
box-shadow:0 4px 14px #0003;padding:8px 11px;font-size:12px;max-width:340px}
.tip div{display:flex;align-items:center;gap:4px}
.tip .name{flex:1;overflow:hidden;text-overflow:ellipsis;white-space:nowrap;margin-right:14px}
.tip b{font-variant-numeric:tabular-nums}
.tip .head{color:var(--dim);margin-bottom:3px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;min-width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:6px 22px 6px 0;border-bottom:1px solid var(--grid);vertical-align:top}
thead th{color:var(--dim);font-weight:600;font-size:12px;vertical-align:bottom}
tbody th{font-weight:500}
tbody tr:last-child>*{border-bottom:0}
th:last-child,td:last-child{padding-right:0}
.numbers td,.numbers thead th:not(:first-child){text-align:right;white-space:nowrap}
.numbers td.word,.numbers thead th.word:not(:first-child){text-align:left}
.texts td{overflow-wrap:anywhere;min-width:90px}
.key{font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:12.5px;font-weight:400}
.differs>*{background:var(--mark)}
.differs>th{box-shadow:-8px 0 0 var(--mark);font-weight:600}
.status::before{content:"";display:inline-block;width:8px;height:8px;border-radius:50%;background:currentColor;
margin-right:7px}
.good{color:var(--good)}.bad{color:var(--bad);font-weight:600}.open{color:var(--dim)}
.bar{height:5px;border-radius:3px;background:var(--grid);margin-top:4px;min-width:110px}
.bar div{height:100%;border-radius:3px;background:var(--c,var(--compute))}
.failure{border-left:4px solid var(--bad)}
.message{font-family:ui-monospace,"DejaVu Sans Mono",monospace;background:var(--bad-back);color:var(--bad);
padding:9px 12px;border-radius:6px;overflow-wrap:anywhere;margin:0 0 12px}
.note{color:var(--dim);margin:8px 0}
.warning{color:var(--bad);font-size:12.5px;margin:6px 4px}
details>summary{cursor:pointer;font-weight:600}
details[open]>summary{margin-bottom:10px}
.card>details{margin-top:10px}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:0 0 10px;color:var(--dim);font-size:12.5px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px;vertical-align:-1px}
.times{display:flex;align-items:center;gap:12px;margin:3px 0}
.rank{width:66px;color:var(--dim);font-size:12.5px;white-space:nowrap}
.stack{flex:1;display:flex;height:22px;border-radius:5px;overflow:hidden;background:var(--grid)}
.stack div{color:#fff;font-size:11px;line-height:22px;text-align:center;overflow:hidden;min-width:1px}
.compute{background:var(--compute)}.communication{background:var(--communication)}.checkpoint{background:var(--checkpoint)}
.stack .data{color:#222}.stack .other{color:var(--ink)}.data{background:var(--data)}.other{background:var(--other)}
@media print{.controls{display:none}.card{break-inside:avoid}}
@media(max-width:600px){header,main,footer{padding-left:12px;padding-right:12px}}
)css";

std::string title_of(ComparedRuns runs, const ReportOptions& options) {
  if (!options.title.empty()) return options.title;
  std::string title;
  for (const auto& run : runs.first(std::min<std::size_t>(runs.size(), 3)))
    title += (title.empty() ? "" : ", ") + run.name;
  return runs.size() > 3 ? title + fmt::format(" and {} more", runs.size() - 3) : title;
}

// What each run's switch hides.
std::string switches_style(std::size_t runs) {
  std::string style;
  for (std::size_t run = 0; run < runs; ++run)
    style += fmt::format("body:has(#run-{0}:not(:checked)) .run.r{0}{{display:none}}\n", run);
  return style;
}

void write_head(HtmlWriter& page, const std::string& title, std::size_t runs) {
  const auto head = page.within("head");
  page.verbatim(
      "<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
      "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n");
  page.element("title", {}, title);
  const auto style = page.within("style");
  page.verbatim(kPageStyle);
  page.verbatim(switches_style(runs));
}

void write_switch(HtmlWriter& page, std::size_t run, const std::string& name) {
  const auto label = page.within("label", {{"class", "switch"}});
  page.verbatim(fmt::format("<input type=\"checkbox\" id=\"run-{}\" checked>", run));
  page.element("span", {{"class", "swatch " + run_classes(run)}});
  page.element("span", {{"class", "name"}}, name);
}

void write_controls(HtmlWriter& page, ComparedRuns runs) {
  const auto controls = page.within("nav", {{"class", "controls"}});
  {
    const auto switches = page.within("div", {{"class", "switches"}});
    for (std::size_t run = 0; run < runs.size(); ++run) write_switch(page, run, runs[run].name);
  }
  page.verbatim(
      "<div class=\"axes\"><label><input type=\"radio\" name=\"axis\" checked> step</label>"
      "<label><input type=\"radio\" name=\"axis\" id=\"axis-epoch\"> epoch</label>"
      "<label><input type=\"checkbox\" id=\"smoothing\"> smooth</label></div>\n");
}

void write_body(HtmlWriter& page, ComparedRuns runs, const std::string& title, const ReportOptions& options) {
  const auto body = page.within("body");
  {
    const auto header = page.within("header");
    page.element("h1", {}, title);
    page.element("p", {{"class", "subtitle"}},
                 fmt::format("{} run{}", runs.size(), runs.size() == 1 ? "" : "s"));
  }
  write_controls(page, runs);
  {
    const auto main = page.within("main");
    write_overview(page, runs, options.notes);
    write_failures(page, runs);
    write_curves(page, runs, selected_names(runs, options.metrics));
    write_times(page, runs);
    write_memory(page, runs);
    write_config(page, runs);
    write_environment(page, runs);
  }
  page.element("footer", {}, std::string("lockstep ") + kVersion);
  const auto script = page.within("script");
  page.verbatim(kPageScript);
}

}  // namespace

std::string report_page(const std::vector<RunRecord>& runs, const ReportOptions& options) {
  if (runs.empty()) throw ConfigError("report", {.what = "no run to report on"});
  const auto all = compared(runs);
  const auto title = title_of(all, options);
  HtmlWriter page;
  page.verbatim("<!DOCTYPE html>\n");
  {
    const auto html = page.within("html", {{"lang", "en"}});
    write_head(page, title, runs.size());
    write_body(page, all, title, options);
  }
  return page.html();
}

void write_report(const std::vector<RunRecord>& runs, const std::filesystem::path& file,
                  const ReportOptions& options) {
  write_file_atomically(file, report_page(runs, options));
}

}  // namespace lockstep
