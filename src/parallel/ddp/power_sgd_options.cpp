#include <lockstep/base/error.h>

#include "parallel/ddp/power_sgd_state.h"

namespace lockstep {
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
