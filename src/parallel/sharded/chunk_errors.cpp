#include "parallel/sharded/chunk_errors.h"

#include <algorithm>

#include <lockstep/torch.h>

namespace lockstep::detail {

ChunkErrors::ChunkErrors(std::int64_t chunks, std::int64_t elements, const ErrorFeedback& options)
    : kept_(elements, CodeBits::k8),
      options_(options),
      records_(at::zeros({chunks * kept_.bytes()}, at::kByte)) {}

void ChunkErrors::begin() {
  if (++reductions_ <= options_.reset_every) return;
  forget();
  reductions_ = 1;
}

void ChunkErrors::forget() {
  reductions_ = 0;
  records_.zero_();
}

void ChunkErrors::write(std::int64_t chunk, const at::Tensor& values, const RecordFormat& format,
                        const at::Tensor& record) {
  const auto own = records_.narrow(0, chunk * kept_.bytes(), kept_.bytes());
  const auto elements = format.elements();
  const auto room = at::empty({3, std::min(elements, kRecordTile)}, at::kFloat);
  for (std::int64_t begin = 0; begin < elements; begin += kRecordTile) {
    const auto count = std::min(kRecordTile, elements - begin);
    auto error = room[0].narrow(0, 0, count), wanted = room[1].narrow(0, 0, count);
    const auto seen = room[2].narrow(0, 0, count);
    kept_.read_part(own, begin, error);
    wanted.copy_(values.narrow(0, begin, count)).add_(error);
    format.write_part(wanted, record, begin);
    format.read_part(record, begin, seen);
    error.mul_(options_.decay).add_(wanted.sub_(seen), 1.0 - options_.decay).nan_to_num_(0.0, 0.0, 0.0);
    kept_.write_part(error, own, begin);
  }
}

}  // namespace lockstep::detail
