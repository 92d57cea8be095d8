#include <lockstep/parallel/ddp/ddp.h>

namespace lockstep {

std::span<const OptionName<StartMethod>> option_names(StartMethod) {
  static constexpr OptionName<StartMethod> kNames[] = {
      {"popen", StartMethod::kAuto}, {"fork", StartMethod::kFork}, {"spawn", StartMethod::kSpawn}};
  return kNames;
}

std::span<const OptionName<Reduction>> option_names(Reduction) {
  static constexpr OptionName<Reduction> kNames[] = {{"ordered", Reduction::kOrdered},
                                                     {"fast", Reduction::kFast}};
  return kNames;
}

void describe(OptionVisitor& v, Ddp& o) {
  v.field("bucket_cap_mb", o.bucket_cap_mb, "MiB of gradients that are reduced at once", more_than(0));
  v.field("find_unused_parameters", o.find_unused_parameters, "Allow losses that leave out parameters");
  v.field("static_graph", o.static_graph, "Promise that every step has the graph of the first");
  v.field("gradient_as_bucket_view", o.gradient_as_bucket_view,
          "Let gradients be views of the buckets: saves a copy");
  v.field("broadcast_buffers", o.broadcast_buffers, "Let buffers follow those of rank 0 after every step");
  v.field("timeout", o.timeout, "Longest wait for other ranks, when joining and in each collective",
          more_than(0));
  v.field("process_group_backend", o.process_group_backend, "What carries the bytes: gloo");
  v.field("reduction", o.reduction,
          "ordered: the same bits for every algorithm; fast: the backend's own sums");
  v.field("start_method", o.start_method, "How ranks are started: popen (fork if possible), fork or spawn");
}

}  // namespace lockstep
