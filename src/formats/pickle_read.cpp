// Runs pickles whose instructions and names are known; nothing is executed.
#include <array>
#include <bit>
#include <optional>
#include <unordered_map>

#include <lockstep/formats/pickle.h>

#include "formats/byte_reader.h"
#include "formats/file_text.h"
#include "formats/pickle_machine.h"

namespace lockstep::pickle {
namespace {

using detail::Op;
using detail::Stack;
using lockstep::detail::in_quotes;

/// Runs one pickle. Handlers give false when it is to be refused; the reason is in the stack.
class Unpickler {
 public:
  Unpickler(std::span<const std::byte> pickle, std::span<const Global> globals)
      : reader_(pickle), globals_(globals), stack_(pickle.size()) {}

  Expected<Document> run() {
    for (std::size_t at = 0; !stopped_; at = reader_.position()) {
      if (!step()) return Unexpected{"byte " + std::to_string(at) + " " + stack_.reason()};
    }
    if (stack_.size() != 0) return Unexpected{"values are left over at the end"};
    return std::move(document_);
  }

  std::size_t remaining() const { return reader_.remaining(); }

 private:
  using Handler = bool (Unpickler::*)();
  using Handlers = std::array<Handler, 256>;

  bool step() {
    unsigned char op = 0;
    if (!reader_.read(op)) return stack_.fail("is the end, amid the instructions");
    const Handler handler = kHandlers[op];
    if (handler == nullptr) return stack_.fail("is the unknown instruction " + std::to_string(op));
    return (this->*handler)();
  }

  bool cut_short() { return stack_.fail("is an instruction that the end cuts short"); }

  bool protocol() {
    std::uint8_t version = 0;
    if (!reader_.read(version)) return cut_short();
    return (version >= 2 && version <= 5) || stack_.fail("says protocol " + std::to_string(version));
  }
  bool frame() {
    std::uint64_t bytes = 0;
    return (reader_.read(bytes) && bytes <= reader_.remaining()) || cut_short();
  }
  bool stop() {
    stopped_ = true;
    return stack_.pop(document_.root);
  }

  template <auto kValue>
  bool constant() {
    return stack_.push(Value(kValue));
  }
  bool none() { return stack_.push(None{}); }
  template <class T>
  bool integer() {
    T value{};
    return reader_.read(value) ? stack_.push(std::int64_t{value}) : cut_short();
  }
  template <class Length>
  bool long_integer() {
    Length count = 0;
    std::span<const std::byte> bytes;
    if (!reader_.read(count) || count < 0 || !reader_.take(static_cast<std::size_t>(count), bytes))
      return cut_short();
    auto value = detail::integer_of(bytes);
    const auto* foreign = value.template as<Foreign>();
    return foreign == nullptr ? stack_.push(std::move(value)) : stack_.push_foreign(foreign->what);
  }
  bool real() {
    std::uint64_t bits = 0;  // the highest byte first, unlike all other numbers
    return reader_.read(bits) ? stack_.push(std::bit_cast<double>(__builtin_bswap64(bits))) : cut_short();
  }

  template <class Length>
  bool text() {
    std::string_view text;
    if (!take<Length>(text)) return cut_short();
    if (!lockstep::detail::is_utf8(text)) return stack_.push_foreign("text that is not UTF-8");
    return stack_.push(std::string(text));
  }
  template <class Length>
  bool bytes() {
    std::string_view text;
    if (!take<Length>(text)) return cut_short();
    const auto held = std::as_bytes(std::span(text));
    return stack_.push(Bytes(held.begin(), held.end()));
  }
  template <class Length>
  bool take(std::string_view& text) {
    Length length = 0;
    std::span<const std::byte> bytes;
    if (!reader_.read(length) || !reader_.take(length, bytes)) return false;
    text = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    return true;
  }

  template <Stack::Container kKind>
  bool empty() {
    return stack_.push_empty(kKind);
  }
  bool mark() { return stack_.mark(); }
  /// Calls `operation` with the values from the last mark on, or the last `count` of them.
  template <bool (Stack::*kOperation)(std::size_t)>
  bool from_mark() {
    std::size_t begin = 0;
    return stack_.take_mark(begin) && (stack_.*kOperation)(begin);
  }
  template <bool (Stack::*kOperation)(std::size_t), std::size_t kCount>
  bool from_last() {
    std::size_t begin = 0;
    return stack_.last(kCount, begin) && (stack_.*kOperation)(begin);
  }

  template <bool (Stack::*kOperation)(std::size_t), class Index>
  bool memo() {
    Index index = 0;
    return reader_.read(index) ? (stack_.*kOperation)(index) : cut_short();
  }
  bool memoize() { return stack_.put(stack_.memo_size()); }

  bool global() {
    std::string_view module;
    std::string_view name;
    if (!reader_.take_line(module) || !reader_.take_line(name)) return cut_short();
    return push_name(module, name);
  }
  bool stack_global() {
    Value name;
    Value module;
    if (!stack_.pop(name) || !stack_.pop(module)) return false;
    const auto* name_text = name.as<std::string>();
    const auto* module_text = module.as<std::string>();
    if (name_text == nullptr || module_text == nullptr) return stack_.fail("needs two texts as a name");
    return push_name(*module_text, *name_text);
  }
  bool push_name(std::string_view module, std::string_view name) {
    if (module == "__builtin__") module = "builtins";  // its name in Python 2, and so in protocol 2
    std::string full = std::string(module) + "." + std::string(name);
    if (detail::find_global(globals_, full) == nullptr)
      return stack_.push_foreign(detail::foreign_name(full));
    return stack_.push(Name{std::move(full)});
  }

  /// REDUCE and NEWOBJ: a name called with a tuple.
  bool call() {
    Value arguments;
    Value callee;
    detail::Extent extent;
    if (!stack_.pop(arguments, &extent) || !stack_.pop(callee)) return false;
    if (const auto* foreign = callee.as<Foreign>())
      return stack_.push_foreign(detail::foreign_call(foreign->what, arguments));
    const auto* name = callee.as<Name>();
    const auto* global = name == nullptr ? nullptr : detail::find_global(globals_, name->text);
    if (global == nullptr) return stack_.fail("calls something that is no name");
    if (const auto container = container_of(global->meaning, arguments)) return stack_.push_empty(*container);
    auto result = detail::call(*global, arguments, globals_);
    if (!result) return stack_.fail("calls " + in_quotes(name->text) + ", which " + result.error());
    if (const auto* foreign = result->template as<Foreign>()) return stack_.push_foreign(foreign->what);
    return stack_.push(std::move(*result), extent);
  }

  /// NEWOBJ_EX: a class, a tuple, and a dict of keywords; classes that are read take none.
  bool call_with_keywords() {
    Value keywords;
    Value arguments;
    Value callee;
    if (!stack_.pop(keywords) || !stack_.pop(arguments) || !stack_.pop(callee)) return false;
    const auto* name = callee.as<Name>();
    const auto* foreign = callee.as<Foreign>();
    if (name == nullptr && foreign == nullptr) return stack_.fail("calls something that is no name");
    return stack_.push_foreign(detail::foreign_call(name != nullptr ? name->text : foreign->what, arguments));
  }

  /// What is filled after the call, if the call makes such a thing.
  static std::optional<Stack::Container> container_of(Meaning meaning, const Value& arguments) {
    const auto* tuple = arguments.as<Tuple>();
    if (tuple == nullptr) return std::nullopt;
    const auto& items = tuple->items;
    const auto* first = items.empty() ? nullptr : items.front().as<Tuple>();
    if (meaning == Meaning::kDict && items.empty()) return Stack::Container::kDict;
    if (meaning == Meaning::kDefaultDict && items.size() <= 1) return Stack::Container::kDict;
    if (meaning == Meaning::kRecord && items.empty()) return Stack::Container::kRecord;
    const bool is_empty = items.empty() || (first != nullptr && first->items.empty());
    if (meaning == Meaning::kDeque && is_empty) return Stack::Container::kList;
    return std::nullopt;
  }

  bool pop() {
    Value dropped;
    return stack_.pop(dropped);
  }

  bool build() { return stack_.build(); }

  bool persistent_id() {
    Value id;
    if (!stack_.pop(id)) return false;
    if (auto foreign = detail::foreign_storage(id)) return stack_.push_foreign(std::move(*foreign));
    auto storage = detail::storage_of(id, globals_);
    if (!storage) return stack_.fail("has a persistent id that " + storage.error());
    const auto known = storages_.find(storage->key);
    if (known != storages_.end() && *known->second == *storage) return stack_.push(Value(known->second));
    if (known != storages_.end()) {
      const bool are_empty = known->second->bytes == 0 && storage->bytes == 0;  // no bytes to disagree about
      if (are_empty) return stack_.push(Value(std::make_shared<const Storage>(std::move(*storage))));
      return stack_.fail("describes storage " + in_quotes(storage->key) + " otherwise than before");
    }
    document_.storages.push_back(std::make_shared<const Storage>(std::move(*storage)));
    const auto& added = document_.storages.back();
    storages_.emplace(added->key, added);
    return stack_.push(Value(added));
  }

  static constexpr Handlers make_handlers();
  static const Handlers kHandlers;

  lockstep::detail::ByteReader reader_;
  std::span<const Global> globals_;
  Stack stack_;
  std::unordered_map<std::string_view, std::shared_ptr<const Storage>> storages_;  // by their key
  Document document_;
  bool stopped_ = false;
};

constexpr Unpickler::Handlers Unpickler::make_handlers() {
  using U = Unpickler;
  Handlers handlers{};
  const auto on = [&](Op op, Handler handler) { handlers[static_cast<unsigned char>(op)] = handler; };
  on(Op::kProto, &U::protocol);
  on(Op::kFrame, &U::frame);
  on(Op::kStop, &U::stop);
  on(Op::kMark, &U::mark);
  on(Op::kNone, &U::none);
  on(Op::kTrue, &U::constant<true>);
  on(Op::kFalse, &U::constant<false>);
  on(Op::kInt8, &U::integer<std::uint8_t>);
  on(Op::kInt16, &U::integer<std::uint16_t>);
  on(Op::kInt32, &U::integer<std::int32_t>);
  on(Op::kLong, &U::long_integer<std::uint8_t>);
  on(Op::kVeryLong, &U::long_integer<std::int32_t>);
  on(Op::kFloat, &U::real);
  on(Op::kText, &U::text<std::uint32_t>);
  on(Op::kShortText, &U::text<std::uint8_t>);
  on(Op::kLongText, &U::text<std::uint64_t>);
  on(Op::kOldText, &U::text<std::uint32_t>);
  on(Op::kOldShortText, &U::text<std::uint8_t>);
  on(Op::kBytes, &U::bytes<std::uint32_t>);
  on(Op::kShortBytes, &U::bytes<std::uint8_t>);
  on(Op::kLongBytes, &U::bytes<std::uint64_t>);
  on(Op::kByteArray, &U::bytes<std::uint64_t>);
  on(Op::kEmptyTuple, &U::from_last<&Stack::make_tuple, 0>);
  on(Op::kTuple1, &U::from_last<&Stack::make_tuple, 1>);
  on(Op::kTuple2, &U::from_last<&Stack::make_tuple, 2>);
  on(Op::kTuple3, &U::from_last<&Stack::make_tuple, 3>);
  on(Op::kTuple, &U::from_mark<&Stack::make_tuple>);
  on(Op::kFrozenSet, &U::from_mark<&Stack::make_tuple>);
  on(Op::kEmptyList, &U::empty<Stack::Container::kList>);
  on(Op::kEmptySet, &U::empty<Stack::Container::kList>);
  on(Op::kAppend, &U::from_last<&Stack::append, 1>);
  on(Op::kAppends, &U::from_mark<&Stack::append>);
  on(Op::kAddItems, &U::from_mark<&Stack::append>);
  on(Op::kEmptyDict, &U::empty<Stack::Container::kDict>);
  on(Op::kSetItem, &U::from_last<&Stack::set_items, 2>);
  on(Op::kSetItems, &U::from_mark<&Stack::set_items>);
  on(Op::kPut, &U::memo<&Stack::put, std::uint8_t>);
  on(Op::kLongPut, &U::memo<&Stack::put, std::uint32_t>);
  on(Op::kMemoize, &U::memoize);
  on(Op::kGet, &U::memo<&Stack::get, std::uint8_t>);
  on(Op::kLongGet, &U::memo<&Stack::get, std::uint32_t>);
  on(Op::kPop, &U::pop);
  on(Op::kPopMark, &U::from_mark<&Stack::drop>);
  on(Op::kGlobal, &U::global);
  on(Op::kStackGlobal, &U::stack_global);
  on(Op::kReduce, &U::call);
  on(Op::kNewObject, &U::call);
  on(Op::kNewObjectWithKeywords, &U::call_with_keywords);
  on(Op::kBuild, &U::build);
  on(Op::kPersistentId, &U::persistent_id);
  return handlers;
}

constexpr Unpickler::Handlers Unpickler::kHandlers = make_handlers();

}  // namespace

Expected<Document> parse(std::span<const std::byte> pickle, std::span<const Global> globals) {
  auto document = parse_first(pickle, globals);
  if (document && !pickle.empty()) return Unexpected{std::to_string(pickle.size()) + " bytes follow the end"};
  return document;
}

Expected<Document> parse_first(std::span<const std::byte>& bytes, std::span<const Global> globals) {
  Unpickler unpickler(bytes, globals);
  auto document = unpickler.run();
  bytes = bytes.last(unpickler.remaining());
  return document;
}

}  // namespace lockstep::pickle
