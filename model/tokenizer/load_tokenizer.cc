#include "absl/strings/str_cat.h"
#include "model/tokenizer/tokenizer.h"

namespace quire {

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path) {
  return absl::UnimplementedError(absl::StrCat(path, ": tokenizers are not built yet"));
}

}  // namespace quire
