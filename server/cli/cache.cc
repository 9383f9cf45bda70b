// `quire cache`: what the prefix cache holds, computing prefixes ahead, forgetting them.
#include <algorithm>
#include <ostream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/cli/client.h"
#include "server/cli/commands.h"
#include "server/cli/render.h"

namespace quire::cli {
namespace {

constexpr uint32_t kPage = 1000;

Json PrefixToJson(const v1::CachedPrefix& prefix) {
  Json json = {{"root", absl::BytesToHexString(prefix.root())},
               {"key", absl::BytesToHexString(prefix.key())},
               {"tokens", prefix.tokens()},
               {"blocks", prefix.blocks()},
               {"bytes", prefix.bytes()},
               {"hits", prefix.hits()},
               {"head_hits", prefix.head_hits()},
               {"priority", prefix.priority()},
               {"tenant", prefix.tenant()},
               {"in_use", prefix.in_use()},
               {"unused_seconds", prefix.unused_seconds()}};
  if (prefix.has_expires_in_seconds()) json["expires_in_seconds"] = prefix.expires_in_seconds();
  return json;
}

std::string PrefixLine(const v1::CachedPrefix& prefix) {
  const std::string expires =
      prefix.has_expires_in_seconds() ? absl::StrFormat("%.0f", prefix.expires_in_seconds()) : "never";
  return absl::StrFormat("%8d %7d %10s %6d %9d %8d %6s %10.1f %8s  %s  %s\n", prefix.tokens(), prefix.blocks(),
                         BytesText(prefix.bytes()), prefix.hits(), prefix.head_hits(), prefix.priority(),
                         prefix.in_use() ? "yes" : "no", prefix.unused_seconds(), expires,
                         absl::BytesToHexString(prefix.key()), prefix.tenant());
}
constexpr char kHeader[] =
    "  tokens  blocks       size   hits head-hits priority in-use   unused-s  expires  key                           "
    "    tenant\n";

// The prompt, salt and tenant of the command line.
absl::StatusOr<v1::Prefix> MakePrefix(const CachePrefixOptions& options, Session& session) {
  v1::Prefix prefix;
  prefix.set_salt(options.salt);
  prefix.set_tenant(options.tenant.value_or(""));
  if (!options.ids.empty()) {
    prefix.mutable_token_ids()->mutable_ids()->Assign(options.ids.begin(), options.ids.end());
  } else if (options.prompt) {
    absl::StatusOr<std::string> text = TextArgument(*options.prompt, session);
    if (!text.ok()) return text.status();
    prefix.set_text(*std::move(text));
    if (options.no_special_tokens) prefix.set_add_special_tokens(false);
  }
  return prefix;
}

int ReportDropped(uint32_t blocks, bool json, Session& session) {
  session.out << (json ? JsonLine({{"dropped_blocks", blocks}}) : absl::StrCat(blocks, " blocks dropped\n"))
              << std::flush;
  return kExitOk;
}

}  // namespace

int RunCacheList(const CacheListOptions& options, Session& session) {
  const std::unique_ptr<Client> client = ConnectOrReport(session);
  if (client == nullptr) return kExitNoConnection;
  std::vector<v1::CachedPrefix> all;
  v1::ListPrefixesRequest request;
  request.set_limit(kPage);
  if (options.tenant) request.set_tenant(*options.tenant);
  do {
    const auto page = client->ListPrefixes(request);
    if (!page.ok()) return ReportFailure(session, page.status());
    all.insert(all.end(), page->prefixes().begin(), page->prefixes().end());
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  std::stable_sort(all.begin(), all.end(), [](const v1::CachedPrefix& a, const v1::CachedPrefix& b) {
    return a.unused_seconds() < b.unused_seconds();
  });
  const size_t shown = options.limit == 0 ? all.size() : std::min<size_t>(options.limit, all.size());
  if (!options.json) session.out << kHeader;
  for (size_t i = 0; i < shown; ++i)
    session.out << (options.json ? JsonLine(PrefixToJson(all[i])) : PrefixLine(all[i]));
  if (!options.json) session.out << shown << " of " << all.size() << " prefixes\n";
  session.out.flush();
  return kExitOk;
}

int RunCacheWarm(const CacheWarmOptions& options, Session& session) {
  v1::WarmPrefixRequest request;
  absl::StatusOr<v1::Prefix> prefix = MakePrefix(options.prefix, session);
  if (!prefix.ok()) return ReportError(session, prefix.status().message(), kExitUsage);
  *request.mutable_prefix() = *std::move(prefix);
  if (options.priority) request.mutable_keep()->set_priority(*options.priority);
  if (options.ttl_seconds) request.mutable_keep()->set_ttl_seconds(*options.ttl_seconds);
  const std::unique_ptr<Client> client = ConnectOrReport(session);
  if (client == nullptr) return kExitNoConnection;
  const auto response = client->WarmPrefix(request);
  if (!response.ok()) return ReportFailure(session, response.status());
  if (options.json) {
    session.out << JsonLine({{"prompt_tokens", response->prompt_tokens()},
                             {"cached_tokens", response->cached_tokens()},
                             {"computed_tokens", response->computed_tokens()}});
  } else {
    session.out << response->prompt_tokens() << " tokens: " << response->cached_tokens() << " were cached, "
                << response->computed_tokens() << " computed\n";
  }
  session.out.flush();
  return kExitOk;
}

int RunCacheDrop(const CacheDropOptions& options, Session& session) {
  const CachePrefixOptions& what = options.prefix;
  const bool is_prefix = what.prompt || !what.ids.empty() || !what.salt.empty();
  v1::DropPrefixRequest request;
  if (is_prefix) {
    absl::StatusOr<v1::Prefix> prefix = MakePrefix(what, session);
    if (!prefix.ok()) return ReportError(session, prefix.status().message(), kExitUsage);
    *request.mutable_prefix() = *std::move(prefix);
  } else if (what.tenant) {
    request.set_tenant(*what.tenant);
  } else {
    request.set_all(true);
  }
  const std::unique_ptr<Client> client = ConnectOrReport(session);
  if (client == nullptr) return kExitNoConnection;
  const auto response = client->DropPrefix(request);
  if (!response.ok()) return ReportFailure(session, response.status());
  return ReportDropped(response->dropped_blocks(), options.json, session);
}

int RunCacheReset(const CacheResetOptions& options, Session& session) {
  const std::unique_ptr<Client> client = ConnectOrReport(session);
  if (client == nullptr) return kExitNoConnection;
  const auto response = client->ResetPrefixCache();
  if (!response.ok()) return ReportFailure(session, response.status());
  return ReportDropped(response->dropped_blocks(), options.json, session);
}

}  // namespace quire::cli
