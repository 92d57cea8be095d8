// The instructions of pickles, and the machine that runs one: its memory (a stack, marks on it, and the memo
// of values that may be used again), and what the names that a pickle may use make of their arguments.
//
// Two rules bound what a pickle can do, and both cost nothing:
// - A container may change until it becomes part of another one. So none can hold itself, and what is
//   known of a part (how deep it is, how many values a walk over it meets) stays true.
// - These two numbers are limited for every value, the second one by the length of the pickle. So neither
//   nesting nor "a list of ten times that list, of ten times that list, ..." can harm code that walks over
//   it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/formats/pickle.h>

namespace lockstep::pickle::detail {

enum class Op : unsigned char {
  kProto = 0x80,
  kFrame = 0x95,
  kStop = '.',
  kMark = '(',
  // Values that follow the instruction.
  kNone = 'N',
  kTrue = 0x88,
  kFalse = 0x89,
  kInt8 = 'K',
  kInt16 = 'M',
  kInt32 = 'J',
  kLong = 0x8a,
  kVeryLong = 0x8b,
  kFloat = 'G',
  kText = 'X',
  kShortText = 0x8c,
  kLongText = 0x8d,
  kBytes = 'B',
  kShortBytes = 'C',
  kLongBytes = 0x8e,
  kByteArray = 0x96,
  kOldText = 'T',  // by Python 2
  kOldShortText = 'U',
  // Containers.
  kEmptyTuple = ')',
  kTuple = 't',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kEmptyDict = '}',
  kSetItem = 's',
  kSetItems = 'u',
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  // The memo: values that are used again.
  kPut = 'q',
  kLongPut = 'r',
  kMemoize = 0x94,
  kGet = 'h',
  kLongGet = 'j',
  kPop = '0',
  kPopMark = '1',
  // Names and what is made of them.
  kGlobal = 'c',
  kStackGlobal = 0x93,
  kReduce = 'R',
  kNewObject = 0x81,
  kNewObjectWithKeywords = 0x92,
  kBuild = 'b',
  kPersistentId = 'Q'
};

/// What is known of a value and of all that is in it.
struct Extent {
  std::uint32_t depth = 0;   ///< of containers in it
  std::uint32_t weight = 1;  ///< values that a walk meets; long texts count for several
};

/// All functions give false for a pickle that is refused; reason() says why.
class Stack {
 public:
  enum class Container { kList, kDict, kRecord };

  explicit Stack(std::size_t pickle_bytes);

  bool fail(std::string reason);
  const std::string& reason() const { return reason_; }

  /// Puts a value on top; `made_of` is what it was made of, if that can be in it.
  bool push(Value value, const Extent& made_of = {});
  bool push_empty(Container kind);
  /// Puts a value on top that is not read: whatever is set or appended to it is dropped.
  bool push_foreign(std::string what);
  /// Takes the value on top, which can no longer be changed.
  bool pop(Value& value, Extent* extent = nullptr);
  /// The number of values on the stack.
  std::size_t size() const { return slots_.size(); }

  /// Marks the top.
  bool mark();
  /// Sets `begin` to the place of the last mark, and removes the mark.
  bool take_mark(std::size_t& begin);
  /// Sets `begin` so that `count` values lie from there on.
  bool last(std::size_t count, std::size_t& begin);

  // Each takes the values from `begin` on.
  bool make_tuple(std::size_t begin);
  bool append(std::size_t begin);     ///< to the list below them
  bool set_items(std::size_t begin);  ///< keys and values of the dict below them
  /// Takes the value on top as the attributes of the object below it.
  bool build();
  bool drop(std::size_t begin);  ///< removes them

  /// Stores the value on top in the memo as number `index`, which is the next one or was used before.
  bool put(std::size_t index);
  bool get(std::size_t index);
  std::size_t memo_size() const { return memo_.size(); }

 private:
  struct Open {
    List* list = nullptr;
    Dict* dict = nullptr;
    bool is_record = false;
    bool is_foreign = false;
    bool is_closed = false;
    Extent extent;
  };
  struct Slot {
    Value value;
    std::shared_ptr<Open> open;  // of a list or dict that was built here
    Extent extent;
  };

  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  /// Makes the containers from `begin` on parts, which never change again.
  void close_from(std::size_t begin);
  bool add(Extent& extent, const Extent& part);
  bool spend(std::uint64_t weight);
  /// The container that is to take the values from `begin` on, or nullptr.
  Open* open_below(std::size_t begin);

  std::uint64_t limit_;  // of weights
  std::uint64_t spent_ = 0;
  std::deque<Slot> slots_;  // as the memo, no vector: growing that takes twice the memory for a while
  std::vector<std::size_t> marks_;
  std::deque<Slot> memo_;
  std::string reason_;
};

/// The result of calling `global` with `arguments`, a tuple. `globals` is where functions named in them are
/// looked up. Foreign where a foreign argument makes the call impossible. The reason for a refusal names
/// neither function nor arguments.
Expected<Value> call(const Global& global, const Value& arguments, std::span<const Global> globals);

/// What a name stands for, or what is made by calling it, that is not read; `name` may come from anywhere.
std::string foreign_name(std::string_view name);
/// "name(...)", or "name(class...)" where the first argument is Foreign.
std::string foreign_call(std::string_view name, const Value& arguments);

/// The integer of those bytes, the lowest first, with a sign; Foreign when it needs more than 64 bits.
Value integer_of(std::span<const std::byte> bytes);

/// What a persistent id describes that names a type of storage which is not read; nothing for others.
std::optional<std::string> foreign_storage(const Value& id);

/// The storage that a persistent id describes: ("storage", its type, key, device, number of elements).
/// `globals` is where the name of its type is looked up.
Expected<Storage> storage_of(const Value& id, std::span<const Global> globals);

/// The row of that name, or nullptr.
const Global* find_global(std::span<const Global> globals, std::string_view name);

}  // namespace lockstep::pickle::detail
