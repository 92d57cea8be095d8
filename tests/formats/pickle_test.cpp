#include <gmock/gmock.h>

#include <limits>

#include <lockstep/base/error.h>
#include <lockstep/formats/pickle.h>

#include "formats/pickle_text.h"
#include "support/expect_error.h"

namespace lockstep::pickle {
namespace {

using test::pickle_of;
using test::pickled;
using test::pickled_name;
using test::pickled_storage;
using test::pickled_tensor;
using test::pickled_text;
using ::testing::HasSubstr;
using namespace std::string_literals;

Expected<Document> read(const std::string& pickle) { return parse(std::as_bytes(std::span(pickle))); }

void expect_value(const std::string& pickle, const Value& expected) {
  const auto document = read(pickle);
  ASSERT_TRUE(document) << document.error();
  EXPECT_EQ(document->root, expected) << document->root.kind();
}

/// Expects that the value which `body` makes is `expected`.
void expect_body(const std::string& body, const Value& expected) { expect_value(pickle_of(body), expected); }

void expect_reason(const std::string& body, const std::string& reason) {
  const auto document = read(pickle_of(body));
  ASSERT_FALSE(document) << "accepted; expected: " << reason;
  EXPECT_THAT(document.error(), HasSubstr(reason));
}

Value dict(std::vector<std::pair<Value, Value>> entries) { return Dict{std::move(entries)}; }
Value list(List values) { return values; }
Value tuple(List values) { return Tuple{std::move(values)}; }
Value integer(std::int64_t value) { return value; }
Value foreign(std::string what) { return Foreign{std::move(what)}; }

Value tensor(std::int64_t offset, std::vector<std::int64_t> shape, std::vector<std::int64_t> stride) {
  const Storage storage{.key = "7", .bytes = 24, .dtype = Dtype::kF32};
  return Tensor{.storage = std::make_shared<Storage>(storage),
                .dtype = Dtype::kF32,
                .offset = offset,
                .shape = std::move(shape),
                .stride = std::move(stride)};
}

TEST(PickleRead, GivesPlainValues) {
  expect_body("N", None{});
  expect_body("\x88", true);
  expect_body("\x89", false);
  expect_body("K\xff", integer(255));
  expect_body("M\x01\x02", integer(513));
  expect_body("J\xfe\xff\xff\xff", integer(-2));
  expect_body("\x8a\x00"s, integer(0));
  expect_body("\x8a\x01\xff", integer(-1));
  expect_body("\x8a\x06\x00\x00\x00\x00\x00\x01"s, integer(std::int64_t{1} << 40));
  expect_body("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80"s, integer(std::numeric_limits<std::int64_t>::min()));
  expect_body("G\x3f\xf8\x00\x00\x00\x00\x00\x00"s, 1.5);
  expect_body(pickled_text("\u00e9"), "\u00e9");
}

TEST(PickleRead, KnowsLaterProtocols) {
  const Bytes hi{std::byte{'h'}, std::byte{'i'}};
  expect_value("\x80\x03\x43\x02hi.", hi);
  expect_value("\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x02hi."s, "hi");
  expect_value("\x80\x04\x8d\x02\x00\x00\x00\x00\x00\x00\x00hi."s, "hi");
  expect_value("\x80\x05\x96\x02\x00\x00\x00\x00\x00\x00\x00hi."s, hi);
  expect_value("\x80\x04\x8f\x94(K\x01K\x02\x90.", list({integer(1), integer(2)}));
  expect_value("\x80\x04(K\x01\x91.", tuple({integer(1)}));
  expect_value(
      "\x80\x04\x8c\x05torch\x94\x8c\x07"
      "float32\x94\x93.",
      Name{"torch.float32"});
}

TEST(PickleRead, GivesContainers) {
  expect_body("]("s + pickled(1) + pickled(2) + "e" + pickled(3) + "a",
              list({integer(1), integer(2), integer(3)}));
  expect_body(pickled(1) + "\x85", tuple({integer(1)}));
  expect_body(pickled(1) + pickled(2) + "\x86", tuple({integer(1), integer(2)}));
  expect_body("NNN\x87", tuple({None{}, None{}, None{}}));
  expect_body("(NNNNt", tuple({None{}, None{}, None{}, None{}}));
  expect_body("}(" + pickled(1) + pickled_text("a") + "u" + pickled_text("b") + "Ns",
              dict({{integer(1), "a"}, {"b", None{}}}));
}

TEST(PickleRead, UsesValuesAgain) {
  expect_body("](" + pickled_text("a") + "q" + "\x00"s + "h\x00"s + "j\x00\x00\x00\x00"s + "e",
              list({"a", "a", "a"}));
  expect_body("(]q\x00"s + pickled(1) + "a" + "h\x00t"s, tuple({list({integer(1)}), list({integer(1)})}));
}

TEST(PickleRead, KnowsNamesOfPythonAndTorch) {
  const auto bytes = Bytes{std::byte{'a'}, std::byte{0xe9}};
  const auto encoded = pickled_text("a\u00e9") + pickled_text("latin1") + "\x86R";
  expect_body(pickled_name("collections", "OrderedDict") + ")R" + pickled_text("a") + "Ns" + "}" +
                  pickled_text("_metadata") + "Nsb",
              dict({{"a", None{}}}));
  expect_body(pickled_name("_codecs", "encode") + encoded, bytes);
  expect_body(pickled_name("__builtin__", "bytearray") + encoded, bytes);
  expect_body(pickled_name("__builtin__", "bytes") + ")R", Bytes{});
  expect_body(pickled_name("__builtin__", "set") + "]" + pickled(1) + "a\x85R", list({integer(1)}));
  expect_body(pickled_name("torch", "Size") + pickled(2) + "\x85\x85R", tuple({integer(2)}));
  expect_body(pickled_name("torch", "device") + pickled_text("cuda") + pickled(1) + "\x86R", "cuda:1");
  expect_body(pickled_name("torch", "device") + pickled_text("cpu") + "\x85R", "cpu");
  expect_body(pickled_name("torch", "bfloat16"), Name{"torch.bfloat16"});
  expect_body(pickled_name("argparse", "Namespace") + ")\x81}" + pickled_text("lr") + pickled(1) + "sb",
              dict({{"lr", integer(1)}}));
  expect_body(pickled_name("pathlib", "PosixPath") + pickled_text("/") + pickled_text("a") + "\x86R",
              tuple({"/", "a"}));
}

TEST(PickleRead, MakesRecordsOfWhatDeepSpeedNames) {
  const auto scaler = [](const std::string& name) {
    return pickled_name("deepspeed.runtime.fp16.loss_scaler", name) + ")\x81}" + pickled_text("cur_scale") +
           pickled(8) + "sb";
  };
  expect_body(scaler("DynamicLossScaler"), dict({{"cur_scale", integer(8)}}));
  expect_body(scaler("LossScaler"), dict({{"cur_scale", integer(8)}}));
  expect_body(pickled_name("deepspeed.runtime.zero.config", "ZeroStageEnum") + pickled(3) + "\x85R",
              integer(3));
  expect_body(scaler("Other"), foreign("deepspeed.runtime.fp16.loss_scaler.Other(...)"));
}

TEST(PickleRead, MakesTensorsOfAClassOnlyByFunctionsOfTensors) {
  const auto made_by = [](const std::string& function, const std::string& arguments) {
    return pickled_name("torch._tensor", "_rebuild_from_type_v2") + "(" + function +
           pickled_name("torch", "Tensor") + arguments + "}tR";
  };
  const auto place = "(" + pickled_storage("0", 2) + "K\x00K\x02\x85K\x01\x85\x89}t"s;
  const auto body = made_by(pickled_name("torch._utils", "_rebuild_tensor_v2"), place);
  const auto document = read(pickle_of(body));
  ASSERT_TRUE(document) << document.error();
  ASSERT_NE(document->root.as<Tensor>(), nullptr);
  EXPECT_EQ(document->root.as<Tensor>()->shape, std::vector<std::int64_t>{2});
  expect_reason(made_by(pickled_name("torch", "device"), place), "needs a function that makes a tensor");
  expect_reason(made_by(pickled_name("torch._utils", "_rebuild_tensor_v2"), "N"),
                "needs a tuple of arguments");
}

// Whatever is built of a name that is not in the table, nothing of it is kept, and the rest is read.
TEST(PickleRead, NamesWhatItDoesNotRead) {
  const auto called = pickled_text("true") + "\x85R";
  const auto state = "}" + pickled_text("a") + pickled(1) + "sb";
  expect_body(pickled_name("os", "system"), foreign("os.system"));
  expect_body(pickled_name("os", "system") + called, foreign("os.system(...)"));
  expect_body(pickled_name("builtins", "eval") + called, foreign("builtins.eval(...)"));
  expect_body(pickled_text("os") + pickled_text("system") + "\x93", foreign("os.system"));
  expect_body(pickled_name("a\x1b[2J", "b"), foreign("a?[2J.b"));
  expect_body(pickled_name("functools", "partial") + pickled_name("my", "f") + "\x85R" + state,
              foreign("functools.partial(my.f, ...)"));
  expect_body(
      pickled_name("my", "Class") + ")}\x92" + pickled_text("k") + pickled(2) + "s(" + pickled(3) + "e",
      foreign("my.Class(...)"));
  // It may hold itself, as it holds nothing.
  expect_body("]" + pickled_name("my", "Node") + ")\x81q\x00}"s + pickled_text("self") + "h\x00sba"s +
                  pickled(1) + "a",
              list({foreign("my.Node(...)"), integer(1)}));
  expect_body(pickled_name("torch", "float32") + pickled_name("my", "c") + "\x86",
              tuple({Name{"torch.float32"}, foreign("my.c")}));
  const auto long_name = read(pickle_of(pickled_name(std::string(100'000, 'x'), "y")));
  ASSERT_TRUE(long_name);
  EXPECT_LT(long_name->root.as<Foreign>()->what.size(), 300u);
  expect_reason("cos\nsys", "cuts short");
}

TEST(PickleRead, NamesNumbersAndTextsThatHaveNoPlaceHere) {
  const auto more = ", which has more than 64 bits";
  expect_body("\x8a\x09" + std::string(8, '\0') + "\1", foreign("the integer 18446744073709551616"s + more));
  expect_body("\x8b\x09\0\0\0"s + std::string(8, '\0') + "\xff",
              foreign("the integer -18446744073709551616"s + more));
  expect_body("\x8b\x01\0\0\0\x07"s, integer(7));
  expect_body("\x8a\x50" + std::string(80, '\1'), foreign("an integer of 640 bits"));
  expect_body("X\x01\x00\x00\x00\xff"s, foreign("text that is not UTF-8"));
  expect_reason("\x8b\xff\xff\xff\xff", "cuts short");
}

TEST(PickleRead, KnowsOtherContainersOfPython) {
  expect_body(pickled_name("collections", "defaultdict") + pickled_name("builtins", "list") + "\x85R" +
                  pickled_text("a") + "Ns",
              dict({{"a", None{}}}));
  expect_body(pickled_name("collections", "deque") + ")" + pickled(3) + "\x86R" + pickled(1) + "a",
              list({integer(1)}));
  expect_body("(" + pickled(1) + "1" + pickled(2) + pickled(3) + "0", integer(2));  // POP_MARK and POP
  expect_body("U\x02hi", "hi");
  expect_body(pickled_name("collections", "OrderedDict") + "]]" + pickled_text("a") + "aNaa\x85R",
              dict({{"a", None{}}}));
  expect_body("(" + pickled_text("module") + pickled_name("my", "Net") + "NNtQ", foreign("my.Net"));
}

TEST(PickleRead, RefusesOtherInstructions) {
  expect_reason("I1\n", "byte 2 is the unknown instruction 73");
  expect_reason("\x82\x01", "unknown instruction 130");  // EXT1: names by number
  expect_reason("P0\n", "unknown instruction 80");       // PERSID
  expect_reason("ios\nsystem\n", "unknown instruction 105");
  expect_reason("\x92", "not there");  // NEWOBJ_EX
  EXPECT_THAT(read("\x80\x01N.").error(), HasSubstr("protocol 1"));
  EXPECT_THAT(read("\x80\x06N.").error(), HasSubstr("protocol 6"));
}

TEST(PickleRead, RefusesWhatIsCutShortOrGoesOn) {
  const auto whole = pickle_of("}(" + pickled_text("weight") +
                               pickled_tensor(pickled_storage("7", 6), "K\x00K\x06\x85K\x01\x85"s) + "u");
  EXPECT_TRUE(read(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(read(whole.substr(0, size))) << size;
  EXPECT_THAT(read(whole + "N").error(), HasSubstr("1 bytes follow the end"));
  expect_reason("NN", "left over");
  expect_reason("X\xff\xff\xff\xffshort", "cuts short");
  expect_reason("\x8d\xff\xff\xff\xff\xff\xff\xff\xffshort", "cuts short");
  expect_reason("\x95\xff\xff\xff\xff\xff\xff\xff\xff", "cuts short");
}

TEST(PickleRead, RefusesMisuseOfTheStack) {
  for (const auto* body :
       {"", "\x85", "N\x86", "t", "a", "]a", "s", "}Ns", "R", "NR", "b", "Q", "\x93", "e", "u"}) {
    EXPECT_FALSE(read(pickle_of(body))) << body;
  }
  expect_reason("](a", "not there");  // the list lies below the mark
  expect_reason("}(Nu", "no pairs");
  expect_reason("NNa", "no list or dict");
  expect_reason("}Na", "no list");
  expect_reason("]NNs", "no pairs of a dict");
  expect_reason("NN\x85R", "no name");
  expect_reason("]}b", "attributes to a list");
  expect_reason("h\x05", "not memorised");
  expect_reason("Nq\x05", "before the numbers below it");
  expect_reason("r\xff\xff\xff\xff", "not there");
}

TEST(PickleRead, RefusesContainersThatHoldThemselves) {
  expect_reason("]q\x00h\x00"s + "a", "part of another one");
  expect_reason("]q\x00]h\x00"s + "a" + "q\x01" + "h\x00h\x01"s + "a", "part of another one");
  expect_reason("}q\x00N]h\x00"s + "as" + "h\x00NNs"s, "part of another one");
}

TEST(PickleRead, BoundsNesting) {
  const std::string deep(std::size_t{1} << 20, ']');
  expect_reason(deep + std::string(deep.size() - 1, 'a'), "nests deeper than 1000");
  expect_reason(")" + std::string(2000, '\x85'), "nests deeper than 1000");
  EXPECT_TRUE(read(pickle_of(")" + std::string(999, '\x85'))));
}

TEST(PickleRead, ReadsWhatIsWrittenOfTheDeepestBytes) {
  const auto nested = [](std::size_t depth) { return pickle_of("C\x02hi" + std::string(depth, '\x85')); };
  const auto deepest = read(nested(999));
  ASSERT_TRUE(deepest);
  EXPECT_TRUE(read(write(deepest->root)));
  expect_reason("C\x02hi" + std::string(1000, '\x85'), "nests deeper than 1000");
}

TEST(PickleRead, BoundsRepetition) {
  // A list of ten times that list, of ten times that list, ...
  std::string laughs = "]q"s + '\0';
  for (char level = 0; level < 20; ++level) {
    laughs += "](";
    for (int i = 0; i < 10; ++i) laughs += "h"s + level;
    laughs += "eq"s + static_cast<char>(level + 1);
  }
  expect_reason(laughs, "repeats itself");
  // A long text, again and again.
  const std::string text(100'000, 'x');
  const auto length = static_cast<std::uint32_t>(text.size());
  std::string repeats = "X" + std::string(reinterpret_cast<const char*>(&length), 4) + text + "q" + '\0';
  for (int i = 0; i < 100'000; ++i) repeats += "h"s + '\0';
  expect_reason("(" + repeats + "t", "repeats itself");
}

TEST(PickleRead, GivesTensors) {
  const auto storage = pickled_storage("7", 6);
  expect_body(pickled_tensor(storage, "K\x00K\x02K\x03\x86K\x03K\x01\x86"s), tensor(0, {2, 3}, {3, 1}));
  expect_body(pickled_tensor(storage, "K\x00K\x03K\x02\x86K\x01K\x03\x86"s), tensor(0, {3, 2}, {1, 3}));
  expect_body(pickled_tensor(storage, "K\x05))"), tensor(5, {}, {}));
  expect_body(pickled_tensor(storage, "K\x06K\x00\x85K\x01\x85"s), tensor(6, {0}, {1}));
  expect_body(pickled_tensor(storage, "K\x07K\x00\x85K\x01\x85"s), tensor(6, {0}, {1}));
  expect_body(pickled_tensor(storage, "K\x00K\x07\x85K\x00\x85"s), tensor(0, {7}, {0}));
  expect_body(
      pickled_name("torch._utils", "_rebuild_parameter") + pickled_tensor(storage, "K\x05))") + "\x88}\x87R",
      tensor(5, {}, {}));
  const auto document =
      read(pickle_of(pickled_tensor(storage, "K\x05))") + pickled_tensor(storage, "K\x05))") + "\x86"));
  ASSERT_TRUE(document) << document.error();
  ASSERT_EQ(document->storages.size(), 1u);
  EXPECT_EQ(*document->storages[0], (Storage{.key = "7", .bytes = 24, .dtype = Dtype::kF32}));
}

TEST(PickleRead, KnowsConjugatesAndNegatives) {
  const auto viewed = [](const std::string& metadata) {
    return read(pickle_of(pickled_tensor(pickled_storage("7", 6), "K\x00))"s, "\x89}" + metadata + "t")));
  };
  const auto both = viewed("}" + pickled_text("conj") + "\x88s" + pickled_text("neg") + "\x88s");
  ASSERT_TRUE(both) << both.error();
  const auto* held = both->root.as<Tensor>();
  EXPECT_TRUE(held->is_conj && held->is_neg);
  EXPECT_EQ(read(write(*held))->root, both->root);
  EXPECT_FALSE(viewed("N")->root.as<Tensor>()->is_conj);
}

// Their storages are read all the same.
TEST(PickleRead, HasWordsForTensorsThatAreNotDense) {
  const auto made_by = [](const std::string& function) {
    return pickled_name("torch._utils", function) + "(" + pickled_storage("7", 6, "QInt8Storage") + "tR";
  };
  expect_body(made_by("_rebuild_qtensor"), foreign("a quantised tensor"));
  expect_body(made_by("_rebuild_sparse_tensor"), foreign("a sparse tensor"));
  expect_body(made_by("_rebuild_nested_tensor"), foreign("a nested tensor"));
  expect_body(pickled_name("torch._utils", "_rebuild_parameter") +
                  made_by("_rebuild_meta_tensor_no_storage") + "\x85R",
              foreign("a meta tensor, which has no bytes"));
}

TEST(PickleRead, RefusesTensorsOutsideTheirStorage) {
  const auto expect = [](const std::string& place, const std::string& reason) {
    expect_reason(pickled_tensor(pickled_storage("7", 6), place), reason);
  };
  const auto large = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"s;
  expect("K\x06))", "storage '7' reaches outside");
  expect("K\x00K\x07\x85K\x01\x85"s, "reaches outside");
  expect("K\x00K\x02K\x03\x86K\x04K\x01\x86"s, "reaches outside");
  expect("K\x00"s + large + "K\x03\x86K\x03K\x01\x86"s, "impossible shape");
  expect("K\x00"s + large + "K\x00\x86K\x02K\x01\x86"s, "impossible shape");
  expect(large + "K\x02\x85K\x01\x85", "impossible shape");
  expect("K\x00K\x02\x85)"s, "not as many strides");
  expect("J\xff\xff\xff\xff))", "needs a storage, an offset");
  expect("K\x00J\xff\xff\xff\xff\x85K\x01\x85"s, "needs a storage");
  expect("K\x00N)"s, "needs a storage");
}

TEST(PickleRead, RefusesOddTensorsAndStorages) {
  const auto at0 = "K\x00))"s;
  expect_body(pickled_tensor(pickled_storage("7", 6, "OddStorage"), at0),
              foreign("a tensor of torch.OddStorage"));
  expect_reason(pickled_tensor("N", at0), "needs a storage");
  expect_reason(pickled_tensor(pickled_storage("7", 6), at0, "\x89}}" + pickled_text("odd") + "\x88st"),
                "more of a tensor than is known");
  expect_reason(
      pickled_tensor(pickled_storage("7", 6), at0) + pickled_tensor(pickled_storage("7", 5), at0) + "\x86",
      "storage '7' otherwise than before");
  expect_reason(pickled_text("x") + "Q", "is none of a storage");
  expect_reason("(" + pickled_text("module") + pickled_name("torch", "FloatStorage") + "NNK\x01tQ",
                "is none of");
  std::string dims = "K\x00("s;
  for (int i = 0; i < 65; ++i) dims += "K\x01";
  expect_reason(pickled_tensor(pickled_storage("7", 6), dims + "t)"), "needs a storage");
}

TEST(PickleWrite, IsRead) {
  const auto half = std::make_shared<Storage>(Storage{.key = "h", .bytes = 4, .dtype = Dtype::kF16});
  const auto odd = std::make_shared<Storage>(Storage{.key = "o", .bytes = 4, .dtype = {}});
  const Value value =
      dict({{"none", None{}},
            {"flags", list({true, false})},
            {integer(3), tuple({integer(-1), integer(1), integer(std::int64_t{1} << 40), -2.5})},
            {"text", "\u00e9\n"},
            {"bytes", Bytes{std::byte{0}, std::byte{0xff}, std::byte{'a'}}},
            {"no bytes", Bytes{}},
            {"dtype", Name{"torch.int8"}},
            {"empty", tuple({list({}), tuple({}), dict({})})},
            {"half", Tensor{.storage = half, .dtype = Dtype::kF16, .offset = 1, .shape = {1}, .stride = {1}}},
            {"odd",
             Tensor{.storage = odd, .dtype = Dtype::kU16, .offset = 0, .shape = {2, 1}, .stride = {1, 1}}}});
  expect_value(write(value), value);
}

TEST(PickleWrite, RefusesWhatTorchLoadWouldRefuse) {
  test::expect_error<CheckpointError>([] { write(Name{"os.system"}); }, {"os.system"});
  test::expect_error<CheckpointError>([] { write(Foreign{"my.Class(...)"}); }, {"my.Class"});
  test::expect_error<CheckpointError>([] { write(Storage{}); }, {"storage outside a tensor"});
}

}  // namespace
}  // namespace lockstep::pickle
