#include <filesystem>
#include <string>

#include "base/format.h"
#include "doctor/program_output.h"
#include "doctor/programs.h"
#include "launch/command.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;

std::string line_with_brace(const std::string& output) {
  for (std::size_t begin = 0; begin < output.size();) {
    const auto end = std::min(output.find('\n', begin), output.size());
    if (output[begin] == '{') return output.substr(begin, end - begin);
    begin = end + 1;
  }
  return {};
}

Finding judge_torch(const LibraryFacts& facts, const BuildFacts& built) {
  const auto here = "LibTorch " + facts.torch_version + " (" + facts.torch_library + ")";
  if (facts.torch_version == built.torch_minor_version())
    return ok(here + ", as lockstep was built with " + built.torch_version + "; it computes with " +
              facts.cpu_capability);
  return error(
      here + " is loaded, but lockstep was built with " + built.torch_version + ", whose classes differ.",
      "Load the other one (LD_LIBRARY_PATH, LD_PRELOAD), or build lockstep with this one.");
}

Finding judge_cuda_library(const CudaLibraryFacts& library, const LibraryFacts& facts) {
  if (!library.is_there)
    return ok("liblockstep_cuda.so is not there (" + library.path +
              "): collectives of CUDA devices would go through the host's memory; make cuda builds it");
  if (library.torch.empty())
    return warning(
        library.path + " does not say what it was built with: it is not lockstep's library for CUDA.",
        "make cuda builds it; LOCKSTEP_CUDA_LIBRARY names another one.");
  const auto text = library.path + " is for LibTorch " + library.torch + ", CUDA " + library.cuda +
                    ", NCCL " + library.nccl;
  if (library.torch == facts.torch_version) return ok(text);
  return warning(text + ", which is another LibTorch than is loaded: ranks on CUDA devices would refuse it.",
                 "make cuda builds it for the LibTorch that lockstep is built with.");
}

}  // namespace

std::string output_of(const std::vector<std::string>& command, std::chrono::milliseconds timeout) {
  const auto result = launch::run_command(command, timeout);
  auto line = line_with_brace(result.output);
  if (result.status == 0 && !line.empty()) return line;
  const auto said = std::string(detail::trimmed(result.output, " \n"));
  throw Error("doctor", {.what = fs::path(command.front()).filename().string() + " ended with " +
                                 std::to_string(result.status),
                         .got = said.empty() ? "no word" : said});
}

LibraryFacts read_library_facts(const std::string& json) {
  return read_program_output<LibraryFacts>(json, [](const nlohmann::json& object) {
    const auto& cuda = object.at("cuda_library");
    LibraryFacts facts{.lockstep_version = object.at("lockstep"),
                       .lockstep_library = object.at("lockstep_library"),
                       .torch_version = object.at("torch"),
                       .torch_library = object.at("torch_library"),
                       .cpu_capability = object.at("cpu_capability"),
                       .cuda_library = {.path = cuda.at("path"),
                                        .is_there = cuda.at("is_there"),
                                        .torch = cuda.at("torch"),
                                        .cuda = cuda.at("cuda"),
                                        .nccl = cuda.at("nccl")}};
    for (const auto& each : object.at("accelerators"))
      facts.accelerators.push_back(
          {.name = each.at("name"), .count = each.at("count"), .absence = each.at("absence")});
    return facts;
  });
}

LibraryFacts library_facts(const DoctorOptions& options) {
  std::error_code none;
  LibraryFacts facts{.has_program = fs::exists(options.self_test, none)};
  try {
    facts = read_library_facts(output_of({options.self_test.string(), "libraries"}, options.timeout));
  } catch (const Error& failure) {
    facts.failure = failure.what();
  }
  facts.has_nvidia_driver = fs::exists("/proc/driver/nvidia/version", none);
  return facts;
}

Findings judge_libraries(const LibraryFacts& facts, const BuildFacts& built) {
  if (!facts.has_program)
    return {error(facts.failure, "It belongs beside the program lockstep: install lockstep as a whole.")};
  if (!facts.failure.empty())
    return {error("A program cannot load lockstep and LibTorch: " + facts.failure,
                  "lockstep was built with the LibTorch in " + built.torch_folder +
                      "; where that has moved, LD_LIBRARY_PATH=FOLDER/lib leads to it.")};
  Findings findings{judge_torch(facts, built), ok(facts.lockstep_library)};
  if (facts.lockstep_version != built.version)
    findings.push_back(error("liblockstep.so is of lockstep " + facts.lockstep_version +
                                 ", this program of " + built.version + ".",
                             "Install both of one version."));
  return findings;
}

Findings judge_accelerators(const LibraryFacts& facts) {
  if (!facts.failure.empty()) return {note("unknown, as LibTorch cannot be loaded")};
  Findings findings;
  bool has_devices = false;
  for (const auto& each : facts.accelerators) {
    if (each.name == "cpu") continue;
    has_devices |= each.count > 0;
    if (each.count > 0)
      findings.push_back(
          with_value(ok(each.name + ": " + counted(each.count, "device")), each.count, "devices"));
    else if (facts.has_nvidia_driver)
      findings.push_back(
          warning("This machine has a driver of NVIDIA, but ranks cannot use its devices: " + each.absence,
                  "Ranks compute on CPUs until then."));
    else
      findings.push_back(ok("no " + each.name + ": " + each.absence));
  }
  if (has_devices || facts.cuda_library.is_there)
    findings.push_back(judge_cuda_library(facts.cuda_library, facts));
  return findings;
}

}  // namespace lockstep::doctor
