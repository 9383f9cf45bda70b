// `quire chat` against a fake server over a real connection.

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/cli_fake_server.h"
#include "tests/server/cli_runner.h"

namespace quire::cli {
namespace {

using ::testing::HasSubstr;

class ChatTest : public ::testing::Test {
 protected:
  RunResult Run(std::vector<std::string> args, const std::string& input = "") {
    args.insert(args.begin(), {"--server", server_.address(), "chat"});
    return RunCli(args, input);
  }

  // A file with this text; its path.
  static std::string WriteTools(const std::string& text) {
    const std::string path = testing::TempDir() + "/quire_cli_tools." + std::to_string(getpid());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  FakeServer server_;
};

TEST_F(ChatTest, OneMessageGetsOneAnswer) {
  const RunResult result = Run({"hello", "--max-tokens", "7", "--temperature", "0.5", "--seed", "3", "--stop", "x"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "1: hello\n");
  const v1::GenerateRequest request = server_.service.last_chat().request();
  EXPECT_EQ(request.stopping().max_tokens(), 7u);
  EXPECT_EQ(request.stopping().stop(0), "x");
  EXPECT_EQ(request.sampling().temperature(), 0.5F);
  EXPECT_EQ(request.sampling().seed(), 3);
  EXPECT_EQ(Run({"-"}, "from\nstdin").out, "1: from\nstdin\n");
}

TEST_F(ChatTest, LinesAreTurnsAndTheHistoryIsKept) {
  const RunResult result = Run({"--system", "be brief"}, "one\n\ntwo\n/usage\n/reset\nthree\n/exit\nfour\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "2: one\n4: two\nturns 2, tokens of the last prompt 40 (3 cached), generated 4 in all\n2: three\n");
  const v1::ChatRequest last = server_.service.last_chat();
  EXPECT_EQ(last.messages(0).role(), "system");
  EXPECT_EQ(last.messages(0).content(), "be brief");
  EXPECT_EQ(last.messages(1).content(), "three");
}

TEST_F(ChatTest, AnswersAreRememberedAndFailuresAreNot) {
  const RunResult result = Run({}, "one\nfail\ntwo\n");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "1: one\n\n3: two\n");
  EXPECT_THAT(result.err, HasSubstr("INVALID_ARGUMENT"));
  const v1::ChatRequest last = server_.service.last_chat();
  EXPECT_EQ(last.messages(1).role(), "assistant");
  EXPECT_EQ(last.messages(1).content(), "1: one");
  EXPECT_EQ(last.messages(1).reasoning(), "hm");
}

TEST_F(ChatTest, ReasoningIsShownOnRequest) { EXPECT_EQ(Run({"hello", "--show-reasoning"}).out, "hm\n\n1: hello\n"); }

TEST_F(ChatTest, JsonHasOneObjectAMessage) {
  const auto lines = Run({"hello", "--json"}).Lines();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0]["sequences"][0]["reasoning"], "hm");
  EXPECT_EQ(lines[3]["usage"]["completion_tokens"], 2);
}

TEST_F(ChatTest, ToolsAreSentAndTheirCallsPrinted) {
  const std::string path = WriteTools(R"([{"type": "function", "function": {"name": "f", "description": "d",
      "parameters": {"type": "object", "properties": {"b": {}, "a": {}}}, "strict": true}},
      {"type": "function", "function": {"name": "g"}}])");
  EXPECT_EQ(Run({"call", "--tools", path}).out, "1: call\n-> f({\"a\":1})\n-> g({\"a\":1})\n");
  const v1::ChatRequest request = server_.service.last_chat();
  ASSERT_EQ(request.tools_size(), 2);
  EXPECT_EQ(request.tools(0).name(), "f");
  EXPECT_EQ(request.tools(0).description(), "d");
  EXPECT_EQ(request.tools(0).parameters_json(), R"({"type":"object","properties":{"b":{},"a":{}}})");
  EXPECT_EQ(request.tools(1).parameters_json(), "");
  EXPECT_EQ(Run({"call", "--tools", path, "--json"}).Lines()[2]["sequences"][0]["tool_calls"][0]["name"], "f");
  std::remove(path.c_str());
}

TEST_F(ChatTest, ResultsOfCallsGoBackOnceAllAreThere) {
  const std::string path = WriteTools(R"([{"type": "function", "function": {"name": "f"}},
                                         {"type": "function", "function": {"name": "g"}}])");
  const RunResult result = Run({"--tools", path}, "call\n/result one\n/result two\n/result three\n/resultless\n");
  EXPECT_EQ(result.out, "1: call\n-> f({\"a\":1})\n-> g({\"a\":1})\n4: two\n6: /resultless\n");
  EXPECT_THAT(result.err, HasSubstr("no call of a tool waits"));
  EXPECT_EQ(result.exit_code, kExitFailed);
  const v1::ChatRequest last = server_.service.last_chat();
  EXPECT_EQ(last.messages(1).tool_calls(1).name(), "g");
  EXPECT_EQ(last.messages(2).role(), "tool");
  EXPECT_EQ(last.messages(2).content(), "one");
  EXPECT_EQ(last.messages(2).tool_call_id(), "call-f");
  EXPECT_EQ(last.messages(3).name(), "g");
  std::remove(path.c_str());
}

TEST_F(ChatTest, BadToolsNameTheFileAndTheReason) {
  const auto refusal = [this](const std::string& text) {
    const std::string path = WriteTools(text);
    const RunResult result = Run({"x", "--tools", path});
    EXPECT_EQ(result.exit_code, kExitUsage) << text;
    EXPECT_EQ(result.err.rfind("quire: " + path + ": ", 0), 0u) << result.err;
    std::remove(path.c_str());
    return result.err;
  };
  EXPECT_THAT(refusal("[{]"), HasSubstr("not JSON: byte 3 of 3"));
  EXPECT_THAT(refusal(""), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("{}"), HasSubstr("list of at least one tool"));
  EXPECT_THAT(refusal("[]"), HasSubstr("list of at least one tool"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("tools[0] must be an object"));
  EXPECT_THAT(refusal(R"([{"function": {"name": "f"}}])"), HasSubstr("tools[0].type must be \"function\""));
  EXPECT_THAT(refusal(R"([{"type": "function", "name": "f"}])"), HasSubstr("tools[0].function must be an object"));
  EXPECT_THAT(refusal(R"([{"type": "function", "function": {"name": ""}}])"), HasSubstr("tools[0].function.name"));
  EXPECT_THAT(refusal(R"([{"type": "function", "function": {"name": "f", "description": 1}}])"),
              HasSubstr("tools[0].function.description"));
  EXPECT_THAT(refusal(R"([{"type": "function", "function": {"name": "f", "parameters": []}}])"),
              HasSubstr("tools[0].function.parameters"));
  EXPECT_THAT(refusal(R"([{"type": "function", "function": {"name": "f"}},
                          {"type": "function", "function": {"name": "f"}}])"),
              HasSubstr("tools[1].function.name"));
  RunResult result = Run({"x", "--tools", "/nowhere.json"});
  EXPECT_EQ(result.exit_code, kExitUsage);
  EXPECT_THAT(result.err, HasSubstr("cannot read /nowhere.json: No such file"));
  result = Run({"x", "--tools", "/"});
  EXPECT_EQ(result.exit_code, kExitUsage);
  EXPECT_THAT(result.err, HasSubstr("cannot read /: Is a directory"));
  const std::string path = WriteTools("[\"\xff\"]");
  EXPECT_THAT(Run({"x", "--tools", path}).err, HasSubstr(path + " is not valid UTF-8"));
  std::remove(path.c_str());
  EXPECT_EQ(Run({"--tools", "-"}, "[]").exit_code, kExitUsage);
}

TEST_F(ChatTest, NobodyThere) {
  EXPECT_EQ(RunCli({"--server", "unix:/nowhere", "--connect-timeout", "1", "chat", "x"}).exit_code, 69);
}

}  // namespace
}  // namespace quire::cli
