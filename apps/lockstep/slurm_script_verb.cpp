#include "slurm_script_verb.h"

#include <iostream>

#include <lockstep/base/atomic_file.h>

#include "number_checks.h"

CLI::App* add_slurm_script(CLI::App& app, SlurmScriptFlags& flags) {
  auto& o = flags.options;
  auto* verb = app.add_subcommand(
      "slurm-script", "Write the file by which sbatch starts PROGRAM [ARGUMENTS...] on several nodes");
  verb->prefix_command();
  verb->add_option("-N,--nodes", o.nodes, "Nodes of the job")->check(whole_number(1))->capture_default_str();
  verb->add_option("--ntasks-per-node", o.ntasks_per_node, "Ranks on each node (default: one for each GPU)")
      ->check(whole_number(1));
  verb->add_option("--gpus-per-node", o.gpus_per_node, "GPUs on each node")->check(whole_number(1));
  verb->add_option("-c,--cpus-per-task", o.cpus_per_task, "Processors of each rank")->check(whole_number(1));
  verb->add_option("--mem", o.mem, "Memory on each node: 16G");
  verb->add_option("-t,--time", o.time, "Limit: MINUTES, HOURS:MINUTES:SECONDS or DAYS-HOURS");
  verb->add_option("--signal", o.signal,
                   "What tells the program so many seconds before the limit to save and to start again; none")
      ->capture_default_str();
  verb->add_flag("--no-requeue", flags.no_requeue, "Let SLURM never start the job again");
  verb->add_option("-p,--partition", o.partition, "Partition");
  verb->add_option("-A,--account", o.account, "Account");
  verb->add_option("-q,--qos", o.qos, "Quality of service");
  verb->add_option("-C,--constraint", o.constraint, "Features that nodes must have");
  verb->add_option("-J,--job-name", o.job_name, "Name of the job (default: that of the program)");
  verb->add_option("-a,--array", o.array, "Numbers of an array's tasks: 0-3");
  verb->add_option("--logs", o.logs,
                   "Folder for what the job writes; it is made (default: where sbatch runs)");
  verb->add_option("--setup", o.setup, "A line of shell to run before the program; repeatable")
      ->allow_extra_args(false);
  verb->add_option("-o,--output", flags.output, "The file to write (default: standard output)");
  return verb;
}

int write_slurm_script(const SlurmScriptFlags& flags) {
  auto options = flags.options;
  options.requeue = !flags.no_requeue;
  const auto text = lockstep::slurm_script(options);
  if (!options.logs.empty()) lockstep::create_folders(options.logs);
  if (flags.output.empty()) {
    std::cout << text;
  } else {
    lockstep::write_file_atomically(flags.output, text);
  }
  return 0;
}
