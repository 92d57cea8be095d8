// Data sets without indices: what can only be read from front to back.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <lockstep/data/any_loader.h>

namespace lockstep {

/// One rank's items of one epoch, once through. Called by one thread at a time.
template <class Item>
class ItemStream {
 public:
  virtual ~ItemStream() = default;
  /// Sets `item` to the next one; false at the end.
  virtual bool next(Item& item) = 0;
  /// Passes over the next `count` items, or those that are left. Override it where that is cheaper than to
  /// read them: a run goes on from a checkpoint by it.
  virtual void skip(std::int64_t count) {
    Item item;
    while (count > 0 && next(item)) --count;
  }
};

/// A stream of items and how a batch is made of some: PyTorch's IterableDataset. One thread at a time reads
/// items, in order, so let an item be what is quickly had, such as bytes or a place in a file, and do the
/// work in collate(), which worker threads call at once.
template <class Item, class Batch>
class IterableDataset {
 public:
  /// What a stream gives.
  using ItemType = Item;
  /// What the items of a batch are collated into.
  using BatchType = Batch;

  virtual ~IterableDataset() = default;
  /// The items of rank `spec.rank` in `epoch`: dividing them between `spec.num_replicas` ranks is up to the
  /// data set. They must follow from the arguments alone, so that a run can go on from a checkpoint.
  virtual std::unique_ptr<ItemStream<Item>> stream(const ShardSpec& spec, std::int64_t epoch) const = 0;
  /// A batch of its own memory. Thread-safe; batch_generator() gives it its random numbers.
  virtual Batch collate(std::vector<Item> items) const = 0;
  /// How many items a stream gives, where that is known; it must be right.
  virtual std::int64_t size(const ShardSpec& /*spec*/) const { return kUnknownLength; }
};

}  // namespace lockstep
