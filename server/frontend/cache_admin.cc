#include "server/frontend/cache_admin.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "server/frontend/errors.h"
#include "server/frontend/frontend.h"

namespace quire {
namespace {

constexpr int32_t kMaxQuestions = 64;  // asked and not answered
constexpr int64_t kLowestPriority = 1000;

// What pages are sorted by. Part-filled ends of equal length behind one block have one place.
using Place = std::tuple<uint64_t, uint64_t, uint64_t, uint64_t, int32_t>;

Place PlaceOf(const PrefixInfo& info) {
  return {info.root.high, info.root.low, info.key.high, info.key.low, info.num_tokens};
}

// Where a page begins: at a place, behind some of those that share it.
struct PageStart {
  Place place = {};
  int64_t skip = 0;
};

std::string FormatToken(const PageStart& start) {
  const auto& [root_high, root_low, key_high, key_low, tokens] = start.place;
  return absl::StrFormat("%016x.%016x.%016x.%016x.%d.%d", root_high, root_low, key_high, key_low, tokens, start.skip);
}

bool ParseToken(const std::string& token, PageStart* start) {
  const std::vector<std::string> parts = absl::StrSplit(token, '.');
  auto& [root_high, root_low, key_high, key_low, tokens] = start->place;
  return parts.size() == 6 && absl::SimpleHexAtoi(parts[0], &root_high) && absl::SimpleHexAtoi(parts[1], &root_low) &&
         absl::SimpleHexAtoi(parts[2], &key_high) && absl::SimpleHexAtoi(parts[3], &key_low) &&
         absl::SimpleAtoi(parts[4], &tokens) && absl::SimpleAtoi(parts[5], &start->skip) && start->skip >= 0;
}

// Errors about a GenerateRequest name its fields: here they stand in `prefix`, and retention in `keep`.
absl::Status InPrefix(const absl::Status& status) {
  const std::optional<std::string> field = FieldOf(status);
  const std::string message(status.message());
  if (!field || !absl::StartsWith(message, absl::StrCat(*field, ": "))) return status;
  constexpr char kKeep[] = "cache.retention[0].", kCache[] = "cache.";
  const std::string problem = message.substr(field->size() + 2);
  if (absl::StartsWith(*field, kKeep)) return InvalidField(field->substr(sizeof(kKeep) - 1), problem);
  if (*field == "x-tenant") return InvalidField("prefix.tenant", problem);
  const size_t own = absl::StartsWith(*field, kCache) ? sizeof(kCache) - 1 : 0;
  return InvalidField(absl::StrCat("prefix.", field->substr(own)), problem);
}

// Errors about a file for a trace begin with the field that they are about.
absl::Status InStart(const absl::Status& status) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(status.message(), absl::MaxSplits(": ", 1));
  return absl::IsInvalidArgument(status) ? InvalidField("start." + parts.first, parts.second) : status;
}

// To name everything takes no prompt rather than an empty one: that may be a mistake.
absl::Status EmptyPrefix() {
  return InvalidField("prefix.prompt",
                      "has 0 tokens; must have at least 1, or be left out for all of its salt and tenant");
}

// Only what names a prompt.
GenerateRequest NameOf(GenerateRequest request) {
  GenerateRequest name;
  name.prompt = std::move(request.prompt);
  name.add_special_tokens = request.add_special_tokens;
  name.tenant = std::move(request.tenant);
  name.cache.salt = std::move(request.cache.salt);
  return name;
}

class WarmSink final : public OutputSink {
 public:
  explicit WarmSink(CacheAdmin::Done<WarmResult> done) : done_(std::move(done)) {}
  void Write(OutputDelta delta) override {
    if (delta.is_last()) done_(WarmResult{delta.usage->prompt_tokens, delta.usage->cached_tokens});
  }
  void Fail(const absl::Status& status) override { done_(InPrefix(status)); }

 private:
  const CacheAdmin::Done<WarmResult> done_;
};

}  // namespace

CacheAdmin::CacheAdmin(Engine& engine, Frontend& frontend)
    : engine_(engine),
      frontend_(frontend),
      answers_({.num_threads = 1, .max_tasks = std::numeric_limits<int64_t>::max()}),
      events_(engine, answers_) {}

CacheAdmin::~CacheAdmin() { Stop(); }

void CacheAdmin::Stop() {
  answers_.Stop();
  events_.Stop();
}

absl::Status CacheAdmin::AddQuestion() {
  if (num_questions_.fetch_add(1) < kMaxQuestions) return absl::OkStatus();
  num_questions_.fetch_sub(1);
  return RetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                        kMaxQuestions, " calls of administration wait for the engine, which is the limit")),
                    absl::Seconds(1));
}

template <typename T>
void CacheAdmin::Ask(std::function<T(BlockManager& blocks)> question, const Done<T>& done) {
  if (const absl::Status added = AddQuestion(); !added.ok()) return done(added);
  const absl::Status asked = engine_.Post([this, question = std::move(question), done](BlockManager& blocks) {
    const auto answer = std::make_shared<T>(question(blocks));
    const absl::Status posted = answers_.Post(0, [this, answer, done] {
      num_questions_.fetch_sub(1);
      done(std::move(*answer));
    });
    QUIRE_CHECK(posted.ok());  // stopped after the engine only
  });
  if (asked.ok()) return;
  num_questions_.fetch_sub(1);
  done(RetryAfter(asked, absl::Seconds(1)));
}

void CacheAdmin::StartTrace(const TraceStart& start, const Done<ScheduleTraceStatus>& done) {
  constexpr double kMaxWait = 3600;
  if (!(start.max_wait_seconds >= 0 && start.max_wait_seconds <= kMaxWait)) {
    return done(InvalidField("start.max_wait_seconds",
                             absl::StrCat(start.max_wait_seconds, " is out of range; must be in [0, ", kMaxWait, "]")));
  }
  if (const absl::Status added = AddQuestion(); !added.ok()) return done(added);
  // Files are made on this object's thread: nobody waits for a slow disk but who asks.
  const absl::Status posted = answers_.Post(0, [this, start, done] {
    num_questions_.fetch_sub(1);
    const std::string name = start.file.empty()
                                 ? absl::FormatTime("schedule-%Y%m%dT%H%M%E6SZ.trace", absl::Now(), absl::UTCTimeZone())
                                 : start.file;
    const absl::StatusOr<std::shared_ptr<TraceFile>> file = engine_.CreateTraceFile(name, start.max_bytes);
    if (!file.ok()) return done(InStart(file.status()));
    ChangeTrace([this, file = *file,
                 wait = absl::Seconds(start.max_wait_seconds)] { return engine_.StartScheduleTrace(file, wait); },
                done);
  });
  if (posted.ok()) return;
  num_questions_.fetch_sub(1);
  done(posted);
}

void CacheAdmin::StopTrace(const Done<ScheduleTraceStatus>& done) {
  ChangeTrace([this] { return engine_.StopScheduleTrace(); }, done);
}

void CacheAdmin::GetTrace(const Done<ScheduleTraceStatus>& done) {
  ChangeTrace([] { return absl::OkStatus(); }, done);
}

void CacheAdmin::ChangeTrace(std::function<absl::Status()> change, const Done<ScheduleTraceStatus>& done) {
  using Answer = absl::StatusOr<ScheduleTraceStatus>;
  Ask<Answer>(
      [this, change = std::move(change)](BlockManager&) -> Answer {
        QUIRE_RETURN_IF_ERROR(change());
        return engine_.GetScheduleTrace();
      },
      [done](const absl::StatusOr<Answer>& answer) { done(answer.ok() ? *answer : Answer(answer.status())); });
}

void CacheAdmin::List(PrefixQuery query, const Done<PrefixPage>& done) {
  if (query.limit < 0 || query.limit > kMaxPrefixPage)
    return done(InvalidField("limit", absl::StrCat(query.limit, " is out of range; must be in [0, ", kMaxPrefixPage,
                                                   "], 0 for ", kDefaultPrefixPage)));
  if (query.limit == 0) query.limit = kDefaultPrefixPage;
  if (PageStart start; !query.page_token.empty() && !ParseToken(query.page_token, &start))
    return done(InvalidField("page_token", "is not one that a page before has brought"));
  if (query.tenant) {
    if (const absl::Status status = Validator::CheckTenant("tenant", *query.tenant); !status.ok()) return done(status);
  }
  Ask<std::vector<PrefixInfo>>(
      [](BlockManager& blocks) { return blocks.ListPrefixes(); },
      [this, query, done](absl::StatusOr<std::vector<PrefixInfo>> all) {
        done(all.ok() ? absl::StatusOr<PrefixPage>(MakePage(*std::move(all), query)) : all.status());
      });
}

PrefixPage CacheAdmin::MakePage(std::vector<PrefixInfo> all, const PrefixQuery& query) const {
  if (query.tenant) {
    const int32_t tenant = frontend_.tenants().Find(*query.tenant);
    std::erase_if(all, [tenant](const PrefixInfo& info) { return info.tenant != tenant; });
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const PrefixInfo& a, const PrefixInfo& b) { return PlaceOf(a) < PlaceOf(b); });
  PageStart start;
  if (!query.page_token.empty()) QUIRE_CHECK(ParseToken(query.page_token, &start));
  const auto first = std::lower_bound(all.begin(), all.end(), start.place,
                                      [](const PrefixInfo& a, const Place& place) { return PlaceOf(a) < place; });
  const auto equal = std::find_if(first, all.end(), [&](const PrefixInfo& a) { return PlaceOf(a) != start.place; });
  const auto begin = first + std::min<int64_t>(start.skip, equal - first);
  const auto end = begin + std::min<int64_t>(query.limit, all.end() - begin);

  PrefixPage page;
  page.total = static_cast<int64_t>(all.size());
  const absl::Time now = absl::Now();
  for (auto info = begin; info != end; ++info) page.prefixes.push_back(Describe(*info, now));
  if (end == all.end()) return page;
  const Place next = PlaceOf(*end);
  const auto before = std::find_if(all.begin(), end, [&](const PrefixInfo& a) { return PlaceOf(a) == next; });
  page.next_page_token = FormatToken({next, end - before});
  return page;
}

CachedPrefix CacheAdmin::Describe(const PrefixInfo& info, absl::Time now) const {
  const EngineInfo& engine = engine_.info();
  CachedPrefix prefix;
  prefix.root = info.root;
  prefix.key = info.key;
  prefix.num_tokens = info.num_tokens;
  prefix.num_blocks = (info.num_tokens + engine.block_size - 1) / engine.block_size;
  prefix.bytes = int64_t{prefix.num_blocks} * engine.block_size * engine.kv_bytes_per_token;
  prefix.num_hits = info.num_hits;
  prefix.head_hits = info.head_hits;
  prefix.priority = info.priority;
  prefix.tenant = frontend_.tenants().NameOf(info.tenant);
  prefix.in_use = info.in_use;
  prefix.unused_for = std::max(absl::ZeroDuration(), now - info.last_used);
  if (info.expires != absl::InfiniteFuture()) prefix.expires_in = std::max(absl::ZeroDuration(), info.expires - now);
  return prefix;
}

uint64_t CacheAdmin::Warm(GenerateRequest prompt, const KeepRequest& keep, Done<WarmResult> done) {
  if (!engine_.info().prefix_cache_enabled) {
    done(absl::FailedPreconditionError("the prefix cache is off: the server runs with --no-enable-prefix-caching"));
    return 0;
  }
  GenerateRequest request = NameOf(std::move(prompt));
  request.priority = kLowestPriority;
  request.max_tokens = 1;  // a request ends with a token; nobody is told it and it is not stored
  request.temperature = 0;
  request.ignore_eos = true;
  request.want_text = request.want_token_ids = false;
  request.cache.retention = {{.begin = 0, .end = std::nullopt, .keep = keep}};
  const absl::StatusOr<uint64_t> handle = frontend_.Generate(std::move(request), std::make_shared<WarmSink>(done));
  if (handle.ok()) return *handle;
  done(InPrefix(handle.status()));
  return 0;
}

void CacheAdmin::DropPrefix(GenerateRequest prefix, const Done<int32_t>& done) {
  GenerateRequest name = NameOf(std::move(prefix));
  const bool all = std::holds_alternative<std::monostate>(name.prompt);
  const auto* const text = std::get_if<std::string>(&name.prompt);
  if (text != nullptr && text->empty()) return done(EmptyPrefix());
  if (all) name.prompt = std::vector<int64_t>{0};  // valid, and not looked at
  absl::StatusOr<ValidatedRequest> valid = frontend_.Validate(std::move(name));
  if (!valid.ok()) return done(InPrefix(valid.status()));
  const BlockHash root = RootHash(frontend_.KeyContextOf(valid->cache.salt, valid->tenant));
  const auto drop = [this, root, done](std::vector<int32_t> ids) {
    Ask<int32_t>([root, ids = std::move(ids)](BlockManager& blocks) { return blocks.DropPrefix(root, ids); }, done);
  };
  if (all) return drop({});
  frontend_.EncodePrompt(std::make_shared<ValidatedRequest>(*std::move(valid)),
                         [drop, done](absl::StatusOr<std::vector<int32_t>> ids) {
                           if (!ids.ok()) return done(InPrefix(ids.status()));
                           if (ids->empty()) return done(EmptyPrefix());
                           drop(*std::move(ids));
                         });
}

void CacheAdmin::DropTenant(const std::string& tenant, const Done<int32_t>& done) {
  if (const absl::Status status = Validator::CheckTenant("tenant", tenant); !status.ok()) return done(status);
  const int32_t number = frontend_.tenants().Find(tenant);
  if (number < 0) return done(0);
  Ask<int32_t>([number](BlockManager& blocks) { return blocks.DropTenant(number); }, done);
}

void CacheAdmin::DropAll(const Done<int32_t>& done) {
  Ask<int32_t>([](BlockManager& blocks) { return blocks.DropAll(); }, done);
}

}  // namespace quire
