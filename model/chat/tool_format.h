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

  // The calls at the start of `text`, which Find has pointed to. Nullopt: more text is needed, never so in the end.
  struct Parsed {
    size_t size = 0;              // bytes taken
    std::vector<ToolCall> calls;  // none: these bytes are content
  };
  virtual std::optional<Parsed> Parse(std::string_view text, bool final) const = 0;
};

// Null for kNone.
std::unique_ptr<const ToolFormat> MakeToolFormat(ToolSyntax syntax);
std::unique_ptr<const ToolFormat> MakePythonicFormat();

// For the formats.
// Offset after the bracketed value that starts at `offset`, strings in `quotes` respected; npos if it does not end.
size_t BracketsEnd(std::string_view text, size_t offset, std::string_view quotes);
size_t SkipSpaces(std::string_view text, size_t offset);
// How many bytes of `text` come before what could become `mark` with more text.
size_t SafePrefix(std::string_view text, std::string_view mark);

}  // namespace quire
