// The page as a whole.
#include <algorithm>

#include <fmt/format.h>
#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/base/version.h>
#include <lockstep/report/report.h>

#include "report/page_assets.h"
#include "report/sections.h"
#include "report/selection.h"
#include "report/widgets.h"

namespace lockstep {
namespace {

using namespace detail;

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
    write_overview(page, runs);
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
