// Kernels over many segments at once: cut into chunks, which threads share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "optim/gradient_tensor.h"
#include "optim/kernels.h"

namespace lockstep::detail {

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
