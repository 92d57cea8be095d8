#include "xla/executable.h"

#include <cstdint>

#include "xla/host_failure.h"

namespace lockstep::xla {
namespace {

// Protocol buffers: a field of the kind varint.
void put(std::string& message, int field, std::uint64_t value) {
  message += static_cast<char>(field << 3);
  for (; value > 127; value >>= 7) message += static_cast<char>((value & 127) | 128);
  message += static_cast<char>(value);
}

}  // namespace

// CompileOptionsProto: executable_build_options (3) with device_ordinal (1), num_replicas (4),
// num_partitions (5) and use_spmd_partitioning (6), and compile_portable_executable (4): any device can run
// it. Partitions have the client's first devices.
std::string compile_options(int partitions) {
  std::string build;
  put(build, 1, static_cast<std::uint64_t>(-1));
  put(build, 4, 1);
  put(build, 5, static_cast<std::uint64_t>(partitions));
  if (partitions > 1) put(build, 6, 1);
  std::string options;
  options += static_cast<char>(3 << 3 | 2);
  options += static_cast<char>(build.size());
  options += build;
  if (partitions == 1) put(options, 4, 1);
  return options;
}

Executable::Executable(std::shared_ptr<const Client> client, PJRT_LoadedExecutable* loaded)
    : client_(std::move(client)), loaded_(loaded) {
  const auto& api = client_->api();
  LOCKSTEP_PJRT_ARGS(PJRT_LoadedExecutable_GetExecutable_Args, get);
  get.loaded_executable = loaded_;
  check(api, api.PJRT_LoadedExecutable_GetExecutable(&get), "describe a program");
  executable_ = get.executable;
  LOCKSTEP_PJRT_ARGS(PJRT_Executable_NumOutputs_Args, count);
  count.executable = executable_;
  check(api, api.PJRT_Executable_NumOutputs(&count), "describe a program");
  outputs_ = count.num_outputs;
}

Executable::~Executable() {
  const auto& api = client_->api();
  LOCKSTEP_PJRT_ARGS(PJRT_Executable_Destroy_Args, description);
  description.executable = executable_;
  take_message(api, api.PJRT_Executable_Destroy(&description));
  LOCKSTEP_PJRT_ARGS(PJRT_LoadedExecutable_Destroy_Args, program);
  program.executable = loaded_;
  take_message(api, api.PJRT_LoadedExecutable_Destroy(&program));
}

std::shared_ptr<const Executable> Executable::compile(const std::shared_ptr<const Client>& client,
                                                      std::string_view text) {
  const auto options = compile_options(client->partitions());
  constexpr std::string_view kFormat = "mlir";
  LOCKSTEP_PJRT_ARGS(PJRT_Program, program);
  program.code = const_cast<char*>(text.data());
  program.code_size = text.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  LOCKSTEP_PJRT_ARGS(PJRT_Client_Compile_Args, args);
  args.client = client->get();
  args.program = &program;
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  check(client->api(), client->api().PJRT_Client_Compile(&args), "compile a program");
  return std::shared_ptr<const Executable>(new Executable(client, args.executable));
}

std::shared_ptr<const Executable> Executable::deserialize(const std::shared_ptr<const Client>& client,
                                                          std::string_view bytes) {
  LOCKSTEP_PJRT_ARGS(PJRT_Executable_DeserializeAndLoad_Args, args);
  args.client = client->get();
  args.serialized_executable = bytes.data();
  args.serialized_executable_size = bytes.size();
  check(client->api(), client->api().PJRT_Executable_DeserializeAndLoad(&args), "load a program");
  return std::shared_ptr<const Executable>(new Executable(client, args.loaded_executable));
}

std::string Executable::serialize() const {
  LOCKSTEP_PJRT_ARGS(PJRT_Executable_Serialize_Args, args);
  args.executable = executable_;
  check(client_->api(), client_->api().PJRT_Executable_Serialize(&args), "store a program");
  std::string bytes(args.serialized_bytes, args.serialized_bytes_size);
  args.serialized_executable_deleter(args.serialized_executable);
  return bytes;
}

void Executable::run(int device, std::span<PJRT_Buffer* const> inputs, std::span<PJRT_Buffer*> results,
                     std::span<const std::int64_t> kept) const {
  rethrow_host_failure();  // the inputs may be what a program did not finish
  PJRT_Buffer* const* const argument_list = inputs.data();
  PJRT_Buffer** const result_list = results.data();
  LOCKSTEP_PJRT_ARGS(PJRT_ExecuteOptions, options);
  options.non_donatable_input_indices = kept.data();
  options.num_non_donatable_input_indices = kept.size();
  LOCKSTEP_PJRT_ARGS(PJRT_LoadedExecutable_Execute_Args, args);
  args.executable = loaded_;
  args.options = &options;
  args.argument_lists = &argument_list;
  args.num_devices = 1;
  args.num_args = inputs.size();
  args.output_lists = &result_list;
  args.execute_device = client_->device(device);
  const InPlugin counted;
  check(client_->api(), client_->api().PJRT_LoadedExecutable_Execute(&args), "run a program");
}

std::vector<std::shared_ptr<Buffer>> Executable::run(int device,
                                                     std::span<const std::shared_ptr<Buffer>> inputs,
                                                     std::span<const std::int64_t> kept) const {
  if (client_->partitions() > 1) return run_on_partitions(inputs, kept);
  std::vector<PJRT_Buffer*> arguments;
  for (const auto& input : inputs) arguments.push_back(input->get());
  std::vector<PJRT_Buffer*> results(outputs_);
  run(device, arguments, results, kept);
  std::vector<std::shared_ptr<Buffer>> made;
  for (auto* const result : results) made.push_back(std::make_shared<Buffer>(client_, result));
  return made;
}

// Each partition is given what it holds of each input, and gives a copy of each result.
std::vector<std::shared_ptr<Buffer>> Executable::run_on_partitions(
    std::span<const std::shared_ptr<Buffer>> inputs, std::span<const std::int64_t> kept) const {
  rethrow_host_failure();
  LOCKSTEP_PJRT_ARGS(PJRT_ExecuteOptions, options);
  options.non_donatable_input_indices = kept.data();
  options.num_non_donatable_input_indices = kept.size();
  const auto count = static_cast<std::size_t>(client_->partitions());
  std::vector<std::vector<PJRT_Buffer*>> arguments(count),
      results(count, std::vector<PJRT_Buffer*>(outputs_));
  std::vector<PJRT_Buffer* const*> argument_lists;
  std::vector<PJRT_Buffer**> result_lists;
  for (std::size_t i = 0; i < count; ++i) {
    for (const auto& input : inputs) arguments[i].push_back(input->get(i));
    argument_lists.push_back(arguments[i].data());
    result_lists.push_back(results[i].data());
  }
  LOCKSTEP_PJRT_ARGS(PJRT_LoadedExecutable_Execute_Args, args);
  args.executable = loaded_;
  args.options = &options;
  args.argument_lists = argument_lists.data();
  args.num_devices = count;
  args.num_args = inputs.size();
  args.output_lists = result_lists.data();
  {
    const InPlugin counted;
    check(client_->api(), client_->api().PJRT_LoadedExecutable_Execute(&args), "run a program");
  }
  std::vector<std::shared_ptr<Buffer>> made;
  for (std::size_t i = 0; i < outputs_; ++i) {
    std::vector<PJRT_Buffer*> others;
    for (std::size_t part = 1; part < count; ++part) others.push_back(results[part][i]);
    made.push_back(std::make_shared<Buffer>(client_, results.front()[i], std::move(others)));
  }
  return made;
}

}  // namespace lockstep::xla
