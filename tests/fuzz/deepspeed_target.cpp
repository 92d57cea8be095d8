#include <lockstep/base/error.h>
#include <lockstep/deepspeed/config.h>

#include "fuzz/target.h"

namespace lockstep::fuzz {
namespace {

constexpr const char* kTutorial = R"({
  "zero_optimization": {
    "stage": 2,
    "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "allgather_bucket_size": 2e8,
    "reduce_bucket_size": 2e8
  },
  "activation_checkpointing": {"partition_activations": true, "cpu_checkpointing": true},
  "fp16": {"enabled": true},
  "gradient_clipping": 1.0
})";

constexpr const char* kAuto = R"({ // all that can be left open
  train_batch_size: auto, 'train_micro_batch_size_per_gpu': "auto" # and so on
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": [0.9, 0.95], "eps": 1e-8}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": [1e-3, 2e-3], "warmup_num_steps": 10}},
  "bf16": {"enabled": "auto"},
  "comms_logger": {"enabled": true, "prof_ops": ["all_reduce", "all_gather"]},
  "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/d\u00e4ta\\x"}}, /* end */
})";

/// What is read is written as a text that comes back the same.
void run_deepspeed(std::span<const std::byte> input) try {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  const auto once = to_json(parse_deepspeed_config(text, "ds.json").config);
  expect(to_json(parse_deepspeed_config(once, "ds.json").config) == once, "wrote something else");
} catch (const ConfigError& error) {
  expect(std::string_view(error.what()).find("ds.json:") != std::string_view::npos ||
             std::string_view(error.what()).find(" = ") != std::string_view::npos,
         "refused without a place: " + std::string(error.what()));
}

}  // namespace

Target deepspeed_target() {
  return {
      .name = "deepspeed",
      .seeds = {kTutorial, kAuto, R"({"zero_optimization": true, "bfloat16": {"enabled": 1}, "x": null})"},
      .tokens = {"{",
                 "}",
                 "[",
                 "]",
                 ",",
                 ":",
                 "\"",
                 "'",
                 "//",
                 "#",
                 "/*",
                 "*/",
                 "\n",
                 "null",
                 "-1",
                 "0",
                 "1e999",
                 "0.5",
                 "2e8",
                 "true",
                 "auto",
                 "nvme",
                 "\\u0000",
                 "\\ud83d",
                 "\xff",
                 " ",
                 "\"stage\"",
                 "\"enabled\"",
                 "9.3e18",
                 "\"type\"",
                 "\"params\"",
                 "SGD",
                 "OneCycle",
                 "fp16",
                 "zero_optimization",
                 "thread_count",
                 "aio"},
      .memory_bytes = std::size_t{256} << 10,
      .memory_per_byte = 512,
      .run = run_deepspeed};
}

}  // namespace lockstep::fuzz
