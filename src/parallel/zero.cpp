// DeepSpeed's scopes for parameters that are in shards.
#include <lockstep/parallel/zero.h>

#include <algorithm>
#include <exception>
#include <sstream>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/comm/packed_collectives.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/torch.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lockstep::zero {
namespace {

using Engine = std::shared_ptr<ShardedEngine>;

/// A parameter that is whole for a while.
struct Gathered {
  at::Tensor tensor;
  std::string name;
  Engine engine = {};    // of what is sharded
  at::Tensor form = {};  // the memory, shape and type that it has while it is whole
};

bool is_like(const at::Tensor& tensor, const at::Tensor& other) {
  return tensor.sizes() == other.sizes() && tensor.scalar_type() == other.scalar_type() &&
         tensor.device() == other.device();
}

std::string form_of(const at::Tensor& tensor) {
  return c10::str(tensor.sizes(), ' ', tensor.scalar_type(), " on ", tensor.device());
}

XXH64_hash_t fingerprint(const at::Tensor& tensor) {
  const auto values = tensor.detach().cpu().contiguous();
  return XXH3_64bits(values.const_data_ptr(), values.nbytes());
}

// What parameters were when each scope that they are in began, or the last one that kept what was written
// ended.
class Baselines {
 public:
  /// `goes_back`: without a close() that keeps it, what is written is undone.
  void enter(const at::Tensor& tensor, bool goes_back) {
    of_[tensor.unsafeGetTensorImpl()].push_back(
        {fingerprint(tensor), goes_back ? tensor.detach().clone() : at::Tensor()});
  }
  void leave(const at::Tensor& tensor) {
    const auto found = of_.find(tensor.unsafeGetTensorImpl());
    const auto& values = found->second.back().values;
    if (values.defined() && is_written(tensor)) at::Tensor(tensor.detach()).copy_(values);
    found->second.pop_back();
    if (found->second.empty()) of_.erase(found);
  }
  bool knows(const at::Tensor& tensor) const { return of_.contains(tensor.unsafeGetTensorImpl()); }
  bool is_written(const at::Tensor& tensor) const {
    return of_.at(tensor.unsafeGetTensorImpl()).back().hash != fingerprint(tensor);
  }
  /// For the scope that ends now, which is within the others.
  void renew(const at::Tensor& tensor) {
    auto& all = of_.at(tensor.unsafeGetTensorImpl());
    all.back().values.reset();
    at::Tensor values;
    const auto hash = fingerprint(tensor);
    for (auto& baseline : all) {
      baseline.hash = hash;
      if (!baseline.values.defined()) continue;
      if (!values.defined()) values = tensor.detach().clone();
      baseline.values = values;
    }
  }

 private:
  struct Baseline {
    XXH64_hash_t hash;
    at::Tensor values;
  };
  std::unordered_map<const at::TensorImpl*, std::vector<Baseline>> of_;
};

// Ranks may be threads.
Baselines& baselines() {
  thread_local Baselines of_this_thread;
  return of_this_thread;
}

std::string description(const std::vector<Gathered>& all, const GatherOptions& options) {
  auto text = "modifier_rank " + (options.modifier_rank ? std::to_string(*options.modifier_rank) : "none");
  for (const auto& one : all) text += "\n" + one.name + c10::str(' ', one.tensor.sizes());
  return text;
}

// The first line that two texts do not share, of each.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::istringstream lines_a(a), lines_b(b);
  std::string line_a, line_b;
  do {
    if (!std::getline(lines_a, line_a)) line_a = "no more parameters";
    if (!std::getline(lines_b, line_b)) line_b = "no more parameters";
  } while (line_a == line_b);
  return {line_a, line_b};
}

void compare(const std::string& mine, const Communicator& ranks) {
  const auto all = ranks.all_gather_bytes(mine);
  const auto other = std::ranges::find_if(all, [&](const auto& text) { return text != all.front(); });
  if (other == all.end()) return;
  const auto rank = static_cast<int>(other - all.begin());
  const auto [first, second] = first_difference(all.front(), *other);
  throw CollectiveMismatch("parallel",
                           {.what = "the ranks gather different parameters",
                            .expected = "the same parameters and modifier_rank on all ranks",
                            .got = first + " on rank 0, " + second + " on rank " + std::to_string(rank)},
                           {ranks.global_rank(0), ranks.global_rank(rank)});
}

void check(const GatherOptions& options, const Communicator& ranks) {
  const auto rank = options.modifier_rank.value_or(0);
  if (rank >= 0 && rank < ranks.size()) return;
  throw ConfigError("parallel", {.what = "modifier_rank of GatheredParameters",
                                 .expected = "0 to " + std::to_string(ranks.size() - 1),
                                 .got = std::to_string(rank)});
}

void check(const Gathered& one, const Communicator& ranks) {
  if (!one.engine || one.engine->communicator().size() == ranks.size()) return;
  throw ConfigError("parallel",
                    {.what = "the ranks of GatheredParameters",
                     .expected = std::to_string(one.engine->communicator().size()) + ", over which " +
                                 one.name + " is sharded",
                     .got = std::to_string(ranks.size()),
                     .hint = "give it strategy().communicator() or fabric.strategy().communicator()"});
}

std::vector<Gathered> named(std::span<const at::Tensor> parameters) {
  std::vector<Gathered> all;
  std::unordered_set<const at::TensorImpl*> known;
  for (const auto& tensor : parameters) {
    if (!tensor.defined() || !known.insert(tensor.unsafeGetTensorImpl()).second) continue;
    auto engine = sharded_engine_of(tensor);
    auto name = engine ? engine->name_of(tensor) : "parameter " + std::to_string(all.size());
    all.push_back({.tensor = tensor, .name = std::move(name), .engine = std::move(engine)});
  }
  return all;
}

std::vector<Gathered> named(const torch::nn::Module& module) {
  auto all = named(module.parameters());
  for (const auto& item : module.named_parameters()) {
    const auto found = std::ranges::find_if(
        all, [&](const auto& one) { return one.tensor.is_same(item.value()) && !one.engine; });
    if (found != all.end()) found->name = item.key();
  }
  return all;
}

}  // namespace

Init::Init(InitOptions options) {
  if (options.enabled) scope_.emplace();
}

struct GatheredParameters::Impl {
  Impl(std::vector<Gathered> gathered, Communicator group, GatherOptions chosen)
      : all(std::move(gathered)), ranks(std::move(group)), options(chosen) {
    compare(description(all, options), ranks);
    check(options, ranks);
    for (const auto& one : all) check(one, ranks);
    for (const auto& [engine, tensors] : by_engine(all)) engine->hold(tensors);
    const torch::NoGradGuard no_grad;
    for (auto& one : all) {
      if (!one.engine) materialize(one.tensor);
      // The shards are what sharded ones go back to, unless another scope holds them whole.
      before.enter(one.tensor, !one.engine || before.knows(one.tensor));
      one.form = one.tensor.detach();
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  ~Impl() {
    const torch::NoGradGuard no_grad;
    for (const auto& one : all)
      if (!is_like(one.tensor, one.form)) one.tensor.set_data(one.form);
    for (const auto& one : all) before.leave(one.tensor);
    for (const auto& [engine, tensors] : by_engine(all)) engine->let_go(tensors);
  }

  static constexpr char kMisshapen = '!';

  using ByEngine = std::vector<std::pair<Engine, std::vector<at::Tensor>>>;

  // In an order that is that of all ranks.
  template <class Range>
  static ByEngine by_engine(const Range& some) {
    ByEngine result;
    for (const Gathered& one : some) {
      if (!one.engine) continue;
      const auto found = std::ranges::find(result, one.engine, &ByEngine::value_type::first);
      auto& row = found == result.end() ? result.emplace_back(one.engine, std::vector<at::Tensor>()) : *found;
      row.second.push_back(one.tensor);
    }
    return result;
  }

  /// For each rank a digit per parameter: 1 where it was written to.
  std::string written_here() const {
    std::string flags;
    for (const auto& one : all) flags += before.is_written(one.tensor) ? '1' : '0';
    return flags;
  }

  /// The first parameter that was given other memory with another shape, type or device here.
  std::string misshapen_here() const {
    const auto found =
        std::ranges::find_if(all, [](const auto& one) { return !is_like(one.tensor, one.form); });
    return found == all.end() ? std::string()
                              : found->name + " was " + form_of(found->form) + "\n" + form_of(found->tensor);
  }

  /// What this rank tells the others at the end: written_here(), or what misshapen_here() found.
  std::string told_here() const {
    const auto misshapen = misshapen_here();
    return misshapen.empty() ? written_here() : kMisshapen + misshapen;
  }

  static void refuse_misshapen(const std::vector<std::string>& told) {
    const auto found =
        std::ranges::find_if(told, [](const auto& text) { return text.starts_with(kMisshapen); });
    if (found == told.end()) return;
    const auto end = found->find('\n');
    throw ConfigError("parallel",
                      {.what = "within GatheredParameters, parameter " + found->substr(1, end - 1),
                       .expected = "the same shape, type and device at its end",
                       .got = found->substr(end + 1) + " on rank " + std::to_string(found - told.begin()),
                       .hint = "write into it, as by copy_(), rather than by set_data()"});
  }

  void refuse_others(const std::vector<std::string>& written) const {
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const auto first = written[static_cast<std::size_t>(rank)].find('1');
      if (rank == options.modifier_rank || first == std::string::npos) continue;
      const auto allowed = options.modifier_rank ? "writes by rank " + std::to_string(*options.modifier_rank)
                                                 : std::string("no writes, as there is no modifier_rank");
      throw ConfigError(
          "parallel", {.what = "parameter " + all[first].name + " was written to",
                       .expected = allowed,
                       .got = "a write by rank " + std::to_string(rank),
                       .hint = "name the rank that writes: {.modifier_rank = " + std::to_string(rank) + "}"});
    }
  }

  void keep(const std::string& written) const {
    std::vector<Gathered> changed;
    std::vector<at::Tensor> tensors;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (written[i] == '0') continue;
      changed.push_back(all[i]);
      tensors.push_back(all[i].tensor.detach());
    }
    if (changed.empty()) return;
    const torch::NoGradGuard no_grad;
    broadcast_coalesced(ranks, tensors, *options.modifier_rank);
    for (const auto& one : changed) before.renew(one.tensor);
    for (const auto& [engine, own] : by_engine(changed)) engine->keep_held(own);
  }

  void close() {
    const auto told = ranks.all_gather_bytes(told_here());
    refuse_misshapen(told);
    refuse_others(told);
    if (options.modifier_rank) keep(told[static_cast<std::size_t>(*options.modifier_rank)]);
  }

  std::vector<Gathered> all;
  Communicator ranks;
  GatherOptions options;
  Baselines& before = baselines();
};

GatheredParameters::GatheredParameters(const torch::nn::Module& module, const Communicator& ranks,
                                       GatherOptions options) {
  if (options.enabled) impl_ = std::make_unique<Impl>(named(module), ranks, options);
}

GatheredParameters::GatheredParameters(std::span<const at::Tensor> parameters, const Communicator& ranks,
                                       GatherOptions options) {
  if (options.enabled) impl_ = std::make_unique<Impl>(named(parameters), ranks, options);
}

GatheredParameters::~GatheredParameters() {
  if (!impl_ || std::uncaught_exceptions() > 0) return;
  const auto first = impl_->written_here().find('1');
  if (first == std::string::npos) return;
  log_warning("GatheredParameters ended without close(): what was written to " + impl_->all[first].name +
              " is dropped");
}

void GatheredParameters::close() {
  const auto ending = std::move(impl_);  // ends whatever happens
  if (ending) ending->close();
}

}  // namespace lockstep::zero

namespace lockstep::deepspeed {
namespace {

void require_own_scope(const std::vector<std::shared_ptr<ShardedEngine>>& engines) {
  if (engines.empty()) {
    throw ConfigError("parallel", {.what = "CoalesceGradReduction of a model that is not sharded",
                                   .expected = "one that deepspeed or fsdp has set up",
                                   .hint = "use fabric.no_backward_sync(model)"});
  }
  for (const auto& engine : engines) {
    if (!engine->is_local()) continue;
    throw ConfigError("parallel", {.what = "CoalesceGradReduction within another one, or within no_sync()",
                                   .expected = "one scope at a time"});
  }
}

}  // namespace

struct CoalesceGradReduction::Impl {
  explicit Impl(std::vector<std::shared_ptr<ShardedEngine>> found) : engines(std::move(found)) {
    for (const auto& engine : engines) local.push_back(std::make_unique<ShardedEngine::NoSync>(*engine));
  }

  std::vector<std::shared_ptr<ShardedEngine>> engines;
  std::vector<std::unique_ptr<ShardedEngine::NoSync>> local;  // ends before they do
};

CoalesceGradReduction::CoalesceGradReduction(const torch::nn::Module& module) {
  auto engines = sharded_engines(module);
  require_own_scope(engines);
  impl_ = std::make_unique<Impl>(std::move(engines));
}

CoalesceGradReduction::~CoalesceGradReduction() {
  if (impl_ && std::uncaught_exceptions() == 0)
    log_warning("CoalesceGradReduction ended without close(): its gradients wait for the next backward");
}

void CoalesceGradReduction::close() {
  const auto ending = std::move(impl_);  // ends whatever happens
  if (!ending) return;
  ending->local.clear();
  for (const auto& engine : ending->engines) engine->average_accumulated();
}

}  // namespace lockstep::deepspeed
