// Moments of parts are merged by the update of Chan, Golub and LeVeque, "Updating Formulae and a Pairwise
// Algorithm for Computing Sample Variances" (1979): unlike a sum of squares it loses no digits when the mean
// is far from zero.
#include "parallel/sync_batch_norm/batch_moments.h"

#include <span>

#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

using Doubles = std::span<double>;

Doubles doubles(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<double>(), static_cast<std::size_t>(tensor.numel())};
}

// What travels: means, variances, count.
at::Tensor packed(const BatchMoments& moments) {
  return at::cat({moments.mean, moments.variance, at::full({1}, moments.count, at::kDouble)});
}

BatchMoments unpacked(const at::Tensor& row) {
  const auto channels = (row.numel() - 1) / 2;
  return {.mean = row.narrow(0, 0, channels),
          .variance = row.narrow(0, channels, channels),
          .count = row[-1].item<double>()};
}

void merge(BatchMoments& whole, const BatchMoments& part) {
  if (part.count == 0) return;
  const auto count = whole.count + part.count;
  const auto means = doubles(whole.mean), variances = doubles(whole.variance);
  const auto part_means = doubles(part.mean), part_variances = doubles(part.variance);
  const auto share = part.count / count, rest = whole.count / count;
  for (std::size_t c = 0; c < means.size(); ++c) {
    const auto distance = part_means[c] - means[c];
    means[c] += distance * share;
    variances[c] = variances[c] * rest + part_variances[c] * share + distance * distance * share * rest;
  }
  whole.count = count;
}

void move_towards(const at::Tensor& running, const at::Tensor& seen, double momentum) {
  if (!running.defined()) return;
  const at::NoGradGuard no_grad;
  running.copy_(running.to(at::kDouble) * (1 - momentum) + seen.to(running.device()) * momentum);
}

}  // namespace

BatchMoments local_moments(const at::Tensor& input) {
  const auto channels = input.size(1);
  if (input.numel() == 0) {
    return {.mean = at::zeros({channels}, at::kDouble), .variance = at::zeros({channels}, at::kDouble)};
  }
  const auto [mean, variance] = at::batch_norm_update_stats(input, {}, {}, 0);
  return {.mean = mean.to(at::kCPU, at::kDouble),
          .variance = variance.to(at::kCPU, at::kDouble),
          .count = static_cast<double>(input.numel() / channels)};
}

BatchMoments global_moments(const BatchMoments& local, const Communicator& comm) {
  const auto mine = packed(local);
  const auto all = at::empty({comm.size(), mine.numel()}, at::kDouble);
  comm.all_gather(all, mine);
  BatchMoments whole{.mean = at::zeros_like(local.mean), .variance = at::zeros_like(local.variance)};
  for (int rank = 0; rank < comm.size(); ++rank) merge(whole, unpacked(all[rank]));
  return whole;
}

void update_running_statistics(const at::Tensor& running_mean, const at::Tensor& running_var,
                               const BatchMoments& moments, double momentum) {
  move_towards(running_mean, moments.mean, momentum);
  move_towards(running_var, moments.variance * (moments.count / (moments.count - 1)), momentum);
}

}  // namespace lockstep::detail
