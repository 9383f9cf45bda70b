// What the text must be: response_format and structured_outputs over HTTP, on the simulated model.

#include <string>

#include "gtest/gtest.h"
#include "tests/server/http_completions_fixture.h"

namespace quire {
namespace {

using ::nlohmann::json;
using ::quire::testing::HttpClient;

class HttpStructuredTest : public testing::HttpCompletionsTest {};

TEST_F(HttpStructuredTest, StructuredOutput) {
  Load();
  const auto text = [&](const json& fields) {
    const HttpClient::Reply reply = Complete(fields);
    EXPECT_EQ(reply.status, 200) << reply.body;
    if (reply.status != 200) return std::string();
    EXPECT_EQ(reply.json()["choices"][0]["finish_reason"], "stop");
    return reply.json()["choices"][0]["text"].get<std::string>();
  };
  const json schema = json::parse(R"({"type": "object", "additionalProperties": false, "required": ["z", "a"],
    "properties": {"z": {"const": 1}, "a": {"enum": ["x", "y"]}}})");
  // The schema of a client's body keeps the order of its keys.
  const std::string body =
      R"({"prompt": "hi", "max_tokens": 200, "response_format": {"type": "json_schema", "json_schema":
    {"name": "n", "strict": true, "schema": {"type": "object", "additionalProperties": false, "required": ["z", "a"],
    "properties": {"z": {"const": 1}, "a": {"const": "x"}}}}}, "structured_outputs": {"disable_any_whitespace": true}})";
  HttpClient client(server_->address());
  client.Send(HttpClient::PostText("/v1/completions", body));
  EXPECT_EQ(client.Read().json()["choices"][0]["text"], R"({"z":1,"a":"x"})");
  for (const json& form :
       {json({{"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}}}}),
        json({{"structured_outputs", {{"json", schema}}}}),
        json({{"structured_outputs", {{"json", schema.dump()}}}})}) {
    json fields = form;
    fields["max_tokens"] = 400;
    fields["structured_outputs"]["disable_any_whitespace"] = true;
    EXPECT_EQ(json::parse(text(fields))["z"], 1);
  }
  EXPECT_EQ(text({{"structured_outputs", {{"regex", "a{3}b"}}}}), "aaab");
  EXPECT_EQ(text({{"structured_outputs", {{"choice", {"only"}}}}}), "only");
  EXPECT_EQ(text({{"structured_outputs", {{"grammar", "root ::= \"x\" \"y\""}}}}), "xy");
  const json object = {{"response_format", {{"type", "json_object"}}}, {"max_tokens", 1}};
  EXPECT_EQ(Complete(object).json()["choices"][0]["text"], "{");
  EXPECT_EQ(Complete({{"response_format", {{"type", "text"}}}}).status, 200);
}

TEST_F(HttpStructuredTest, StructuredOutputErrorsNameTheField) {
  Load();
  const auto param = [&](const json& fields) {
    const HttpClient::Reply reply = Complete(fields);
    EXPECT_EQ(reply.status, 400) << fields;
    return reply.json()["error"]["param"];
  };
  EXPECT_EQ(param({{"response_format", {{"type", "xml"}}}}), "response_format.type");
  EXPECT_EQ(param({{"response_format", json::object()}}), "response_format.type");
  EXPECT_EQ(param({{"response_format", "json"}}), "response_format");
  EXPECT_EQ(param({{"response_format", {{"type", "json_schema"}}}}), "response_format.json_schema");
  const auto of_schema = [](const json& schema) {
    return json({{"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}}}});
  };
  const char* const where = "response_format.json_schema.schema";
  EXPECT_EQ(param(of_schema(nullptr)), where);
  EXPECT_EQ(param(of_schema(5)), where);
  EXPECT_EQ(param(of_schema({{"if", true}})), where);
  EXPECT_EQ(param({{"structured_outputs", {{"regex", "("}}}}), "structured_outputs.regex");
  EXPECT_EQ(param({{"structured_outputs", {{"regex", 5}}}}), "structured_outputs.regex");
  EXPECT_EQ(param({{"structured_outputs", {{"structural_tag", "x"}}}}), "structured_outputs.structural_tag");
  EXPECT_EQ(param({{"structured_outputs", {{"jsn", {{"type", "null"}}}}}}), "structured_outputs.jsn");
  EXPECT_EQ(param({{"structured_outputs", {{"regex", "a"}, {"choice", {"b"}}}}}), "structured_outputs.choice");
  EXPECT_EQ(param({{"response_format", {{"type", "json_object"}}}, {"structured_outputs", {{"regex", "a"}}}}),
            "structured_outputs.regex");
}

// B194: nested groups must not overflow a stack.
TEST_F(HttpStructuredTest, B194_NestedGroupsAreRefused) {
  Load();
  const std::string nested = std::string(20000, '(') + "a" + std::string(20000, ')');
  for (const json& outputs : {json({{"regex", nested}}), json({{"grammar", "root ::= " + nested}}),
                              json({{"json", {{"type", "string"}, {"pattern", nested}}}})}) {
    EXPECT_EQ(Complete({{"structured_outputs", outputs}}).status, 400);
  }
  EXPECT_EQ(Complete({}).status, 200);
}

}  // namespace
}  // namespace quire
