// `quire chat` against a fake server over a real connection.

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

TEST_F(ChatTest, NobodyThere) {
  EXPECT_EQ(RunCli({"--server", "unix:/nowhere", "--connect-timeout", "1", "chat", "x"}).exit_code, 69);
}

}  // namespace
}  // namespace quire::cli
