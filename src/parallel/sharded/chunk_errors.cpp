#include "parallel/sharded/chunk_errors.h"

#include <lockstep/torch.h>

namespace lockstep::detail {

ChunkErrors::ChunkErrors(std::int64_t chunks, std::int64_t elements, const ErrorFeedback& options)
    : kept_(elements, CodeBits::k8),
      options_(options),
      records_(at::zeros({chunks * kept_.bytes()}, at::kByte)) {}

void ChunkErrors::begin() {
  if (++reductions_ <= options_.reset_every) return;
  reductions_ = 1;
  records_.zero_();
}

void ChunkErrors::write(std::int64_t chunk, const at::Tensor& values, const RecordFormat& format,
                        const at::Tensor& record) {
  const auto own = records_.narrow(0, chunk * kept_.bytes(), kept_.bytes());
  auto error = at::empty({format.elements()}, at::kFloat), seen = at::empty_like(error);
  kept_.read(own, error);
  const auto wanted = values.to(at::kFloat) + error;
  format.write(wanted, record);
  format.read(record, seen);
  error.mul_(options_.decay).add_(wanted - seen, 1.0 - options_.decay).nan_to_num_(0.0, 0.0, 0.0);
  kept_.write(error, own);
}

}  // namespace lockstep::detail
