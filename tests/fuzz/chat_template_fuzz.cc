// Any bytes as a chat template: an error or text that is UTF-8, within small limits. The first byte says whether it is
// rendered by itself, or loaded as a model's, with the renderings of conversations that this takes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/base/check.h"
#include "model/chat/chat_template.h"
#include "model/tokenizer/utf8.h"

namespace {

constexpr absl::CivilSecond kNow(2026, 11, 30, 14, 5, 9);

const nlohmann::ordered_json& Context() {
  static const auto* const context = new nlohmann::ordered_json(nlohmann::ordered_json::parse(
      R"({"s": "Hello World", "u": "\u00e9\u4f60\ud83d\ude00", "n": null, "i": 7, "f": 2.5, "t": true, "l": [3, 1, 2],
          "d": {"b": 1, "a": "x"}, "o": [{"k": "a", "v": 1}, {"k": "b", "v": 2}],
          "messages": [{"role": "system", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "y"}]},
                       {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}],
          "tools": [], "add_generation_prompt": true})"));
  return *context;
}

quire::ChatRequest Conversation() {
  quire::ChatRequest request;
  request.messages = Context()["messages"];
  request.tools = nlohmann::ordered_json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
  request.now = kNow;
  return request;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  quire::jinja::Limits limits;
  limits.max_depth = 300;
  limits.max_output_bytes = 1 << 20;
  if (data[0] % 2 == 0) {
    limits.max_steps = 20'000;
    const auto compiled = quire::jinja::Template::Compile(text, limits);
    if (!compiled.ok()) return 0;
    const auto rendered = compiled->Render(Context(), kNow);
    if (rendered.ok()) QUIRE_CHECK(quire::utf8::IsValid(*rendered));
    return 0;
  }
  limits.max_steps = 4'000;  // of each of up to nine renderings
  quire::ChatTemplateSource source;
  source.text = text;
  const auto loaded = quire::ChatTemplate::Load(source, limits);
  if (!loaded.ok()) return 0;
  const auto chat = loaded->Render(Conversation());
  if (chat.ok()) QUIRE_CHECK(quire::utf8::IsValid(*chat));
  return 0;
}
