#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "model/chat/tool_parser.h"

namespace quire {

// Where a text stands that a format looks at.
struct ReplyPlace {
  bool at_start = false;    // no content before it
  bool after_call = false;  // a call before it, and white space at most between
  bool final = false;       // no more text will come
};

// Finds the end of a bracketed value in a text that grows: each call goes on where the last one has stopped.
class BracketScan {
 public:
  // Offset behind the value that starts at `start`, strings in `quotes` respected; npos if it does not end yet, or
  // nests too deep.
  size_t End(std::string_view text, size_t start, std::string_view quotes);

 private:
  size_t at_ = 0;  // all before it has been looked at
  int depth_ = 0;
  char quote_ = 0;  // of the string that at_ is in
};

// Where the reading of a call stopped that is not complete yet.
struct CallScan {
  size_t start = 0;     // of its value: white space before it ends here
  BracketScan value;    // which starts there, or behind a name
  size_t close = 0;     // white space behind the value ends here
  size_t searched = 0;  // what is looked for does not begin before

  // The first `wanted` in text, or the first of its characters, not before searched; npos: not there yet.
  size_t Find(std::string_view text, std::string_view wanted);
  size_t FindAny(std::string_view text, std::string_view characters);
};

// One family's way of writing calls.
class ToolFormat {
 public:
  virtual ~ToolFormat() = default;

  // Offset where a call may start. Without one, how many bytes are surely content; the rest waits for more text.
  struct Found {
    bool starts = false;
    size_t offset = 0;
  };
  virtual Found Find(std::string_view text, ReplyPlace place) const = 0;

  // The calls at the start of `text`, which Find has pointed to. Nullopt: more text is needed, never so in the end; the
  // next call has that text with more behind it, and the same scan, so that nothing is read twice.
  struct Parsed {
    size_t size = 0;              // bytes taken
    std::vector<ToolCall> calls;  // none: these bytes are content
  };
  virtual std::optional<Parsed> Parse(std::string_view text, CallScan* scan, bool final) const = 0;
};

// Null for kNone.
std::unique_ptr<const ToolFormat> MakeToolFormat(ToolSyntax syntax);
std::unique_ptr<const ToolFormat> MakePythonicFormat();

// For the formats.
size_t SkipSpaces(std::string_view text, size_t offset);
// How many bytes of `text` come before what could become `mark` with more text.
size_t SafePrefix(std::string_view text, std::string_view mark);

}  // namespace quire
