#include "model/chat/chat_template.h"

#include <gtest/gtest.h>

#include "tests/testing/ref_data.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

ChatTemplate Load(std::string text) {
  ChatTemplateSource source;
  source.text = std::move(text);
  auto loaded = ChatTemplate::Load(source);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return *std::move(loaded);
}

ChatRequest Request(const std::string& messages) {
  ChatRequest request;
  request.messages = Json::parse(messages);
  request.add_generation_prompt = false;
  request.now = absl::CivilSecond(2026, 11, 30, 14, 5, 9);
  return request;
}

constexpr char kPlain[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";

TEST(ChatTemplateTest, ContinuesTheFinalMessageAsTheOracle) {
  const auto path = testing::RefPath("chat_templates.jsonl");
  if (!path.has_value()) GTEST_SKIP() << "no chat_templates.jsonl in ../shared/ref or tests/data/ref";
  int cases = 0;
  for (const auto& test : testing::ReadJsonLines(*path)) {
    if (!test.contains("continue_final_message")) continue;
    ++cases;
    SCOPED_TRACE(test["name"].get<std::string>());
    ChatRequest request = Request(test["context"]["messages"].dump());
    request.continue_final_message = true;
    request.kwargs = test["context"];
    request.kwargs.erase("messages");
    const auto rendered = Load(test["template"]).Render(request);
    if (test.contains("rendered")) {
      EXPECT_EQ(rendered.value_or(rendered.status().ToString()), test["rendered"].get<std::string>());
    } else {
      EXPECT_EQ(rendered.status().message(), test["error"].get<std::string>());
    }
  }
  EXPECT_GT(cases, 0);
}

// B133: an assistant message with null content beside a call is kept, and null, missing and empty render alike.
TEST(ChatTemplateTest, NullMissingAndEmptyContentRenderAlikeB133) {
  constexpr const char* kTemplates[] = {kPlain, "{% for m in messages %}{{ m.role + ':' + m.content }}{% endfor %}",
                                        "{% for m in messages %}{{ m.role }}{% if m.content is none %}none{% else %}{{ "
                                        "m.content | trim }}{% endif %}{% endfor %}",
                                        "{% for m in messages %}{{ m.role }}{% if m.content is not none and m.content "
                                        "== '' %}{{ raise_exception('empty') }}{% endif %}{{ m.content }}{% endfor %}"};
  for (const char* text : kTemplates) {
    SCOPED_TRACE(text);
    const ChatTemplate chat = Load(text);
    const auto render = [&](const std::string& content) {
      return *chat.Render(
          Request(R"([{"role": "user", "content": "x"}, {"role": "assistant", )" + content +
                  R"("tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]}])"));
    };
    const std::string with_null = render(R"("content": null, )");
    EXPECT_NE(with_null.find("assistant"), std::string::npos);
    EXPECT_EQ(with_null, render(R"("content": "", )"));
    EXPECT_EQ(with_null, render(""));
  }
}

// DeepSeek shows calls only where content is none, and adds arguments as text.
TEST(ChatTemplateTest, CallsShowWhateverFormTheTemplateWants) {
  constexpr const char* kTemplates[] = {
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.function.name }}{{ "
      "c.function.arguments.a }}]{% endfor %}{% endfor %}",
      "{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}[{{ c.function.name }}{{ "
      "(c.function.arguments).a }}]{% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ '[' + c.function.name + "
      "c.function.arguments[7:8] + ']' }}{% endfor %}{% endfor %}"};
  for (const char* text : kTemplates) {
    SCOPED_TRACE(text);
    const ChatTemplate chat = Load(text);
    EXPECT_TRUE(chat.facts().supports_tool_calls);
    for (const std::string content : {R"("content": null, )", R"("content": "", )", ""}) {
      for (const std::string arguments : {R"({"a": "1"})", R"("{\"a\": \"1\"}")"}) {
        const auto rendered = chat.Render(Request(
            R"([{"role": "user", "content": ""}, {"role": "assistant", )" + content +
            R"("tool_calls": [{"type": "function", "function": {"name": "f", "arguments": )" + arguments + "}}]}]"));
        EXPECT_EQ(rendered.value_or(rendered.status().ToString()), "[f1]") << content << arguments;
      }
    }
  }
}

TEST(ChatTemplateTest, JoinsPartsUnlessTheTemplateIteratesThem) {
  constexpr char kParts[] =
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])";
  const ChatTemplate plain = Load(kPlain);
  EXPECT_FALSE(plain.facts().iterates_content);
  EXPECT_EQ(*plain.Render(Request(kParts)), "<user>a\nb");
  const ChatTemplate iterates = Load(
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}[{{ p.text "
      "}}]{% endfor %}{% endif %}{% endfor %}");
  EXPECT_TRUE(iterates.facts().iterates_content);
  EXPECT_EQ(*iterates.Render(Request(kParts)), "[a][b]");
}

TEST(ChatTemplateTest, ProbesWhatTheTemplateSupports) {
  const ChatTemplate all = Load("{{ tools | tojson if tools }}{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_TRUE(all.facts().supports_tools);
  EXPECT_TRUE(all.facts().supports_system);
  const ChatTemplate none = Load(
      "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ messages[-1].content }}");
  EXPECT_FALSE(none.facts().supports_tools);
  EXPECT_FALSE(none.facts().supports_system);
}

// Arguments are parsed only as far as that takes no time: 100,000 names took minutes, each compared with all before it.
TEST(ChatTemplateTest, ArgumentsOfTooManyMembersStayText) {
  const ChatTemplate chat = Load(
      "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments is string }}"
      "{{ c.function.arguments.a }}{% endfor %}{% endfor %}");
  const auto rendered = [&chat](int num_members, int depth) {
    std::string text = R"({"a": )" + std::string(depth, '[') + std::string(depth, ']');
    for (int i = 0; i < num_members; ++i) text += ",\"" + std::to_string(i) + "\": 0";
    Json message = Json::parse(R"({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]})");
    message["tool_calls"][0]["function"]["arguments"] = text + "}";
    ChatRequest request = Request("[]");
    request.messages.push_back(message);
    const auto text_or = chat.Render(request);
    return text_or.ok() ? *text_or : text_or.status().ToString();
  };
  EXPECT_EQ(rendered(4000, 1), "fFalse[]");
  EXPECT_EQ(rendered(5000, 1), "fTrue");
  EXPECT_EQ(rendered(1, 100'000), "fTrue");
}

// B132: probing never makes a model unusable.
TEST(ChatTemplateTest, ATemplateThatRaisesOnEveryProbeLoadsB132) {
  const ChatTemplate chat = Load("{{ raise_exception('System message must be first') }}");
  const auto rendered = chat.Render(Request(R"([{"role": "user", "content": "x"}])"));
  EXPECT_EQ(rendered.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rendered.status().message(), "System message must be first");
}

TEST(ChatTemplateTest, TakesTemplatesAndTokensFromTheConfiguration) {
  ChatTemplateSource source;
  source.tokenizer_config = Json::parse(R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null,
      "chat_template": [{"name": "default", "template": "{{ bos_token }}d{{ eos_token }}{{ pad_token is defined }}"},
                        {"name": "tool_use", "template": "t"}]})");
  auto named = ChatTemplate::Load(source);
  ASSERT_TRUE(named.ok()) << named.status();
  ChatRequest request = Request("[]");
  EXPECT_EQ(*named->Render(request), "<s>d</s>False");
  request.tools = Json::array();
  EXPECT_EQ(*named->Render(request), "t");
  source.text = "file";
  EXPECT_EQ(*ChatTemplate::Load(source)->Render(request), "file");
}

TEST(ChatTemplateTest, RefusesWhatIsNoTemplate) {
  EXPECT_EQ(ChatTemplate::Load({}).status().code(), absl::StatusCode::kNotFound);
  ChatTemplateSource source;
  source.tokenizer_config = Json::parse(R"({"chat_template": 5})");
  EXPECT_EQ(ChatTemplate::Load(source).status().code(), absl::StatusCode::kInvalidArgument);
  source.text = "a\n{% if %}";
  EXPECT_NE(ChatTemplate::Load(source).status().message().find("line 2"), std::string::npos);
}

// B129: a keyword that no engine knows is an error of the template, not of the process.
TEST(ChatTemplateTest, UnknownKeywordsAreErrorsAndKnownOnesWorkB129) {
  ChatTemplateSource source;
  source.text = "{% trans %}x{% endtrans %}";
  EXPECT_EQ(ChatTemplate::Load(source).status().code(), absl::StatusCode::kInvalidArgument);
  const ChatTemplate chat =
      Load("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% break %}{% endfor %}");
  EXPECT_EQ(*chat.Render(Request(R"([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])")), "a");
}

// B130: all fields of the time.
TEST(ChatTemplateTest, TellsTheTimeB130) {
  const ChatTemplate chat = Load("{{ strftime_now('%Y-%m-%d %H:%M:%S %A %B %j %p %I %y %b %a %-d %%') }}");
  EXPECT_EQ(*chat.Render(Request("[]")), "2026-11-30 14:05:09 Monday November 334 PM 02 26 Nov Mon 30 %");
}

}  // namespace
}  // namespace quire
