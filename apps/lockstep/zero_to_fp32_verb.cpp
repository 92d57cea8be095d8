#include "zero_to_fp32_verb.h"

#include <lockstep/formats/checkpoint_tools.h>

#include "either_name.h"

CLI::App* add_zero_to_fp32(CLI::App& app, ZeroToFp32Flags& flags) {
  auto* verb = app.add_subcommand(
      "zero-to-fp32", "Make weights in float32 of a checkpoint of DeepSpeed, or of a .ckpt folder");
  verb->alias("zero_to_fp32");
  verb->add_option("FOLDER", flags.folder,
                   "What DeepSpeed saved to, or one of its checkpoints (global_stepN)")
      ->required();
  verb->add_option(
          "OUTPUT", flags.output,
          "NAME.safetensors, NAME.pt, or a folder for model.safetensors in files of --max-shard-size")
      ->required();
  verb->add_option("-t,--tag", flags.tag,
                   "Which of the folder's checkpoints (default: what the file latest says)");
  verb->add_option(either("--max-shard-size"), flags.max_shard_size,
                   "Most bytes of a file in a folder: digits and KB, MB, GB or TB (default: 5GB)");
  verb->add_flag(either("--exclude-frozen-parameters"), flags.exclude_frozen_parameters,
                 "Leave out parameters that are not trained");
  return verb;
}

int zero_to_fp32(const ZeroToFp32Flags& flags) {
  lockstep::ZeroToFp32Options options{.tag = flags.tag,
                                      .exclude_frozen_parameters = flags.exclude_frozen_parameters};
  if (!flags.max_shard_size.empty())
    options.max_shard_bytes = lockstep::parse_shard_size(flags.max_shard_size);
  lockstep::zero_to_fp32(flags.folder, flags.output, options);
  return 0;
}
