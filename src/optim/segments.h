// How kernels get at tensors: gradients as they read them, loops on LibTorch's own threads, and many segments
// at once, cut into chunks that threads share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "optim/kernels.h"

namespace lockstep::detail {

/// Whether kernels read `gradient` where it lies.
bool is_readable(const at::Tensor& gradient);

/// The elements of `gradient`, which is_readable(), as long as it lives.
Gradients gradients_in(const at::Tensor& gradient);

/// `gradient`, if it is_readable(), else a copy that is: of the same type, or of float32 where kernels do not
/// know that.
at::Tensor readable(const at::Tensor& gradient);

/// Calls body(i) once for each i in [0, count), on at::get_num_threads() threads. Blocks. at::parallel_for
/// would run on one thread here unless this library linked an OpenMP runtime of its own. The body must not
/// throw.
void parallel_for_each(std::size_t count, const std::function<void(std::size_t)>& body);

/// Elements [begin, end) of one of several segments.
struct Chunk {
  std::size_t segment;
  std::int64_t begin, end;
};

/// The segments cut into chunks of a fixed length, in order.
template <class Segment>
std::vector<Chunk> chunks_of(std::span<const Segment> segments) {
  constexpr std::int64_t kLength = 16384;
  std::vector<Chunk> chunks;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    for (std::int64_t at = 0; at < segments[i].size; at += kLength) {
      chunks.push_back({i, at, std::min(segments[i].size, at + kLength)});
    }
  }
  return chunks;
}

/// Calls body(index of a chunk), on several threads when there is enough to do.
template <class Body>
void for_each_chunk(std::span<const Chunk> chunks, const Body& body) {
  constexpr std::int64_t kElementsOfOneThread = 32768;
  std::int64_t elements = 0;
  for (const auto& chunk : chunks) elements += chunk.end - chunk.begin;
  if (elements > kElementsOfOneThread) return parallel_for_each(chunks.size(), body);
  for (std::size_t i = 0; i < chunks.size(); ++i) body(i);
}

/// Updates all segments.
template <class Segment>
void update_all(std::span<const Segment> segments) {
  const auto chunks = chunks_of(segments);
  for_each_chunk(std::span(chunks), [&, isa = best_isa()](std::size_t i) {
    update(segments[chunks[i].segment], chunks[i].begin, chunks[i].end, isa);
  });
}

}  // namespace lockstep::detail
