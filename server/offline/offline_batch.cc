#include "server/offline/offline_batch.h"

#include <cstdint>
#include <memory>
#include <streambuf>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/mutex.h"
#include "server/offline/offline_request.h"
#include "server/offline/offline_result.h"

namespace quire {
namespace {

// Where answers go, and how many are still to come. Any thread. Outlives the batch in the sinks of requests that a
// broken output left in flight: nothing is written any more then.
class Answers {
 public:
  explicit Answers(std::ostream& out) : out_(out) {}

  void Write(const std::string& line) {
    MutexLock lock(&mutex_);
    if (broken_) return;
    out_ << line << '\n';
    out_.flush();
    broken_ = !out_.good();
  }
  // Waits until fewer than `limit` requests are in flight, then counts one more. False once the output is broken.
  bool Begin(int32_t limit) {
    MutexLock lock(&mutex_);
    mutex_.Await([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return broken_ || in_flight_ < limit; });
    ++in_flight_;
    return !broken_;
  }
  void End() {
    MutexLock lock(&mutex_);
    --in_flight_;
  }
  // True once all have come, false once the output is broken.
  bool AwaitAll() {
    MutexLock lock(&mutex_);
    mutex_.Await([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return broken_ || in_flight_ == 0; });
    return !broken_;
  }

 private:
  Mutex mutex_;
  std::ostream& out_ ABSL_GUARDED_BY(mutex_);
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
  int32_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
};

// One request in flight. A slow `out` slows the engine down, as it should here.
class AnswerSink : public OutputSink {
 public:
  AnswerSink(nlohmann::json id, std::shared_ptr<Answers> answers) : id_(std::move(id)), answers_(std::move(answers)) {}

  void Write(OutputDelta delta) override {
    const bool is_last = delta.is_last();
    result_.Add(std::move(delta));
    if (is_last) Answer(result_.ToJson(id_));
  }
  void Fail(const absl::Status& status) override { Answer(ErrorJson(id_, status)); }

 private:
  void Answer(const std::string& line) {
    answers_->Write(line);
    answers_->End();
  }

  const nlohmann::json id_;
  OfflineResult result_;
  const std::shared_ptr<Answers> answers_;
};

// The next line without its end; of one that is too long its beginning. *bytes: how long it is. False at the end of
// `in`.
bool ReadLine(std::istream& in, std::string* line, int64_t* bytes) {
  using Traits = std::istream::traits_type;
  std::streambuf& source = *in.rdbuf();
  line->clear();
  *bytes = 0;
  for (int c; (c = source.sbumpc()) != Traits::eof();) {
    if (c == '\n') return true;
    if (++*bytes <= kMaxOfflineLineBytes) line->push_back(Traits::to_char_type(c));
  }
  return *bytes > 0;
}

// Answers the lines of `in`, or hands them over. False once the output is broken.
bool ReadRequests(Frontend& frontend, std::istream& in, int32_t max_in_flight,
                  const std::shared_ptr<Answers>& answers) {
  int64_t line_number = 0, bytes = 0;
  for (std::string line; ReadLine(in, &line, &bytes);) {
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string::npos && bytes <= kMaxOfflineLineBytes) continue;
    if (!answers->Begin(max_in_flight)) return false;
    const auto refuse = [&](const nlohmann::json& id, const absl::Status& status) {
      answers->Write(ErrorJson(id, status));
      answers->End();
    };
    if (bytes > kMaxOfflineLineBytes) {
      refuse(line_number,
             absl::InvalidArgumentError(absl::StrCat("line ", line_number, ": ", bytes, " bytes are too long; at most ",
                                                     kMaxOfflineLineBytes)));
      continue;
    }
    OfflineRequest request = ParseOfflineRequest(line, line_number);
    if (!request.request.ok()) {
      refuse(request.id, request.request.status());
      continue;
    }
    const auto handle =
        frontend.Generate(*std::move(request.request), std::make_shared<AnswerSink>(request.id, answers));
    if (!handle.ok()) refuse(request.id, handle.status());
  }
  return true;
}

}  // namespace

absl::Status RunOfflineBatch(Frontend& frontend, std::istream& in, std::ostream& out, int32_t max_in_flight) {
  const auto answers = std::make_shared<Answers>(out);
  // Reading from std::cin would otherwise flush std::cout while another thread writes to it.
  std::ostream* const tied = in.tie(nullptr);
  const bool written = ReadRequests(frontend, in, max_in_flight, answers) && answers->AwaitAll();
  in.tie(tied);
  return written ? absl::OkStatus() : absl::InternalError("the results cannot be written");
}

}  // namespace quire
