#include "server/cli/load_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace quire::cli {
namespace {

v1::GenerateRequest ToWire(const BenchRequest& request, const LoadOptions& options, size_t index) {
  v1::GenerateRequest wire;
  wire.mutable_token_ids()->mutable_ids()->Assign(request.prompt.begin(), request.prompt.end());
  wire.mutable_sampling()->set_temperature(options.temperature);
  wire.mutable_sampling()->set_seed(static_cast<int64_t>(options.seed + index));
  wire.mutable_stopping()->set_max_tokens(static_cast<uint32_t>(request.output_len));
  wire.mutable_stopping()->set_ignore_eos(options.ignore_eos);
  if (!options.salt.empty()) wire.mutable_cache()->set_salt(options.salt);
  return wire;
}

bool CarriesTokens(const v1::GenerateResponse& message) {
  return std::any_of(message.sequences().begin(), message.sequences().end(),
                     [](const v1::SequenceDelta& delta) { return delta.token_ids_size() > 0; });
}

}  // namespace

LoadRun::LoadRun(Client& client, absl::Span<const BenchRequest> requests, const LoadOptions& options)
    : client_(client), requests_(requests), options_(options), start_(Clock::now()), calls_(requests.size()) {
  QUIRE_CHECK(options.concurrency >= 1);
}

void LoadRun::Start() {
  for (int i = 0; i < options_.concurrency; ++i) {
    size_t index;
    {
      absl::MutexLock lock(&mutex_);
      if (!HasNext()) return;
      index = next_++;
      ++num_running_;
    }
    Send(index);
  }
}

void LoadRun::Send(size_t index) {
  // Touched by the callbacks of this call only, which come one at a time.
  auto record = std::make_shared<RequestRecord>();
  const std::shared_ptr<Call> call = client_.NewGenerate(
      ToWire(requests_[index], options_, index),
      [this, record](const v1::GenerateResponse& message) {
        if (CarriesTokens(message)) record->chunks.push_back(Now());
        if (message.has_usage()) {
          record->prompt_tokens = message.usage().prompt_tokens();
          record->completion_tokens = message.usage().completion_tokens();
        }
      },
      [this, record, index](const absl::Status& status) {
        record->completed = status.ok();
        if (!status.ok()) record->error = absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message());
        OnEnd(index, std::move(*record));
      });
  {
    absl::MutexLock lock(&mutex_);
    calls_[index] = call;
    if (cancelled_) call->Cancel();
  }
  record->sent = Now();
  call->Start();  // the last thing: the run may be over and gone when it returns
}

void LoadRun::OnEnd(size_t index, RequestRecord record) {
  size_t next;
  {
    absl::MutexLock lock(&mutex_);
    records_.push_back(std::move(record));
    calls_[index] = nullptr;
    if (!HasNext()) {
      if (--num_running_ == 0) duration_ = Now();
      return;
    }
    next = next_++;
  }
  Send(next);
}

bool LoadRun::Wait(absl::Duration timeout) {
  const auto ended = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return Ended(); };
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&ended), timeout);
}

void LoadRun::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  for (const std::shared_ptr<Call>& call : calls_) {
    if (call != nullptr) call->Cancel();
  }
}

int64_t LoadRun::num_ended() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int64_t>(records_.size());
}

std::vector<RequestRecord> LoadRun::records() const {
  absl::MutexLock lock(&mutex_);
  return records_;
}

double LoadRun::duration() const {
  absl::MutexLock lock(&mutex_);
  return duration_;
}

}  // namespace quire::cli
