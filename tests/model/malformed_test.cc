// Every malformed file must be refused with a message that helps, within 256 MiB and without time to speak of.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "tests/model/gguf_builder.h"
#include "tests/model/load_for_test.h"
#include "tests/testing/ref_data.h"
#include "tests/testing/sanitized.h"

namespace quire::testing {
namespace {

// The status of `load(path)` from a child with limits on memory and CPU time; nullopt if the child died.
std::optional<absl::Status> LoadLimited(absl::Status (*load)(const std::string&), const std::string& path) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return std::nullopt;
  const pid_t child = fork();
  if (child == 0) {
    if (!kSanitized) {  // the shadow memory of sanitizers does not fit under a limit
      const rlimit memory = {256u << 20, 256u << 20}, seconds = {1, 1};
      setrlimit(RLIMIT_DATA, &memory);
      setrlimit(RLIMIT_CPU, &seconds);
    }
    const absl::Status status = load(path);
    const std::string text = static_cast<char>(status.code()) + std::string(status.message());
    const bool written = write(pipe_ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(written ? 0 : 1);
  }
  close(pipe_ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(pipe_ends[0], buffer, sizeof(buffer))) > 0;) text.append(buffer, n);
  close(pipe_ends[0]);
  int state = 0;
  waitpid(child, &state, 0);
  if (!WIFEXITED(state) || WEXITSTATUS(state) != 0 || text.empty()) return std::nullopt;
  return absl::Status(static_cast<absl::StatusCode>(text[0]), text.substr(1));
}

TEST(MalformedTest, EveryCaseOfTheManifestIsAnsweredAsItSays) {
  const auto manifest_path = RefPath("malformed/manifest.json");
  if (!manifest_path) GTEST_SKIP() << "no malformed files";
  const nlohmann::json manifest = ReadJson(*manifest_path);
  int cases = 0;
  for (const nlohmann::json& entry : manifest.at("cases")) {
    std::string name = entry.at("file").get<std::string>();
    SCOPED_TRACE(name);
    if (name.back() == '/') name.pop_back();
    const auto path = RefPath("malformed/" + name);
    ASSERT_TRUE(path.has_value());
    ++cases;
    const bool container = entry.at("level") == "container";
    const auto status = LoadLimited(container ? &LoadContainer : &LoadModelFiles, *path);
    ASSERT_TRUE(status.has_value()) << "the loader died";
    const std::string expect = entry.at("expect").get<std::string>();
    if (expect == "ok") {
      EXPECT_TRUE(status->ok()) << *status;
    } else if (expect == "error") {
      EXPECT_FALSE(status->ok());
    }
    if (status->ok()) continue;
    EXPECT_NE(status->message().find(*path), absl::string_view::npos) << *status;
    // The words must be in what is said, not in the name of the case.
    const std::string said = absl::AsciiStrToLower(absl::StrReplaceAll(status->message(), {{*path, ""}}));
    bool mentions = !entry.contains("error_should_mention_one_of");
    if (!mentions) {
      for (const nlohmann::json& word : entry.at("error_should_mention_one_of")) {
        mentions |= said.find(absl::AsciiStrToLower(word.get<std::string>())) != std::string::npos;
      }
    }
    EXPECT_TRUE(mentions) << *status;
    for (unsigned char c : status->message()) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << "unprintable byte in a message";
  }
  EXPECT_GE(cases, 113);
}

TEST(MalformedTest, MissingFilesAreNotFound) {
  EXPECT_EQ(LoadModelFiles("/nonexistent/model.gguf").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(LoadContainer("/nonexistent/model.gguf").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(LoadContainer("/nonexistent/model.safetensors").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(LoadContainer("/dev/null").code(), absl::StatusCode::kInvalidArgument);
}

TEST(MalformedTest, ShardNamesThatCannotBeFileNames) {
  for (const std::string& name :
       {std::string(300, 'x'), std::string("two\nlines"), std::string("a/b"), std::string()}) {
    const nlohmann::json index = {{"weight_map", {{"w", name}}}};
    const std::string path = WriteTemporaryFile("model.safetensors.index.json", index.dump());
    const absl::Status status = SafetensorsDirectory::Open(std::filesystem::path(path).parent_path()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(status.message().find('\n'), absl::string_view::npos) << status;
  }
}

}  // namespace
}  // namespace quire::testing
