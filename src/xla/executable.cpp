#include "xla/executable.h"

#include <cstdint>
#include <utility>

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

ArrayLists::ArrayLists(int devices, std::size_t arrays)
    : arrays_(arrays), places_(static_cast<std::size_t>(devices) * arrays) {
  for (int device = 0; device < devices; ++device)
    lists_.push_back(places_.data() + static_cast<std::size_t>(device) * arrays);
}

void ArrayLists::set(std::size_t array, const Buffer& buffer) {
  for (std::size_t device = 0; device < lists_.size(); ++device)
    lists_[device][array] = buffer.parts()[device];
}

Buffer::Parts ArrayLists::take(std::size_t array) {
  Buffer::Parts parts;
  for (auto* const list : lists_) parts.push_back(std::exchange(list[array], nullptr));
  return parts;
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

void Executable::run(int device, const ArrayLists& inputs, const ArrayLists& results,
                     std::span<const std::int64_t> kept) const {
  rethrow_host_failure();  // the inputs may be what a program did not finish
  LOCKSTEP_PJRT_ARGS(PJRT_ExecuteOptions, options);
  options.non_donatable_input_indices = kept.data();
  options.num_non_donatable_input_indices = kept.size();
  LOCKSTEP_PJRT_ARGS(PJRT_LoadedExecutable_Execute_Args, args);
  args.executable = loaded_;
  args.options = &options;
  args.argument_lists = inputs.lists().data();
  args.num_devices = inputs.lists().size();
  args.num_args = inputs.arrays();
  args.output_lists = results.lists().data();
  if (client_->partitions() == 1) args.execute_device = client_->device(device);
  const InPlugin counted;
  check(client_->api(), client_->api().PJRT_LoadedExecutable_Execute(&args), "run a program");
}

std::vector<std::shared_ptr<Buffer>> Executable::run(int device,
                                                     std::span<const std::shared_ptr<Buffer>> inputs,
                                                     std::span<const std::int64_t> kept) const {
  ArrayLists given(client_->partitions(), inputs.size()), results(client_->partitions(), outputs_);
  for (std::size_t i = 0; i < inputs.size(); ++i) given.set(i, *inputs[i]);
  run(device, given, results, kept);
  std::vector<std::shared_ptr<Buffer>> made;
  for (std::size_t i = 0; i < outputs_; ++i)
    made.push_back(std::make_shared<Buffer>(client_, results.take(i)));
  return made;
}

}  // namespace lockstep::xla
