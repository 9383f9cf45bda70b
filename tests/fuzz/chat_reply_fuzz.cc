// Any bytes as the reply of a model, whole and in pieces: its parts are the same. The first byte says
// how the reply is written, the second how long a piece is.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "kernels/base/check.h"
#include "model/chat/tool_parser.h"

namespace {

quire::ReplyDelta Parse(quire::ReplySyntax syntax, std::string_view text, size_t piece) {
  quire::ReplyParser parser(syntax.tools, syntax.reasoning);
  quire::ReplyDelta sum;
  const auto add = [&sum](quire::ReplyDelta delta) {
    sum.reasoning += delta.reasoning;
    sum.content += delta.content;
    for (quire::ToolCall& call : delta.calls) sum.calls.push_back(std::move(call));
  };
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) add(parser.Feed(text.substr(0, piece)));
  add(parser.Finish());
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const quire::ReplySyntax syntax = {static_cast<quire::ToolSyntax>(data[0] % 5),
                                     static_cast<quire::ReasoningSyntax>(data[0] / 5 % 3)};
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  QUIRE_CHECK(Parse(syntax, text, text.size()) == Parse(syntax, text, 1 + data[1] % 16));
  return 0;
}
