#include "server/frontend/api_keys.h"

#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

absl::StatusOr<ApiKeys> LoadText(const std::string& text) {
  const std::string path = absl::StrCat(::testing::TempDir(), "quire_keys_", getpid());
  std::ofstream(path) << text;
  absl::StatusOr<ApiKeys> keys = ApiKeys::Load(path);
  unlink(path.c_str());
  return keys;
}

TEST(ApiKeysTest, AKeySaysWhoAsks) {
  // The third is "secret".
  const auto keys = LoadText(
      "# comment\n\nalpha team user  # more\nbeta - admin\n"
      "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b other\ngamma\r\n");
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(keys->size(), 4u);
  EXPECT_EQ(keys->Find("alpha")->tenant, "team");
  EXPECT_FALSE(keys->Find("alpha")->is_admin);
  EXPECT_EQ(keys->Find("beta")->tenant, "");
  EXPECT_TRUE(keys->Find("beta")->is_admin);
  EXPECT_EQ(keys->Find("secret")->tenant, "other");
  EXPECT_EQ(keys->Find("gamma")->tenant, "");
  for (const char* const other : {"", "alph", "alphaa", "Alpha", "team", "#"}) EXPECT_EQ(keys->Find(other), nullptr);
}

TEST(ApiKeysTest, WhatIsWrongIsNamedByLineAndNeverByKey) {
  for (const char* const text : {"ok-key\nprivate team boss\n", "ok-key\nprivate a user more\n",
                                 "ok-key\nsha256:private\n", "private\nprivate team\n"}) {
    const absl::Status status = LoadText(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(":2: "));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("private")));
  }
  EXPECT_FALSE(LoadText("# nothing\n").ok());
  EXPECT_FALSE(ApiKeys::Load("no/such/file").ok());
}

TEST(ApiKeysTest, TheTenantIsTheKeysUnlessAnAdminNamesOne) {
  EXPECT_EQ(Identify(nullptr, "", "anyone")->tenant, "anyone");
  EXPECT_TRUE(Identify(nullptr, "", "")->is_admin);
  ApiKeyStore keys(*LoadText("user mine user\nboss - admin\n"));
  EXPECT_EQ(Identify(&keys, "Bearer user", "yours")->tenant, "mine");
  EXPECT_EQ(Identify(&keys, "bearer boss", "yours")->tenant, "yours");
  EXPECT_EQ(Identify(&keys, "Bearer boss", "")->tenant, "");
  for (const std::string& wrong :
       {std::string(), std::string("user"), std::string("Bearer "), std::string("Basic user"),
        std::string("Bearer  user"), "Bearer " + std::string(5000, 'x')}) {
    EXPECT_EQ(Identify(&keys, wrong, "mine").status().code(), absl::StatusCode::kUnauthenticated) << wrong;
  }
  keys.Set(*LoadText("other\n"));
  EXPECT_FALSE(Identify(&keys, "Bearer user", "").ok());
  EXPECT_TRUE(Identify(&keys, "Bearer other", "").ok());
}

}  // namespace
}  // namespace quire
