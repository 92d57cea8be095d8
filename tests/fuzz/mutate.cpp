#include "fuzz/mutate.h"

#include <algorithm>
#include <array>

namespace lockstep::fuzz {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 16;

/// Makes one input.
class Mutation {
 public:
  Mutation(const Target& target, Random& random) : target_(target), random_(random) {}

  std::string make() {
    if (below(8) == 0) return row_of_tokens();
    input_ = one_of(target_.seeds);
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change();
    input_.resize(std::min(input_.size(), kMaxBytes));
    return std::move(input_);
  }

 private:
  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }
  const std::string& one_of(const std::vector<std::string>& texts) { return texts[below(texts.size())]; }
  /// A place in the input, and how far a piece of it reaches; mostly short.
  std::size_t place() { return below(input_.size() + 1); }
  std::size_t piece() { return below(below(4) == 0 ? input_.size() + 1 : 16); }

  std::string row_of_tokens() {
    std::string row;
    for (std::size_t count = 1 + below(30); count > 0; --count) row += one_of(target_.tokens);
    return row;
  }

  void change() {
    using Change = void (Mutation::*)();
    static constexpr std::array<Change, 9> kChanges{
        &Mutation::flip_bit, &Mutation::set_byte,     &Mutation::set_number,
        &Mutation::erase,    &Mutation::cut_short,    &Mutation::repeat,
        &Mutation::splice,   &Mutation::insert_token, &Mutation::overwrite_with_token};
    (this->*kChanges[below(kChanges.size())])();
  }

  void flip_bit() {
    if (!input_.empty()) input_[below(input_.size())] ^= static_cast<char>(1 << below(8));
  }
  void set_byte() {
    if (!input_.empty()) input_[below(input_.size())] = static_cast<char>(random_());
  }
  void set_number() {
    const std::uint64_t numbers[] = {0,          1,         0x7F,           0xFF,       0x7FFF, 0xFFFF,
                                     0x7FFFFFFF, ~0u,       1 << 20,        ~0ull >> 1, ~0ull,  input_.size(),
                                     place(),    random_(), ~0ull - place()};
    const std::uint64_t number = numbers[below(std::size(numbers))];
    const std::size_t bytes = std::size_t{1} << below(4);
    const std::string text(reinterpret_cast<const char*>(&number), bytes);
    input_.replace(place(), bytes, text);
  }
  void erase() { input_.erase(place(), piece()); }
  void cut_short() { input_.resize(place()); }
  void repeat() {
    const std::string part = input_.substr(place(), piece());
    const std::size_t at = place();
    for (std::size_t times = 1 + below(8); times > 0; --times) input_.insert(at, part);
  }
  void splice() {
    const std::string& other = one_of(target_.seeds);
    input_.insert(place(), other, below(other.size() + 1), piece());
  }
  void insert_token() { input_.insert(place(), one_of(target_.tokens)); }
  void overwrite_with_token() {
    const std::string& token = one_of(target_.tokens);
    input_.replace(place(), token.size(), token);
  }

  const Target& target_;
  Random& random_;
  std::string input_;
};

}  // namespace

std::string mutated(const Target& target, Random& random) { return Mutation(target, random).make(); }

}  // namespace lockstep::fuzz
