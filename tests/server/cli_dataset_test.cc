#include <algorithm>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/cli/bench_dataset.h"

namespace quire::cli {
namespace {

using ::testing::HasSubstr;

DatasetOptions Options(const std::string& name) {
  DatasetOptions options;
  options.name = name;
  options.seed = 7;
  options.vocab_size = 1000;
  options.max_model_len = 8192;
  return options;
}

std::vector<BenchRequest> Make(const DatasetOptions& options, int count, uint64_t stream = 0) {
  auto requests = MakeDataset(options, count, stream);
  EXPECT_TRUE(requests.ok()) << requests.status();
  return requests.ok() ? *std::move(requests) : std::vector<BenchRequest>();
}

TEST(DatasetTest, RandomHasTheLengthsAskedFor) {
  DatasetOptions options = Options("random");
  options.input_len = 20;
  options.output_len = 5;
  options.shared_prefix_len = 10;
  const std::vector<BenchRequest> requests = Make(options, 16);
  ASSERT_EQ(requests.size(), 16u);
  std::set<std::vector<uint32_t>> prompts;
  for (const BenchRequest& request : requests) {
    ASSERT_EQ(request.prompt.size(), 30u);
    EXPECT_EQ(request.output_len, 5);
    EXPECT_TRUE(std::equal(request.prompt.begin(), request.prompt.begin() + 10, requests[0].prompt.begin()));
    EXPECT_LT(*std::max_element(request.prompt.begin(), request.prompt.end()), 1000u);
    prompts.insert(request.prompt);
  }
  EXPECT_EQ(prompts.size(), 16u);
}

TEST(DatasetTest, ASeedRepeatsAndAnotherDoesNot) {
  DatasetOptions options = Options("random");
  const auto first = Make(options, 4), again = Make(options, 4), warmup = Make(options, 4, 1);
  options.seed = 8;
  const auto other = Make(options, 4);
  EXPECT_EQ(first[3].prompt, again[3].prompt);
  EXPECT_NE(first[3].prompt, other[3].prompt);
  EXPECT_NE(first[3].prompt, warmup[3].prompt);
}

TEST(DatasetTest, PrefixRepetitionUsesTenPrefixesAlsoForWarmUp) {
  const auto requests = Make(Options("prefix-repetition"), 40), warmup = Make(Options("prefix-repetition"), 10, 1);
  std::set<std::vector<uint32_t>> prefixes;
  for (const BenchRequest& request : requests) {
    ASSERT_EQ(request.prompt.size(), 512u);
    prefixes.emplace(request.prompt.begin(), request.prompt.begin() + 256);
  }
  EXPECT_EQ(prefixes.size(), 10u);
  for (const BenchRequest& request : warmup) {
    EXPECT_EQ(prefixes.count({request.prompt.begin(), request.prompt.begin() + 256}), 1u);
  }
}

struct Means {
  double in = 0, out = 0;
};

Means MeanLengths(const std::vector<BenchRequest>& requests) {
  Means means;
  for (const BenchRequest& request : requests) {
    EXPECT_GE(request.prompt.size(), 4u);
    EXPECT_LE(request.prompt.size(), 1024u);
    EXPECT_GE(request.output_len, 1);
    EXPECT_LE(request.prompt.size() + request.output_len, 2048u);
    means.in += static_cast<double>(request.prompt.size()) / requests.size();
    means.out += static_cast<double>(request.output_len) / requests.size();
  }
  return means;
}

TEST(DatasetTest, ShareGptLikeHasThePapersMeans) {
  const Means means = MeanLengths(Make(Options("sharegpt-like"), 20000));
  EXPECT_NEAR(means.in, 161, 6);
  EXPECT_NEAR(means.out, 338, 10);
}

TEST(DatasetTest, AlpacaLikeHasThePapersMeans) {
  const Means means = MeanLengths(Make(Options("alpaca-like"), 20000));
  EXPECT_NEAR(means.in, 19, 0.5);
  EXPECT_NEAR(means.out, 58, 2);
}

TEST(DatasetTest, ShareGptLikeKeepsWithinTheModel) {
  DatasetOptions options = Options("sharegpt-like");
  options.max_model_len = 512;
  for (const BenchRequest& request : Make(options, 1000)) EXPECT_LE(request.prompt.size() + request.output_len, 512u);
}

TEST(DatasetTest, ErrorsNameOptionAndLimit) {
  DatasetOptions options = Options("random");
  options.input_len = 8190;
  options.output_len = 3;
  EXPECT_THAT(std::string(MakeDataset(options, 1, 0).status().message()),
              HasSubstr("--output-len is 3; the model of this server allows 1 to 2"));
  options.output_len = 2;
  EXPECT_TRUE(MakeDataset(options, 1, 0).ok());
  options.input_len = 0;
  EXPECT_THAT(std::string(MakeDataset(options, 1, 0).status().message()), HasSubstr("--input-len is 0"));
  options.input_len = 1;
  options.shared_prefix_len = 1 << 30;
  EXPECT_THAT(std::string(MakeDataset(options, 1, 0).status().message()), HasSubstr("--shared-prefix-len"));
  EXPECT_THAT(std::string(MakeDataset(Options("sharegpt"), 1, 0).status().message()), HasSubstr("sharegpt-like"));
  options = Options("alpaca-like");
  options.input_len = 4;
  EXPECT_FALSE(MakeDataset(options, 1, 0).ok());
}

}  // namespace
}  // namespace quire::cli
