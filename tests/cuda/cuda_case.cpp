// What becomes of CUDA in this process: `cuda_case load` makes LibTorch able to use it, as ranks do,
// `cuda_case rank DEVICES LOCAL_RANK` as the rank of that number does, `cuda_case segments` with expandable
// segments, `cuda_case late` with those asked for too late; `cuda_case usable` looks for devices that have
// memory, `cuda_case waits NAME...` counts calls of those names, and `cuda_case cpu` trains a step on the
// CPU. Prints {"error", "has_plugin", "mapped": [libraries], "rss_bytes", and what the stand-ins for
// libraries have seen}.
#include <unistd.h>

#include <dlfcn.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <lockstep/lockstep.h>
#include <lockstep/torch.h>

#include "cuda/host_waits.h"
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

// What a stand-in says; empty without one.
std::string said(const char* function) {
  const auto say = reinterpret_cast<const char* (*)()>(::dlsym(RTLD_DEFAULT, function));
  return say != nullptr ? say() : "";
}

bool is_driver_started() {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  const auto count =
      driver != nullptr ? reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount")) : nullptr;
  int devices = 0;
  return count != nullptr && count(&devices) == 0;
}

// What is counted of the calls of those names, which a stand-in makes, and after the end.
nlohmann::json waits_among(int count, char** names) {
  std::optional<lockstep::detail::HostWaits> waits(std::in_place);
  const auto call =
      reinterpret_cast<void (*)(const char*)>(::dlsym(::dlopen("libcupti.so.13", RTLD_NOW), "fake_call"));
  const auto call_all = [&] {
    for (int i = 0; i < count; ++i) call(names[i]);
  };
  call_all();
  const auto found = waits->take();
  waits.reset();
  call_all();
  waits.emplace();
  return {{"counted", found}, {"counted_after_the_end", waits->take()}};
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
  const std::string_view what = argc >= 2 ? argv[1] : "";
  if ((what == "rank" ? argc != 4 : argc != 2 && what != "waits") ||
      (what != "load" && what != "cpu" && what != "rank" && what != "segments" && what != "late" &&
       what != "usable" && what != "waits")) {
    std::fputs("usage: cuda_case load|cpu|segments|late|usable|waits NAME...|rank DEVICES LOCAL_RANK\n",
               stderr);
    return 2;
  }
  nlohmann::json result{{"error", ""}, {"has_plugin", false}};
  try {
    if (what == "cpu") {
      train_on_cpu();
    } else if (what == "waits") {
      result["waits"] = waits_among(argc - 2, argv + 2);
    } else if (what == "usable") {
      result["usable"] = ls::find_usable_cuda_devices();
      result["is_driver_started"] = is_driver_started();
    } else {
      if (what == "segments") lockstep::detail::ask_for_expandable_segments();
      if (what == "rank") {
        const auto plan = ls::devices_to_run_on("gpu", std::string(argv[2]));
        ls::show_device_of_rank(plan, std::stoi(argv[3]));
        result["index"] = ls::device_of_rank(plan, std::stoi(argv[3])).index();
      }
      ls::find_accelerator("cuda")->load();
      if (what == "late") lockstep::detail::ask_for_expandable_segments();
      result["settings"] = said("fake_settings_at_load");
      result["visible"] = said("fake_visible_at_load");
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
