#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "scheduler/engine.h"
#include "server/frontend/event_feed.h"
#include "server/frontend/generate_request.h"
#include "server/frontend/tokenizer_pool.h"

namespace quire {

class Frontend;

// One chain of cached blocks, from the first position on. Chains share their common beginning: each counts it.
struct CachedPrefix {
  BlockHash root, key;  // of model, salt and tenant; of the last full block
  int32_t num_tokens = 0, num_blocks = 0;
  int64_t bytes = 0;
  int32_t num_hits = 0, head_hits = 0;  // of the last block and of the first
  int32_t priority = 0;                 // retention of the last block: higher stays longer
  std::string tenant;
  bool in_use = false;                       // a running request holds it
  absl::Duration unused_for;                 // since the latest use
  std::optional<absl::Duration> expires_in;  // unset: never
};

struct PrefixQuery {
  int64_t limit = 0;                  // 1 .. kMaxPrefixPage; 0: kDefaultPrefixPage
  std::string page_token;             // of the page before; empty: the first page
  std::optional<std::string> tenant;  // only of this one
};
inline constexpr int64_t kMaxPrefixPage = 1000, kDefaultPrefixPage = 100;

struct PrefixPage {
  std::vector<CachedPrefix> prefixes;  // in the order of root, key and length: one that changes nothing is met once
  int64_t total = 0;                   // over all pages
  std::string next_page_token;         // empty: this was the last page
};

struct WarmResult {
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // that were there already
};

struct TraceStart {
  std::string file;  // name of a new file; empty: after the time
  int64_t max_bytes = 0;
  double max_wait_seconds = 30;  // [0, 3600]
};

// Looks after the prefix cache, and the schedule trace, while requests run. Questions go to the engine thread, which
// answers between two steps; answers come on a thread of this object, or at once if there is nothing to ask. No
// function blocks. Any thread.
//
// Prompts are named by the prompt, add_special_tokens, tenant and cache.salt of a GenerateRequest, whose other fields
// are not looked at. Errors name the fields of proto/quire/v1/admin.proto.
class CacheAdmin {
 public:
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;  // called once

  // Both outlive this object.
  CacheAdmin(Engine& engine, Frontend& frontend);
  ~CacheAdmin();  // Stop

  void List(PrefixQuery query, const Done<PrefixPage>& done);

  // Computes a prompt at the lowest priority of requests and keeps it as `keep` says. Returns the handle that
  // Frontend::Cancel takes; 0: already answered. kFailedPrecondition if the prefix cache is off; otherwise errors as of
  // Frontend::Generate.
  uint64_t Warm(GenerateRequest prompt, const KeepRequest& keep, Done<WarmResult> done);

  // Nobody finds these any more; requests that run keep their blocks. Answers how many blocks that are. A prefix
  // without a prompt is everything of its salt and tenant.
  void DropPrefix(GenerateRequest prefix, const Done<int32_t>& done);
  void DropTenant(const std::string& tenant, const Done<int32_t>& done);
  void DropAll(const Done<int32_t>& done);

  EventFeed& events() { return events_; }

  // The schedule trace (engine.h): these answer its state afterwards. Errors name the fields of ScheduleTraceStart.
  void StartTrace(const TraceStart& start, const Done<ScheduleTraceStatus>& done);
  void StopTrace(const Done<ScheduleTraceStatus>& done);
  void GetTrace(const Done<ScheduleTraceStatus>& done);

  // After the engine has stopped: gives the answers that are left, refuses what comes. Idempotent.
  void Stop();

 private:
  // Answers question(blocks), asked on the engine thread. Bounded: kResourceExhausted.
  template <typename T>
  void Ask(std::function<T(BlockManager& blocks)> question, const Done<T>& done);
  // One more question, kResourceExhausted beyond kMaxQuestions; every success is followed by num_questions_ - 1.
  absl::Status AddQuestion();
  // change() on the engine thread, then the state.
  void ChangeTrace(std::function<absl::Status()> change, const Done<ScheduleTraceStatus>& done);
  CachedPrefix Describe(const PrefixInfo& info, absl::Time now) const;
  PrefixPage MakePage(std::vector<PrefixInfo> all, const PrefixQuery& query) const;

  Engine& engine_;
  Frontend& frontend_;
  std::atomic<int32_t> num_questions_ = 0;
  TokenizerPool answers_;
  EventFeed events_;
};

}  // namespace quire
