// The instructions of pickles that are read or written here, by their names in Python's pickletools.
#pragma once

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

}  // namespace lockstep::pickle::detail
