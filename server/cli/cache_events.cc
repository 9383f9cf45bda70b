// `quire cache events`: what happens to the blocks of the prefix cache, as it happens.
#include <atomic>
#include <ostream>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/notification.h"
#include "server/cli/client.h"
#include "server/cli/commands.h"
#include "server/cli/interrupt.h"
#include "server/cli/render.h"

namespace quire::cli {
namespace {

std::string KindName(v1::KvEvent::Kind kind) {
  return absl::AsciiStrToLower(absl::StripPrefix(v1::KvEvent::Kind_Name(kind), "KIND_"));
}
std::string TierName(v1::KvEvent::Tier tier) {
  return absl::AsciiStrToLower(absl::StripPrefix(v1::KvEvent::Tier_Name(tier), "TIER_"));
}

Json EventToJson(uint64_t number, const v1::KvEvent& event) {
  Json json = {{"number", number}, {"kind", KindName(event.kind())}, {"tier", TierName(event.tier())}};
  if (!event.key().empty()) json["key"] = absl::BytesToHexString(event.key());
  if (event.kind() == v1::KvEvent::KIND_STORED) {
    json["parent"] = absl::BytesToHexString(event.parent());
    json["token_ids"] = event.token_ids();
  }
  return json;
}

std::string EventLine(uint64_t number, const v1::KvEvent& event) {
  std::string line = absl::StrFormat("%10d %-8s %-6s %s", number, KindName(event.kind()), TierName(event.tier()),
                                     absl::BytesToHexString(event.key()));
  if (event.kind() == v1::KvEvent::KIND_STORED)
    absl::StrAppend(&line, " behind ", absl::BytesToHexString(event.parent()));
  return line + "\n";
}

// Prints messages until there were enough events.
class EventPrinter {
 public:
  EventPrinter(const CacheEventsOptions& options, std::ostream& out) : options_(options), out_(out) {}

  bool is_full() const { return options_.count > 0 && count_ >= options_.count; }

  void Add(const v1::KvEvents& message) {
    if (!message.root().empty() || message.lost() > 0) AddHead(message);
    uint64_t number = message.first();
    for (const v1::KvEvent& event : message.events()) {
      if (is_full()) break;
      out_ << (options_.json ? JsonLine(EventToJson(number, event)) : EventLine(number, event));
      ++number;
      ++count_;
    }
    out_ << std::flush;
  }

 private:
  // Where the events that follow stand.
  void AddHead(const v1::KvEvents& message) {
    const std::string log = absl::StrFormat("%016x", message.log_id());
    if (options_.json) {
      Json json = {{"log_id", log}, {"first", message.first()}, {"lost", message.lost()}};
      if (!message.root().empty()) {
        json["block_size"] = message.block_size();
        json["root"] = absl::BytesToHexString(message.root());
      }
      out_ << JsonLine(json);
      return;
    }
    if (!message.root().empty()) {
      out_ << "log " << log << " from event " << message.first() << " on, blocks of " << message.block_size()
           << " tokens\n";
    }
    if (message.lost() > 0) out_ << message.lost() << " events before event " << message.first() << " are lost\n";
  }

  const CacheEventsOptions& options_;
  std::ostream& out_;
  int64_t count_ = 0;
};

}  // namespace

int RunCacheEvents(const CacheEventsOptions& options, Session& session) {
  const std::unique_ptr<Client> client = ConnectOrReport(session);
  if (client == nullptr) return kExitNoConnection;
  v1::SubscribeKvEventsRequest request;
  if (options.from) request.set_from(*options.from);
  EventPrinter printer(options, session.out);
  absl::Status status;
  absl::Notification done;
  std::shared_ptr<Call> call;
  bool enough = false;
  call = client->NewSubscribe(
      request,
      [&](const v1::KvEvents& message) {
        printer.Add(message);
        enough = printer.is_full();
        if (enough) call->Cancel();
      },
      [&](const absl::Status& result) {
        status = result;
        done.Notify();
      });
  std::atomic<bool> interrupted = false;
  InterruptWatch interrupt([&] {
    interrupted = true;
    call->Cancel();
  });
  call->Start();
  done.WaitForNotification();
  return enough || interrupted ? kExitOk : ReportFailure(session, status);
}

}  // namespace quire::cli
