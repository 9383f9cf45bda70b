#include "server/frontend/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/frontend/validator.h"

namespace quire {
namespace {

constexpr std::string_view kHashMark = "sha256:", kBearer = "bearer ";
constexpr size_t kMaxKeys = 1 << 16, kMaxKeyBytes = 4096;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

absl::StatusOr<ApiKeys> ApiKeys::Load(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::FailedPreconditionError(absl::StrCat("--api-key-file: cannot read '", path, "'"));
  ApiKeys keys;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (const absl::Status status = keys.AddLine(line); !status.ok()) {
      return absl::FailedPreconditionError(absl::StrCat("--api-key-file: ", path, ":", number, ": ", status.message()));
    }
  }
  if (keys.keys_.empty())
    return absl::FailedPreconditionError(absl::StrCat("--api-key-file: '", path, "' has no keys: nobody could ask"));
  return keys;
}

absl::Status ApiKeys::AddLine(std::string_view line) {
  const std::vector<std::string> words =
      absl::StrSplit(View(line.substr(0, line.find('#'))), absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
  if (words.empty()) return absl::OkStatus();
  if (words.size() > 3) return absl::InvalidArgumentError("has more than a key, a tenant and a role");
  if (keys_.size() == kMaxKeys) return absl::InvalidArgumentError(absl::StrCat("is one too many; at most ", kMaxKeys));
  Key key;
  if (absl::StartsWith(words[0], View(kHashMark))) {
    const std::string digits = words[0].substr(kHashMark.size());
    const bool is_hex = std::all_of(digits.begin(), digits.end(), [](char c) { return absl::ascii_isxdigit(c); });
    if (!is_hex || digits.size() != 2 * key.digest.size())
      return absl::InvalidArgumentError("sha256: must be followed by 64 hexadecimal digits");
    const std::string bytes = absl::HexStringToBytes(digits);
    std::copy(bytes.begin(), bytes.end(), key.digest.begin());
  } else {
    SHA256(reinterpret_cast<const uint8_t*>(words[0].data()), words[0].size(), key.digest.data());
  }
  if (words.size() > 1 && words[1] != "-") key.caller.tenant = words[1];
  if (const absl::Status tenant = Validator::CheckTenant("tenant", key.caller.tenant); !tenant.ok()) return tenant;
  if (words.size() > 2) {
    if (words[2] != "user" && words[2] != "admin") return absl::InvalidArgumentError("the role must be user or admin");
    key.caller.is_admin = words[2] == "admin";
  }
  for (const Key& other : keys_) {
    if (other.digest == key.digest) return absl::InvalidArgumentError("the key is in the file already");
  }
  keys_.push_back(std::move(key));
  return absl::OkStatus();
}

const Caller* ApiKeys::Find(std::string_view key) const {
  Digest digest;
  SHA256(reinterpret_cast<const uint8_t*>(key.data()), key.size(), digest.data());
  const Caller* found = nullptr;
  for (const Key& known : keys_) {
    if (CRYPTO_memcmp(known.digest.data(), digest.data(), digest.size()) == 0) found = &known.caller;
  }
  return found;
}

absl::StatusOr<Caller> Identify(const ApiKeyStore* keys, std::string_view authorization, std::string_view tenant) {
  if (keys == nullptr) return Caller{std::string(tenant), /*is_admin=*/true};
  if (!absl::StartsWithIgnoreCase(View(authorization), View(kBearer)) || authorization.size() > kMaxKeyBytes)
    return absl::UnauthenticatedError("an API key is needed: Authorization: Bearer KEY");
  const std::shared_ptr<const ApiKeys> known = keys->Get();
  const Caller* const caller = known->Find(authorization.substr(kBearer.size()));
  if (caller == nullptr) return absl::UnauthenticatedError("the API key is not known");
  Caller result = *caller;
  if (result.is_admin && !tenant.empty()) result.tenant = tenant;
  return result;
}

}  // namespace quire
