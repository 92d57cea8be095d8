// What the program of a page (tools/page_blocks.py) has beside the page's blocks: its main().
#pragma once

#include <lockstep/lockstep.h>

#include <fstream>
#include <iostream>
#include <map>
#include <numeric>
#include <string>

#include "sim/sim_accelerator.h"

namespace ls = lockstep;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

/// `PROGRAM N.M` runs body M of block N, `PROGRAM --list` prints which there are. With flags of ls::run(), it
/// is the program that the page's commands call ./train: it makes a Trainer and trains.
inline int run_page(int argc, char** argv, const std::map<std::string, void (*)()>& blocks,
                    void (*train)(ls::Trainer& trainer)) {
  ls::sim::register_sim();  // stands for GPUs
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "--list") {
    for (const auto& [name, body] : blocks) std::cout << name << '\n';
    return 0;
  }
  if (const auto block = blocks.find(first); block != blocks.end()) return ls::run_rank(block->second);
  return ls::run(argc, argv, {.name = "train"}, [&](ls::Cli& cli) {
    ls::Trainer trainer(cli.trainer());
    train(trainer);
  });
}
