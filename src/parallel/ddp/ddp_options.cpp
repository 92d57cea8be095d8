// The options of Ddp.
#include <lockstep/parallel/ddp/ddp.h>

#include "parallel/ddp/comm_hooks.h"
#include "parallel/joining_options.h"

namespace lockstep {

std::span<const OptionName<DdpCommHook>> option_names(DdpCommHook) {
  static constexpr OptionName<DdpCommHook> kNames[] = {{"allreduce", DdpCommHook::kAllreduce},
                                                       {"fp16_compress", DdpCommHook::kFp16Compress},
                                                       {"bf16_compress", DdpCommHook::kBf16Compress},
                                                       {"powerSGD", DdpCommHook::kPowerSgd},
                                                       {"noop", DdpCommHook::kNoop}};
  return kNames;
}

std::span<const OptionName<DdpCommWrapper>> option_names(DdpCommWrapper) {
  static constexpr OptionName<DdpCommWrapper> kNames[] = {{"none", DdpCommWrapper::kNone},
                                                          {"fp16_compress", DdpCommWrapper::kFp16Compress},
                                                          {"bf16_compress", DdpCommWrapper::kBf16Compress}};
  return kNames;
}

void describe(OptionVisitor& v, Ddp& o) {
  v.field("bucket_cap_mb", o.bucket_cap_mb, "MiB of gradients that are reduced at once", more_than(0));
  v.field("find_unused_parameters", o.find_unused_parameters, "Allow losses that leave out parameters");
  v.field("static_graph", o.static_graph, "Promise that every step has the graph of the first");
  v.field("gradient_as_bucket_view", o.gradient_as_bucket_view,
          "Let gradients be views of the buckets: saves a copy");
  v.field("reduce_every_micro_batch", o.reduce_every_micro_batch,
          "Average gradients in every backward of a window, as ZeRO does, not in the last one only");
  v.field("broadcast_buffers", o.broadcast_buffers, "Let buffers follow those of rank 0 after every step");
  v.field("init_sync", o.init_sync, "Compare the ranks' modules at setup and make them equal to rank 0's");
  v.field("skip_all_reduce_unused_params", o.skip_all_reduce_unused_params,
          "With find_unused_parameters: leave out buckets that no rank uses");
  v.field("ddp_comm_hook", o.ddp_comm_hook, "How gradients travel");
  v.field("ddp_comm_wrapper", o.ddp_comm_wrapper, "The dtype that the comm hook works on");
  v.group("ddp_comm_state", o.ddp_comm_state, "options of ddp_comm_hook powerSGD");
  detail::describe_joining(v, o);
}

}  // namespace lockstep
