// PowerSGD (Vogels, Karimireddy, Jaggi, 2019). A gradient that is a matrix M of n x m is sent as P and Q
// with M ~ P Q^T, of n x r and m x r: one step of subspace iteration, P = M Q averaged over the ranks and
// orthogonalized, then Q = M^T P averaged.
#include <lockstep/parallel/ddp/power_sgd.h>

#include <algorithm>
#include <memory>
#include <unordered_map>

#include <ATen/CPUGeneratorImpl.h>

#include <lockstep/base/error.h>
#include <lockstep/parallel/ddp/comm_hook.h>
#include <lockstep/torch.h>

#include "parallel/ddp/average.h"

namespace lockstep {
namespace {

// What one bucket keeps from step to step.
struct BucketMemory {
  at::Tensor error;  // what compression lost, flat
  at::Tensor p;      // all P of the bucket, one after the other
  at::Tensor q;
};

// A compressed gradient: views of the bucket's buffer and of its P and Q.
struct LowRank {
  at::Tensor matrix, p, q;
};

struct State {
  explicit State(const PowerSgd& o)
      : options(o),
        generator(at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(o.random_seed))) {}

  PowerSgd options;
  at::Generator generator;
  std::int64_t iteration = 0;
  std::unordered_map<std::size_t, BucketMemory> buckets;
};

void orthogonalize(const at::Tensor& matrix, double epsilon) {
  if (epsilon == 0) {
    matrix.copy_(std::get<0>(at::linalg_qr(matrix)));
    return;
  }
  for (std::int64_t i = 0; i < matrix.size(1); ++i) {  // Gram-Schmidt
    const auto column = matrix.narrow(1, i, 1);
    column.div_(column.norm() + epsilon);
    const auto rest = matrix.narrow(1, i + 1, matrix.size(1) - i - 1);
    rest.sub_(at::sum(column * rest, 0) * column);
  }
}

// One step of one bucket: made when the bucket is full, finished when backward is over.
class Step {
 public:
  Step(std::shared_ptr<State> state, const GradBucket& bucket, const Communicator& comm)
      : state_(std::move(state)),
        memory_(state_->buckets[bucket.index()]),
        buffer_(bucket.buffer()),
        divisor_(bucket.divisor()),
        comm_(comm) {
    add_error();
    split(bucket.gradients());
    begin();
  }

  at::Tensor finish() {
    finish_plain();
    average_of_p_.finish();
    for (const auto& low : compressed_) orthogonalize(low.p, state_->options.orthogonalization_epsilon);
    for (const auto& low : compressed_) low.q.copy_(at::mm(low.matrix.t(), low.p));
    detail::PendingAverage(memory_.q, divisor_, comm_).finish();
    for (const auto& low : compressed_) low.matrix.copy_(at::mm(low.p, low.q.t()));
    if (state_->options.use_error_feedback) memory_.error = original_.sub_(buffer_);
    return buffer_;
  }

 private:
  void add_error() {
    if (!state_->options.use_error_feedback) return;
    const bool fits = memory_.error.defined() && memory_.error.numel() == buffer_.numel();
    if (fits) buffer_.add_(memory_.error);
    original_ = buffer_.clone();
  }

  // The rank of the approximation of an n x m matrix; 0 if it is to be sent as it is.
  std::int64_t rank_for(std::int64_t n, std::int64_t m) const {
    const auto rank = std::min<std::int64_t>({n, m, state_->options.matrix_approximation_rank});
    const auto compressed = static_cast<double>((n + m) * rank) * state_->options.min_compression_rate;
    return compressed < static_cast<double>(n * m) ? rank : 0;
  }

  void split(const std::vector<at::Tensor>& gradients) {
    std::int64_t p_size = 0, q_size = 0;
    std::vector<std::int64_t> ranks;
    for (const auto& gradient : gradients) {
      const bool is_matrix = gradient.dim() >= 2 && gradient.is_contiguous();
      const auto matrix = is_matrix ? gradient.view({gradient.size(0), -1}) : at::Tensor();
      const auto rank = is_matrix ? rank_for(matrix.size(0), matrix.size(1)) : 0;
      if (rank == 0) {
        plain_.push_back(gradient);
        continue;
      }
      compressed_.push_back({.matrix = matrix, .p = {}, .q = {}});
      ranks.push_back(rank);
      p_size += matrix.size(0) * rank;
      q_size += matrix.size(1) * rank;
    }
    place(ranks, p_size, q_size);
  }

  void place(const std::vector<std::int64_t>& ranks, std::int64_t p_size, std::int64_t q_size) {
    const bool fits = memory_.q.defined() && memory_.q.numel() == q_size && memory_.p.numel() == p_size;
    is_new_ = !fits || !state_->options.warm_start;
    if (!fits) memory_.p = at::empty({p_size}, buffer_.options());
    if (!fits) memory_.q = at::empty({q_size}, buffer_.options());
    std::int64_t p_begin = 0, q_begin = 0;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      auto& low = compressed_[i];
      const auto n = low.matrix.size(0), m = low.matrix.size(1), rank = ranks[i];
      low.p = memory_.p.narrow(0, p_begin, n * rank).view({n, rank});
      low.q = memory_.q.narrow(0, q_begin, m * rank).view({m, rank});
      p_begin += n * rank;
      q_begin += m * rank;
    }
  }

  void begin() {
    for (const auto& low : compressed_) {
      if (is_new_) low.q.copy_(at::randn(low.q.sizes(), state_->generator, at::kFloat));
      orthogonalize(low.q, state_->options.orthogonalization_epsilon);
      low.p.copy_(at::mm(low.matrix, low.q));
    }
    std::vector<at::Tensor> flat{at::empty({0}, buffer_.options())};
    for (const auto& gradient : plain_) flat.push_back(gradient.reshape({-1}));
    average_of_plain_ = detail::PendingAverage(at::cat(flat), divisor_, comm_);
    average_of_p_ = detail::PendingAverage(memory_.p, divisor_, comm_);
  }

  void finish_plain() {
    const auto averages = average_of_plain_.finish();
    std::int64_t begin = 0;
    for (const auto& gradient : plain_) {
      gradient.copy_(averages.narrow(0, begin, gradient.numel()).view(gradient.sizes()));
      begin += gradient.numel();
    }
  }

  std::shared_ptr<State> state_;
  BucketMemory& memory_;  // the map's nodes stay where they are
  at::Tensor buffer_, original_;
  int divisor_;
  const Communicator& comm_;
  std::vector<at::Tensor> plain_;
  std::vector<LowRank> compressed_;
  bool is_new_ = true;
  detail::PendingAverage average_of_plain_, average_of_p_;
};

[[noreturn]] void refuse(const char* key, const char* expected, double got) {
  throw ConfigError("parallel", {.what = std::string("ddp_comm_state.") + key + " is out of range",
                                 .expected = expected,
                                 .got = std::to_string(got)});
}

void validate(const PowerSgd& options) {
  if (options.matrix_approximation_rank < 1)
    refuse("matrix_approximation_rank", ">= 1", options.matrix_approximation_rank);
  // Buckets change after the first step, and what is kept per bucket with them.
  if (options.start_powerSGD_iter < 2) refuse("start_powerSGD_iter", ">= 2", options.start_powerSGD_iter);
  if (!(options.min_compression_rate > 0))
    refuse("min_compression_rate", "more than 0", options.min_compression_rate);
  if (!(options.orthogonalization_epsilon >= 0))
    refuse("orthogonalization_epsilon", ">= 0", options.orthogonalization_epsilon);
}

}  // namespace

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

CommHook power_sgd_hook(const PowerSgd& options) {
  validate(options);
  return [state = std::make_shared<State>(options), plain = allreduce_hook()](
             const GradBucket& bucket, const Communicator& comm) -> FinishReduction {
    const bool is_early = state->iteration < state->options.start_powerSGD_iter;
    if (bucket.is_last()) ++state->iteration;
    if (is_early) return plain(bucket, comm);
    return [step = std::make_shared<Step>(state, bucket, comm)] { return step->finish(); };
  };
}

}  // namespace lockstep
