#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "model/gguf.h"
#include "model/tokenizer/loaders.h"
#include "model/tokenizer/tokenizer.h"

namespace quire {
namespace {

constexpr uintmax_t kMaxFileBytes = uintmax_t{1} << 30;  // the largest real ones have 33 MB

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return absl::InvalidArgumentError(absl::StrCat("cannot be read: ", error.message()));
  if (size > kMaxFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat("has ", size, " bytes, at most ", kMaxFileBytes, " are read"));
  }
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) return absl::InvalidArgumentError("cannot be read");
  return text;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadFile(const std::string& path) {
  if (path.ends_with(".gguf")) {
    QUIRE_ASSIGN_OR_RETURN(const auto file, GgufFile::Open(path));
    return LoadTokenizerGguf(*file);
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  return LoadTokenizerJson(text);
}

absl::StatusOr<std::string> ExportFile(const std::string& path) {
  if (path.ends_with(".gguf")) {
    QUIRE_ASSIGN_OR_RETURN(const auto file, GgufFile::Open(path));
    return TokenizerJsonOfGguf(*file);
  }
  QUIRE_ASSIGN_OR_RETURN(std::string text, ReadText(path));
  QUIRE_RETURN_IF_ERROR(LoadTokenizerJson(text).status());
  return text;
}

// `use` of the file that `path` stands for; errors name it.
template <typename Use>
auto WithFile(const std::string& path, Use use) -> decltype(use(path)) {
  std::error_code error;
  const std::string file =
      std::filesystem::is_directory(path, error) ? (std::filesystem::path(path) / "tokenizer.json").string() : path;
  if (!std::filesystem::exists(file, error)) return absl::NotFoundError(absl::StrCat(file, ": no such file"));
  auto result = use(file);
  if (result.ok() || absl::StartsWith(result.status().message(), file)) return result;
  return absl::Status(result.status().code(), absl::StrCat(file, ": ", result.status().message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path) { return WithFile(path, LoadFile); }

absl::StatusOr<std::string> ExportTokenizerJson(const std::string& path) { return WithFile(path, ExportFile); }

}  // namespace quire
