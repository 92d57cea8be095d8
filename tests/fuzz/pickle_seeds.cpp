#include "fuzz/pickle_seeds.h"

#include <lockstep/formats/pickle.h>

#include "formats/pickle_text.h"

namespace lockstep::fuzz {
namespace {

using namespace pickle;
using namespace std::string_literals;
using test::pickle_of;
using test::pickled;
using test::pickled_name;
using test::pickled_storage;
using test::pickled_tensor;
using test::pickled_text;

/// As torch.save writes a state_dict: with a memo.
std::string state_dict() {
  const auto tensor = pickled_tensor(pickled_storage("0", 6), "K\x00K\x02K\x03\x86q\x01K\x03K\x01\x86"s);
  return pickle_of(pickled_name("collections", "OrderedDict") + ")Rq" + '\0' + "(" + pickled_text("weight") +
                   tensor + pickled_text("again") + "h\x01u}"s + pickled_text("_metadata") + "}sb");
}

std::string plain_values() {
  Dict root;
  root.set("list", List{std::int64_t{1}, 2.5, true, None{}, "text"});
  root.set("bytes", Bytes{std::byte{0}, std::byte{0xff}});
  root.set("tuple", Tuple{{std::int64_t{-1}, std::int64_t{1} << 40, Name{"torch.int8"}}});
  return write(root);
}

/// As DeepSpeed writes the optimizer's file: a stage, a record, a tensor of a class.
std::string optimizer_state() {
  const auto tensor = pickled_name("torch._tensor", "_rebuild_from_type_v2") + "(" +
                      pickled_name("torch._utils", "_rebuild_tensor_v2") + pickled_name("torch", "Tensor") +
                      "(" + pickled_storage("0", 6) + "K\x00K\x06\x85K\x01\x85\x89" +
                      pickled_name("collections", "OrderedDict") + ")Rt}tR";
  return pickle_of("}(" + pickled_text("zero_stage") +
                   pickled_name("deepspeed.runtime.zero.config", "ZeroStageEnum") + "K\x03\x85R" +
                   pickled_text("loss_scaler") +
                   pickled_name("deepspeed.runtime.fp16.loss_scaler", "LossScaler") + ")\x81}" +
                   pickled_text("cur_scale") + pickled(1) + "sb" + pickled_text("fp32") + tensor + "u");
}

/// Lists of ten times the list before: short to write, endless to walk over.
std::string billion_laughs(char levels) {
  std::string body = "(]q"s + '\0';
  for (char level = 0; level < levels; ++level) {
    body += "](";
    for (int i = 0; i < 10; ++i) body += "h"s + level;
    body += "eq"s + static_cast<char>(level + 1);
  }
  return pickle_of(body + "t");
}

std::string nested(std::size_t depth) { return pickle_of(")" + std::string(depth, '\x85')); }

}  // namespace

std::vector<std::string> pickle_seeds() {
  const auto protocol4 =
      "\x80\x04\x95\x11\0\0\0\0\0\0\0}\x94(\x8c\x01"
      "a\x94K\x01\x8c\x01"
      "b\x94h\x01u."s;
  return {
      state_dict(),
      optimizer_state(),
      plain_values(),
      protocol4,
      billion_laughs(2),
      billion_laughs(9),
      nested(90),
      pickle_of("C\x02hi" + std::string(99, '\x85')),
      pickle_of(pickled_name("argparse", "Namespace") + ")\x81}" + pickled_text("lr") + pickled(1) + "sb")};
}

std::vector<std::string> pickle_tokens() {
  std::vector<std::string> tokens{"\x80\x02",
                                  "N",
                                  "\x88",
                                  "K\x01",
                                  "M\x01\x02",
                                  "J\xff\xff\xff\xff",
                                  "\x8a\x01\x7f",
                                  "G12345678",
                                  "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f",
                                  "\x8c\x01"
                                  "a",
                                  "C\x02hi",
                                  ")",
                                  "(",
                                  "t",
                                  "\x85",
                                  "\x86",
                                  "\x87",
                                  "]",
                                  "a",
                                  "e",
                                  "}",
                                  "s",
                                  "u",
                                  "\x8f",
                                  "\x90",
                                  "\x91",
                                  "\x94",
                                  "q\0"s,
                                  "q\x01",
                                  "h\0"s,
                                  "h\x01",
                                  "h\x02",
                                  "R",
                                  "\x81",
                                  "b",
                                  "Q",
                                  ".",
                                  "\x93",
                                  "\x92",
                                  "0",
                                  "1",
                                  "\x8b\x09\0\0\0"s + "123456789",
                                  "U\x02hi",
                                  pickled_name("my", "Class"),
                                  pickled_text("conj"),
                                  pickled_storage("2", 6, "QInt8Storage"),
                                  pickled_text("latin1"),
                                  pickled_storage("0", 6),
                                  pickled_storage("1", 100, "LongStorage"),
                                  pickled_tensor(pickled_storage("0", 6), "K\x00K\x02\x85K\x01\x85"s)};
  for (const auto& global : torch_globals()) {
    const auto dot = global.name.rfind('.');
    tokens.push_back(
        pickled_name(std::string(global.name.substr(0, dot)), std::string(global.name.substr(dot + 1))));
  }
  return tokens;
}

}  // namespace lockstep::fuzz
