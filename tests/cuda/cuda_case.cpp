// What becomes of CUDA in this process: `cuda_case load` makes LibTorch able to use it, as ranks do, and
// `cuda_case cpu` trains a step on the CPU. Prints {"error", "has_plugin", "mapped": [libraries],
// "rss_bytes"}.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <lockstep/lockstep.h>
#include <lockstep/torch.h>

#include "device/cuda_plugin.h"

namespace ls = lockstep;

namespace {

void train_on_cpu() {
  ls::Fabric fabric({.accelerator = "cpu", .devices = 1});
  fabric.launch();
  auto [model, optimizer] = fabric.setup(torch::nn::Linear(64, 64), ls::AdamW{.lr = 1e-3});
  fabric.backward(model->forward(torch::randn({32, 64})).pow(2).mean());
  optimizer->step();
}

std::set<std::string> mapped_libraries() {
  std::set<std::string> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto name = line.rfind('/');
    if (name != std::string::npos && line.find(".so", name) != std::string::npos)
      found.insert(line.substr(name + 1));
  }
  return found;
}

std::int64_t resident_bytes() {
  std::int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc == 2 ? argv[1] : "";
  if (what != "load" && what != "cpu") {
    std::fputs("usage: cuda_case load|cpu\n", stderr);
    return 2;
  }
  nlohmann::json result{{"error", ""}, {"has_plugin", false}};
  try {
    if (what == "cpu") {
      train_on_cpu();
    } else {
      ls::find_accelerator("cuda")->load();
      result["has_plugin"] = lockstep::detail::load_cuda_plugin() != nullptr;
    }
  } catch (const std::exception& error) {
    result["error"] = error.what();
  }
  result["mapped"] = mapped_libraries();
  result["rss_bytes"] = resident_bytes();
  std::puts(result.dump().c_str());
  return 0;
}
