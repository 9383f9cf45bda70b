#include "server/offline/offline_batch.h"

#include <memory>
#include <string>
#include <utility>

#include "kernels/base/mutex.h"
#include "server/offline/offline_request.h"
#include "server/offline/offline_result.h"

namespace quire {
namespace {

// Where answers go, and how many are still to come. Any thread.
class Answers {
 public:
  explicit Answers(std::ostream& out) : out_(out) {}

  void Write(const std::string& line) {
    MutexLock lock(&mutex_);
    out_ << line << '\n';
    out_.flush();
  }
  // Waits until fewer than `limit` requests are in flight, then counts one more.
  void Begin(int32_t limit) {
    MutexLock lock(&mutex_);
    mutex_.Await([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return in_flight_ < limit; });
    ++in_flight_;
  }
  void End() {
    MutexLock lock(&mutex_);
    --in_flight_;
  }
  absl::Status AwaitAll() {
    MutexLock lock(&mutex_);
    mutex_.Await([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return in_flight_ == 0; });
    return out_.good() ? absl::OkStatus() : absl::InternalError("the results cannot be written");
  }

 private:
  Mutex mutex_;
  std::ostream& out_ ABSL_GUARDED_BY(mutex_);
  int32_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
};

// One request in flight. A slow `out` slows the engine down, as it should here.
class AnswerSink : public OutputSink {
 public:
  AnswerSink(nlohmann::json id, Answers& answers) : id_(std::move(id)), answers_(answers) {}

  void Write(OutputDelta delta) override {
    const bool is_last = delta.is_last();
    result_.Add(std::move(delta));
    if (is_last) Answer(result_.ToJson(id_));
  }
  void Fail(const absl::Status& status) override { Answer(ErrorJson(id_, status)); }

 private:
  void Answer(const std::string& line) {
    answers_.Write(line);
    answers_.End();
  }

  const nlohmann::json id_;
  OfflineResult result_;
  Answers& answers_;
};

}  // namespace

absl::Status RunOfflineBatch(Frontend& frontend, std::istream& in, std::ostream& out, int32_t max_in_flight) {
  Answers answers(out);
  // Reading from std::cin would otherwise flush std::cout while another thread writes to it.
  std::ostream* const tied = in.tie(nullptr);
  int64_t line_number = 0;
  for (std::string line; std::getline(in, line, '\n');) {
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    OfflineRequest request = ParseOfflineRequest(line, line_number);
    if (!request.request.ok()) {
      answers.Write(ErrorJson(request.id, request.request.status()));
      continue;
    }
    answers.Begin(max_in_flight);
    const auto handle =
        frontend.Generate(*std::move(request.request), std::make_shared<AnswerSink>(request.id, answers));
    if (handle.ok()) continue;
    answers.Write(ErrorJson(request.id, handle.status()));
    answers.End();
  }
  const absl::Status status = answers.AwaitAll();
  in.tie(tied);
  return status;
}

}  // namespace quire
