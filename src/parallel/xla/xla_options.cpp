// The options of strategies on XLA, by name and as text.
#include <lockstep/parallel/xla/xla.h>

namespace lockstep {
namespace {

template <class Options>
void describe_plugin(OptionVisitor& v, Options& o) {
  v.field("pjrt_plugin", o.pjrt_plugin,
          "File of the PJRT plug-in; or cpu, cuda, tpu: that of a package of the Python on PATH");
  v.field("fallback", o.fallback, "What operators without a lowering to XLA do: run on the CPU, or fail");
  v.field("compile_cache", o.compile_cache, "Folder of compiled programs; off: none");
  v.field("devices_per_process", o.devices_per_process,
          "Devices of the plug-in that share a rank's batches, as one device", at_least(1));
}

}  // namespace

std::span<const OptionName<XlaFallback>> option_names(XlaFallback) {
  static constexpr OptionName<XlaFallback> kNames[] = {
      {"auto", XlaFallback::kAuto}, {"cpu", XlaFallback::kCpu}, {"error", XlaFallback::kError}};
  return kNames;
}

void describe(OptionVisitor& v, SingleXla& o) { describe_plugin(v, o); }

void describe(OptionVisitor& v, Xla& o) {
  describe_plugin(v, o);
  v.field("sync_module_states", o.sync_module_states,
          "Compare the ranks' modules at setup and make them equal to rank 0's");
  v.field("broadcast_buffers", o.broadcast_buffers, "Let buffers follow those of rank 0 after every step");
  v.field("find_unused_parameters", o.find_unused_parameters, "Allow losses that leave out parameters");
  v.field("reduce_in_program", o.reduce_in_program,
          "Average gradients within the compiled program, where the plug-in can");
  detail::describe_joining(v, o);
}

}  // namespace lockstep
