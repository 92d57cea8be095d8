// PowerSGD (Vogels, Karimireddy, Jaggi, 2019). A gradient that is a matrix M of n x m is sent as P and Q
// with M ~ P Q^T, of n x r and m x r: one step of subspace iteration, P = M Q averaged over the ranks and
// orthogonalized, then Q = M^T P averaged.
#include "parallel/ddp/comm_hooks.h"

#include <algorithm>

#include <ATen/CPUGeneratorImpl.h>

#include <lockstep/base/error.h>
#include <lockstep/parallel/ddp/comm_hook.h>
#include <lockstep/torch.h>

namespace lockstep::detail {

PowerSgdMemory& PowerSgdState::memory_of(const at::Tensor& parameter, at::IntArrayRef error_sizes,
                                         at::IntArrayRef q_sizes) {
  auto& memory = memories_[parameter.unsafeGetTensorImpl()];
  memory.parameter = parameter;
  const auto fits = [&](const at::Tensor& tensor, at::IntArrayRef sizes) {
    return !memory.is_open && tensor.defined() && tensor.sizes() == sizes;
  };
  if (!fits(memory.error, error_sizes)) memory.error.reset();
  if (!fits(memory.q, q_sizes)) memory.q.reset();
  memory.is_open = false;
  return memory;
}

StateTree PowerSgdState::state(const std::vector<NamedTensor>& named) const {
  StateTree parameters;
  for (const auto& [name, tensor] : named) {
    const auto found = memories_.find(tensor.unsafeGetTensorImpl());
    if (found == memories_.end() || found->second.is_open) continue;
    StateTree memory;
    if (found->second.error.defined()) memory.set("error", found->second.error.clone());
    if (found->second.q.defined()) memory.set("q", found->second.q.clone());
    parameters.set(name, std::move(memory));
  }
  StateTree state;
  state.set("iteration", iteration);
  state.set("parameters", std::move(parameters));
  return state;
}

void PowerSgdState::load_state(const StateTree& state, const std::vector<NamedTensor>& named) {
  const auto& parameters = state.get<StateTree>("parameters");
  std::unordered_map<const at::TensorImpl*, PowerSgdMemory> memories;
  for (const auto& [name, tensor] : named) {
    if (!parameters.contains(name)) continue;
    const auto& saved = parameters.get<StateTree>(name);
    const auto copy = [&](const char* key) {
      return saved.contains(key) ? saved.get<at::Tensor>(key).clone() : at::Tensor();
    };
    memories[tensor.unsafeGetTensorImpl()] = {.parameter = tensor, .error = copy("error"), .q = copy("q")};
  }
  iteration = state.get<std::int64_t>("iteration");
  memories_ = std::move(memories);
}

}  // namespace lockstep::detail

namespace lockstep {
namespace {

// A compressed gradient. Products are of tensors at the start of their memory: kernels round by alignment,
// and places in buckets change.
struct LowRank {
  detail::PowerSgdMemory& memory;  // the map's nodes stay where they are
  at::Tensor matrix;               // a view of the bucket's buffer
  std::int64_t rank;
  at::Tensor source = {};               // what matrix holds until it is replaced
  at::Tensor p_sent = {}, q_sent = {};  // views of all P and of all Q of the bucket
  at::Tensor p = {};                    // orthogonal
};

void orthogonalize_columns(const at::Tensor& matrix, double epsilon) {
  for (std::int64_t i = 0; i < matrix.size(1); ++i) {  // Gram-Schmidt
    const auto column = matrix.narrow(1, i, 1);
    column.div_(column.norm() + epsilon);
    const auto rest = matrix.narrow(1, i + 1, matrix.size(1) - i - 1);
    rest.sub_(at::sum(column * rest, 0) * column);
  }
}

// A new tensor. In float32 at least: half precision has neither QR nor the range for norms.
at::Tensor orthogonalized(const at::Tensor& matrix, double epsilon) {
  const auto dtype = matrix.scalar_type();
  const bool is_half = dtype == at::kHalf || dtype == at::kBFloat16;
  auto exact = matrix.to(is_half ? at::kFloat : dtype, /*non_blocking=*/false, /*copy=*/true);
  if (epsilon == 0) return std::get<0>(at::linalg_qr(exact)).to(dtype);
  orthogonalize_columns(exact, epsilon);
  return exact.to(dtype);
}

// The gradient as a matrix of its first dimension by the others, in whichever order these lie in memory;
// undefined where it is none.
at::Tensor as_matrix(const at::Tensor& gradient) {
  if (gradient.dim() < 2 || gradient.numel() == 0 || gradient.is_complex()) return {};
  const auto n = gradient.size(0), m = gradient.numel() / n;
  if (!gradient.is_non_overlapping_and_dense() || (n > 1 && gradient.stride(0) != m)) return {};
  return gradient.as_strided({n, m}, {m, 1});
}

// The rank of the approximation of an n x m matrix; 0 if it is to be sent as it is.
std::int64_t rank_for(const at::Tensor& matrix, const PowerSgd& options) {
  if (!matrix.defined()) return 0;
  const auto n = matrix.size(0), m = matrix.size(1);
  const auto rank = std::min<std::int64_t>({n, m, options.matrix_approximation_rank});
  const auto compressed = static_cast<double>((n + m) * rank) * options.min_compression_rate;
  return compressed < static_cast<double>(n * m) ? rank : 0;
}

}  // namespace

namespace detail {

// One step of one bucket: made when the bucket is full, finished when backward is over.
class PowerSgdStep {
 public:
  PowerSgdStep(PowerSgdState& state, const GradBucket& bucket, const Communicator& comm)
      : options_(state.options), buffer_(bucket.buffer()), divisor_(bucket.divisor()), comm_(comm) {
    split(state, bucket);
    if (compressed_.empty()) {
      average_of_plain_.emplace(buffer_, divisor_, comm_);
      return;
    }
    send_plain();
    place_factors();
    for (auto& low : compressed_) begin(low, state.iteration);
    average_of_p_.emplace(p_, divisor_, comm_);
  }

  // Once all buckets have been begun.
  void send_q() {
    if (compressed_.empty()) return;
    average_of_p_->finish();
    for (auto& low : compressed_) {
      low.p = orthogonalized(low.p_sent, options_.orthogonalization_epsilon);
      low.q_sent.copy_(at::mm(low.source.t(), low.p));
    }
    average_of_q_.emplace(q_, divisor_, comm_);
  }

  at::Tensor finish() {
    if (average_of_plain_) average_of_plain_->finish();
    if (compressed_.empty()) return buffer_;
    restore_plain();
    average_of_q_->finish();
    for (const auto& low : compressed_) finish(low);
    return buffer_;
  }

 private:
  void split(PowerSgdState& state, const GradBucket& bucket) {
    const auto gradients = bucket.gradients();
    const auto parameters = bucket.parameters();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const auto matrix = as_matrix(gradients[i]);
      const auto rank = rank_for(matrix, options_);
      if (rank == 0) {
        plain_.push_back(gradients[i]);
        continue;
      }
      auto& memory = state.memory_of(parameters[i], matrix.sizes(), {matrix.size(1), rank});
      compressed_.push_back({.memory = memory, .matrix = matrix, .rank = rank});
    }
  }

  void send_plain() {
    if (plain_.empty()) return;
    std::vector<at::Tensor> flat;
    for (const auto& gradient : plain_) flat.push_back(gradient.reshape({-1}));
    plain_averages_ = at::cat(flat);
    average_of_plain_.emplace(plain_averages_, divisor_, comm_);
  }

  void restore_plain() {
    std::int64_t begin = 0;
    for (const auto& gradient : plain_) {
      gradient.copy_(plain_averages_.narrow(0, begin, gradient.numel()).view(gradient.sizes()));
      begin += gradient.numel();
    }
  }

  void place_factors() {
    std::int64_t p_size = 0, q_size = 0;
    for (const auto& low : compressed_) {
      p_size += low.matrix.size(0) * low.rank;
      q_size += low.matrix.size(1) * low.rank;
    }
    p_ = at::empty({p_size}, buffer_.options());
    q_ = at::empty({q_size}, buffer_.options());
    p_size = q_size = 0;
    for (auto& low : compressed_) {
      const auto n = low.matrix.size(0), m = low.matrix.size(1);
      low.p_sent = p_.narrow(0, p_size, n * low.rank).view({n, low.rank});
      low.q_sent = q_.narrow(0, q_size, m * low.rank).view({m, low.rank});
      p_size += n * low.rank;
      q_size += m * low.rank;
    }
  }

  void begin(LowRank& low, std::int64_t iteration) {
    auto& memory = low.memory;
    if (options_.use_error_feedback) {
      if (memory.error.defined()) low.matrix.add_(memory.error);
      if (!memory.error.defined()) memory.error = at::empty_like(low.matrix);
      memory.error.copy_(low.matrix);
    }
    memory.is_open = true;
    low.source = options_.use_error_feedback ? memory.error : low.matrix.clone();
    const bool is_warm = options_.warm_start && memory.q.defined();
    const auto start = is_warm ? memory.q : random(low.q_sent, iteration).to(low.matrix.scalar_type());
    low.p_sent.copy_(at::mm(low.source, orthogonalized(start, options_.orthogonalization_epsilon)));
  }

  // The same on all ranks, whatever buckets they have had: it depends on seed, step and shape only.
  at::Tensor random(const at::Tensor& like, std::int64_t iteration) const {
    const auto seed = static_cast<std::uint64_t>(options_.random_seed) * 0x9E3779B97F4A7C15u +
                      static_cast<std::uint64_t>(iteration);
    return at::randn(like.sizes(), at::make_generator<at::CPUGeneratorImpl>(seed), at::kFloat);
  }

  // A gradient that was not finite on some rank shows in Q, on all of them: it must not be fed back. What
  // ranks keep back is in sum what was lost: all of them take part, also where the average is one of fewer.
  void finish(const LowRank& low) const {
    auto& memory = low.memory;
    memory.q = low.q_sent.clone();
    low.matrix.copy_(at::mm(low.p, memory.q.t()));
    if (!at::isfinite(memory.q).all().item<bool>()) {
      memory.q.reset();
      memory.error.reset();
    }
    const auto share = static_cast<double>(divisor_) / comm_.size();
    if (memory.error.defined()) memory.error.sub_(low.matrix, share);
    memory.is_open = false;
  }

  const PowerSgd options_;
  at::Tensor buffer_;
  int divisor_;
  Communicator comm_;
  std::vector<at::Tensor> plain_;
  std::vector<LowRank> compressed_;
  at::Tensor plain_averages_, p_, q_;
  std::optional<PendingAverage> average_of_plain_, average_of_p_, average_of_q_;
};

}  // namespace detail

namespace {

// All Q are on their way before the first is waited for.
void send_all_q(detail::PowerSgdState& state) {
  for (const auto& open : std::exchange(state.open_steps, {})) {
    if (const auto step = open.lock()) step->send_q();
  }
}

}  // namespace

CommHook power_sgd_hook(std::shared_ptr<detail::PowerSgdState> state) {
  return [state = std::move(state), plain = allreduce_hook()](const GradBucket& bucket,
                                                              const Communicator& comm) -> FinishReduction {
    if (bucket.index() == 0) state->open_steps.clear();
    const auto iteration = state->iteration;
    const bool is_early = iteration < state->options.start_powerSGD_iter;
    if (is_early) {
      if (bucket.is_last()) ++state->iteration;
      return plain(bucket, comm);
    }
    const auto step = std::make_shared<detail::PowerSgdStep>(*state, bucket, comm);
    if (bucket.is_last()) ++state->iteration;
    state->open_steps.push_back(step);
    return [state, step] {
      send_all_q(*state);
      return step->finish();
    };
  };
}

CommHook power_sgd_hook(const PowerSgd& options) {
  return power_sgd_hook(std::make_shared<detail::PowerSgdState>(options));
}

namespace {

[[noreturn]] void refuse_option(const char* key, const char* expected, double got) {
  throw ConfigError("parallel", {.what = std::string("ddp_comm_state.") + key + " is out of range",
                                 .expected = expected,
                                 .got = std::to_string(got)});
}

}  // namespace

void detail::validate(const PowerSgd& options) {
  if (options.matrix_approximation_rank < 1)
    refuse_option("matrix_approximation_rank", ">= 1", options.matrix_approximation_rank);
  if (options.start_powerSGD_iter < 2)
    refuse_option("start_powerSGD_iter", ">= 2", options.start_powerSGD_iter);
  if (!(options.min_compression_rate > 0))
    refuse_option("min_compression_rate", "more than 0", options.min_compression_rate);
  if (!(options.orthogonalization_epsilon >= 0))
    refuse_option("orthogonalization_epsilon", ">= 0", options.orthogonalization_epsilon);
}

void describe(OptionVisitor& v, PowerSgd& o) {
  v.field("matrix_approximation_rank", o.matrix_approximation_rank, "Rank of PowerSGD's approximation",
          at_least(1));
  v.field("start_powerSGD_iter", o.start_powerSGD_iter, "Steps before PowerSGD starts to compress",
          at_least(2));
  v.field("min_compression_rate", o.min_compression_rate,
          "Gradients that PowerSGD would shrink by less are sent as they are", more_than(0));
  v.field("use_error_feedback", o.use_error_feedback, "Add what PowerSGD lost to the next step's gradients");
  v.field("warm_start", o.warm_start, "Start from the approximation of the step before");
  v.field("orthogonalization_epsilon", o.orthogonalization_epsilon,
          "Added to norms when orthogonalizing; 0: QR decomposition", at_least(0));
  v.field("random_seed", o.random_seed, "Seed of the first approximation");
}

}  // namespace lockstep
