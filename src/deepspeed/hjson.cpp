#include "deepspeed/hjson.h"

#include <algorithm>

#include "deepspeed/hjson_cursor.h"
#include "deepspeed/hjson_text.h"
#include "formats/in_quotes.h"
#include "formats/utf8.h"

namespace lockstep::deepspeed {
namespace {

constexpr std::size_t kMostBytes = std::size_t{16} << 20;
constexpr int kDeepest = 64;

bool is_quotation_mark(char byte) { return byte == '"' || byte == '\''; }

bool is_number(std::string_view word) {
  const auto digits = [&] {
    const auto count = std::min(word.find_first_not_of("0123456789"), word.size());
    word.remove_prefix(count);
    return count > 0;
  };
  if (word.starts_with('-')) word.remove_prefix(1);
  if (!digits()) return false;
  if (word.starts_with('.')) {
    word.remove_prefix(1);
    if (!digits()) return false;
  }
  if (word.starts_with('e') || word.starts_with('E')) {
    word.remove_prefix(1);
    if (word.starts_with('+') || word.starts_with('-')) word.remove_prefix(1);
    if (!digits()) return false;
  }
  return word.empty();
}

Hjson::Kind kind_of_bare(std::string_view word) {
  if (word == "null") return Hjson::Kind::kNull;
  if (word == "true" || word == "false") return Hjson::Kind::kBool;
  return is_number(word) ? Hjson::Kind::kNumber : Hjson::Kind::kText;
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& name) : cursor_(text, name), name_(name) {}

  Hjson parse() {
    cursor_.skip();
    if (cursor_.peek() != '{') cursor_.refuse("the configuration is an object", "{");
    auto root = take_value(0);
    cursor_.skip();
    if (!cursor_.at_end()) cursor_.refuse("after the configuration", "the end of the file");
    return root;
  }

 private:
  Hjson take_value(int depth) {
    if (depth > kDeepest) cursor_.refuse("nested deeper than " + std::to_string(kDeepest));
    Hjson value{.place = cursor_.place()};
    if (cursor_.take_if('{')) {
      value.kind = Hjson::Kind::kObject;
      take_members(value.members, depth);
    } else if (cursor_.take_if('[')) {
      value.kind = Hjson::Kind::kArray;
      take_items(value.items, depth);
    } else if (is_quotation_mark(cursor_.peek())) {
      value.kind = Hjson::Kind::kText;
      value.text = take_quoted(cursor_);
    } else {
      take_word(value);
    }
    return value;
  }

  void take_word(Hjson& value) {
    value.text = take_bare(cursor_);
    if (value.text.empty()) cursor_.refuse("a value is missing", "a value");
    value.kind = kind_of_bare(value.text);
  }

  void take_members(std::vector<HjsonMember>& members, int depth) {
    while (!ends('}')) {
      HjsonMember member{.place = cursor_.place()};
      member.key = take_key();
      cursor_.skip();
      if (!cursor_.take_if(':'))
        cursor_.refuse("after key " + lockstep::detail::in_quotes(member.key), "':'");
      cursor_.skip();
      member.value = take_value(depth + 1);
      members.push_back(std::move(member));
      take_separator('}');
    }
    refuse_duplicates(members);
  }

  void take_items(std::vector<Hjson>& items, int depth) {
    while (!ends(']')) {
      items.push_back(take_value(depth + 1));
      take_separator(']');
    }
  }

  std::string take_key() {
    if (is_quotation_mark(cursor_.peek())) return take_quoted(cursor_);
    auto key = take_bare(cursor_);
    if (key.empty()) cursor_.refuse("a key is missing", "a key");
    return key;
  }

  bool ends(char close) {
    cursor_.skip();
    return cursor_.take_if(close);
  }

  void take_separator(char close) {
    const bool new_line = cursor_.skip();
    if (cursor_.take_if(',') || new_line || cursor_.peek() == close) return;
    cursor_.refuse("after a value", std::string("',' or '") + close + "'");
  }

  void refuse_duplicates(const std::vector<HjsonMember>& members) const {
    std::vector<const HjsonMember*> sorted;
    for (const auto& member : members) sorted.push_back(&member);
    std::ranges::stable_sort(sorted, {}, &HjsonMember::key);
    const auto twice = std::ranges::adjacent_find(sorted, {}, &HjsonMember::key);
    if (twice == sorted.end()) return;
    cursor_.refuse_at(twice[1]->place, "key " + lockstep::detail::in_quotes(twice[0]->key) +
                                           " is given twice, first at " + place_in(name_, twice[0]->place));
  }

  HjsonCursor cursor_;
  const std::string& name_;
};

}  // namespace

Hjson* Hjson::find(std::string_view key) {
  const auto found = std::ranges::find(members, key, &HjsonMember::key);
  return found == members.end() ? nullptr : &found->value;
}

Hjson parse_hjson(std::string_view text, const std::string& name) {
  if (text.size() > kMostBytes) HjsonCursor({}, name).refuse("the configuration is larger than 16 MiB");
  if (!lockstep::detail::is_utf8(text)) HjsonCursor({}, name).refuse("the configuration is no UTF-8");
  return Parser(text, name).parse();
}

}  // namespace lockstep::deepspeed
