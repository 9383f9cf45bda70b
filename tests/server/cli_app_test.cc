// The command line itself: what is refused, and how.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/cli_runner.h"

namespace quire::cli {
namespace {

using ::testing::HasSubstr;

TEST(AppTest, BadCommandLinesEndWith64AndSayWhy) {
  const std::vector<std::vector<std::string>> lines = {
      {},
      {"nonsense"},
      {"generate"},
      {"generate", "x", "--unknown"},
      {"generate", "x", "--max-tokens", "many"},
      {"generate", "x", "--max-tokens", "-1"},
      {"generate", "x", "--temperature", "warm"},
      {"generate", "x", "--ids", "1,2"},
      {"generate", "--ids", "1,-2"},
      {"generate", "--ids", "1,99999999999"},
      {"stats", "--interval", "0"},
      {"stats", "extra"},
      {"tokenize"},
      {"detokenize"},
      {"detokenize", "x"},
      {"abort"},
      {"tokenizer"},
      {"tokenizer", "encode"},
      {"inspect"},
      {"inspect", "m", "--memory", "much"},
      {"inspect", "m", "--context", "0"},
      {"inspect", "m", "--kv-cache-dtype", "f64"},
      {"bench", "--concurrency", "0"},
      {"bench", "--concurrency", "1,x"},
      {"bench", "--num-requests", "0"},
      {"bench", "--dataset", "sharegpt"},
      {"health", "--timeout", "-1"},
      {"health", "stats"},
      {"stats", "--interval", "nan"},
      {"stats", "--watch", "--count", "-1"},
      {"cache", "list", "--limit", "-1"},
      {"cache", "events", "--from", "-1"},
      {"trace"},
      {"trace", "start", "--max-bytes", "-1"},
      {"trace", "start", "--max-bytes", "-1MiB"},
      {"inspect", "m", "--memory", "-1"},
      {"trace", "start", "--max-bytes", "some"},
      {"trace", "start", "--max-wait", "-1"},
      {"trace", "start", "--max-wait", "nan"},
      {"trace", "stop", "now"},
  };
  for (const std::vector<std::string>& line : lines) {
    const RunResult result = RunCli(line);
    const std::string shown = ::testing::PrintToString(line);
    EXPECT_EQ(result.exit_code, 64) << shown;
    EXPECT_NE(result.err, "") << shown;
    EXPECT_LT(result.err.size(), 200u) << result.err;
    EXPECT_EQ(result.out, "") << shown;
  }
}

TEST(AppTest, HelpNamesTheSubcommandsAndExitCodes) {
  const RunResult result = RunCli({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* word : {"generate", "bench", "stats", "health", "models", "tokenize", "detokenize", "abort",
                           "tokenizer", "inspect", "QUIRE_SERVER", "127.0.0.1:50051", "69 cannot connect"}) {
    EXPECT_THAT(result.out, HasSubstr(word));
  }
  EXPECT_EQ(result.err, "");
}

TEST(AppTest, HelpOfASubcommandShowsItsOptions) {
  const RunResult result = RunCli({"bench", "--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("--shared-prefix-len"));
}

TEST(AppTest, Version) {
  const RunResult result = RunCli({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, ::testing::MatchesRegex("quire [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

}  // namespace
}  // namespace quire::cli
