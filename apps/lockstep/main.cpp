// The `lockstep` command: what one does with lockstep's files from a shell. It needs no LibTorch.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <optional>

#include <lockstep/base/error.h>
#include <lockstep/formats/checkpoint_tools.h>
#include <lockstep/launch/run_on_hosts.h>
#include <lockstep/report/report.h>

#include "advise_verb.h"
#include "base/system.h"
#include "demo_verb.h"
#include "doctor_verb.h"
#include "estimate_memory_verb.h"
#include "man_pages.h"
#include "pet_variables.h"
#include "refusal.h"
#include "rerun_verb.h"
#include "run_verb.h"
#include "slurm_script_verb.h"
#include "version_text.h"
#include "zero_to_fp32_verb.h"

namespace {

int inspect(const std::string& folder, const std::optional<std::string>& other) {
  if (!other) {
    std::cout << lockstep::describe_checkpoint(folder);
    return 0;
  }
  const auto lines = lockstep::compare_checkpoints(folder, *other);
  for (const auto& line : lines) std::cout << line << "\n";
  return lines.empty() ? 0 : 1;
}

struct ReportFlags {
  std::vector<std::string> runs;
  std::string output;
  lockstep::ReportOptions options;
  bool plot = false;
};

CLI::App* add_report(CLI::App& app, ReportFlags& flags) {
  auto* verb = app.add_subcommand("report", "Compare runs in a page for a browser, or in this terminal");
  verb->add_option("RUN", flags.runs, "Folders of runs")->required();
  verb->add_option("-o,--output", flags.output, "The page to write (default: report.html in the first RUN)");
  verb->add_option("--title", flags.options.title, "Heading of the page (default: the names of the runs)");
  verb->add_option("--metric", flags.options.metrics, "Draw this metric only; repeatable")
      ->allow_extra_args(false);
  verb->add_flag("!--no-notes", flags.options.notes,
                 "Say nothing of runs that were not seeded, or differently");
  verb->add_flag("--plot", flags.plot,
                 "Draw the curves in this terminal; a page is written only with --output");
  return verb;
}

int report(const ReportFlags& flags) {
  std::vector<lockstep::RunRecord> runs;
  try {
    for (const auto& folder : flags.runs) runs.push_back(lockstep::read_run(folder));
  } catch (const lockstep::IoError& error) {  // as other verbs refuse a folder that is no run's
    std::cerr << "lockstep: " << error.what() << "\n";
    return 2;
  }
  if (flags.plot) std::cout << lockstep::plot_curves(runs, flags.options, lockstep::standard_output());
  if (flags.plot && flags.output.empty()) return 0;
  const auto file =
      flags.output.empty() ? runs.front().folder / "report.html" : std::filesystem::path(flags.output);
  lockstep::write_report(runs, file, flags.options);
  std::cout << file.string() << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Tools of lockstep, distributed training for LibTorch");
  app.set_version_flag("--version", version_text());
  app.require_subcommand(1);
  app.failure_message(refusal);
  std::string folder, file, entry = "model";
  std::optional<std::string> other;

  auto* inspecting = app.add_subcommand("inspect", "Check every byte of a checkpoint and show what it holds");
  inspecting->add_option("CHECKPOINT", folder, "A .ckpt folder, or a file of torch.save or safetensors")
      ->required();
  inspecting->add_option("--diff", other,
                         "Show how this checkpoint, or run directory, differs; exit status 1 if it does");
  auto* consolidating =
      app.add_subcommand("consolidate", "Make one safetensors file of a checkpoint's tensors");
  consolidating->add_option("CHECKPOINT", folder, "A .ckpt folder")->required();
  consolidating->add_option("FILE", file, "The .safetensors file to write")->required();
  consolidating->add_option("--entry", entry, "Which of the checkpoint's entries")->capture_default_str();

  ReportFlags report_flags;
  auto* reporting = add_report(app, report_flags);
  RunFlags run_flags;
  auto* running = add_run(app, run_flags);
  auto* demonstrating = add_demo(app);
  SlurmScriptFlags slurm_flags;
  auto* scripting = add_slurm_script(app, slurm_flags);
  AdviseFlags advise_flags;
  auto* advising = add_advise(app, advise_flags);
  EstimateMemoryFlags memory_flags;
  auto* estimating = add_estimate_memory(app, memory_flags);
  ZeroToFp32Flags fp32_flags;
  auto* converting = add_zero_to_fp32(app, fp32_flags);
  RerunFlags rerun_flags;
  auto* rerunning = add_rerun(app, rerun_flags);
  DoctorFlags doctor_flags;
  auto* examining = add_doctor(app, doctor_flags);
  ManPagesFlags man_flags;
  auto* describing = add_man_pages(app, man_flags);
  auto* being_node = app.add_subcommand("node", "What lockstep run --hostfile starts on each host");

  const auto run_verb = [&] {
    if (demonstrating->parsed()) demo(demonstrating->remaining());
    if (inspecting->parsed()) return inspect(folder, other);
    if (reporting->parsed()) return report(report_flags);
    if (advising->parsed()) return advise(advise_flags, *advising);
    if (estimating->parsed()) return estimate_memory(memory_flags, *estimating);
    if (converting->parsed()) return zero_to_fp32(fp32_flags);
    if (rerunning->parsed()) return rerun(rerun_flags);
    if (examining->parsed()) return doctor(doctor_flags);
    if (describing->parsed()) return write_man_pages(man_flags, app);
    if (being_node->parsed()) return lockstep::become_node();
    if (running->parsed()) {
      take_pet_variables(*running);
      run_flags.command = running->remaining();
      if (!run_flags.command.empty()) refuse_flag_for_program(*running, run_flags.command.front());
      return run(run_flags);
    }
    if (scripting->parsed()) {
      slurm_flags.options.command = scripting->remaining();
      if (!slurm_flags.options.command.empty())
        refuse_flag_for_program(*scripting, slurm_flags.options.command.front());
      return write_slurm_script(slurm_flags);
    }
    lockstep::consolidate_checkpoint(folder, entry, file);
    return 0;
  };
  const auto parse_and_run = [&] {
    try {
      std::vector<std::string> words(argv + 1, argv + argc);
      for (const auto* verb : app.get_subcommands({})) separate_empty_values(*verb, words);
      for (const auto* verb : {running, scripting}) drop_dashes_before_program(*verb, words);
      std::ranges::reverse(words);  // as CLI11 takes them
      app.parse(std::move(words));
    } catch (const CLI::ParseError& error) {  // or what is no error: a call for help
      return app.exit(error) == 0 ? 0 : 2;
    }
    return run_verb();
  };
  try {
    const int code = parse_and_run();
    if (code == 0) lockstep::finish_standard_output();
    return code;
  } catch (const lockstep::ConfigError& error) {
    std::cerr << "lockstep: " << error.what() << "\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "lockstep: " << error.what() << "\n";
    return 1;
  }
}
